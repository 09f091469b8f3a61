"""The search for the best beta and kappa: families of sequences and Newton's steps, against independent sequences.

    python -m benchmarks.optimal                      k = 2, |V| = 5, T = 64 and 256, with and without BOS
    python -m benchmarks.optimal --json               one JSON object
    python -m benchmarks.optimal --lengths 256 --draws 100000

`plain` is the former way, kept here alone: independent sequences, the drawn law of the next token as target, one
trust-region search on the whole sample for the optimum and one for each limit. `ours` is
`interp.estimators.optimal.optimal_parameters`. Both run in turn, on one thread, in CPU seconds; the standard errors
are those that each way states, and errors shrink with the root of the time. So the claim is the ratio of the times
at the same standard error, (seconds x error^2) of plain over that of ours, per parameter; `speedup` is the least of
these. `apart` is the largest difference of a number found, in standard errors.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported

import numpy as np
import torch
from numba import njit
from scipy.optimize import minimize

from interp.chains.priors import HierarchicalDirichlet, Prior
from interp.divergence import kl_divergence
from interp.estimators.counts import mask_counts
from interp.estimators.optimal import optimal_parameters
from interp.estimators.soft_matching import soft_matching_from_counts
from interp.notation import mask_bits
from interp.results import provenance

PRIOR = HierarchicalDirichlet(order=2, vocab=5, eta=(5.0, 5.0))
CHUNK = 4096
START = 1.5


@njit(cache=True)
def plain_loss(
    counts: np.ndarray,
    laws: np.ndarray,
    features: np.ndarray,
    theta: np.ndarray,
    losses: np.ndarray,
    gradients: np.ndarray,
    hessian: np.ndarray,
) -> None:
    """Each sequence's cross-entropy, its gradient, and the sum of the Hessians, from every vote's whole feature row."""
    kinds, parameters = features.shape
    n, masks, vocab = counts.shape
    scores = features @ theta
    weights = np.empty(kinds)
    mean, mean_all = np.empty(parameters), np.empty(parameters)
    square, square_all = np.empty((parameters, parameters)), np.empty((parameters, parameters))
    hessian[:] = 0.0
    for b in range(n):
        top = -np.inf
        for j in range(kinds):
            seen = j >= masks or counts[b, j].sum() > 0
            weights[j] = scores[j] if seen else -np.inf
            top = max(top, weights[j])
        total = 0.0
        mean_all[:] = 0.0
        square_all[:] = 0.0
        for j in range(kinds):
            weights[j] = np.exp(weights[j] - top)
            mass = weights[j] * (1.0 if j >= masks else counts[b, j].sum())
            total += mass
            for p in range(parameters):
                mean_all[p] += mass * features[j, p]
                for q in range(p + 1):
                    square_all[p, q] += mass * features[j, p] * features[j, q]
        mean_all /= total
        square_all /= total
        losses[b] = 0.0
        gradients[b] = 0.0
        for m in range(vocab):
            votes = 0.0
            mean[:] = 0.0
            square[:] = 0.0
            for j in range(kinds):
                mass = weights[j] * (1.0 / vocab if j >= masks else counts[b, j, m])
                if mass == 0.0:
                    continue
                votes += mass
                for p in range(parameters):
                    mean[p] += mass * features[j, p]
                    for q in range(p + 1):
                        square[p, q] += mass * features[j, p] * features[j, q]
            if votes == 0.0:
                continue
            law = laws[b, m]
            losses[b] -= law * np.log(votes / total)
            for p in range(parameters):
                mean[p] /= votes
                gradients[b, p] -= law * (mean[p] - mean_all[p])
                for q in range(p + 1):
                    here = square[p, q] / votes - mean[p] * mean[q]
                    overall = square_all[p, q] - mean_all[p] * mean_all[q]
                    hessian[p, q] -= law * (here - overall)
    for p in range(parameters):
        for q in range(p):
            hessian[q, p] = hessian[p, q]


def plain_sample(prior: Prior, *, length: int, draws: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Mask counts and true next laws of independent sequences."""
    counts = np.empty((draws, 1 << prior.order, prior.vocab), dtype=np.int32)
    laws = np.empty((draws, prior.vocab))
    starts = range(0, draws, CHUNK)
    seeds = np.random.SeedSequence(seed).generate_state(len(starts))
    for start, chunk_seed in zip(starts, seeds, strict=True):
        rows = slice(start, min(start + CHUNK, draws))
        chains = prior.sample(batch=rows.stop - rows.start, length=length, seed=int(chunk_seed), method="collapsed")
        counts[rows] = mask_counts(chains.tokens, order=prior.order, vocab=prior.vocab).numpy()
        laws[rows] = chains.next_law.numpy()
    return counts, laws


def plain_fit(counts: np.ndarray, laws: np.ndarray, *, bos: bool) -> tuple[np.ndarray, np.ndarray]:
    """One search on the whole sample; the parameters and their sandwich errors."""
    bits = mask_bits(counts.shape[1].bit_length() - 1).astype(np.float64)
    features = np.zeros((len(bits) + bos, bits.shape[1] + bos))
    features[: len(bits), : bits.shape[1]] = bits
    if bos:
        features[-1, -1] = 1.0
    n, parameters = len(laws), features.shape[1]
    losses, gradients, hessian = np.empty(n), np.empty((n, parameters)), np.empty((parameters, parameters))
    last: list[np.ndarray] = []

    def evaluate(theta: np.ndarray) -> None:
        if not last or not np.array_equal(last[0], theta):
            plain_loss(counts, laws, features, theta, losses, gradients, hessian)
            last[:] = [theta.copy()]

    def value(theta: np.ndarray) -> float:
        evaluate(theta)
        return float(losses.mean())

    def slope(theta: np.ndarray) -> np.ndarray:
        evaluate(theta)
        return gradients.mean(0)

    def curvature(theta: np.ndarray) -> np.ndarray:
        evaluate(theta)
        return hessian / n

    start = np.full(parameters, START)
    if bos:
        start[-1] = START * (parameters - 1)
    found = minimize(
        value, start, jac=slope, hess=curvature, method="trust-exact", options={"gtol": 1e-7, "maxiter": 200}
    )
    evaluate(found.x)
    bread = np.linalg.pinv(hessian / n, rcond=1e-10)
    return found.x, np.sqrt(np.diag(bread @ np.atleast_2d(np.cov(gradients.T)) @ bread) / n)


def plain_optimum(prior: Prior, *, length: int, bos: bool, draws: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The former search: the optimum, with BOS also each limit of it, and the KL; estimates and errors, KL last."""
    counts, laws = plain_sample(prior, length=length, draws=draws, seed=seed)
    theta, errors = plain_fit(counts, laws, bos=bos)
    if bos:
        for required in [(1 << prior.order) - 1, *(1 << lag for lag in range(prior.order))]:
            kept = [mask for mask in range(1 << prior.order) if mask & required == required]
            plain_fit(np.ascontiguousarray(counts[:, kept]), laws, bos=True)
    beta, kappa = torch.from_numpy(theta[: prior.order].copy()), float(theta[-1]) if bos else None
    predictions = [
        soft_matching_from_counts(torch.from_numpy(counts[start : start + CHUNK]), beta=beta, kappa=kappa)
        for start in range(0, draws, CHUNK)
    ]
    divergence = kl_divergence(torch.from_numpy(laws), torch.cat(predictions))
    return np.append(theta, divergence.mean), np.append(errors, divergence.stderr)


def rows(lengths: list[int], *, draws: int) -> list[dict[str, Any]]:
    table = []
    for bos in (True, False):  # compile
        plain_optimum(PRIOR, length=16, bos=bos, draws=200, seed=0)
        optimal_parameters(PRIOR, length=16, bos=bos, draws=200)
    for length in lengths:
        for bos in (True, False):
            start = time.process_time()
            plain, plain_errors = plain_optimum(PRIOR, length=length, bos=bos, draws=draws, seed=0)
            middle = time.process_time()
            best = optimal_parameters(PRIOR, length=length, bos=bos, draws=draws, seed=1)
            plain_seconds, seconds = middle - start, time.process_time() - middle
            ours = np.array([*best.beta, *([best.kappa] if bos else []), best.kl])
            errors = np.array([*best.stderr, best.kl_stderr])
            gain = plain_seconds * plain_errors**2 / (seconds * errors**2)
            table.append(
                {
                    "length": length,
                    "bos": bos,
                    "plain_seconds": round(plain_seconds, 2),
                    "seconds": round(seconds, 2),
                    "same_draws": round(plain_seconds / seconds, 1),
                    "beta": round(float(gain[:2].min()), 1),
                    "kappa": round(float(gain[2]), 1) if bos else None,
                    "kl": round(float(gain[-1]), 1),
                    "speedup": round(float(gain.min()), 1),
                    "apart": round(float((np.abs(ours - plain) / np.hypot(errors, plain_errors)).max()), 1),
                }
            )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--draws", type=int, default=100_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    table = rows(options.lengths, draws=options.draws)
    if options.json:
        print(json.dumps({"benchmark": "optimal", "rows": table, "provenance": provenance(seed=0)}))
        return
    print("  ".join(f"{name:>13}" for name in table[0]))
    for row in table:
        print("  ".join(f"{value!s:>13}" for value in row.values()))


if __name__ == "__main__":
    main()
