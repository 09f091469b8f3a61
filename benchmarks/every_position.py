"""soft_matching at every position: successor counts against the pairwise form.

    python -m benchmarks.every_position                the table
    python -m benchmarks.every_position --json         one JSON object
    python -m benchmarks.every_position --lengths 64 256 --batch 4

The pairwise form is what attention does: all [query, key] scores as one matrix product, a causal softmax with BOS, a
weighted sum of tokens. It is written in torch, in the same precision, in place where it can be, and goes through the
batch in parts that stay in the cache. Both forms run in one process on one thread, in turn, and the best of several
rounds counts: the ratio is the claim, the seconds are not. Peak memory is what one call adds to a child process that
has made a small call before.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported

import torch

from interp import HierarchicalDirichlet, provenance, soft_matching

LENGTHS = (64, 256, 1024)
CHUNK_BYTES = 1 << 20  # scores of the pairwise form held at once; larger chunks leave the cache and are slower


def pairwise(tokens: torch.Tensor, *, vocab: int, beta: tuple[float, ...], kappa: float) -> torch.Tensor:
    """eq:transformer_estimator at every position by scoring all pairs of positions."""
    batch, length = tokens.shape
    step = max(1, CHUNK_BYTES // (8 * length * length))
    visible = torch.ones(length, length, dtype=torch.bool).tril()
    visible[:, : len(beta)] = False  # keys without a full context
    hidden = torch.zeros(length, length, dtype=torch.float64).masked_fill(~visible, -torch.inf)
    laws = torch.empty(batch, length, vocab, dtype=torch.float64)
    for start in range(0, batch, step):
        part = torch.nn.functional.one_hot(tokens[start : start + step], vocab).double()
        query = torch.cat([weight * torch.roll(part, lag, dims=1) for lag, weight in enumerate(beta)], dim=-1)
        key = torch.cat([torch.roll(part, lag, dims=1) for lag in range(1, len(beta) + 1)], dim=-1)
        scores = torch.baddbmm(hidden.expand(len(part), -1, -1), query, key.mT)
        top = scores.amax(dim=-1, keepdim=True).clamp_(min=kappa)
        votes = scores.sub_(top).exp_() @ part + torch.exp(kappa - top) / vocab
        laws[start : start + step] = votes / votes.sum(dim=-1, keepdim=True)
    return laws


def best_seconds(run: Callable[[], object], *, rounds: int) -> float:
    """The quickest of several rounds: the one least disturbed by whatever else the machine does."""
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def peak_megabytes(run: Callable[[], object], *, warm_up: Callable[[], object]) -> float:
    """How far a child process's resident memory rises while it runs once."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            unit = 1 if sys.platform == "darwin" else 1024
            warm_up()  # touches the libraries' own pages
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            run()
            after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            os.write(writer, json.dumps((after - before) * unit / 2**20).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    answer = os.read(reader, 64)
    os.close(reader)
    os.waitpid(child, 0)
    return float(json.loads(answer))


class Contest:
    """The two forms on the same sequences."""

    def __init__(self, *, length: int, order: int, vocab: int, batch: int) -> None:
        prior = HierarchicalDirichlet(order=order, vocab=vocab, eta=(5.0,) * order)
        self.tokens = prior.sample(batch=batch, length=length, seed=0, method="collapsed").tokens
        self.setting: dict[str, Any] = {
            "vocab": vocab,
            "beta": tuple(2.0 - 0.5 * lag for lag in range(order)),
            "kappa": 1.0,
        }

    def counted(self, tokens: torch.Tensor) -> torch.Tensor:
        return soft_matching(tokens, **self.setting, every_position=True)

    def compared(self, tokens: torch.Tensor) -> torch.Tensor:
        return pairwise(tokens, **self.setting)

    def memory(self) -> dict[str, float]:
        """To be asked before anything large has run here: a heap that has been large does not grow again."""
        one, short = self.tokens[:1], self.tokens[:1, : len(self.setting["beta"]) + 8]
        self.counted(one)  # compiles, so that the children need not
        return {
            "peak_mb": peak_megabytes(lambda: self.counted(self.tokens), warm_up=lambda: self.counted(one)),
            "pairwise_peak_mb": peak_megabytes(
                lambda: self.compared(self.tokens), warm_up=lambda: self.compared(short)
            ),
        }

    def speed(self, *, rounds: int) -> dict[str, float]:
        """Raises where the two forms disagree."""
        error = float((self.counted(self.tokens) - self.compared(self.tokens)).abs().max())
        if error > 1e-9:
            raise AssertionError(f"the two forms differ by {error:.1e}")
        ours = best_seconds(lambda: self.counted(self.tokens), rounds=rounds)
        theirs = best_seconds(lambda: self.compared(self.tokens), rounds=rounds)
        return {"seconds": ours, "pairwise_seconds": theirs, "ratio": theirs / ours, "difference": error}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, metavar="T")
    parser.add_argument("--order", type=int, default=2)
    parser.add_argument("--vocab", type=int, default=5)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    setting = {"order": options.order, "vocab": options.vocab, "batch": options.batch}
    contests = [Contest(length=length, **setting) for length in options.lengths]
    memory = [contest.memory() for contest in contests]
    rows = [
        {"length": length, **contest.speed(rounds=options.rounds), **peaks}
        for length, contest, peaks in zip(options.lengths, contests, memory, strict=True)
    ]
    if options.json:
        trace = provenance(seed=0, threads=1, **setting)
        print(json.dumps({"benchmark": "every_position", "rows": rows, "provenance": trace}))
        return
    print("soft_matching(every_position=True), one thread,", ", ".join(f"{k} {v}" for k, v in setting.items()))
    print("length   seconds   pairwise    ratio   peak MB   pairwise MB")
    for row in rows:
        print(
            f"{row['length']:6d} {row['seconds']:9.4f} {row['pairwise_seconds']:10.4f} {row['ratio']:7.1f}x"
            f" {row['peak_mb']:9.1f} {row['pairwise_peak_mb']:13.1f}"
        )
    print(f"The forms agree to {max(row['difference'] for row in rows):.0e}.")


if __name__ == "__main__":
    main()
