"""What all pictures share: colours with a fixed meaning, a panel, its heading, legends and words beside marks."""

from __future__ import annotations

import textwrap
from typing import Any, Literal

import matplotlib.pyplot as plt
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

OVERLAP_COLOURS = {"full": "#f2b701", "partial": "#008080", "none": "#a2a2a2", "bos": "#882255", "early": "#1a1a1a"}
OVERLAP_NAMES = {
    "full": "full match", "partial": "partial match", "none": "no match", "bos": "BOS", "early": "early key",
}  # fmt: skip
SOURCE_COLOURS = {"partial": OVERLAP_COLOURS["partial"], "bos": OVERLAP_COLOURS["bos"], "readout": "#5b99c2"}
SOURCE_NAMES = {"partial": "partial matches", "bos": "BOS", "readout": "readout"}
LAG_COLOURS = ("#003566", "#5b99c2", "#52796f", "#ffb703")  # lags 1, 2, ...
MAIN_COLOUR = "#003566"
CONTROL_COLOUR = "#bdbdbd"
QUIET = "#7f7f7f"  # notes, and lines to compare with
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
    _, new = plt.subplots(figsize=(width, height), layout="constrained")
    new.spines[["top", "right"]].set_visible(False)
    return new


def mark(label: str, **look: Any) -> Line2D:
    """A legend's entry for a marker, or for a line where `linestyle` is given."""
    return Line2D([], [], label=label, **{"color": "#404040", "linestyle": "none", **look})


def area(label: str, colour: str, **look: Any) -> Patch:
    """A legend's entry for bars and areas of a colour."""
    return Patch(facecolor=colour, label=label, **look)


def whisker(words: str) -> Line2D:
    """A legend's entry that says what the whiskers of a picture are."""
    return mark(f"bar: {words}", marker="|", markersize=7)


def beside(ax: Axes, x: Any, y: Any, words: str, *, dx: int = 3, dy: int = 0, **style: Any) -> None:
    """Words `dx` and `dy` points from a place, on the side to which `dx` points."""
    look = {"ha": "left" if dx > 0 else "right" if dx < 0 else "center", "va": "center", "fontsize": 6, **style}
    ax.annotate(words, (x, y), xytext=(dx, dy), textcoords="offset points", **look)


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
    return float(FontProperties(size=rcParams[setting]).get_size_in_points())
