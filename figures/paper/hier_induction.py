"""The last query's attention by overlap in three families, T = 128."""

from __future__ import annotations

from matplotlib.figure import Figure

from figures.parts.attention import HIERARCHICAL, caption_fields, columns_of, draw_bars, kept, length_of, of_one_length
from figures.parts.rows import Results
from models.families.registry import find_family

LABEL = "fig:hier_induction"
ANALYSES = ("attention",)
CLAIMS = ("hier_induction",)
CAPTION = (
    "Match attention of the last query on one sequence of the hierarchical prior with BOS ({setting}). Each key is "
    "coloured by its overlap with the query's context; the legends give the share of each kind, and the vertical scale "
    "is one. {starts}"
)
LENGTH = 128


def chosen(results: Results) -> Results:
    found = of_one_length(results["attention"], LENGTH, **HIERARCHICAL)
    return {"attention": [kept(row) for row in found.values()]}


def draw(results: Results) -> Figure:
    length = next(map(length_of, results["attention"]), LENGTH)
    columns = columns_of(results, length=LENGTH)
    titles = [f"{find_family(column.family).label}, T = {length}" for column in columns]
    bars = [(title, column.row, column.missing) for title, column in zip(titles, columns, strict=True)]
    return draw_bars(bars, height=4.2)


fields = caption_fields
