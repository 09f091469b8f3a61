"""Construction without BOS, fixed large beta.

Weights, attention, hard matching at the last query. It joins
fig:app2_nobos_con_fixed_weights and fig:app2_nobos_con_fixed_attn of the paper.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from figures.parts import attention as panels
from figures.parts.rows import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LABEL = "fig:app2_nobos_con_fixed_attn"
ANALYSES = ("construction_attention",)
CLAIMS = ("appendix_constructions",)
CAPTION = panels.page_caption("The construction without BOS at a large beta", scores=False)
CONSTRUCTION = "hard"


def chosen(results: dict[str, list[Row]]) -> dict[str, list[Row]]:
    return panels.construction_page(results, CONSTRUCTION)


def draw(results: dict[str, list[Row]]) -> Figure:
    row = panels.page_row(results)
    return panels.draw_page(
        row,
        title="last query: hard matching (large beta)",
        what="construction_attention, hard",
        scores=False,
    )


fields = panels.caption_fields
