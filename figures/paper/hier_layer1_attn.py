"""Copy heads of three families at T = 128, hard and soft starts."""

from __future__ import annotations

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from figures.parts import attention as parts
from figures.parts.rows import Results

LABEL = "fig:hier_layer1_attn"
ANALYSES = ("attention",)
CLAIMS = ("sharp_copies_long", "last_query_copies", "every_run_copies")
CAPTION = (
    "Copy heads on one sequence of the hierarchical prior with BOS ({setting}), ordered by the lag they attend to. The "
    "number in a panel is the mean weight on that lag over the queries that have a token there (`last`: of the last "
    "query, where BOS takes some); heads are counted from 0. Colours follow the square root of the weight. {starts}"
)
LENGTH = 128


def chosen(results: Results) -> Results:
    rows = parts.of_both_starts(results["attention"], LENGTH, **parts.HIERARCHICAL)
    return {"attention": [parts.kept(row, "copy_pattern") for row in rows]}


def draw(results: Results) -> Figure:
    columns = parts.columns_of(results, length=LENGTH)
    kinds = parts.copy_kinds(columns)
    figure = plt.figure(figsize=(6.3, 0.4 + 5.55 / len(columns) * len(kinds)))  # panels are square
    maps = parts.draw_maps(figure, columns, kinds)
    parts.colour_bar(figure, maps.flat, **parts.PATTERN_BAR, location="right", shrink=0.7, aspect=30)
    return figure


fields = parts.caption_fields
