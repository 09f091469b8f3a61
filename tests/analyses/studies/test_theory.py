"""The theory check: every claim holds, and every verdict fails when what it checks is broken."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
import torch

from analyses.running import cli
from analyses.studies import theory
from analyses.studies.theorems import cases, estimators, gradient, symmetry
from analyses.studies.theorems.cases import Found

LABELS = {  # what the check has to cover
    "prop:transformer_estimator", "prop:add_constant", "lemma:transformer_estimator", "corollary:mixture",
    "eq:jelinek_mercer", "eq:transformer_gradient", "lemma:first_order", "eq:approx_gradient_condition",
    "lemma:optimal_beta", "sec:interpretation", "eq:label_symmetry", "theorem:invariance",
    "lemma:permutation_invariant_matrix", "corollary:inductive",
}  # fmt: skip
BY_NAME = {claim[0].partition(".")[2]: claim for claim in theory.CLAIMS}


def check(name):
    return theory.checked(BY_NAME[name], seed=0, batch=2)


def test_all_labels_are_covered():
    assert {label for _, label, _ in theory.CLAIMS} == LABELS


@pytest.mark.parametrize("name", BY_NAME)
def test_the_claim_holds(name):
    row = check(name)
    assert row["holds"], row["note"]
    assert row["cases"] >= 4
    assert 0 <= row["error"] <= row["tolerance"]
    assert "failed" not in row["note"]


# What breaks one thing each, given the original.
def with_beta(change):
    return lambda original: lambda tokens, *, beta, **more: original(tokens, beta=change(np.asarray(beta)), **more)


shifted, softer = with_beta(lambda beta: beta + 1e-3), with_beta(lambda beta: 0.05 * beta)
transposed = with_beta(lambda beta: beta.T)


def heavier_bos(original):
    return lambda tokens, *, kappa, **more: original(tokens, kappa=kappa + 1e-3, **more)


def constructed_otherwise(original):
    def construct(**settings):
        model = original(**settings)
        with torch.no_grad():
            model.blocks[1].attn.W_Q[0, 0, -1] += 1e-3
        return model

    return construct


def flat_weights(original):
    def order_mixture(*arguments, **settings):
        parts = original(*arguments, **settings)
        weights = torch.full_like(parts.order_weights, 1 / parts.order_weights.shape[1])
        return dataclasses.replace(parts, order_weights=weights)

    return order_mixture


def off_for(*methods):
    return lambda original: (
        lambda **settings: original(**settings) + 0.05 * (settings.get("method", "closed_form") in methods)
    )


def biased_sampler(original):
    def sample(self, *, batch, length, seed, method):
        chains = original(self, batch=batch, length=length, seed=seed, method=method)
        rare = torch.from_numpy(np.random.default_rng(seed).random(tuple(chains.tokens.shape)) < 0.05)
        return dataclasses.replace(chains, tokens=torch.where(rare, 0, chains.tokens))

    return sample


def favours_zero(original):
    return lambda row, prior: original(row, prior) * (1.0 + 1e-6 * (row[0] == 0))


def lopsided_start(original):
    def symmetric_start(model, rng):
        original(model, rng)
        with torch.no_grad():
            model.unembed.W_U[0, 0] += 1e-6

    return symmetric_start


def rotations_only(original):
    def averaging(permutations):
        size = len(permutations[0])
        rotations = [tuple(np.roll(range(size), shift)) for shift in range(size)]
        return original([names for names in map(tuple, permutations) if names in rotations])

    return averaging


def one_more_candidate(original):
    def cumulative_counts(rows, *, order, vocab):
        return original(rows, order=order, vocab=vocab) + (torch.arange(1 << order) == 0)[:, None]

    return cumulative_counts


def gives(value):
    return lambda original: lambda *arguments, **settings: value


BREAKS = [
    ("first_order", gradient, "ratio_at_means", lambda original: lambda x, y, c: original(x, y + 1e-3, c)),
    ("transformer_gradient", gradient, "construct", constructed_otherwise),
    ("transformer_gradient", gradient, "cumulative_counts", one_more_candidate),
    ("approx_condition", gradient, "sequence_probability", favours_zero),
    ("approx_condition", gradient, "beta_for_add_alpha", off_for("line_search")),
    ("transformer_estimator", estimators, "construct", constructed_otherwise),
    ("transformer_estimator", estimators, "soft_matching", shifted),
    ("add_constant", estimators, "soft_matching", heavier_bos),
    ("add_constant", estimators, "construct", constructed_otherwise),
    ("sub_ngrams", estimators, "soft_matching", shifted),
    ("mixture", estimators, "order_mixture", flat_weights),
    ("jelinek_mercer", estimators, "soft_matching", shifted),
    ("closed_form", gradient, "beta_for_add_alpha", off_for("closed_form")),
    ("three_methods", gradient, "beta_for_add_alpha", off_for("polynomial")),
    ("three_methods", gradient, "beta_for_add_alpha", off_for("polynomial", "line_search")),
    ("katz_where_covered", estimators, "soft_matching", softer),
    ("hard_limit", estimators, "soft_matching", softer),
    ("label_symmetry", symmetry.IndependentDirichlet, "sample", biased_sampler),
    ("label_symmetry", symmetry.HierarchicalDirichlet, "sample", biased_sampler),
    ("label_symmetry", symmetry, "sequence_probability", favours_zero),
    ("invariant_descent", symmetry, "symmetrised", lambda _: lambda tokens, targets, *, vocab: (tokens, targets)),
    ("invariant_descent", symmetry, "symmetric_start", lopsided_start),
    ("invariant_descent", symmetry, "descend", gives(None)),
    ("invariant_descent", symmetry, "asymmetry", gives(0.0)),
    ("invariant_matrix", symmetry, "averaging", rotations_only),
    ("inductive", symmetry, "soft_matching_pairs", transposed),
]


def test_every_verdict_is_broken_once():
    assert {name for name, *_ in BREAKS} == set(BY_NAME)


@pytest.mark.parametrize(("name", "owner", "attribute", "broken"), BREAKS)
def test_the_verdict_fails_when_its_subject_is_broken(name, owner, attribute, broken, monkeypatch):
    if owner is symmetry:  # one small model is enough, and quick
        small = symmetry.small_models()[2:3]
        monkeypatch.setattr(symmetry, "small_models", lambda: small)
        assert check(name)["holds"]
    monkeypatch.setattr(owner, attribute, broken(getattr(owner, attribute)))
    assert not check(name)["holds"]


@pytest.mark.parametrize(
    ("found", "holds"),
    [
        (Found(0.0, 1), True),
        (Found(math.nan, 1), False),
        (Found(1e-8, 1), False),
        (Found(0.0, 0), False),
        (Found(0.0, 1, controls={"something else": False}), False),
    ],
)
def test_nan_no_case_and_a_broken_control_fail(found, holds, monkeypatch):
    monkeypatch.setattr(estimators, "mixture", lambda seed, batch: found)
    row = check("mixture")
    assert row["holds"] is holds
    assert row["note"] == {True: "failed: something else"}.get(bool(found.controls), row["note"])


def test_katz_and_the_best_matches_by_hand():
    # After 0 1 0 1 the full context was followed by 0. After 0 1 0 2 the last token, 2, was never followed: Katz takes
    # the unigram of the candidates, the limit the match at lag 2.
    rows = torch.tensor([[0, 1, 0, 1], [0, 1, 0, 2]])
    assert cases.back_off(rows, order=2, vocab=3).tolist() == [[1.0, 0.0, 0.0], [0.5, 0.0, 0.5]]
    assert cases.best_matches(rows, order=2, vocab=3).tolist() == [[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
    assert len(list(cases.patterns(length=5, vocab=5))) == 52  # Bell's number


def test_the_terms_of_the_gradient_by_hand():
    # k = 2, after 0 1 0 1: key 2 holds 0 and matches in full, key 3 holds 1 and matches nowhere
    terms = gradient.terms_of(np.array([[1, 1], [1, 0], [1, 0], [1, 0]]), gamma=2.0)
    # B(0) = 1/4 + 1/2 + 1/2, B(1) = 1/4; A(0) = -2/8 - 1/4 - 1/4, A(1) = -2/8.
    assert terms.b.tolist() == [1.25, 0.25]
    assert terms.a.tolist() == [-0.75, -0.25]
    assert terms.full.tolist() == [1.0, 0.0]
    assert terms.slopes()[0] == pytest.approx(0.75 / 2.25 - 1.0 / 2.5)


def test_the_urn_law_of_short_sequences_by_hand():
    prior = symmetry.IndependentDirichlet(order=1, vocab=2, alpha=1.0)
    # 0 -> 0 with probability 1/2, and then, 0 having been followed by 0 once, again with 2/3.
    assert symmetry.sequence_probability([0, 0, 0], prior) == pytest.approx(0.5 * 0.5 * 2 / 3)
    hierarchy = symmetry.HierarchicalDirichlet(order=1, vocab=2, eta=(1e9,), eta0=1.0)
    # Coupling without bound: all contexts share one law, so the context does not matter.
    assert symmetry.sequence_probability([0, 1, 0, 0], hierarchy) == pytest.approx(
        symmetry.sequence_probability([1, 1, 0, 0], hierarchy), rel=1e-6
    )


def test_command(monkeypatch, capsys):
    monkeypatch.setattr(theory, "CLAIMS", [BY_NAME["invariant_matrix"], BY_NAME["inductive"]])
    assert cli.main(["theory", "--json", "--batch", "2"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [row["label"] for row in document["rows"]] == ["lemma:permutation_invariant_matrix", "corollary:inductive"]
    for row in document["rows"]:
        assert {"label", "claim", "cases", "error", "tolerance", "holds", "note"} == set(row)
    monkeypatch.setattr(symmetry, "averaging", lambda permutations: np.eye(len(permutations[0]) ** 2))
    assert cli.main(["theory", "--only", "lemma", "--batch", "2"]) == 1
    captured = capsys.readouterr()
    assert "0 of 1 claims hold." in captured.out
    assert captured.err.startswith("failed: lemma:permutation_invariant_matrix")
    assert cli.main(["theory", "--only", "nothing"]) == 2
