"""The likelihood of attention equals its definition, and its derivatives are those of the value."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

import interp as ip
from interp.fitting.attention_fit import fit_law
from interp.fitting.candidates import attention_rows
from interp.fitting.laws import law_design
from interp.fitting.likelihood import AttentionRows, Likelihood, maximise
from tests import reference
from tests.known_captures import everywhere, noisy

LAWS = ("additive", "suffix", "free")


@pytest.fixture(scope="module")
def cap() -> ip.Capture:
    """Two queries of twelve sequences, with noise on every score."""
    return noisy(everywhere(beta=(1.5, 0.8), vocab=3, length=14, batch=12, query=[10, 13]), scale=0.7, seed=0)


def likelihood(cap: ip.Capture, law: Any, *, position: bool = False, own: bool = False) -> Likelihood:
    """The likelihood of a law of order 2 with BOS."""
    rows, _ = attention_rows(cap, position=position, own=own)
    return Likelihood(rows, law_design(law, order=2, bos=True, own=own).design)


def groups(shares: Any, counts: Any, design: Any) -> Likelihood:
    """The likelihood of one head's attention on a few groups, given row by row."""
    longest, observed = int(np.sum(counts, axis=1).max()), np.array([shares], dtype=float)[:, :, None]
    keys = np.full((len(shares), 1, longest), -1)
    for row, sizes in enumerate(counts):
        keys[row, 0, : int(sum(sizes))] = np.repeat(np.arange(len(sizes)), np.array(sizes, dtype=int))
    rows = AttentionRows(
        shares=observed,
        places=np.zeros((*observed.shape[:3], 0)),
        entropy=np.zeros(observed.shape[:3]),
        kept=np.ones(observed.shape[:3], dtype=bool),
        keys=keys,
        basis=np.zeros((longest, 0)),
        centre=None,
    )
    return Likelihood(rows, np.array(design, dtype=float))


def parameters(law: str, *, own: bool) -> tuple[np.ndarray, dict]:
    """Any parameters as the likelihood takes them, and as the definition does."""
    rng = np.random.default_rng(0)
    beta, kappa, lag_0 = rng.normal(size=2), float(rng.normal()), float(rng.normal())
    named: dict[str, Any] = {"beta": beta.tolist(), "kappa": kappa} | ({"own": lag_0} if own else {})
    if law != "free":
        return np.array([*beta, *([lag_0] if own else []), kappa]), named
    scores = rng.normal(size=3)
    return np.array([*scores, *([lag_0, *(scores + lag_0)] if own else []), kappa]), named | {"beta": [0.0, *scores]}


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("position", [False, True])
def test_the_likelihood_is_the_definition(cap: ip.Capture, law: str, own: bool, position: bool) -> None:
    found = likelihood(cap, law, position=position, own=own)
    theta, named = parameters(law, own=own)
    places = np.random.default_rng(1).normal(size=found.rows.basis.shape[1])
    place = (found.rows.basis @ places).tolist() if position else None
    expected = [
        reference.attention_cross_entropy(
            tokens.tolist(), pattern.tolist(), k=2, t=query, law=law, place=place, **named
        )
        for tokens, patterns in zip(cap.tokens, cap.match_pattern[:, 0], strict=True)
        for pattern, query in zip(patterns, (11, 14), strict=True)  # the definition counts from 1
    ]
    at = np.concatenate([theta, places])[None]
    np.testing.assert_allclose(-found.logs(at)[0].ravel(), expected, atol=1e-12)
    assert found.evaluate(at)[0][0] == pytest.approx(-sum(expected))


@pytest.mark.parametrize("position", [False, True])
@pytest.mark.parametrize("law", LAWS)
def test_derivatives_are_those_of_the_value(cap: ip.Capture, law: str, position: bool) -> None:
    found = likelihood(cap, law, position=position)
    theta = np.random.default_rng(2).normal(size=(1, found.observed.shape[-1]))
    (_, gradient, information), step = found.evaluate(theta), 1e-5
    for column in range(theta.shape[1]):
        moved = np.eye(theta.shape[1])[column] * step
        up, down = found.evaluate(theta + moved), found.evaluate(theta - moved)
        value, slope = ((above[0] - below[0]) / (2 * step) for above, below in list(zip(up, down, strict=True))[:2])
        assert gradient[0, column] == pytest.approx(value, abs=1e-6)
        np.testing.assert_allclose(information[0, column], -slope, atol=1e-6)
    assert np.linalg.eigvalsh(information[0]).min() >= -1e-9  # concave
    np.testing.assert_allclose(found.pull(theta).sum(axis=1), gradient, atol=1e-9)


@pytest.mark.parametrize("query", ["last", [10, 13]])
@pytest.mark.parametrize("position", [False, True])
def test_information_by_sequence_adds_up(query: Any, position: bool) -> None:
    cap = everywhere(beta=(1.5, 0.8), vocab=3, length=14, batch=7, query=query)
    found = likelihood(cap, "free", position=position, own=True)
    theta = np.random.default_rng(0).normal(size=(1, found.observed.shape[-1]))
    _, _, whole = found.evaluate(theta)
    np.testing.assert_allclose(found.information(theta).sum(axis=1), whole, atol=1e-9)
    part = Likelihood(found.rows.some(slice(2, 5)), found.design)
    np.testing.assert_allclose(part.information(theta), found.information(theta)[:, 2:5], atol=1e-9)


def test_keys_in_blocks_change_nothing(cap: ip.Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    found = likelihood(cap, "additive", position=True)
    theta = np.random.default_rng(2).normal(size=(1, found.observed.shape[-1]))
    whole, by_sequence = found.evaluate(theta), found.information(theta)
    monkeypatch.setattr("interp.fitting.likelihood.BLOCK_BYTES", 1 << 12)
    assert len(list(found._keys(1))) > 2
    for one, other in zip(found.evaluate(theta), whole, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-10)
    np.testing.assert_allclose(found.information(theta), by_sequence, atol=1e-10)


def test_groups_and_single_keys_agree(cap: ip.Capture) -> None:
    """Without a positional term nothing is lost by summing over the keys of a mask."""
    placed, grouped = (likelihood(cap, "additive", position=position) for position in (True, False))
    theta = np.array([[0.7, -0.3, 0.5]])
    with_places = np.concatenate([theta, np.zeros((1, placed.rows.basis.shape[1]))], axis=1)
    whole, short = placed.evaluate(with_places), grouped.evaluate(theta)
    assert whole[0] == pytest.approx(short[0])
    np.testing.assert_allclose(whole[1][:, :3], short[1], atol=1e-10)
    np.testing.assert_allclose(whole[2][:, :3, :3], short[2], atol=1e-10)
    np.testing.assert_allclose(placed.law(with_places).masses, grouped.law(theta).masses, atol=1e-12)


def test_many_heads_are_each_fitted_as_alone(cap: ip.Capture) -> None:
    """A query that one head leaves out changes nothing for the others."""
    law = law_design("additive", order=2, bos=True)
    apart = [
        attention_rows(noisy(cap, scale=scale, seed=seed), position=True)[0]
        for seed, scale in enumerate((0.1, 0.6, 1.2))
    ]
    for name in ("shares", "places"):
        getattr(apart[1], name)[0, 5] = 0.0
    apart[1].kept[0, 5] = False
    names = ("shares", "places", "entropy", "kept")
    several = {name: np.concatenate([getattr(one, name) for one in apart]) for name in names}
    together = fit_law(replace(apart[0], **several), law)
    assert together.converged.all()
    for head, one in enumerate(apart):
        alone = fit_law(one, law)
        for field in fields(alone):
            expected = getattr(alone, field.name)[0]
            np.testing.assert_allclose(getattr(together, field.name)[head], expected, atol=1e-8, err_msg=field.name)
    pooled = fit_law(replace(apart[0], **several).together(), law)
    assert pooled.theta[0, 0] == pytest.approx(together.theta[:, 0].mean(), abs=0.3)


def test_the_maximum_is_one(cap: ip.Capture) -> None:
    found = likelihood(cap, "free", position=True)
    size = found.observed.shape[-1]
    best = maximise(found, start=np.zeros((1, size)))
    far = maximise(found, start=np.random.default_rng(3).normal(scale=4.0, size=(1, size)))
    np.testing.assert_allclose(best.theta, far.theta, atol=1e-6)
    rng = np.random.default_rng(4)
    for _ in range(20):
        other = best.theta + 0.1 * rng.normal(size=(1, size))
        assert found.evaluate(other)[0] < found.evaluate(best.theta)[0]


def test_columns_left_out_stay_at_zero(cap: ip.Capture) -> None:
    found = maximise(likelihood(cap, "additive"), start=np.full((1, 3), 0.5), columns=[2])
    assert found.theta[0, :2].tolist() == [0.0, 0.0]
    assert found.told[0].tolist() == [False, False, True]
    assert not found.inverse[0, :2].any()


@pytest.mark.parametrize(
    ("shares", "design", "told"),
    [
        ([[0.4, 0.6], [0.3, 0.7]], [[0.0, 0.0], [1.0, 1.0]], False),  # two columns that are one
        ([[0.4, 0.6], [0.3, 0.7]], [[0.0], [1.0]], True),
        ([[0.0, 1.0], [0.0, 1.0]], [[0.0], [1.0]], False),  # attention with no digits left
    ],
)
def test_what_cannot_be_told_is_said(shares: Any, design: Any, told: bool) -> None:
    found = groups(shares, [[4.0, 2.0], [3.0, 3.0]], design)
    assert maximise(found, start=np.zeros((1, len(design[0])))).told.all() == told


def test_designs_of_the_laws() -> None:
    suffix = law_design("suffix", order=3, bos=True)
    assert suffix.parameters == ("beta_1", "beta_2", "beta_3", "kappa")
    assert suffix.design[0b101].tolist() == [1.0, 0.0, 0.0, 0.0]  # lag 3 does not count after a miss at lag 2
    assert suffix.design[-1].tolist() == [0.0, 0.0, 0.0, 1.0]
    free = law_design("free", order=2, bos=False, own=True)
    assert free.parameters[:4] == ("score_{1}", "score_{2}", "score_{1,2}", "score_{}+0")
    assert (free.own, free.kappa) == (3, None)
    assert [free.parameters[column] for column in free.beta] == ["score_{1}", "score_{2}"]
    additive = law_design("additive", order=2, bos=True, own=True)
    assert additive.design[0b11 | 4].tolist() == [1.0, 1.0, 1.0, 0.0]
    assert additive.matches == [0, 1, 2]
    assert additive.sizes.sum(axis=0).tolist() == [2, 4, 2, 1]
    with pytest.raises(ValueError, match="law must be 'additive', 'suffix' or 'free', got 'quadratic'"):
        law_design.__wrapped__("quadratic", order=2, bos=True)


@pytest.mark.parametrize(
    ("shares", "counts"),
    [
        *(((0.95 - mass, mass, 0.05), (44.0, 1.0, 1.0)) for mass in (0.6, 0.8, 0.85, 0.89, 0.92)),
        ((0.001, 0.95, 0.049), (44.0, 1.0, 1.0)),
        ((0.0012, 0.0179, 0.9809), (145.0, 4.0, 1.0)),
        ((1e-5, 1e-4, 0.99989), (1000.0, 2.0, 1.0)),
        ((0.9, 1e-3, 0.099), (200.0, 100.0, 1.0)),
    ],
)
def test_sharp_attention_is_found_from_even_attention(shares: tuple[float, ...], counts: tuple[float, ...]) -> None:
    # One key matches, or BOS takes nearly all: the first Newton step goes far beyond the maximum.
    found = groups([shares] * 20, [counts] * 20, law_design("additive", order=1, bos=True).design)
    baseline = maximise(found, start=np.zeros((1, 2)), columns=[1])
    best = maximise(found, start=baseline.theta)
    assert best.converged.all()
    assert best.told.all()
    np.testing.assert_allclose(found.law(best.theta).masses[0, 0, 0], shares, atol=1e-6)
