"""The Bayes predictor against exact posteriors: rational arithmetic, nested quadrature, and importance sampling."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy.special import betaln
from scipy.stats import beta as beta_law

from interp.chains.priors import HierarchicalDirichlet, IndependentDirichlet
from interp.divergence import kl_divergence
from interp.estimators.bayes import bayes_predictive
from interp.estimators.classical import kneser_ney, witten_bell
from interp.estimators.context_trees import context_tree_weighting
from interp.estimators.soft_matching import add_alpha, soft_matching
from tests import reference


def assert_within_its_error(result, exact):
    """Errors in units of the stated one: their root mean square is about 1, none is wild."""
    assert result.success, result.message
    scores = (result.mean.numpy() - np.asarray(exact)) / np.maximum(result.mcse.numpy(), 1e-9)
    assert np.sqrt((scores**2).mean()) < 1.5
    assert np.abs(scores).max() < 6


# ---- exact posteriors


@pytest.mark.parametrize(
    ("order", "vocab", "eta", "eta0", "length"),
    [(1, 2, (5.0,), 1.0, 12), (1, 3, (2.0,), 0.5, 9), (2, 2, (5.0, 3.0), 1.0, 10), (2, 3, (1.0, 4.0), 2.0, 8),
     (1, 3, (2.0,), (4.0, 1.0, 0.5), 9), (2, 2, (5.0, 3.0), (0.25, 1.0), 10)],
)  # fmt: skip
def test_equals_the_posterior_in_rational_arithmetic(order, vocab, eta, eta0, length):
    prior = HierarchicalDirichlet(order=order, vocab=vocab, eta=eta, eta0=eta0)
    tokens = prior.sample(batch=12, length=length, seed=0).tokens
    rational = {
        "eta": [Fraction(value) for value in eta],
        "eta0": [Fraction(float(value)) for value in np.broadcast_to(eta0, vocab)],
    }
    exact = np.empty((len(tokens), vocab))
    for row, x in enumerate(tokens.tolist()):
        evidence = reference.next_law_moment(x, k=order, vocab=vocab, m=0, power=0, **rational)
        for m in range(vocab):
            joint = reference.next_law_moment(x, k=order, vocab=vocab, m=m, power=1, **rational)
            exact[row, m] = joint / evidence
    assert_within_its_error(bayes_predictive(tokens, prior=prior, draws=4800, chains=24, seed=1), exact)


def successors(x: np.ndarray, order: int) -> np.ndarray:
    """n[context..., symbol] of a binary sequence; contexts are indexed (older, ..., recent)."""
    counts = np.zeros((2,) * (order + 1))
    for s in range(order, len(x)):
        counts[tuple(x[s - order : s + 1])] += 1
    return counts


def log_evidence(counts: np.ndarray, eta: float, p: np.ndarray) -> np.ndarray:
    """ln P(the symbols with these counts | their law ~ Dirichlet(eta (1 - p, p)))."""
    zero, one = eta * (1 - p), eta * p
    return betaln(zero + counts[0], one + counts[1]) - betaln(zero, one)


GRID = (np.arange(250) + 0.5) / 250


def test_equals_numerical_integration_at_order_2():
    eta = (5.0, 3.0)
    prior = HierarchicalDirichlet(order=2, vocab=2, eta=eta)
    tokens = prior.sample(batch=30, length=80, seed=0).tokens.numpy()
    # pi_(c)(1) on quantiles of its prior given pi_()(1) = root: [root, quantile], each quantile equally likely.
    root = GRID[:, None]
    inner = np.clip(beta_law.ppf(GRID[None, :], eta[0] * root, eta[0] * (1 - root)), 1e-12, 1 - 1e-12)
    exact = []
    for x in tokens:
        counts = successors(x, 2)
        evidence, ahead = [], None
        for c in range(2):
            likelihood = np.exp(log_evidence(counts[0, c], eta[1], inner) + log_evidence(counts[1, c], eta[1], inner))
            evidence.append(likelihood.mean(1))
            if c == x[-1]:
                here = counts[x[-2], c]
                ahead = (likelihood * (here[1] + eta[1] * inner) / (here.sum() + eta[1])).mean(1) / likelihood.mean(1)
        one = np.average(ahead, weights=evidence[0] * evidence[1])
        exact.append([1 - one, one])
    assert_within_its_error(bayes_predictive(tokens, prior=prior, draws=2400, chains=24, seed=1), exact)


# ---- properties


@pytest.mark.parametrize(("order", "vocab", "length"), [(1, 7, 40), (3, 3, 50), (2, 12, 60), (4, 2, 40)])
def test_any_order_and_vocabulary(order, vocab, length):
    prior = HierarchicalDirichlet(order=order, vocab=vocab, eta=(2.0,) * order)
    tokens = prior.sample(batch=20, length=length, seed=0, method="collapsed").tokens
    result = bayes_predictive(tokens, prior=prior, seed=0)
    assert float((result.mean.sum(-1) - 1).abs().max()) < 1e-12
    assert float(result.mean.min()) > 0
    assert result.success, result.message
    again = bayes_predictive(tokens, prior=prior, seed=0)
    assert torch.equal(result.mean, again.mean)
    assert not torch.equal(result.mean, bayes_predictive(tokens, prior=prior, seed=1).mean)


@pytest.mark.parametrize("length", [8, 32, 128])
def test_is_best_on_average_under_its_own_prior(length):
    prior = HierarchicalDirichlet(order=2, vocab=5, eta=(5.0, 5.0))
    chains = prior.sample(batch=2500, length=length, seed=5)
    bayes = kl_divergence(chains.next_law, bayes_predictive(chains.tokens, prior=prior, draws=80).mean).values
    others = {
        "add-0.5": add_alpha(chains.tokens, order=2, vocab=5, alpha=0.5),
        "add-1": add_alpha(chains.tokens, order=2, vocab=5, alpha=1.0),
        "soft matching": soft_matching(chains.tokens, vocab=5, beta=(3.0, 1.5), kappa=4.0),
        "Witten-Bell": witten_bell(chains.tokens, order=2, vocab=5),
        "Kneser-Ney": kneser_ney(chains.tokens, order=2, vocab=5),
        "tree weighting": context_tree_weighting(chains.tokens, order=2, vocab=5),
    }
    for name, law in others.items():
        excess = kl_divergence(chains.next_law, law).values - bayes
        assert float(excess.mean()) > 3 * float(excess.std()) / len(excess) ** 0.5, name


def test_mismatched_prior_is_worse():
    """The negative control of the above: the posterior of another prior is not the best."""
    prior = HierarchicalDirichlet(order=2, vocab=5, eta=(5.0, 5.0))
    other = HierarchicalDirichlet(order=2, vocab=5, eta=(50.0, 0.5))
    chains = prior.sample(batch=1500, length=64, seed=6)
    right = kl_divergence(chains.next_law, bayes_predictive(chains.tokens, prior=prior, draws=80).mean)
    wrong = kl_divergence(chains.next_law, bayes_predictive(chains.tokens, prior=other, draws=80).mean)
    assert wrong.mean > right.mean + 5 * (wrong.values - right.values).std() / 1500**0.5


# ---- honesty about the Monte Carlo error


def test_monte_carlo_error_is_that_of_repeated_runs():
    prior = HierarchicalDirichlet(order=2, vocab=5, eta=(5.0, 5.0))
    tokens = prior.sample(batch=40, length=64, seed=0).tokens
    runs = [bayes_predictive(tokens, prior=prior, draws=80, seed=seed) for seed in range(30)]
    spread = torch.stack([run.mean for run in runs]).std(0).square().mean().sqrt()
    stated = np.mean([run.error for run in runs])
    assert stated == pytest.approx(float(spread), rel=0.2)


def test_refuses_to_call_it_converged():
    prior = HierarchicalDirichlet(order=2, vocab=5, eta=(5.0, 5.0))
    tokens = prior.sample(batch=200, length=256, seed=0).tokens
    hasty = bayes_predictive(tokens, prior=prior, draws=16, burn_in=0)
    assert not hasty.success
    assert "not converged" in hasty.message
    patient = bayes_predictive(tokens, prior=prior)
    assert patient.success, patient.message
    assert len(str(hasty).splitlines()) <= 8


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"draws": 8}, "at least 4 per chain"),
        ({"chains": 1}, "at least 2"),
        ({"burn_in": -1}, "burn_in"),
    ],
)
def test_bad_options(options, message):
    prior = HierarchicalDirichlet(order=2, vocab=3, eta=(5.0, 5.0))
    with pytest.raises(ValueError, match=message) as caught:
        bayes_predictive([[0, 1, 2, 0, 1] * 4], prior=prior, **options)
    assert "\n" not in str(caught.value)


def test_a_vector_alpha_is_the_exact_posterior() -> None:
    alpha = (0.25, 1.0, 3.0)
    prior = IndependentDirichlet(order=2, vocab=3, alpha=alpha)
    tokens = prior.sample(batch=40, length=14, seed=3).tokens
    result = bayes_predictive(tokens, prior=prior)
    assert result.success
    assert not result.mcse.any()
    rational = [Fraction(value) for value in alpha]
    for row, x in enumerate(tokens.tolist()):
        evidence = reference.next_law_moment(x, k=2, vocab=3, m=0, power=0, alpha=rational)
        for m in range(3):
            joint = reference.next_law_moment(x, k=2, vocab=3, m=m, power=1, alpha=rational)
            assert float(result.mean[row, m]) == pytest.approx(float(joint / evidence), abs=1e-12)
