"""Attention shares itself out over overlaps, BOS and early keys; a construction does it as its law says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import interp as ip
from interp.instruments.beta_kappa import fit_scores
from interp.instruments.overlap_mass import overlap_mass
from interp.notation import overlap
from tests.known_captures import (
    CASES,
    everywhere,
    imperfect,
    noisy,
    planted,
    random_model,
    tokens_of,
)


def assert_shares(mass) -> None:
    """Masses over kinds sum to one."""
    assert mass.by_overlap.sum() + mass.bos + mass.early == pytest.approx(1.0, abs=1e-6)
    assert mass.by_mask.sum() == pytest.approx(mass.by_overlap.sum(), abs=1e-9)
    if mass.success:
        assert mass.predicted_by_overlap.sum() + mass.predicted_bos == pytest.approx(1.0, abs=1e-9)
        np.testing.assert_allclose(mass.order_weights.sum(axis=1), 1.0, atol=1e-9)


@pytest.mark.parametrize(("order", "vocab", "beta", "kappa"), CASES)
def test_a_construction_follows_its_law(order, vocab, beta, kappa):
    mass = overlap_mass(planted(beta=beta, kappa=kappa, vocab=vocab))
    assert mass.success, mass.message
    assert_shares(mass)
    assert mass.distance < 1e-9
    assert mass.distance_each < 1e-9
    assert mass.largest_gap < 1e-9
    assert mass.early == 0.0
    assert (mass.bos == 0.0) == (kappa is None) == (mass.predicted_bos == 0.0)
    np.testing.assert_allclose(mass.by_mask, mass.predicted_by_mask, atol=1e-9)


def test_observed_and_predicted_equal_their_definitions():
    """Against loops over keys and masks, on a model that is not a construction."""
    beta, kappa = (2.0, 1.0, 0.5), 1.0
    model = imperfect(beta=beta, kappa=kappa, vocab=3, noise=0.1)
    cap = ip.capture(model, tokens_of(order=3, vocab=3, batch=12))
    fit = fit_scores(cap)
    mass = overlap_mass(cap, fit)
    assert_shares(mass)
    masks = ip.match_masks(cap.tokens, order=3).numpy()
    pattern = cap.match_pattern[:, 0, 0].numpy()
    observed, predicted, bos, early = np.zeros((12, 8)), np.zeros((12, 8)), np.zeros(12), np.zeros(12)
    groups, law_groups = np.zeros((12, 6)), np.zeros((12, 6))
    for b in range(12):
        bos[b] = pattern[b, 0]
        for s in range(40):
            if s < 3:
                early[b] += pattern[b, s + 1]
            else:
                observed[b, masks[b, s]] += pattern[b, s + 1]
                total = sum(fit.beta[lag] for lag in range(3) if masks[b, s] >> lag & 1)
                predicted[b, masks[b, s]] += np.exp(total)
        z = predicted[b].sum() + np.exp(fit.kappa)
        predicted[b] /= z
        for mask in range(8):
            groups[b, overlap(mask)] += observed[b, mask]
            law_groups[b, overlap(mask)] += predicted[b, mask]
        groups[b, 4:] = bos[b], early[b]
        law_groups[b, 4] = np.exp(fit.kappa) / z
    np.testing.assert_allclose(mass.by_mask, observed.mean(0), atol=1e-12)
    np.testing.assert_allclose(mass.predicted_by_mask, predicted.mean(0), atol=1e-12)
    np.testing.assert_allclose([*mass.by_overlap, mass.bos, mass.early], groups.mean(0), atol=1e-12)
    np.testing.assert_allclose([*mass.predicted_by_overlap, mass.predicted_bos], law_groups.mean(0)[:-1], atol=1e-12)
    np.testing.assert_allclose(mass.stderr_by_mask, observed.std(0, ddof=1) / np.sqrt(12), atol=1e-12)
    np.testing.assert_allclose(mass.stderr_by_group, groups.std(0, ddof=1) / np.sqrt(12), atol=1e-12)
    assert mass.distance == pytest.approx(np.abs(groups.mean(0) - law_groups.mean(0)).sum() / 2)
    assert mass.distance_each == pytest.approx(np.abs(groups - law_groups).sum(1).mean() / 2)
    assert mass.largest_gap == pytest.approx(np.abs(groups.mean(0) - law_groups.mean(0)).max())
    table = mass.table(by="mask")
    assert table["group"][table["contiguous"] == True].tolist() == ["{}", "{1}", "{1,2}", "{1,2,3}"]  # noqa: E712
    assert 0 < mass.early < 0.2
    assert 0.001 < mass.distance < 0.2


@pytest.mark.parametrize("beta", [0.2, 1.5, 100.0, -1.0])
@pytest.mark.parametrize("order", [1, 2, 3])
def test_order_weights_are_the_papers_for_equal_betas(order, beta):
    cap = planted(beta=(beta,) * order, kappa=1.0, vocab=3)
    mass = overlap_mass(cap)
    expected = ip.order_mixture(cap.tokens, order=order, vocab=3, beta=beta).order_weights.numpy()
    np.testing.assert_allclose(mass.order_weights, expected, atol=1e-9)


def test_order_weights_for_unequal_betas_mix_to_the_estimator():
    """lambda_i with q_i from the same gamma_M K_M(m) must give back soft matching; here without BOS."""
    beta = np.array([1.3, -0.4, 0.7])
    cap = planted(beta=beta, kappa=None, vocab=3, batch=20)
    mass = overlap_mass(cap)
    assert mass.success
    cumulative = ip.cumulative_counts(cap.tokens, order=3, vocab=3).numpy().astype(float)
    gamma = [np.prod([np.expm1(beta[lag]) for lag in range(3) if mask >> lag & 1]) for mask in range(8)]
    votes = np.zeros((20, 4, 3))
    for mask in range(8):
        votes[:, overlap(mask)] += gamma[mask] * cumulative[:, mask]
    totals = votes.sum(-1)
    np.testing.assert_allclose(mass.order_weights, totals / totals.sum(1, keepdims=True), atol=1e-9)
    models = votes / np.where(totals == 0, 1.0, totals)[..., None]  # an order never seen has weight zero
    mixture = np.einsum("bi,biv->bv", mass.order_weights, models)
    np.testing.assert_allclose(mixture, ip.soft_matching(cap.tokens, vocab=3, beta=beta).numpy(), atol=1e-9)


def test_hard_attention_backs_off_by_sequence():
    """At beta = 100 all weight goes to the highest order that has been seen."""
    cap = planted(beta=(100.0, 100.0), kappa=None, vocab=12, length=10, batch=60)
    mass = overlap_mass(cap)
    counts = ip.cumulative_counts(cap.tokens, order=2, vocab=12).sum(-1).numpy()
    highest = np.where(counts[:, 3] > 0, 2, np.where(counts[:, 1] + counts[:, 2] > 0, 1, 0))
    assert set(highest) == {0, 1, 2}
    np.testing.assert_allclose(mass.order_weights[np.arange(60), highest], 1.0, atol=1e-9)


def test_every_query():
    beta = (1.5, 0.7)
    cap = everywhere(beta=beta, vocab=4, length=16, batch=20)
    mass = overlap_mass(cap)
    assert mass.success
    assert_shares(mass)
    assert mass.early > 0.05  # this model has early keys like any other, which the law leaves out
    last = overlap_mass(everywhere(beta=beta, vocab=4, length=16, batch=20, query="last"))
    assert last.early < 0.5 * mass.early  # most at the first queries
    np.testing.assert_allclose(mass.order_weights, last.order_weights, atol=1e-9)


def test_a_wrong_law_is_far_away():
    """The negative control of the distance: another beta, another kappa, and noise on the scores."""
    cap = planted(beta=(2.7, 1.2), kappa=3.3, vocab=5, batch=100)
    fit = fit_scores(cap)
    assert overlap_mass(cap, replace(fit, beta=np.zeros(2))).distance > 0.2
    assert overlap_mass(cap, replace(fit, kappa=8.0)).distance > 0.2
    bent = overlap_mass(noisy(cap, scale=1.0, seed=0))
    assert bent.distance_each > 0.05
    assert bent.distance < bent.distance_each


def test_random_weights_have_masses_but_no_law():
    for family in ("disentangled", "standard"):
        model = random_model(order=2, vocab=5, length=24, bos=True, family=family, scale=0.5, seed=0)
        mass = overlap_mass(ip.capture(model, tokens_of(order=2, vocab=5, length=24)))
        assert not mass.success
        assert "no law to compare with: matches explain" in mass.message
        assert_shares(mass)
        assert np.isnan(mass.predicted_by_mask).all()
        assert np.isnan(mass.distance)
        assert np.isnan(mass.order_weights).all()


def test_a_fit_of_another_model_is_refused():
    cap = planted(beta=(2.7, 1.2), kappa=3.3, vocab=5)
    with pytest.raises(ValueError, match="law must be of order 2, got a fit of order 1"):
        overlap_mass(cap, fit_scores(planted(beta=(2.7,), kappa=3.3, vocab=5)))
    with pytest.raises(ValueError, match="the law has no kappa, the model a BOS to score"):
        overlap_mass(cap, fit_scores(planted(beta=(2.7, 1.2), kappa=None, vocab=5)))


def test_tables_are_by_overlap_or_by_mask():
    mass = overlap_mass(planted(beta=(2.7, 1.2, 0.3), kappa=3.3, vocab=5))
    by_overlap, by_mask = (mass.table(by=by).set_index("group") for by in ("overlap", "mask"))
    assert (len(by_overlap), len(by_mask)) == (4 + 2, 8 + 2)
    assert by_overlap.observed["|M|=3"] == pytest.approx(by_mask.observed["{1,2,3}"])
    assert by_overlap.observed["bos"] == pytest.approx(mass.bos)
    for table in (by_overlap, by_mask):  # of one granularity: nothing is counted twice
        assert table.observed.sum() == pytest.approx(1.0)
        assert table.predicted.sum() == pytest.approx(1.0)
    with pytest.raises(ValueError, match="by must be 'overlap' or 'mask', got 'lag'"):
        mass.table(by="lag")
    record = mass.record()
    assert list(record["order_weights"]) == ["0", "1", "2", "3"]
    assert record["by_mask"]["{1,3}"] == pytest.approx(mass.by_mask[0b101])


def test_order_weights_that_cancel_are_not_known() -> None:
    """With a beta of -1000 the terms of both signs cancel: what is left of their sum is rounding."""
    cap = planted(beta=(0.0, -1000.0), kappa=0.0, vocab=2, batch=48, length=12)
    mass = overlap_mass(cap)
    assert not np.isinf(mass.order_weights).any()
    assert np.isnan(mass.order_weights).any()
    sums = mass.order_weights.sum(axis=1)
    assert np.allclose(sums[np.isfinite(sums)], 1.0)
