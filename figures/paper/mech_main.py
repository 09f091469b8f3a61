"""The circuit in three families: copies, matching, W_A, the last query.

Left, the scores of the copy heads, ordered by the lag they attend to, and of the match head. Top right, the match
weights of the two disentangled models. Bottom right, the last query's attention.
"""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from figures.parts import attention as parts
from figures.parts.panels import on_one_scale, parts_of
from figures.parts.rows import Results, Row
from models.families.registry import find_family

LABEL = "fig:mech_main"
ANALYSES = {
    "attention": lambda rows: parts.kept(
        parts.of_families(rows, LENGTH, both_starts=True), "copy_scores", "match_scores", "match_weight"
    )
}
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
STRIP = 1.35  # inches: the height of a model from another start


def draw(results: Results) -> Figure:
    """The models in the paper's place as the paper shows them; below, those from a soft start, one in a row."""
    starts = parts.by_family(results).values()
    rows, soft = [mine[0] for mine in starts], [row for mine in starts for row in mine[1:]]
    highest = parts.largest_weight(results["attention"])
    figure = plt.figure(figsize=(6.3, 4.3 + STRIP * len(soft)))
    above, *strips = parts_of(figure, rows=1 + len(soft), height_ratios=[4.3, *(STRIP for _ in soft)])
    left, right = parts_of(above, columns=2, width_ratios=(1.28, 1.0))
    kinds = [*parts.copy_kinds(rows, scores=True), ("match", parts.match_score_panel, {})]
    titles = [parts.title_of(row, parts.in_order(results)) for row in rows]
    maps = parts.draw_maps(left, rows, kinds, titles)
    parts.colour_bar(left, maps.flat, **parts.SCORE_BAR, location="bottom", shrink=0.7, aspect=40)
    with_blocks = [row for row in rows if row["match_weight"] is not None]
    top, bottom = parts_of(right, rows=2, height_ratios=(1.0, 1.75)) if with_blocks else (None, right)
    if top is not None:
        names = [row["subject"]["family"] for row in with_blocks]
        titles = [f"$W_A^{{(2)}}$, {name if find_family(name).analytic else 'trained'}" for name in names]
        parts.draw_weights(top, with_blocks, titles, highest=highest, shrink=0.85, aspect=15)
    bars = draw_bars(bottom, rows)
    parts.overlap_key(bottom, results["attention"])
    on_one_scale([*bars, *(draw_strip(strip, row, highest) for strip, row in zip(strips, soft, strict=True))])
    return figure


def draw_bars(figure: SubFigure, rows: Sequence[Row]) -> list[Axes]:
    """The last query's attention."""
    axes = figure.subplots(len(rows), 1, squeeze=False)[:, 0]
    for ax, row in zip(axes, rows, strict=True):
        parts.bars_panel(ax, row, title=row["subject"]["family"])
        ax.set_xlabel("key position (BOS is 0)" if ax is axes[-1] else "")
        ax.set_ylabel("weight")
    return list(axes)


def draw_strip(figure: SubFigure, row: Row, highest: float) -> Axes:
    """One model in a row: copy heads, match head, match weights where it has blocks, the last query."""
    order = parts.order_of(row)
    *maps, weights, bars = figure.subplots(1, order + 3, width_ratios=[1.0] * (order + 2) + [1.6])
    for place, ax in enumerate(maps[:-1]):
        parts.copy_panel(ax, row, place, scores=True)
        ax.set_title(f"copy, lag {place + 1}")
    parts.match_score_panel(maps[-1], row)
    maps[-1].set_title("match")
    if row["match_weight"] is None:
        weights.set_axis_off()
    else:
        parts.weight_panel(weights, row, highest=highest)
        weights.set_title("$W_A^{(2)}$")
    parts.bars_panel(bars, row, title="")
    for ax in (*maps, weights, bars):
        ax.set(xlabel="", ylabel="")
    maps[0].set_ylabel(f"{parts.title_of(row, [row, row])}\nquery position")
    bars.set_ylabel("weight")
    return bars


def fields(results: Results) -> dict[str, object]:
    rows = results["attention"]
    soft = len({row["subject"]["family"] for row in rows}) < len(rows)
    return {**parts.caption_fields(results), "below": BELOW if soft else ""}
