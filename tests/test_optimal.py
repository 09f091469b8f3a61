"""The population optimum: exact derivatives, known points, honest errors, and the direction that is flat."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from interp.chains.priors import HierarchicalDirichlet, IndependentDirichlet
from interp.divergence import kl_divergence
from interp.estimators.counts import mask_counts
from interp.estimators.optimal import _features, _population_loss, optimal_parameters
from interp.estimators.soft_matching import add_alpha, soft_matching, soft_matching_from_counts

HIERARCHICAL = HierarchicalDirichlet(order=2, vocab=5, eta=(5.0, 5.0))


@pytest.mark.parametrize("bos", [True, False])
@pytest.mark.parametrize(("order", "vocab"), [(1, 4), (2, 3), (3, 2)])
def test_loss_and_derivatives_equal_autograd(order, vocab, bos):
    prior = HierarchicalDirichlet(order=order, vocab=vocab, eta=(4.0,) * order)
    # Long enough that all symbols occur in all sequences; then nothing is left out without BOS.
    chains = prior.sample(batch=40, length=200, seed=0)
    counts = mask_counts(chains.tokens, order=order, vocab=vocab)
    seen = (counts.sum(1) > 0).all(-1)
    counts, laws = counts[seen], chains.next_law[seen]
    theta = torch.linspace(2.0, -0.5, order + bos, dtype=torch.float64)

    def loss(parameters):
        kappa = parameters[-1] if bos else None
        law = soft_matching_from_counts(counts, beta=parameters[:order], kappa=kappa)
        return -(laws * law.log()).sum(-1).mean()

    n = len(laws)
    losses, gradients, hessian = np.empty(n), np.empty((n, order + bos)), np.empty((order + bos,) * 2)
    features = _features(1 << order, bos=bos)
    _population_loss(
        counts.numpy().astype(np.int32), laws.numpy(), features, theta.numpy(), bos, losses, gradients, hessian
    )
    assert losses.mean() == pytest.approx(float(loss(theta)))
    expected = torch.autograd.functional.jacobian(loss, theta)
    np.testing.assert_allclose(gradients.mean(0), expected.numpy(), atol=1e-12)
    curvature = torch.autograd.functional.hessian(loss, theta)
    np.testing.assert_allclose(hessian / n, curvature.numpy(), atol=1e-12)


@pytest.mark.parametrize(
    ("length", "kl", "beta", "kappa"), [(32, 0.216, (2.7, 1.2), 3.35), (64, 0.1435, (3.43, 1.7), 4.4)]
)
def test_reference_points(length, kl, beta, kappa):
    best = optimal_parameters(HIERARCHICAL, length=length, bos=True, draws=30_000)
    assert best.success
    assert best.kl == pytest.approx(kl, abs=0.002 + 3 * best.kl_stderr)
    assert best.beta == pytest.approx(beta, abs=0.15)
    assert best.kappa == pytest.approx(kappa, abs=0.2)
    assert best.combination is None
    assert best.flat == (False, False)
    assert best.floored == 0


def test_is_the_best_on_fresh_sequences():
    best = optimal_parameters(HIERARCHICAL, length=64, draws=20_000, seed=1)
    chains = HIERARCHICAL.sample(batch=20_000, length=64, seed=2, method="collapsed")
    ours = kl_divergence(chains.next_law, best.predict(chains.tokens))
    assert ours.mean == pytest.approx(best.kl, abs=4 * math.hypot(ours.stderr, best.kl_stderr))
    for shift in np.concatenate([np.eye(3), -np.eye(3)]) * 0.6:
        beta, kappa = np.add(best.beta, shift[:2]), best.kappa + shift[2]
        other = kl_divergence(chains.next_law, soft_matching(chains.tokens, vocab=5, beta=beta, kappa=kappa))
        gain = other.values - ours.values
        assert float(gain.mean()) > 3 * float(gain.std()) / len(gain) ** 0.5


def test_standard_errors_are_those_of_repeated_samples():
    fits = [optimal_parameters(HIERARCHICAL, length=32, draws=2000, seed=seed) for seed in range(25)]
    spread = np.std([(*fit.beta, fit.kappa) for fit in fits], axis=0, ddof=1)
    stated = np.mean([fit.stderr for fit in fits], axis=0)
    np.testing.assert_allclose(stated, spread, rtol=0.5)


@pytest.mark.parametrize(("order", "vocab", "alpha", "length"), [(2, 5, 1.0, 32), (1, 3, 0.5, 40), (2, 3, 2.0, 64)])
def test_independent_prior_with_bos_is_flat_and_add_alpha(order, vocab, alpha, length):
    prior = IndependentDirichlet(order=order, vocab=vocab, alpha=alpha)
    best = optimal_parameters(prior, length=length, draws=20_000)
    assert best.flat == (True,) * order
    assert best.beta == (math.inf,) * order
    assert best.kappa == math.inf
    assert "kappa - sum(beta)" in best.message
    assert best.combination == pytest.approx(math.log(alpha * vocab), abs=4 * best.combination_stderr)
    assert best.combination_stderr < 0.05
    tokens = prior.sample(batch=50, length=length, seed=9).tokens
    learned = math.exp(best.combination) / vocab
    expected = add_alpha(tokens, order=order, vocab=vocab, alpha=learned)
    torch.testing.assert_close(best.predict(tokens), expected, atol=1e-10, rtol=0)
    assert best.record()["beta"] == [None] * order  # JSON has no infinity


def test_one_flat_lag():
    """Laws that depend on the last token alone, independently: lag 1 must match, lag 2 says nothing."""
    prior = HierarchicalDirichlet(order=2, vocab=3, eta=(3.0, 1e5), eta0=1e5)
    best = optimal_parameters(prior, length=60, draws=30_000)
    assert best.flat == (True, False)
    assert best.beta[1] == pytest.approx(0.0, abs=4 * best.stderr[1])
    assert best.combination == pytest.approx(math.log(3.0), abs=4 * best.combination_stderr)


def test_without_bos_nothing_is_flat_and_the_floor_is_reported():
    prior = IndependentDirichlet(order=2, vocab=5, alpha=1.0)
    best = optimal_parameters(prior, length=32, bos=False, draws=20_000)
    assert best.success
    assert best.kappa is None
    assert best.flat == (False, False)
    assert len(best.stderr) == 2
    # The prior treats lags alike, so the optimum must.
    assert best.beta[0] == pytest.approx(best.beta[1], abs=4 * math.hypot(*best.stderr))
    assert 0 < best.floored < 0.2
    with_bos = optimal_parameters(prior, length=32, bos=True, draws=20_000)
    assert with_bos.kl < best.kl
    assert with_bos.floored == 0


def test_estimator_of_another_order():
    lower = optimal_parameters(HIERARCHICAL, length=128, order=1, draws=10_000)
    same = optimal_parameters(HIERARCHICAL, length=128, draws=10_000)
    assert len(lower.beta) == 1
    assert lower.kl > same.kl


def test_same_seed_same_numbers_and_printing():
    one = optimal_parameters(HIERARCHICAL, length=16, draws=1000, seed=3)
    two = optimal_parameters(HIERARCHICAL, length=16, draws=1000, seed=3)
    assert one.beta == two.beta
    assert len(str(one).splitlines()) <= 8
    assert one.table().parameter.tolist() == ["beta_1", "beta_2", "kappa", "kl"]
    deep = optimal_parameters(HierarchicalDirichlet(order=5, vocab=2, eta=(3.0,) * 5), length=64, draws=2000)
    assert len(str(deep).splitlines()) <= 8


@pytest.mark.parametrize(
    ("options", "message"),
    [({"draws": 10}, "draws"), ({"length": 2}, "length"), ({"order": 0}, "order")],
)
def test_bad_input(options, message):
    with pytest.raises(ValueError, match=message):
        optimal_parameters(HIERARCHICAL, **{"length": 32, "draws": 200, **options})
