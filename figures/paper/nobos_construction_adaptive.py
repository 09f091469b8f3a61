"""Construction without BOS, the lemma's beta.

Weights, attention, interpolation at the last query. It joins
fig:app2_nobos_con_adaptive_weights and fig:app2_nobos_con_adaptive_attn of the paper.
"""

from figures.parts.attention import Page, caption_fields

LABEL = "fig:app2_nobos_con_adaptive_attn"
ANALYSES = ("construction_attention",)
CLAIMS = ("appendix_constructions",)
PAGE = Page(
    model="The construction without BOS at the beta of lemma:optimal_beta",
    title="last query: interpolation (the lemma's beta)", scores=False, construction="adaptive",
)  # fmt: skip
CAPTION, chosen, draw, fields = PAGE.caption, PAGE.chosen, PAGE.draw, caption_fields
