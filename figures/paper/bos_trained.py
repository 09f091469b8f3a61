"""Disentangled model, trained with BOS.

Independent task: weights, attention, matches and BOS at the last query. It joins
fig:app2_bos_tr_weights and fig:app2_bos_tr_attn of the paper.
"""

from figures.parts.attention import Page, caption_fields

LABEL = "fig:app2_bos_tr_attn"
ANALYSES = ("attention",)
CLAIMS = ("bos_trained",)
PAGE = Page(
    model="The disentangled model trained with BOS", title="last query: exact matches and BOS", scores=True, bos=True
)
CAPTION, chosen, draw, fields = PAGE.caption, PAGE.chosen, PAGE.draw, caption_fields
