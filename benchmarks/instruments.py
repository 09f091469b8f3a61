"""beta_kappa against the sequence length: seconds after load, and the peak memory of the whole process.

    python -m benchmarks.instruments                       the table
    python -m benchmarks.instruments --json                one JSON object
    python -m benchmarks.instruments --lengths 64 128 --batch 512
    python -m benchmarks.instruments --query all --batch 16

Every length runs in a process of its own, on one thread: `capture` on `--batch` sequences, then `fit_scores`, after a
small round that compiles. `memory` is the largest resident size the process ever had, libraries included. `at once` is
what the copy and match attention of all sequences would take in one piece, scores and patterns, which the instruments
avoid; `saved` is the ratio of the two. `time x` compares with the first length. Seconds are of the process, not of the
clock, so that a busy machine does not count.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from typing import Any

LENGTHS = (32, 64, 128, 256, 512, 1024)
ORDER, VOCAB = 2, 5
MEGABYTE = 1 << 20


def measure(length: int, *, batch: int, query: str) -> dict[str, Any]:
    """One length, in this process."""
    import interp as ip
    from interp.fits import fit_scores

    prior = ip.HierarchicalDirichlet(order=ORDER, vocab=VOCAB, eta=(5.0,) * ORDER)
    for size, sequences in ((8, 16), (length, batch)):
        tokens = prior.sample(batch=sequences, length=size, seed=0).tokens
        model = ip.construct(order=ORDER, vocab=VOCAB, length=size, beta=(2.7, 1.2), kappa=3.3, dtype="float32")
        start = time.process_time()
        cap = ip.capture(model, tokens, query=query)
        captured = time.process_time()
        fit = fit_scores(cap)
        done = time.process_time()
    error = max(abs(fit.beta - [2.7, 1.2]).max(), abs(fit.kappa - 3.3)) if query == "last" else None
    return {
        "length": length,
        "capture_seconds": captured - start,
        "fit_seconds": done - captured,
        "seconds": done - start,
        "memory_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "held_at_once_megabytes": 2 * 4 * batch * (ORDER + 1) * (length + 1) ** 2 / MEGABYTE,
        "error": error,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, metavar="T")
    parser.add_argument("--batch", type=int, default=512, metavar="N", help="sequences (default: %(default)s)")
    parser.add_argument("--query", choices=("last", "all"), default="last", help="(default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--one", type=int, metavar="T", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        print(json.dumps(measure(options.one, batch=options.batch, query=options.query)))
        return
    rows = []
    for length in options.lengths:
        command = [sys.executable, "-m", "benchmarks.instruments", "--one", str(length)]
        command += ["--batch", str(options.batch), "--query", options.query]
        child = subprocess.run(
            command, check=True, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
        )
        rows.append(json.loads(child.stdout))
        rows[-1]["time_ratio"] = rows[-1]["seconds"] / rows[0]["seconds"]
        rows[-1]["saved_ratio"] = rows[-1]["held_at_once_megabytes"] / rows[-1]["memory_megabytes"]
    if options.json:
        from interp.results import provenance

        print(json.dumps({"benchmark": "instruments", "rows": rows, "provenance": provenance(seed=0)}, indent=2))
        return
    print(f"beta_kappa on {options.batch} sequences, query={options.query}")
    print("    T  capture s    fit s  total s  time x  memory MB  at once MB    saved")
    for row in rows:
        print(
            f"{row['length']:>5} {row['capture_seconds']:>10.3f} {row['fit_seconds']:>8.3f} {row['seconds']:>8.3f} "
            f"{row['time_ratio']:>7.1f} {row['memory_megabytes']:>10.0f} {row['held_at_once_megabytes']:>11.0f} "
            f"{row['saved_ratio']:>7.1f}x"
        )


if __name__ == "__main__":
    main()
