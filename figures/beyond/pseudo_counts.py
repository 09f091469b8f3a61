"""The pseudo-count that partial matches make at the lemma's beta, beside alpha."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from figures.parts.curves import length_axis
from figures.parts.panels import absent, lettered
from figures.parts.rows import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LABEL = "beyond:pseudo_counts"
ANALYSES = ("pseudo_counts",)
CLAIMS = ("pseudo_count", "pseudo_counts")
CAPTION = (
    "The data-dependent pseudo-count of eq:pseudo_count at the beta(t) of lemma:optimal_beta, over T, for orders "
    "k and vocabularies |V|, on sequences of the independent prior. Markers: mean over sequences and symbols; "
    "bars: from the 5% to the 95% point, a triangle where that range reaches 0. Dashed: alpha, where the lemma "
    "wants the mean. Vocabularies are shifted sideways."
)

FIELDS = (
    "order", "vocab", "length", "alpha", "beta", "mean", "stderr", "ratio", "sd", "variation", "low", "high",
    "within_two", "n",
)  # fmt: skip
COLOURS = ("#003566", "#52796f", "#ffb703", "#882255", "#7f7f7f")
MARKERS = ("o", "s", "^", "D", "v")


def chosen(results: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """Every setting, without the expected counts."""
    return {"pseudo_counts": [{name: row[name] for name in FIELDS} for row in results["pseudo_counts"]]}


def draw(results: dict[str, list[Row]]) -> Figure:
    """A panel for each order: mean and 5% to 95% range over T; vocabularies side by side."""
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D
    from matplotlib.ticker import LogLocator, NullLocator

    rows = results["pseudo_counts"]
    orders = sorted({row["order"] for row in rows}) or [2]
    vocabs = sorted({row["vocab"] for row in rows})
    figure, axes = plt.subplots(1, len(orders), figsize=(6.3, 2.6), sharey=True, squeeze=False)
    handles: dict[str, Any] = {}
    floor = 0.8 * min((row["low"] if row["low"] > 0 else row["mean"] for row in rows), default=1.0)
    for ax, order in zip(axes[0], orders, strict=True):
        mine = [row for row in rows if row["order"] == order]
        ax.set_title(f"$k = {order}$", loc="left")
        if not mine:
            absent(ax, "pseudo-counts")
            continue
        for place, vocab in enumerate(vocabs):
            here = sorted((row for row in mine if row["vocab"] == vocab), key=lambda row: row["length"])
            # Side by side: ranges of neighbours would hide each other.
            lengths = [row["length"] * 2 ** (0.16 * (place - (len(vocabs) - 1) / 2)) for row in here]
            colour = COLOURS[place % len(COLOURS)]
            lows = [row["low"] if row["low"] > 0 else floor for row in here]
            ax.vlines(lengths, lows, [row["high"] for row in here], color=colour, linewidth=0.8)
            to_zero = [length for length, row in zip(lengths, here, strict=True) if row["low"] <= 0]
            ax.plot(to_zero, [floor] * len(to_zero), "v", color=colour, markersize=3, linestyle="none")
            (handles[f"$|V| = {vocab}$"],) = ax.plot(
                lengths, [row["mean"] for row in here], color=colour, marker=MARKERS[place % len(MARKERS)]
            )
        handles[r"$\alpha$"] = ax.axhline(mine[0]["alpha"], color="#000000", linestyle="--", linewidth=0.7, zorder=3)
        ax.set_yscale("log")
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.yaxis.set_minor_locator(NullLocator())
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        ax.set_ylim(0.9 * floor, 1.2 * max(row["high"] for row in rows))
        length_axis(ax, [row["length"] for row in mine])
    axes[0, 0].set_ylabel("pseudo-count (marker: mean)")
    handles["bar: 5% to 95% of sequences"] = Line2D([], [], color="#404040", marker="|", linestyle="none", markersize=7)
    if any(row["low"] <= 0 for row in rows):
        handles["down to 0"] = Line2D([], [], color="#404040", marker="v", linestyle="none", markersize=3)
    lettered(axes[0])
    if handles:
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=len(handles))
    return figure
