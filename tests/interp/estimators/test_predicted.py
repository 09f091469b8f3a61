"""The predicted optimum: each step of its derivation against a double loop, then against the search, with controls."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy.special import hyp1f1

import interp as ip
from interp.chains.priors import HierarchicalDirichlet, IndependentDirichlet, Prior
from interp.estimators.match_rates import beta_rule, law_correlations, mask_shares, root_peaks, visit_scenarios
from interp.estimators.optimal import optimal_parameters, population_divergence
from interp.estimators.population import draw_population
from interp.estimators.predicted import leading_order, predicted_parameters, suffix_weights
from interp.estimators.tree_risk import TreeRisk, child_matrix, hat_weights, probability_grid
from tests import reference

PAPER = HierarchicalDirichlet(order=2, vocab=5, eta=(5.0, 5.0))
UNEQUAL = HierarchicalDirichlet(order=2, vocab=3, eta=(2.0, 7.0), eta0=0.5)


@pytest.mark.parametrize("common", [0, 1, 2])
def test_correlations_are_exact(common):
    """P(two tokens equal) from the exact moments of the prior."""
    query, other = (0, 0), {0: (0, 1), 1: (1, 0), 2: (0, 0)}[common]
    equal = Fraction(0)
    for m in range(3):
        powers: dict[tuple[int, ...], list[int]] = {}
        for context in (query, other):
            powers.setdefault(context, [0] * 3)[m] += 1
        equal += reference.kernel_moment(powers, vocab=3, eta=(Fraction(2), Fraction(7)), eta0=Fraction(1, 2))
    found = 1 / 3 + (1 - 1 / 3) * law_correlations(UNEQUAL)[common]
    assert found == pytest.approx(float(equal), rel=1e-12)


def test_correlations_of_the_independent_prior():
    assert law_correlations(IndependentDirichlet(order=3, vocab=4, alpha=0.5)) == pytest.approx([0, 0, 0, 1 / 3])


@pytest.mark.parametrize("prior", [PAPER, HierarchicalDirichlet(order=3, vocab=2, eta=(1.0, 20.0, 3.0))])
def test_shares_of_masks_are_the_chains_stationary_law(prior):
    correlations = law_correlations(prior)
    agree = 1 / prior.vocab + (1 - 1 / prior.vocab) * correlations
    expected = reference.mask_chain(agree.tolist(), k=prior.order, steps=400)
    assert mask_shares(correlations, vocab=prior.vocab) == pytest.approx(expected, abs=1e-10)


def test_shares_of_masks_in_sequences():
    """Where laws are close to their suffix's the shares are those of sequences; where laws are peaked, they are not."""

    def apart(eta: float) -> float:
        prior = HierarchicalDirichlet(order=2, vocab=8, eta=(eta, eta))
        sample = draw_population(prior, length=300, order=2, draws=2000, seed=0)
        found = sample.counts.sum(2).mean(0) / 298
        return float(np.abs(found - mask_shares(law_correlations(prior), vocab=8)).max())

    assert apart(40.0) < 0.02
    assert apart(1.0) > 0.05  # the stated limit of the approximation: sequences return to the same few contexts


@pytest.mark.parametrize("prior", [PAPER, UNEQUAL, IndependentDirichlet(order=3, vocab=4, alpha=0.5)])
def test_scenarios_average_to_the_mean(prior: Prior):
    scenarios = visit_scenarios(prior)
    assert scenarios.weights.sum() == pytest.approx(1.0)
    assert scenarios.shares.sum(1) == pytest.approx(np.ones(len(scenarios.weights)))
    if prior.independent:
        mean = mask_shares(law_correlations(prior), vocab=prior.vocab)
        assert scenarios.weights @ scenarios.shares == pytest.approx(mean, abs=1e-9)
    assert (scenarios.siblings <= prior.vocab - 1).all()
    assert (scenarios.siblings >= 1 - 1e-9).all()


def test_rules():
    nodes, weights = beta_rule(1.3, 4.0, points=3)
    for power in range(6):
        exact = math.prod((1.3 + i) / (5.3 + i) for i in range(power))
        assert weights @ nodes**power == pytest.approx(exact, rel=1e-9)
    rng = np.random.default_rng(0)
    squares = (rng.dirichlet(np.ones(4), size=200_000) ** 2).sum(1)
    peaks = (squares - 0.25) / 0.75
    nodes, weights = root_peaks(1.0, vocab=4)
    assert weights @ nodes == pytest.approx(peaks.mean(), abs=0.002)
    assert weights @ nodes**2 - (weights @ nodes) ** 2 == pytest.approx(peaks.var(), rel=0.03)


def test_expectations_on_the_grid():
    grid = probability_grid(5, nodes=192)
    rows = child_matrix(grid, 3.0)
    assert rows.sum(1) == pytest.approx(np.ones(len(grid)))
    assert rows @ grid == pytest.approx(grid, abs=1e-9)
    inner = grid[1:-1]
    assert (rows @ np.exp(-4.0 * grid))[1:-1] == pytest.approx(hyp1f1(3.0 * inner, 3.0, -4.0), abs=2e-3)
    assert hat_weights(grid, np.array([0.01]), np.array([2.0]))[0, 0] > 0.8  # the mass next to zero is not lost


def test_the_tree_equals_a_simulation_of_it():
    risk = TreeRisk(UNEQUAL, length=42, bos=True, nodes=192)
    risk.siblings = torch.full_like(risk.siblings, 2.0)
    risk.rates = torch.tensor([[3.0, 2.0, 1.0, 6.0]], dtype=torch.float64).expand(len(risk.weights), 4)
    hit = torch.tensor([[0.1, 0.6, 0.3, 0.9]], dtype=torch.float64)
    rng = np.random.default_rng(1)
    draws = [
        reference.poisson_tree(
            rng,
            k=2,
            eta=(2.0, 7.0),
            root=(0.5, 1.0),
            siblings=2,
            rates=[3.0, 2.0, 1.0, 6.0],
            keep=(1 - hit[0]).tolist(),
        )
        for _ in range(6_000)
    ]
    error = np.std(draws) / math.sqrt(len(draws))
    assert float(risk.laplace(hit)[0, 0]) == pytest.approx(np.mean(draws), abs=4 * error + 5e-4)


@pytest.mark.parametrize("bos", [True, False])
def test_gradient(bos):
    risk = TreeRisk(PAPER, length=64, bos=bos)
    theta = np.array([2.0, 1.0, 3.0][: 2 + bos])
    _, gradient = risk(theta)
    steps = 1e-4 * np.eye(len(theta))
    slopes = [(risk(theta + step)[0] - risk(theta - step)[0]) / 2e-4 for step in steps]
    assert gradient == pytest.approx(slopes, abs=1e-6)


@pytest.mark.parametrize("prior", [PAPER, UNEQUAL])
def test_leading_order_follows_each_vote(prior):
    concentrations = prior.concentrations()
    expected = reference.exact_predictor_weights(concentrations.tolist(), vocab=prior.vocab, keys=62)
    found = suffix_weights(concentrations, vocab=prior.vocab, keys=62)
    assert found == pytest.approx(expected, rel=1e-10)
    beta, kappa = leading_order(prior, length=64, bos=True)
    assert np.exp(beta) == pytest.approx(np.divide(expected[2:], expected[1:-1]))
    assert kappa == pytest.approx(math.log(expected[0] / expected[1]))


def test_independent_prior_with_bos_is_exact():
    predicted = predicted_parameters(IndependentDirichlet(order=2, vocab=4, alpha=0.7), length=50)
    assert predicted.beta == (math.inf, math.inf)
    assert predicted.combination == pytest.approx(math.log(0.7 * 4))
    tokens = IndependentDirichlet(order=2, vocab=4, alpha=0.7).sample(batch=8, length=50, seed=0).tokens
    torch.testing.assert_close(predicted.predict(tokens), ip.add_alpha(tokens, order=2, vocab=4, alpha=0.7))


@pytest.mark.parametrize(
    ("prior", "length", "bos"),
    [
        (PAPER, 32, True),
        (PAPER, 64, False),
        (PAPER, 256, True),
        (HierarchicalDirichlet(order=1, vocab=20, eta=(5.0,)), 64, True),
        (IndependentDirichlet(order=2, vocab=5, alpha=1.0), 64, False),
    ],
)
def test_near_the_searched_optimum(prior, length, bos):
    predicted = predicted_parameters(prior, length=length, bos=bos)
    best = optimal_parameters(prior, length=length, bos=bos, draws=5000)
    assert predicted.success
    assert np.abs(np.subtract(predicted.beta, best.beta)).max() < 0.3
    sample = draw_population(prior, length=length, order=prior.order, draws=5000, seed=0)
    theta = np.array([*predicted.beta, *([predicted.kappa] if bos else [])])
    here, _, _ = population_divergence(sample, theta, bos=bos)
    assert here / best.kl < 1.02
    # The control: what the law says of another prior is worse here.
    if not prior.independent:
        other = HierarchicalDirichlet(order=prior.order, vocab=prior.vocab, eta=(40.0,) * prior.order)
        wrong = predicted_parameters(other, length=length, bos=bos)
        wrong_theta = np.array([*wrong.beta, *([wrong.kappa] if bos else [])])
        there, _, _ = population_divergence(sample, wrong_theta, bos=bos)
        assert there / best.kl > 1.02


def test_a_plateau_is_left():
    """A descent by way of the loss with all queries alike ends at beta_1 = 17; another ends lower."""
    prior = HierarchicalDirichlet(order=4, vocab=16, eta=(2.71,) * 4)
    predicted = predicted_parameters(prior, length=914)
    assert predicted.success
    assert predicted.derived_beta[0] < 9
    risk = TreeRisk(prior, length=914, bos=True)
    plateau = np.array([17.15, 3.55, 2.38, 2.07, 21.91])
    assert risk(np.array([*predicted.derived_beta, predicted.derived_kappa]))[0] < risk(plateau)[0]


def test_text_table_and_refusals():
    predicted = predicted_parameters(PAPER, length=np.int16(64), bos=True)
    assert len(str(predicted).splitlines()) <= 8
    assert predicted.table().parameter.tolist() == ["beta_1", "beta_2", "kappa"]
    assert predicted_parameters(PAPER, length=64, bos=True).beta == predicted.beta  # nothing is drawn
    with pytest.raises(ValueError, match="length must be an integer >= 3"):
        predicted_parameters(PAPER, length=2)
