"""What all pictures share: colours with a fixed meaning, a panel and its heading."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
else:
    Axes = Any  # so that reading this module does not load matplotlib

OVERLAP_COLOURS = {
    "full": "#f2b701",
    "partial": "#008080",
    "none": "#a2a2a2",
    "bos": "#882255",
    "early": "#1a1a1a",
}
OVERLAP_NAMES = {
    "full": "full match",
    "partial": "partial match",
    "none": "no match",
    "bos": "BOS",
    "early": "early key",
}
SOURCE_COLOURS = {"partial": OVERLAP_COLOURS["partial"], "bos": OVERLAP_COLOURS["bos"], "readout": "#5b99c2"}
SOURCE_NAMES = {"partial": "partial matches", "bos": "BOS", "readout": "readout"}
LAG_COLOURS = ("#003566", "#5b99c2", "#52796f", "#ffb703")  # lags 1, 2, ...
MAIN_COLOUR = "#003566"
CONTROL_COLOUR = "#bdbdbd"
SHUT_OUT = "#c1121f"  # scores below the scale, and reasons not to trust a result
INTERVAL_NAME = "95% intervals"  # what `results.half_width` gives
LETTER = 0.6  # the width of a letter as a share of its size, on average


def lag_colour(lag: int) -> str:
    """The colour of lag 1, 2, ..."""
    return LAG_COLOURS[(lag - 1) % len(LAG_COLOURS)]


def overlap_kind(size: int, *, order: int) -> str:
    """The kind of a candidate with this overlap, of which `OVERLAP_COLOURS` has the colour."""
    return "full" if size == order else "partial" if size else "none"


def panel(ax: Axes | None, *, width: float = 6.0, height: float = 3.2) -> Axes:
    """The axes that were given, or those of a new figure of this size in inches."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    _, new = plt.subplots(figsize=(width, height), layout="constrained")
    new.spines[["top", "right"]].set_visible(False)
    return new


def legend_beside(ax: Axes, **options: Any) -> Axes:
    """A legend to the right of the panel, where it hides nothing."""
    place = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0), "frameon": False, "handlelength": 1.0}
    ax.legend(**{**place, **options})
    return ax


def heading(ax: Axes, title: str, *, doubt: str = "") -> Axes:
    """The panel's title, wrapped to its width; `doubt` is written in red: why the result cannot be trusted.

    Call it last: it lays the figure out to learn how wide the panel is.
    """
    letters = max(20, int(width_in_points(ax) / (LETTER * text_size("axes.titlesize"))))
    lines = [line for part in (title, doubt) if part for line in textwrap.wrap(part, letters)]
    style: dict[str, Any] = {"color": SHUT_OUT} if doubt else {}
    ax.set_title("\n".join(lines), loc="left", **style)
    return ax


def width_in_points(ax: Axes) -> float:
    """How wide the panel is once the figure is laid out."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()
    return float(72 * ax.get_window_extent().width / figure.dpi)


def text_size(setting: Literal["axes.titlesize", "xtick.labelsize"]) -> float:
    """A text size of matplotlib's settings, in points."""
    from matplotlib import rcParams
    from matplotlib.font_manager import FontProperties

    return float(FontProperties(size=rcParams[setting]).get_size_in_points())
