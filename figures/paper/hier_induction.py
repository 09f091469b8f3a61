"""The last query's attention by overlap in three families, T = 128."""

from __future__ import annotations

from typing import TYPE_CHECKING

from figures.parts import attention as panels
from figures.parts import circuit
from figures.parts.rows import Row
from models.families.registry import find_family

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LABEL = "fig:hier_induction"
ANALYSES = ("attention",)
CLAIMS = ("hier_induction",)
CAPTION = (
    "Match attention of the last query on one sequence of the hierarchical prior with BOS ({setting}). Each key is "
    "coloured by its overlap with the query's context; the legends give the share of each kind, and the vertical scale "
    "is one. {starts}"
)
LENGTH = 128


def chosen(results: dict[str, list[Row]]) -> dict[str, list[Row]]:
    found = circuit.of_one_length(results["attention"], LENGTH, **circuit.HIERARCHICAL)
    return {"attention": [circuit.kept(row) for row in found.values()]}


def draw(results: dict[str, list[Row]]) -> Figure:
    length = panels.length_in(results, LENGTH)
    return panels.draw_bars(
        [
            (f"{find_family(family).label}, T = {length}", row, panels.family_missing(family, length))
            for family, _, row in panels.columns_of(results)
        ],
        height=4.2,
    )


fields = panels.caption_fields
