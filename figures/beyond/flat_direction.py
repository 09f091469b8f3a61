"""The start decides what the weights look like; the loss hardly sees it.

Draws the rows of `python -m analyses flat_direction`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from figures.parts.panels import absent, lettered, whisker
from figures.parts.rows import Row
from interp.plotting import MAIN_COLOUR, lag_colour
from interp.results import half_width

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LABEL = "beyond:flat_direction"
ANALYSES = ("flat_direction",)
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
FAMILY = "disentangled"
WAYS = {"reads": "-", "weights": ":"}
FROZEN = {"": "none", "copies_first": "a neighbour", "copies_bos": "at BOS's\ndistance"}
MARKERS = ("o", "^", "s", "D")  # of lags
GREY = "#7f7f7f"
APART = 0.2  # between seeds, in categories
BOTH = (("last", "copy"), ("block", "beta"))  # filled and open, in the second and third row


def chosen(results: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """The disentangled models, which have blocks."""
    return {"flat_direction": [row for row in results["flat_direction"] if row["family"] == FAMILY]}


def shown(results: dict[str, list[Row]]) -> list[Row]:
    """The rows of one length, the nearest to `LENGTH`."""
    rows = [row for row in chosen(results)["flat_direction"] if row["over_hard"] is not None]
    lengths = {row["length"] for row in rows}
    nearest = min(lengths, key=lambda length: abs(math.log(length / LENGTH)), default=None)
    return [row for row in rows if row["length"] == nearest]


def draw(results: dict[str, list[Row]]) -> Figure:
    """Loss, attention and blocks (rows) along the way, by start, and with one bias kept (columns)."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(3, 3, figsize=(6.3, 5.4), sharey="row", width_ratios=(1.2, 1.2, 0.9))
    rows = shown(results)
    columns = (
        ("from one solution to another", "random start (0) to copy(40) (1)", line_of(rows), draw_way),
        ("trained from each start", "bias on its lag that a copy head starts with", starts_of(rows), draw_groups),
        ("one bias not trained", "bias that stays at its start", frozen_of(rows), draw_groups),
    )
    for place, (title, name, found, drawn) in enumerate(columns):
        column = axes[:, place]
        column[0].set_title(title, loc="left")
        if not found:
            for ax in column:
                absent(ax, "such runs")
            continue
        drawn(column, found)
        column[-1].set_xlabel(name)
        for ax in column[:-1]:
            ax.tick_params(labelbottom=False)
    name_rows(axes[:, 0])
    lettered(axes[0])
    figure.legend(handles=legend(), loc="outside lower center", ncols=2, columnspacing=1.2)
    return figure


def name_rows(axes: Any) -> None:
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


def line_of(rows: list[Row]) -> dict[str, list[Row]]:
    """The points of each way, for the first seed that has them."""
    points = [row for row in rows if row["question"] == "line"]
    seed = min((row["seed"] for row in points), default=None)
    found = {way: [row for row in points if row["way"] == way and row["seed"] == seed] for way in WAYS}
    return {way: sorted(mine, key=lambda row: row["point"]) for way, mine in found.items() if mine}


def starts_of(rows: list[Row]) -> dict[str, list[Row]]:
    """The trained models by start, the random one first."""
    mine = [row for row in rows if row["question"] == "start"]
    return {
        start: [row for row in mine if row["init"] == start]
        for start in sorted({row["init"] for row in mine}, key=strength)
    }


def strength(start: str) -> float:
    """The bias that copy heads start with; below zero for a random start, so that it comes first."""
    word, _, number = start.rstrip(")").partition("(")
    return float(number) if word == "copy" else -1.0


def frozen_of(rows: list[Row]) -> dict[str, list[Row]]:
    """Models trained with one bias kept, and those of the same starts with none kept."""
    inits = {row["init"] for row in rows if row["freeze"]}
    mine = [row for row in rows if row["init"] in inits]
    found = {words: [row for row in mine if row["freeze"] == part] for part, words in FROZEN.items()}
    return found if inits and all(found.values()) else {}


def draw_way(axes: Any, ways: dict[str, list[Row]]) -> None:
    """A line for each way."""
    for way, rows in ways.items():
        draw_looks(axes, [row["point"] for row in rows], rows, line=WAYS[way], opened=way == "reads")


def draw_groups(axes: Any, groups: dict[str, list[Row]]) -> None:
    """A place for each group, with its models side by side."""
    placed = [
        (place + APART * (2 * number + 1 - len(rows)) / len(rows), row)
        for place, rows in enumerate(groups.values())
        for number, row in enumerate(rows)
    ]
    draw_looks(axes, [x for x, _ in placed], [row for _, row in placed], line="none", opened=True)
    names = [name.removeprefix("copy(").partition("(")[0].rstrip(")") for name in groups]
    for ax in axes:
        ax.set_xticks(range(len(groups)), names)
        ax.set_xlim(-0.5, len(groups) - 0.5)


def draw_looks(axes: Any, xs: list[float], rows: list[Row], *, line: str, opened: bool) -> None:
    """Loss, attention and blocks of the models; `opened` adds the mean over queries and the betas of the scores."""
    change, bars = zip(*map(relative, rows), strict=True)
    axes[0].errorbar(
        xs, change, yerr=bars, color=MAIN_COLOUR, linestyle=line, marker="o", markersize=2.2, elinewidth=0.7, gid="kl"
    )
    thin = {"markerfacecolor": "white", "markersize": 3.0, "markeredgewidth": 0.6, "linewidth": 0.6}
    for ax, (filled, other) in zip(axes[1:], BOTH, strict=True):
        for lag in range(1, len(rows[0][filled]) + 1):
            look: dict[str, Any] = {"color": lag_colour(lag), "marker": MARKERS[lag - 1]}
            if opened:
                dashed = "none" if line == "none" else "--"
                ax.plot(xs, [row[other][lag - 1] for row in rows], linestyle=dashed, gid=other, **thin, **look)
            ax.plot(xs, [row[filled][lag - 1] for row in rows], linestyle=line, markersize=2.4, gid=filled, **look)


def relative(row: Row) -> tuple[float, float]:
    """KL over that of the hard start, as a share of it, and half of its 95% interval."""
    hard = row["kl"] - row["over_hard"]
    return row["over_hard"] / hard, float(half_width(row["over_hard_stderr"], n=None)) / hard


def legend() -> list[Any]:
    """Lags, filled and open, the two ways, and the intervals."""
    from matplotlib.lines import Line2D

    def entry(label: str, **look: Any) -> Any:
        return Line2D([], [], label=label, **{"color": GREY, "linestyle": "none", "markersize": 3, **look})

    return [
        *(entry(f"lag {lag}", color=lag_colour(lag), marker=MARKERS[lag - 1]) for lag in (1, 2)),
        entry("filled: at the last query; in the blocks of $W_A$", marker="o"),
        entry("open: mean over queries; in the scores", marker="o", markerfacecolor="white"),
        entry("(a) straight in what is attended to and read", linestyle=WAYS["reads"]),
        entry("(a) straight in every weight", linestyle=WAYS["weights"]),
        whisker("95% interval of the paired difference"),
    ]
