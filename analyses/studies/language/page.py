"""The study on a terminal: a table for each part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from analyses.running.report import heading, render_table

Row = dict[str, Any]


def page(rows: Sequence[Row]) -> str:
    """The tables of all parts that have rows."""
    parts = [(title, table(rows)) for title, table in TABLES.items()]
    return "\n\n".join(f"{heading(title)}\n{render_table(found)}" for title, found in parts if found)


def pick(rows: Sequence[Row], **named: Any) -> list[Row]:
    """The rows with these values."""
    return [row for row in rows if all(row.get(name) == value for name, value in named.items())]


def pm(value: float | None, error: float | None, digits: int = 3) -> str:
    """A number with its standard error."""
    if value is None:
        return "-"
    return f"{value:.{digits}f}" if error is None else f"{value:.{digits}f} ± {error:.{digits}f}"


def pairs(values: Sequence[float | None], errors: Sequence[float | None], digits: int = 2) -> str:
    """Numbers with their errors, one after the other."""
    return ", ".join(pm(value, error, digits) for value, error in zip(values, errors, strict=True))


def _prediction(rows: Sequence[Row]) -> list[Row]:
    return [
        {"predictor": row["predictor"], "KL at 65 to 96 tokens": pm(row["late_kl"], row["late_stderr"])}
        for row in pick(rows, part="prediction", kind="kl")
    ]


def _nearest(rows: Sequence[Row]) -> list[Row]:
    return [
        {
            "estimator": row["predictor"],
            "positions": f"{row['from']}-{row['to']}",
            "KL(model || estimator)": pm(row["from_model"], row["from_model_stderr"]),
            "parameters": ", ".join(f"{name} {value}" for name, value in row["parameters"].items()),
        }
        for row in pick(rows, part="prediction", kind="nearest")
        if row["predictor"].startswith("soft matching") or row["to"] == 96
    ]


def _names(rows: Sequence[Row]) -> list[Row]:
    return [
        {
            "share of names": pm(row["share"], row["share_stderr"]),
            "mass of the alphabet": pm(row["late_alphabet_mass"], None),
            "alphabets": row["alphabets"],
            "chains": row["n"],
        }
        for row in pick(rows, part="prediction", kind="names")
    ]


def _heads(rows: Sequence[Row]) -> list[Row]:
    scanned = sorted(pick(rows, part="heads", kind="head"), key=lambda row: -(row["r2_match"] or 0.0))
    return [
        {
            "head": f"{row['layer']}.{row['head']}",
            "r2_match": row["r2_match"],
            "other masks": row["control_r2_match"],
            "nats": row["nats"],
            "explained": row["nats_explained"],
            "induction": pm(row["repeat_induction"], row["repeat_induction_stderr"]),
            "role": row["role"],
        }
        for row in scanned[:8]
    ]


def _copies(rows: Sequence[Row]) -> list[Row]:
    copying = [row for row in pick(rows, part="heads", kind="head") if row["role"] == "copy"]
    copying.sort(key=lambda row: (row["copy_lag"], -row["copy_mass"]))
    lags = sorted({row["copy_lag"] for row in copying})
    return [
        {
            "lag": lag,
            "heads": ", ".join(
                f"{row['layer']}.{row['head']} ({row['copy_mass']:.2f})" for row in copying if row["copy_lag"] == lag
            ),
        }
        for lag in lags
    ]


def _laws(rows: Sequence[Row]) -> list[Row]:
    return [
        {
            "head": row["name"],
            "beta": pairs(row["beta"], row["beta_stderr"]),
            "kappa": pm(row["kappa"], row["kappa_stderr"], 2),
            "kappa - |beta|": pm(row["kappa_minus_beta"], row["kappa_minus_beta_stderr"], 2),
            "halves apart (s.e.)": max(row["halves_apart"], key=lambda one: one or 0.0),
            "explained": pm(row["nats_explained"], row["nats_explained_stderr"], 2),
            "query gap": row["query_gap"],
            "best law": row["law_best"] if row["law_told"] else f"{row['law_best']} (not told)",
        }
        for row in pick(rows, part="heads", kind="law")
    ]


def _random(rows: Sequence[Row]) -> list[Row]:
    return [{name: value for name, value in row.items() if name != "part"} for row in pick(rows, part="random")]


def _causal(on: str) -> Callable[[Sequence[Row]], list[Row]]:
    def table(rows: Sequence[Row]) -> list[Row]:
        found = pick(rows, part="causal", on=on)
        first = [{"edit": "none", "loss": pm(row["loss_before"], row["loss_before_stderr"])} for row in found[:1]]
        return first + [
            {
                "edit": row["edit"],
                "loss": pm(row["loss"], None),
                "change": pm(row["change"], row["stderr"]),
                "recovered": pm(row["recovered"], row["recovered_stderr"]),
                "control change": pm(row["control_change"], row["control_stderr"]),
                "control recovered": pm(row["control_recovered"], None),
            }
            for row in found
        ]

    return table


def _path(rows: Sequence[Row]) -> list[Row]:
    return [
        {
            "match head": row["name"],
            "mass on the next key": pm(row["mass"], row["mass_stderr"]),
            "without copy heads": pm(row["without_copies"], row["without_copies_stderr"]),
            "without other heads": pm(row["control"], row["control_stderr"]),
            "copy heads": ", ".join(row["copy_heads"]),
        }
        for row in pick(rows, part="causal", on="path")
    ]


def _layers(rows: Sequence[Row]) -> list[Row]:
    return [
        {
            "layer": row["layer"],
            "KL(model || layer)": pm(row["from_final"], row["from_final_stderr"]),
            "KL(truth || layer)": pm(row["kl"], row["stderr"]),
            "mass of the alphabet": row["mass"],
        }
        for row in pick(rows, part="layers")
        if row["layer"] % 3 == 2 or row["from_final"] == 0.0
    ]


def _sink(rows: Sequence[Row]) -> list[Row]:
    return [
        {
            "head": row["name"],
            "queries": f"{row['from']}-{row['to']}",
            "beta": pairs(row["beta"], row["beta_stderr"]),
            "kappa": pm(row["kappa"], row["kappa_stderr"], 2),
            "kappa - |beta|": pm(row["kappa_minus_beta"], row["kappa_minus_beta_stderr"], 2),
            "mass on BOS": pm(row["bos_mass"], row["bos_mass_stderr"]),
        }
        for row in pick(rows, part="sink", kind="band")
    ]


def _without(rows: Sequence[Row]) -> list[Row]:
    return [
        {
            "head": row["name"],
            "BOS": row["bos"],
            "first key": pm(row["first_key"], row["first_key_stderr"]),
            "second key": pm(row["second_key"], row["second_key_stderr"]),
            "beta": pairs(row["beta"], row["beta_stderr"]),
            "KL of the model": pm(row["kl"], row["kl_stderr"]),
        }
        for row in pick(rows, part="sink", kind="without")
    ]


def _gain(rows: Sequence[Row]) -> list[Row]:
    return [
        {
            "contexts": row["positions"],
            "without": row["without"],
            "gain": pm(row["gain"], row["gain_stderr"]),
            "lost of the gain": pm(row["carried"], row["carried_stderr"]),
            "rise of the loss": pm(row["rise"], row["rise_stderr"]),
            "tokens": row["tokens"],
        }
        for row in pick(rows, part="text", kind="gain")
    ]


def _text_laws(rows: Sequence[Row]) -> list[Row]:
    return [
        {
            "head": row["name"],
            "order": row["order"],
            "beta": pairs(row["beta"], row["beta_stderr"], 1),
            "explained": pm(row["nats_explained"], row["nats_explained_stderr"], 2),
            "other masks": row["control_nats_explained"],
        }
        for row in pick(rows, part="text", kind="law")
    ]


TABLES: dict[str, Callable[[Sequence[Row]], list[Row]]] = {
    "What it predicts on chains (nats)": _prediction,
    "The nearest estimators": _nearest,
    "Names": _names,
    "Heads by r2_match on chains": _heads,
    "Heads that look at one lag": _copies,
    "The law of the best heads' attention on chains": _laws,
    "The same architecture with random weights": _random,
    "What the readout reads after some layers": _layers,
    "Edits of the best heads on repeated tokens (second copy)": _causal("repeats"),
    "Edits of the best heads on chains": _causal("chains"),
    "From copy heads to match heads, on repeated tokens": _path,
    "The sink by position": _sink,
    "With and without BOS": _without,
    "Natural text: in-context gain": _gain,
    "Natural text: the law of the attention": _text_laws,
}
