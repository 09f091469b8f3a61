"""What tests of pictures share: a figure as the command draws it, and whether it can be read."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axis import Axis
from matplotlib.figure import Figure

from figures.parts.figure import load_figure
from figures.running import drawing

WIDEST = 6.3  # inches: the width of a page's text
SMALLEST = 6.0  # points
TOUCHING = 1.0  # points that two texts may share: the box of a text is larger than its ink


def drawn(name: str, results: dict[str, Any]) -> Figure:
    """The figure of that name in the house style, of the rows that it picks."""
    one = load_figure(name)
    with plt.style.context(drawing.STYLE):
        figure = drawing.picture_of(one, one.chosen(results))
        figure.canvas.draw()
    return figure


def assert_readable(figure: Figure) -> None:
    """No text is cut off, too small or on another; the picture fits a page's width."""
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    page = figure.bbox.padded(1)
    assert figure.get_size_inches()[0] <= WIDEST
    hidden = {id(text) for ax in figure.axes for axis in (ax.xaxis, ax.yaxis) for text in _not_drawn(axis)}
    boxes = []
    for text in figure.findobj(plt.Text):
        if text.get_visible() and text.get_text().strip() and id(text) not in hidden:
            box = text.get_window_extent(renderer)
            assert page.contains(box.x0, box.y0), text.get_text()
            assert page.contains(box.x1, box.y1), text.get_text()
            assert text.get_fontsize() >= SMALLEST, text.get_text()
            boxes.append((text.get_text(), box))
    touching = TOUCHING * figure.dpi / 72
    for (words, one), (others, other) in combinations(boxes, 2):
        wide = min(one.x1, other.x1) - max(one.x0, other.x0)
        high = min(one.y1, other.y1) - max(one.y0, other.y0)
        assert min(wide, high) <= touching, f"{words!r} lies on {others!r}"


def _not_drawn(axis: Axis) -> list[plt.Text]:
    """Texts that exist but are not drawn: those of axes that are switched off, and of ticks outside the view."""
    if not axis.axes.axison:
        return axis.findobj(plt.Text)
    low, high = sorted(axis.get_view_interval())
    ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
    return [text for tick in ticks if not low <= tick.get_loc() <= high for text in (tick.label1, tick.label2)]
