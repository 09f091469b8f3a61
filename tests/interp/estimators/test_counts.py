"""Masks and counts against their definitions, at the last and at every position."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from interp.estimators import counts
from interp.estimators.counts import (
    NOT_A_CANDIDATE,
    cumulative_counts,
    mask_counts,
    match_masks,
)
from interp.estimators.soft_matching import soft_matching
from tests import reference
from tests.cases import CASES, Case

# Counts know nothing of beta and kappa: one case for each shape.
every_shape = pytest.mark.parametrize("case", CASES[::2], ids=str)


def expected_counts(row: list[int], case: Case, *, t: int, cumulative: bool = False) -> np.ndarray:
    count = reference.cumulative_count if cumulative else reference.mask_count
    table = np.zeros((2**case.order, case.vocab), dtype=np.int64)
    for mask in reference.all_masks(case.order):
        for m in range(case.vocab):
            table[reference.mask_index(mask), m] = count(row, t=t, k=case.order, mask=mask, m=m)
    return table


@every_shape
def test_masks_are_the_papers(case: Case) -> None:
    tokens = case.tokens()
    masks = match_masks(tokens, order=case.order)
    everywhere = match_masks(tokens, order=case.order, every_position=True)
    assert masks.shape == tokens.shape
    assert masks.dtype == torch.int64
    assert torch.equal(everywhere[:, -1], masks)
    for row, seen in zip(tokens.tolist(), everywhere.tolist(), strict=True):
        for t in range(1, case.length + 1):
            visible = reference.candidates(t, case.order)
            for s in range(1, case.length + 1):
                if s in visible:
                    mask = reference.match_mask(row, t=t, s=s, k=case.order)
                    assert seen[t - 1][s - 1] == reference.mask_index(mask)
                else:
                    assert seen[t - 1][s - 1] == NOT_A_CANDIDATE


@every_shape
def test_counts_at_the_last_position_are_the_papers(case: Case) -> None:
    tokens = case.tokens(batch=2)
    exact = mask_counts(tokens, order=case.order, vocab=case.vocab)
    cumulative = cumulative_counts(tokens, order=case.order, vocab=case.vocab)
    for b, row in enumerate(tokens.tolist()):
        assert np.array_equal(exact[b], expected_counts(row, case, t=case.length))
        assert np.array_equal(cumulative[b], expected_counts(row, case, t=case.length, cumulative=True))


@every_shape
def test_every_position_counts_its_own_prefix(case: Case) -> None:
    tokens = case.tokens()
    shape = {"order": case.order, "vocab": case.vocab}
    everywhere = mask_counts(tokens, **shape, every_position=True)
    assert everywhere.shape == (*tokens.shape, 2**case.order, case.vocab)
    assert not everywhere[:, : case.order].any()  # no candidate before the (k+1)-th token
    for t in range(case.order + 1, case.length + 1):
        assert torch.equal(everywhere[:, t - 1], mask_counts(tokens[:, :t], **shape))
    assert torch.equal(
        cumulative_counts(tokens, **shape, every_position=True)[:, -1], cumulative_counts(tokens, **shape)
    )


@pytest.mark.parametrize("size", [1, 10**4])
def test_chunks_do_not_show(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Working memory is bounded by going through positions, or sequences, in parts."""
    tokens = np.random.default_rng(5).integers(5, size=(7, 33))
    setting = {"vocab": 5, "beta": (1.5, 0.4), "kappa": 2.0, "every_position": True}
    whole = soft_matching(tokens, **setting)
    monkeypatch.setattr(counts, "CHUNK_BYTES", size)
    assert torch.equal(soft_matching(tokens, **setting), whole)


def test_large_alphabets_are_counted_exactly() -> None:
    rng = np.random.default_rng(0)
    tokens = rng.choice(rng.integers(10**6, size=8), size=(1, 40))
    small = np.unique(tokens, return_inverse=True)[1].reshape(tokens.shape)
    laws = soft_matching(tokens, vocab=10**6, beta=(2.0, 1.0), every_position=True)
    expected = soft_matching(small, vocab=8, beta=(2.0, 1.0), every_position=True)
    torch.testing.assert_close(laws[:, 2:, np.unique(tokens)], expected[:, 2:])
