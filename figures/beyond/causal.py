"""What edits of the live model do to its predictions, beside random controls.

The rows of `copy_heads` say which head copies which lag.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.parts.figure import every
from figures.parts.panels import (
    CONTROL,
    legend_above,
    legend_below,
    lettered,
    named_lines,
    of_each_setting,
    parts_of,
    side_by_side,
    whisker,
)
from figures.parts.rows import SETTINGS, Results, Row, lengths_of, of_settings, seeds_shown
from interp.plotting import QUIET, curve, mark
from models.families.registry import find_family

LABEL = "beyond:causal"
ANALYSES = {"causal": of_settings, "copy_heads": every}  # which say the lags of copy heads
CLAIMS = ("law_recovers", "keys_matter")
CAPTION = (
    "Above: edits of the match head's attention at the last query, and ablations of copy heads, every seed of "
    "each setting ({shape}, {seeds}; n = {n} held-out sequences): KL(model || edited model), on one logarithmic "
    "scale; an arrow head is a point at its left end or below. Filled, in the family's colour: the edit; open and "
    "grey: its control (the grey line joins the medians of the seeds), the same weights or score changes at "
    "shuffled keys, for BOS the same mass taken from random keys, for a copy head a random move of the same size "
    "(even attention has none). Copy heads are named by the lag they copy. Below: loss recovered by the law, 1 - "
    "(L_law - L_model) / (L_even - L_model), cut to [0, 1], where even attention sets the scale ({lengths}, side "
    "by side); bars: one standard error. Diamonds: the same for the law that also compares tokens of unequal lags "
    "(corollary:inductive). Models without a law to test, or with no loss to recover, are left out."
)

JOINING = "#d9d9d9"
EDITS = {
    "law": "law", "pair_law": "law of all pairs", "beta_zero": r"$\beta = 0$", "beta_infinite": r"$\beta = \infty$",
    "lag_1_only": "lag 1 only", "lag_2_only": "lag 2 only", "no_partial": "no partial", "no_bos": "no BOS",
    "copy_lag_1": "no copy of lag 1", "copy_lag_2": "no copy of lag 2", "copy_head_0": "no copy head 0",
    "copy_head_1": "no copy head 1", "uniform": "even attention",
}  # fmt: skip
LAST_OF_GROUP = ("pair_law", "no_partial", "no_bos", "copy_lag_2", "copy_head_1")  # followed by a line
LEAST, MOST = 1e-4, 20.0  # nats: a point at the left edge lies there or below
LAWS = {  # field -> name, marker: no open one, which is a control in the panels above
    "loss_recovered": ("the law", "o"),
    "pair_loss_recovered": ("the law of all lag pairs", "D"),
}


def draw(results: Results) -> Figure:
    """Above, how far each edit moves the predictions, a panel for each setting; below, what the law recovers."""
    lags = {identity(row): row.get("lag") for row in results["copy_heads"]}
    rows = [by_lag(row, lags.get(identity(row))) for row in results["causal"]]
    found = of_each_setting(seeds_shown(rows))
    recovered = [row for row in rows if row["success"]]
    figure = plt.figure(figsize=(6.3, 5.0 if recovered else 3.3))
    above, *below = parts_of(figure, rows=2, height_ratios=[1.75, 1.0]) if recovered else [figure]
    panels = above.subplots(1, len(found), squeeze=False)[0]
    edits = known_edits([row for seeds in found.values() for row in seeds])
    for ax, (setting, seeds) in zip(panels, found.items(), strict=True):
        draw_edits(ax, seeds, edits)
        ax.set_title(setting.narrow(seeds[0]))
    named_lines(panels, [EDITS.get(edit, edit) for edit in edits])
    lettered(panels, fontsize=6.5)
    above.supxlabel("KL from the model to the edited model (nats, logarithmic)", fontsize=7)
    handles = [
        mark("the edit, each seed", marker="o"),
        mark("its random control, each seed", marker="o", color=CONTROL, markersize=4, markerfacecolor="white"),
        mark("between their medians", linestyle="-", color=JOINING, linewidth=2.0),
        mark(f"{LEAST:g} nats or less", marker="<"),
    ]
    legend_above(above, handles, 4)
    for part in below:
        draw_recovered(part.subplots(), recovered)
        handles = [mark(name, marker=marker, markersize=4) for name, marker in LAWS.values()]
        legend_below(part, [*handles, whisker("± one standard error")], 3)
    return figure


def identity(row: Row) -> str:
    """Which run a row is of, whatever the analysis."""
    return str(sorted(row["subject"].items()))


def by_lag(row: Row, lags: Sequence[int | None] | None) -> Row:
    """The row with its ablations of copy heads named by the lag that each head copies, where each copies its own.

    Which head copies which lag differs from seed to seed, so that heads of one number are not comparable.
    """
    if not lags or sorted(lags, key=str) != [lag + 1 for lag in range(len(lags))]:
        return row
    names = {f"copy_head_{head}": f"copy_lag_{lag}" for head, lag in enumerate(lags)}
    return row | {"edits": [one | {"edit": names.get(one["edit"], one["edit"])} for one in row["edits"]]}


def known_edits(rows: Sequence[Row]) -> list[str]:
    """The edits that occur, in a fixed order."""
    there = {one["edit"] for row in rows for one in row["edits"]}
    return [edit for edit in EDITS if edit in there] + sorted(there - set(EDITS))


def draw_edits(ax: Axes, rows: list[Row], edits: list[str]) -> None:
    """On each edit's line, for each seed: how far it moves the predictions, and how far its control does."""
    colour = find_family(rows[0]["subject"]["family"]).colour
    for place, edit in enumerate(edits):
        made = [one for row in rows for one in row["edits"] if one["edit"] == edit]
        if not made:
            ax.text(1.3 * LEAST, place, "none to edit", va="center", fontsize=6, color=QUIET)
            continue
        moved = [one["kl"] for one in made]
        controls = [one["control_kl"] for one in made if one["control_kl"] is not None]
        ends = [max(median(values), LEAST) for values in (moved, controls) if values]
        ax.plot(ends, [place] * len(ends), color=JOINING, linewidth=2.0, zorder=1, gid="difference")
        look: dict[str, Any] = {"color": CONTROL, "markersize": 4.0, "gid": "control", "markerfacecolor": "white"}
        draw_points(ax, controls, place, zorder=2, **look)
        draw_points(ax, moved, place, color=colour, markersize=3.5, gid="edit", zorder=3)
        if edit in LAST_OF_GROUP:
            ax.axhline(place + 0.5, color="#e6e6e6", linewidth=0.5)
    ax.set_xscale("log")
    ax.set_xlim(0.6 * LEAST, MOST)
    ax.set_xticks([1e-4, 1e-2, 1], ["0.0001", "0.01", "1"])
    ax.minorticks_off()


def draw_points(ax: Axes, values: list[float], place: int, **look: Any) -> None:
    """Markers on one line; what lies left of the scale is an arrow head at its edge."""
    for value in values:
        ax.plot(max(value, LEAST), place, linestyle="none", marker="o" if value > LEAST else "<", **look)


def draw_recovered(ax: Axes, rows: list[Row]) -> None:
    """A point for each model and law, settings side by side, in each the lengths side by side."""
    lengths = lengths_of(rows)
    width = 0.86 / len(lengths)  # of a setting: the room of one length
    settings = {setting: mine for setting in SETTINGS if (mine := setting.of(rows))}
    centres: dict[float, str] = {}
    for index, models in enumerate(settings.values()):
        for place, length in enumerate(lengths):
            centre = index + side_by_side(place, len(lengths), width)
            if mine := [row for row in models if row["subject"]["length"] == length]:
                centres[centre] = f"T = {length}"
                draw_length(ax, mine, centre=centre, width=width)
    lowest = min(row["loss_recovered"] - row["loss_recovered_stderr"] for row in rows)  # the pair law contains the law
    ax.set_ylim(min(0.9, lowest - 0.02), 1.01)
    ax.set_xticks(range(len(settings)), [setting.short for setting in settings])
    ax.set_xticks(list(centres), list(centres.values()), minor=True)
    ax.tick_params(axis="x", which="major", length=0, pad=11)
    ax.set_xlim(-0.5, len(settings) - 0.5)
    for edge in range(1, len(settings)):
        ax.axvline(edge - 0.5, color="#e6e6e6", linewidth=0.5, zorder=0)
    ax.set_ylabel("share of the loss")
    ax.set_title("loss recovered with the law in place of the attention, each seed")


def draw_length(ax: Axes, rows: list[Row], *, centre: float, width: float) -> None:
    """The seeds of one length: the law on the left, the law of all lag pairs on the right."""
    look: dict[str, Any] = {"linestyle": "none", "color": find_family(rows[0]["subject"]["family"]).colour}
    for side, (field, (_, marker)) in zip((-1, 1), LAWS.items(), strict=True):
        places = [centre + width * (0.22 * side + side_by_side(seed, len(rows), 0.13)) for seed in range(len(rows))]
        values, errors = ([row[name] for row in rows] for name in (field, f"{field}_stderr"))
        curve(ax, places, values, reach=errors, marker=marker, markersize=2.8, gid=field, **look)
