"""The glossary's checks and names."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from interp.notation import (
    OVERLAP_KINDS,
    as_beta,
    as_kappa,
    as_tokens,
    is_contiguous,
    key_kinds,
    kind_masses,
    mask_bits,
    mask_name,
    overlap,
)
from tests import reference


@pytest.mark.parametrize(
    "tokens",
    [
        [[0, 1, 2, 1]],
        np.array([[0, 1, 2, 1]], dtype=np.uint8),
        np.array([[0, 9, 1, 9, 2, 9, 1, 9]])[:, ::2],
        torch.tensor([[0, 1, 2, 1]]),
        torch.tensor([[0, 1, 2, 1]], dtype=torch.int16),
    ],
    ids=["list", "uint8", "strided", "torch", "int16"],
)
def test_tokens_of_every_kind_become_the_same_array(tokens: object) -> None:
    array = as_tokens(tokens, vocab=3, order=3)
    assert array.dtype == np.int64
    assert array.flags.c_contiguous
    assert array.tolist() == [[0, 1, 2, 1]]


@pytest.mark.parametrize("beta", [(1.0, 2.0), [1, 2], np.array([1, 2]), torch.tensor([1.0, 2.0])])
def test_beta_of_every_kind_becomes_the_same_array(beta: object) -> None:
    array = as_beta(beta, order=2)
    assert array.dtype == np.float64
    assert array.tolist() == [1.0, 2.0]


def test_kappa_is_finite_or_absent() -> None:
    assert as_kappa(None) is None
    assert as_kappa(-math.inf) is None  # the paper's way to say that there is no BOS
    assert as_kappa(-2.5) == -2.5
    for bad in (math.nan, math.inf):
        with pytest.raises(ValueError, match="kappa must be finite, or None"):
            as_kappa(bad)


def test_masks_have_the_papers_names_and_sizes() -> None:
    for mask in reference.all_masks(4):
        index = reference.mask_index(mask)
        assert mask_name(index) == "{" + ",".join(map(str, sorted(mask))) + "}"
        assert overlap(index) == len(mask)
        assert is_contiguous(index) == (mask == frozenset(range(1, len(mask) + 1)))
        assert mask_bits(4)[index].tolist() == [int(lag in mask) for lag in range(1, 5)]
    assert mask_bits(4).shape == (16, 4)


def test_kinds_follow_the_masks() -> None:
    masks = np.array([-1, -1, -1, 7, 5, 0, 1])
    kinds = ["early"] * 3 + ["full", "partial", "none", "partial"]
    assert key_kinds(masks, order=3, bos=False) == kinds
    assert key_kinds(masks, order=3, bos=True) == ["bos", *kinds]
    weights = np.array([0.3, 0.0, 0.05, 0.05, 0.3, 0.1, 0.1, 0.1])
    masses = kind_masses(weights, ["bos", *kinds])
    assert list(masses) == list(OVERLAP_KINDS)
    assert masses == pytest.approx({"full": 0.3, "partial": 0.2, "none": 0.1, "bos": 0.3, "early": 0.1})
