"""What schematic figures share: pages measured in inches, and symbols as letters."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def page_of_inches(width: float, height: float) -> Axes:
    """Axes over a whole new figure, whose coordinates are inches from the lower left corner."""
    import matplotlib.pyplot as plt

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
