"""Construction with BOS, at large beta.

Weights, attention, exact matches and BOS at the last query. It joins
fig:app2_bos_con_weights and fig:app2_bos_con_attn of the paper.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from figures.parts import attention as panels
from figures.parts.rows import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LABEL = "fig:app2_bos_con_attn"
ANALYSES = ("construction_attention",)
CLAIMS = ("appendix_constructions",)
CAPTION = panels.page_caption("The construction with BOS at a large beta", scores=True)
CONSTRUCTION = "bos"


def chosen(results: dict[str, list[Row]]) -> dict[str, list[Row]]:
    return panels.construction_page(results, CONSTRUCTION)


def draw(results: dict[str, list[Row]]) -> Figure:
    row = panels.page_row(results)
    return panels.draw_page(
        row,
        title="last query: exact matches and BOS",
        what="construction_attention, bos",
        scores=True,
    )


fields = panels.caption_fields
