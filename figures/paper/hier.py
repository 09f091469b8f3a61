"""Three families on one sequence of the hierarchical prior with BOS, T = 128: hier_induction and hier_layer*."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import matplotlib.pyplot as plt
from matplotlib.figure import Figure as Plt

from figures.parts import attention as parts
from figures.parts.figure import Figure
from figures.parts.rows import Row
from models.families.registry import PAPER, find_family

LABEL = {
    "hier_induction": ("fig:hier_induction", "The last query's attention by overlap in three families, T = 128"),
    "hier_layer1_attn": ("fig:hier_layer1_attn", "Copy heads of three families at T = 128, hard and soft starts"),
    "hier_layer2_attn": (
        "fig:hier_layer2_attn", "Match attention of three families, T = 128: scores above, weights below",
    ),
    "hier_layer2_wa": (
        "fig:hier_layer2_wa", "Match weights W_A^(2), construction and trained, T = 128; hard and soft starts",
    ),
}  # fmt: skip
LENGTH = 128
MATCH_KINDS: parts.Kinds = [("scores", parts.match_score_panel, {}), ("weights", parts.match_panel, {})]


def draw_induction(rows: Sequence[Row]) -> Plt:
    """Bars of the last query, the families below each other."""
    labels = [find_family(row["subject"]["family"]).label for row in rows]
    return parts.draw_bars(
        [(f"{name}, T = {parts.length_of(row)}", row) for name, row in zip(labels, rows, strict=True)]
    )


def draw_copies(rows: Sequence[Row]) -> Plt:
    """The attention of the copy heads, lags below each other; panels are square."""
    kinds = parts.copy_kinds(rows)
    width = 5.55 / max(len(rows), 3)
    figure = plt.figure(figsize=(0.75 + width * len(rows), 0.4 + width * len(kinds)))
    maps = parts.draw_maps(figure, rows, kinds, [parts.title_of(row, rows) for row in rows])
    parts.colour_bar(figure, maps.flat, **parts.PATTERN_BAR, location="right", shrink=0.7, aspect=30)
    return figure


def draw_match(rows: Sequence[Row]) -> Plt:
    """Scores of the match head above, its weights below."""
    figure = plt.figure(figsize=(6.3, 4.6))
    above, below = parts.draw_maps(figure, rows, MATCH_KINDS, [parts.title_of(row, rows) for row in rows])
    parts.colour_bar(figure, above, **parts.SCORE_BAR, location="bottom", shrink=0.5, aspect=40)
    parts.colour_bar(figure, below, **parts.PATTERN_BAR, location="bottom", shrink=0.5, aspect=40)
    return figure


def draw_weights(rows: Sequence[Row]) -> Plt:
    """The match weights on one scale."""
    figure = plt.figure(figsize=(6.3, 2.8 if len(rows) < 3 else 2.4))
    titles = [parts.title_of(row, rows) for row in rows]
    parts.draw_weights(figure, rows, titles, highest=parts.largest_weight(rows))
    return figure


def of_three(
    draw: Callable[[Sequence[Row]], Plt], *fields: str, claims: tuple[str, ...], caption: str,
    families: Sequence[str] = PAPER, both_starts: bool = False,
) -> Figure:  # fmt: skip
    """A figure of the families at one length, with the fields of their rows that are drawn."""

    def chosen(rows: list[Row]) -> list[Row]:
        return parts.kept(parts.of_families(rows, LENGTH, families=families, both_starts=both_starts), *fields)

    return Figure(
        ANALYSES={"attention": chosen}, CLAIMS=claims, CAPTION=caption,
        draw=lambda results: draw(parts.in_order(results, families)), fields=parts.caption_fields,
    )  # fmt: skip


FIGURES = {
    "hier_induction": of_three(
        draw_induction, claims=("hier_induction",),
        caption="Match attention of the last query on one sequence of the hierarchical prior with BOS ({setting}). "
        "Each key is coloured by its overlap with the query's context; above each panel the share of each kind; the "
        "vertical scale is one. {starts}",
    ),
    "hier_layer1_attn": of_three(
        draw_copies, "copy_pattern", claims=("sharp_copies_long", "last_query_copies", "every_run_copies"),
        both_starts=True,
        caption="Copy heads on one sequence of the hierarchical prior with BOS ({setting}), ordered by the lag they "
        "attend to. The number in a panel is the mean weight on that lag over the queries that have a token there "
        "(`last`: of the last query, where BOS takes some); heads are counted from 0. Colours follow the square root "
        "of the weight. {starts}",
    ),
    "hier_layer2_attn": of_three(
        draw_match, "match_scores", "match_pattern", claims=("queries_match",),
        caption="Match head on one sequence of the hierarchical prior with BOS ({setting}). Top: scores before the "
        "softmax, less the largest of their query: the softmax sees no more of them. Bottom: weights after it; colours "
        "follow the square root of the weight. The red arrow marks the last query, the only one that carries the loss. "
        "{starts}",
    ),
    "hier_layer2_wa": of_three(
        draw_weights, "match_weight", claims=("blocks_long",), families=parts.WITH_BLOCKS, both_starts=True,
        caption="Match weights W_A^(2) on the hierarchical prior with BOS ({setting}), on one scale: query blocks "
        "down, key blocks across, each |V| x |V|, in the order of the lags that the copy heads write into them "
        "({dashes}). {starts}",
    ),
}  # fmt: skip
