"""Choosing rows of results by what their checkpoint is.

Rows of checkpoint analyses have a `subject`: family, prior, bos, length, order, vocab, seed, protocol
and init (`analyses.subject.summary_of`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

Row = dict[str, Any]

BESIDE = ("paper", "long")  # protocols of runs that were made beside the zoo's main ones, to compare


def matching(rows: Sequence[Row], **words: Any) -> list[Row]:
    """The rows whose checkpoint fits every word, e.g. family="disentangled", bos=True; shortest first, then by seed.

    Protocols other than `paper` and `long`, and rows without a record, count as the main kind: say protocol="paper" or
    "long" for those.
    """
    wanted = dict(words)
    protocol = beside(wanted.pop("protocol", None))
    found = []
    for row in rows:
        subject = row.get("subject")
        if subject is None or any(subject[word] != value for word, value in wanted.items()):
            continue
        if beside(subject["protocol"]) == protocol:
            found.append(row)
    return sorted(found, key=lambda row: (row["subject"]["length"], row["subject"]["seed"] or 0, row["checkpoint"]))


def beside(protocol: str | None) -> str | None:
    """The protocol if it is one of those beside the main runs, else None."""
    return protocol if protocol in BESIDE else None


def nearest(rows: Sequence[Row], length: int, **words: Any) -> Row | None:
    """Of the matching rows the one of the length nearest to `length`, first seed; None if there is none."""
    found = matching(rows, **words)
    return min(found, key=lambda row: abs(math.log(row["subject"]["length"] / length)), default=None)


def lengths_of(rows: Sequence[Row]) -> list[int]:
    """The lengths that occur, in order."""
    return sorted({row["subject"]["length"] for row in rows})
