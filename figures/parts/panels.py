"""What figures share beside `interp.plotting`: which panels are drawn, lines of settings, letters, legends, scales."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from figures.parts.rows import SETTINGS, MissingPanel, Row, Setting
from interp.plotting import QUIET
from interp.plotting import whisker as whisker

# Families have their colours from `models.families.registry`: the same colour for the same thing in every figure.
BAYES_COLOUR = "#000000"
DARK, CONTROL, ZERO = "#404040", "#8c8c8c", "#555555"  # words and marks, open markers of controls, lines at zero
RULE: dict[str, Any] = {"color": "#d9d9d9", "linewidth": 0.5}  # of lines between groups
Name = TypeVar("Name")
Found = TypeVar("Found")


class NothingThere(LookupError):
    """No panel of a figure has results."""


def there(panels: Mapping[Name, Found]) -> dict[Name, Found]:
    """The panels that have something to show. The others are left out, each with a warning that names it."""
    for name, found in panels.items():
        if not found:
            warnings.warn(f"panel left out: {name}", MissingPanel, stacklevel=2)
    if not any(panels.values()):
        raise NothingThere("; ".join(map(str, panels)))
    return {name: found for name, found in panels.items() if found}


Panels = Mapping[str, tuple[list[Row], Callable[[Axes, list[Row]], object]]]  # title -> rows, and what draws them


def draw_panels(panels: Panels, *, height: float, across: int = 4) -> tuple[Figure, dict[str, Axes]]:
    """A figure of panels, at most so many beside each other, each of this height; those without rows are left out."""
    found = there({title: rows for title, (rows, _) in panels.items()})
    lines = -(-len(found) // across)
    figure, grid = plt.subplots(lines, min(across, len(found)), figsize=(6.3, height * lines), squeeze=False)
    axes = dict(zip(found, grid.flat, strict=False))
    for ax in grid.flat[len(found) :]:
        ax.set_axis_off()
    for title, ax in axes.items():
        panels[title][1](ax, found[title])
        ax.set_title(title)
    lettered(axes.values())
    return figure, axes


def of_each_setting(found: Mapping[Setting, Found]) -> dict[Setting, Found]:
    """What was found of each setting, in their order; a setting without models is warned of."""
    kept = there({setting: bool(found.get(setting)) for setting in SETTINGS})
    return {setting: found[setting] for setting in kept}


def note(ax: Axes, words: str) -> Axes:
    """A panel that is empty but for these words."""
    ax.set_axis_off()
    ax.text(0.5, 0.5, words, transform=ax.transAxes, ha="center", va="center", color=QUIET)
    return ax


def setting_lines(axes: Sequence[Axes], names: Sequence[str]) -> None:
    """A line of each panel for each setting, with its name on the left."""
    for ax in axes:
        ax.set_ylim(len(names) - 0.5, -0.5)
        ax.set_yticks(range(len(names)), names if ax is axes[0] else [])
        ax.tick_params(axis="y", length=0)
        for edge in range(1, len(names)):
            ax.axhline(edge - 0.5, **RULE)


def named_lines(axes: Sequence[Axes], names: Sequence[str]) -> None:
    """A line of each panel for each name, the names on the left."""
    for ax in axes:
        ax.set_ylim(len(names) - 0.5, -0.5)
        ax.set_yticks(range(len(names)), names)
        ax.tick_params(axis="y", length=0, labelleft=ax is axes[0])


def share_axis(ax: Axes) -> None:
    """A horizontal axis of shares."""
    ax.set_xlim(0, 1)
    ax.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])


def on_one_scale(axes: Iterable[Axes]) -> None:
    """The widest of the vertical ranges for all of them, so that their values can be compared."""
    drawn = list(axes)
    if drawn:
        low, high = zip(*(ax.get_ylim() for ax in drawn), strict=True)
        for ax in drawn:
            ax.set_ylim(min(low), max(high))


def lettered(axes: Iterable[Axes], **style: Any) -> None:
    """(a), (b), ... before the titles; a single panel needs none."""
    panels = list(axes)
    for place, ax in enumerate(panels if len(panels) > 1 else []):
        ax.set_title(f"({chr(ord('a') + place)}) {ax.get_title(loc='left')}", loc="left", **style)


def legend_above(figure: Figure | SubFigure, handles: Sequence[Artist], ncols: int, **options: Any) -> None:
    """A legend above all panels."""
    figure.legend(handles=handles, loc="outside upper center", ncols=ncols, **options)


def legend_below(figure: Figure | SubFigure, handles: Sequence[Artist], ncols: int, **options: Any) -> None:
    """A legend below all panels."""
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
