"""What figures share beside `interp.plotting`: notes in place of missing panels, letters, legends, common scales."""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from figures.parts.rows import SETTINGS, MissingPanel, Setting
from interp.plotting import QUIET, beside
from interp.plotting import whisker as whisker

# Families have their colours from `models.families.registry`: the same colour for the same thing in every figure.
BAYES_COLOUR = "#000000"
RULE: dict[str, Any] = {"color": "#d9d9d9", "linewidth": 0.5}  # of lines between groups
Found = TypeVar("Found")


def absent(ax: Axes, what: str, *, width: int = 0) -> Axes:
    """Leave the panel empty but for a note of what is missing, and warn; `width` breaks the words for narrow panels."""
    ax.set_axis_off()
    words = textwrap.fill(what, width) if width else what
    ax.text(0.5, 0.5, f"not available:\n{words}", transform=ax.transAxes, ha="center", va="center", color=QUIET)
    warnings.warn(f"panel left out: {what}", MissingPanel, stacklevel=2)
    return ax


def nothing(figure: Figure, what: str) -> Figure:
    """The figure as one note."""
    figure.clear()
    absent(figure.add_subplot(), what)
    return figure


def each_setting(axes: Iterable[Axes], found: Mapping[Setting, Found]) -> Iterator[tuple[Axes, Setting, Found]]:
    """A panel for each of the settings; where nothing was found for a setting it is a note."""
    for ax, setting in zip(axes, SETTINGS, strict=False):
        if setting in found:
            yield ax, setting, found[setting]
        else:
            absent(ax, setting.title.replace(", ", ",\n"))


def setting_lines(axes: Sequence[Axes], names: Sequence[str], *, there: Iterable[Setting]) -> None:
    """A line of each panel for each setting, with its name on the left, and a note there where it is missing."""
    for ax in axes:
        ax.set_ylim(len(SETTINGS) - 0.5, -0.5)
        ax.set_yticks(range(len(SETTINGS)), names if ax is axes[0] else [])
        ax.tick_params(axis="y", length=0)
        for edge in range(1, len(SETTINGS)):
            ax.axhline(edge - 0.5, **RULE)
    for place, setting in enumerate(SETTINGS):
        if setting not in there:
            beside(axes[0], 0.0, place, "not available", color=QUIET, fontsize=None)
            warnings.warn(f"panel left out: {setting.words}", MissingPanel, stacklevel=2)


def first_with(axes: Iterable[Axes]) -> Axes | None:
    """The first panel that is drawn: it has the labels of an axis that panels share."""
    return next((ax for ax in axes if ax.axison), None)


def on_one_scale(axes: Iterable[Axes]) -> None:
    """The widest of the vertical ranges for all of them, so that their values can be compared."""
    drawn = [ax for ax in axes if ax.axison]
    if drawn:
        low, high = zip(*(ax.get_ylim() for ax in drawn), strict=True)
        for ax in drawn:
            ax.set_ylim(min(low), max(high))


def lettered(axes: Iterable[Axes], **style: Any) -> None:
    """(a), (b), ... before the titles; a note without a title keeps its letter for itself."""
    for place, ax in enumerate(axes):
        title = ax.get_title(loc="left")
        if ax.axison or title:
            ax.set_title(f"({chr(ord('a') + place)}) {title}", loc="left", **style)


def legend_above(figure: Figure | SubFigure, handles: Sequence[Artist], ncols: int, **options: Any) -> None:
    """A legend above all panels."""
    figure.legend(handles=handles, loc="outside upper center", ncols=ncols, **options)


def legend_below(figure: Figure | SubFigure, handles: Sequence[Artist], ncols: int, **options: Any) -> None:
    """A legend below all panels; without entries there is none."""
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=ncols, **options)


def labelled(axes: Iterable[Axes]) -> list[Artist]:
    """What is labelled in these panels, each label once."""
    found: dict[str, Artist] = {}
    for ax in axes:
        handles, labels = ax.get_legend_handles_labels()
        found |= dict(zip(labels, handles, strict=True))
    return list(found.values())


def side_by_side(place: int, count: int, step: float) -> float:
    """How far the `place`-th of `count` marks stands from the middle, so that none lies on another."""
    return step * (place - (count - 1) / 2)


def parts_of(figure: Figure | SubFigure, *, rows: int = 1, columns: int = 1, **ratios: Any) -> list[SubFigure]:
    """The parts of a figure that is divided one way, in order."""
    return list(np.ravel(np.array(figure.subfigures(rows, columns, squeeze=False, **ratios), dtype=object)))
