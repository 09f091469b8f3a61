"""The circuit in three families: copies, matching, W_A, the last query.

Left, the scores of the copy heads, ordered by the lag they attend to, and of the match head. Top right, the match
weights of the two disentangled models. Bottom right, the last query's attention.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from figures.parts import attention as panels
from figures.parts import circuit
from figures.parts.panels import on_one_scale
from figures.parts.rows import Row
from models.families.registry import PAPER, find_family

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

LABEL = "fig:mech_main"
ANALYSES = ("attention",)
CLAIMS = ("sharp_copies", "blocks", "full_and_partial")
CAPTION = (
    "One sequence of the hierarchical prior with BOS ({setting}). Left: scores before the softmax of the two copy "
    "heads, ordered by the lag they attend to, and of the match head, each less the largest of its query, which is "
    "all that the softmax sees (a key {range:g} nats below has e^-{range:g} of the best one's weight); the number in "
    "a panel is the head's mean weight on its lag over all queries that have a token there (`last`: of the last "
    "query, where BOS takes some). The red arrow marks the last query, the only one that carries the loss. Top right: "
    "match weights on one scale, query blocks down and key blocks across, in the order of the lags that the copy "
    "heads write into them ({dashes}). Bottom right: the last query's match attention, each key coloured by its "
    "overlap, with the share of each kind. Heads are counted from 0. {below}{starts}"
)
BELOW = "Below: the same of models from a soft start, on the same scales. "
LENGTH = 32  # app:hierarchical_experiments: the main text's figure is of T = 32
WITH_BLOCKS = tuple(family for family in PAPER if find_family(family).blocks)


def chosen(results: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """The three families at one length, from both starts where both are there."""
    rows = circuit.of_both_starts(results["attention"], LENGTH, **circuit.HIERARCHICAL)
    return {"attention": [circuit.kept(row, "copy_scores", "match_scores", "match_weight") for row in rows]}


def draw(results: dict[str, list[Row]]) -> Figure:
    """The models in the paper's place as the paper shows them; below, those from a soft start, one in a row."""
    import matplotlib.pyplot as plt

    found, soft = circuit.by_start(results)
    highest = max((float(np.abs(matrix).max()) for matrix in map(weights_of, results["attention"])), default=1.0)
    figure = plt.figure(figsize=(6.3, 4.3 + 1.35 * len(soft)))
    above, *strips = panels.parts_of(figure, rows=1 + len(soft), height_ratios=[4.3, *(1.35 for _ in soft)])
    left, right = panels.parts_of(above, columns=2, width_ratios=(1.28, 1.0))
    draw_attention(left, results)
    top, bottom = panels.parts_of(right, rows=2, height_ratios=(1.0, 1.75))
    draw_weights(top, found, highest=highest)
    bars = draw_bars(bottom, results)
    bars += [draw_strip(strip, row, highest=highest) for strip, row in zip(strips, soft.values(), strict=True)]
    on_one_scale(ax for ax in bars if ax.containers)
    return figure


def weights_of(row: Row) -> Any:
    """The match weights, on whose largest entry all pictures of weights are scaled; zero where there are none."""
    return row["match_weight"] or [[0.0]]


def draw_attention(figure: SubFigure, results: dict[str, list[Row]]) -> None:
    """Rows: copy heads by lag, match head. Columns: families."""
    found, soft = circuit.by_start(results)
    heads = max((circuit.order_of(row) for row in found.values()), default=2)
    grid = figure.subplots(heads + 1, len(PAPER))
    length = panels.length_in(results, LENGTH)
    first = next((column for column, family in enumerate(PAPER) if family in found), 0)
    for column, family in enumerate(PAPER):
        row = found.get(family)
        for place, ax in enumerate(grid[:, column]):
            if row is None:
                panels.note(ax, panels.family_missing(family, length))
            elif place < heads:
                panels.copy_score_panel(ax, row, place)
            else:
                panels.match_score_panel(ax, row)
            ax.set_xlabel("key position" if place == heads else "")
            name = f"copy, lag {place + 1}" if place < heads else "match"
            ax.set_ylabel(f"{name}\nquery position" if column == first else "")
            if place == 0:
                ax.set_title(panels.title_of(family, row if soft else None))
            if place < heads and row is not None:
                ax.set_xticklabels([])
            if column != first and row is not None:
                ax.set_yticklabels([])
    panels.below_best_bar(figure, list(grid.flat), location="bottom", shrink=0.7, aspect=40)


def draw_weights(figure: SubFigure, found: dict[str, Row], *, highest: float) -> None:
    """W_A of the two disentangled models, on one scale."""
    axes = figure.subplots(1, len(WITH_BLOCKS))
    rows = {family: found[family] for family in WITH_BLOCKS if family in found}
    for ax, family in zip(axes, WITH_BLOCKS, strict=True):
        if family in rows:
            panels.weight_panel(ax, rows[family], highest=highest)
        else:
            panels.note(ax, f"match weights of the {family} model", width=16)
        ax.set_title(f"$W_A^{{(2)}}$, {family if find_family(family).analytic else 'trained'}")
        if family != next(iter(rows), None):
            ax.set_ylabel("")
    if rows:
        image = next(ax.images[0] for ax in axes if ax.images)
        figure.colorbar(image, ax=list(axes), shrink=0.85, aspect=15, label=panels.WEIGHT_LABEL)


def draw_bars(figure: SubFigure, results: dict[str, list[Row]]) -> list[Axes]:
    """The last query's attention."""
    found, _ = circuit.by_start(results)
    axes = figure.subplots(len(PAPER), 1)
    length = panels.length_in(results, LENGTH)
    for ax, family in zip(axes, PAPER, strict=True):
        if family in found:
            panels.bars_panel(ax, found[family], title=family, short=True)
        else:
            panels.note(ax, panels.family_missing(family, length), width=32, square=False)
        ax.set_xlabel("key position (BOS is 0)" if ax is axes[-1] else "")
        ax.set_ylabel("weight")
    panels.overlap_key(figure, results["attention"])
    return list(axes)


def draw_strip(figure: SubFigure, row: Row, *, highest: float) -> Axes:
    """One model in a row: copy heads, match head, match weights where it has blocks, the last query."""
    order, family = circuit.order_of(row), row["subject"]["family"]
    *maps, weights, bars = figure.subplots(1, order + 3, width_ratios=[1.0] * (order + 2) + [1.6])
    for place, ax in enumerate(maps):
        if place < order:
            panels.copy_score_panel(ax, row, place)
        else:
            panels.match_score_panel(ax, row)
        ax.set_title(f"copy, lag {place + 1}" if place < order else "match")
        ax.set_xlabel("")
        ax.set_ylabel(f"{panels.title_of(family, row)}\nquery position" if place == 0 else "")
    if row["match_weight"] is None:
        weights.set_axis_off()
    else:
        panels.weight_panel(weights, row, highest=highest)
        weights.set_title("$W_A^{(2)}$")
        weights.set_xlabel("")
        weights.set_ylabel("")
    panels.bars_panel(bars, row, title="", short=True)
    bars.set_xlabel("")
    bars.set_ylabel("weight")
    return bars


def fields(results: dict[str, list[Row]]) -> dict[str, object]:
    _, soft = circuit.by_start(results)
    return {**panels.caption_fields(results), "below": BELOW if soft else ""}
