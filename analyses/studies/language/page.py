"""The study on a terminal: a table for each part."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from analyses.running.report import heading, render_table

Row: TypeAlias = dict[str, Any]
Column: TypeAlias = str | Callable[[Row], Any]


class Table(NamedTuple):
    """The rows with some values, and its columns: functions of the row, or what `cell` reads."""

    rows: Mapping[str, Any]
    columns: Mapping[str, Column]
    keep: Callable[[Row], bool] = lambda row: True
    order: Callable[[Row], Any] = lambda row: 0
    most: int | None = None


def page(rows: Sequence[Row]) -> str:
    """The tables of all parts that have rows."""
    parts = [(title, told(table, rows)) for title, table in TABLES.items()]
    return "\n\n".join(f"{heading(title)}\n{render_table(found)}" for title, found in parts if found)


def told(table: Table, rows: Sequence[Row]) -> list[Row]:
    """The rows of one table as they are printed."""
    chosen = sorted(filter(table.keep, pick(rows, **table.rows)), key=table.order)
    return [{head: cell(row, column) for head, column in table.columns.items()} for row in chosen[: table.most]]


def cell(row: Row, column: Column) -> Any:
    """`name` is that number; `name:3` has its error, name_stderr, and 3 decimals; `name±error:3` another error."""
    if callable(column):
        return column(row)
    place, _, digits = column.partition(":")
    if not digits:
        return row[place]
    name, _, error = place.partition("±")
    return pm(row[name], row.get(error or f"{name}_stderr"), int(digits))


def pick(rows: Sequence[Row], **named: Any) -> list[Row]:
    """The rows with these values."""
    return [row for row in rows if all(row.get(name) == value for name, value in named.items())]


def pm(value: Any, error: Any, digits: int = 3) -> str:
    """A number with its standard error, or several."""
    if isinstance(value, list):
        return ", ".join(pm(one, its, digits) for one, its in zip(value, error, strict=True))
    if value is None:
        return "-"
    return f"{value:.{digits}f}" if error is None else f"{value:.{digits}f} ± {error:.{digits}f}"


EDITS: dict[str, Column] = {
    "edit": "edit",
    "loss": "loss:3",
    "loss before": "loss_before:3",
    "change": "change±stderr:3",
    "recovered": "recovered:3",
    "control change": "control_change±control_stderr:3",
    "control recovered": "control_recovered:3",
}

TABLES: dict[str, Table] = {
    "What it predicts on chains (nats)": Table(
        {"part": "prediction", "kind": "kl"},
        {"predictor": "predictor", "KL at 65 to 96 tokens": "late_kl±late_stderr:3"},
    ),
    "The nearest estimators": Table(
        {"part": "prediction", "kind": "nearest"},
        {
            "estimator": "predictor",
            "positions": lambda row: f"{row['from']}-{row['to']}",
            "KL(model || estimator)": "from_model:3",
            "parameters": lambda row: ", ".join(f"{name} {value}" for name, value in row["parameters"].items()),
        },
        keep=lambda row: row["predictor"].startswith("soft matching") or row["to"] == 96,
    ),
    "Names": Table(
        {"part": "prediction", "kind": "names"},
        {
            "share of names": "share:3", "mass of the alphabet": "late_alphabet_mass:3", "alphabets": "alphabets",
            "chains": "n",
        },
    ),
    "Heads by r2_match on chains": Table(
        {"part": "heads", "kind": "head"},
        {
            "head": lambda row: f"{row['layer']}.{row['head']}",
            "r2_match": "r2_match",
            "other masks": "control_r2_match",
            "nats": "nats",
            "explained": "nats_explained",
            "induction": "repeat_induction:3",
            "role": "role",
        },
        order=lambda row: -(row["r2_match"] or 0.0),
        most=8,
    ),
    "Heads that look at one lag": Table(
        {"part": "heads", "kind": "head", "role": "copy"},
        {"lag": "copy_lag", "head": lambda row: f"{row['layer']}.{row['head']}", "attention on it": "copy_mass"},
        order=lambda row: -row["copy_mass"],
        most=12,
    ),
    "The law of the best heads' attention on chains": Table(
        {"part": "heads", "kind": "law"},
        {
            "head": "name",
            "beta": "beta:2",
            "kappa": "kappa:2",
            "kappa - |beta|": "kappa_minus_beta:2",
            "halves apart (s.e.)": lambda row: max(row["halves_apart"], key=lambda one: one or 0.0),
            "explained": "nats_explained:2",
            "query gap": "query_gap",
            "best law": lambda row: row["law_best"] + ("" if row["law_told"] else " (not told)"),
        },
    ),
    "The same architecture with random weights": Table(
        {"part": "random"},
        {name: name for name in ("heads", "matching", "largest_r2_match", "largest_nats_explained", "sequences")},
    ),
    "What the readout reads after some layers": Table(
        {"part": "layers"},
        {
            "layer": "layer",
            "KL(model || layer)": "from_final:3",
            "KL(truth || layer)": "kl±stderr:3",
            "mass of the alphabet": "mass",
        },
        keep=lambda row: row["layer"] % 3 == 2 or row["from_final"] == 0.0,
    ),
    "Edits of the best heads on repeated tokens (second copy)": Table({"part": "causal", "on": "repeats"}, EDITS),
    "Edits of the best heads on chains": Table({"part": "causal", "on": "chains"}, EDITS),
    "From copy heads to match heads, on repeated tokens": Table(
        {"part": "causal", "on": "path"},
        {
            "match head": "name",
            "mass on the next key": "mass:3",
            "without copy heads": "without_copies:3",
            "without other heads": "control:3",
            "copy heads": lambda row: ", ".join(row["copy_heads"]),
        },
    ),
    "The sink by position": Table(
        {"part": "sink", "kind": "band"},
        {
            "head": "name",
            "queries": lambda row: f"{row['from']}-{row['to']}",
            "beta": "beta:2",
            "kappa": "kappa:2",
            "kappa - |beta|": "kappa_minus_beta:2",
            "mass on BOS": "bos_mass:3",
        },
    ),
    "With and without BOS": Table(
        {"part": "sink", "kind": "without"},
        {
            "head": "name", "BOS": "bos", "first key": "first_key:3", "second key": "second_key:3", "beta": "beta:2",
            "KL of the model": "kl:3",
        },
    ),
    "Natural text: in-context gain": Table(
        {"part": "text", "kind": "gain"},
        {
            "contexts": "positions", "without": "without", "gain": "gain:3", "lost of the gain": "carried:3",
            "rise of the loss": "rise:3", "tokens": "tokens",
        },
    ),
    "Natural text: the law of the attention": Table(
        {"part": "text", "kind": "law"},
        {
            "head": "name", "order": "order", "beta": "beta:1", "explained": "nats_explained:2",
            "other masks": "control_nats_explained",
        },
    ),
}  # fmt: skip
