"""The likelihood of attention equals its definition, and its derivatives are those of the value."""

from __future__ import annotations

import numpy as np
import pytest

import interp as ip
from interp.fitting.attention_rows import attention_rows
from interp.fitting.laws import group_sizes, into_sizes, law_design
from interp.fitting.likelihood import GroupLikelihood, PlacedLikelihood, influence, maximise
from tests import reference
from tests.known_captures import everywhere, noisy

LAWS = ("additive", "suffix", "free")


@pytest.fixture(scope="module")
def cap() -> ip.Capture:
    """Two queries of twelve sequences, with noise on every score."""
    return noisy(everywhere(beta=(1.5, 0.8), vocab=3, length=14, batch=12, query=[10, 13]), scale=0.7, seed=0)


def parameters(law: str, *, own: bool, seed: int = 0) -> tuple[np.ndarray, dict]:
    """Any parameters as the likelihood takes them, and as the definition does."""
    rng = np.random.default_rng(seed)
    beta, kappa, lag_0 = rng.normal(size=2), float(rng.normal()), float(rng.normal())
    if law == "free":
        scores = rng.normal(size=3)
        if not own:
            return np.array([*scores, kappa]), {"beta": [0.0, *scores], "kappa": kappa}
        return np.array([*scores, lag_0, *(scores + lag_0), kappa]), {
            "beta": [0.0, *scores],
            "kappa": kappa,
            "own": lag_0,
        }
    named = {"beta": beta.tolist(), "kappa": kappa}
    return (np.array([*beta, lag_0, kappa]), named | {"own": lag_0}) if own else (np.array([*beta, kappa]), named)


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("position", [False, True])
def test_the_likelihood_is_the_definition(cap: ip.Capture, law: str, own: bool, position: bool) -> None:
    rows = attention_rows(cap, position=position, own=own)
    likelihood = rows.likelihood(law_design(law, order=2, bos=True, own=own))
    assert isinstance(likelihood, PlacedLikelihood if position else GroupLikelihood)
    theta, named = parameters(law, own=own)
    places = np.random.default_rng(1).normal(size=rows.basis.shape[1])
    place = (rows.basis @ places).tolist() if position else None
    logs = likelihood.logs(np.concatenate([theta, places])[None])[0]
    expected = [
        reference.attention_cross_entropy(
            tokens.tolist(), pattern.tolist(), k=2, t=query, law=law, place=place, **named
        )
        for row, query in enumerate((11, 14))  # the definition counts from 1
        for tokens, pattern in zip(cap.tokens, cap.match_pattern[:, 0, row], strict=True)
    ]
    np.testing.assert_allclose(-logs, expected, atol=1e-12)
    assert likelihood.evaluate(np.concatenate([theta, places])[None]).value[0] == pytest.approx(-sum(expected))


@pytest.mark.parametrize("position", [False, True])
@pytest.mark.parametrize("law", LAWS)
def test_derivatives_are_those_of_the_value(cap: ip.Capture, law: str, position: bool) -> None:
    rows = attention_rows(cap, position=position)
    likelihood = rows.likelihood(law_design(law, order=2, bos=True))
    theta = np.random.default_rng(2).normal(size=(1, likelihood.design.shape[1] + rows.basis.shape[1]))
    here, step = likelihood.evaluate(theta), 1e-5
    for column in range(theta.shape[1]):
        moved = np.eye(theta.shape[1])[column] * step
        up, down = likelihood.evaluate(theta + moved), likelihood.evaluate(theta - moved)
        assert here.gradient[0, column] == pytest.approx((up.value[0] - down.value[0]) / (2 * step), abs=1e-6)
        np.testing.assert_allclose(
            here.information[0, column], -(up.gradient[0] - down.gradient[0]) / (2 * step), atol=1e-6
        )
    assert np.linalg.eigvalsh(here.information[0]).min() >= -1e-9  # concave
    np.testing.assert_allclose(likelihood.pull(theta).sum(axis=1), here.gradient, atol=1e-9)


def test_groups_and_single_keys_agree(cap: ip.Capture) -> None:
    """Without a positional term nothing is lost by summing over the keys of a mask."""
    law = law_design("additive", order=2, bos=True)
    placed, grouped = (attention_rows(cap, position=position).likelihood(law) for position in (True, False))
    theta = np.array([[0.7, -0.3, 0.5]])
    with_places = np.concatenate([theta, np.zeros((1, placed.parts[0].places.shape[1]))], axis=1)
    whole, short = placed.evaluate(with_places), grouped.evaluate(theta)
    assert whole.value == pytest.approx(short.value)
    np.testing.assert_allclose(whole.gradient[:, :3], short.gradient, atol=1e-10)
    np.testing.assert_allclose(whole.information[:, :3, :3], short.information, atol=1e-10)
    np.testing.assert_allclose(placed.masses(with_places), grouped.masses(theta), atol=1e-12)
    np.testing.assert_allclose(placed.pull(with_places)[..., :3], grouped.pull(theta), atol=1e-10)


def test_many_heads_are_each_fitted_as_alone(cap: ip.Capture) -> None:
    law = law_design("additive", order=2, bos=True)
    caps = [noisy(cap, scale=scale, seed=seed) for seed, scale in enumerate((0.1, 0.6, 1.2))]
    rows = [attention_rows(one, position=False) for one in caps]
    together = GroupLikelihood(
        shares=np.stack([one.shares for one in rows]),
        counts=rows[0].counts,
        design=law.design,
        sequence=rows[0].sequence,
        sequences=12,
    )
    found = maximise(together, start=np.zeros((3, 3)))
    assert found.converged.all()
    for head, one in enumerate(rows):
        alone = maximise(one.likelihood(law), start=np.zeros((1, 3)))
        np.testing.assert_allclose(found.theta[head], alone.theta[0], atol=1e-9)
        np.testing.assert_allclose(
            influence(together, found)[head], influence(one.likelihood(law), alone)[0], atol=1e-9
        )


def test_the_maximum_is_one(cap: ip.Capture) -> None:
    likelihood = attention_rows(cap, position=True).likelihood(law_design("free", order=2, bos=True))
    size = 4 + likelihood.parts[0].places.shape[1]
    found = maximise(likelihood, start=np.zeros((1, size)))
    far = maximise(likelihood, start=np.random.default_rng(3).normal(scale=4.0, size=(1, size)))
    np.testing.assert_allclose(found.theta, far.theta, atol=1e-6)
    rng = np.random.default_rng(4)
    for _ in range(20):
        other = found.theta + 0.1 * rng.normal(size=(1, size))
        assert likelihood.evaluate(other).value[0] < found.value[0]


def test_columns_left_out_stay_at_zero(cap: ip.Capture) -> None:
    likelihood = attention_rows(cap, position=False).likelihood(law_design("additive", order=2, bos=True))
    found = maximise(likelihood, start=np.full((1, 3), 0.5), columns=[2])
    assert found.theta[0, :2].tolist() == [0.0, 0.0]
    assert found.told[0].tolist() == [False, False, True]
    assert found.inverse[0, :2].any() == np.False_


def test_what_cannot_be_told_is_said() -> None:
    """Two columns that are one, and attention with no digits left."""
    counts = np.array([[4.0, 2.0], [3.0, 3.0]])
    common = {"counts": counts, "sequence": np.arange(2), "sequences": 2}
    shares = np.array([[[0.4, 0.6], [0.3, 0.7]]])
    twins = GroupLikelihood(shares=shares, design=np.array([[0.0, 0.0], [1.0, 1.0]]), **common)
    assert not maximise(twins, start=np.zeros((1, 2))).told.any()
    one = np.array([[0.0], [1.0]])
    assert maximise(GroupLikelihood(shares=shares, design=one, **common), start=np.zeros((1, 1))).told.all()
    hard = np.array([[[0.0, 1.0], [0.0, 1.0]]])
    assert not maximise(GroupLikelihood(shares=hard, design=one, **common), start=np.zeros((1, 1))).told.any()


def test_designs_of_the_laws() -> None:
    suffix = law_design("suffix", order=3, bos=True)
    assert suffix.parameters == ("beta_1", "beta_2", "beta_3", "kappa")
    assert suffix.design[0b101].tolist() == [1.0, 0.0, 0.0, 0.0]  # lag 3 does not count after a miss at lag 2
    assert suffix.design[-1].tolist() == [0.0, 0.0, 0.0, 1.0]
    free = law_design("free", order=2, bos=False, own=True)
    assert free.parameters[:3] == ("score_{1}", "score_{2}", "score_{1,2}")
    assert free.parameters[3] == "score_{}+0"
    assert free.own == 3
    assert free.kappa is None
    assert [free.parameters[column] for column in free.beta] == ["score_{1}", "score_{2}"]
    additive = law_design("additive", order=2, bos=True, own=True)
    assert additive.design[0b11 | 4].tolist() == [1.0, 1.0, 1.0, 0.0]
    assert additive.matches == [0, 1, 2]
    with pytest.raises(ValueError, match="law must be 'additive', 'suffix' or 'free', got 'quadratic'"):
        law_design.__wrapped__("quadratic", order=2, bos=True)
    sizes = group_sizes(order=2, bos=True, own=True)
    assert sizes.tolist() == [0, 1, 1, 2, 0, 1, 1, 2, 3]
    assert into_sizes(sizes, order=2).sum(axis=0).tolist() == [2, 4, 2, 1]


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
    observed = np.tile(shares, (1, 20, 1))
    likelihood = GroupLikelihood(
        shares=observed,
        counts=np.tile(counts, (20, 1)),
        design=law_design("additive", order=1, bos=True).design,
        sequence=np.arange(20),
        sequences=20,
    )
    baseline = maximise(likelihood, start=np.zeros((1, 2)), columns=[1])
    found = maximise(likelihood, start=baseline.theta)
    assert found.converged.all()
    assert found.told.all()
    np.testing.assert_allclose(likelihood.masses(found.theta)[0, 0], shares, atol=1e-6)
