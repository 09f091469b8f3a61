"""The theory check: every claim holds, and every verdict fails when what it checks is broken."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math

import numpy as np
import pytest
import torch

from analyses.running import cli
from analyses.studies import theory
from analyses.studies.theorems import (
    adaptive_beta,
    backoff,
    blocks,
    definitions,
    estimators,
    gradient,
    invariance,
    priors,
)
from analyses.studies.theorems.result import Claim, judge

LABELS = {  # what the check has to cover
    "prop:transformer_estimator",
    "prop:add_constant",
    "lemma:transformer_estimator",
    "corollary:mixture",
    "eq:jelinek_mercer",
    "eq:transformer_gradient",
    "lemma:first_order",
    "eq:approx_gradient_condition",
    "lemma:optimal_beta",
    "sec:interpretation",
    "eq:label_symmetry",
    "theorem:invariance",
    "lemma:permutation_invariant_matrix",
    "corollary:inductive",
}


def check(name: str, *, batch: int = 2) -> Claim:
    module, function, _ = next(entry for entry in theory.CLAIMS if entry[1] == name)
    return getattr(__import__(f"analyses.studies.theorems.{module}", fromlist=[function]), function)(0, batch)


def test_all_labels_are_covered():
    assert {label for _, _, label in theory.CLAIMS} == LABELS


@pytest.mark.parametrize(("name", "label"), [(function, label) for _, function, label in theory.CLAIMS])
def test_the_claim_holds(name, label):
    claim = check(name)
    assert claim.label == label
    assert claim.holds, claim.note
    assert claim.cases >= 4
    assert 0 <= claim.error <= claim.tolerance
    assert "failed" not in claim.note


# Each entry breaks one thing; the claim must then fail. `broken` gets the original.
def softer(original):
    return lambda tokens, *, beta, **more: original(tokens, beta=[0.05 * weight for weight in beta], **more)


def shifted(original):
    return lambda tokens, *, beta, **more: original(tokens, beta=[weight + 1e-3 for weight in beta], **more)


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


def off_for(method):
    def beta_for_add_alpha(original):
        return lambda **settings: original(**settings) + 0.05 * (settings.get("method", "closed_form") in method)

    return beta_for_add_alpha


def biased_sampler(original):
    def sample(self, *, batch, length, seed, method):
        chains = original(self, batch=batch, length=length, seed=seed, method=method)
        rare = torch.from_numpy(np.random.default_rng(seed).random(tuple(chains.tokens.shape)) < 0.05)
        return dataclasses.replace(chains, tokens=torch.where(rare, 0, chains.tokens))

    return sample


def favours_zero(original):
    return lambda row, prior: original(row, prior) * (1.0 + 1e-6 * (row[0] == 0))


def only_itself(_):
    return lambda tokens, targets, *, vocab: (tokens, targets)


def unchanged(_):
    return lambda values, sigma: values


def standing_still(_):
    return lambda *arguments, **settings: None


def lopsided_start(original):
    def symmetric_start(model, rng):
        original(model, rng)
        with torch.no_grad():
            model.unembed.W_U[0, 0] += 1e-6

    return symmetric_start


def always_symmetric(_):
    return lambda values, vocab: 0.0


def rotations_only(original):
    def averaging(permutations):
        size = len(permutations[0])
        rotations = [tuple(np.roll(range(size), shift)) for shift in range(size)]
        return original([names for names in map(tuple, permutations) if names in rotations])

    return averaging


def everything_averages(original):
    def averaging(permutations):
        return original(list(itertools.permutations(range(len(permutations[0])))))

    return averaging


def transposed(original):
    return lambda tokens, *, beta, **more: original(tokens, beta=np.asarray(beta).T, **more)


def off_the_means(original):
    return lambda mean_x, mean_y, c: original(mean_x, mean_y + 1e-3, c)


def one_lag_short(original):
    return lambda row, *, order, mask, m: original(row, order=order, mask=mask[1:], m=m)


BREAKS = [
    ("first_order", gradient, "ratio_at_means", off_the_means),
    ("transformer_gradient", gradient, "construct", constructed_otherwise),
    ("transformer_gradient", gradient, "soft_matching", shifted),
    ("transformer_gradient", definitions, "cumulative_count", one_lag_short),
    ("approx_condition", gradient, "sequence_probability", favours_zero),
    ("approx_condition", gradient, "beta_for_add_alpha", off_for(["line_search"])),
    ("transformer_estimator", estimators, "construct", constructed_otherwise),
    ("transformer_estimator", estimators, "soft_matching", shifted),
    ("add_constant", estimators, "soft_matching", heavier_bos),
    ("add_constant", estimators, "construct", constructed_otherwise),
    ("sub_ngrams", estimators, "soft_matching", shifted),
    ("mixture", estimators, "order_mixture", flat_weights),
    ("mixture", estimators, "soft_matching", shifted),
    ("jelinek_mercer", estimators, "soft_matching", shifted),
    ("closed_form", adaptive_beta, "beta_for_add_alpha", off_for(["closed_form"])),
    ("three_methods", adaptive_beta, "beta_for_add_alpha", off_for(["polynomial"])),
    ("three_methods", adaptive_beta, "beta_for_add_alpha", off_for(["polynomial", "line_search"])),
    ("katz_where_covered", backoff, "soft_matching", softer),
    ("hard_limit", backoff, "soft_matching", softer),
    ("hard_limit", backoff, "smallest_counterexample", standing_still),
    ("lexicographic_limit", backoff, "soft_matching", softer),
    ("lexicographic_limit", backoff, "smallest_counterexample", standing_still),
    ("lexicographic_limit", backoff, "closest_to_back_off", lambda _: lambda **settings: 0.0),
    ("independent_prior", priors.IndependentDirichlet, "sample", biased_sampler),
    ("independent_prior", priors, "sequence_probability", favours_zero),
    ("hierarchical_prior", priors.HierarchicalDirichlet, "sample", biased_sampler),
    ("hierarchical_prior", priors, "sequence_probability", favours_zero),
    ("gradient_equivariance", invariance, "symmetrised", only_itself),
    ("gradient_equivariance", invariance, "relabelled", unchanged),
    ("invariant_descent", invariance, "symmetrised", only_itself),
    ("invariant_descent", invariance, "symmetric_start", lopsided_start),
    ("invariant_descent", invariance, "descend", standing_still),
    ("invariant_descent", invariance, "asymmetry", always_symmetric),
    ("invariant_matrix", blocks, "averaging", rotations_only),
    ("invariant_matrix", blocks, "averaging", everything_averages),
    ("inductive", blocks, "soft_matching_pairs", transposed),
]


def test_every_verdict_is_broken_once():
    assert {name for name, *_ in BREAKS} == {function for _, function, _ in theory.CLAIMS}


@pytest.mark.parametrize(("name", "owner", "attribute", "broken"), BREAKS)
def test_the_verdict_fails_when_its_subject_is_broken(name, owner, attribute, broken, monkeypatch):
    if owner is invariance:  # one small model is enough, and quick
        small = invariance.small_models()[2:3]
        monkeypatch.setattr(invariance, "small_models", lambda: small)
        assert check(name).holds
    monkeypatch.setattr(owner, attribute, broken(getattr(owner, attribute)))
    assert not check(name).holds


def test_judge_fails_on_nan_on_no_cases_and_on_a_broken_control():
    def verdict(**changes) -> Claim:
        return judge(**{"label": "l", "claim": "c", "cases": 1, "error": 0.0, "tolerance": 1e-9, **changes})

    assert verdict().holds
    assert not verdict(error=math.nan).holds
    assert not verdict(error=1e-8).holds
    assert not verdict(cases=0).holds
    assert not verdict(controls={"something else": False}).holds
    assert verdict(controls={"something else": False}).note == "failed: something else"


def test_definitions_by_hand():
    row = [0, 1, 0, 1]  # k = 2: candidates 2 (after 0 1: full match) and 3 (after 1 0: none)
    assert definitions.matching_lags(row, order=2, key=2) == {1, 2}
    assert definitions.matching_lags(row, order=2, key=3) == set()
    weight = math.exp(3.0)
    assert definitions.estimator(row, vocab=2, beta=[2.0, 1.0], kappa=None) == pytest.approx(
        [weight / (weight + 1), 1 / (weight + 1)]
    )
    assert definitions.estimator(row, vocab=2, beta=[0.0, 0.0], kappa=math.log(2)) == pytest.approx([0.5, 0.5])
    assert definitions.back_off(row, vocab=2, order=2) == [1.0, 0.0]
    # The last token, 2, was never followed: Katz takes the unigram of the candidates, the limit the match at lag 2.
    assert definitions.back_off([0, 1, 0, 2], vocab=3, order=2) == [0.5, 0.0, 0.5]
    assert definitions.best_matches([0, 1, 0, 2], vocab=3, weights=[1, 1]) == [1.0, 0.0, 0.0]
    assert len(list(definitions.patterns(length=5, vocab=5))) == 52  # Bell's number


def test_the_terms_of_the_gradient_by_hand():
    row = [0, 1, 0, 1]  # k = 2: key 2 holds 0 and matches in full, key 3 holds 1 and matches nowhere
    counts = gradient.counts_of(row, order=2, vocab=2)
    assert counts == {(): [1, 1], (1,): [1, 0], (2,): [1, 0], (1, 2): [1, 0]}
    terms = gradient.terms_of(counts, order=2, gamma=2.0)
    # B(0) = 1/4 + 1/2 + 1/2, B(1) = 1/4; A(0) = -2/8 - 1/4 - 1/4, A(1) = -2/8.
    assert terms.b.tolist() == [1.25, 0.25]
    assert terms.a.tolist() == [-0.75, -0.25]
    assert terms.full.tolist() == [1.0, 0.0]
    law = definitions.cumulative_estimator(row, vocab=2, order=2, gamma=2.0)
    assert (terms.full + terms.b) / (terms.full + terms.b).sum() == pytest.approx(law)
    assert terms.slope(0) == pytest.approx(0.75 / 2.25 - 1.0 / 2.5)


def test_counterexamples_to_katz_are_what_the_note_says():
    row, limit, katz = backoff.smallest_counterexample(weights=(1, 1), last_token_seen=True)
    assert definitions.back_off(row, vocab=3, order=2) == katz
    assert definitions.best_matches(row, vocab=3, weights=(1, 1)) == pytest.approx(limit)
    assert definitions.gap(limit, katz) > 0.1


def test_the_urn_law_of_short_sequences_by_hand():
    prior = priors.IndependentDirichlet(order=1, vocab=2, alpha=1.0)
    # 0 -> 0 with probability 1/2, and then, 0 having been followed by 0 once, again with 2/3.
    assert priors.sequence_probability([0, 0, 0], prior) == pytest.approx(0.5 * 0.5 * 2 / 3)
    hierarchy = priors.HierarchicalDirichlet(order=1, vocab=2, eta=(1e9,), eta0=1.0)
    # Coupling without bound: all contexts share one law, so the context does not matter.
    assert priors.sequence_probability([0, 1, 0, 0], hierarchy) == pytest.approx(
        priors.sequence_probability([1, 1, 0, 0], hierarchy), rel=1e-6
    )


def test_command(monkeypatch, capsys):
    monkeypatch.setattr(theory, "CLAIMS", [entry for entry in theory.CLAIMS if entry[0] == "blocks"])
    assert cli.main(["theory", "--json", "--batch", "2"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["analysis"] == "theory"
    assert [row["label"] for row in document["rows"]] == ["lemma:permutation_invariant_matrix", "corollary:inductive"]
    for row in document["rows"]:
        assert {"label", "claim", "cases", "error", "tolerance", "holds", "note"} == set(row)
        assert row["holds"] is True
    monkeypatch.setattr(blocks, "averaging", lambda permutations: np.eye(len(permutations[0]) ** 2))
    assert cli.main(["theory", "--only", "lemma", "--batch", "2"]) == 1
    captured = capsys.readouterr()
    assert "0 of 1 claims hold." in captured.out
    assert captured.err.startswith("failed: lemma:permutation_invariant_matrix")
    with pytest.raises(SystemExit) as stop:
        cli.main(["theory", "--only", "nothing"])
    assert stop.value.code == 2
    assert "no claim's label contains 'nothing'" in capsys.readouterr().err
