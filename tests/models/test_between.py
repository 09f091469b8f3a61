"""Ways between two disentangled models: they begin and end at their models, and order and sinks are undone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import interp as ip
from models.families.disentangled import weights as disentangled
from models.families.disentangled.between import by_reads, in_lag_order, straight, undiluted
from models.families.disentangled.training import predict_hooked

LENGTH = 12
PRIOR = ip.HierarchicalDirichlet(order=2, vocab=3, eta=(5.0, 5.0))
CHAINS = PRIOR.sample(batch=64, length=LENGTH, seed=3, method="explicit")
CONFIG = disentangled.config(order=2, vocab=3, length=LENGTH, bos=True)
WAYS = pytest.mark.parametrize("way", [straight, by_reads])
Way = Callable[..., np.ndarray]


def planted(*, strength: float = 6.0, sink: float = 0.0, noise: float = 0.0, seed: int = 0) -> np.ndarray:
    """A construction whose copy heads are as sharp as asked, with a bias towards BOS at the last query alone."""
    built = ip.construct(order=2, vocab=3, length=LENGTH, beta=(2.0, 1.0), kappa=1.0)
    flat = disentangled.from_hooked(built).astype(np.float64)
    parts = disentangled.views(CONFIG, flat)
    parts["copy_bias"][:] = strength * np.eye(2, LENGTH + 1, k=1)
    parts["copy_bias"][:, -1] = sink
    return flat + noise * np.random.default_rng(seed).normal(size=flat.shape)


def swapped(flat: np.ndarray) -> np.ndarray:
    """The same model with its copy heads in the other order."""
    return in_lag_order(CONFIG, flat, lags=(2, 1))


def laws(flat: np.ndarray) -> np.ndarray:
    return predict_hooked(disentangled.to_hooked(CONFIG, flat), CHAINS.tokens).numpy()


def scores(flat: np.ndarray) -> np.ndarray:
    """Match scores of the last query without those of BOS and of the last key, up to a constant for each query."""
    found = ip.capture(disentangled.to_hooked(CONFIG, flat), CHAINS.tokens).match_scores[:, 0, -1, 3:-1].numpy()
    return found - found.mean(axis=-1, keepdims=True)


def test_the_order_of_the_heads_changes_no_prediction() -> None:
    flat = planted(noise=0.3)
    other = swapped(flat)
    assert np.abs(other - flat).max() > 1.0
    np.testing.assert_allclose(laws(other), laws(flat), atol=1e-6)
    np.testing.assert_array_equal(swapped(other), flat)
    with pytest.raises(ValueError, match=r"each lag 1..2 needs one copy head, got lags \[1, 1\]"):
        in_lag_order(CONFIG, flat, lags=(1, 1))


@WAYS
def test_the_way_through_other_heads_or_weights_is_not_flat(way: Way) -> None:
    flat = planted()
    for other in (swapped(flat), planted(noise=2.0)):
        assert np.abs(laws(way(CONFIG, flat, other, 0.5)) - laws(flat)).max() > 0.05


@WAYS
def test_a_way_begins_and_ends_at_its_models(way: Way) -> None:
    start, end = planted(sink=5.0, strength=4.0, noise=0.3), planted(strength=40.0, noise=0.1, seed=1)
    np.testing.assert_allclose(laws(way(CONFIG, start, end, 0.0)), laws(start), atol=1e-5)
    np.testing.assert_allclose(laws(way(CONFIG, start, end, 1.0)), laws(end), atol=1e-5)


def test_attention_on_the_way_by_reads_is_a_straight_line() -> None:
    start, end = planted(sink=6.0), planted(strength=40.0)

    def last(flat: np.ndarray) -> float:
        return float(
            ip.copy_heads(ip.capture(disentangled.to_hooked(CONFIG, flat), CHAINS.tokens, copies=True)).last_mass[0]
        )

    ends = last(start), last(end)
    assert ends == pytest.approx((0.5, 1.0), abs=0.02)
    assert last(by_reads(CONFIG, start, end, 0.5)) == pytest.approx(np.mean(ends), abs=1e-5)
    assert last(straight(CONFIG, start, end, 0.5)) > 0.95


def test_a_sink_at_the_last_query_is_undone_by_larger_weights() -> None:
    """Its bias is one that no other query uses: with rows of W_A to match, all keys but the last keep their scores."""
    sharp, diluted = planted(strength=12.0), planted(strength=12.0, sink=12.0)
    made_up = undiluted(CONFIG, diluted, inverse=True)
    np.testing.assert_allclose(scores(made_up), scores(sharp), atol=1e-3)
    assert np.abs(scores(diluted) - scores(sharp)).max() > 0.2
    larger, plain = (disentangled.views(CONFIG, one)["match_weight"][3:6, 6:9] for one in (made_up, sharp))
    assert larger.std() > 1.9 * plain.std()
    np.testing.assert_allclose(undiluted(CONFIG, made_up), diluted, atol=1e-9)
