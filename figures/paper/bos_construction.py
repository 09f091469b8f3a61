"""Construction with BOS, at large beta.

Weights, attention, exact matches and BOS at the last query. It joins
fig:app2_bos_con_weights and fig:app2_bos_con_attn of the paper.
"""

from figures.parts.attention import Page, caption_fields

LABEL = "fig:app2_bos_con_attn"
ANALYSES = ("construction_attention",)
CLAIMS = ("appendix_constructions",)
PAGE = Page(
    model="The construction with BOS at a large beta", title="last query: exact matches and BOS", scores=True,
    construction="bos",
)  # fmt: skip
CAPTION, chosen, draw, fields = PAGE.caption, PAGE.chosen, PAGE.draw, caption_fields
