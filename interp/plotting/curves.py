"""Curves over the length of the sequences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from jaxtyping import Int64
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
else:
    Axes = Any

Array: TypeAlias = NDArray[Any]


def kl_curves(
    ax: Axes,
    lengths: Int64[np.ndarray, " length"],
    means: Mapping[str, Array],
    *,
    reach: Mapping[str, Array] | None = None,
    colours: Mapping[str, str] | None = None,
    labels: Literal["legend", "ends"] = "legend",
) -> Axes:
    """KL over the length, one curve per name, on logarithmic axes, with a band of `reach` to either side.

    A NaN leaves a gap. With labels="ends" the names stand at the right ends of the curves, moved apart where they would
    touch, instead of in a legend. Curves are `ax.lines`, in the order of `means`; their labels are the names.
    """
    from matplotlib.ticker import LogLocator, NullFormatter

    if labels not in ("legend", "ends"):
        raise ValueError(f"labels must be 'legend' or 'ends', got {labels!r}")
    if not means:
        raise ValueError("means hold no curve: expected at least one name")
    for kind, rows in (("means", means), ("reach", reach or {})):
        for name, values in rows.items():
            if name not in means:
                raise ValueError(f"{kind} name a curve {name!r} that means do not have")
            if np.shape(values) != lengths.shape:
                raise ValueError(f"{kind} of {name!r} have shape {np.shape(values)}, expected {lengths.shape}")
            if kind == "means" and (np.asarray(values) <= 0).any():
                raise ValueError(f"means of {name!r} must be > 0 on a logarithmic axis, got {np.nanmin(values)}")
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    for name, values in means.items():
        colour = (colours or {}).get(name)
        (line,) = ax.plot(lengths, values, "o-", color=colour, markersize=3.5, linewidth=1.3, label=name)
        if reach and name in reach:
            low, high = values - reach[name], values + reach[name]
            # Where the band reaches zero it is cut a decade below the curve: the axis has no zero.
            low = np.maximum(low, values / 10)
            ax.fill_between(lengths, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
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
        _label_ends(ax)
    return ax


def _label_ends(ax: Axes) -> None:
    """Write each curve's name at its right end, in its colour, moved up or down until no two touch."""
    ends = []
    for line in ax.lines:
        values = np.asarray(line.get_ydata(), dtype=np.float64)
        known = np.flatnonzero(np.isfinite(values))
        if len(known):
            ends.append((line, float(np.asarray(line.get_xdata())[known[-1]]), float(values[known[-1]])))
    low, high = (float(np.log(limit)) for limit in ax.get_ylim())
    height = ax.get_window_extent().height / ax.get_figure(root=True).dpi * 72  # type: ignore[union-attr]
    step = 11.0 / height * (high - low)  # a line of text of 9 points, in the units of the logarithmic axis
    places: list[float] = []
    for _, _, value in sorted(ends, key=lambda end: end[2]):
        wanted = float(np.log(value))
        places.append(wanted if not places else max(wanted, places[-1] + step))
    for (line, x, value), place in zip(sorted(ends, key=lambda end: end[2]), places, strict=True):
        ax.annotate(
            str(line.get_label()),
            (x, value),
            xytext=(6.0, (place - float(np.log(value))) / (high - low) * height),
            textcoords="offset points",
            color=line.get_color(),
            fontsize=9,
            va="center",
            annotation_clip=False,
        )
