"""The study on a terminal: models side by side in one table, then the tables of each model.

Numbers stand with half of their 95% interval; of several heads, the least and the largest are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from analyses.running.report import heading, render_table, wrapped
from analyses.studies.language.case import RANDOM
from interp.results import half_width

Row: TypeAlias = dict[str, Any]
NOTE = "± reaches to the ends of 95% intervals over sequences; numbers of several heads: the least to the largest"


class Shown(NamedTuple):
    """One table of a model.

    rows     what its rows have
    columns  their names; `name:3` is a number with that many decimals, and its interval
    by       a column that it is sorted by, the largest first
    """

    rows: dict[str, Any]
    columns: str
    by: str = ""


ABREAST = 3  # models in one table
MOST_ROWS = 24  # of a table that is sorted
LAW = "text order name beta:1 kappa:1 nats_explained:2 control_explained:2 additive_behind:3 best_law"
TABLES = {
    "Heads with a role": Shown(
        {"kind": "head", "named": True},
        "text layer head role copy_lag copy_mass nats nats_explained control_explained",
        by="nats_explained",
    ),
    "The law of the match heads' attention": Shown({"kind": "law"}, LAW),
    "Edits of all match heads together": Shown(
        {"kind": "edit"}, "text edit change:3 recovered:2 control_change:3 control_recovered:2 kl_change:3"
    ),
    "From the heads that copy lag 1 to the match heads, on repeated tokens": Shown(
        {"kind": "path"}, "name mass:3 without_copies:3 control:3 copies"
    ),
    "kappa by position, on chains": Shown(
        {"kind": "band"}, "name from to beta:2 kappa:2 kappa_minus_beta:2 first_key:3"
    ),
    "With and without BOS": Shown({"kind": "without"}, "name bos first_key:3 second_key:3 beta:2"),
    "Natural text: in-context gain (nats)": Shown({"kind": "gain"}, "positions without gain:3 carried:3 rise:3 tokens"),
    "KL to the truth on chains (nats), late positions": Shown({"kind": "kl"}, "predictor late_kl:3"),
    "The estimators nearest to the model (KL from it, nats)": Shown({"kind": "nearest"}, "estimator kl:3 parameters"),
}  # fmt: skip


def span(column: str, digits: int = 2, **rows: Any) -> Callable[[Sequence[Row]], str]:
    """A number of these rows: with its interval, or the least to the largest. `beta.0` is the first of a list."""
    name, _, place = column.partition(".")

    def told(found: Sequence[Row]) -> str:
        chosen = [{**row, name: row[name][int(place)]} if place else row for row in pick(found, **rows)]
        known = [row for row in chosen if row.get(name) is not None]
        if len(known) == 1 and not place:
            return cell(known[0], name, str(digits))
        values = sorted(row[name] for row in known)
        return " to ".join(dict.fromkeys(f"{one:.{digits}f}" for one in values[:1] + values[-1:])) or "-"

    return told


def heads_with(role: str, column: str = "role") -> Callable[[Sequence[Row]], str]:
    """How many heads have a role on chains or on repeated tokens, and which."""

    def told(found: Sequence[Row]) -> str:
        named = sorted({(row["layer"], row["head"]) for row in pick(found, kind="head", **{column: role})})
        return f"{len(named)}: {', '.join(f'{layer}.{head}' for layer, head in named)}" if named else "none"

    return told


def laws_told(found: Sequence[Row]) -> str:
    """Of how many heads which law predicts new chains best."""
    best = [row["best_law"] or "cannot tell" for row in pick(found, text="chains", kind="law") if row.get("laws")]
    return ", ".join(f"{name} {best.count(name)}" for name in dict.fromkeys(best)) or "-"


EDITED: dict[str, Any] = {"text": "repeats", "kind": "edit"}
COMPARED: dict[str, Callable[[Sequence[Row]], str]] = {
    "parameters": lambda found: f"{found[0].get('parameters', 0):,}",
    "heads that match": heads_with("match"),
    "heads that match in the control": heads_with("match", "control_role"),
    "heads that copy": heads_with("copy"),
    **{
        f"{name}, {text}": span(column, 1, text=text, kind="law", last=True)
        for text in ("chains", "repeats", "text")
        for name, column in (("beta_1", "beta.0"), ("kappa", "kappa"))
    },
    **{f"explained, {text}": span("nats_explained", text=text, kind="law", last=True)
       for text in ("chains", "repeats", "text")},
    "best law on chains": laws_told,
    "loss without them, repeats": span("change", edit="ablated", **EDITED),
    "their law recovers": span("recovered", edit="law", **EDITED),
    "the same on shuffled keys": span("control_recovered", edit="law", **EDITED),
    "hard matching recovers": span("recovered", edit="hard", **EDITED),
    "loss without them, chains": span("change", text="chains", edit="ablated"),
    "gain lost without them, text": span("carried", text="text", positions="repeated", without="match heads"),
    "KL to the truth, chains": span("late_kl", predictor="model"),
}  # fmt: skip


def page(rows: Sequence[Row]) -> str:
    """The comparison, then every model's tables."""
    models = by_model(rows)
    parts = [heading("Models side by side")]
    for at in range(0, len(models), ABREAST):
        parts.append(render_table(compared(dict(list(models.items())[at : at + ABREAST]))))
    parts.append(wrapped(NOTE))
    for model, mine in models.items():
        for title, table in TABLES.items():
            if found := shown(table, mine):
                parts.append(f"{heading(f'{model}: {title}')}\n{render_table(found)}")
        if not any(row["named"] and row["role"] == "match" for row in pick(mine, kind="head")):
            parts.append(wrapped(f"{model}: no head matches, so that there is no law and nothing to edit"))
    return "\n\n".join(parts)


def by_model(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows of each model, by its name: without its folder, where that tells it from the others."""
    models = list(dict.fromkeys(row["model"] for row in rows))
    names = [RANDOM * one.startswith(RANDOM) + Path(one.removeprefix(RANDOM)).name for one in models]
    names = names if len({*names}) == len(names) else models
    whole = [marked(row, rows) for row in rows]
    return {name: pick(whole, model=model) for name, model in zip(names, models, strict=True)}


def compared(models: Mapping[str, Sequence[Row]]) -> list[Row]:
    """The table that compares them: a line for each quantity."""
    return [{"": words, **{name: told(rows) for name, rows in models.items()}} for words, told in COMPARED.items()]


def marked(row: Row, rows: Sequence[Row]) -> Row:
    """With what tables are picked by: whether a head has a role, and whether a law is of the longest context."""
    if row["kind"] == "head":
        return {**row, "named": row["role"] != "none"}
    if row["kind"] == "law":
        orders = [one["order"] for one in pick(rows, kind="law", text=row["text"])]
        return {**row, "last": row["order"] == max(orders)}
    return row


def shown(table: Shown, rows: Sequence[Row]) -> list[Row]:
    """The rows of one table as they are printed."""
    chosen = pick(rows, **table.rows)
    if table.by:
        chosen = sorted(chosen, key=lambda row: -(row[table.by] or 0.0))[:MOST_ROWS]
    columns = [column.partition(":") for column in table.columns.split()]
    return [{name.replace("_", " "): cell(row, name, digits) for name, _, digits in columns} for row in chosen]


def cell(row: Row, name: str, digits: str) -> Any:
    """A column of a row: with decimals and its interval, or as it is."""
    value = row.get(name)
    if not digits:
        return ", ".join(map(str, value)) if isinstance(value, list) else value
    if isinstance(value, list):
        errors = row.get(f"{name}_stderr") or [None] * len(value)
        return ", ".join(number(one, error, row["n"], digits) for one, error in zip(value, errors, strict=True))
    return number(value, row.get(f"{name}_stderr"), row["n"], digits)


def number(value: float | None, stderr: float | None, n: int, digits: str) -> str:
    """A number with half of its interval."""
    if value is None:
        return "-"
    return f"{value:.{digits}f}" + ("" if stderr is None else f" ± {half_width(stderr, n=n):.{digits}f}")


def pick(rows: Sequence[Row], **named: Any) -> list[Row]:
    """The rows with these values."""
    return [row for row in rows if all(row.get(name) == value for name, value in named.items())]
