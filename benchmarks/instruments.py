"""The instruments against the sequence length: seconds after load, and the peak memory of the whole process.

    python -m benchmarks.instruments                       the table: every instrument at every length
    python -m benchmarks.instruments --json                one JSON object
    python -m benchmarks.instruments --only beta_kappa causal --lengths 128 1024 --batch 512
    python -m benchmarks.instruments --only beta_kappa --query all --batch 16

Every instrument runs at every length in a process of its own, on one thread: from tokens to result on `--batch`
sequences, after a small round that compiles. The model is a construction with known beta and kappa, and what the fits
find is held against them (`error`). `memory` is the largest resident size the process ever had, libraries included:
`nothing` is a process that only loads them and draws the sequences. `at once` is what the copy and match attention of
all sequences would take in one piece, scores and patterns, which the instruments avoid. `plain` is `run_with_cache` on
`PLAIN` of the sequences one by one, its seconds scaled to the batch: what the attention costs without the short way
of `interp.circuit.last_query`. `time x` compares with the first length. Seconds are of the process, not of the clock,
so that a busy machine counts less; it still counts, because cores share their caches.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

LENGTHS = (32, 64, 128, 256, 512, 1024)
ORDER, VOCAB, BETA, KAPPA = 2, 5, (2.7, 1.2), 3.3
PLAIN = 16  # sequences
RELABELINGS = 4  # of 120: the cost of label symmetry is that of a prediction, times these
MEGABYTE = 1 << 20


def _fit_error(fit: Any) -> float:
    return float(max(abs(fit.beta - BETA).max(), abs(fit.kappa - KAPPA)))


def _nothing(model: Any, chains: Any, query: Any) -> float | None:
    return None


def _plain(model: Any, chains: Any, query: Any) -> float | None:
    import torch

    bos = torch.full((1, 1), VOCAB)
    for row in chains.tokens[:PLAIN]:
        model.run_with_cache(torch.cat([bos, row[None]], dim=1), prepend_bos=False, return_type=None)
    return None


def _beta_kappa(model: Any, chains: Any, query: Any) -> float | None:
    import interp as ip

    return _fit_error(ip.fit_scores(ip.capture(model, chains.tokens, query=query, copies=False)))


def _lag_pairs(model: Any, chains: Any, query: Any) -> float | None:
    import interp as ip

    pairs = ip.fit_score_pairs(ip.capture(model, chains.tokens, query=query, copies=False))
    return float(max(abs(pairs.beta[lag, lag + 1] - BETA[lag]) for lag in range(ORDER)))


def _overlap_mass(model: Any, chains: Any, query: Any) -> float | None:
    import interp as ip

    return float(ip.overlap_mass(ip.capture(model, chains.tokens, query=query, copies=False)).largest_gap)


def _copy_heads(model: Any, chains: Any, query: Any) -> float | None:
    import interp as ip

    return float(1.0 - ip.copy_heads(ip.capture(model, chains.tokens)).mass.min())


def _identity_blocks(model: Any, chains: Any, query: Any) -> float | None:
    import interp as ip

    ip.identity_blocks(model, chains.tokens)
    return None


def _label_symmetry(model: Any, chains: Any, query: Any) -> float | None:
    import interp as ip

    ip.label_symmetry(model, chains.tokens, draws=RELABELINGS)
    return None


def _causal(model: Any, chains: Any, query: Any) -> float | None:
    import interp as ip

    tests = ip.causal_tests(model, chains.tokens, next_law=chains.next_law, beta=BETA, kappa=KAPPA)
    return 1.0 - tests.loss_recovered


def _smoothing_source(model: Any, chains: Any, query: Any) -> float | None:
    import interp as ip

    ip.smoothing_source(model, chains.tokens, next_law=chains.next_law)
    return None


def _nearest_estimator(model: Any, chains: Any, query: Any) -> float | None:
    import interp as ip

    ip.nearest_estimator(model, chains.tokens, beta=BETA, kappa=KAPPA)
    return None


INSTRUMENTS: dict[str, Callable[[Any, Any, Any], float | None]] = {
    "nothing": _nothing,
    "plain": _plain,
    "beta_kappa": _beta_kappa,
    "lag_pairs": _lag_pairs,
    "overlap_mass": _overlap_mass,
    "copy_heads": _copy_heads,
    "identity_blocks": _identity_blocks,
    "label_symmetry": _label_symmetry,
    "causal": _causal,
    "smoothing_source": _smoothing_source,
    "nearest_estimator": _nearest_estimator,
}


def measure(name: str, length: int, *, batch: int, query: str) -> dict[str, Any]:
    """One instrument at one length, in this process."""
    import interp as ip

    prior = ip.HierarchicalDirichlet(order=ORDER, vocab=VOCAB, eta=(5.0,) * ORDER)
    for size, sequences in ((12, 16), (length, batch)):
        chains = prior.sample(batch=sequences, length=size, seed=0)
        model = ip.construct(order=ORDER, vocab=VOCAB, length=size, beta=BETA, kappa=KAPPA, dtype="float32")
        start = time.process_time()
        error = INSTRUMENTS[name](model, chains, query)
        seconds = time.process_time() - start
    return {
        "instrument": name,
        "length": length,
        "seconds": seconds * max(1.0, batch / PLAIN) if name == "plain" else seconds,
        "memory_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "held_at_once_megabytes": 2 * 4 * batch * (ORDER + 1) * (length + 1) ** 2 / MEGABYTE,
        "error": error if query == "last" else None,
    }


def measure_all(names: list[str], lengths: list[int], *, batch: int, query: str) -> list[dict[str, Any]]:
    """Every instrument at every length, each in a process of its own."""
    rows: list[dict[str, Any]] = []
    for name in names:
        for place, length in enumerate(lengths):
            command = [sys.executable, "-m", "benchmarks.instruments", "--one", name, str(length)]
            command += ["--batch", str(batch), "--query", query]
            child = subprocess.run(
                command, check=True, stdout=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
            )
            rows.append(json.loads(child.stdout))
            first = rows[-1 - place]["seconds"]
            rows[-1]["time_ratio"] = rows[-1]["seconds"] / first if first > 0 else None
            rows[-1]["saved_ratio"] = rows[-1]["held_at_once_megabytes"] / rows[-1]["memory_megabytes"]
            print(f"{name} at T = {length}: {rows[-1]['seconds']:.2f} s", file=sys.stderr, flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=list(INSTRUMENTS), choices=INSTRUMENTS, metavar="NAME")
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, metavar="T")
    parser.add_argument("--batch", type=int, default=512, metavar="N", help="sequences (default: %(default)s)")
    parser.add_argument("--query", choices=("last", "all"), default="last", help="(default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--one", nargs=2, metavar=("NAME", "T"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        name, length = options.one
        print(json.dumps(measure(name, int(length), batch=options.batch, query=options.query)))
        return
    rows = measure_all(options.only, options.lengths, batch=options.batch, query=options.query)
    if options.json:
        from interp.results import provenance

        print(json.dumps({"benchmark": "instruments", "rows": rows, "provenance": provenance(seed=0)}, indent=2))
        return
    print(f"{options.batch} sequences, query={options.query}")
    print("instrument            T    seconds  time x  memory MB  at once MB    saved    error")
    for row in rows:
        ratio = "" if row["time_ratio"] is None else f"{row['time_ratio']:.1f}"
        error = "" if row["error"] is None else f"{row['error']:.1e}"
        print(
            f"{row['instrument']:<17} {row['length']:>5} {row['seconds']:>10.3f} {ratio:>7} "
            f"{row['memory_megabytes']:>10.0f} {row['held_at_once_megabytes']:>11.0f} {row['saved_ratio']:>7.1f}x "
            f"{error:>8}"
        )


if __name__ == "__main__":
    main()
