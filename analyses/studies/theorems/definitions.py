"""The paper's definitions, a loop for each sum, without code from `interp`: the reference for the theory check.

A sequence is a list of tokens x[0..T-1] without BOS; the query is its last position, candidates are s >= k.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
import torch

from interp.chains.priors import HierarchicalDirichlet, IndependentDirichlet

Row: TypeAlias = Sequence[int]
Law: TypeAlias = list[float]
Laws: TypeAlias = Sequence[float] | Sequence[Sequence[float]] | torch.Tensor

SHAPES = [(order, vocab) for order in (1, 2, 3) for vocab in (2, 3, 5)]


def matching_lags(row: Row, *, order: int, key: int) -> set[int]:
    """M_s of def:match_mask, as a set of lags."""
    last = len(row) - 1
    return {lag for lag in range(1, order + 1) if row[last - lag + 1] == row[key - lag]}


def estimator(row: Row, *, vocab: int, beta: Sequence[float], kappa: float | None) -> Law:
    """eq:transformer_estimator, as the softmax over scores that its proof ends with."""
    order = len(beta)
    scores = [sum(beta[lag - 1] for lag in matching_lags(row, order=order, key=key)) for key in range(order, len(row))]
    top = max([*scores, *([] if kappa is None else [kappa])])
    bos = 0.0 if kappa is None else math.exp(kappa - top)
    votes = [bos / vocab] * vocab
    for key, score in zip(range(order, len(row)), scores, strict=True):
        votes[row[key]] += math.exp(score - top)
    total = sum(votes)
    return [vote / total for vote in votes]


def cumulative_estimator(row: Row, *, vocab: int, order: int, gamma: float) -> Law:
    """eq:transformer_estimator_2: the sum over M of gamma^|M| K_M(m), with 0^0 = 1."""
    votes = [0.0] * vocab
    for size in range(order + 1):
        for mask in itertools.combinations(range(1, order + 1), size):
            for key in range(order, len(row)):
                if set(mask) <= matching_lags(row, order=order, key=key):
                    votes[row[key]] += gamma**size
    total = sum(votes)
    return [vote / total for vote in votes]


def cumulative_count(row: Row, *, order: int, mask: Sequence[int], m: int) -> int:
    """K_M(m) of def:occurrences: candidates that hold m and match at least on the lags of M."""
    found = 0
    for key in range(order, len(row)):
        if set(mask) <= matching_lags(row, order=order, key=key) and row[key] == m:
            found += 1
    return found


def suffix_model(row: Row, *, vocab: int, order: int, suffix: int) -> Law | None:
    """p_i of eq:jelinek_mercer: successors of the last `suffix` tokens; None if they were not seen."""
    votes = [0.0] * vocab
    for key in range(order, len(row)):
        if set(range(1, suffix + 1)) <= matching_lags(row, order=order, key=key):
            votes[row[key]] += 1.0
    total = sum(votes)
    return [vote / total for vote in votes] if total else None


def back_off(row: Row, *, vocab: int, order: int) -> Law:
    """Katz's selection rule as the paper states it: the longest contiguous suffix that has been seen."""
    for suffix in range(order, 0, -1):
        if law := suffix_model(row, vocab=vocab, order=order, suffix=suffix):
            return law
    unigram = suffix_model(row, vocab=vocab, order=order, suffix=0)
    assert unigram is not None  # there is always a candidate, and the empty suffix matches it
    return unigram


def best_matches(row: Row, *, vocab: int, weights: Sequence[int]) -> Law:
    """The average over the candidates with the largest total weight of matching lags."""
    order = len(weights)
    totals = [
        sum(weights[lag - 1] for lag in matching_lags(row, order=order, key=key)) for key in range(order, len(row))
    ]
    votes = [0.0] * vocab
    for key, total in zip(range(order, len(row)), totals, strict=True):
        votes[row[key]] += total == max(totals)
    return [vote / sum(votes) for vote in votes]


def samples(rng: np.random.Generator, *, order: int, vocab: int, batch: int, length: int | None = None) -> torch.Tensor:
    """`batch` sequences of one random length, from either prior, with sparse laws so that contexts repeat."""
    seed = int(rng.integers(2**31))
    length = int(rng.integers(order + 3, 24)) if length is None else length
    if rng.random() < 0.5:
        prior = IndependentDirichlet(order=order, vocab=vocab, alpha=0.5)
        return prior.sample(batch=batch, length=length, seed=seed).tokens
    hierarchy = HierarchicalDirichlet(order=order, vocab=vocab, eta=(3.0,) * order)
    return hierarchy.sample(batch=batch, length=length, seed=seed).tokens


def patterns(*, length: int, vocab: int) -> Iterator[tuple[int, ...]]:
    """All sequences up to relabeling: each new symbol is the smallest unused one."""

    def grow(prefix: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(prefix) == length:
            yield prefix
            return
        for token in range(min(vocab, max(prefix, default=-1) + 2)):
            yield from grow((*prefix, token))

    return grow(())


def gap(first: Laws, second: Laws) -> float:
    """The largest difference between two laws, or two lists of laws."""
    left = torch.as_tensor(first, dtype=torch.float64)
    right = torch.as_tensor(second, dtype=torch.float64)
    return float((left - right).abs().max())
