"""Odd inputs that the fuzz room found instruments to stumble over: refused in one line, or said in the result."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import interp as ip
from interp.fitting.regression import NormalEquations
from tests.known_captures import planted, random_model
from tests.planted import chains, planted_foreign, planted_standard, without_mechanism

ORDER, VOCAB, LENGTH = 2, 4, 24


@pytest.fixture(scope="module")
def model() -> Any:
    return without_mechanism(order=ORDER, vocab=VOCAB, length=LENGTH, bos=True)


@pytest.fixture(scope="module")
def given() -> Any:
    return chains(order=ORDER, vocab=VOCAB, length=LENGTH, batch=24)


@pytest.fixture(scope="module")
def cap() -> Any:
    return planted(beta=(2.0, 1.0), kappa=1.0, vocab=3, batch=12, length=10)


def refused(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        call()
    assert "\n" not in str(error.value)


# ---- models whose predictions are not finite


@pytest.mark.parametrize("name", ["label_symmetry", "nearest_estimator", "law_by_layer", "predict", "replace_heads"])
def test_a_prediction_that_is_not_finite_is_refused(name: str, given: Any) -> None:
    broken = without_mechanism(order=ORDER, vocab=VOCAB, length=LENGTH, bos=True)
    with torch.no_grad():
        broken.unembed.W_U.fill_(torch.nan)
    options = {"replace_heads": {"query": "trained"}}.get(name, {})
    refused(lambda: getattr(ip, name)(broken, given.tokens, **options), "prediction is not finite")


# ---- next laws


@pytest.mark.parametrize("name", ["smoothing_source", "direct_path", "vote_weight", "causal_tests"])
@pytest.mark.parametrize(
    ("law", "message"),
    [
        (None, "next_law must hold real numbers"),
        ("law", "next_law must hold real numbers"),
        (np.full((24, VOCAB), np.nan), "negative or non-finite"),
        (np.full((24, VOCAB), 1.0), "sum to 1"),
        (np.full((3, VOCAB), 0.25), r"next_law must have shape \[24, 4\]"),
    ],
)
def test_what_is_no_next_law_is_refused(name: str, law: Any, message: str, model: Any, given: Any) -> None:
    options = {"law": ((1.0, 1.0), 0.0)} if name == "causal_tests" else {}
    refused(lambda: getattr(ip, name)(model, given.tokens, next_law=law, **options), message)


def test_a_next_law_may_be_lists(model: Any, given: Any) -> None:
    lists = ip.direct_path(model, given.tokens, next_law=given.next_law.tolist())
    assert lists.kl == ip.direct_path(model, given.tokens, next_law=given.next_law).kl


# ---- options


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("label_symmetry", {"draws": 1.5}, "draws must be an integer"),
        ("label_symmetry", {"floor": math.nan}, "floor must be a finite number"),
        ("label_symmetry", {"floor": 0.9}, "floor must be far below"),
        ("nearest_estimator", {"floor": -1.0}, "floor must be a finite number"),
        ("law_by_layer", {"floor": "x"}, "floor must be a finite number"),
        ("identity_blocks", {"seed": -1}, "seed must be an integer"),
        ("identity_blocks", {"batch": 0}, "batch must be an integer"),
        ("identity_blocks", {"routes": 3}, "routes must list"),
        ("replace_heads", {"query": [5.5]}, "a list of token indices"),
        ("replace_heads", {"query": [math.inf]}, "a list of token indices"),
        ("replace_heads", {"query": "trained", "law": ([[1.0], [1.0, 2.0]], 0.0)}, "weights must be an array"),
        ("replace_heads", {"query": "trained", "other_laws": "x"}, "other_laws must map names"),
        ("replace_heads", {"query": "trained", "other_laws": {"x": 3}}, "law must be a fit"),
        ("replace_heads", {"query": "trained", "each": 3}, "each must be True or False"),
    ],
)
def test_odd_options_are_refused(name: str, options: dict[str, Any], message: str, model: Any, given: Any) -> None:
    refused(lambda: getattr(ip, name)(model, given.tokens, **options), message)


def test_a_refusal_shows_no_whole_tensor() -> None:
    from tests.planted_heads import Plant, plant

    spec = Plant(order=1, copies={1: ((0, 0),)}, matches={(1, 0): ((2.0,), 1.0)}, layers=2, heads=1, length=8)
    foreign = plant(spec)
    refused(lambda: ip.Circuit(foreign, order=1, symbols=torch.arange(100), vocab=3), "symbols must list one id")
    refused(lambda: ip.Circuit(foreign, order=1, match_heads=torch.zeros(30, 30)), "match_heads must list")


# ---- captures whose arrays do not belong together


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda cap: {
                "query": cap.queries[:0],
                "match_scores": cap.match_scores[:, :, :0],
                "match_pattern": cap.match_pattern[:, :, :0],
            },
            "match_pattern must have shape",
        ),
        (lambda cap: {"query": cap.queries + 5}, "queries must be keys 0..10"),
        (lambda cap: {"tokens": cap.tokens + 5}, "outside the capture's vocabulary 0..2"),
        (lambda cap: {"tokens": cap.tokens[:, 1:]}, "match_pattern must have shape"),
        (lambda cap: {"bos": False}, "match_pattern must have shape"),
        (lambda cap: {"order": 0}, "order must be an integer"),
    ],
)
def test_arrays_that_do_not_belong_together_are_refused(change: Any, message: str, cap: Any) -> None:
    refused(lambda: replace(cap, **change(cap)), message)


def test_the_mass_needs_a_fit(cap: Any) -> None:
    refused(lambda: ip.overlap_mass(cap, 3), "fit must be what fit_scores returns, got 3")


# ---- numbers that would be nonsense


def test_order_weights_that_cancel_are_not_known() -> None:
    """With a beta of -1000 the terms of both signs cancel: what is left of their sum is rounding."""
    cap = planted(beta=(0.0, -1000.0), kappa=0.0, vocab=2, batch=48, length=12)
    mass = ip.overlap_mass(cap)
    assert not np.isinf(mass.order_weights).any()
    assert np.isnan(mass.order_weights).any()
    sums = mass.order_weights.sum(axis=1)
    assert np.allclose(sums[np.isfinite(sums)], 1.0)


def test_scores_that_cannot_be_squared_are_trouble() -> None:
    equations = NormalEquations.empty(columns=1, epsilon=1e-16)
    known = np.ones((2, 3), dtype=bool)
    design = np.arange(6.0).reshape(2, 3, 1)
    with np.errstate(over="ignore", invalid="ignore"):
        equations.add(design, np.array([[0.0, 1.0, 1e200], [0.0, 1.0, 2.0]]), known)
        assert "too large to be squared" in str(equations.trouble())
    fine = NormalEquations.empty(columns=1, epsilon=1e-16)
    fine.add(design, np.array([[0.0, 1.0, 1e20], [0.0, 1.0, 2.0]]), known)
    assert fine.trouble() is None


def test_blocks_of_nothing_are_json() -> None:
    silent = random_model(order=1, vocab=3, length=8, bos=False, family="standard", scale=0.0, seed=0)
    tokens = torch.randint(3, (12, 8), generator=torch.Generator().manual_seed(0))
    json.dumps(ip.identity_blocks(silent, tokens).record(), allow_nan=False)
    found = ip.identity_blocks(planted_standard(length=8), chains(length=8).tokens).record()
    assert all(value is not None for value in found["scores"]["beta"])


# ---- commands


def test_a_study_that_finds_no_weights_says_so_in_one_line(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    from analyses.running.cli import main

    with pytest.raises(SystemExit) as end:
        main(["text_training", "--histories", str(tmp_path), "--cache", str(tmp_path / "kept")])
    assert end.value.code == 2
    assert "has no runs with snapshots" in capsys.readouterr().err


def test_the_entries_of_a_package_are_read_again_when_a_file_changes(tmp_path: Any) -> None:
    from analyses.running.command import read_entries

    file = tmp_path / "studies" / "one.py"
    file.parent.mkdir()
    file.write_text('"""First."""\nLABEL = "fig:one"\n')
    assert read_entries(tmp_path, marker="LABEL")["one"].summary == "First"
    file.write_text('"""Another."""\nLABEL = "fig:one"\n')
    assert read_entries(tmp_path, marker="LABEL")["one"].summary == "Another"
    file.write_text("")
    assert not read_entries(tmp_path, marker="LABEL")


def test_a_result_whose_subject_names_no_family_is_of_no_analytic_one() -> None:
    from figures.parts.rows import analytic

    assert not analytic({"prior": "independent"})
    assert not analytic({"family": ["construction"]})
    assert analytic({"family": "construction"})


def test_blocks_need_a_query_with_two_candidates() -> None:
    plain = random_model(order=1, vocab=3, length=8, bos=False, family="standard", scale=0.5, seed=0)
    tokens = torch.randint(3, (24, 8), generator=torch.Generator().manual_seed(0))
    refused(lambda: ip.identity_blocks(plain, tokens, query=[1]), "no query has two candidate keys")
    assert ip.identity_blocks(plain, tokens, query=[2, 7]).n


def test_symbols_that_are_no_list_are_refused() -> None:
    from interp.circuit.circuit import _vocab_of

    refused(lambda: _vocab_of(None, None, {0, 1, 2}), "symbols must be a list of ids")
    assert _vocab_of(None, None, [4, 5, 6]) == 3
    plain = planted_foreign()
    place = {"order": 2, "match_heads": ((1, 0),)}
    for odd in ({0, 1, 2}, 3, 1.5, "abc", {"a": 1}, object()):
        refused(lambda odd=odd: ip.Circuit(plain, symbols=odd, **place), "symbols")
