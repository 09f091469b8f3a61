"""Where the best soft matching is far from Bayes, and for which queries."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from figures.parts.curves import LOOKS, Look
from figures.parts.panels import absent, lettered, whisker
from figures.parts.rows import Row, beside, of_one_start, shape_words
from interp.results import half_width
from models.families.registry import find_family

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.gridspec import GridSpecFromSubplotSpec

LABEL = "beyond:excess_map"
ANALYSES = ("worlds",)
CLAIMS = ("near_bayes_worlds", "by_context")
CAPTION = (
    "{worlds} worlds: the hierarchical prior with BOS, eta alike at all levels. (a) to (f) What soft matching at "
    "its searched optimum adds to the KL of the Bayes predictor (Gibbs sampling), as a share of Bayes' own KL, "
    "against the length, on one scale; bars: one standard error. T = 1024 at eta = 7 only. (g) By how often the "
    "query's full context was visited before: left bar, the share of the queries; right bar, the share of the "
    "excess that they carry; the mean over all worlds of that length. (h) to (j) Mean excess within bins of the same "
    "sequences ({shape}), with 95% intervals of paired differences; percentages are the bins' shares of the "
    "sequences: by how often the last context has occurred before; by the entropy of the true distribution (the Bayes "
    "predictor is best on average, not for chains picked by their entropy, so excesses may be negative here); by the "
    "position of the prediction, in as many shorter sequences. Trained models (first seed) are measured at their own "
    "length only. The vertical axis is linear within 0.01 nats of 0 and logarithmic beyond."
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
BINS = (
    ("seen", "by count", "earlier occurrences of the context"),
    ("entropy", "by entropy", r"entropy of the true law / $\ln|V|$"),
    ("position", "by position", "tokens before the prediction"),
)
LINEAR = 0.01  # nats: the axis is linear up to here, because some excesses are negative
SOFT = Look(label=r"construction, best $\beta, \kappa$ for the full length", colour="#ffb703", marker="o")
RETUNED = replace(SOFT, label=r"construction, best $\beta, \kappa$ for the position", line=":", filled=False)
OPTIMA = {"soft matching": SOFT, "soft matching, retuned": RETUNED}


def chosen(results: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """Every world; of the contexts runs of one start for each family, and none beside the main ones."""
    worlds, contexts = (of_question(results["worlds"], name) for name in ("excess", "context"))
    return {"worlds": worlds + of_one_start([row for row in contexts if beside(row["subject"]) is None])}


def of_question(rows: list[Row], question: str) -> list[Row]:
    return [row for row in rows if row["question"] == question]


def draw(results: dict[str, list[Row]]) -> Figure:
    """The excess over length, a panel for each order and vocabulary on one scale; who carries it; below, contexts."""
    import matplotlib.pyplot as plt

    worlds, contexts = (of_question(results["worlds"], name) for name in ("excess", "context"))
    figure = plt.figure(figsize=(6.3, 6.4))
    halves = figure.add_gridspec(2, 1, height_ratios=(1.25, 1.0))
    panels: list[Axes] = []
    handles: list[Any] = []
    if worlds:
        vocabs, orders = (sorted({row[name] for row in worlds}) for name in ("vocab", "order"))
        grid = halves[0].subgridspec(len(vocabs), len(orders) + 1, width_ratios=[1.0] * len(orders) + [1.3])
        panels += draw_map(figure, grid, worlds, vocabs=vocabs, orders=orders)
        panels.append(figure.add_subplot(grid[:, -1]))
        draw_visits(panels[-1], worlds)
        handles += eta_lines()
    else:
        absent(figure.add_subplot(halves[0]), "the worlds")
    grid = halves[1].subgridspec(1, len(BINS))
    first = figure.add_subplot(grid[0])
    axes = [first, *(figure.add_subplot(grid[column], sharey=first) for column in range(1, len(BINS)))]
    handles += draw_contexts(axes, contexts)
    lettered([ax for ax in (*panels, *axes) if ax.axison])
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=3, columnspacing=1.5)
    return figure


def draw_map(
    figure: Figure, grid: GridSpecFromSubplotSpec, rows: list[Row], *, vocabs: list[int], orders: list[int]
) -> list[Axes]:
    """A panel for each order and vocabulary, on one scale."""
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
            ax.set_ylabel("KL above Bayes, share" if column == 0 else "")
            ax.set_title(f"k = {order}, |V| = {vocab}", loc="left")
            panels.append(ax)
    return panels


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


def eta_lines() -> list[Any]:
    """Lines are etas; the bars are named."""
    from matplotlib.lines import Line2D

    looks = ETAS.items()
    lines = [
        Line2D([], [], color=colour, marker=marker, markersize=3, linestyle=line, label=rf"(a-f) $\eta$ = {eta:g}")
        for eta, (colour, marker, line) in looks
    ]
    return [*lines, whisker("(a-f) ± one standard error")]


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
                    linewidth=0.3, label=name if (place, side) == (0, 0) else None,
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


def draw_contexts(axes: list[Axes], rows: list[Row]) -> list[Any]:
    """The mean excess within each bin, a panel for each way to cut; returns what the legend names."""
    handles: dict[str, Any] = {}
    for ax, (by, title, words) in zip(axes, BINS, strict=True):
        ax.set_title(title, loc="left")
        mine = [row for row in rows if row["by"] == by]
        if not mine:
            absent(ax, f"excess {title}")
            continue
        bins = {row["bin"]: row["share"] for row in mine}
        looks = {row["predictor"]: look for row in mine if (look := look_of(row)) is not None}
        for rank, (name, look) in enumerate(looks.items()):
            # Side by side, so that the intervals of neighbours do not hide each other.
            shift = 0.07 * (rank - (len(looks) - 1) / 2)
            bars = [row for row in mine if row["predictor"] == name]
            handles[look.label] = ax.errorbar(
                [list(bins).index(row["bin"]) + shift for row in bars],
                [row["excess"] for row in bars],
                yerr=[half_width(row["excess_stderr"], n=row["n"]) for row in bars],
                elinewidth=0.6,
                **{**look.style(), "markersize": 2.6, "label": f"(h-j) {look.label}"},
            )
        ax.axhline(0.0, color="#000000", linewidth=0.8, zorder=1)
        ax.set_yscale("symlog", linthresh=LINEAR, linscale=1.0)
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        ax.set_xlabel(words if by == "position" else f"{words}\n(percent: share of the queries)")
        ticks = [label if by == "position" else f"{label}\n{share:.0%}" for label, share in bins.items()]
        ax.set_xticks(range(len(bins)), ticks)
    axes[0].set_ylabel("excess over Bayes (nats)")
    return [*handles.values(), whisker("(h-j) 95% interval")] if handles else []


def look_of(row: Row) -> Look | None:
    """How a predictor is drawn; None for Bayes, and for estimators without a look."""
    name, words = row["predictor"], row["subject"]
    if name in OPTIMA or words is None:
        return OPTIMA.get(name) or (LOOKS.get(name) if name != "bayes" else None)
    family = find_family(words["family"])
    label = family.trained_label + ("" if words["bos"] else ", no BOS")
    return Look(label=label, colour=family.colour, marker=family.marker)


def fields(results: dict[str, list[Row]]) -> dict[str, object]:
    worlds, contexts = (of_question(results["worlds"], name) for name in ("excess", "context"))
    return {"worlds": len(worlds), "shape": shape_words(contexts)}
