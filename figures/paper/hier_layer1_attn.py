"""Copy heads of three families at T = 128, hard and soft starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from figures.parts import attention as panels
from figures.parts import circuit
from figures.parts.rows import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LABEL = "fig:hier_layer1_attn"
ANALYSES = ("attention",)
CLAIMS = ("sharp_copies_long", "last_query_copies", "every_run_copies")
CAPTION = (
    "Copy heads on one sequence of the hierarchical prior with BOS ({setting}), ordered by the lag they attend to. The "
    "number in a panel is the mean weight on that lag over the queries that have a token there (`last`: of the last "
    "query, where BOS takes some); heads are counted from 0. Colours follow the square root of the weight. {starts}"
)
LENGTH = 128


def chosen(results: dict[str, list[Row]]) -> dict[str, list[Row]]:
    rows = circuit.of_both_starts(results["attention"], LENGTH, **circuit.HIERARCHICAL)
    return {"attention": [circuit.kept(row, "copy_pattern") for row in rows]}


def draw(results: dict[str, list[Row]]) -> Figure:
    import matplotlib.pyplot as plt

    columns = panels.columns_of(results)
    heads = max((circuit.order_of(row) for row in results["attention"]), default=2)
    height = 5.55 / len(columns) * heads  # panels are square
    figure, grid = plt.subplots(heads, len(columns), figsize=(6.3, height + 0.4), squeeze=False)
    length = panels.length_in(results, LENGTH)
    first = panels.first_column(columns)
    for column, (family, title, row) in enumerate(columns):
        for place, ax in enumerate(grid[:, column]):
            if row is None:
                panels.note(ax, panels.family_missing(family, length))
            else:
                panels.copy_panel(ax, row, place)
            ax.set_xlabel("key position" if place == heads - 1 else "")
            ax.set_ylabel(f"copy, lag {place + 1}\nquery position" if column == first else "")
            if place == 0:
                ax.set_title(title)
            if place < heads - 1 and row is not None:
                ax.set_xticklabels([])
            if column != first and row is not None:
                ax.set_yticklabels([])
    panels.weight_bar(figure, list(grid.flat), location="right", shrink=0.7, aspect=30)
    return figure


fields = panels.caption_fields
