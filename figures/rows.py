"""Choosing rows of results by what their checkpoint is.

Rows of checkpoint analyses have a `subject`: family, prior, bos, length, order, vocab, seed, protocol
and init (`analyses.subject.summary_of`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from models.families import FAMILIES

Row = dict[str, Any]

BESIDE = ("paper", "long")  # protocols of runs that were made beside the zoo's main ones, to compare


def matching(rows: Sequence[Row], **words: Any) -> list[Row]:
    """The rows whose checkpoint fits every word, e.g. family="disentangled", bos=True; shortest first, then by seed.

    Protocols other than `paper` and `long`, and rows without a record, count as the main kind: say protocol="paper" or
    "long" for those.
    """
    wanted = dict(words)
    protocol = wanted.pop("protocol", None)
    protocol = protocol if protocol in BESIDE else None
    found = []
    for row in rows:
        subject = row.get("subject")
        if subject is None or any(subject[word] != value for word, value in wanted.items()):
            continue
        if beside(subject) == protocol:
            found.append(row)
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


def analytic(subject: Mapping[str, Any]) -> bool:
    """Whether it is of a family whose weights are written, not found."""
    family = subject.get("family")  # a result may come from elsewhere
    return isinstance(family, str) and family in FAMILIES and FAMILIES[family].analytic


def protocol_note(results: Mapping[str, Sequence[Row]]) -> str:
    """A sentence for the caption where runs beside the main ones are drawn in their place."""
    subjects = [row["subject"] for rows in results.values() for row in rows if row.get("subject") is not None]
    found = sorted({subject["protocol"] for subject in subjects if subject.get("main")})
    return f"Trained models are runs of the `{found[0]}` protocol." if found else ""


def nearest(rows: Sequence[Row], length: int, **words: Any) -> Row | None:
    """Of the matching rows the one of the length nearest to `length`, first seed; None if there is none."""
    found = matching(rows, **words)
    return min(found, key=lambda row: abs(math.log(row["subject"]["length"] / length)), default=None)


def lengths_of(rows: Sequence[Row]) -> list[int]:
    """The lengths that occur, in order."""
    return sorted({row["subject"]["length"] for row in rows})
