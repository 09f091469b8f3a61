"""Compares tables with what a claim needs, and says where it holds: the only module that judges.

A claim of the paper is judged from the paper's start, hard copies, where such runs are there, and by the paper's
protocol where one was trained by it; what was found from other starts is said beside it. A value within one standard
error of its bound decides nothing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from analyses.claims.quantities import LEAST_WITH, MOST_WITHOUT, QUANTITIES
from analyses.claims.readers import TO_COMPARE, word_of
from analyses.claims.records import Claim, Finding, Group, Need, Quantifier, Quantity, Row, State, Tables, Verdict
from analyses.claims.wording import (
    RULES,
    Outcome,
    basis,
    basis_in_words,
    beside,
    deciding_number,
    labelled,
    outcome_of,
    sentence,
    start_words,
    strongest,
)
from analyses.running.subject import place_of_start

STUDY = "conditions"
CELLS = ("frozen", "frozen_copies", "hard_start", "random_start")  # each frees one part more; others ask other things
SHARP_START = "the copy heads start sharp"
FEATURES: Mapping[str, Callable[[Row], bool]] = {
    "the copy heads are frozen": lambda run: "copies" in str(run["freeze"]).split(","),
    "the readout is fixed": lambda run: "readout" in str(run["freeze"]).split(","),
    SHARP_START: lambda run: run["cell"] != "random_start",
}
SEVERITY: tuple[State, ...] = ("unmet", "unsure", "measured", "met", "missing")


def judge(claim: Claim, tables: Tables) -> Verdict:
    """The claim's verdict on these tables."""
    needs = claim.needs
    if len({need.part for need in needs}) == 1:  # a part is said where there are several
        needs = tuple(replace(need, part="") for need in needs)
    findings = tuple(find(need, tables) for need in needs)
    if not claim.needs:
        return Verdict(claim=claim, word="not judged", says=claim.note, start="", number="", findings=())
    outcomes: dict[tuple[str, str], list[Outcome]] = {}
    for finding in findings:
        for group in basis(finding):
            key = (finding.need.part, group.family)
            outcomes.setdefault(key, []).append(outcome_of(finding, group))
    told = {key: strongest(mine) for key, mine in outcomes.items()}
    word, says = sentence(labelled(told))
    if claim.where and word == "holds":
        word, says = "holds where", f"holds where {claim.where}"
    groups = [group for finding in findings for group in basis(finding) if finding.need.by == "start"]
    trained = [group for group in groups if group.start and group.start not in RULES]
    trained = trained or [group for group in groups if group.state != "missing"]
    if any(group.state != "missing" for group in trained) and word != "not judged" and claim.topic != "setting":
        free = {id(group) for one in findings if "length" not in one.need.rows for group in one.groups}
        says += basis_in_words(trained, [group for group in trained if id(group) in free])
        says += "".join(f"; {words}" for words in beside(findings))
    return Verdict(
        claim=claim,
        word=word,
        says=says,
        start="/".join(dict.fromkeys(group.start for group in trained if group.start)),
        number=deciding_number(findings),
        findings=findings,
    )


def find(need: Need, tables: Tables) -> Finding:
    """What one need finds: a group for each family and start, and a condition where none of them meets it."""
    quantity = QUANTITIES[need.quantity]
    if need.table not in tables:
        why = f"there is no table {need.table}"
        return Finding(need=need, groups=(Group(family="", start="", state="missing", why=why),))
    table = study_runs(tables[need.table]) if need.table == STUDY else tables[need.table]
    every = select(table, {name: word for name, word in need.rows.items() if name != "length"})
    rows = by_protocol(select(every, {"length": need.rows["length"]}) if "length" in need.rows else every)
    kinds: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        kinds.setdefault((str(word_of(row, "family") or ""), str(word_of(row, need.by) or "")), []).append(row)
    groups = [
        group
        for (family, start), mine in kinds.items()
        if (group := _group(mine, quantity, need, tables, family, start)) is not None
    ]
    groups += _missing(need, every, groups)
    found = Finding(need=need, groups=tuple(sorted(groups, key=lambda group: place_of_start(group.start))))
    if all(group.state != "unmet" or group.where for group in basis(found)):
        return found
    sharp = any(group.start == "hard" for group in basis(found) if group.state == "unmet")
    condition, evidence = study_condition(need, quantity, tables, given={SHARP_START} if sharp else set())
    return Finding(need=need, groups=found.groups, condition=condition, evidence=evidence)


def select(rows: Iterable[Row], words: Mapping[str, Any]) -> list[Row]:
    """The rows that have these words; a tuple stands for any of its values."""
    return [
        row
        for row in rows
        if all(
            (found in word) if isinstance(word, tuple) else found == word
            for name, word in words.items()
            for found in [word_of(row, name)]
        )
    ]


def by_protocol(rows: Sequence[Row]) -> list[Row]:
    """Of each kind of run those of the paper's protocol, where there are any; runs made to compare only where alone."""
    kinds: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        kind = tuple(str(word_of(row, name)) for name in ("family", "prior", "bos", "length", "start"))
        kinds.setdefault(kind, []).append(row)
    kept = []
    for mine in kinds.values():
        paper = [row for row in mine if word_of(row, "protocol") == "paper"]
        kept += paper or [row for row in mine if word_of(row, "protocol") not in TO_COMPARE] or mine
    return kept


def study_condition(need: Need, quantity: Quantity, tables: Tables, *, given: Container[str] = ()) -> tuple[str, str]:
    """The condition that decides the same need in the runs of the study `conditions`, and the counts; empty if none.

    The study's runs are disentangled models; those with the readout of the paper's are asked. What is `given` in the
    runs that do not meet the need cannot be the condition.
    """
    read = quantity.read.get("conditions")
    if read is None or need.table == STUDY:
        return "", ""
    words = {name: need.rows[name] for name in ("prior", "bos") if name in need.rows}
    runs = [run for run in select(study_runs(tables.get(STUDY, ())), words) if run["cell"] in CELLS]
    runs = [run for run in runs if run["readout"] == "probability"]
    states = [(run, state_of(found, quantity) == "met") for run in runs if (found := read(run, tables)) is not None]
    asked = [name for name in FEATURES if name not in given]
    for names in [*((name,) for name in asked), *itertools.combinations(asked, 2)]:
        mine = [met for run, met in states if all(FEATURES[name](run) for name in names)]
        rest = [met for run, met in states if not all(FEATURES[name](run) for name in names)]
        if mine and rest and sum(mine) >= LEAST_WITH * len(mine) and sum(rest) <= MOST_WITHOUT * len(rest):
            counts = f"{sum(mine)} of {len(mine)} runs with it, {sum(rest)} of {len(rest)} without"
            return " and ".join(names), f"{counts} (study `conditions`)"
    return "", ""


def study_runs(rows: Iterable[Row]) -> list[Row]:
    """The annealed runs of the study, each with the words of its cell."""
    return [
        {**{name: word for name, word in row.items() if name != "runs"}, **run}
        for row in rows
        if row["protocol"] == "annealed"
        for run in row["runs"]
    ]


def state_of(found: tuple[float, float], quantity: Quantity) -> State:
    """Met or not; unsure within one standard error of the bound.

    >>> sharp = QUANTITIES["copy_mass"]
    >>> [state_of(found, sharp) for found in ((0.9, 0.0), (0.7, 0.0), (0.79, 0.02), (0.81, 0.02))]
    ['met', 'unmet', 'unsure', 'unsure']
    """
    number, error = found
    if quantity.bound is None:
        return "measured"
    if error and abs(number - quantity.bound) <= error:
        return "unsure"
    margin = _margin(number, quantity)
    return "met" if margin >= 0 else "unmet"


def _group(
    rows: Sequence[Row], quantity: Quantity, need: Need, tables: Tables, family: str, start: str
) -> Group | None:
    """What the runs of one family from one start say; None where no run has the number."""
    read = quantity.read[need.table]
    cells: dict[int, list[tuple[float, float] | None]] = {}
    for row in rows:
        found = read(row, tables)
        if found is not None or row.get("success") is False or row.get("fit") is False:
            length = 0 if need.quantifier == "nine in ten" else word_of(row, "length") or 0
            cells.setdefault(length, []).append(found)
    if not cells:
        return None
    decide = {length: deciding(cells[length], quantity, need.quantifier) for length in sorted(cells)}
    states: dict[int, State] = {
        length: "unmet" if one is None else state_of(one, quantity) for length, one in decide.items()
    }
    runs = [found for mine in cells.values() for found in mine]
    worst = min(decide.values(), key=lambda one: -math.inf if one is None else _margin(one[0], quantity))
    state = min(states.values(), key=SEVERITY.index)
    return Group(
        family=family,
        start=start,
        state=state,
        where=length_bound(states) if state == "unmet" else "",
        runs=len(runs),
        met=sum(found is not None and state_of(found, quantity) == "met" for found in runs),
        worst=_written(worst, runs, quantity),
        margin=-math.inf if worst is None else _margin(worst[0], quantity),
        protocols=tuple(sorted({str(one) for row in rows if (one := word_of(row, "protocol"))})),
        lengths=tuple(length for length in states if length),
        why=_absent(need, rows),
    )


def deciding(
    runs: Sequence[tuple[float, float] | None], quantity: Quantity, quantifier: Quantifier
) -> tuple[float, float] | None:
    """The value that decides: the mean, or from best to worst the median, the ninth of ten, or the last.

    A run without the number is the worst. Means keep the mean error: runs are measured on the same sequences.

    >>> sharp = QUANTITIES["copy_mass"]
    >>> [deciding([(0.9, 0), (0.7, 0), (0.85, 0)], sharp, how)[0] for how in ("every", "most")]
    [0.7, 0.85]
    """
    if quantifier == "mean":
        known = [run for run in runs if run is not None]
        if len(known) < len(runs):
            return None
        return sum(run[0] for run in known) / len(known), sum(run[1] for run in known) / len(known)
    ordered = sorted(runs, key=lambda run: math.inf if run is None else -_margin(run[0], quantity))
    share = {"most": 0.5, "nine in ten": 0.9, "every": 1.0}[quantifier]
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def length_bound(states: Mapping[int, State]) -> str:
    """The bound of the length that separates what is met from what is not; empty where none does.

    >>> length_bound({32: "unmet", 64: "met", 128: "met"}), length_bound({32: "met", 64: "unmet", 128: "met"})
    ('T >= 64', '')
    """
    lengths = list(states)
    met = [states[length] == "met" for length in lengths]
    if not any(met) or all(met):
        return ""
    if met == sorted(met):
        return f"T >= {lengths[met.index(True)]}"
    if met == sorted(met, reverse=True):
        return f"T <= {lengths[met.index(False) - 1]}"
    return ""


def _margin(number: float, quantity: Quantity) -> float:
    """How far a value is on the right side of its bound; negative on the wrong one."""
    bound = 0.0 if quantity.bound is None else quantity.bound
    return (
        number - bound if quantity.side == ">=" else bound - number if quantity.side == "<=" else -abs(number - bound)
    )


def _written(worst: tuple[float, float] | None, runs: Sequence[Any], quantity: Quantity) -> str:
    """The value that decides; of what has no bound, the range."""
    if worst is None:
        return "no number"
    if quantity.bound is not None:
        return quantity.written(worst[0])
    low, *_, high = sorted([run[0] for run in runs if run is not None] * 2)
    texts = dict.fromkeys(quantity.written(number) for number in (low, high))
    return " to ".join(texts)


def _missing(need: Need, every: Sequence[Row], known: Sequence[Group]) -> list[Group]:
    """A group for each family, or other alternative, that the need asks for and that has no number: it says why."""
    family = need.by == "start"
    asked = need.rows.get("family" if family else "start" if need.by == "rule" else need.by, "")
    names = asked if isinstance(asked, tuple) else (asked,)
    if not family and not known:  # one group says it of all alternatives
        names = ("",)
    told = {group.family if family else group.start for group in known}
    groups = []
    for name in [name for name in names if name not in told] if asked or not known else ():
        mine = [row for row in every if word_of(row, "family" if family else need.by) == name] if name else every
        here = select(mine, {"length": need.rows["length"]}) if "length" in need.rows else mine
        why = f"no number in {need.table}" if here else _no_rows(need, mine)
        if family:
            groups.append(Group(family=name, start="", state="missing", why=why))
        else:
            why = f"{why} {start_words(name)}" if name else why
            groups.append(Group(family=str(need.rows.get("family", "")), start=name, state="missing", why=why))
    return groups


def _no_rows(need: Need, other: Sequence[Row]) -> str:
    """Why there is nothing to judge: the lengths that are not there, or the runs."""
    if other and "length" in need.rows:
        known = ", ".join(str(length) for length in sorted({word_of(row, "length") for row in other}))
        return f"no run of T = {_listed(need.rows['length'])}, only of T = {known}"
    if need.by == "rule":
        return "no such construction"
    if need.part.startswith(("on ", "with")) or not {"prior", "bos"} <= set(need.rows):  # the part says which run
        return "no such run" if "family" in need.rows else f"no such rows in {need.table}"
    return f"no run on the {need.rows['prior']} task {'with' if need.rows['bos'] else 'without'} BOS"


def _absent(need: Need, rows: Sequence[Row]) -> str:
    """Which of the lengths that a need asks for are not there."""
    asked = need.rows.get("length")
    known = {word_of(row, "length") for row in rows}
    lost = [length for length in asked if length not in known] if isinstance(asked, tuple) else []
    return f"no run of T = {_listed(tuple(lost))}" if lost else ""


def _listed(lengths: Any) -> str:
    return ", ".join(map(str, lengths)) if isinstance(lengths, tuple) else str(lengths)
