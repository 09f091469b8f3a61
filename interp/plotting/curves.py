"""Curves and points with their intervals, and curves of KL over the length of the sequences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from jaxtyping import Int64
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter
from numpy.typing import NDArray

END_GAP = 0.052  # between two names at the ends of curves, as a share of the axis' height


def curve(
    ax: Axes, x: Any, y: Any, *, reach: Any = None, band: bool = False, across: bool = False, **look: Any
) -> Line2D:
    """A line through points, or markers without one (linestyle="none"); None and NaN leave gaps.

    `reach` is how far the interval of each point goes to either side: a bar, or with `band` an area around the line.
    across=True says that x has the intervals.
    """
    places, values = (np.atleast_1d(np.asarray(one, dtype=np.float64)) for one in (x, y))
    (line,) = ax.plot(places, values, **look)
    if reach is None:
        return line
    middle, other = (places, values) if across else (values, places)
    side = np.atleast_1d(np.asarray(reach, dtype=np.float64))
    low, high, colour = middle - side, middle + side, line.get_color()
    if band:
        ax.fill_between(other, low, high, color=colour, alpha=0.25, linewidth=0)
    else:
        bars = ax.hlines if across else ax.vlines
        bars(other, low, high, colors=colour, linewidth=0.7, zorder=line.get_zorder())
    return line


def kl_curves(
    ax: Axes,
    lengths: Int64[np.ndarray, " length"],
    means: Mapping[str, NDArray[Any]],
    *,
    reach: Mapping[str, NDArray[Any]] | None = None,
    colours: Mapping[str, str] | None = None,
    labels: Literal["legend", "ends"] = "legend",
) -> Axes:
    """KL over the length, one curve per name, on logarithmic axes, with a band of `reach` to either side.

    A NaN leaves a gap. With labels="ends" the names stand at the right ends of the curves, moved apart where they would
    touch, instead of in a legend. The curves, the first of `ax.lines`, are in the order
    of `means`; their labels are the names.
    """
    if unknown := [name for name in reach or () if name not in means]:
        raise ValueError(f"reach names a curve {unknown[0]!r} that means do not have")
    if low := [name for name, values in means.items() if (np.asarray(values) <= 0).any()]:
        raise ValueError(f"means of {low[0]!r} must be > 0 on a logarithmic axis")
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ends = []
    for name, values in means.items():
        line = curve(
            ax, lengths, values, color=(colours or {}).get(name), marker="o", markersize=3.5, linewidth=1.3, label=name
        )
        if reach and name in reach:
            # Where the band reaches zero it is cut a decade below the curve: the axis has no zero.
            low, high = np.maximum(values - reach[name], values / 10), values + reach[name]
            ax.fill_between(lengths, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
        if len(known := np.flatnonzero(np.isfinite(values))):
            ends.append((float(lengths[known[-1]]), float(values[known[-1]]), name, line.get_color()))
    ax.set_xticks(lengths, [str(length) for length in lengths.tolist()])
    ax.set_xticks([], minor=True)
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.set_xlabel("length $T$")
    ax.set_ylabel("KL to the true law (nats)")
    if labels == "legend":
        ax.legend(frameon=False)
    else:
        name_ends(ax, ends, fontsize=9.0)
    return ax


def name_ends(
    ax: Axes,
    ends: Sequence[tuple[Any, Any, str, Any]],
    *,
    gap: float = END_GAP,
    room: float = 1.0,
    fontsize: float = 6.2,
) -> None:
    """The name of each curve to the right of the axes, with a thin line to where the curve ends.

    ends   x and y of the end, the name, its colour
    gap    between two names, as a share of the axes' height; of names of another size more or less
    room   shortens the lines, for axes that are wide
    """
    ax.autoscale_view()
    places = [(ax.transScale + ax.transLimits).transform(end[:2]) for end in ends]  # as shares of the axes
    heights = spread_out([float(y) for _, y in places], gap=gap * fontsize / 6.2)
    for (x, y), height, (_, _, name, colour) in zip(places, heights, ends, strict=True):
        elbow = max(x, 1.0) + 0.02 * room  # a curve that ends early is led along its own height to the edge
        ax.plot(
            [x, elbow, 1.0 + 0.09 * room],
            [y, y, height],
            transform=ax.transAxes,
            clip_on=False,
            color=colour,
            linewidth=0.35,
            linestyle="-" if x > 0.9 else (0, (2, 2)),
            zorder=0,
            gid="leader",
        )
        ax.text(1.0 + 0.1 * room, height, name, transform=ax.transAxes, va="center", color=colour, fontsize=fontsize)


def spread_out(places: Sequence[float], *, gap: float) -> list[float]:
    """The places moved apart so that neighbours are at least `gap` away, each as near to its own as that allows.

    >>> spread_out([0.0, 0.0, 5.0], gap=1.0)
    [-0.5, 0.5, 5.0]
    """
    clusters: list[list[int]] = []  # of places that touch: each sits around the mean of what it holds

    def bottom(cluster: list[int]) -> float:
        return sum(places[index] for index in cluster) / len(cluster) - gap * (len(cluster) - 1) / 2

    for index in sorted(range(len(places)), key=lambda index: places[index]):
        clusters.append([index])
        while len(clusters) > 1 and bottom(clusters[-2]) + gap * len(clusters[-2]) > bottom(clusters[-1]):
            clusters[-2:] = [clusters[-2] + clusters[-1]]
    moved = {index: bottom(cluster) + rank * gap for cluster in clusters for rank, index in enumerate(cluster)}
    return [moved[index] for index in range(len(places))]
