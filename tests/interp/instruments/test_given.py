"""What instruments are given: a law of each match head, from a fit or by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import interp as ip
from interp.instruments.given import laws_of_heads
from tests.planted_heads import PLANTS, plant

CIRCUIT: dict[str, Any] = {"order": 2, "bos": True, "heads": 2}


@pytest.fixture(scope="module")
def fit() -> Any:
    spec = PLANTS["two match heads"]
    tokens = ip.HierarchicalDirichlet(order=2, vocab=5, eta=(3.0, 3.0)).sample(batch=60, length=40, seed=3).tokens
    circuit = ip.Circuit(plant(spec), match_heads=tuple(sorted(spec.matches)), **spec.task)
    return ip.fit_scores(ip.capture(circuit, tokens))


def test_a_fit_gives_each_head_its_own_law(fit: Any) -> None:
    found = laws_of_heads(fit, **{**CIRCUIT, "bos": fit.kappa is not None}).heads
    for law, own in zip(found, fit.heads, strict=True):
        np.testing.assert_array_equal(law.beta, own.beta)
        assert law.kappa == own.kappa
    together = laws_of_heads(fit, **{**CIRCUIT, "bos": fit.kappa is not None, "heads": 1}).heads
    np.testing.assert_array_equal(together[0].beta, fit.beta)


def test_a_fit_in_doubt_gives_no_law(fit: Any) -> None:
    found = laws_of_heads(replace(fit, success=False, message="why"), **CIRCUIT)
    assert (found.heads, found.note) == ((), "why")


@pytest.mark.parametrize(
    ("weights", "kappa", "by_mask", "kappas"),
    [
        ((2.0, 1.0), 3.0, [[0, 2, 1, 3]] * 2, [3.0, 3.0]),
        ([(2.0, 1.0), (1.0, 4.0)], (3.0, 0.5), [[0, 2, 1, 3], [0, 1, 4, 5]], [3.0, 0.5]),
        ((0.0, 1.0, 1.0, 1.0), 0.0, [[0, 1, 1, 1]] * 2, [0.0, 0.0]),
    ],
)
def test_weights_are_by_lag_or_by_mask(weights: Any, kappa: Any, by_mask: Any, kappas: Any) -> None:
    found = laws_of_heads((weights, kappa), **CIRCUIT).heads
    assert [one.by_mask.tolist() for one in found] == by_mask
    assert [one.kappa for one in found] == kappas
    assert all((one.beta is None) == (np.shape(weights)[-1] == 4) for one in found)


@pytest.mark.parametrize(
    ("law", "message"),
    [
        ("best", "law must be a fit, such as fit_scores"),
        ((2.0, 1.0, 3.0), "law must be a fit"),
        (((1.0, 2.0, 3.0), 0.0), r"expected 2 \(one for each lag\) or 4 \(one for each mask\)"),
        (((1.0, np.nan), 0.0), "weights must be finite"),
        (((1.0, 2.0), (1.0, 2.0, 3.0)), "kappa has 3 numbers, but the circuit has 2 match heads"),
        (((1.0, 2.0), None), "the law has no kappa, the model a BOS to score"),
        (((1.0, 2.0), "x"), "kappa must hold real numbers"),
    ],
)
def test_what_is_no_law_of_the_circuit_is_refused(law: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        laws_of_heads(law, **CIRCUIT)
