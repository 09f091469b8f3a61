"""The nearest estimator: each limit of a construction is recognised, and random weights are near nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from interp.chains.priors import ChainBatch
from interp.circuit.circuit import Circuit
from interp.circuit.runner import predict
from interp.divergence import kl_between
from interp.estimators.soft_matching import add_alpha
from interp.hooked.construction import construct
from interp.instruments.nearest_estimator import NearestEstimator, nearest_estimator
from tests import planted
from tests.planted import planted_foreign, trained_like, without_mechanism

BETA, KAPPA = (2.5, 1.2), 2.0


@pytest.fixture(scope="module")
def chains() -> ChainBatch:
    return planted.chains(batch=160)


@pytest.fixture(scope="module")
def soft(chains: ChainBatch) -> NearestEstimator:
    model = construct(order=2, vocab=4, length=24, beta=BETA, kappa=KAPPA)
    return nearest_estimator(model, chains.tokens, law=(BETA, KAPPA))


def test_a_construction_is_soft_matching(soft: NearestEstimator) -> None:
    assert soft.nearest in ("soft_matching_fitted", "soft_matching_best")
    assert soft["soft_matching_fitted"].kl == pytest.approx(0.0, abs=1e-12)
    assert soft["soft_matching_fitted"].floored == 0.0
    best = soft["soft_matching_best"]
    assert best.kl < 1e-6
    np.testing.assert_allclose(best.parameters["beta"], BETA, atol=5e-3)
    assert best.parameters["kappa"] == pytest.approx(KAPPA, abs=5e-3)
    others = [row for row in soft.estimators if not row.estimator.startswith("soft")]
    assert min(row.kl for row in others) > 0.01
    assert soft.success


def test_the_ranking_is_by_distance(soft: NearestEstimator) -> None:
    kls = [row.kl for row in soft.estimators]
    assert kls == sorted(kls)
    assert soft.estimators[0].behind == 0.0
    for row in soft.estimators[1:]:
        assert row.behind == pytest.approx(row.kl - kls[0])
    katz = soft["katz"]
    # Both are measured on the same sequences, so the difference is better known than the sum of errors says.
    assert 0 < katz.behind_stderr <= 1.01 * katz.stderr


def test_hard_matching_with_bos_is_add_alpha(chains: ChainBatch) -> None:
    """prop:add_constant."""
    alpha = 0.7
    model = construct(order=2, vocab=4, length=24, beta=(60.0, 60.0), kappa=120.0 + math.log(alpha * 4))
    near = nearest_estimator(model, chains.tokens)
    assert near["add_alpha_best"].kl < 1e-9
    assert near["add_alpha_best"].parameters["alpha"] == pytest.approx(alpha, rel=1e-3)
    assert near["add_alpha_best"].kl < near["add_alpha_1"].kl
    laws = predict(model, chains.tokens)
    expected = kl_between(laws, add_alpha(chains.tokens, order=2, vocab=4, alpha=1.0)).mean()
    assert near["add_alpha_1"].kl == pytest.approx(float(expected))
    # Soft matching has it as a limit: two estimators, one law.
    assert near["soft_matching_best"].kl < 1e-4
    assert "soft_matching_fitted" not in {row.estimator for row in near.estimators}


def test_hard_matching_without_bos_counts(chains: ChainBatch) -> None:
    """With equal betas the largest overlap wins; where there are full matches, that is counting."""
    model = construct(order=1, vocab=4, length=24, beta=(60.0,))
    near = nearest_estimator(model, planted.chains(order=1, batch=160).tokens)
    assert near["maximum_likelihood"].kl < near["add_alpha_1"].kl
    assert near["katz"].kl < 1e-6  # backs off to the unigram where the token is new, as the head does
    assert near["maximum_likelihood"].floored < 0.2


def test_pseudo_counts_that_the_attention_cannot_make_are_seen(chains: ChainBatch) -> None:
    """Without BOS a readout may smooth; soft matching with a kappa is then nearer than without."""
    model = trained_like(kappa=None)
    with torch.no_grad():
        model.unembed.W_U += 0.02  # every block sums to one: a constant for every vote
    near = nearest_estimator(model, chains.tokens, law=(BETA, None))
    assert near["soft_matching_best_bos"].kl < 0.5 * near["soft_matching_best"].kl
    assert "kappa" not in near["soft_matching_best"].parameters


def test_random_weights_are_near_nothing(chains: ChainBatch, soft: NearestEstimator) -> None:
    near = nearest_estimator(without_mechanism(), chains.tokens)
    assert near.estimators[0].kl > 0.3
    assert near.estimators[0].kl > 100 * soft.estimators[0].kl


def test_tuned_parameters_are_judged_on_sequences_they_have_not_seen(chains: ChainBatch) -> None:
    """A random model gives tuning only noise to fit: judged elsewhere, tuning cannot win by much over the truth."""
    model = without_mechanism(seed=3)
    few = chains.tokens[:12]
    near = nearest_estimator(model, few)
    laws = predict(model, few)
    best = near["add_alpha_best"].parameters["alpha"]
    in_sample = float(kl_between(laws, add_alpha(few, order=2, vocab=4, alpha=best)).mean())
    assert near["add_alpha_best"].kl >= in_sample - 1e-9


def test_someone_elses_model() -> None:
    tokens = planted.chains(order=1, vocab=5, length=16, batch=40).tokens
    near = nearest_estimator(Circuit(planted_foreign(), order=1), tokens)
    assert {row.estimator for row in near.estimators} >= {"soft_matching_best", "katz", "kneser_ney", "witten_bell"}


def test_bad_input(chains: ChainBatch) -> None:
    model = trained_like()
    with pytest.raises(ValueError, match="give at least 2"):
        nearest_estimator(model, chains.tokens[:1])
    with pytest.raises(ValueError, match="a weight for each lag"):
        nearest_estimator(model, chains.tokens, law=(np.zeros(4), 0.0))
