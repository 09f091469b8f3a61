"""The start decides what the weights look like; the loss hardly sees it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.parts.panels import legend_below, lettered, side_by_side, there, whisker
from figures.parts.rows import Results, Row, where
from interp.plotting import MAIN_COLOUR, QUIET, curve, lag_colour, mark
from interp.results import half_width

LABEL = "beyond:flat_direction"
ANALYSES = {"flat_direction": lambda rows: of_one_length(rows)}
CLAIMS = ("flat_direction",)
CAPTION = (
    "Disentangled models on the hierarchical task with BOS, on the same held-out sequences. Above: KL to the "
    "truth over that of the start copy(40) of the same seed, as a share of it. Middle: each copy head's attention "
    "on its lag (open: mean over queries; filled: last query). Below: beta of each lag (open: of the "
    "scores; filled: blocks of W_A). (a) From the solution of a random start to that of copy(40), for one "
    "seed. Dotted: straight in every weight; log-attention is then a straight line, too. Solid: straight in the "
    "copy heads' attention and in what the match head reads of it. (b) Models trained from each start, one point "
    "a seed. (c) From copy(8) (points on the left of each place) and random: in each copy head the relative bias "
    "at one distance is not trained, that of BOS from the last query, which no other query uses, or as a control "
    "the one before it."
)

LENGTH = 32  # that of fig:mech_main; of the lengths there are, the nearest is drawn
FAMILY = "disentangled"  # which has blocks
WAYS = {"reads": "-", "weights": ":"}
FROZEN = {"": "none", "copies_first": "a neighbour", "copies_bos": "at BOS's\ndistance"}
MARKERS = ("o", "^", "s", "D")  # of lags
APART = 0.2  # between seeds, in categories
BOTH = (("last", "copy"), ("block", "beta"))  # filled and open, in the second and third row
Groups = dict[str, list[Row]]


def of_one_length(rows: list[Row]) -> list[Row]:
    """The rows of one length, the nearest to `LENGTH`."""
    rows = [row for row in where(rows, family=FAMILY) if row["over_hard"] is not None]
    nearest = min((row["length"] for row in rows), key=lambda length: abs(math.log(length / LENGTH)), default=None)
    return where(rows, length=nearest)


def draw(results: Results) -> Figure:
    """Loss, attention and blocks (rows) along the way, by start, and with one bias kept (columns)."""
    rows = results["flat_direction"]
    columns = there({title: groups(rows) for title, (_, groups, _) in COLUMNS.items()})
    figure, axes = plt.subplots(3, len(columns), figsize=(6.3, 5.4), sharey="row", squeeze=False)
    for column, (title, found) in zip(axes.T, columns.items(), strict=True):
        name, _, drawn = COLUMNS[title]
        column[0].set_title(title)
        drawn(column, found)
        column[-1].set_xlabel(name)
        for ax in column[:-1]:
            ax.tick_params(labelbottom=False)
    name_rows(list(axes[:, 0]))
    lettered(axes[0])
    handles = [
        *(mark(f"lag {lag}", color=lag_colour(lag), marker=MARKERS[lag - 1]) for lag in (1, 2)),
        mark("filled: at the last query; in the blocks of $W_A$", color=QUIET, marker="o"),
        mark("open: mean over queries; in the scores", color=QUIET, marker="o", markerfacecolor="white"),
        mark("(a) straight in what is attended to and read", color=QUIET, linestyle=WAYS["reads"]),
        mark("(a) straight in every weight", color=QUIET, linestyle=WAYS["weights"]),
        whisker("95% interval of the paired difference"),
    ]
    legend_below(figure, handles, 2)
    return figure


def name_rows(axes: Sequence[Axes]) -> None:
    """The scales that the columns share."""
    loss, copying, blocks = axes
    loss.margins(y=0.08)
    loss.set_yscale("symlog", linthresh=0.01)
    loss.set_yticks([-0.01, 0.0, 0.01, 0.1, 1.0], ["\N{MINUS SIGN}1%", "0", "+1%", "+10%", "+100%"])
    loss.minorticks_off()
    loss.set_ylabel("KL, over that of\nthe start copy(40)")
    copying.set_ylim(0, 1.05)
    copying.set_ylabel("copy head's attention\non its lag")
    blocks.set_ylim(0, None)
    blocks.set_ylabel(r"$\beta$ of each lag")


def line_of(rows: list[Row]) -> Groups:
    """The points of each way, for the first seed that has them."""
    points = where(rows, question="line")
    seed = min((row["seed"] for row in points), default=None)
    found = {way: sorted(where(points, way=way, seed=seed), key=lambda row: row["point"]) for way in WAYS}
    return {way: mine for way, mine in found.items() if mine}


def starts_of(rows: list[Row]) -> Groups:
    """The trained models by start, the random one first, then by the bias that copy heads start with."""

    def strength(start: str) -> float:
        word, _, number = start.rstrip(")").partition("(")
        return float(number) if word == "copy" else -1.0

    mine = where(rows, question="start")
    return {start: where(mine, init=start) for start in sorted({row["init"] for row in mine}, key=strength)}


def frozen_of(rows: list[Row]) -> Groups:
    """Models trained with one bias kept, and those of the same starts with none kept."""
    inits = {row["init"] for row in rows if row["freeze"]}
    mine = [row for row in rows if row["init"] in inits]
    found = {words: where(mine, freeze=part) for part, words in FROZEN.items()}
    return found if inits and all(found.values()) else {}


def draw_way(axes: Sequence[Axes], ways: Groups) -> None:
    """A line for each way."""
    for way, rows in ways.items():
        draw_looks(axes, [row["point"] for row in rows], rows, line=WAYS[way], opened=way == "reads")


def draw_groups(axes: Sequence[Axes], groups: Groups) -> None:
    """A place for each group, with its models side by side."""
    places = [
        place + side_by_side(number, len(rows), 2 * APART / len(rows))
        for place, rows in enumerate(groups.values())
        for number in range(len(rows))
    ]
    draw_looks(axes, places, [row for rows in groups.values() for row in rows], line="none", opened=True)
    names = [name.removeprefix("copy(").partition("(")[0].rstrip(")") for name in groups]
    for ax in axes:
        ax.set_xticks(range(len(groups)), names)
        ax.set_xlim(-0.5, len(groups) - 0.5)


def draw_looks(axes: Sequence[Axes], xs: list[float], rows: list[Row], *, line: str, opened: bool) -> None:
    """Loss, attention and blocks of the models; `opened` adds the mean over queries and the betas of the scores."""
    hard = [row["kl"] - row["over_hard"] for row in rows]  # KL of the hard start, whose shares are drawn
    change = [row["over_hard"] / kl for row, kl in zip(rows, hard, strict=True)]
    reach = [float(half_width(row["over_hard_stderr"], n=None)) / kl for row, kl in zip(rows, hard, strict=True)]
    curve(axes[0], xs, change, reach=reach, color=MAIN_COLOUR, linestyle=line, marker="o", markersize=2.2, gid="kl")
    thin: dict[str, Any] = {"markerfacecolor": "white", "markeredgewidth": 0.6, "linewidth": 0.6}
    for ax, (filled, other) in zip(axes[1:], BOTH, strict=True):
        for lag in range(1, len(rows[0][filled]) + 1):
            look: dict[str, Any] = {"color": lag_colour(lag), "marker": MARKERS[lag - 1]}
            if opened:
                dashed = "none" if line == "none" else "--"
                ax.plot(xs, [row[other][lag - 1] for row in rows], linestyle=dashed, gid=other, **thin, **look)
            ax.plot(xs, [row[filled][lag - 1] for row in rows], linestyle=line, markersize=2.4, gid=filled, **look)


COLUMNS: dict[str, tuple[str, Callable[[list[Row]], Groups], Callable[[Sequence[Axes], Groups], None]]] = {
    "from one solution to another": ("random start (0)\nto copy(40) (1)", line_of, draw_way),
    "trained from each start": ("bias on its lag that\na copy head starts with", starts_of, draw_groups),
    "one bias not trained": ("bias that stays at its start", frozen_of, draw_groups),
}
