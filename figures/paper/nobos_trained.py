"""Disentangled model, trained without BOS.

Independent task: weights, attention, soft matching at the last query. It joins
fig:app2_nobos_tr_weights and fig:app2_nobos_tr_attn of the paper.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from figures.parts import attention as panels
from figures.parts import circuit
from figures.parts.rows import Row, nearest

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LABEL = "fig:app2_nobos_tr_attn"
ANALYSES = ("attention",)
CLAIMS = ("nobos_trained",)
CAPTION = panels.page_caption("The disentangled model trained without BOS", scores=True)
LENGTH = 64


def chosen(results: dict[str, list[Row]]) -> dict[str, list[Row]]:
    row = nearest(results["attention"], LENGTH, family="disentangled", prior="independent", bos=False)
    return {"attention": [] if row is None else [circuit.kept(row, *panels.PAGE_FIELDS)]}


def draw(results: dict[str, list[Row]]) -> Figure:
    row = panels.page_row(results)
    return panels.draw_page(
        row,
        title="last query: soft matching",
        what="disentangled model, independent prior without BOS",
        scores=True,
    )


fields = panels.caption_fields
