"""What the checks of the theory share: random sequences, what a check found, and the paper's models by their counts.

The estimators of `interp` are compared with the paper's definitions, written as double loops, in the tests. Here all
that is compared is made of their counts N_M(m) and K_M(m), and of HookedTransformers.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch

from interp.chains.priors import HierarchicalDirichlet, IndependentDirichlet
from interp.estimators.counts import cumulative_counts, mask_counts
from interp.notation import overlap

SHAPES = [(order, vocab) for order in (1, 2, 3) for vocab in (2, 3, 5)]


class Found(NamedTuple):
    """What a check found: the largest error among its cases, how many, a note, and whether each control behaved."""

    error: float
    cases: int
    note: str = ""
    controls: Mapping[str, bool] = MappingProxyType({})


def sizes(order: int) -> torch.Tensor:
    """|M| of each mask, [k] last."""
    return torch.tensor([overlap(mask) for mask in range(1 << order)])


def suffix_models(rows: Any, *, order: int, vocab: int) -> torch.Tensor:
    """[row, i, m]: p_i of eq:jelinek_mercer, the successors of the last i tokens; zero where they were not seen."""
    counts = cumulative_counts(rows, order=order, vocab=vocab)[:, [(1 << size) - 1 for size in range(order + 1)]]
    return torch.nan_to_num(counts.double() / counts.sum(-1, keepdim=True))


def back_off(rows: Any, *, order: int, vocab: int) -> torch.Tensor:
    """Katz's selection rule as the paper states it: the longest contiguous suffix that has been seen."""
    models = suffix_models(rows, order=order, vocab=vocab)
    longest = (models.sum(-1) > 0).sum(-1) - 1  # what was seen after i tokens was seen after fewer
    return models[torch.arange(len(models)), longest]


def best_matches(rows: Any, *, order: int, vocab: int) -> torch.Tensor:
    """The average over the candidates that match at most lags."""
    counts = mask_counts(rows, order=order, vocab=vocab)
    most = (sizes(order) * (counts.sum(-1) > 0)).amax(-1, keepdim=True)
    votes = (counts * (sizes(order) == most)[..., None]).sum(1).double()
    return votes / votes.sum(-1, keepdim=True)


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
