"""The study on a terminal: a table for each part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from analyses.running.report import heading, render_table

Row: TypeAlias = dict[str, Any]
ERRORS = {"late_kl": "late_stderr", "change": "stderr", "control_change": "control_stderr", "kl": "stderr"}


class Part(NamedTuple):
    """One table.

    rows     what its rows have
    columns  their names; `name:3` is a number with that many decimals, and its error
    by       a column that it is sorted by, the largest first
    most     rows
    """

    rows: dict[str, Any]
    columns: str
    by: str = ""
    most: int | None = None


EDITS = "edit loss:3 loss_before:3 change:3 recovered:3 control_change:3 control_recovered:3"
PARTS = {
    "What it predicts on chains (nats), at 65 to 96 tokens": Part(
        {"part": "prediction", "kind": "kl"}, "predictor late_kl:3"
    ),
    "The nearest estimators, KL(model || estimator)": Part(
        {"part": "prediction", "kind": "nearest", "to": 96}, "predictor from to from_model:3 parameters"
    ),
    "Names": Part({"part": "prediction", "kind": "names"}, "share:3 late_alphabet_mass:3 alphabets n"),
    "Heads by r2_match on chains": Part(
        {"part": "heads", "kind": "head"},
        "layer head r2_match control_r2_match nats nats_explained repeat_induction:3 role",
        by="r2_match", most=8,
    ),
    "Heads that look at one lag": Part(
        {"part": "heads", "kind": "head", "role": "copy"}, "copy_lag layer head copy_mass", by="copy_mass", most=12
    ),
    "The law of the best heads' attention on chains": Part(
        {"part": "heads", "kind": "law"},
        "name beta:2 kappa:2 kappa_minus_beta:2 halves_apart:1 nats_explained:2 query_gap law_best law_told",
    ),
    "The same architecture with random weights": Part(
        {"part": "random"}, "heads matching largest_r2_match largest_nats_explained sequences"
    ),
    "What the readout reads after each layer": Part({"part": "layers"}, "layer from_final:3 kl:3 mass"),
    "Edits of the best heads on repeated tokens (second copy)": Part({"part": "causal", "on": "repeats"}, EDITS),
    "Edits of the best heads on chains": Part({"part": "causal", "on": "chains"}, EDITS),
    "From copy heads to match heads, on repeated tokens": Part(
        {"part": "causal", "on": "path"}, "name mass:3 without_copies:3 control:3 copy_heads"
    ),
    "The sink by position": Part(
        {"part": "sink", "kind": "band"}, "name from to beta:2 kappa:2 kappa_minus_beta:2 bos_mass:3"
    ),
    "With and without BOS": Part(
        {"part": "sink", "kind": "without"}, "name bos first_key:3 second_key:3 beta:2 kl:3"
    ),
    "Natural text: in-context gain": Part(
        {"part": "text", "kind": "gain"}, "positions without gain:3 carried:3 rise:3 tokens"
    ),
    "Natural text: the law of the attention": Part(
        {"part": "text", "kind": "law"}, "name order beta:1 nats_explained:2 control_nats_explained"
    ),
}  # fmt: skip


def page(rows: Sequence[Row]) -> str:
    """The tables of all parts that have rows."""
    found = {title: told(part, rows) for title, part in PARTS.items()}
    return "\n\n".join(f"{heading(title)}\n{render_table(table)}" for title, table in found.items() if table)


def told(part: Part, rows: Sequence[Row]) -> list[Row]:
    """The rows of one table as they are printed."""
    chosen = pick(rows, **part.rows)
    if part.by:
        chosen.sort(key=lambda row: -(row[part.by] or 0.0))
    columns = [column.partition(":") for column in part.columns.split()]
    return [
        {name.replace("_", " "): cell(row, name, digits) for name, _, digits in columns} for row in chosen[: part.most]
    ]


def cell(row: Row, name: str, digits: str) -> Any:
    """A column of a row: with decimals and its error, or as it is."""
    value = row[name]
    if digits:
        return with_error(value, row.get(f"{name}_stderr", row.get(ERRORS.get(name, ""))), int(digits))
    if isinstance(value, dict):
        return ", ".join(f"{key} {one}" for key, one in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else value


def pick(rows: Sequence[Row], **named: Any) -> list[Row]:
    """The rows with these values."""
    return [row for row in rows if all(row.get(name) == value for name, value in named.items())]


def with_error(value: Any, error: Any, digits: int) -> str:
    """A number with its standard error, or several."""
    if isinstance(value, list):
        errors = error or [None] * len(value)
        return ", ".join(with_error(one, its, digits) for one, its in zip(value, errors, strict=True))
    if value is None:
        return "-"
    return f"{value:.{digits}f}" + ("" if error is None else f" ± {error:.{digits}f}")
