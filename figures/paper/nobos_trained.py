"""Disentangled model, trained without BOS.

Independent task: weights, attention, soft matching at the last query. It joins
fig:app2_nobos_tr_weights and fig:app2_nobos_tr_attn of the paper.
"""

from figures.parts.attention import Page, caption_fields

LABEL = "fig:app2_nobos_tr_attn"
ANALYSES = ("attention",)
CLAIMS = ("nobos_trained",)
PAGE = Page(
    model="The disentangled model trained without BOS", title="last query: soft matching", scores=True, bos=False
)
CAPTION, chosen, draw, fields = PAGE.caption, PAGE.chosen, PAGE.draw, caption_fields
