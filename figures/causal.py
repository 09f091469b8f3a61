"""What edits of the live model do to its predictions, beside random controls.

Draws the rows of `python -m analyses causal`.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import TYPE_CHECKING, Any

from figures._instruments import (
    LEAST_RECOVERED,
    SETTINGS,
    Results,
    Setting,
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
from figures.panels import PRIORS_IN_SHORT, absent
from figures.rows import Row, lengths_of
from figures.verdict import Check, Verdict, judged, sentences
from models.families import find_family

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABEL = "beyond:causal"
ANALYSES = ("causal", "copy_heads")
CLAIM = (
    "Trained transformers do not only behave like the soft matching estimator, they implement it. If so, replacing "
    "the match head's attention by the fitted law's must leave the predictions alone, while the same weights at random "
    "keys, or attention without matches or copies, must not."
)

DARK = "#404040"
CONTROL_EDGE = "#8c8c8c"  # the control's grey, dark enough for an outline
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
GROUPS = (("law", "pair_law"), ("no_bos",), ("copy_head_0", "copy_head_1"), ("uniform",))  # each begins after a line
LEAST = 1e-4  # nats: a point at the left edge lies there or below
MOST = 20.0
LENGTH_MARKERS = "os^Dv"
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
    """Every model of the settings; edits are drawn of one each, recovered loss of all."""
    return {
        "causal": [only(row, *FIELDS) for setting in SETTINGS for row in all_of(results["causal"], setting)],
        "copy_heads": copying(results.get("copy_heads", ())),
    }


def draw(results: Results) -> Figure:
    """Above, how far each edit moves the predictions, a panel for each setting; below, what the law recovers."""
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D

    found = dict(seeds_shown(results["causal"]))
    figure = plt.figure(figsize=(6.3, 5.0))
    halves: Any = figure.subfigures(2, 1, height_ratios=[1.75, 1.0])
    above, below = halves
    panels = above.subplots(1, len(SETTINGS), squeeze=False)[0]
    edits = known_edits([row for rows in found.values() for row in rows])
    first = next((place for place, setting in enumerate(SETTINGS) if setting in found), 0)
    for column, (setting, ax) in enumerate(zip(SETTINGS, panels, strict=True)):
        rows = found.get(setting)
        if rows is None:
            absent(ax, setting.title.replace(", ", ",\n"))
            continue
        draw_edits(ax, rows, edits, names=column == first)
        task = f"{setting.prior}\n{bos_text(setting)}, T = {rows[0]['subject']['length']}"
        ax.set_title(f"({chr(ord('a') + column)}) {setting.family}\n{task}", fontsize=6.5)
    if found:
        above.supxlabel("KL from the model to the edited model (nats, logarithmic)", fontsize=7)
    handles = [
        Line2D(
            [], [], color=DARK, marker="o", markersize=3.5, linestyle="none",
            label="the edit, each seed (colour: family)",
        ),
        Line2D(
            [], [], color=CONTROL_EDGE, marker="o", markersize=4, markerfacecolor="white", linestyle="none",
            label="its random control, each seed",
        ),
        Line2D([], [], color=DARK, marker="<", markersize=3.5, linestyle="none", label=f"{LEAST:g} nats or less"),
    ]  # fmt: skip
    above.legend(handles=handles, loc="outside upper center", ncols=3)
    draw_recovered(below.subplots(), [row for row in results["causal"] if row["success"]])
    return figure


def known_edits(rows: list[Row]) -> list[str]:
    """The edits that occur, in a fixed order."""
    there = {one["edit"] for row in rows for one in row["edits"]}
    return [edit for edit in EDITS if edit in there] + sorted(there - set(EDITS))


def draw_edits(ax: Axes, rows: list[Row], edits: list[str], *, names: bool) -> None:
    """On each edit's line, for each seed: how far it moves the predictions, and how far its control does."""
    colour = find_family(rows[0]["subject"]["family"]).colour
    for place, edit in enumerate(edits):
        made = [one for row in rows if (one := edit_of(row, edit)) is not None]
        if not made:
            ax.text(1.3 * LEAST, place, "none to edit", va="center", fontsize=6, color="#7f7f7f")
            continue
        moved = [one["kl"] for one in made]
        controls = [one["control_kl"] for one in made if one["control_kl"] is not None]
        ends = [max(median(values), LEAST) for values in (moved, controls) if values]
        ax.plot(ends, [place] * len(ends), color="#d9d9d9", linewidth=2.0, zorder=1, gid="difference")
        for value in controls:
            point(ax, value, place, CONTROL_EDGE, size=4.0, gid="control", markerfacecolor="white")
        for value in moved:
            point(ax, value, place, colour, size=3.5, gid="edit", zorder=3)
    for group in GROUPS:
        if any(edit in edits for edit in group):
            ax.axhline(min(edits.index(edit) for edit in group if edit in edits) - 0.5, color="#e6e6e6", linewidth=0.5)
            ax.axhline(max(edits.index(edit) for edit in group if edit in edits) + 0.5, color="#e6e6e6", linewidth=0.5)
    ax.set_xscale("log")
    ax.set_xlim(0.6 * LEAST, MOST)
    ax.set_xticks([1e-4, 1e-2, 1], ["0.0001", "0.01", "1"])
    ax.minorticks_off()
    ax.set_ylim(len(edits) - 0.5, -0.5)
    ax.set_yticks(range(len(edits)), [EDITS.get(edit, edit) if names else "" for edit in edits])
    ax.tick_params(axis="y", length=0)


def point(ax: Axes, value: float, place: float, colour: str, *, size: float, gid: str, **options: Any) -> None:
    """A marker; what lies left of the scale is an arrow head at its edge."""
    marker = "o" if value > LEAST else "<"
    ax.plot(
        max(value, LEAST), place, marker, color=colour, markersize=size, gid=gid, **{"zorder": 2, **options}
    )  # fmt: skip


def draw_recovered(ax: Axes, rows: list[Row]) -> None:
    """A point for each model, settings side by side, lengths by marker; open markers for the law of all lag pairs."""
    from matplotlib.lines import Line2D

    if not rows:
        absent(ax, "loss recovered by the law")
        return
    lengths = lengths_of(rows)
    for place, length in enumerate(lengths):
        marker = LENGTH_MARKERS[place % len(LENGTH_MARKERS)]
        for index, setting in enumerate(SETTINGS):
            mine = [row for row in all_of(rows, setting) if row["subject"]["length"] == length]
            for seed, row in enumerate(mine):
                x = index + 0.42 * (place - (len(lengths) - 1) / 2) + 0.06 * (seed - (len(mine) - 1) / 2) - 0.09
                colour = find_family(setting.family).colour
                ax.errorbar(
                    x, row["loss_recovered"], yerr=row["loss_recovered_stderr"], fmt=marker, color=colour,
                    markersize=3, elinewidth=0.8, gid="law",
                )  # fmt: skip
                if row["pair_loss_recovered"] is not None:
                    ax.errorbar(
                        x + 0.2, row["pair_loss_recovered"], yerr=row["pair_loss_recovered_stderr"], fmt=marker,
                        color=colour, markersize=3, markerfacecolor="white", elinewidth=0.8, gid="pair law",
                    )  # fmt: skip
    for index, setting in enumerate(SETTINGS):
        if not all_of(rows, setting):
            ax.text(index, LEAST_RECOVERED - 0.01, "no law, or no\nloss to recover", ha="center", va="top", color=DARK)
    ax.axhline(LEAST_RECOVERED, color=DARK, linewidth=0.8, linestyle="--", zorder=0)
    lowest = min(row["loss_recovered"] - row["loss_recovered_stderr"] for row in rows)  # the pair law contains the law
    ax.set_ylim(min(0.9, lowest - 0.02), 1.01)
    ax.set_xticks(range(len(SETTINGS)), [short(setting) for setting in SETTINGS])
    ax.set_xlim(-0.5, len(SETTINGS) - 0.5)
    for edge in range(1, len(SETTINGS)):
        ax.axvline(edge - 0.5, color="#e6e6e6", linewidth=0.5, zorder=0)
    ax.set_ylabel("share of the loss")
    ax.set_title(f"({chr(ord('a') + len(SETTINGS))}) loss recovered with the law in place of the attention")
    mark: dict[str, Any] = {"color": DARK, "linestyle": "none", "markersize": 4}
    handles = [
        Line2D([], [], marker=LENGTH_MARKERS[place % len(LENGTH_MARKERS)], label=f"T = {length}", **mark)
        for place, length in enumerate(lengths)
    ]
    handles += [
        Line2D([], [], marker=LENGTH_MARKERS[0], label="filled: the law", **mark),
        Line2D(
            [], [], marker=LENGTH_MARKERS[0], markerfacecolor="white", label="open: the law of all lag pairs", **mark
        ),
        Line2D([], [], color=DARK, linewidth=0.8, linestyle="--", label=f"asked: {LEAST_RECOVERED}"),
        Line2D([], [], color=DARK, marker="|", markersize=7, linestyle="none", label="bar: ± one standard error"),
    ]
    ax.figure.legend(handles=handles, loc="outside lower center", ncols=6, columnspacing=1.0, handletextpad=0.3)


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
        f"or below. Filled: the edit; open and grey: its control (the "
        f"grey line joins the medians of the seeds), the same weights or score changes at shuffled keys, "
        f"for BOS the same mass taken from random keys, for a copy head a random move of the same size (even attention "
        f"has none). Which head copies which lag differs from model to model. Standard errors over sequences are at "
        f"most {largest_error(edited):.0%} of a value above 0.001 nats. (f) Loss recovered by the law, "
        f"1 - (L_law - L_model) / (L_even - L_model), cut to [0, 1], where even attention sets the scale "
        f"({lengths_text(rows)}, side by side); bars: one standard error; dashed: {LEAST_RECOVERED}, of which a model "
        f"falls short if it lies more than {ERRORS} standard errors below. Open markers: the same for the law that "
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
