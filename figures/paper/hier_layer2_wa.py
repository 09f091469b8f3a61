"""Match weights W_A^(2), construction and trained, T = 128; hard and soft starts."""

from __future__ import annotations

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from figures.parts import attention as parts
from figures.parts.rows import Results

LABEL = "fig:hier_layer2_wa"
ANALYSES = ("attention",)
CLAIMS = ("blocks_long",)
CAPTION = (
    "Match weights W_A^(2) on the hierarchical prior with BOS ({setting}), on one scale: query blocks down, key blocks "
    "across, each |V| x |V|, in the order of the lags that the copy heads write into them ({dashes}). {starts}"
)
LENGTH = 128


def chosen(results: Results) -> Results:
    rows = parts.of_both_starts(results["attention"], LENGTH, **parts.HIERARCHICAL)
    mine = [row for row in rows if row["subject"]["family"] in parts.WITH_BLOCKS]
    return {"attention": [parts.kept(row, "match_weight") for row in mine]}


def draw(results: Results) -> Figure:
    columns = parts.columns_of(results, length=LENGTH, families=parts.WITH_BLOCKS)
    figure, axes = plt.subplots(1, len(columns), figsize=(6.3, 2.8 if len(columns) < 3 else 2.4))
    first = next((column for column in columns if column.row is not None), None)
    for ax, column in zip(axes, columns, strict=True):
        column.draw(ax, parts.weight_panel, highest=parts.largest_weight(results))
        ax.set_title(column.title)
        if column is not first:
            ax.set_ylabel("")
    parts.colour_bar(figure, axes, **parts.WEIGHT_BAR)
    return figure


fields = parts.caption_fields
