"""Numbers with their intervals: curves, estimates with names, and bars beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike, NDArray

from interp.plotting.panel import CONTROL_COLOUR, MAIN_COLOUR, OVERLAP_COLOURS, beside, lag_colour, legend_beside

GROUP = 0.8  # share of the space of a name that its bars fill
INFINITY = "\N{INFINITY}"


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


def estimate_points(
    ax: Axes,
    names: Sequence[str],
    values: Float[np.ndarray, " name"],
    reach: Float[np.ndarray, " name"],
    *,
    colours: Sequence[str] | None = None,
    filled: Sequence[bool] | None = None,
    across: bool = False,
) -> Axes:
    """A marker for each estimate, with its interval and its value beside it, and a line at zero.

    `reach` is how far each interval goes to either side (`results.half_width`). An infinite estimate is written at the
    end of the panel, a NaN leaves its place empty, and a NaN reach leaves out the interval.
    across=True puts the names on the vertical axis, the first on top. Each estimate is one
    of `ax.containers`, in the order of the names.
    """
    shades = [MAIN_COLOUR] * len(names) if colours is None else colours
    full = [True] * len(names) if filled is None else filled
    for place, (value, side) in enumerate(zip(values.tolist(), reach.tolist(), strict=True)):
        point = (value, place) if across else (place, value)
        errors: dict[str, Any] = {"xerr" if across else "yerr": side if np.isfinite(side) else None}
        if np.isfinite(value):
            ax.errorbar(
                point[0], point[1], **errors, fmt="o", color=shades[place], capsize=3, markersize=5,
                markerfacecolor=shades[place] if full[place] else "white",
            )  # fmt: skip
            where: dict[str, Any] = {"dx": 0, "dy": 5, "va": "bottom"} if across else {"dx": 8}
            beside(ax, point[0], point[1], f"{value:.3g}", color=shades[place], fontsize=None, **where)
        elif np.isinf(value):
            end = 0.93 if value > 0 else 0.07
            spot = (end, place) if across else (place, end)
            frame = ("axes fraction", "data") if across else ("data", "axes fraction")
            words = INFINITY if value > 0 else f"\N{MINUS SIGN}{INFINITY}"
            ax.annotate(words, spot, xycoords=frame, ha="center", va="center", color=shades[place], fontsize="large")
    _name(ax, names, across=across)
    if across:
        ax.set_ylim(top=-0.9)  # room for the value above the first marker
    if not np.isfinite(values).any():  # an axis without a number has no scale
        (ax.set_xticks if across else ax.set_yticks)([])
    return ax


def parameter_points(
    ax: Axes, names: Sequence[str], values: Float[np.ndarray, " name"], reach: Float[np.ndarray, " name"]
) -> Axes:
    """Estimates of beta_1, beta_2, ..., kappa and other numbers on their scale, each with its symbol and colour."""
    lags = {name: int(name.removeprefix("beta_")) for name in names if name.startswith("beta_")}
    symbols = {name: rf"$\beta_{{{lag}}}$" for name, lag in lags.items()} | {"kappa": r"$\kappa$"}
    shades = {name: lag_colour(lag) for name, lag in lags.items()} | {"kappa": OVERLAP_COLOURS["bos"]}
    colours = [shades.get(name, MAIN_COLOUR) for name in names]
    return estimate_points(ax, [symbols.get(name, name) for name in names], values, reach, colours=colours)


def grouped_bars(
    ax: Axes,
    names: Sequence[str],
    series: Mapping[str, NDArray[Any]],
    *,
    reach: Mapping[str, NDArray[Any]] | None = None,
    colours: Mapping[str, str | Sequence[str]] | None = None,
    across: bool = False,
) -> Axes:
    """A bar of each series for each name, side by side, and a line at zero.

    `reach` is how far the intervals of a series go to either side. A NaN leaves a gap; a NaN reach leaves out the
    interval. A series' colour may be one for each name.
    across=True puts the names on the vertical axis, the first on top. Bars are labelled with their series.
    """
    step = GROUP / len(series)
    for number, (label, given) in enumerate(series.items()):
        values = np.asarray(given, dtype=np.float64)
        known = np.flatnonzero(np.isfinite(values))
        places = [bar_centre(place, place=number, count=len(series)) for place in known.tolist()]
        shade = (colours or {}).get(label)
        if not isinstance(shade, str) and shade is not None:
            shade = [shade[place] for place in known.tolist()]
        errors = None
        if reach is not None and label in reach:
            errors = np.nan_to_num(np.asarray(reach[label], dtype=np.float64)[known], nan=0.0)
        look: dict[str, Any] = {"color": shade, "label": label, "error_kw": {"linewidth": 0.8}}
        if across:
            ax.barh(places, values[known], xerr=errors, height=0.95 * step, **look)
        else:
            ax.bar(places, values[known], yerr=errors, width=0.95 * step, **look)
    _name(ax, names, across=across)
    return ax


def control_bars(
    ax: Axes,
    names: Sequence[str],
    own: ArrayLike,
    control: ArrayLike,
    *,
    reach: tuple[NDArray[Any], NDArray[Any]],
    labels: tuple[str, str] = ("edit", "control"),
    across: bool = False,
) -> Axes:
    """A bar for each number beside that of its control, as `grouped_bars`, with a legend."""
    pair = {labels[0]: np.asarray(own), labels[1]: np.asarray(control)}
    colours = dict(zip(labels, (MAIN_COLOUR, CONTROL_COLOUR), strict=True))
    grouped_bars(ax, names, pair, reach=dict(zip(labels, reach, strict=True)), colours=colours, across=across)
    return legend_beside(ax)


def bar_centre(name: int, *, place: int, count: int) -> float:
    """Where the bar of one series stands: the `place`-th of `count` around the `name`-th name."""
    return name + (place - (count - 1) / 2) * GROUP / count


def _name(ax: Axes, names: Sequence[str], *, across: bool) -> None:
    """A tick for each name, the whole range of places, and a line at zero."""
    line = ax.axvline if across else ax.axhline
    line(0.0, color="#555555", linewidth=0.5, zorder=0)
    if across:
        ax.set_yticks(range(len(names)), names)
        ax.set_ylim(len(names) - 0.4, -0.6)
    else:
        ax.set_xticks(range(len(names)), names)
        ax.set_xlim(-0.6, len(names) - 0.4)
    ax.tick_params(axis="y" if across else "x", length=0)


def signed_log(ax: Axes, *, linear_below: float) -> Axes:
    """A horizontal axis of both signs: linear up to this size, logarithmic beyond."""
    ax.set_xscale("symlog", linthresh=linear_below)
    ax.xaxis.set_major_formatter("{x:g}")
    ax.minorticks_off()
    return ax
