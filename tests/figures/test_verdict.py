"""A verdict says which part of a claim holds, and where; a condition that implies another absorbs it."""

from __future__ import annotations

import pytest

from figures.verdict import BRIEF, Check, Verdict, Where, judged, named, strongest

FROZEN = Where(any_of=("copies are frozen",), evidence="24 of 24 runs with it, 1 of 24 without")
EITHER = Where(any_of=("it is read from the scores", "copies are frozen"))
VOTES = Where(any_of=("the readout adds votes",))


def said(**checks: Check | bool) -> tuple[str, str]:
    found = judged(checks, measured="0.5")
    return found.word, found.says


@pytest.mark.parametrize("order", [(FROZEN, EITHER), (EITHER, FROZEN), (EITHER, FROZEN, EITHER, FROZEN)])
def test_a_condition_that_implies_another_absorbs_it(order: tuple[Where, ...]) -> None:
    assert strongest(order) == (FROZEN,)
    checks = {str(place): Check(passed=False, where=one) for place, one in enumerate(order)}
    assert judged(checks, measured="0.5").says == "holds where copies are frozen"


def test_conditions_that_do_not_imply_each_other_are_both_needed() -> None:
    assert strongest([FROZEN, VOTES]) == (FROZEN, VOTES)
    assert said(a=Check(passed=False, where=FROZEN), b=Check(passed=False, where=VOTES)) == (
        "holds where",
        "holds where copies are frozen and the readout adds votes",
    )


def test_the_tighter_of_two_bounds_is_kept() -> None:
    bounds = [Where(any_of=(text,)) for text in ("T >= 32", "T >= 128", "T >= 64", "k <= 3", "k <= 2", "|V| >= 5")]
    assert [str(one) for one in strongest(bounds)] == ["T >= 128", "k <= 2", "|V| >= 5"]
    assert not Where(any_of=("T >= 64",)).implies(Where(any_of=("T <= 32",)))
    assert not Where(any_of=("T >= 64", "k = 1")).implies(Where(any_of=("T >= 32",)))


def test_each_part_is_told_with_its_own_condition() -> None:
    scores, blocks = "in the scores", "in the weight blocks"
    met, unmet = Check(passed=True, part=scores), Check(passed=False, where=FROZEN, part=blocks)
    assert said(a=met, b=unmet) == ("holds where", "holds in the scores; in the weight blocks where copies are frozen")
    assert said(a=met, b=Check(passed=False, part=blocks)) == (
        "does not hold",
        "does not hold in the weight blocks; holds in the scores",
    )
    three = Check(passed=False, part="in the circuits")
    assert said(a=met, b=unmet, c=three) == (
        "does not hold",
        "does not hold in the circuits; holds in the scores; in the weight blocks where copies are frozen",
    )
    # A part fails with one of its requirements, and without a condition for each of those that fail it has none.
    assert said(a=met, b=unmet, c=Check(passed=True, part=blocks))[1].endswith("where copies are frozen")
    assert said(a=met, b=unmet, c=Check(passed=False, part=blocks))[0] == "does not hold"


def test_a_claim_all_of_whose_parts_need_one_condition_is_told_in_short() -> None:
    checks = {part: Check(passed=False, where=FROZEN, part=f"in {part}") for part in "ab"}
    assert judged(checks, measured="0.5").says == "holds where copies are frozen"
    assert said(a=Check(passed=True, part="in a"), b=Check(passed=True, part="in b")) == ("holds", "holds")
    assert said(a=False, b=False) == ("does not hold", "does not hold")


def test_that_no_requirement_is_met_does_not_hide_a_known_condition() -> None:
    """0 of 2 requirements are met everywhere, and both where the condition is."""
    found = judged({name: Check(passed=False, where="T >= 128") for name in ("mean", "spread")}, measured="0.5")
    assert (found.word, found.says) == ("holds where", "holds where T >= 128")
    assert [check["where"] for check in found.checks] == ["T >= 128", "T >= 128"]


def test_the_evidence_stands_beside_the_requirement_and_not_in_the_sentence() -> None:
    found = judged({"a": True, "b": Check(passed=False, where=FROZEN)}, measured="0.5")
    assert found.says == "holds where copies are frozen"
    assert [(check["where"], check["evidence"]) for check in found.checks] == [("", ""), (str(FROZEN), FROZEN.evidence)]
    assert len(found.says) <= BRIEF


def test_a_note_is_said_with_its_condition_and_does_not_keep_others_from_absorbing_it() -> None:
    noted = Where(any_of=("T >= 32",), note="11 of 12 runs")
    assert said(a=Check(passed=False, where=noted)) == ("holds where", "holds where T >= 32 (11 of 12 runs)")
    assert strongest([noted, Where(any_of=("T >= 64",))]) == (Where(any_of=("T >= 64",)),)


def test_prepositions_are_said_once() -> None:
    assert named(["in a"]) == "in a"
    assert named(["in a", "in b", "in c"]) == "in a, b and c"
    assert named(["with BOS", "for the rest"]) == "with BOS and for the rest"


def test_a_sentence_goes_with_its_word() -> None:
    with pytest.raises(ValueError, match="goes with its word"):
        Verdict(word="holds where", measured="0.5")
    with pytest.raises(ValueError, match="goes with its word"):
        Verdict(word="holds", measured="0.5", says="does not hold in a")
    with pytest.raises(ValueError, match="goes with its word"):
        Verdict(word="holds", measured="0.5", says="holds where T >= 64")
    with pytest.raises(ValueError, match="one of holds"):
        Verdict(word="holds in part", measured="0.5")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="needs words"):
        Where(any_of=("",))
