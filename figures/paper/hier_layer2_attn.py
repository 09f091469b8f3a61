"""Match attention of three families, T = 128: scores above, weights below."""

from __future__ import annotations

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from figures.parts import attention as parts
from figures.parts.rows import Results

LABEL = "fig:hier_layer2_attn"
ANALYSES = ("attention",)
CLAIMS = ("queries_match",)
CAPTION = (
    "Match head on one sequence of the hierarchical prior with BOS ({setting}). Top: scores before the softmax, less "
    "the largest of their query: the softmax sees no more of them. Bottom: weights after it; colours follow the square "
    "root of the weight. The red arrow marks the last query, the only one that carries the loss. {starts}"
)
LENGTH = 128
KINDS: parts.Kinds = [("scores", parts.match_score_panel, {}), ("weights", parts.match_panel, {})]


def chosen(results: Results) -> Results:
    found = parts.of_one_length(results["attention"], LENGTH, **parts.HIERARCHICAL)
    return {"attention": [parts.kept(row, "match_scores", "match_pattern") for row in found.values()]}


def draw(results: Results) -> Figure:
    figure = plt.figure(figsize=(6.3, 4.6))
    above, below = parts.draw_maps(figure, parts.columns_of(results, length=LENGTH), KINDS)
    parts.colour_bar(figure, above, **parts.SCORE_BAR, location="bottom", shrink=0.5, aspect=40)
    parts.colour_bar(figure, below, **parts.PATTERN_BAR, location="bottom", shrink=0.5, aspect=40)
    return figure


fields = parts.caption_fields
