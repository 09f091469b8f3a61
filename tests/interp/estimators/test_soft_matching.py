"""The estimators against their definitions, their identities and their limits."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from interp.chains.priors import IndependentDirichlet
from interp.estimators.counts import cumulative_counts, mask_counts
from interp.estimators.soft_matching import (
    add_alpha,
    beta_for_add_alpha,
    maximum_likelihood,
    order_mixture,
    soft_matching,
    soft_matching_from_counts,
    soft_matching_pairs,
)
from interp.notation import mask_bits, overlap
from tests import reference
from tests.cases import CASES, Case, every_case

TOLERANCE = 1e-12
every_shape = pytest.mark.parametrize("case", CASES[::2], ids=str)  # for what knows nothing of kappa


def largest_error(found: torch.Tensor, expected: object) -> float:
    return float(np.abs(found.numpy() - np.asarray(expected)).max())


# ---- against the double loops


@every_case
def test_soft_matching_is_the_double_loop(case: Case) -> None:
    tokens = case.tokens()
    law = soft_matching(tokens, vocab=case.vocab, beta=case.beta, kappa=case.kappa)
    expected = [
        reference.soft_matching(row, vocab=case.vocab, beta=case.beta, kappa=case.kappa) for row in tokens.tolist()
    ]
    assert law.dtype == torch.float64
    assert law.shape == (3, case.vocab)
    assert largest_error(law, expected) < TOLERANCE


@every_case
def test_every_position_is_the_prefix_computed_alone(case: Case) -> None:
    tokens = case.tokens()
    setting = {"vocab": case.vocab, "beta": case.beta, "kappa": case.kappa}
    everywhere = soft_matching(tokens, **setting, every_position=True)
    assert everywhere.shape == (*tokens.shape, case.vocab)
    assert largest_error(everywhere[:, : case.order], 1 / case.vocab) < TOLERANCE  # no candidate: uniform
    for t in range(case.order + 1, case.length + 1, 1 + case.length // 12):
        alone = soft_matching(tokens[:, :t], **setting)
        assert largest_error(everywhere[:, t - 1], alone) < TOLERANCE
    expected = [
        [reference.soft_matching(row, **setting, t=t) for t in range(1, case.length + 1, 7)] for row in tokens.tolist()
    ]
    assert largest_error(everywhere[:, ::7], expected) < TOLERANCE


@every_case
def test_pairs_are_the_double_loop(case: Case) -> None:
    tokens = case.tokens(batch=2)
    rng = np.random.default_rng(case.order)
    beta = rng.uniform(-3, 8, size=(case.order, case.order))
    setting = {"vocab": case.vocab, "beta": beta, "kappa": case.kappa}
    expected = [reference.soft_matching_pairs(row, **setting) for row in tokens.tolist()]
    assert largest_error(soft_matching_pairs(tokens, **setting), expected) < TOLERANCE
    everywhere = soft_matching_pairs(tokens, **setting, every_position=True)
    assert everywhere.shape == (*tokens.shape, case.vocab)
    for t in range(case.order + 1, case.length + 1, 5):
        alone = soft_matching_pairs(tokens[:, :t], **setting)
        assert largest_error(everywhere[:, t - 1], alone) < TOLERANCE


@every_case
def test_a_diagonal_of_pairs_is_soft_matching(case: Case) -> None:
    tokens = case.tokens()
    everywhere = {"vocab": case.vocab, "kappa": case.kappa, "every_position": True}
    aligned = soft_matching(tokens, beta=case.beta, **everywhere)
    diagonal = soft_matching_pairs(tokens, beta=np.diag(case.beta), **everywhere)
    assert largest_error(diagonal, aligned) < TOLERANCE


@every_shape
def test_classical_estimators_are_their_definitions(case: Case) -> None:
    tokens = case.tokens()
    shape = {"order": case.order, "vocab": case.vocab}
    rows = tokens.tolist()
    likelihood = [reference.maximum_likelihood(row, k=case.order, vocab=case.vocab) for row in rows]
    assert largest_error(maximum_likelihood(tokens, **shape), likelihood) < TOLERANCE
    for alpha in (0.05, 1.0, 30.0):
        smoothed = [reference.add_alpha(row, k=case.order, vocab=case.vocab, alpha=alpha) for row in rows]
        assert largest_error(add_alpha(tokens, **shape, alpha=alpha), smoothed) < TOLERANCE
    vector = [0.1 + 0.7 * m for m in range(case.vocab)]
    smoothed = [reference.add_alpha(row, k=case.order, vocab=case.vocab, alpha=vector) for row in rows]
    assert largest_error(add_alpha(tokens, **shape, alpha=vector), smoothed) < TOLERANCE
    assert largest_error(add_alpha(tokens, **shape, alpha=vector[::-1]), smoothed) > 0.01


@every_shape
def test_order_mixture_is_its_definition(case: Case) -> None:
    tokens = case.tokens(batch=2)
    k, vocab, beta = case.order, case.vocab, min(case.beta[0], 30.0)
    mixture = order_mixture(tokens, order=k, vocab=vocab, beta=beta)
    for b, row in enumerate(tokens.tolist()):
        weights = np.array(reference.order_weights(row, k=k, vocab=vocab, beta=beta))
        # Below beta = 0 the weights alternate and may be large: compare to their own size.
        assert largest_error(mixture.order_weights[b], weights) < 1e-9 * max(1.0, np.abs(weights).max())
        for order in range(k + 1):
            votes = np.array(reference.order_votes(row, k=k, vocab=vocab, order=order))
            if votes.sum():
                assert largest_error(mixture.order_models[b, order], votes / votes.sum()) < TOLERANCE
            else:
                assert mixture.order_models[b, order].isnan().all()
                assert mixture.order_weights[b, order] == 0
        for mask in reference.all_masks(k):
            index = reference.mask_index(mask)
            votes = np.array([reference.cumulative_count(row, t=len(row), k=k, mask=mask, m=m) for m in range(vocab)])
            siblings = sum(reference.order_votes(row, k=k, vocab=vocab, order=len(mask)))
            if votes.sum():
                assert largest_error(mixture.pattern_models[b, index], votes / votes.sum()) < TOLERANCE
                assert largest_error(mixture.pattern_weights[b, index], votes.sum() / siblings) < TOLERANCE
            else:
                assert mixture.pattern_models[b, index].isnan().all()
                assert mixture.pattern_weights[b, index] == 0


# ---- identities, as properties


@st.composite
def situations(draw: st.DrawFn, *, lowest: float = -3.0, highest: float = 20.0) -> tuple:
    """(order, vocab, tokens [2, length], beta) small enough to be read when one fails."""
    order, vocab = draw(st.integers(1, 3)), draw(st.integers(2, 5))
    length = draw(st.integers(order + 1, 20))
    symbols = st.lists(st.integers(0, vocab - 1), min_size=length, max_size=length)
    tokens = np.array([draw(symbols), draw(symbols)])
    beta = tuple(draw(st.floats(lowest, highest)) for _ in range(order))
    return order, vocab, tokens, beta


@settings(max_examples=40)
@given(situations())
def test_sub_ngram_interpolation(setting: tuple) -> None:
    """lemma:transformer_estimator: sum of gamma^|M| K_M(m), normalised, is the estimator at (beta, ..., beta)."""
    order, vocab, tokens, (beta, *_) = setting
    sizes = torch.tensor([overlap(mask) for mask in range(2**order)])
    powers = torch.tensor(math.expm1(beta), dtype=torch.float64) ** sizes  # torch has 0 ** 0 = 1, as the paper
    votes = torch.einsum("m,bmv->bv", powers, cumulative_counts(tokens, order=order, vocab=vocab).double())
    law = soft_matching(tokens, vocab=vocab, beta=(beta,) * order)
    # At beta = -3 and k = 3 the alternating sum cancels five digits.
    assert largest_error(votes / votes.sum(-1, keepdim=True), law) < 1e-9


@settings(max_examples=40)
@given(situations())
def test_the_mixture_puts_the_estimator_together(setting: tuple) -> None:
    """corollary:mixture and eq:transformer_mixture, over orders and over patterns."""
    order, vocab, tokens, (beta, *_) = setting
    mixture = order_mixture(tokens, order=order, vocab=vocab, beta=beta)
    law = soft_matching(tokens, vocab=vocab, beta=(beta,) * order)
    assert largest_error(mixture.prediction(), law) < 1e-9
    assert largest_error(mixture.order_weights.sum(-1), 1.0) < 1e-9
    if beta >= 0:
        assert (mixture.order_weights >= 0).all()
    bits = torch.from_numpy(mask_bits(order).sum(-1))
    for i in range(order + 1):
        ours = bits == i
        if (present := mixture.order_weights[:, i] != 0).any():
            weights = mixture.pattern_weights[present][:, ours]
            assert largest_error(weights.sum(-1), 1.0) < TOLERANCE
            models = torch.nan_to_num(mixture.pattern_models[present][:, ours])
            together = torch.einsum("bm,bmv->bv", weights, models)
            assert largest_error(together, mixture.order_models[present, i]) < TOLERANCE


@settings(max_examples=40)
@given(situations(), st.floats(0.1, 5.0))
def test_bos_adds_pseudo_counts(setting: tuple, alpha: float) -> None:
    """kappa = |beta|_[k] + ln(alpha |V|) adds alpha exact matches to every symbol: prop:add_constant at any beta."""
    order, vocab, tokens, beta = setting
    full = sum(beta)
    votes = torch.einsum(
        "m,bmv->bv",
        torch.exp(torch.from_numpy(mask_bits(order).astype(float) @ np.array(beta)) - full),
        mask_counts(tokens, order=order, vocab=vocab).double(),
    )
    law = soft_matching(tokens, vocab=vocab, beta=beta, kappa=full + math.log(alpha * vocab))
    assert largest_error((votes + alpha) / (votes + alpha).sum(-1, keepdim=True), law) < 1e-9


# ---- limits and stability


def test_the_limit_with_bos_is_add_alpha() -> None:
    """prop:add_constant: the error falls with beta."""
    tokens = np.random.default_rng(1).integers(3, size=(20, 50))
    target = add_alpha(tokens, order=2, vocab=3, alpha=0.7)
    errors = []
    for beta in (2.0, 6.0, 12.0, 60.0):
        law = soft_matching(tokens, vocab=3, beta=(beta, beta), kappa=2 * beta + math.log(0.7 * 3))
        errors.append(largest_error(law, target))
    assert errors == sorted(errors, reverse=True)
    assert errors[0] > 1e-3
    assert errors[-1] < TOLERANCE


@pytest.mark.parametrize("scale", [1e4, 1e300, 8e307])
def test_any_finite_beta_is_safe(scale: float) -> None:
    tokens = np.random.default_rng(6).integers(3, size=(6, 25))
    for signs in ((1, 1), (-1, -1), (1, -1), (-1, 1)):
        beta = tuple(scale * sign for sign in signs)
        for kappa in (None, scale, -scale, 0.0):
            law = soft_matching(tokens, vocab=3, beta=beta, kappa=kappa)
            everywhere = soft_matching(tokens, vocab=3, beta=beta, kappa=kappa, every_position=True)
            pairs = soft_matching_pairs(tokens, vocab=3, beta=np.diag(beta), kappa=kappa)
            assert everywhere.isfinite().all()
            assert largest_error(everywhere[:, -1], law) < TOLERANCE
            assert largest_error(law.sum(-1), 1.0) < TOLERANCE
            assert largest_error(pairs, law) < TOLERANCE
            if scale == 1e4:
                expected = [reference.soft_matching(row, vocab=3, beta=beta, kappa=kappa) for row in tokens.tolist()]
                assert largest_error(law, expected) < TOLERANCE


def test_a_heavy_mask_that_never_occurs_does_not_drown_the_rest() -> None:
    """No exact match among the candidates, beta = 1e4: the weights are relative to the largest one present."""
    tokens = [[0, 1, 2, 2, 1, 0]]
    assert mask_counts(tokens, order=2, vocab=3)[0, -1].sum() == 0
    law = soft_matching(tokens, vocab=3, beta=(1e4, 1e4))
    assert largest_error(law, [reference.soft_matching(tokens[0], vocab=3, beta=(1e4, 1e4), kappa=None)]) == 0


def test_the_law_is_differentiable_in_beta_and_kappa() -> None:
    given = mask_counts(np.random.default_rng(7).integers(3, size=(4, 12)), order=2, vocab=3)
    beta = torch.tensor([1.2, -0.3], dtype=torch.float64, requires_grad=True)
    kappa = torch.tensor(0.4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda b, c: soft_matching_from_counts(given, beta=b, kappa=c), (beta, kappa))
    assert torch.autograd.gradcheck(lambda b: soft_matching_from_counts(given, beta=b), (beta,))


# ---- lemma:optimal_beta


@pytest.mark.parametrize(("length", "order", "vocab", "alpha"), [(64, 1, 5, 1.0), (64, 2, 5, 0.5), (200, 3, 3, 2.0)])
def test_the_closed_form_solves_its_own_equation(length: int, order: int, vocab: int, alpha: float) -> None:
    """eq:sufficient_condition_higher with E[K_M] = (T-k-1) / |V|^|M| (eq:approx_expectation)."""
    gamma = math.expm1(beta_for_add_alpha(length=length, order=order, vocab=vocab, alpha=alpha))
    candidates = length - order - 1
    expected = {i: math.comb(order, i) * candidates / vocab**i for i in range(order + 1)}
    pseudo = sum(expected[i] * gamma ** (i - order) for i in range(order))
    assert pseudo == pytest.approx(alpha * vocab, rel=1e-10)


@pytest.mark.parametrize(("order", "vocab", "alpha"), [(1, 4, 1.0), (2, 3, 0.5), (3, 2, 1.5)])
def test_line_search_and_polynomial_find_the_same_root(order: int, vocab: int, alpha: float) -> None:
    setting = {"length": 40, "order": order, "vocab": vocab, "alpha": alpha, "draws": 500, "seed": 3}
    line, root = (beta_for_add_alpha(**setting, method=way) for way in ("line_search", "polynomial"))
    assert line == pytest.approx(root, rel=1e-8)
    # The defining property, on the very sequences that were drawn: the mean pseudo-count is alpha.
    prior = IndependentDirichlet(order=order, vocab=vocab, alpha=alpha)
    tokens = prior.sample(batch=500, length=40, seed=3, method="collapsed").tokens
    pseudo = np.mean([reference.pseudo_counts(row, k=order, vocab=vocab, beta=root) for row in tokens[:500].tolist()])
    assert pseudo == pytest.approx(alpha, rel=1e-8)
    # At k = 1 only the candidate s = T separates them from the closed form: T - k against T - k - 1.
    if order == 1:
        assert root == pytest.approx(math.log(1 + 39 / (alpha * vocab)), rel=1e-8)
