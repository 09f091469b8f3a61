"""The Bayes predictor of the hierarchical prior: compiled against plain Python, and its error against a long run.

    python -m benchmarks.bayes                        both tables
    python -m benchmarks.bayes --json                 one JSON object
    python -m benchmarks.bayes --lengths 32 128 --batch 2000 --draws 200

Speed: the same blocked Gibbs sampler with dictionaries and NumPy's generator, on a few sequences, beside the
compiled one on `--batch`; one thread, in turn, per sequence and sweep. The ratio is the claim; the seconds
depend on the machine.

Accuracy: the predictor at `--draws` against itself with a hundred times as many, and against importance
sampling from the prior with 10^6 draws, which shares no code with it; in units of the stated Monte Carlo
error, where 1 is expected.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import defaultdict
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported

import numpy as np
from scipy.special import gammaln

from interp.chains.priors import HierarchicalDirichlet, draw_dirichlet
from interp.estimators.bayes import bayes_predictive
from interp.results import provenance

BURN_IN = 20
PLAIN_SEQUENCES = 5
PRIOR = HierarchicalDirichlet(order=2, vocab=5, eta=(5.0, 5.0))


def plain_gibbs(x: list[int], prior: HierarchicalDirichlet, *, sweeps: int, rng: np.random.Generator) -> np.ndarray:
    """One chain of the sampler, as one would write it first: contexts are tuples (older, ..., recent)."""
    order, vocab = prior.order, prior.vocab
    concentrations = prior.concentrations()
    leaves: dict[tuple[int, ...], np.ndarray] = defaultdict(lambda: np.zeros(vocab, dtype=int))
    for s in range(order, len(x)):
        leaves[tuple(x[s - order : s])][x[s]] += 1
    leaves[tuple(x[len(x) - order :])] += 0
    inner = sorted({context[i:] for context in leaves for i in range(1, order + 1)}, key=len)
    laws = {context: np.full(vocab, 1.0 / vocab) for context in inner}
    total = np.zeros(vocab)
    for sweep in range(sweeps):
        customers = {context: np.zeros(vocab, dtype=int) for context in inner} | {
            u: n.copy() for u, n in leaves.items()
        }
        for context in sorted(customers, key=len, reverse=True)[:-1]:
            for m in np.flatnonzero(customers[context]):
                theta = concentrations[len(context)] * laws[context[1:]][m]
                steps = np.arange(1, customers[context][m])
                customers[context[1:]][m] += 1 + int((rng.random(len(steps)) * (theta + steps) < theta).sum())
        for context in inner:
            base = laws[context[1:]] if context else np.full(vocab, 1.0 / vocab)
            laws[context] = draw_dirichlet(concentrations[len(context)] * base + customers[context], rng)
        law = np.full(vocab, 1.0 / vocab)
        for depth in range(order + 1):
            here = customers[tuple(x[len(x) - depth :])]
            law = (here + concentrations[depth] * law) / (here.sum() + concentrations[depth])
        if sweep >= BURN_IN:
            total += law
    return total / (sweeps - BURN_IN)


def importance_sampling(
    tokens: np.ndarray, prior: HierarchicalDirichlet, *, draws: int
) -> tuple[np.ndarray, np.ndarray]:
    """Order 2 only: laws of order 0 and 1 from the prior, weighted by the likelihood; mean and its error."""
    rng = np.random.default_rng(0)
    vocab, (outer, last) = prior.vocab, prior.eta
    root = draw_dirichlet(np.full((draws, vocab), prior.eta0), rng)
    inner = draw_dirichlet(outer * np.repeat(root[:, None], vocab, axis=1), rng)  # [draw, recent token, symbol]
    shapes = np.maximum(last * inner, 1e-300)
    means, errors = [], []
    for x in tokens:
        counts = np.zeros((vocab,) * 3)
        np.add.at(counts, (x[:-2], x[1:-1], x[2:]), 1)
        logs = sum((gammaln(shapes + older) - gammaln(shapes)).sum((1, 2)) for older in counts)
        # Each context's law is integrated out; its total is the same in all draws and cancels.
        weights = np.exp(logs - logs.max())
        weights /= weights.sum()
        here = counts[x[-2], x[-1]]
        ahead = (here + last * inner[:, x[-1]]) / (here.sum() + last)
        means.append(weights @ ahead)
        errors.append(np.sqrt((weights[:, None] ** 2 * (ahead - means[-1]) ** 2).sum(0)))
    return np.array(means), np.array(errors)


def speed_rows(lengths: list[int], *, batch: int, draws: int) -> list[dict[str, Any]]:
    rows = []
    for length in lengths:
        tokens = PRIOR.sample(batch=batch, length=length, seed=0, method="collapsed").tokens
        bayes_predictive(tokens[:2], prior=PRIOR, draws=draws)  # compile
        start = time.perf_counter()
        result = bayes_predictive(tokens, prior=PRIOR, draws=draws, burn_in=BURN_IN)
        seconds = time.perf_counter() - start
        sweeps = batch * (result.draws + result.chains * BURN_IN)
        rng = np.random.default_rng(0)
        start = time.perf_counter()
        for x in tokens[:PLAIN_SEQUENCES].tolist():
            plain_gibbs(x, PRIOR, sweeps=3 * BURN_IN, rng=rng)
        plain = (time.perf_counter() - start) / (PLAIN_SEQUENCES * 3 * BURN_IN)
        rows.append(
            {
                "length": length,
                "batch": batch,
                "draws": result.draws,
                "seconds": round(seconds, 2),
                "microseconds_per_sweep": round(1e6 * seconds / sweeps, 2),
                "plain_over_compiled": round(plain * sweeps / seconds, 1),
                "monte_carlo_error": result.error,
                "converged": result.success,
            }
        )
    return rows


def accuracy_rows(*, draws: int) -> list[dict[str, Any]]:
    small = HierarchicalDirichlet(order=2, vocab=3, eta=(4.0, 4.0))
    tokens = small.sample(batch=10, length=40, seed=1).tokens
    ours = bayes_predictive(tokens, prior=small, draws=draws, chains=16)
    weighted, weighted_error = importance_sampling(tokens.numpy(), small, draws=1_000_000)
    long = bayes_predictive(tokens, prior=small, draws=100 * draws, chains=16, seed=1)
    rows = []
    for name, mean, error in [
        ("importance sampling", weighted, weighted_error),
        ("long run", long.mean.numpy(), long.mcse.numpy()),
    ]:
        apart = ours.mean.numpy() - mean
        scores = apart / np.maximum(np.hypot(ours.mcse.numpy(), error), 1e-9)
        rows.append(
            {
                "against": name,
                "largest_difference": float(np.abs(apart).max()),
                "rms_in_errors": float(np.sqrt((scores**2).mean())),
                "largest_in_errors": float(np.abs(scores).max()),
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=[32, 128, 512])
    parser.add_argument("--batch", type=int, default=2000)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    speed = speed_rows(options.lengths, batch=options.batch, draws=options.draws)
    accuracy = accuracy_rows(draws=options.draws)
    if options.json:
        print(json.dumps({"benchmark": "bayes", "rows": speed, "accuracy": accuracy, "provenance": provenance(seed=0)}))
        return
    for rows in (speed, accuracy):
        print("  ".join(f"{name:>22}" for name in rows[0]))
        for row in rows:
            cells = [format(value, ".4g") if isinstance(value, float) else str(value) for value in row.values()]
            print("  ".join(f"{cell:>22}" for cell in cells))
        print()


if __name__ == "__main__":
    main()
