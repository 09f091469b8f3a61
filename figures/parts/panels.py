"""What figures share beside `interp.plotting`: notes in place of missing panels, short names of priors, letters,
and what whiskers are."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

# Families have their colours from `models.families.registry`: the same colour for the same thing in every figure.
PRIORS_IN_SHORT = {"hierarchical": "hier.", "independent": "ind."}
BAYES_COLOUR = "#000000"


class MissingPanel(UserWarning):
    """A panel was left out because its results are not there."""


def absent(ax: Axes, what: str) -> Axes:
    """Leave the panel empty but for a note of what is missing, and warn."""
    ax.set_axis_off()
    ax.text(0.5, 0.5, f"not available:\n{what}", transform=ax.transAxes, ha="center", va="center", color="#7f7f7f")
    warnings.warn(f"panel left out: {what}", MissingPanel, stacklevel=2)
    return ax


def whisker(words: str, *, colour: str = "#404040") -> Line2D:
    """A legend's entry that says what the whiskers of a picture are."""
    from matplotlib.lines import Line2D

    return Line2D([], [], color=colour, marker="|", markersize=7, linestyle="none", label=f"bar: {words}")


def on_one_scale(axes: Iterable[Axes]) -> None:
    """The widest of the vertical ranges for all of them, so that their values can be compared."""
    drawn = list(axes)
    if drawn:
        low, high = zip(*(ax.get_ylim() for ax in drawn), strict=True)
        for ax in drawn:
            ax.set_ylim(min(low), max(high))


def lettered(axes: Iterable[Axes], *, start: str = "a") -> None:
    """(a), (b), ... before the titles."""
    for place, ax in enumerate(axes):
        title = ax.get_title(loc="left")
        ax.set_title(f"({chr(ord(start) + place)}) {title}", loc="left")
