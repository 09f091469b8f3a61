"""What edits of the live model do to its predictions, beside random controls.

Draws the rows of `python -m analyses causal`; those of `copy_heads` say which head copies which lag.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from figures.parts.instruments import SETTINGS, Results, Setting, all_of, only, seeds_shown, setting_fields
from figures.parts.panels import PRIORS_IN_SHORT, absent, whisker
from figures.parts.rows import Row, lengths_of
from models.families.registry import find_family

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABEL = "beyond:causal"
ANALYSES = ("causal", "copy_heads")
CLAIMS = ("law_recovers", "keys_matter")
CAPTION = (
    "(a) to (e) Edits of the match head's attention at the last query, and ablations of copy heads, every seed of "
    "each setting ({shape}, {seeds}; n = {n} held-out sequences): KL(model || edited model), on one logarithmic "
    "scale; an arrow head is a point at its left end or below. Filled, in the family's colour: the edit; open and "
    "grey: its control (the grey line joins the medians of the seeds), the same weights or score changes at "
    "shuffled keys, for BOS the same mass taken from random keys, for a copy head a random move of the same size "
    "(even attention has none). Copy heads are named by the lag they copy. (f) Loss recovered by the law, 1 - "
    "(L_law - L_model) / (L_even - L_model), cut to [0, 1], where even attention sets the scale ({lengths}, side "
    "by side); bars: one standard error. Diamonds: the same for the law that also compares tokens of unequal lags "
    "(corollary:inductive). Models without a law to test, or with no loss to recover, are left out."
)

DARK = "#404040"
CONTROL_EDGE = "#8c8c8c"  # the control's grey, dark enough for an outline
JOINING = "#d9d9d9"
COPIES = "copy_head_"  # edits that ablate a copy head; by the lag that it copies they are called
COPIES_BY_LAG = "copy_lag_"
EDITS = {
    "law": "law",
    "pair_law": "law of all pairs",
    "beta_zero": r"$\beta = 0$",
    "beta_infinite": r"$\beta = \infty$",
    "lag_1_only": "lag 1 only",
    "lag_2_only": "lag 2 only",
    "no_partial": "no partial",
    "no_bos": "no BOS",
    "copy_lag_1": "no copy of lag 1",
    "copy_lag_2": "no copy of lag 2",
    "copy_head_0": "no copy head 0",
    "copy_head_1": "no copy head 1",
    "uniform": "even attention",
}
GROUPS = (  # each begins after a line
    ("law", "pair_law"),
    ("no_bos",),
    ("copy_lag_1", "copy_lag_2", "copy_head_0", "copy_head_1"),
    ("uniform",),
)
LEAST = 1e-4  # nats: a point at the left edge lies there or below
MOST = 20.0
LAWS = {  # field -> name, marker: no open one, which is a control in the panels above
    "loss_recovered": ("the law", "o"),
    "pair_loss_recovered": ("the law of all lag pairs", "D"),
}
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
    return {
        "causal": [only(row, *FIELDS) for setting in SETTINGS for row in all_of(results["causal"], setting)],
        "copy_heads": [only(row, "lag") for row in results.get("copy_heads", ())],
    }


def draw(results: Results) -> Figure:
    """Above, how far each edit moves the predictions, a panel for each setting; below, what the law recovers."""
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D

    lags = {identity(row): row.get("lag") for row in results["copy_heads"]}
    found = {
        setting: [by_lag(row, lags.get(identity(row))) for row in rows]
        for setting, rows in seeds_shown(results["causal"])
    }
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
    mark: dict[str, Any] = {"linestyle": "none", "color": DARK, "markersize": 3.5}
    outline = {**mark, "color": CONTROL_EDGE, "markersize": 4, "markerfacecolor": "white"}
    handles = [
        Line2D([], [], marker="o", label="the edit, each seed", **mark),
        Line2D([], [], marker="o", label="its random control, each seed", **outline),
        Line2D([], [], color=JOINING, linewidth=2.0, label="between their medians"),
        Line2D([], [], marker="<", label=f"{LEAST:g} nats or less", **mark),
    ]
    above.legend(handles=handles, loc="outside upper center", ncols=4, columnspacing=1.2, handletextpad=0.5)
    draw_recovered(below.subplots(), [row for row in results["causal"] if row["success"]])
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
    names = {f"{COPIES}{head}": f"{COPIES_BY_LAG}{lag}" for head, lag in enumerate(lags)}
    return row | {"edits": [one | {"edit": names.get(one["edit"], one["edit"])} for one in row["edits"]]}


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
        ax.plot(ends, [place] * len(ends), color=JOINING, linewidth=2.0, zorder=1, gid="difference")
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
    """A point for each model and law, settings side by side, in each the lengths side by side."""
    if not rows:
        absent(ax, "loss recovered by the law")
        return
    lengths = lengths_of(rows)
    width = 0.86 / len(lengths)  # of a setting: the room of one length
    centres: dict[float, str] = {}
    for index, setting in enumerate(SETTINGS):
        for place, length in enumerate(lengths):
            centre = index + width * (place - (len(lengths) - 1) / 2)
            mine = [row for row in all_of(rows, setting) if row["subject"]["length"] == length]
            if mine:
                centres[centre] = f"T = {length}"
                draw_length(ax, mine, centre=centre, width=width, colour=find_family(setting.family).colour)
        if not all_of(rows, setting):
            ax.text(
                index, 0.5, "no law, or no\nloss to recover", ha="center", va="center", color=DARK,
                transform=ax.get_xaxis_transform(),
            )  # fmt: skip
    lowest = min(row["loss_recovered"] - row["loss_recovered_stderr"] for row in rows)  # the pair law contains the law
    ax.set_ylim(min(0.9, lowest - 0.02), 1.01)
    ax.set_xticks(range(len(SETTINGS)), [short(setting) for setting in SETTINGS])
    ax.set_xticks(list(centres), list(centres.values()), minor=True)
    ax.tick_params(axis="x", which="major", length=0, pad=11)
    ax.set_xlim(-0.5, len(SETTINGS) - 0.5)
    for edge in range(1, len(SETTINGS)):
        ax.axvline(edge - 0.5, color="#e6e6e6", linewidth=0.5, zorder=0)
    ax.set_ylabel("share of the loss")
    ax.set_title(f"({chr(ord('a') + len(SETTINGS))}) loss recovered with the law in place of the attention, each seed")
    recovered_legend(ax)


def draw_length(ax: Axes, rows: list[Row], *, centre: float, width: float, colour: str) -> None:
    """The seeds of one length: the law on the left, the law of all lag pairs on the right."""
    for side, (field, (_, marker)) in zip((-1, 1), LAWS.items(), strict=True):
        for seed, row in enumerate(rows):
            if row[field] is not None:
                x = centre + width * (0.22 * side + 0.13 * (seed - (len(rows) - 1) / 2))
                ax.errorbar(
                    x, row[field], yerr=row[f"{field}_stderr"], fmt=marker, color=colour, markersize=2.8,
                    elinewidth=0.8, gid=field,
                )  # fmt: skip


def recovered_legend(ax: Axes) -> None:
    """What markers and bars of the lower panel are."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=DARK, marker=marker, markersize=4, linestyle="none", label=name)
        for name, marker in LAWS.values()
    ]
    handles.append(whisker("± one standard error"))
    ax.figure.legend(handles=handles, loc="outside lower center", ncols=3, columnspacing=1.5, handletextpad=0.3)


def short(setting: Setting) -> str:
    """Two short lines."""
    task = PRIORS_IN_SHORT.get(setting.prior, setting.prior)
    return f"{setting.family}\n{task} {bos_text(setting)}"


def bos_text(setting: Setting) -> str:
    return "BOS" if setting.bos else "no BOS"


def edit_of(row: Row, name: str) -> dict[str, Any] | None:
    """The edit of that name."""
    return next((one for one in row["edits"] if one["edit"] == name), None)


def fields(results: Results) -> dict[str, object]:
    return setting_fields(results["causal"])
