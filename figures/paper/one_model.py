"""One model in full: three constructions, and the disentangled model trained with and without BOS (independent prior).

Weights and attention are one figure here, where the paper has two: fig:app2_..._weights and fig:app2_..._attn.
"""

from __future__ import annotations

from matplotlib.figure import Figure as Plt

from figures.parts.attention import PAGE_FIELDS, caption_fields, draw_model, independent, kept
from figures.parts.figure import Figure
from figures.parts.panels import there
from figures.parts.rows import Results, Row, where

LABEL = {
    "nobos_construction_fixed": ("fig:app2_nobos_con_fixed_attn", "Construction without BOS, fixed large beta"),
    "nobos_construction_adaptive": ("fig:app2_nobos_con_adaptive_attn", "Construction without BOS, the lemma's beta"),
    "nobos_trained": ("fig:app2_nobos_tr_attn", "Disentangled model, trained without BOS"),
    "bos_construction": ("fig:app2_bos_con_attn", "Construction with BOS, at large beta"),
    "bos_trained": ("fig:app2_bos_tr_attn", "Disentangled model, trained with BOS"),
}
CAPTION = (
    "{model} ({{setting}}) on one sequence of the independent prior. Top: relative biases of the copy heads, ordered "
    "by the lag they attend to, and of the match head (an arrow head: beyond the scale), and the match weights, query "
    "blocks down and key blocks across ({{dashes}}). Middle: attention of the copy heads after the softmax, with each "
    "head's mean weight on its lag (`last`: of the last query, where BOS takes some), and of the match head {match}; "
    "colours of weights follow their square root. Bottom: the last query's match attention, each key coloured by its "
    "overlap, with the share of each kind above. {{starts}}"
)
BEFORE, AFTER = "before it, less the largest score of its query", "after it"


def of_model(model: str, title: str, *, claim: str, construction: str = "", bos: bool = True, scores: bool) -> Figure:
    """The figure of a construction by its name, or else of the trained disentangled model with or without BOS."""
    analysis = "construction_attention" if construction else "attention"
    missing = construction or f"disentangled model, independent prior {'with' if bos else 'without'} BOS"

    def chosen(rows: list[Row]) -> list[Row]:
        mine = where(rows, construction=construction)[:1] if construction else independent(rows, bos=bos)
        return kept(mine, *PAGE_FIELDS)

    def draw(results: Results) -> Plt:
        ((row,),) = there({missing: results[analysis]}).values()
        return draw_model(row, title=title, scores=scores)

    caption = CAPTION.format(model=model, match=BEFORE if scores else AFTER)
    return Figure(ANALYSES={analysis: chosen}, CLAIMS=(claim,), CAPTION=caption, draw=draw, fields=caption_fields)


FIGURES = {
    "nobos_construction_fixed": of_model(
        "The construction without BOS at a large beta", "last query: hard matching (large beta)",
        construction="hard", claim="appendix_constructions", scores=False,
    ),
    "nobos_construction_adaptive": of_model(
        "The construction without BOS at the beta of lemma:optimal_beta",
        "last query: interpolation (the lemma's beta)",
        construction="adaptive", claim="appendix_constructions", scores=False,
    ),
    "nobos_trained": of_model(
        "The disentangled model trained without BOS", "last query: soft matching",
        bos=False, claim="nobos_trained", scores=True,
    ),
    "bos_construction": of_model(
        "The construction with BOS at a large beta", "last query: exact matches and BOS",
        construction="bos", claim="appendix_constructions", scores=True,
    ),
    "bos_trained": of_model(
        "The disentangled model trained with BOS", "last query: exact matches and BOS",
        bos=True, claim="bos_trained", scores=True,
    ),
}  # fmt: skip
