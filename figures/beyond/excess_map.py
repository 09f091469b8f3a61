"""Where the best soft matching is far from Bayes, and for which queries.

Draws the rows of `python -m analyses excess_map`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from figures.parts.panels import absent, lettered, whisker
from figures.parts.rows import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABEL = "beyond:excess_map"
ANALYSES = ("excess_map",)
CLAIMS = ("near_bayes_worlds",)
CAPTION = (
    "{worlds} worlds: the hierarchical prior with BOS, eta alike at all levels. (a) to (f) What soft matching at "
    "its searched optimum adds to the KL of the Bayes predictor (Gibbs sampling), as a share of Bayes' own KL, "
    "against the length, on one scale; bars: one standard error. T = 1024 at eta = 7 only. (g) By how often the "
    "query's full context was visited before: left bar, the share of the queries; right bar, the share of the "
    "excess that they carry; the mean over all worlds of that length."
)

ETAS: dict[float, tuple[str, str, Any]] = {  # colour, marker, line
    1.0: ("#5b99c2", "o", ":"),
    7.0: ("#003566", "s", "-"),
    50.0: ("#c1121f", "^", "--"),
}
VISITS = {  # a context that is new, then ever paler
    "0": "#08306b",
    "1": "#2171b5",
    "2-3": "#6baed6",
    "4-7": "#b3d0e8",
    "8+": "#eff3ff",
}


def chosen(results: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """Every world."""
    return {"excess_map": list(results["excess_map"])}


def draw(results: dict[str, list[Row]]) -> Figure:
    """The excess over length, a panel for each order and vocabulary on one scale, then who carries it."""
    import matplotlib.pyplot as plt

    rows = results["excess_map"]
    figure = plt.figure(figsize=(6.3, 3.7))
    if not rows:
        absent(figure.add_subplot(), "the worlds")
        return figure
    vocabs, orders = (sorted({row[name] for row in rows}) for name in ("vocab", "order"))
    grid = figure.add_gridspec(len(vocabs), len(orders) + 1, width_ratios=[1.0] * len(orders) + [1.3])
    largest = max(row["share"] + row["share_stderr"] for row in rows)
    lengths = sorted({row["length"] for row in rows})
    panels = []
    for line, vocab in enumerate(vocabs):
        for column, order in enumerate(orders):
            ax = figure.add_subplot(grid[line, column])
            draw_shares(ax, [row for row in rows if (row["vocab"], row["order"]) == (vocab, order)])
            ax.set_ylim(0, 1.03 * largest)
            ax.set_xlim(0.8 * lengths[0], 1.25 * lengths[-1])
            ax.set_xticks(lengths, [str(length) for length in lengths] if vocab == vocabs[-1] else [])
            ax.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
            ax.tick_params(labelleft=column == 0)
            ax.set_xlabel("length T" if vocab == vocabs[-1] else "")
            ax.set_title(f"k = {order}, |V| = {vocab}", loc="left")
            panels.append(ax)
    figure.supylabel("KL above Bayes, share of Bayes' KL", fontsize=7)
    eta_legend(figure)
    visits = figure.add_subplot(grid[:, -1])
    draw_visits(visits, rows)
    lettered([*panels, visits])
    return figure


def draw_shares(ax: Axes, rows: list[Row]) -> None:
    """One line per eta."""
    for place, (eta, (colour, marker, line)) in enumerate(ETAS.items()):
        mine = sorted((row for row in rows if row["eta"] == eta), key=lambda row: row["length"])
        if mine:
            shift = 1.0 + 0.08 * (place - 1)  # so that error bars do not hide each other
            ax.errorbar(
                [row["length"] * shift for row in mine], [row["share"] for row in mine],
                yerr=[row["share_stderr"] for row in mine], color=colour, marker=marker, markersize=3,
                linestyle=line, linewidth=0.9, elinewidth=0.7,
            )  # fmt: skip
    ax.set_xscale("log", base=2)
    ax.minorticks_off()


def eta_legend(figure: Figure) -> None:
    """Lines are etas; the bars are named."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=colour, marker=marker, markersize=3, linestyle=line, label=rf"$\eta$ = {eta:g}")
        for eta, (colour, marker, line) in ETAS.items()
    ]
    handles += [
        whisker("± one standard error"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=5, columnspacing=1.5)


def draw_visits(ax: Axes, rows: list[Row]) -> None:
    """For each length two bars: how queries, and how the excess, are spread over visits; the mean over worlds."""
    lengths = sorted({row["length"] for row in rows})
    for place, length in enumerate(lengths):
        here = [row for row in rows if row["length"] == length]
        for side, what in enumerate(("queries", "excess")):
            bottom = 0.0
            for name, colour in VISITS.items():
                height = sum(row[f"{what}_{name}"] for row in here) / len(here)
                ax.bar(
                    place + 0.4 * side - 0.2, height, bottom=bottom, width=0.36, color=colour, edgecolor="#555555",
                    linewidth=0.3,
                    label=name if (place, side) == (0, 0) else None,
                )  # fmt: skip
                bottom += height
    ax.set_xticks(range(len(lengths)), [str(length) for length in lengths])
    ax.set_ylim(0, 1.3)  # room for the legend
    ax.set_yticks([0.0, 0.25, 0.5, 0.75, 1.0])
    ax.set_xlabel("length T (left bar: queries,\nright bar: excess)")
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    ax.set_title("who carries it", loc="left")
    ax.legend(
        fontsize=6, loc="upper center", ncols=3, columnspacing=1.0, handlelength=1.2, title="visits of the context",
        title_fontsize=6,
    )  # fmt: skip


def fields(results: dict[str, list[Row]]) -> dict[str, object]:
    return {"worlds": len(results["excess_map"])}
