"""What each head attends to on one sequence: the analysis against the capture, and against a closed form."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import interp as ip
from analyses.checkpoint import attention
from analyses.running.cache import Cache
from analyses.running.options import CheckpointOptions
from analyses.running.subject import Subject
from analyses.running.table import flat_rows
from analyses.studies import construction_attention
from interp.plotting import OVERLAP_COLOURS
from tests.planted import planted_standard, without_mechanism

BETA, KAPPA = (2.5, 1.2), 2.0


def found(path, **changed):
    given = CheckpointOptions(**{"batch": 64, **changed})
    return attention.analyse(Subject.open(path, given), given).plain()


def asked(path, **changed) -> SimpleNamespace:
    (row,) = found(path, **changed).rows
    return SimpleNamespace(**row)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    path = tmp_path_factory.mktemp("built") / "checkpoint"
    ip.save(ip.construct(order=2, vocab=4, length=24, beta=BETA, kappa=KAPPA), path)
    return path


@pytest.fixture(scope="module")
def random(tmp_path_factory):
    path = tmp_path_factory.mktemp("random") / "checkpoint"
    ip.save(without_mechanism(), path)
    return path


@pytest.mark.parametrize("name", ["built", "random"])
def test_fields_are_those_of_the_capture(name, request):
    path = request.getfixturevalue(name)
    result, model = asked(path), ip.load(path)
    cap = ip.capture(model, [result.tokens], query="all")
    close = {"rtol": 10.0 ** (1 - attention.DIGITS), "atol": 1e-300}  # kept to DIGITS digits
    np.testing.assert_allclose(result.copy_pattern, cap.copy_pattern[0], **close)
    copied = np.array(result.copy_scores, dtype=np.float64)
    past = np.exp(copied - np.nanmax(copied, axis=-1, keepdims=True))
    # The softmax of the scores is the pattern; masked keys have none.
    softmax = np.nan_to_num(past) / np.nansum(past, axis=-1, keepdims=True)
    np.testing.assert_allclose(softmax, cap.copy_pattern[0], rtol=1e-3, atol=1e-5)
    assert np.array_equal(np.isfinite(copied[0]), np.tril(np.ones_like(copied[0], dtype=bool)))
    np.testing.assert_allclose(result.match_pattern, cap.match_pattern[0, 0], **close)
    np.testing.assert_allclose(result.weights, cap.match_pattern[0, 0, -1], **close)
    scores = np.array(result.match_scores, dtype=np.float64)
    causal = np.tril(np.ones_like(scores, dtype=bool))
    assert np.array_equal(np.isfinite(scores), causal)
    np.testing.assert_allclose(scores[causal], cap.match_scores[0, 0].numpy()[causal], **close)
    np.testing.assert_allclose(result.copy_bias, model.copy_attention.rel_bias.detach(), **close)
    np.testing.assert_allclose(result.match_bias, model.match_attention.rel_bias[0].detach(), **close)
    np.testing.assert_allclose(result.match_weight, model.match_attention.W_Q[0, :12].detach(), **close)
    np.testing.assert_allclose(result.law, ip.predict(model, [result.tokens])[0])


@pytest.mark.parametrize("name", ["built", "random"])
def test_masses_are_the_weights_by_kind_and_sum_to_one(name, request):
    result = asked(request.getfixturevalue(name))
    assert list(result.mass) == list(OVERLAP_COLOURS)
    assert sum(result.mass.values()) == pytest.approx(1.0, abs=1e-12)
    for kind, share in result.mass.items():
        mine = [weight for weight, other in zip(result.weights, result.kinds, strict=True) if other == kind]
        assert share == pytest.approx(sum(mine), abs=1e-5)


def test_a_planted_construction_is_its_closed_form(built):
    result = asked(built)
    masks = ip.match_masks([result.tokens], order=2)[0].tolist()
    scores = [KAPPA] + [
        -math.inf if mask < 0 else sum(beta for lag, beta in enumerate(BETA) if mask >> lag & 1) for mask in masks
    ]
    total = sum(math.exp(score) for score in scores)
    np.testing.assert_allclose(result.weights, [math.exp(score) / total for score in scores], rtol=1e-5, atol=1e-12)
    assert result.kinds[0] == "bos"
    assert result.kinds.count("full") == masks.count(3) >= attention.LEAST_MATCHES
    expected = np.zeros((12, 12))
    expected[0:4, 4:8], expected[4:8, 8:12] = BETA[0] * np.eye(4), BETA[1] * np.eye(4)
    assert np.array_equal(result.match_weight, expected)


def test_the_same_prior_and_length_show_the_same_sequence(built, random, tmp_path):
    first, second = asked(built), asked(random)
    assert first.tokens == second.tokens
    assert first.sequence == second.sequence
    assert first.kinds == second.kinds
    assert asked(built) == first
    assert asked(built, seed=1).tokens != first.tokens
    ip.save(planted_standard(), tmp_path / "standard")  # no BOS: the tokens are the same all the same
    other = asked(tmp_path / "standard")
    assert other.tokens == first.tokens
    assert other.kinds == first.kinds[1:]
    assert other.match_weight is None


def test_results_can_be_written_and_read(built):
    table = found(built)
    (row,) = table.rows
    json.dumps(row, allow_nan=False)
    assert set(attention.COLUMNS) <= set(flat_rows([row])[0])
    assert [key["position"] for key in table.tidy] == list(range(25))
    assert [key["token"] for key in table.tidy] == ["BOS", *map(str, row["tokens"])]
    assert sum(key["weight"] for key in table.tidy) == pytest.approx(1.0, abs=1e-5)
    assert f"full {row['mass']['full']:.3f}" in table.text


STUDY = construction_attention.Options(batch=64)


def test_the_constructions_masses_are_those_of_the_three_estimators():
    hard, soft, bos = construction_attention.study(STUDY, Cache(None)).rows
    for row in (hard, soft, bos):
        assert sum(row["mass"].values()) == pytest.approx(1.0, abs=1e-9)
        assert row["mass"]["early"] == 0.0
        assert row["weights"] == row["match_pattern"][-1]
    matches = hard["kinds"].count("full")
    assert matches >= attention.LEAST_MATCHES
    assert hard["mass"]["full"] == pytest.approx(1.0)
    assert hard["to_counting"] < 1e-9
    assert bos["mass"]["bos"] == pytest.approx(5 / (matches + 5))  # alpha |V| pseudo-counts
    assert bos["to_add_alpha"] < 1e-9
    beta = ip.beta_for_add_alpha(length=64, order=2, vocab=5, alpha=1.0)
    expected = soft["kinds"].count("partial") * math.exp(beta)
    assert soft["mass"]["partial"] / soft["mass"]["none"] == pytest.approx(expected / soft["kinds"].count("none"))


def test_a_sequence_without_matches_is_refused(built):
    with pytest.raises(ValueError, match="none of 1 sequences of length 4"):
        construction_attention.study(replace(STUDY, batch=1, length=4), Cache(None))
    tokens = ip.IndependentDirichlet(order=2, vocab=4).sample(batch=2, length=3, seed=0).tokens
    with pytest.raises(ValueError, match="none of 2 sequences of length 3"):
        attention.first_with_matches(tokens, order=2)


def test_readings_of_a_construction_are_its_own(built):
    result = asked(built)
    assert [(copy["lag"], copy["share"], copy["last"]) for copy in result.copies] == [(1, 1.0, 1.0), (2, 1.0, 1.0)]
    assert result.aligned_share == 1.0
    assert result.per_key["full"] / result.per_key["none"] == pytest.approx(math.exp(sum(BETA)), rel=1e-4)
    prefixes = [result.tokens[: end + 1] for end in range(2, len(result.tokens))]
    with_match = sum(3 in ip.match_masks([prefix], order=2)[0].tolist() for prefix in prefixes)
    assert result.on_full == [with_match, with_match]


def test_readings_of_attention_without_structure_find_none(built, random):
    result = asked(random)
    assert {copy["verdict"] for copy in result.copies}.isdisjoint({"copies lag 1", "copies lag 2"})
    assert result.aligned_share is None
    row = vars(asked(built))
    keys = len(row["kinds"])
    row["match_pattern"] = (np.tril(np.ones((keys, keys))) / np.arange(1, keys + 1)[:, None]).tolist()
    again = attention.readings(row, order=2, vocab=4)
    assert again["on_full"][0] < 0.5 * again["on_full"][1]
