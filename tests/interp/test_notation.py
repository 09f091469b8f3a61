"""The glossary's checks and names."""

from __future__ import annotations

import inspect
import math

import numpy as np
import pytest
import torch

from interp.notation import (
    MAX_ORDER,
    OVERLAP_KINDS,
    as_beta,
    as_kappa,
    as_tokens,
    check_order,
    check_vocab,
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


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([0, 1, 2], r"shape \[batch, length\], got 1 dimensions"),
        (np.zeros((2, 3, 4), dtype=int), r"shape \[batch, length\], got 3 dimensions"),
        ([[0.0, 1.0, 2.0, 0.0]], "must be integers, got float64"),
        (torch.tensor([[0.0, 1.0, 0.0]]), "must be integers, got float32"),
        (np.array([[True, False, True]]), "must be integers, got bool"),
        (np.array([["a", "b", "c"]]), "must be integers"),
        ([[0, 1, 3, 0]], r"token 3 is outside the vocabulary 0\.\.2"),
        ([[0, 1, -1, 0]], r"token -1 is outside the vocabulary 0\.\.2"),
        ([[0, 1]], "must be longer than the order: length 2, order 2"),
        ([[0]], "must be longer than the order: length 1, order 2"),
        (np.zeros((0, 5), dtype=int), "the batch is empty"),
    ],
)
def test_bad_tokens_are_named_in_one_line(tokens: object, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        as_tokens(tokens, vocab=3, order=2)
    assert "\n" not in str(caught.value)


def test_tokens_without_a_position_are_refused() -> None:
    with pytest.raises(ValueError, match="the length is 0"):
        as_tokens(np.zeros((2, 0), dtype=int))


@pytest.mark.parametrize("order", [0, -1, 1.0, True, "2", None, MAX_ORDER + 1])
def test_bad_orders_are_refused(order: object) -> None:
    with pytest.raises(ValueError, match="order must be"):
        inspect.unwrap(check_order)(order)  # past the run-time type check, which only the tests have


@pytest.mark.parametrize("vocab", [1, 0, -3, 2.0, True, "5", None])
def test_bad_vocabularies_are_refused(vocab: object) -> None:
    with pytest.raises(ValueError, match="vocab must be an integer >= 2"):
        inspect.unwrap(check_vocab)(vocab)


@pytest.mark.parametrize("beta", [(1.0, 2.0), [1, 2], np.array([1, 2]), torch.tensor([1.0, 2.0])])
def test_beta_of_every_kind_becomes_the_same_array(beta: object) -> None:
    array = as_beta(beta, order=2)
    assert array.dtype == np.float64
    assert array.tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("beta", "message"),
    [
        (1.5, "one number per lag"),
        ((), "one number per lag"),
        (((1.0, 2.0),), "one number per lag"),
        ((1.0,), "expected 2, got 1"),
        ((1.0, 2.0, 3.0), "expected 2, got 3"),
        ((1.0, math.nan), "must be finite"),
        ((math.inf, 1.0), "must be finite"),
    ],
)
def test_bad_betas_are_named(beta: object, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        as_beta(beta, order=2)
    assert "\n" not in str(caught.value)


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
