"""Intervals hold the truth as often as they say, with few sequences and few chains: `benchmarks.coverage`, in small."""

from __future__ import annotations

import numpy as np
import pytest

import interp as ip
from benchmarks.coverage import PRIOR, bayes_rows, captures

BETA = (2.0, 1.0, 0.5, 0.3)


def test_intervals_of_scores_hold_beta() -> None:
    """Ten sequences of two symbols at order 4: 1.96 errors of the sandwich hold 0.80 of these betas."""
    parts = captures("slopes", beta=BETA, vocab=2, sequences=10, length=64, seed=0, parts=60)
    ends = [fit.interval(0.95) for fit in map(ip.fit_scores, parts) if fit.success]
    inside = [(low[:4] <= BETA) & (high[:4] >= BETA) for low, high in ends]
    assert len(inside) > 50
    assert 0.89 < np.mean(inside) < 0.99


def test_intervals_of_attention_hold_the_nearest_law() -> None:
    task = {"beta": (2.0, 1.0), "vocab": 4, "length": 40, "seed": 0}
    (many,) = captures("slopes", **task, sequences=4000, parts=1)
    truth = ip.fit_scores(many, source="attention")
    inside = []
    for cap in captures("slopes", **task, sequences=12, parts=60):
        low, high = ip.fit_scores(cap, source="attention").interval(0.95)
        inside.append((low <= [*truth.beta, truth.kappa]) & ([*truth.beta, truth.kappa] <= high))
    assert 0.89 < np.mean(inside) < 0.99


@pytest.mark.parametrize("noise", ["slopes", "masks"])
def test_additive_scores_are_rarely_rejected(noise: str) -> None:
    """Four interactions and 16 sequences: Wald's statistic with a table of F rejects 0.17 to 0.25 of them."""
    parts = captures(noise, beta=BETA[:3], vocab=2, sequences=16, length=64, seed=0, parts=60)
    p = np.array([ip.fit_scores(cap).additivity_p for cap in parts])
    assert not np.isnan(p).any()
    assert 0.0 < np.mean(p < 0.05) <= 0.11


def test_the_additivity_test_can_say_that_it_cannot_tell() -> None:
    (cap,) = captures("keys", beta=BETA, vocab=2, sequences=10, length=64, seed=0, parts=1)
    fit = ip.fit_scores(cap)
    assert fit.additivity_terms == 11
    assert np.isnan(fit.additivity_p)
    assert "cannot tell with 10 sequences for 11 interactions" in str(fit)


def test_few_chains_know_little_about_their_error() -> None:
    for row in bayes_rows(20, draws=40_000):
        assert 0.92 < row["interval"] < 0.98
        if row["chains"] == 2:
            assert row["normal quantile"] < 0.8


def test_intervals_of_the_optimum_hold_it() -> None:
    best = ip.optimal_parameters(PRIOR, length=20, draws=100_000, seed=9)
    inside = []
    for seed in range(12):
        low, high = ip.optimal_parameters(PRIOR, length=20, draws=1000, seed=seed).interval(0.95)
        inside.append((low <= [*best.beta, best.kappa]) & ([*best.beta, best.kappa] <= high))
    assert 0.85 < np.mean(inside) <= 1.0


def test_a_level_changes_the_width() -> None:
    (cap,) = captures("keys", beta=(2.0, 1.0), vocab=4, sequences=16, length=40, seed=0, parts=1)
    fit = ip.fit_scores(cap)
    widths = [fit.interval(level)[1] - fit.interval(level)[0] for level in (0.5, 0.95, 0.99)]
    assert (np.diff(widths, axis=0) > 0).all()
    assert widths[1] == pytest.approx(2 * 2.131 * np.array([*fit.stderr, fit.kappa_stderr]), rel=1e-3)  # t of 15
    with pytest.raises(ValueError, match="level must be at most 1"):
        fit.interval(95)
    pairs = ip.fit_score_pairs(cap)
    low, high = pairs.interval(0.95)
    assert (low < pairs.beta).all()
    assert (pairs.beta < high).all()
