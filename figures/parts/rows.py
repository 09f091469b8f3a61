"""Choosing rows of results by what their checkpoint is.

Rows of checkpoint analyses have a `subject`: family, prior, bos, length, order, vocab, seed, protocol, init
and start (`analyses.running.subject.summary_of`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from analyses.running.subject import place_of_start as place
from interp.notation import MAX_ORDER
from interp.outside import shown
from models.families.registry import FAMILIES

Row = dict[str, Any]

# Of what results from elsewhere may say: figures make as many panels, cells or ticks.
MOST = {"order": MAX_ORDER, "layer": 1000, "head": 1000, "matches": 1000}
# Protocols of runs that were made beside the zoo's main ones, to compare.
BESIDE = ("paper", "long", "paper_changed")


def too_large(value: Any) -> str:
    """What is wrong where one of the numbers in `MOST`, wherever it stands, is larger; else empty."""
    if isinstance(value, dict):
        for name, most in MOST.items():
            if isinstance(number := value.get(name), int) and number > most:
                return f"{name} is {shown(number)}, more than the {most} that are drawn"
        value = list(value.values())
    return next(filter(None, map(too_large, value)), "") if isinstance(value, list) else ""


def matching(rows: Sequence[Row], **words: Any) -> list[Row]:
    """The rows whose checkpoint fits every word, e.g. family="disentangled", bos=True; shortest first, then by seed.

    Protocols other than those of `BESIDE`, and rows without a record, count as the main kind: say protocol="paper" for
    those of the paper. Without the word `start` the rows are of one start (`of_one_start`).
    """
    wanted = dict(words)
    protocol = wanted.pop("protocol", None)
    protocol = protocol if protocol in BESIDE else None
    found = []
    for row in rows:
        subject = row.get("subject")
        if subject is None or any(subject.get(word) != value for word, value in wanted.items()):
            continue
        if beside(subject) == protocol:
            found.append(row)
    found = found if "start" in words else of_one_start(found)
    return sorted(found, key=lambda row: (row["subject"]["length"], row["subject"]["seed"] or 0, row["checkpoint"]))


def beside(subject: Mapping[str, Any] | None) -> str | None:
    """The protocol of a run that stands beside the main ones; None for a main run."""
    if subject is None or subject.get("main"):
        return None
    protocol = subject.get("protocol")
    return protocol if protocol in BESIDE else None


def only_beside(rows: Iterable[Row]) -> str | None:
    """The protocol of the trained models, if none of them is of the main kind: the one to draw; else None."""
    found = {beside(row["subject"]) for row in rows if row.get("subject") is not None and not analytic(row["subject"])}
    return None if None in found else next((protocol for protocol in BESIDE if protocol in found), None)


def with_main(rows: Iterable[Row], protocol: str) -> list[Row]:
    """The rows with the runs of one protocol in the place of the main ones.

    They are marked as `main` in their subject. What has no training to speak of (a construction, an estimator) stays;
    other trained models of the main kind go, so that two protocols never share a curve.
    """
    changed = []
    for row in rows:
        subject = row.get("subject")
        if subject is None or analytic(subject):
            changed.append(row)
        elif beside(subject) == protocol:
            changed.append({**row, "subject": {**subject, "main": True}})
        elif beside(subject) is not None:
            changed.append(row)
    return changed


def of_one_start(rows: Iterable[Row]) -> list[Row]:
    """Of each family and task the rows of one start: that with the most lengths, then that nearest to the paper's.

    A curve never mixes starts. Rows that no checkpoint, or no start, belongs to are kept.
    """
    lengths: dict[tuple[Any, ...], dict[str, set[int]]] = {}
    for row in rows:
        if (start := start_in(row)) is not None:
            lengths.setdefault(_task(row), {}).setdefault(start, set()).add(row["subject"]["length"])
    chosen = {task: min(found, key=lambda one: (-len(found[one]), place(one))) for task, found in lengths.items()}
    return [row for row in rows if (start := start_in(row)) is None or start == chosen[_task(row)]]


def start_in(row: Row) -> str | None:
    """The start of the row's checkpoint; None where there is no checkpoint, or no record of its start."""
    start: str | None = (row.get("subject") or {}).get("start")
    return start


def _task(row: Row) -> tuple[Any, ...]:
    return tuple(row["subject"][name] for name in ("family", "prior", "bos"))


def analytic(subject: Mapping[str, Any]) -> bool:
    """Whether it is of a family whose weights are written, not found."""
    family = subject.get("family")  # a result may come from elsewhere
    return isinstance(family, str) and family in FAMILIES and FAMILIES[family].analytic


def protocol_note(results: Mapping[str, Sequence[Row]]) -> str:
    """Sentences for the caption where runs beside the main ones are drawn in their place, or unfinished ones."""
    subjects = [row["subject"] for rows in results.values() for row in rows if row.get("subject") is not None]
    found = sorted({subject["protocol"] for subject in subjects if subject.get("main")})
    words = [f"Trained models are runs of the `{found[0]}` protocol."] if found else []
    if any(subject.get("unfinished") for subject in subjects):
        words.append("Some trained models are of unfinished runs.")
    return " ".join(words)


def nearest(rows: Sequence[Row], length: int, **words: Any) -> Row | None:
    """Of the matching rows the one of the length nearest to `length`, first start and seed; None if there is none."""
    starts = {start_in(row) for row in rows if row.get("subject")} if "start" not in words else {words.pop("start")}
    found = [row for start in starts for row in matching(rows, **words, start=start)]
    return min(
        found,
        key=lambda row: (
            abs(math.log(row["subject"]["length"] / length)),
            place(start_in(row)),
            row["subject"]["seed"] or 0,
        ),
        default=None,
    )


def lengths_of(rows: Sequence[Row]) -> list[int]:
    """The lengths that occur, in order."""
    return sorted({row["subject"]["length"] for row in rows})
