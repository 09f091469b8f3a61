"""What the figures of the study `language_model` share: rows by their kind, colours of heads, numbers in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from figures.parts.rows import Row

Results = dict[str, list[Row]]

HEAD_COLOURS = ("#003566", "#5b99c2", "#52796f", "#ffb703", "#882255", "#7f7f7f", "#b08968", "#9b2226")


def pick(rows: Sequence[Row], **named: Any) -> list[Row]:
    """The rows with these values."""
    return [row for row in rows if all(row.get(name) == value for name, value in named.items())]


def keep(results: Results, **named: Any) -> Results:
    """The study's rows with these values."""
    return {"language_model": pick(results["language_model"], **named)}


def pm(value: float | None, error: float | None, digits: int = 2) -> str:
    """A number and its standard error."""
    if value is None:
        return "not told"
    return f"{value:.{digits}f}" + ("" if error is None else f" ± {error:.{digits}f}")


def listed(parts: Sequence[str]) -> str:
    return ", ".join(parts)
