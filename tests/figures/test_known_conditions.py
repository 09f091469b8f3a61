"""Conditions of verdicts: told from the runs of the study, and not known where these do not separate."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest

from figures import known_conditions, pseudo_counts
from figures.known_conditions import Condition, largest_box, study_rows
from figures.verdict import Check, judged, sentence

CONDITIONS = {name: one for name, one in vars(known_conditions).items() if isinstance(one, Condition)}


@pytest.mark.parametrize("name", CONDITIONS)
def test_every_condition_separates_in_the_shipped_table(name):
    """If this fails, the figures that name it say that the condition is not known: look at the table first."""
    one = CONDITIONS[name]
    (met, asked), (other, others) = one.counts()
    assert min(asked, others) >= 3
    where = one.where()
    assert where is not None
    assert where.any_of == one.any_of
    assert where.evidence.startswith(f"{one.claim}: {met} of {asked} runs with it, {other} of {others} without")
    for prior, bos in one.settings:
        assert f"{prior} prior {'with' if bos else 'without'} BOS" in where.evidence
    everywhere = [row for row in study_rows() if not one.settings or (row["prior"], row["bos"]) in one.settings]
    assert bool(one.scope) == (not all(map(one.among, everywhere)))  # cells that were left out are said
    assert one.scope in where.evidence


@pytest.mark.parametrize("name", CONDITIONS)
def test_a_condition_that_does_not_separate_is_not_known(name):
    """The control: the same claim met everywhere, or nowhere, or not asked."""
    for counts in ([3, 3], [0, 3], [0, 0]):
        rows = copy.deepcopy(list(study_rows()))
        for row in rows:
            row["claims"][CONDITIONS[name].claim] = list(counts)
        one = replace(CONDITIONS[name], rows=rows)
        assert one.where() is None
        found = judged({"a": True, "b": Check(passed=False, found="0.5", where=one)}, measured="0.5")
        assert sentence(vars(found)) == "does not hold"
        assert (found.required, found.found) == ("b", "0.5")


def test_no_condition_is_true_of_a_claim_by_definition():
    """That frozen heads are sharp, or that a readout which reads votes alone knows nothing else, is no finding."""
    for one in CONDITIONS.values():
        assert one.claim != "copy heads are sharp"
        assert (one.claim, one.any_of) != ("match head knows all", (known_conditions.FIXED,))


RUNS = [{"subject": {"seed": seed, "length": 32}, "law": seed != 2} for seed in range(4)]


def where_heads_copy(runs, copies):
    rows = [{"checkpoint": "", "subject": {"length": 32, "seed": seed}, "success": one} for seed, one in copies.items()]
    return known_conditions.where_heads_copy(
        runs, rows, met=lambda run: run["law"], name=lambda run: f"seed {run['subject']['seed']}"
    )


def test_runs_are_told_apart_by_what_their_copy_heads_do():
    found = where_heads_copy(RUNS, {0: True, 1: True, 2: False, 3: True})
    assert found.any_of == (known_conditions.HEADS_COPY,)
    assert found.evidence == "3 of 3 runs with it, 0 of 1 without (seed 2)"


@pytest.mark.parametrize(
    "copies",
    [
        {0: True, 1: True, 2: True, 3: True},  # the run that fails copies as the others do
        {0: False, 1: True, 2: True, 3: True},  # another one does not
        {0: True, 1: True, 2: False},  # one run was not asked
    ],
)
def test_copy_heads_that_do_not_tell_the_runs_apart_are_no_condition(copies):
    assert where_heads_copy(RUNS, copies) is None


def test_a_claim_that_the_study_does_not_have_is_an_error():
    with pytest.raises(ValueError, match="no claim 'hope'"):
        replace(known_conditions.LAW_RECOVERS, claim="hope").where()


def setting(order, vocab, length, *, ratio=1.0, variation=0.3):
    return {
        "order": order, "vocab": vocab, "length": length, "alpha": 1.0, "beta": 2.0, "mean": ratio, "stderr": 0.01,
        "ratio": ratio, "sd": variation * ratio, "variation": variation, "low": 0.5, "high": 1.5, "within_two": 0.9,
        "n": 100,
    }  # fmt: skip


def test_the_bounds_of_the_pseudo_counts_follow_from_their_settings():
    grid = [(order, vocab, length) for order in (1, 2, 3) for vocab in (2, 5) for length in (32, 64, 128)]
    rows = [
        setting(
            order, vocab, length, variation=0.6 if length < 64 or vocab < 5 else 0.4, ratio=1.3 if order > 2 else 1.0
        )
        for order, vocab, length in grid
    ]
    found = pseudo_counts.verdict({"pseudo_counts": rows})
    assert sentence(vars(found)) == "holds where k <= 2 and T >= 64 and |V| >= 5"
    assert [check["evidence"] for check in found.checks] == [  # each of its own requirement
        "12 of 12 settings with it, 0 of 6 elsewhere",
        "6 of 6 settings with it, 0 of 12 elsewhere",
    ]
    assert found.required.startswith("in every setting the mean is within 25% of alpha; in every setting the spread")
    assert found.found == "mean in 12 of 18 settings; spread in 6 of 18 settings"
    calm = [setting(*place) for place in grid]
    assert pseudo_counts.verdict({"pseudo_counts": calm}).word == "holds"
    bad = [setting(*place, variation=0.9, ratio=2.0) for place in grid]
    assert pseudo_counts.verdict({"pseudo_counts": bad}).word == "does not hold"
    wide = [setting(*place, variation=0.9) for place in grid]
    assert pseudo_counts.verdict({"pseudo_counts": wide}).word == "does not hold"


def test_no_box_where_none_holds_or_all_do():
    rows = [{"length": length} for length in (1, 2, 3)]
    assert largest_box(rows, lambda row: True, {"length": "T >="}) is None
    assert largest_box(rows, lambda row: False, {"length": "T >="}) is None
    assert largest_box(rows, lambda row: row["length"] == 2, {"length": "T >="}) is None
    assert str(largest_box(rows, lambda row: row["length"] < 3, {"length": "T <="})) == "T <= 2"
