"""What edits of the live model do to its predictions, beside random controls.

Draws the rows of `python -m analyses causal`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from figures._instruments import (
    LEAST_RECOVERED,
    SETTINGS,
    Results,
    Setting,
    all_of,
    lengths_text,
    listed,
    only,
    seeds_text,
    shape_text,
    shown,
)
from figures.known_conditions import LAW_RECOVERS, by_family, runs_that_meet
from figures.panels import PRIORS_IN_SHORT, absent, lettered
from figures.rows import Row, lengths_of
from figures.verdict import Check, Verdict, judged
from interp.plotting import CONTROL_COLOUR, grouped_bars, signed_log
from models.families import find_family

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABEL = "beyond:causal"
ANALYSES = ("causal",)
CLAIM = (
    "Trained transformers do not only behave like the soft matching estimator, they implement it. If so, replacing "
    "the match head's attention by the fitted law's must leave the predictions alone, while the same weights at random "
    "keys, or attention without matches or copies, must not."
)

EDITS = {
    "law": "law",
    "pair_law": "law of all pairs",
    "beta_zero": r"$\beta = 0$",
    "beta_infinite": r"$\beta = \infty$",
    "lag_1_only": "lag 1 only",
    "lag_2_only": "lag 2 only",
    "no_partial": "no partial",
    "no_bos": "no BOS",
    "copy_head_0": "no copy head 0",
    "copy_head_1": "no copy head 1",
    "uniform": "even attention",
}
MEASURES = {"loss": "rise of loss (nats)", "kl": "KL to the model (nats)"}
RECOVERED = {"loss_recovered": "loss recovered", "kl_recovered": "predictions recovered"}
LINEAR_BELOW = 1e-3  # nats: the horizontal scales are linear up to here, then logarithmic
LENGTH_MARKERS = "os^Dv"
ERRORS = 2  # standard errors by which a share must lie below LEAST_RECOVERED to count as short of it
FIELDS = (
    "edits",
    "loss",
    "loss_stderr",
    "loss_recovered",
    "loss_recovered_stderr",
    "kl_recovered",
    "kl_recovered_stderr",
    "pair_loss_recovered",
    "pair_loss_recovered_stderr",
    "pair_kl_recovered",
    "pair_kl_recovered_stderr",
    "n",
    "success",
    "message",
)


def chosen(results: Results) -> Results:
    """Every model of the settings; bars are drawn of one each, recovered loss of all."""
    return {"causal": [only(row, *FIELDS) for setting in SETTINGS for row in all_of(results["causal"], setting)]}


def draw(results: Results) -> Figure:
    """Bars for each setting, loss above and KL below; then what the law recovers."""
    import matplotlib.pyplot as plt
    from matplotlib.patches import Patch

    found = dict(shown(results["causal"]))
    figure = plt.figure(figsize=(6.3, 6.6))
    halves: Any = figure.subfigures(2, 1, height_ratios=[2.7, 1.0])
    above, below = halves
    panels = above.subplots(len(MEASURES), len(SETTINGS), squeeze=False)
    edits = known_edits(list(found.values()))
    for column, setting in enumerate(SETTINGS):
        row = found.get(setting)
        for line, measure in enumerate(MEASURES):
            ax = panels[line, column]
            if row is None:
                absent(ax, setting.title.replace(", ", ",\n"))
                continue
            draw_edits(ax, row, edits, measure, names=column == 0)
            if line == 0:
                task = f"{setting.prior}\n{bos_text(setting)}, T = {row['subject']['length']}"
                ax.set_title(f"({chr(ord('a') + column)}) {setting.family}\n{task}", fontsize=6.5)
    rows = [row for row in results["causal"] if row["success"]]
    for half, (ax, (field, name)) in enumerate(zip(below.subplots(1, 2), RECOVERED.items(), strict=True)):
        if rows:
            draw_recovered(ax, rows, field)
            ax.set_title(f"{name} by the law")
        else:
            absent(ax, name)
        lettered([ax], start=chr(ord("a") + len(SETTINGS) + half))
    families = dict.fromkeys(setting.family for setting in SETTINGS)
    handles = [Patch(facecolor=find_family(name).colour, label=name) for name in families]
    handles.append(Patch(facecolor=CONTROL_COLOUR, label="its random control"))
    above.legend(handles=handles, loc="outside upper center", ncols=4)
    return figure


def known_edits(rows: list[Row]) -> list[str]:
    """The edits that occur, in a fixed order."""
    there = {one["edit"] for row in rows for one in row["edits"]}
    return [edit for edit in EDITS if edit in there] + sorted(there - set(EDITS))


def draw_edits(ax: Axes, row: Row, edits: list[str], measure: str, *, names: bool) -> None:
    """Two bars for each edit: what it did, and what its control did."""
    made = {one["edit"]: one for one in row["edits"]}
    value = {"loss": "loss_change", "kl": "kl"}[measure]

    def column(field: str) -> NDArray[Any]:
        return np.array([made.get(edit, {}).get(field) for edit in edits], dtype=np.float64)

    grouped_bars(
        ax,
        [EDITS.get(edit, edit) if names else "" for edit in edits],
        {prefix: column(f"{prefix}{value}") for prefix in ("", "control_")},
        stderrs={prefix: column(f"{prefix}{measure}_stderr") for prefix in ("", "control_")},
        colours={"": find_family(row["subject"]["family"]).colour, "control_": CONTROL_COLOUR},
        reach=1.0,
        across=True,
    )
    for place, edit in enumerate(edits):
        if edit not in made:
            ax.text(0.0, place, " none to edit", va="center", fontsize=6, color="#7f7f7f")
    signed_log(ax, linear_below=LINEAR_BELOW)
    ax.set_xlim(-1.1 * LINEAR_BELOW, 10)
    ax.set_xticks([0, 0.01, 1], ["0", "0.01", "1"])
    ax.set_xlabel(MEASURES[measure].replace(" (", "\n("))


def draw_recovered(ax: Axes, rows: list[Row], field: str) -> None:
    """A point for each model, settings side by side, lengths by marker."""
    lengths = lengths_of(rows)
    for place, length in enumerate(lengths):
        points = [
            (index + 0.16 * (place - (len(lengths) - 1) / 2), row)
            for index, setting in enumerate(SETTINGS)
            for row in all_of(rows, setting)
            if row["subject"]["length"] == length
        ]
        ax.errorbar(
            [x for x, _ in points],
            [row[field] for _, row in points],
            yerr=[row[f"{field}_stderr"] for _, row in points],
            fmt=LENGTH_MARKERS[place % len(LENGTH_MARKERS)],
            color="#000000",
            markersize=3,
            linewidth=0.6,
            label=f"$T = {length}$",
        )
        for x, row in points:
            marker, colour = LENGTH_MARKERS[place % len(LENGTH_MARKERS)], find_family(row["subject"]["family"]).colour
            ax.plot(x, row[field], marker, markersize=3, color=colour, zorder=3)
            if row[f"pair_{field}"] is not None:
                ax.plot(x, row[f"pair_{field}"], marker, markersize=5, color=colour, fillstyle="none", linewidth=0.6)
    ax.axhline(LEAST_RECOVERED, color="#000000", linewidth=0.8, linestyle="--")
    lowest = min(row[field] - row[f"{field}_stderr"] for row in rows)  # the pair law contains the law
    ax.set_ylim(min(0.9, lowest - 0.02), 1.01)
    ax.set_xticks(range(len(SETTINGS)), [short(setting) for setting in SETTINGS])
    ax.set_xlim(-0.5, len(SETTINGS) - 0.5)
    ax.set_ylabel("share")
    ax.legend(loc="lower left", fontsize=6, handletextpad=0.1, borderaxespad=0.0)


def short(setting: Setting) -> str:
    """Three short lines."""
    task = PRIORS_IN_SHORT.get(setting.prior, setting.prior)
    return f"{find_family(setting.family).short}\n{task}\n{bos_text(setting)}"


def bos_text(setting: Setting) -> str:
    return "BOS" if setting.bos else "no BOS"


def edit_of(row: Row, name: str) -> dict[str, Any] | None:
    """The edit of that name."""
    return next((one for one in row["edits"] if one["edit"] == name), None)


def caption(results: Results) -> str:
    """What is to be seen, with the numbers."""
    rows = results["causal"]
    if not rows:
        return "Edits of the live model: no model was there to be edited."
    barred = [row for _, row in shown(rows)]
    failed = [row for row in rows if not row["success"]]
    left = (
        f" {len(failed)} models without a law to test, or with no loss to recover, are left out of (f) and (g)."
        if failed
        else ""
    )
    numbers = "; ".join(
        f"{setting.words} {row['loss_recovered']:.3f} ± {row['loss_recovered_stderr']:.3f}"
        for setting, row in shown(rows)
        if row["success"]
    )
    return (
        f"Edits of the match head's attention at the last query, and ablations of copy heads, one model of each "
        f"setting ({lengths_text(barred)}, {shape_text(rows)}, {seeds_text(rows)}; n = {rows[0]['n']} held-out "
        f"sequences). Coloured: the edit; grey: its control, the same weights or score changes at shuffled keys, for "
        f"BOS the same mass taken from random keys, for a copy head a random move of the same size; which head copies "
        f"which lag differs from model to model. Top: rise of KL(truth || prediction); middle: KL(model || edited "
        f"model). Scales are linear up to {LINEAR_BELOW:g} nats and logarithmic above; bars are one standard error "
        f"over sequences. Bottom: 1 - (L_law - L_model) / (L_even - L_model), cut to [0, 1], where even attention sets "
        f"the scale, and the same for KL from the model, at every length ({lengths_text(rows)}); dashed: "
        f"{LEAST_RECOVERED}, of which a model falls short if it lies more than {ERRORS} standard errors below. Open "
        f"markers: the same for the law that also compares tokens of unequal lags (corollary:inductive). Loss "
        f"recovered: {numbers}.{left}"
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
        missing = listed([f"T = {row['subject']['length']}" for row in short_of])
        checks[
            f"{setting.words}: the law recovers {LEAST_RECOVERED} of the loss, within {ERRORS} standard errors"
            f"{f' (not {missing})' if missing else ''}"
        ] = by_family(
            setting.family,
            not short_of,
            otherwise=runs_that_meet(len(rows) - len(short_of), len(rows)),
            softmax=LAW_RECOVERS,
            found=listed([f"{row['loss_recovered']:.2f}" for row in short_of if row["loss_recovered"] is not None]),
        )
        checks[f"{setting.words}: the law at shuffled keys does more harm"] = bool(tested) and all(
            harm_is_in_the_keys(row) for row in tested
        )
        numbers = [
            f"T = {row['subject']['length']} "
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
                f"{setting.words}: the law of all lag pairs recovers {listed([f'{share:.3f}' for share in shares])} "
                f"({missing}): these models also compare tokens of unequal lags"
                if min(shares) >= LEAST_RECOVERED
                else f"{setting.words}: the law of all lag pairs recovers no more than {min(shares):.3f} either"
            )
    return judged(
        checks,
        measured="; ".join(measured) or "no trained model was edited",
        headline=recovered_by_family(results["causal"]),
        why=". ".join(reasons),
    )


def recovered_by_family(rows: list[Row]) -> str:
    """The least and the largest share of loss recovered, family by family."""
    parts = []
    for family in dict.fromkeys(setting.family for setting in SETTINGS if setting.trained):
        told = [row["loss_recovered"] for row in rows if row["subject"]["family"] == family and row["success"]]
        if told:
            parts.append(f"{family} {min(told):.2f} to {max(told):.2f}")
    return f"loss recovered by the law: {', '.join(parts)}" if parts else ""


def falls_short(row: Row) -> bool:
    """Whether what is recovered lies below the line by more than its error."""
    return bool(row["loss_recovered"] + ERRORS * row["loss_recovered_stderr"] < LEAST_RECOVERED)


def harm_is_in_the_keys(row: Row) -> bool:
    """Whether the law changes predictions less than the same weights at random keys, beyond three standard errors."""
    law = edit_of(row, "law")
    if law is None:
        return False
    return bool(law["control_kl"] - law["kl"] > 3 * (law["control_kl_stderr"] + law["kl_stderr"]))
