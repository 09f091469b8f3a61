"""python -m tests.fuzz N [--seconds S] [--seed K] [--only NAME]: N cases over all strategies, and a summary line."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import hypothesis

from tests.fuzz import checkpoints, commands, files, library
from tests.fuzz.room import Finding, Sandbox
from tests.fuzz.world import build, light

ROOMS: dict[str, ModuleType] = {"commands": commands, "files": files, "checkpoints": checkpoints, "library": library}
CHUNK = 500  # cases between two looks at the clock
MOST_SHOWN = 20


def explore(
    room: ModuleType, sandbox: Sandbox, *, number: int, seed: int
) -> tuple[Counter[str], list[tuple[str, Any]]]:
    """Run `number` cases of a room: how they ended, and the findings with their cases."""
    ended: Counter[str] = Counter()
    found: list[tuple[str, Any]] = []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=number,
        deadline=None,
        database=None,
        derandomize=False,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(room.cases())
    def run(case: Any) -> None:
        try:
            ended[room.run(case, sandbox)] += 1
        except Finding as finding:
            ended["FOUND"] += 1
            found.append((str(finding), case))

    run()
    return ended, found


def main(argv: list[str] | None = None) -> int:
    """Run the rooms in turn, a chunk each, until all cases are run or the time is up."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("number", type=int, help="cases in all")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after about so long")
    parser.add_argument("--seed", type=int, default=0, help="of the first chunk; each chunk adds one")
    parser.add_argument("--only", choices=ROOMS, help="one room alone")
    options = parser.parse_args(argv)
    rooms = {name: room for name, room in ROOMS.items() if options.only in (None, name)}
    start, seed = time.monotonic(), options.seed
    ended = {name: Counter[str]() for name in rooms}
    findings: dict[str, tuple[int, Any]] = {}
    with tempfile.TemporaryDirectory() as folder, light():
        sandbox = build(Path(folder) / "root")
        while (done := sum(count.total() for count in ended.values())) < options.number:
            if time.monotonic() - start > options.seconds:
                break
            for name, room in rooms.items():
                share = min(CHUNK, -(-(options.number - done) // len(rooms)))
                counts, found = explore(room, sandbox, number=share, seed=seed)
                ended[name] += counts
                for text, case in found:
                    findings[f"{name}: {text}"] = (findings.get(f"{name}: {text}", (0, case))[0] + 1, case)
                seed += 1
            print(f"  {done} cases, {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
    for name, counts in ended.items():
        print(f"{name}: {counts.total()} cases")
        for outcome, number in sorted(counts.items()):
            print(f"  {outcome:<44} {number}")
    for text, (number, case) in sorted(findings.items(), key=lambda one: -one[1][0])[:MOST_SHOWN]:
        print(f"FOUND {number} times: {text}\n  for instance {str(case)[:400]!r}")
    total = sum(count.total() for count in ended.values())
    kinds = Counter(
        "hang" if "hang" in text else "file lost" if "file lost" in text else "traceback or wrong result"
        for text in findings
    )
    words = (
        ", ".join(f"{number} kinds of {kind}" for kind, number in kinds.items())
        or "no traceback, no hang, no file lost"
    )
    print(f"fuzz: {total} cases in {time.monotonic() - start:.0f} s (seed {options.seed}): {words}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
