"""Sequences that repeat: their periods, their true distributions, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import interp as ip

PRIOR = ip.parse_prior("repeats:3,7", order=1, vocab=4)


def period(row: torch.Tensor) -> int:
    return next(p for p in range(1, len(row)) if bool((row[p:] == row[:-p]).all()))


def test_each_sequence_has_a_period_of_its_own() -> None:
    tokens = PRIOR.sample(batch=200, length=40, seed=0).tokens
    found = [period(row) for row in tokens]
    assert set(found) - {1, 2} == {3, 4, 5, 6, 7}  # few draws repeat earlier by chance
    assert max(found) == 7
    assert torch.bincount(tokens[:, :3].flatten(), minlength=4).min() > 100


def test_the_next_token_is_certain_once_the_period_is_seen() -> None:
    chains = PRIOR.sample(batch=50, length=30, seed=1)
    laws = chains.laws()
    torch.testing.assert_close(laws[:, -1], chains.next_law)
    assert (laws[:, :2] == 0.25).all()  # within the shortest period
    given = laws[:, :-1].gather(2, chains.tokens[:, 1:, None])[..., 0]
    assert (given[:, 7:] == 1.0).all()
    short = PRIOR.sample(batch=50, length=2, seed=1)
    assert (short.next_law == 0.25).all()


def test_text_and_description_come_back() -> None:
    assert PRIOR.text == "repeats:3,7"
    assert ip.prior_from_dict(PRIOR.to_dict()) == PRIOR
    assert ip.parse_prior("repeats", order=2, vocab=9).text == "repeats:8,32"


@pytest.mark.parametrize(
    ("text", "words"),
    [("repeats:3", "two whole numbers"), ("repeats:2.5,4", "two whole numbers"), ("repeats:9,4", "longest")],
)
def test_bad_periods_are_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ip.parse_prior(text, order=1, vocab=4)


def test_there_is_no_kernel_and_no_urn() -> None:
    with pytest.raises(ValueError, match="no urn"):
        PRIOR.sample(batch=2, length=9, seed=0, method="collapsed")
    with pytest.raises(ValueError, match="no kernel"):
        PRIOR.draw_tree(2, np.random.default_rng(0))
