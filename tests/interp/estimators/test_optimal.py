"""The population optimum: exact derivatives, known points, honest errors, and the direction that is flat."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from interp.chains.priors import HierarchicalDirichlet, IndependentDirichlet
from interp.chains.urn import draw_batch
from interp.divergence import kl_divergence
from interp.estimators.counts import mask_counts
from interp.estimators.optimal import optimal_parameters, population_divergence
from interp.estimators.population import Population, _draw_families, draw_population, pooled, population_loss
from interp.estimators.soft_matching import add_alpha, soft_matching, soft_matching_from_counts
from interp.results import mean_stderr

HIERARCHICAL = HierarchicalDirichlet(order=2, vocab=5, eta=(5.0, 5.0))


@pytest.mark.parametrize("bos", [True, False])
@pytest.mark.parametrize(("order", "vocab"), [(1, 4), (2, 3), (3, 2)])
def test_loss_and_derivatives_equal_autograd(order, vocab, bos):
    prior = HierarchicalDirichlet(order=order, vocab=vocab, eta=(4.0,) * order)
    # Long enough that all symbols occur in all sequences; then nothing is left out without BOS.
    sample = draw_population(prior, length=200, order=order, draws=200, seed=0)
    family = sample.family
    seen = (sample.counts.sum(1) > 0).all(-1).reshape(-1, family).all(1).repeat(family)
    kept = {name: getattr(sample, name)[seen] for name in ("counts", "targets", "laws", "entropies")}
    sample = Population(**kept, family=family)
    counts, targets = torch.from_numpy(sample.counts), torch.from_numpy(sample.targets)
    theta = torch.linspace(2.0, -0.5, order + bos, dtype=torch.float64)

    def losses(parameters):
        kappa = parameters[-1] if bos else None
        law = soft_matching_from_counts(counts, beta=parameters[:order], kappa=kappa)
        return -(targets * law.log()).sum(-1).reshape(-1, family).mean(1)

    point = population_loss(sample, theta.numpy(), bos=bos)
    np.testing.assert_allclose(point.losses, losses(theta).numpy(), rtol=1e-12)
    gradients = torch.autograd.functional.jacobian(losses, theta).numpy()
    np.testing.assert_allclose(point.gradients, gradients, atol=1e-12)
    np.testing.assert_allclose(point.gradient, gradients.mean(0), atol=1e-12)
    curvature = torch.autograd.functional.hessian(lambda parameters: losses(parameters).mean(), theta)
    np.testing.assert_allclose(point.hessian, curvature.numpy(), atol=1e-12)


def test_unseen_symbols_and_extreme_scores():
    """A symbol without votes is left out; scores far apart neither overflow nor turn into NaN."""
    counts = np.array([[[3, 0, 1], [0, 0, 0]], [[0, 0, 0], [0, 2, 0]]], dtype=np.int32)
    targets = np.array([[0.5, 0.25, 0.25], [0.2, 0.5, 0.3]])
    sample = Population(counts=counts, targets=targets, laws=targets, entropies=np.zeros(2), family=1)
    plain = population_loss(sample, np.array([1.0]), bos=False)
    assert plain.losses == pytest.approx([-0.5 * math.log(0.75) - 0.25 * math.log(0.25), 0.0])
    assert plain.gradient == pytest.approx([0.0])
    far = population_loss(sample, np.array([900.0, -900.0]), bos=True)
    assert np.isfinite(far.losses).all()
    assert np.isfinite(far.hessian).all()


@pytest.mark.parametrize(
    ("prior", "order", "length"),
    [
        (HierarchicalDirichlet(order=2, vocab=3, eta=(4.0, 2.0)), 2, 30),  # counted from a table
        (HierarchicalDirichlet(order=3, vocab=4, eta=(4.0, 2.0, 1.0)), 3, 20),  # counted from positions
        (IndependentDirichlet(order=2, vocab=3), 1, 12),
        (IndependentDirichlet(order=1, vocab=3), 3, 12),
        (HierarchicalDirichlet(order=3, vocab=2, eta=(1.0, 2.0, 3.0)), 3, 4),  # the shortest
    ],
)
def test_families_are_exact_draws(prior, order, length):
    """From the same uniforms, each member is the sequence that the plain sampler draws, whoever was drawn before."""
    rng = np.random.default_rng(0)
    tail = min(prior.order, length - prior.order)
    stems, ends = rng.random((20, length - tail)), rng.random((20, 5, tail))
    counts = np.zeros((100, 1 << order, prior.vocab), dtype=np.int32)
    customers = np.empty((100, prior.order + 1, prior.vocab), dtype=np.int32)
    _draw_families(stems, ends, prior.concentrations(), prior.independent, counts, customers)
    tokens = np.empty((100, length), dtype=np.int64)
    seated = np.empty(customers.shape, dtype=np.int64)
    uniforms = np.concatenate([stems.repeat(5, axis=0), ends.reshape(100, tail)], axis=1)
    setting = (prior.order, prior.vocab, prior.concentrations(), prior.independent)
    draw_batch(uniforms, tokens, seated, *setting)
    np.testing.assert_array_equal(counts, mask_counts(tokens, order=order, vocab=prior.vocab).numpy())
    depths = slice(prior.order if prior.independent else 0, None)
    np.testing.assert_array_equal(customers[:, depths], seated[:, depths])


@pytest.mark.parametrize("prior", [HIERARCHICAL, IndependentDirichlet(order=2, vocab=5, alpha=0.5)])
def test_population_has_the_expected_divergence_of_plain_samples(prior):
    theta = np.array([2.0, 1.0, 3.0])
    sample = draw_population(prior, length=24, order=2, draws=40_000, seed=1)
    assert sample.family == 8
    mean, error, floored = population_divergence(sample, theta, bos=True)
    chains = prior.sample(batch=40_000, length=24, seed=2, method="collapsed")
    plain = kl_divergence(chains.next_law, soft_matching(chains.tokens, vocab=5, beta=theta[:2], kappa=3.0))
    assert mean == pytest.approx(plain.mean, abs=4 * math.hypot(error, plain.stderr))
    assert floored == 0
    np.testing.assert_allclose(sample.targets.sum(1), 1.0)
    # One expectation of the next law, conditioned on less and on more.
    apart = pooled((sample.laws - sample.targets)[:, 0] * sample.targets[:, 1], family=8)
    assert abs(apart.mean()) <= 4 * apart.std() / len(apart) ** 0.5
    assert (sample.laws != sample.targets).any() == (not prior.independent)


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


def test_same_seed_same_numbers_and_printing():
    one = optimal_parameters(HIERARCHICAL, length=16, draws=1000, seed=3)
    two = optimal_parameters(HIERARCHICAL, length=16, draws=1000, seed=3)
    assert one.beta == two.beta
    assert len(str(one).splitlines()) <= 8
    assert one.table().parameter.tolist() == ["beta_1", "beta_2", "kappa", "kl"]
    deep = optimal_parameters(HierarchicalDirichlet(order=5, vocab=2, eta=(3.0,) * 5), length=64, draws=2000)
    assert len(str(deep).splitlines()) <= 8


def test_a_prior_that_tells_symbols_apart():
    """The sample's KL is that of explicit chains; with one eta0 for all symbols it is another."""
    prior = HierarchicalDirichlet(order=1, vocab=3, eta=(3.0,), eta0=(6.0, 1.0, 0.5))
    best = optimal_parameters(prior, length=24, draws=8000)
    assert best.success
    chains = prior.sample(batch=20_000, length=24, seed=5)
    kl, error = mean_stderr(kl_divergence(chains.next_law, best.predict(chains.tokens)).values.numpy())
    assert abs(kl - best.kl) < 4 * math.hypot(error, best.kl_stderr)
    symmetric = optimal_parameters(HierarchicalDirichlet(order=1, vocab=3, eta=(3.0,), eta0=2.5), length=24, draws=8000)
    assert abs(kl - symmetric.kl) > 8 * math.hypot(error, symmetric.kl_stderr)
