"""Choosing rows of results by what their checkpoint is.

Rows of checkpoint analyses have a `subject`: family, prior, bos, length, order, vocab, seed, protocol
and init (`analyses.subject.summary_of`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

Row = dict[str, Any]


def matching(rows: Sequence[Row], **words: Any) -> list[Row]:
    """The rows whose checkpoint fits every word, e.g. family="disentangled", bos=True; shortest first, then by seed.

    Protocols other than `paper`, and rows without a record, count as the shipped kind: say protocol="paper" for those.
    """
    wanted = dict(words)
    protocol = wanted.pop("protocol", None)
    found = []
    for row in rows:
        subject = row.get("subject")
        if subject is None or any(subject[word] != value for word, value in wanted.items()):
            continue
        if (subject["protocol"] == "paper") == (protocol == "paper"):
            found.append(row)
    return sorted(found, key=lambda row: (row["subject"]["length"], row["subject"]["seed"] or 0, row["checkpoint"]))


def nearest(rows: Sequence[Row], length: int, **words: Any) -> Row | None:
    """Of the matching rows the one of the length nearest to `length`, first seed; None if there is none."""
    found = matching(rows, **words)
    return min(found, key=lambda row: abs(math.log(row["subject"]["length"] / length)), default=None)


def lengths_of(rows: Sequence[Row]) -> list[int]:
    """The lengths that occur, in order."""
    return sorted({row["subject"]["length"] for row in rows})
