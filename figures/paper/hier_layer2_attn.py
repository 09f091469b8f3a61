"""Match attention of three families, T = 128: scores above, weights below."""

from __future__ import annotations

from typing import TYPE_CHECKING

from figures.parts import attention as panels
from figures.parts import circuit
from figures.parts.rows import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LABEL = "fig:hier_layer2_attn"
ANALYSES = ("attention",)
CLAIMS = ("queries_match",)
CAPTION = (
    "Match head on one sequence of the hierarchical prior with BOS ({setting}). Top: scores before the softmax, less "
    "the largest of their query: the softmax sees no more of them. Bottom: weights after it; colours follow the square "
    "root of the weight. The red arrow marks the last query, the only one that carries the loss. {starts}"
)
LENGTH = 128


def chosen(results: dict[str, list[Row]]) -> dict[str, list[Row]]:
    found = circuit.of_one_length(results["attention"], LENGTH, **circuit.HIERARCHICAL)
    return {"attention": [circuit.kept(row, "match_scores", "match_pattern") for row in found.values()]}


def draw(results: dict[str, list[Row]]) -> Figure:
    import matplotlib.pyplot as plt

    columns = panels.columns_of(results)
    figure, grid = plt.subplots(2, len(columns), figsize=(6.3, 4.6))
    length = panels.length_in(results, LENGTH)
    for column, (family, title, row) in enumerate(columns):
        above, below = grid[:, column]
        if row is None:
            panels.note(above, panels.family_missing(family, length))
            panels.note(below, panels.family_missing(family, length))
        else:
            panels.match_score_panel(above, row)
            panels.match_panel(below, row)
            above.set_xlabel("")
            if column != panels.first_column(columns):
                above.set_ylabel("")
                below.set_ylabel("")
        above.set_title(title)
    panels.below_best_bar(figure, list(grid[0]), location="bottom", shrink=0.5, aspect=40)
    panels.weight_bar(figure, list(grid[1]), location="bottom", shrink=0.5, aspect=40)
    return figure


fields = panels.caption_fields
