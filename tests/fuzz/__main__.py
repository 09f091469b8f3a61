"""python -m tests.fuzz N [--seconds S] [--seed K] [--only NAME] [--jobs J]: N cases over all rooms, and a summary."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections import Counter

from tests.fuzz.rooms import ROOMS, Tally, run_rooms

MOST_SHOWN = 20
SEEDS_OF_JOB = 1_000_000


def main(argv: list[str] | None = None) -> int:
    """Run the rooms, on several processes if asked, and say what was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("number", type=int, help="cases in all")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after about so long")
    parser.add_argument("--seed", type=int, default=0, help="of the first room of the first round; each adds one")
    parser.add_argument("--only", choices=ROOMS, help="one room alone")
    parser.add_argument("--jobs", type=int, default=1, help="processes, with seeds of their own (default 1)")
    options = parser.parse_args(argv)
    names = [name for name in ROOMS if options.only in (None, name)]
    start = time.monotonic()
    each = -(-options.number // options.jobs)
    parts = [(names, each, options.seconds, options.seed + SEEDS_OF_JOB * job) for job in range(options.jobs)]
    tally = Tally()
    if options.jobs == 1:
        tally.add(run_rooms(*parts[0]))
    else:
        with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
            for part in pool.starmap(run_rooms, parts):
                tally.add(part)
    for name, counts in tally.ended.items():
        print(f"{name}: {counts.total()} cases")
        for outcome, number in sorted(counts.items()):
            print(f"  {outcome:<44} {number}")
    for text, (number, case) in sorted(tally.findings.items(), key=lambda one: -one[1][0])[:MOST_SHOWN]:
        print(f"FOUND {number} times: {text}\n  for instance {case!r}")
    kinds = Counter(
        "hang" if "hang" in text else "file lost" if "file lost" in text else "traceback or wrong result"
        for text in tally.findings
    )
    words = (
        ", ".join(f"{number} kinds of {kind}" for kind, number in kinds.items())
        or "no traceback, no hang, no file lost"
    )
    rooms = ", ".join(f"{name} {counts.total()}" for name, counts in tally.ended.items())
    print(
        f"fuzz: {tally.total} cases ({rooms}) in {time.monotonic() - start:.0f} s, {tally.seconds:.0f} s of processor "
        f"time (seed {options.seed}): {words}"
    )
    return 1 if tally.findings else 0


if __name__ == "__main__":
    sys.exit(main())
