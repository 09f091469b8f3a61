"""Where the best soft matching is far from Bayes, and for which queries."""

from __future__ import annotations

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import NullLocator, PercentFormatter

from figures.parts.curves import LOOKS, OPEN, Look, length_axis
from figures.parts.panels import labelled, legend_below, lettered, parts_of, side_by_side, there, whisker
from figures.parts.rows import Results, Row, beside, of_one_start, shape_words, where
from interp.plotting import curve
from interp.results import half_width
from models.families.registry import find_family

LABEL = "beyond:excess_map"
ANALYSES = {"worlds": lambda rows: of_worlds(rows)}
CLAIMS = ("near_bayes_worlds", "by_context")
CAPTION = (
    "{worlds} worlds: the hierarchical prior with BOS, eta alike at all levels. Above, what soft matching at "
    "its searched optimum adds to the KL of the Bayes predictor (Gibbs sampling), as a share of Bayes' own KL, "
    "against the length, on one scale; bars: one standard error. T = 1024 at eta = 7 only. "
    "Below, mean excess within bins of the same "
    "sequences ({shape}), with 95% intervals of paired differences; percentages are the bins' shares of the "
    "sequences: by how often the last context has occurred before; by the entropy of the true distribution (the Bayes "
    "predictor is best on average, not for chains picked by their entropy, so excesses may be negative here); by the "
    "position of the prediction, in as many shorter sequences. Trained models (first seed) are measured at their own "
    "length only. The vertical axis is linear within 0.01 nats of 0 and logarithmic beyond."
)

ETAS: dict[float, Look] = {
    1.0: {"color": "#5b99c2", "marker": "o", "linestyle": ":"},
    7.0: {"color": "#003566", "marker": "s"},
    50.0: {"color": "#c1121f", "marker": "^", "linestyle": "--"},
}
BINS = {
    "seen": ("by count", "earlier occurrences of the context"),
    "entropy": ("by entropy", r"entropy of the truth / $\ln|V|$"),
    "position": ("by position", "tokens before the prediction"),
}
LINEAR = 0.01  # nats: the axis is linear up to here, because some excesses are negative
SOFT = {"label": r"construction, best $\beta, \kappa$ for the full length", "color": "#ffb703", "marker": "o"}
RETUNED = SOFT | OPEN | {"label": r"construction, best $\beta, \kappa$ for the position", "linestyle": ":"}
OPTIMA = {"soft matching": SOFT, "soft matching, retuned": RETUNED}


def of_worlds(rows: list[Row]) -> list[Row]:
    """Every world; of the contexts runs of one start for each family, and none beside the main ones."""
    contexts = where(rows, question="context")
    return where(rows, question="excess") + of_one_start(row for row in contexts if beside(row["subject"]) is None)


def draw(results: Results) -> Figure:
    """The excess over length, a panel for each order and vocabulary on one scale; below, contexts."""
    worlds, contexts = (where(results["worlds"], question=name) for name in ("excess", "context"))
    halves = there({"the worlds": worlds, "the contexts": contexts})
    figure = plt.figure(figsize=(6.3, 0.4 + 3.0 * len(halves)))
    for part, (half, rows) in zip(parts_of(figure, rows=len(halves)), halves.items(), strict=True):
        (draw_worlds if half == "the worlds" else draw_contexts)(part, rows)
    return figure


def draw_worlds(figure: SubFigure, rows: list[Row]) -> None:
    """A line of panels for each vocabulary."""
    vocabs, orders = (sorted({row[name] for row in rows}) for name in ("vocab", "order"))
    grid = figure.subplots(len(vocabs), len(orders), sharex=True, sharey=True, squeeze=False)
    for line, vocab in zip(grid, vocabs, strict=True):
        for ax, order in zip(line, orders, strict=True):
            draw_shares(ax, where(rows, vocab=vocab, order=order))
            ax.set_title(f"k = {order}, |V| = {vocab}")
    grid[0, 0].set_ylim(0, 1.03 * max(row["share"] + row["share_stderr"] for row in rows))
    grid[0, 0].yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    length_axis(grid[0, 0], [row["length"] for row in rows])
    for ax in grid.flat:
        ax.set(xlabel="length T", ylabel="KL above Bayes, share")
        ax.label_outer()
    lettered(grid.flat)
    legend_below(figure, [*labelled(grid.flat), whisker("± one standard error")], 4)


def draw_shares(ax: Axes, rows: list[Row]) -> None:
    """One line per eta, side by side, so that error bars do not hide each other."""
    for place, (eta, look) in enumerate(ETAS.items()):
        mine = sorted(where(rows, eta=eta), key=lambda row: row["length"])
        places = [row["length"] * (1.0 + side_by_side(place, len(ETAS), 0.08)) for row in mine]
        reach = [row["share_stderr"] for row in mine]
        curve(ax, places, [row["share"] for row in mine], reach=reach, label=rf"$\eta$ = {eta:g}", **look)


def draw_contexts(figure: SubFigure, rows: list[Row]) -> None:
    """The mean excess within each bin, a panel for each way to cut."""
    found = {by: mine for by in BINS if (mine := where(rows, by=by))}
    axes = figure.subplots(1, len(found), sharey=True, squeeze=False)[0]
    for ax, (by, mine) in zip(axes, found.items(), strict=True):
        bins = {row["bin"]: row["share"] for row in mine}
        looks = {row["predictor"]: look for row in mine if (look := look_of(row)) is not None}
        for rank, (name, look) in enumerate(looks.items()):
            # Side by side, so that the intervals of neighbours do not hide each other.
            bars = where(mine, predictor=name)
            places = [list(bins).index(row["bin"]) + side_by_side(rank, len(looks), 0.07) for row in bars]
            reach = [float(half_width(row["excess_stderr"], n=row["n"])) for row in bars]
            curve(ax, places, [row["excess"] for row in bars], reach=reach, **{**look, "markersize": 2.6}, gid=name)
        ax.axhline(0.0, color="#000000", linewidth=0.8, zorder=1)
        ax.set_yscale("symlog", linthresh=LINEAR, linscale=1.0)
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        ax.yaxis.set_minor_locator(NullLocator())
        title, words = BINS[by]
        shares = ["" if by == "position" else f"\n{share:.0%}" for share in bins.values()]
        ax.set_xticks(range(len(bins)), [f"{name}{share}" for name, share in zip(bins, shares, strict=True)])
        ax.set_xlabel(words if by == "position" else f"{words}\n(percent: share of the queries)")
        ax.set_title(title)
    axes[0].set_ylabel("excess over Bayes (nats)")
    legend_below(figure, [*labelled(axes), whisker("95% interval")], 3)


def look_of(row: Row) -> Look | None:
    """How a predictor is drawn; None for Bayes, and for estimators without a look."""
    name, words = row["predictor"], row["subject"]
    if name in OPTIMA or words is None:
        return OPTIMA.get(name) or (LOOKS.get(name) if name != "bayes" else None)
    family = find_family(words["family"])
    label = family.trained_label + ("" if words["bos"] else ", no BOS")
    return {"label": label, "color": family.colour, "marker": family.marker}


def fields(results: Results) -> dict[str, object]:
    worlds, contexts = (where(results["worlds"], question=name) for name in ("excess", "context"))
    return {"worlds": len(worlds), "shape": shape_words(contexts)}
