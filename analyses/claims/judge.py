"""Compares tables with what a claim needs, and says where it holds: the only module that judges.

A claim of the paper is judged from the paper's start, hard copies, where such runs are there, and by the paper's
protocol where one was trained by it; what was found from other starts is said beside it. A value within one standard
error of its bound decides nothing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from analyses.claims.quantities import LEAST_WITH, MOST_WITHOUT, QUANTITIES
from analyses.claims.readers import word_of
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
    strongest,
)
from analyses.running.subject import place_of_start

CELLS = ("frozen", "frozen_copies", "hard_start", "random_start")  # each frees one part more; others ask other things
FEATURES: Mapping[str, Callable[[Row], bool]] = {
    "the copy heads are frozen": lambda run: "copies" in str(run["freeze"]).split(","),
    "the readout is fixed": lambda run: "readout" in str(run["freeze"]).split(","),
    "the readout adds votes": lambda run: run["readout"] == "probability",
    "the copy heads start sharp": lambda run: run["cell"] != "random_start",
}
SEVERITY: tuple[State, ...] = ("unmet", "unsure", "measured", "met", "missing")


def judge(claim: Claim, tables: Tables) -> Verdict:
    """The claim's verdict on these tables."""
    findings = tuple(find(need, tables) for need in claim.needs)
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
    trained = [group for group in groups if group.start and group.start not in RULES] or groups
    if word in ("holds", "holds where", "does not hold") and claim.topic != "setting":
        says += basis_in_words(trained) + "".join(f"; {words}" for words in beside(findings))
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
        return _missing(need, f"there is no table {need.table}")
    every = select(tables[need.table], {name: word for name, word in need.rows.items() if name != "length"})
    rows = select(every, {"length": need.rows["length"]}) if "length" in need.rows else every
    if not rows:
        return _missing(need, _no_rows(need, every))
    rows = by_protocol(rows)
    kinds: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        kinds.setdefault((str(word_of(row, "family") or ""), str(word_of(row, need.by) or "")), []).append(row)
    groups = [
        group
        for (family, start), mine in kinds.items()
        if (group := _group(mine, quantity, need, tables, family, start)) is not None
    ]
    if not groups:
        return _missing(need, f"no run of {need.table} has the number")
    found = Finding(need=need, groups=tuple(sorted(groups, key=lambda group: place_of_start(group.start))))
    if all(group.state != "unmet" or group.where for group in basis(found)):
        return found
    condition, evidence = study_condition(need, quantity, tables)
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
    """Of each kind of run those of the paper's protocol, where there are any; never those of `long`."""
    kinds: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        kind = tuple(str(word_of(row, name)) for name in ("family", "prior", "bos", "length", "start"))
        kinds.setdefault(kind, []).append(row)
    kept = []
    for mine in kinds.values():
        paper = [row for row in mine if word_of(row, "protocol") == "paper"]
        kept += paper or [row for row in mine if word_of(row, "protocol") != "long"]
    return kept


def study_condition(need: Need, quantity: Quantity, tables: Tables) -> tuple[str, str]:
    """The condition that decides the same need in the runs of the study `conditions`, and the counts; empty if none."""
    read = quantity.read.get("conditions")
    if read is None or need.table == "conditions":
        return "", ""
    words = {name: need.rows[name] for name in ("prior", "bos") if name in need.rows}
    runs = [run for run in select(study_runs(tables.get("conditions", ())), words) if run["cell"] in CELLS]
    states = [(run, state_of(found, quantity) == "met") for run in runs if (found := read(run, tables)) is not None]
    single = [(name,) for name in FEATURES]
    for names in [*single, *itertools.combinations(FEATURES, 2)]:
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
        return format(worst[0], quantity.form)
    low, *_, high = sorted([run[0] for run in runs if run is not None] * 2)
    texts = dict.fromkeys(format(number, quantity.form) for number in (low, high))
    return " to ".join(texts)


def _missing(need: Need, why: str) -> Finding:
    return Finding(need=need, groups=(Group(family="", start="", state="missing", why=why),))


def _no_rows(need: Need, other: Sequence[Row]) -> str:
    """Why there is nothing to judge: the lengths that are not there, or the runs."""
    if other and "length" in need.rows:
        known = ", ".join(str(length) for length in sorted({word_of(row, "length") for row in other}))
        return f"no run of T = {_listed(need.rows['length'])}, only of T = {known}"
    return f"{need.table} has no such rows"


def _absent(need: Need, rows: Sequence[Row]) -> str:
    """Which of the lengths that a need asks for are not there."""
    asked = need.rows.get("length")
    known = {word_of(row, "length") for row in rows}
    lost = [length for length in asked if length not in known] if isinstance(asked, tuple) else []
    return f"no run of T = {_listed(tuple(lost))}" if lost else ""


def _listed(lengths: Any) -> str:
    return ", ".join(map(str, lengths)) if isinstance(lengths, tuple) else str(lengths)
