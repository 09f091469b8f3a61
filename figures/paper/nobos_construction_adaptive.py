"""Construction without BOS, the lemma's beta.

Weights, attention, interpolation at the last query. It joins
fig:app2_nobos_con_adaptive_weights and fig:app2_nobos_con_adaptive_attn of the paper.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from figures.parts import attention as panels
from figures.parts.rows import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LABEL = "fig:app2_nobos_con_adaptive_attn"
ANALYSES = ("construction_attention",)
CLAIMS = ("appendix_constructions",)
CAPTION = panels.page_caption("The construction without BOS at the beta of lemma:optimal_beta", scores=False)
CONSTRUCTION = "adaptive"


def chosen(results: dict[str, list[Row]]) -> dict[str, list[Row]]:
    return panels.construction_page(results, CONSTRUCTION)


def draw(results: dict[str, list[Row]]) -> Figure:
    row = panels.page_row(results)
    return panels.draw_page(
        row,
        title="last query: interpolation (the lemma's beta)",
        what="construction_attention, adaptive",
        scores=False,
    )


fields = panels.caption_fields
