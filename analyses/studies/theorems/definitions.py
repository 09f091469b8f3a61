"""The paper's definitions, a loop for each sum, without code from `interp`: the reference for the theory check.

A sequence is a list of tokens x[0..T-1] without BOS; the query is its last position, candidates are s >= k.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch

from interp.chains.priors import HierarchicalDirichlet, IndependentDirichlet

Row: TypeAlias = Sequence[int]
Law: TypeAlias = list[float]

SHAPES = [(order, vocab) for order in (1, 2, 3) for vocab in (2, 3, 5)]


class Found(NamedTuple):
    """What a check found: the largest error among its cases, how many, a note, and whether each control behaved."""

    error: float
    cases: int
    note: str = ""
    controls: Mapping[str, bool] = MappingProxyType({})


def matching_lags(row: Row, *, order: int, key: int) -> set[int]:
    """M_s of def:match_mask, as a set of lags."""
    last = len(row) - 1
    return {lag for lag in range(1, order + 1) if row[last - lag + 1] == row[key - lag]}


def votes(row: Row, *, vocab: int, order: int, weight: Callable[[set[int]], float]) -> Law:
    """For each symbol the sum over the candidates that hold it of the weight of their match mask."""
    found = [0.0] * vocab
    for key in range(order, len(row)):
        found[row[key]] += weight(matching_lags(row, order=order, key=key))
    return found


def normalised(shares: Law) -> Law:
    return [share / sum(shares) for share in shares]


def estimator(row: Row, *, vocab: int, beta: Sequence[float], kappa: float | None) -> Law:
    """eq:transformer_estimator."""
    found = votes(
        row, vocab=vocab, order=len(beta), weight=lambda lags: math.exp(sum(beta[lag - 1] for lag in sorted(lags)))
    )
    bos = 0.0 if kappa is None else math.exp(kappa)
    return normalised([share + bos / vocab for share in found])


def lag_sets(order: int) -> list[tuple[int, ...]]:
    """Every set of lags M, the smaller first, [k] last."""
    return [mask for size in range(order + 1) for mask in itertools.combinations(range(1, order + 1), size)]


def cumulative_counts(row: Row, *, vocab: int, order: int, mask: Sequence[int]) -> Law:
    """K_M(m) of def:occurrences for each m: candidates that hold m and match at least on the lags of M."""
    return votes(row, vocab=vocab, order=order, weight=lambda lags: set(mask) <= lags)


def cumulative_estimator(row: Row, *, vocab: int, order: int, gamma: float) -> Law:
    """eq:transformer_estimator_2: the sum over M of gamma^|M| K_M(m), with 0^0 = 1."""
    terms = [
        [gamma ** len(mask) * count for count in cumulative_counts(row, vocab=vocab, order=order, mask=mask)]
        for mask in lag_sets(order)
    ]
    return normalised([sum(column) for column in zip(*terms, strict=True)])


def suffix_model(row: Row, *, vocab: int, order: int, suffix: int) -> Law | None:
    """p_i of eq:jelinek_mercer: successors of the last `suffix` tokens; None if they were not seen."""
    found = cumulative_counts(row, vocab=vocab, order=order, mask=range(1, suffix + 1))
    return normalised(found) if sum(found) else None


def back_off(row: Row, *, vocab: int, order: int) -> Law:
    """Katz's selection rule as the paper states it: the longest contiguous suffix that has been seen."""
    models = (suffix_model(row, vocab=vocab, order=order, suffix=suffix) for suffix in range(order, -1, -1))
    return next(model for model in models if model)  # the empty suffix matches every candidate


def best_matches(row: Row, *, vocab: int, weights: Sequence[int]) -> Law:
    """The average over the candidates with the largest total weight of matching lags."""
    order = len(weights)

    def total(lags: set[int]) -> int:
        return sum(weights[lag - 1] for lag in lags)

    top = max(total(matching_lags(row, order=order, key=key)) for key in range(order, len(row)))
    return normalised(votes(row, vocab=vocab, order=order, weight=lambda lags: total(lags) == top))


def samples(rng: np.random.Generator, *, order: int, vocab: int, batch: int, length: int | None = None) -> torch.Tensor:
    """`batch` sequences of one random length, from either prior, with sparse laws so that contexts repeat."""
    seed = int(rng.integers(2**31))
    length = int(rng.integers(order + 3, 24)) if length is None else length
    if rng.random() < 0.5:
        prior = IndependentDirichlet(order=order, vocab=vocab, alpha=0.5)
        return prior.sample(batch=batch, length=length, seed=seed, method="explicit").tokens
    hierarchy = HierarchicalDirichlet(order=order, vocab=vocab, eta=(3.0,) * order)
    return hierarchy.sample(batch=batch, length=length, seed=seed, method="explicit").tokens


def patterns(*, length: int, vocab: int) -> Iterator[tuple[int, ...]]:
    """All sequences up to relabeling: each new symbol is the smallest unused one."""
    for row in itertools.product(range(vocab), repeat=length):
        if all(token <= max(row[:place], default=-1) + 1 for place, token in enumerate(row)):
            yield row


def gap(first: Any, second: Any) -> float:
    """The largest difference between two laws, or two lists of laws."""
    left, right = (torch.as_tensor(one, dtype=torch.float64) for one in (first, second))
    return float((left - right).abs().max())
