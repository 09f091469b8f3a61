"""The claim or question of each figure in one sentence: what the page of `make reproduce` opens with.

A figure that is not named here is listed with the first sentence of its `CLAIM`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Claim:
    """sentence: what is claimed, or asked. topic: what it is about. ours: whether the paper leaves it open."""

    sentence: str
    topic: str
    ours: bool = False


TOPICS = ("task and circuit", "prediction", "copying", "matching", "cause", "training", "other")

CLAIMS = {
    "task_priors": Claim(
        sentence="The two priors differ in one thing: under the hierarchical one, contexts that share recent tokens "
        "share what they say of the next one.",
        topic="task and circuit",
    ),
    "two_layer_circuit": Claim(
        sentence="Two attention layers, copy then match, compute a smoothed n-gram estimator.",
        topic="task and circuit",
    ),
    "kl_vs_position": Claim(
        sentence="Trained transformers predict as well as the constructed estimator, and better than any add-alpha.",
        topic="prediction",
    ),
    "mech_main": Claim(
        sentence="Trained transformers contain the circuit: copy heads on single lags, a match head that weighs keys "
        "by how much of their context agrees.",
        topic="matching",
    ),
    "mech_indep": Claim(
        sentence="Hard matching counts, a finite beta interpolates, BOS adds alpha; trained models attend as these "
        "constructions do.",
        topic="matching",
    ),
    "nobos_construction_fixed": Claim(
        sentence="Without BOS and with a large fixed beta, the construction attends to exact matches alone.",
        topic="task and circuit",
    ),
    "nobos_construction_adaptive": Claim(
        sentence="Without BOS, a beta that depends on the length spreads attention to partial matches.",
        topic="task and circuit",
    ),
    "nobos_trained": Claim(
        sentence="Trained without BOS, models match softly: partial matches stand in for pseudo-counts.",
        topic="matching",
    ),
    "bos_construction": Claim(
        sentence="With BOS the construction matches sharply and stays smooth, because BOS holds the pseudo-counts.",
        topic="task and circuit",
    ),
    "bos_trained": Claim(
        sentence="Trained with BOS, models recover the construction with BOS.",
        topic="matching",
    ),
    "hier_layer1_attn": Claim(sentence="One copy head per lag, sharp in all three families.", topic="copying"),
    "hier_layer2_attn": Claim(
        sentence="In all three families each query attends to the keys whose context matches its own.",
        topic="matching",
    ),
    "hier_layer2_wa": Claim(
        sentence="The match weights have one block per lag and nothing elsewhere, constructed or trained.",
        topic="matching",
    ),
    "hier_induction": Claim(
        sentence="The last query puts most of its attention on full matches and a real share on partial ones.",
        topic="matching",
    ),
    "mass_by_overlap": Claim(
        sentence="A key's attention depends on its match mask alone, in proportion to exp(|beta|_M).",
        topic="matching",
    ),
    "lag_asymmetry": Claim(
        sentence="Under the hierarchical prior a match at lag 1 weighs more than one at lag 2.",
        topic="matching",
    ),
    "lag_pairs": Claim(
        sentence="The match head compares each lag of the query with the same lag of the key, and no other pair.",
        topic="matching",
    ),
    "identity_blocks": Claim(
        sentence="The match head tests tokens for equality and does nothing else.",
        topic="matching",
    ),
    "smoothing_source": Claim(
        sentence="Without BOS, models smooth by giving weight to partial matches.",
        topic="cause",
    ),
    "causal": Claim(
        sentence="The law causes the predictions: put in place of the attention, it leaves them as they are.",
        topic="cause",
    ),
    "direct_path": Claim(
        sentence="All that a model knows of the next token comes through the match head.",
        topic="cause",
    ),
    "pseudo_counts": Claim(
        sentence="Without BOS, partial matches act as a constant pseudo-count of alpha.",
        topic="prediction",
    ),
    "beta_kappa_zoo": Claim(
        sentence="Do trained models arrive at the beta and kappa that minimise the population loss?",
        topic="training",
        ours=True,
    ),
    "open_choices": Claim(
        sentence="The claims under the hierarchical prior do not depend on eta_0, which the paper does not give, nor "
        "on where kappa is left when only beta is trained.",
        topic="prediction",
        ours=True,
    ),
    "excess_over_bayes": Claim(
        sentence="How far are soft matching, trained models and classical smoothers from the Bayes predictor?",
        topic="prediction",
        ours=True,
    ),
    "regret_by_context": Claim(
        sentence="In which contexts does soft matching lose to the Bayes predictor?",
        topic="prediction",
        ours=True,
    ),
    "dynamics": Claim(sentence="In which order do the parts of the circuit form?", topic="training", ours=True),
    "conditions": Claim(
        sentence="Which condition does each claim need: frozen copies, a fixed readout, a readout that adds votes?",
        topic="cause",
        ours=True,
    ),
    "leaving_the_law": Claim(
        sentence="Is soft matching where training ends, without BOS?",
        topic="training",
        ours=True,
    ),
}


def claim_of(record: Mapping[str, Any]) -> Claim:
    """The claim of a figure's record; the first sentence of its `CLAIM` where none is written here."""
    if known := CLAIMS.get(record["figure"]):
        return known
    first, dot, _ = record["claim"].partition(". ")
    return Claim(sentence=first + dot.strip(), topic="other", ours=record["verdict"]["word"] == "beyond the paper")
