"""What schematic figures share: pages measured in inches, words and boxes on them, and symbols as letters."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch


def page_of_inches(width: float, height: float) -> Axes:
    """Axes over a whole new figure, whose coordinates are inches from the lower left corner."""
    figure = plt.figure(figsize=(width, height))
    figure.set_layout_engine("none")  # places are given; said later than figsize, or saving would bring the engine back
    page = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    page.set_axis_off()
    page.set_xlim(0.0, width)
    page.set_ylim(0.0, height)
    return page


def whole(page: Axes) -> Figure:
    """The figure that a page fills."""
    figure = page.get_figure(root=True)
    assert figure is not None
    return figure


def write(page: Axes, x: float, y: float, words: str, **look: Any) -> None:
    """Small words whose middle is at height y."""
    page.text(x, y, words, **{"fontsize": 6.5, "va": "center", **look})


def surround(page: Axes, left: float, bottom: float, right: float, top: float, *, pad: float, **look: Any) -> None:
    """A box with round corners whose edges stand at these places."""
    inside = (left + pad, bottom + pad), right - left - 2 * pad, top - bottom - 2 * pad
    page.add_patch(FancyBboxPatch(*inside, boxstyle=f"round,pad={pad}", **look))


def letter(token: int) -> str:
    """The letter of a token, so that it is not taken for a count or a position.

    >>> letter(0), letter(2)
    ('a', 'c')
    """
    if not 0 <= token < 26:
        raise ValueError(f"expected a token of 0..25, which has a letter, got {token}")
    return chr(ord("a") + token)


def letters(vocab: int) -> str:
    """The whole vocabulary in words, e.g. "a, b and c"."""
    *first, last = map(letter, range(vocab))
    return f"{', '.join(first)} and {last}"
