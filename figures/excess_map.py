"""Where the best soft matching is far from Bayes, and for which queries.

Draws the rows of `python -m analyses excess_map`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from figures.panels import absent, lettered, whisker
from figures.rows import Row
from figures.verdict import Verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABEL = "beyond:excess_map"
ANALYSES = ("excess_map",)
CLAIM = (
    "Question: soft matching with its best beta and kappa is close to the Bayes predictor in the paper's world. Is it "
    "close in others, and where it is not, which queries carry the difference?"
)

ORDERS = {1: "#5b99c2", 2: "#003566", 3: "#c1121f"}
ETAS: dict[float, tuple[str, Any]] = {1.0: ("o", ":"), 7.0: ("s", "-"), 50.0: ("^", "--")}
VISITS = {
    "0": "#c1121f",
    "1": "#fde0a0",
    "2-3": "#a9cbe3",
    "4-7": "#5b99c2",
    "8+": "#003566",
}  # new, then paler to dark
NEAR = 0.05  # of Bayes' KL


def chosen(results: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """Every world."""
    return {"excess_map": list(results["excess_map"])}


def draw(results: dict[str, list[Row]]) -> Figure:
    """The excess over length for each vocabulary, then who carries it."""
    import matplotlib.pyplot as plt

    rows = results["excess_map"]
    figure, axes = plt.subplots(1, 3, figsize=(6.3, 3.0))
    if not rows:
        for ax in axes:
            absent(ax, "the worlds")
        return figure
    vocabs = sorted({row["vocab"] for row in rows})
    for ax, vocab in zip(axes, (vocabs[0], vocabs[-1]), strict=False):
        draw_shares(ax, [row for row in rows if row["vocab"] == vocab])
        ax.set_title(f"|V| = {vocab}", loc="left")
    axes[0].set_ylabel("KL above Bayes, share of Bayes' KL")
    largest = max(row["share"] + row["share_stderr"] for row in rows)
    for ax in axes[:2]:
        ax.set_ylim(0, 1.03 * largest)
    order_and_eta_legend(figure)
    draw_visits(axes[2], rows)
    lettered(axes)
    return figure


def draw_shares(ax: Axes, rows: list[Row]) -> None:
    """One line per order and eta."""
    lengths = sorted({row["length"] for row in rows})
    for order, colour in ORDERS.items():
        for place, (eta, (marker, line)) in enumerate(ETAS.items()):
            mine = sorted((r for r in rows if (r["order"], r["eta"]) == (order, eta)), key=lambda row: row["length"])
            if mine:
                shift = 1.0 + 0.05 * (place - 1)  # so that error bars do not hide each other
                ax.errorbar(
                    [row["length"] * shift for row in mine], [row["share"] for row in mine],
                    yerr=[row["share_stderr"] for row in mine], color=colour, marker=marker, markersize=3,
                    linestyle=line, linewidth=0.9, elinewidth=0.5,
                )  # fmt: skip
    ax.axhline(NEAR, color="#7f7f7f", linewidth=0.6, linestyle=":")
    ax.set_xscale("log", base=2)
    ax.set_xticks(lengths, [str(length) for length in lengths])
    ax.minorticks_off()
    ax.set_xlabel("length T")
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")


def order_and_eta_legend(figure: Figure) -> None:
    """Colours are orders, marks are etas."""
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=colour, label=f"(a, b) k = {order}") for order, colour in ORDERS.items()]
    handles += [
        Line2D(
            [],
            [],
            color="#000000",
            marker=marker,
            markersize=3,
            linestyle=line,
            linewidth=0.9,
            label=rf"$\eta$ = {eta:g}",
        )
        for eta, (marker, line) in ETAS.items()
    ]
    handles += [
        Line2D([], [], color="#7f7f7f", linewidth=0.6, linestyle=":", label=f"{NEAR:.0%} of Bayes' KL"),
        whisker("± one standard error"),
    ]
    figure.legend(handles=handles, loc="outside lower left", ncols=4, columnspacing=1.2)


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
                    place + 0.4 * side - 0.2, height, bottom=bottom, width=0.36, color=colour,
                    label=name if (place, side) == (0, 0) else None,
                )  # fmt: skip
                bottom += height
    ax.set_xticks(range(len(lengths)), [str(length) for length in lengths])
    ax.set_ylim(0, 1.3)  # room for the legend
    ax.set_yticks([0.0, 0.25, 0.5, 0.75, 1.0])
    ax.set_xlabel("length T\n(left: queries, right: excess)")
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    ax.set_title("visits of the context", loc="left")
    ax.legend(fontsize=6, loc="upper center", ncols=3, columnspacing=1.0, handlelength=1.2)


def caption(results: dict[str, list[Row]]) -> str:
    """What is to be seen, with the numbers."""
    rows = results["excess_map"]
    if not rows:
        return "Excess over Bayes across worlds: no worlds."
    return (
        f"{len(rows)} worlds: the hierarchical prior with BOS, eta alike at all levels. (a, b) What soft matching at "
        "its searched optimum adds to the KL of the Bayes predictor (Gibbs sampling), as a share of Bayes' own KL, "
        "against the length; bars are standard errors; dotted: 5%. T = 1024 at eta = 7 only. (c) By how often the "
        "query's full context was visited before: left bar, the share of the queries; right bar, the share of the "
        "excess that they carry; the mean over all worlds of that length."
    )


def verdict(results: dict[str, list[Row]]) -> Verdict:
    """In how many worlds soft matching is near Bayes."""
    rows = results["excess_map"]
    if not rows:
        return Verdict(word="cannot tell", measured="no worlds")
    near = sum(row["share"] <= NEAR for row in rows)
    largest = {
        order: max((row for row in rows if row["order"] == order), key=lambda row: row["share"])
        for order in sorted({row["order"] for row in rows})
    }
    near_by_order = [
        f"k = {order}: {sum(row['share'] <= NEAR for row in rows if row['order'] == order)} of "
        f"{sum(row['order'] == order for row in rows)}"
        for order in largest
    ]
    found = "; ".join(
        f"k = {order}: at most {row['share']:.1%} ± {row['share_stderr']:.1%} (|V| = {row['vocab']}, "
        f"eta = {row['eta']:g}, T = {row['length']})"
        for order, row in largest.items()
    )
    return Verdict(
        word="beyond the paper",
        headline=f"The best soft matching is within {NEAR:.0%} of Bayes in {near} of {len(rows)} worlds "
        f"({', '.join(near_by_order)})",
        measured=f"within {NEAR:.0%} of Bayes in {near} of {len(rows)} worlds; {found}",
    )
