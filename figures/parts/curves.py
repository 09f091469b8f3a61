"""What the figures of curves over T share: which rows make a curve, how each predictor looks, how it is drawn."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from figures.parts.panels import BAYES_COLOUR
from figures.parts.rows import Row
from interp.plotting import curve as draw_curve
from interp.results import half_width
from models.families.registry import find_family

OPEN = {"markerfacecolor": "white"}
Look = dict[str, Any]  # keywords of `Axes.plot`

# Named as the rows of `kl_curves` name the predictors.
LOOKS: dict[str, Look] = {
    "bayes": {"label": "Bayes predictor", "color": BAYES_COLOUR, "linewidth": 1.4, "zorder": 1.5},
    "maximum likelihood": {"label": "maximum likelihood", "color": "#882255", "linewidth": 1.4},
    "add-0.1": {"label": "add-0.1", "color": "#7f7f7f", "linestyle": ":"},
    "add-0.5": {"label": "add-0.5", "color": "#7f7f7f", "linestyle": "--"},
    "add-1": {"label": "add-1", "color": "#7f7f7f", "linestyle": "-."},
    "add-alpha, tuned": {"label": r"add-$\alpha$, $\alpha$ tuned for each $T$", "color": "#7f7f7f", "linewidth": 1.4},
    "hard, no BOS": {
        "label": r"construction, $\beta=100$", "color": "#003566", "linestyle": ":", "marker": "D", **OPEN,
    },
    "hard, BOS": {
        "label": r"construction, $\beta=100$, BOS", "color": "#003566", "linestyle": ":", "marker": "D", **OPEN,
    },
    "beta(t), no BOS": {"label": r"construction, $\beta(t)$ of the lemma", "color": "#5b99c2", "marker": "o"},
    "optimal, BOS": {"label": r"construction, best $\beta, \kappa$", "color": "#ffb703"},
}  # fmt: skip


def of_kind(rows: Iterable[Row], kind: str) -> list[Row]:
    """The rows of the first prior of this kind: `independent` or `hierarchical`."""
    mine = [row for row in rows if row["prior"].partition(":")[0] == kind]
    return [row for row in mine if row["prior"] == mine[0]["prior"]]


def curve(rows: Iterable[Row], predictor: str) -> list[Row]:
    """One predictor's rows, shortest first."""
    return sorted((row for row in rows if row["predictor"] == predictor), key=lambda row: row["length"])


def by_length(rows: Iterable[Row]) -> dict[int, list[Row]]:
    """The rows of each length, shortest first; a seed is a row."""
    found: dict[int, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row["length"]):
        found.setdefault(row["length"], []).append(row)
    return found


def reach_of(rows: Iterable[Row], error: str) -> list[float]:
    """How far the 95% intervals go to each side; NaN where there is no error."""
    return [float(half_width(math.nan if row[error] is None else row[error], n=row["n"])) for row in rows]


def plot_curve(ax: Axes, rows: Sequence[Row], field: str, look: Look, *, error: str | None = None) -> Line2D:
    """A line through the rows, with 95% bars if the rows have a standard error of that name."""
    reach = None if error is None else reach_of(rows, error)
    return draw_curve(ax, [row["length"] for row in rows], [row[field] for row in rows], reach=reach, **look)


def plot_seeds(
    ax: Axes,
    rows: Sequence[Row],
    field: str,
    family: str,
    *,
    shift: float = 0.0,
    size: float = 3.8,
    joined: bool = True,
) -> Line2D:
    """A marker for each seed, a thin line from the least to the largest, and a line through the medians.

    They lie above all curves, with a white edge, so that what coincides with a curve can be seen; `shift` sets a family
    aside, in powers of two of the length, and `size` puts the markers of one into those of another.
    """
    kind, aside = find_family(family), 2.0**shift
    groups = {length * aside: [row[field] for row in group] for length, group in by_length(rows).items()}
    thin: dict[str, Any] = {"color": kind.colour, "linewidth": 0.6, "zorder": 2.5}
    if joined:
        ax.plot(list(groups), [median(values) for values in groups.values()], **thin)
    ax.vlines(list(groups), list(map(min, groups.values())), list(map(max, groups.values())), **thin)
    (points,) = ax.plot(
        [row["length"] * aside for row in rows], [row[field] for row in rows], linestyle="None", marker=kind.marker,
        markersize=size, color=kind.colour, markeredgecolor="white", markeredgewidth=0.35, zorder=4,
        label=kind.trained_label,
    )  # fmt: skip
    return points


def length_axis(ax: Axes, lengths: Iterable[int]) -> None:
    """T on a logarithmic axis, with a tick at powers of two only: the paper's other lengths lie too close for names."""
    found = sorted(set(lengths))
    ax.set_xscale("log", base=2)
    named = [length for length in found if math.log2(length).is_integer()] or found
    ax.set_xticks(named, [str(length) for length in named])
    ax.set_xticks([length for length in found if length not in named], minor=True)
    ax.tick_params(axis="x", which="minor", labelbottom=False, size=1.2)
    ax.set_xlabel("sequence length $T$")
