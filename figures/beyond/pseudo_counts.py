"""The pseudo-count that partial matches make at the lemma's beta, beside alpha."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from figures.parts.curves import length_axis
from figures.parts.figure import every
from figures.parts.panels import labelled, legend_below, lettered, side_by_side
from figures.parts.rows import Results, Row, where
from interp.plotting import mark, whisker

LABEL = "beyond:pseudo_counts"
ANALYSES = {"pseudo_counts": every}
CLAIMS = ("pseudo_count", "pseudo_counts")
CAPTION = (
    "The data-dependent pseudo-count of eq:pseudo_count at the beta(t) of lemma:optimal_beta, over T, for orders "
    "k and vocabularies |V|, on sequences of the independent prior. Markers: mean over sequences and symbols; "
    "bars: from the 5% to the 95% point, a triangle where that range reaches 0. Dashed: alpha, where the lemma "
    "wants the mean. Vocabularies are shifted sideways."
)
COLOURS = ("#003566", "#52796f", "#ffb703", "#882255", "#7f7f7f")
MARKERS = ("o", "s", "^", "D", "v")


def draw(results: Results) -> Figure:
    """A panel for each order: mean and 5% to 95% range over T; vocabularies side by side."""
    rows = results["pseudo_counts"]
    orders, vocabs = (sorted({row[name] for row in rows}) for name in ("order", "vocab"))
    figure, axes = plt.subplots(1, len(orders), figsize=(6.3, 2.6), sharey=True, squeeze=False)
    floor = 0.8 * min(row["low"] if row["low"] > 0 else row["mean"] for row in rows)
    for ax, order in zip(axes[0], orders, strict=True):
        mine = where(rows, order=order)
        for place, vocab in enumerate(vocabs):
            # Side by side: ranges of neighbours would hide each other.
            aside = 2 ** side_by_side(place, len(vocabs), 0.16)
            draw_ranges(ax, where(mine, vocab=vocab), place, aside=aside, floor=floor)
        ax.axhline(mine[0]["alpha"], color="#000000", linestyle="--", linewidth=0.7, zorder=3, label=r"$\alpha$")
        ax.set_title(f"$k = {order}$")
        ax.set_yscale("log")
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.yaxis.set_minor_locator(NullLocator())
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        ax.set_ylim(0.9 * floor, 1.2 * max(row["high"] for row in rows))
        length_axis(ax, [row["length"] for row in mine])
    axes[0, 0].set_ylabel("pseudo-count (marker: mean)")
    lettered(axes[0])
    handles = [*labelled(axes[0]), whisker("5% to 95% of sequences")]
    handles += [mark("down to 0", marker="v")] if any(row["low"] <= 0 for row in rows) else []
    legend_below(figure, handles, len(handles))
    return figure


def draw_ranges(ax: Axes, rows: list[Row], place: int, *, aside: float, floor: float) -> None:
    """One vocabulary: the mean, the range, and a triangle where the range reaches zero."""
    rows = sorted(rows, key=lambda row: row["length"])
    lengths, colour = [row["length"] * aside for row in rows], COLOURS[place % len(COLOURS)]
    lows = [row["low"] if row["low"] > 0 else floor for row in rows]
    ax.vlines(lengths, lows, [row["high"] for row in rows], color=colour, linewidth=0.8)
    to_zero = [length for length, row in zip(lengths, rows, strict=True) if row["low"] <= 0]
    ax.plot(to_zero, [floor] * len(to_zero), "v", color=colour)
    look: dict[str, Any] = {"color": colour, "marker": MARKERS[place % len(MARKERS)]}
    ax.plot(lengths, [row["mean"] for row in rows], label=f"$|V| = {rows[0]['vocab']}$" if rows else None, **look)
