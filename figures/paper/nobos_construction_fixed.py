"""Construction without BOS, fixed large beta.

Weights, attention, hard matching at the last query. It joins
fig:app2_nobos_con_fixed_weights and fig:app2_nobos_con_fixed_attn of the paper.
"""

from figures.parts.attention import Page, caption_fields

LABEL = "fig:app2_nobos_con_fixed_attn"
ANALYSES = ("construction_attention",)
CLAIMS = ("appendix_constructions",)
PAGE = Page(
    model="The construction without BOS at a large beta", title="last query: hard matching (large beta)", scores=False,
    construction="hard",
)  # fmt: skip
CAPTION, chosen, draw, fields = PAGE.caption, PAGE.chosen, PAGE.draw, caption_fields
