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
    assert one.decides()
    scope = "".join(f", {prior} prior {'with' if bos else 'without'} BOS" for prior, bos in one.settings[:1])
    assert str(one).startswith(f"{one.words} ({met} of {asked} runs of the study{scope}")
    assert str(one).endswith(f"; {other} of {others} without)")


@pytest.mark.parametrize("name", CONDITIONS)
def test_a_condition_that_does_not_separate_is_not_known(name):
    """The control: the same claim met everywhere, or nowhere, or not asked."""
    for counts in ([3, 3], [0, 3], [0, 0]):
        rows = copy.deepcopy(list(study_rows()))
        for row in rows:
            row["claims"][CONDITIONS[name].claim] = list(counts)
        one = replace(CONDITIONS[name], rows=rows)
        assert not one.decides()
        assert str(one) == ""
        found = judged({"a": True, "b": Check(passed=False, found="0.5", where=one)}, measured="0.5")
        assert sentence(vars(found)) == "does not hold, condition not known"
        assert (found.required, found.found) == ("b", "0.5")


def test_what_holds_anyway_must_hold():
    rows = copy.deepcopy(list(study_rows()))
    for row in rows:
        row["claims"]["beta_1 > beta_2 in scores"] = [0, 3]
    assert not replace(known_conditions.READ_FROM_SCORES, rows=rows).decides()


def test_a_claim_that_the_study_does_not_have_is_an_error():
    with pytest.raises(ValueError, match="no claim 'hope'"):
        str(replace(known_conditions.LAW_IN_SCORES, claim="hope"))


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
    assert sentence(vars(found)) == ("holds where T >= 64 and |V| >= 5 and k <= 2 (4 of 4 settings; 0 of 14 elsewhere)")
    assert found.required.startswith("the mean is within 25% of alpha; the spread")
    assert found.found == "mean not in 6 of 18 settings; spread not in 12 of 18 settings"
    calm = [setting(*place) for place in grid]
    assert pseudo_counts.verdict({"pseudo_counts": calm}).word == "holds"
    bad = [setting(*place, variation=0.9, ratio=2.0) for place in grid]
    assert pseudo_counts.verdict({"pseudo_counts": bad}).word == "does not hold here"
    wide = [setting(*place, variation=0.9) for place in grid]
    assert pseudo_counts.verdict({"pseudo_counts": wide}).word == "does not hold, condition not known"


def test_no_box_where_none_holds_or_all_do():
    rows = [{"length": length} for length in (1, 2, 3)]
    assert largest_box(rows, lambda row: True, {"length": "T >="}) == ""
    assert largest_box(rows, lambda row: False, {"length": "T >="}) == ""
    assert largest_box(rows, lambda row: row["length"] == 2, {"length": "T >="}) == ""
    assert largest_box(rows, lambda row: row["length"] < 3, {"length": "T <="}).startswith("T <= 2 (2 of 2")
