"""A model from elsewhere, in which four heads match: all edited, or one left."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.parts.curves import reach_of
from figures.parts.panels import CONTROL, RULE, ZERO, legend_below
from figures.parts.rows import Results, Row, where
from interp.plotting import MAIN_COLOUR, QUIET, beside, curve, mark

LABEL = "beyond:four_heads"
ANALYSES = {"four_heads": lambda rows: where(rows, success=True)}
CLAIMS = ("four_heads",)
CAPTION = (
    "A plain next-token model that this suite did not make, without BOS (its first token stands in for it), whose "
    "match heads are edited at every query of held-out sequences. Dots: the share of what ablating all of them "
    "costs that an edit recovers, with 95% intervals over sequences. Above the line all heads together: attention "
    "replaced by the fitted law, by hard matching, by even attention. Below it one head alone, the others "
    "ablated, as it is and with its law. Open: the same weights at random keys; an arrow head lies left of the "
    "axis, its value beside it; even attention and heads as they are have none."
)
OPEN: dict[str, Any] = {"color": CONTROL, "markersize": 4, "markerfacecolor": "white"}
TOGETHER = {"law": "the law", "hard": "hard matching", "even": "even attention"}
ALONE = {"only": "as it is", "law": "with its law"}  # the edits that leave one head
LEAST = -0.3  # the left end of the axis


def lines_of(rows: list[Row]) -> dict[str, Row]:
    """The edits by what their line is called: all heads together, then one head."""
    made = {row["edit"]: row for row in rows}
    lines = {f"{name} in all match heads": made[edit] for edit, name in TOGETHER.items() if edit in made}
    for kind, words in ALONE.items():
        for edit, row in made.items():
            if edit.startswith(f"{kind} "):
                lines[f"head {edit.partition(' ')[2]} alone, {words}"] = row
    return lines


def draw(results: Results) -> Figure:
    """What each edit recovers of the loss: all heads together above, one head left below."""
    lines = lines_of(results["four_heads"])
    figure, ax = plt.subplots(figsize=(4.6, 2.8))
    draw_edits(ax, list(lines.values()))
    ax.axhline(sum(row["edit"] in TOGETHER for row in lines.values()) - 0.5, **RULE)
    ax.set_yticks(range(len(lines)), list(lines))
    handles = [
        mark("the edit, with its 95% interval", color=MAIN_COLOUR, marker="o", markersize=4, linestyle="-"),
        mark("its control: the same weights at random keys", marker="o", **OPEN),
    ]
    legend_below(figure, handles, 2)
    return figure


def draw_edits(ax: Axes, rows: list[Row]) -> None:
    """A line for each edit; a control that lies left of the axis is an arrow head with its value."""
    values, reach = [row["recovered"] for row in rows], reach_of(rows, "recovered_stderr")
    look: dict[str, Any] = {"linestyle": "none", "marker": "o", "color": MAIN_COLOUR, "markersize": 4, "zorder": 3}
    curve(ax, values, range(len(rows)), reach=reach, across=True, gid="edits", **look)
    for place, row in enumerate(rows):
        control = row["control_recovered"]
        if control is not None:
            marker = "o" if control > LEAST else "<"
            ax.plot(max(control, LEAST), place, marker, gid=f"control of {row['edit']}", **OPEN)
            if control <= LEAST:
                beside(ax, LEAST, place, f"{control:.1f}", dx=5)
    for share, words, side in ((0.0, "all match heads ablated", "center"), (1.0, "the model as it is", "right")):
        ax.axvline(share, color=QUIET, linewidth=0.6, zorder=0)
        look = {"xycoords": ("data", "axes fraction"), "ha": side, "va": "bottom", "color": ZERO}
        beside(ax, share, 1.0, words, dx=0, dy=2, **look)
    ax.set_xlim(LEAST - 0.05, 1.05)
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("share recovered of what ablating all match heads costs")
