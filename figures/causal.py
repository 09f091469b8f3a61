"""What edits of the live model do to its predictions, beside random controls.

Draws the rows of `python -m analyses causal`.
"""

from __future__ import annotations

from collections.abc import Callable

from figures._causal_picture import EDITS as EDITS
from figures._causal_picture import LEAST, edit_of
from figures._causal_picture import by_lag as by_lag
from figures._causal_picture import draw as draw
from figures._causal_picture import known_edits as known_edits
from figures._instruments import (
    LEAST_RECOVERED,
    SETTINGS,
    Results,
    all_of,
    lengths_text,
    listed,
    only,
    seeds_shown,
    seeds_text,
    shape_text,
    spread,
)
from figures.known_conditions import LAW_RECOVERS, by_family, copying, where_heads_copy
from figures.rows import Row
from figures.verdict import Check, Verdict, judged, sentences

LABEL = "beyond:causal"
ANALYSES = ("causal", "copy_heads")
CLAIM = (
    "Trained transformers do not only behave like the soft matching estimator, they implement it. If so, replacing "
    "the match head's attention by the fitted law's must leave the predictions alone, while the same weights at random "
    "keys, or attention without matches or copies, must not."
)

ERRORS = 2  # standard errors by which a share must lie below LEAST_RECOVERED to count as short of it
FIELDS = (
    "edits",
    "loss",
    "loss_stderr",
    "loss_recovered",
    "loss_recovered_stderr",
    "pair_loss_recovered",
    "pair_loss_recovered_stderr",
    "n",
    "success",
    "message",
)


def chosen(results: Results) -> Results:
    """Every model of the settings: edits are drawn at one length, recovered loss at all; and the lags of copy heads."""
    heads = list(results.get("copy_heads", ()))
    return {
        "causal": [only(row, *FIELDS) for setting in SETTINGS for row in all_of(results["causal"], setting)],
        "copy_heads": [one | {"lag": row.get("lag")} for one, row in zip(copying(heads), heads, strict=True)],
    }


def caption(results: Results) -> str:
    """What is to be seen, with the numbers."""
    rows = results["causal"]
    if not rows:
        return "Edits of the live model: no model was there to be edited."
    edited = [row for _, mine in seeds_shown(rows) for row in mine]
    failed = [row for row in rows if not row["success"]]
    left = f" {len(failed)} models without a law to test, or with no loss to recover, are left out." if failed else ""
    numbers = "; ".join(
        f"{setting.words} {spread([row['loss_recovered'] for row in told])}"
        for setting, mine in seeds_shown(rows)
        if (told := [row for row in mine if row["success"]])
    )
    return (
        f"(a) to (e) Edits of the match head's attention at the last query, and ablations of copy heads, every seed "
        f"of each setting ({lengths_text(edited)}, {shape_text(rows)}, {seeds_text(rows)}, of constructions one; "
        f"n = {rows[0]['n']} held-out sequences): KL(model || edited model), on one logarithmic scale; "
        f"an arrow head is a point at {LEAST:g} nats "
        f"or below. Filled, in the family's colour: the edit; open and grey: its control (the "
        f"grey line joins the medians of the seeds), the same weights or score changes at shuffled keys, "
        f"for BOS the same mass taken from random keys, for a copy head a random move of the same size (even attention "
        f"has none). Copy heads are named by the lag they copy. Standard errors over sequences are at "
        f"most {largest_error(edited):.0%} of a value above 0.001 nats. (f) Loss recovered by the law, "
        f"1 - (L_law - L_model) / (L_even - L_model), cut to [0, 1], where even attention sets the scale "
        f"({lengths_text(rows)}, side by side); bars: one standard error; dashed: {LEAST_RECOVERED}, of which a model "
        f"falls short if it lies more than {ERRORS} standard errors below. Diamonds: the same for the law that "
        f"also compares tokens of unequal lags (corollary:inductive). Loss recovered at "
        f"{lengths_text(edited)}: {numbers}.{left}"
    )


def largest_error(rows: list[Row]) -> float:
    """The largest standard error of a KL that can be seen, as a share of it."""
    return max(
        (
            one[f"{prefix}kl_stderr"] / one[f"{prefix}kl"]
            for row in rows
            for one in row["edits"]
            for prefix in ("", "control_")
            if one[f"{prefix}kl"] is not None and one[f"{prefix}kl"] > 1e-3
        ),
        default=0.0,
    )


def verdict(results: Results) -> Verdict:
    """Trained models: the law's attention recovers the loss, and does less harm than at random keys."""
    checks: dict[str, bool | Check] = {}
    measured, reasons = [], []
    for setting in SETTINGS:
        rows = all_of(results["causal"], setting)
        if not setting.trained or not rows:
            continue
        tested = [row for row in rows if edit_of(row, "law") is not None]
        short_of = [row for row in rows if row not in tested or (row["success"] and falls_short(row))]
        missing = listed(list(dict.fromkeys(f"T = {row['subject']['length']}" for row in short_of)))
        checks[
            f"{setting.words}: the law recovers {LEAST_RECOVERED} of the loss, within {ERRORS} standard errors"
            f"{f' (not {missing})' if missing else ''}"
        ] = by_family(
            setting.family,
            not short_of,
            softmax=LAW_RECOVERS,
            otherwise=where_heads_copy(
                rows,
                results.get("copy_heads", ()),
                met=outside(short_of),
                name=run_name,
            )
            or "",
            found=recovered_in_words(rows),
            part=setting.part,
        )
        checks[f"{setting.words}: the law at shuffled keys does more harm"] = Check(
            passed=bool(tested) and all(harm_is_in_the_keys(row) for row in tested),
            found=harm_in_words(tested),
            part=setting.part,
        )
        numbers = [
            f"T = {row['subject']['length']}{seed_text(row)} "
            + (
                f"{row['loss_recovered']:.3f} ± {row['loss_recovered_stderr']:.3f}"
                if row["success"]
                else f"unknown ({row['message']})"
            )
            for row in rows
        ]
        measured.append(f"{setting.words}: loss recovered {', '.join(numbers)}")
        if short_of and (shares := [row["pair_loss_recovered"] for row in short_of]) and None not in shares:
            reasons.append(
                f"{setting.words}: the law of all lag pairs recovers {spread(shares)} "
                f"({missing}): these models also compare tokens of unequal lags"
                if min(shares) >= LEAST_RECOVERED
                else f"{setting.words}: the law of all lag pairs recovers no more than {min(shares):.3f} either"
            )
    return judged(
        checks,
        measured="; ".join(measured) or "no trained model was edited",
        headline=headline(results["causal"]),
        number=number(results["causal"]),
        why=sentences(reasons),
    )


def recovered_in_words(rows: list[Row]) -> str:
    """What the law recovers in the runs of a setting, and the runs in which there is no law."""
    told = [row["loss_recovered"] for row in rows if row["loss_recovered"] is not None]
    none = [f"no law in {run_name(row)}" for row in rows if row["loss_recovered"] is None]
    return listed([*([f"{spread(told, '.2f')} ({len(told)} runs)"] if told else []), *none])


def harm_in_words(rows: list[Row]) -> str:
    """How far the law, and the same weights at random keys, move the predictions."""
    edits = [edit for row in rows if (edit := edit_of(row, "law")) is not None]
    moved = [spread([edit[field] for edit in edits]) for field in ("kl", "control_kl")] if edits else ["-", "-"]
    return f"predictions move by {moved[0]} nats, with shuffled keys by {moved[1]}"


def recovered_by_family(rows: list[Row]) -> dict[str, str]:
    """The least and the largest share of loss recovered, family by family."""
    found = {}
    for family in dict.fromkeys(setting.family for setting in SETTINGS if setting.trained):
        told = [row["loss_recovered"] for row in rows if row["subject"]["family"] == family and row["success"]]
        if told:
            found[family] = spread(told, ".2f")
    return found


def headline(rows: list[Row]) -> str:
    """The finding, family by family."""
    parts = [f"{share} in {family} models" for family, share in recovered_by_family(rows).items()]
    return f"With the law in place of the attention, this share of the loss is recovered: {listed(parts)}." * bool(
        parts
    )


def number(rows: list[Row]) -> str:
    parts = [f"{family} {share}" for family, share in recovered_by_family(rows).items()]
    return f"loss recovered by soft matching: {', '.join(parts)}" if parts else ""


def outside(rows: list[Row]) -> Callable[[Row], bool]:
    """Whether a row is none of these."""
    return lambda row: all(row is not one for one in rows)


def run_name(row: Row) -> str:
    return f"T = {row['subject']['length']}{seed_text(row)}"


def seed_text(row: Row) -> str:
    """Its seed, where it is known."""
    seed = row["subject"]["seed"]
    return "" if seed is None else f" seed {seed}"


def falls_short(row: Row) -> bool:
    """Whether what is recovered lies below the line by more than its error."""
    return bool(row["loss_recovered"] + ERRORS * row["loss_recovered_stderr"] < LEAST_RECOVERED)


def harm_is_in_the_keys(row: Row) -> bool:
    """Whether the law changes predictions less than the same weights at random keys, beyond three standard errors."""
    law = edit_of(row, "law")
    if law is None:
        return False
    return bool(law["control_kl"] - law["kl"] > 3 * (law["control_kl_stderr"] + law["kl_stderr"]))
