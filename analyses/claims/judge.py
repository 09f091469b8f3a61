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

from analyses.claims import wording
from analyses.claims.quantities import LEAST_WITH, MOST_WITHOUT, QUANTITIES
from analyses.claims.readers import TO_COMPARE, word_of
from analyses.claims.records import (
    SET_AFTER_DATA,
    Claim,
    Finding,
    Group,
    Need,
    Quantifier,
    Quantity,
    Row,
    Tables,
    Value,
    Word,
)
from analyses.running.subject import place_of_start

STUDY, STUDIED = "conditions", "disentangled"  # the study of conditions, and the family of its runs
CELLS = ("frozen", "frozen_copies", "hard_start", "random_start")  # each frees one part more; others ask other things
SHARP_START = "the copy heads start sharp"
FEATURES: Mapping[str, Callable[[Row], bool]] = {
    "the copy heads are frozen": lambda run: "copies" in str(run["freeze"]).split(","),
    "the readout is fixed": lambda run: "readout" in str(run["freeze"]).split(","),
    SHARP_START: lambda run: run["cell"] != "random_start",
}
SEVERITY: tuple[Word, ...] = ("does not hold", "cannot tell", "not judged", "holds")  # of lengths, the first counts


def judge(claim: Claim, tables: Tables) -> dict[str, Any]:
    """The claim with its verdict on these tables: a row of the table `claims`.

    says    the word with what it holds for, and under which condition
    found   the number that decides
    start   of the runs that it rests on; `runs` says it in words, with their protocol and lengths
    others  what was found from other starts
    needs   of each need what was required, and what was found in each group of runs
    """
    findings = tuple(find(need, tables) for need in claim.needs)
    word, says = wording.sentence(findings) if findings else ("not judged", claim.note)
    if claim.where and word == "holds":
        word, says = "holds where", f"holds where {claim.where}"
    trained = wording.trained_groups(findings)
    return {
        "claim": claim.id,
        **{name: getattr(claim, name) for name in ("number", "label", "topic", "ours", "sentence")},
        "verdict": word,
        "says": says,
        "start": "/".join(dict.fromkeys(group.start for group in trained if group.start)),
        "runs": wording.runs_in_words(trained),
        "others": wording.others_in_words(findings),
        "found": wording.deciding_number(findings) if findings else "",
        "note": claim.note,
        "needs": [need_row(finding) for finding in findings],
    }


def need_row(finding: Finding) -> dict[str, Any]:
    """A need with what was required and found."""
    need, quantity = finding.need, QUANTITIES[finding.need.quantity]
    return {
        "table": need.table,
        "quantity": quantity.words,
        **{name: getattr(quantity, name) for name in ("required", "reason", "after_data")},
        "of": need.quantifier,
        "of_after_data": need.quantifier in SET_AFTER_DATA,
        "part": need.part,
        "groups": [
            {name: value for name, value in vars(group).items() if name != "margin"}
            for group in (*finding.groups, *finding.others)
        ],
    }


def find(need: Need, tables: Tables) -> Finding:
    """What one need finds: a group for each family and start, with a condition where it does not hold as it is."""
    if need.table not in tables:
        return Finding(need=need, groups=(Group(word="cannot tell", why=f"there is no table {need.table}"),))
    table = study_runs(tables[STUDY]) if need.table == STUDY else tables[need.table]
    kinds: dict[tuple[str, str], list[Row]] = {}
    for row in by_protocol(select(table, need.rows)):
        kinds.setdefault((str(word_of(row, "family") or ""), str(word_of(row, need.by) or "")), []).append(row)
    groups = [group for kind, rows in kinds.items() if (group := group_of(rows, need, tables, *kind)) is not None]
    groups = sorted([*groups, *missing(need, table, groups)], key=lambda group: place_of_start(group.start))
    if need.by != "start":
        return Finding(need=need, groups=tuple(conditioned(one, groups, need, tables) for one in groups))
    nearest = {group.family: group for group in reversed(groups)}.values()
    mine = [group for group in groups if group in nearest]
    others = [group for group in groups if group not in nearest]
    return Finding(
        need=need, groups=tuple(conditioned(one, others, need, tables) for one in mine), others=tuple(others)
    )


def conditioned(group: Group, others: Sequence[Group], need: Need, tables: Tables) -> Group:
    """The group with the condition under which it holds, if it does not hold as it is: an alternative, or a feature."""
    if group.word != "does not hold":
        return group
    held = [one for one in others if one.family == group.family and one.word == "holds"]
    if held:
        why = wording.alternatives([one.start for one in held], by=need.by)
        return replace(group, word="holds where", why=why, held=min(held, key=lambda one: one.margin).value)
    if group.family not in (STUDIED, ""):
        return group
    why, evidence = study_condition(need, tables, given={SHARP_START} if group.start == "hard" else set())
    return replace(group, word="holds where", why=why, evidence=evidence) if why else group


def select(rows: Iterable[Row], words: Mapping[str, Any]) -> list[Row]:
    """The rows that have these words; a tuple stands for any of its values."""

    def fits(found: Any, word: Any) -> bool:
        return bool(found in word if isinstance(word, tuple) else found == word)

    return [row for row in rows if all(fits(word_of(row, name), word) for name, word in words.items())]


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


def study_condition(need: Need, tables: Tables, *, given: Container[str] = ()) -> tuple[str, str]:
    """The condition that decides the same need in the runs of the study `conditions`, and the counts; empty if none.

    The study's runs are disentangled models; those with the readout of the paper's are asked. What is `given` in the
    runs that do not meet the need cannot be the condition.
    """
    quantity = QUANTITIES[need.quantity]
    read = quantity.read.get(STUDY)
    if read is None or need.table == STUDY:
        return "", ""
    asked = {name: need.rows[name] for name in ("prior", "bos") if name in need.rows}
    runs = select(study_runs(tables.get(STUDY, ())), {**asked, "cell": CELLS, "readout": "probability"})
    states = [(run, compare(found, quantity) == "holds") for run in runs if (found := read(run, tables)) is not None]
    features = [name for name in FEATURES if name not in given]
    for names in [*((name,) for name in features), *itertools.combinations(features, 2)]:
        mine = [met for run, met in states if all(FEATURES[name](run) for name in names)]
        rest = [met for run, met in states if not all(FEATURES[name](run) for name in names)]
        if mine and rest and sum(mine) >= LEAST_WITH * len(mine) and sum(rest) <= MOST_WITHOUT * len(rest):
            counts = f"{sum(mine)} of {len(mine)} runs with it, {sum(rest)} of {len(rest)} without"
            return f"where {' and '.join(names)}", f"{counts} (study `conditions`)"
    return "", ""


def study_runs(rows: Iterable[Row]) -> list[Row]:
    """The annealed runs of the study, each with the words of its cell."""
    return [
        {**{name: word for name, word in row.items() if name != "runs"}, **run}
        for row in rows
        if row["protocol"] == "annealed"
        for run in row["runs"]
    ]


def compare(found: Value, quantity: Quantity) -> Word:
    """One number with its bound: undecided within one standard error of it. A run without the number does not hold.

    >>> sharp = QUANTITIES["copy_mass"]
    >>> [compare(found, sharp) for found in ((0.9, 0.0), (0.7, 0.0), (0.79, 0.02), (0.81, 0.02), None)]
    ['holds', 'does not hold', 'cannot tell', 'cannot tell', 'does not hold']
    """
    if quantity.bound is None:
        return "not judged"
    if found is None:
        return "does not hold"
    if found[1] and abs(found[0] - quantity.bound) <= found[1]:
        return "cannot tell"
    return "holds" if margin(found, quantity) >= 0 else "does not hold"


def margin(found: Value, quantity: Quantity) -> float:
    """How far a value is on the right side of its bound; negative on the wrong one."""
    if found is None:
        return -math.inf
    above = found[0] - (quantity.bound or 0.0)
    return {">=": above, "<=": -above, "==": -abs(above)}[quantity.side]


def group_of(rows: Sequence[Row], need: Need, tables: Tables, family: str, start: str) -> Group | None:
    """What the runs of one family from one start say; None where no run has the number."""
    quantity = QUANTITIES[need.quantity]
    runs: dict[int, list[Value]] = {}
    for row in rows:
        found = quantity.read[need.table](row, tables)
        if found is not None or row.get("success") is False or row.get("fit") is False:
            length = 0 if need.quantifier == "nine in ten" else word_of(row, "length") or 0
            runs.setdefault(length, []).append(found)
    if not runs:
        return None
    decide = {length: deciding(runs[length], quantity, need.quantifier) for length in sorted(runs)}
    words = {length: compare(found, quantity) for length, found in decide.items()}
    word = min(words.values(), key=SEVERITY.index)
    why = held = ""
    if word == "does not hold" and (why := length_bound(words)):
        word, held = "holds where", _written([decide[length] for length in words if words[length] == "holds"], quantity)
    absent = [length for length in _several(need.rows.get("length")) if length not in runs]
    if absent and word in ("holds", "not judged"):
        word, why = "cannot tell", f"no run of T = {wording.commas(absent)}"
    every = [found for mine in runs.values() for found in mine]
    return Group(
        family=family,
        start=start,
        word=word,
        why=why or ("within one standard error of the threshold" if word == "cannot tell" else ""),
        value=_written(list(decide.values()) if quantity.bound is not None else every, quantity),
        held=held,
        margin=min(margin(found, quantity) for found in decide.values()),
        runs=len(every),
        met=sum(compare(found, quantity) == "holds" for found in every),
        protocols=tuple(sorted({str(one) for row in rows if (one := word_of(row, "protocol"))})),
        lengths=tuple(length for length in words if length),
    )


def deciding(runs: Sequence[Value], quantity: Quantity, quantifier: Quantifier) -> Value:
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
    ordered = sorted(runs, key=lambda run: -margin(run, quantity))
    share = {"most": 0.5, "nine in ten": 0.9, "every": 1.0}[quantifier]
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def length_bound(words: Mapping[int, Word]) -> str:
    """The bound of the length that separates what holds from what does not; empty where none does.

    >>> length_bound({32: "does not hold", 64: "holds", 128: "holds"}), length_bound({32: "holds", 64: "holds"})
    ('where T >= 64', '')
    """
    lengths, met = list(words), [word == "holds" for word in words.values()]
    if not any(met) or all(met):
        return ""
    if met == sorted(met):
        return f"where T >= {lengths[met.index(True)]}"
    return f"where T <= {lengths[met.index(False) - 1]}" if met == sorted(met, reverse=True) else ""


def missing(need: Need, table: Sequence[Row], known: Sequence[Group]) -> list[Group]:
    """A group for each family, or other alternative, that the need asks for and that has no number: it says why."""
    kind = "family" if need.by == "start" else need.by
    asked = _several(need.rows.get("start" if kind == "rule" else kind))
    told = {group.family if kind == "family" else group.start for group in known}
    groups = []
    for name in [name for name in asked if name not in told] or ([] if known else [""]):
        words = {**need.rows, kind: name} if name else dict(need.rows)
        length = words.pop("length", None)
        other = select(table, words)
        here = select(other, {"length": length}) if length else other
        lengths = sorted({word_of(row, "length") for row in other} - {None})
        why = (
            f"no number in {need.table}" if here
            else f"no run of T = {wording.commas(_several(length))}, only of T = {wording.commas(lengths)}" if other
            else wording.no_such_run(need, name)
        )  # fmt: skip
        place = {"family": name} if kind == "family" else {"family": str(need.rows.get("family", "")), "start": name}
        groups.append(Group(**place, word="cannot tell", why=why))
    return groups


def _several(word: Any) -> tuple[Any, ...]:
    return () if word is None else word if isinstance(word, tuple) else (word,)


def _written(found: Sequence[Value], quantity: Quantity) -> str:
    """The value nearest to failing; of what has no bound, the range."""
    known = [one for one in found if one is not None]
    if len(known) < len(found) and quantity.bound is not None:
        return "no number"
    if quantity.bound is not None:
        return quantity.written(min(known, key=lambda one: margin(one, quantity))[0])
    ends = [min(known)[0], max(known)[0]] if known else []
    return " to ".join(dict.fromkeys(map(quantity.written, ends)))
