"""The claim or question of each figure in one sentence: what the page of `make reproduce` opens with.

A claim says what the figure requires, and nothing else; what the paper leaves open is a claim of ours where the figure
judges it, and a question where it only measures.

A figure that is not named here is listed with the first sentence of its `CLAIM`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A figure's claim in words.

    sentence   what is claimed, or asked
    title      the same in a few words, for the contents
    topic      what it is about
    ours       whether the paper leaves it open
    """

    sentence: str
    title: str
    topic: str
    ours: bool = False


TOPICS = ("task and circuit", "prediction", "copying", "matching", "cause", "training", "language models", "other")

CLAIMS = {
    "task_priors": Claim(
        title="Only the hierarchical prior couples contexts",
        sentence="The two priors differ in one thing: under the hierarchical one, contexts that share recent tokens "
        "share what they say of the next one.",
        topic="task and circuit",
    ),
    "two_layer_circuit": Claim(
        title="Two layers compute the estimator",
        sentence="Two attention layers, copy then match, compute a smoothed n-gram estimator.",
        topic="task and circuit",
    ),
    "kl_vs_position": Claim(
        title="Trained models predict like the construction",
        sentence="Large beta counts, beta(t) or BOS come near Bayes, trained models predict as well, and on the "
        "hierarchical task all beat every add-alpha.",
        topic="prediction",
    ),
    "mech_main": Claim(
        title="The circuit is in trained models",
        sentence="Trained transformers contain the circuit: sharp copy heads on single lags (mean over queries), "
        "aligned match weights, and attention on full and partial matches.",
        topic="matching",
    ),
    "mech_indep": Claim(
        title="Trained attention is the construction's (one sequence)",
        sentence="Hard matching counts, a finite beta interpolates, BOS adds alpha; trained models attend as these "
        "constructions do, key by key.",
        topic="matching",
    ),
    "nobos_construction_fixed": Claim(
        title="Large beta: exact matches alone",
        sentence="Without BOS and with a large fixed beta, the construction attends to exact matches alone.",
        topic="task and circuit",
    ),
    "nobos_construction_adaptive": Claim(
        title="Smaller beta: partial matches too",
        sentence="Without BOS, a beta that depends on the length spreads attention to partial matches.",
        topic="task and circuit",
    ),
    "nobos_trained": Claim(
        title="Trained without BOS: attends to partial matches",
        sentence="Trained without BOS, the disentangled model copies single lags (mean over queries), matches in "
        "aligned blocks, and attends to full and partial matches.",
        topic="matching",
    ),
    "bos_construction": Claim(
        title="BOS holds the pseudo-counts",
        sentence="With BOS the construction matches sharply and stays smooth, because BOS holds the pseudo-counts.",
        topic="task and circuit",
    ),
    "bos_trained": Claim(
        title="Trained with BOS: hard and soft matching",
        sentence="Trained with BOS, the disentangled model attends to exact matches and BOS alone (main text), and to "
        "partial matches too (caption).",
        topic="matching",
    ),
    "hier_layer1_attn": Claim(
        title="Copy heads are sharp, also at the last query",
        sentence="One copy head per lag, sharp in all three families, on average over queries and at the last query.",
        topic="copying",
    ),
    "hier_layer2_attn": Claim(
        title="Queries attend to matching contexts",
        sentence="In all three families each query attends to the keys whose context matches its own.",
        topic="matching",
    ),
    "hier_layer2_wa": Claim(
        title="One weight block for each lag",
        sentence="The match weights lie in one block per lag, constructed or trained.",
        topic="matching",
    ),
    "hier_induction": Claim(
        title="Full matches first, partial ones too",
        sentence="At T = 128 the last query puts most of its attention on full matches and a real share (5% or more) "
        "on partial ones.",
        topic="matching",
    ),
    "mass_by_overlap": Claim(
        title="Mean attention follows soft matching",
        sentence="On average over sequences attention goes to each kind of match as soft matching says: exp(|beta|_M) "
        "for each key.",
        topic="matching",
    ),
    "lag_asymmetry": Claim(
        title="Lag 1 weighs more than lag 2",
        sentence="Under the hierarchical prior a match at lag 1 weighs more than one at lag 2.",
        topic="matching",
    ),
    "lag_pairs": Claim(
        title="Only equal lags are compared",
        sentence="The match head compares each lag of the query with the same lag of the key, and hardly any other "
        "pair.",
        topic="matching",
    ),
    "identity_blocks": Claim(
        title="The match head tests equality alone",
        sentence="The match head compares tokens by equality alone, whichever symbols they are.",
        topic="matching",
    ),
    "smoothing_source": Claim(
        title="Partial matches do the smoothing",
        sentence="Partial matches do the smoothing; under the independent prior with BOS, BOS does it.",
        topic="cause",
    ),
    "causal": Claim(
        title="Soft matching causes the predictions",
        sentence="Soft matching causes the predictions: put in place of the attention, it recovers nearly all of the "
        "loss.",
        topic="cause",
    ),
    "direct_path": Claim(
        title="All passes through the match head",
        sentence="All that a model knows of the next token comes through the match head.",
        topic="cause",
    ),
    "pseudo_counts": Claim(
        title="Partial matches add about alpha",
        sentence="Without BOS, partial matches act as a pseudo-count near alpha: its mean within 25%, its spread over "
        "sequences below half of the mean.",
        topic="prediction",
    ),
    "beta_kappa_zoo": Claim(
        title="Trained parameters and the best ones",
        sentence="Trained models arrive at the beta and kappa that minimise the population loss.",
        topic="training",
        ours=True,
    ),
    "open_choices": Claim(
        title="Two choices that the paper leaves open",
        sentence="The claims under the hierarchical prior do not depend on eta_0, which the paper does not give, nor "
        "on where kappa is left when only beta is trained.",
        topic="prediction",
        ours=True,
    ),
    "excess_over_bayes": Claim(
        title="Distance from Bayes",
        sentence="How far are soft matching, trained models and classical smoothers from the Bayes predictor?",
        topic="prediction",
        ours=True,
    ),
    "regret_by_context": Claim(
        title="Where soft matching loses to Bayes",
        sentence="In which contexts does soft matching lose to the Bayes predictor?",
        topic="prediction",
        ours=True,
    ),
    "nearest_estimator": Claim(
        title="The nearest estimator",
        sentence="Which classical or soft estimator does each trained model predict like?",
        topic="prediction",
        ours=True,
    ),
    "dynamics": Claim(
        title="How the circuit forms in training",
        sentence="In which order do the parts of the circuit form?",
        topic="training",
        ours=True,
    ),
    "conditions": Claim(
        title="What each claim needs",
        sentence="Which condition does each claim need: frozen copies, a fixed readout, a readout that adds votes?",
        topic="cause",
        ours=True,
    ),
    "leaving_the_law": Claim(
        title="Longer training leaves soft matching",
        sentence="Is soft matching where training ends, without BOS?",
        topic="training",
        ours=True,
    ),
    "law_of_the_optimum": Claim(
        title="The best parameters, predicted",
        sentence="The best beta and kappa can be predicted from the prior and the length alone.",
        topic="prediction",
        ours=True,
    ),
    "excess_map": Claim(
        title="Near Bayes, and where not",
        sentence="In which worlds is the best soft matching near the Bayes predictor?",
        topic="prediction",
        ours=True,
    ),
    "four_heads": Claim(
        title="A model of another make",
        sentence="Is the circuit the same in a model that this suite did not make, in which four heads match together?",
        topic="cause",
        ours=True,
    ),
    "language_heads": Claim(
        title="Language model: heads that match",
        sentence="Does a pretrained language model have heads that match contexts, and with which betas?",
        topic="language models",
        ours=True,
    ),
    "language_mass": Claim(
        title="Language model: where attention goes",
        sentence="The attention of a language model's matching heads lies where the law puts it.",
        topic="language models",
        ours=True,
    ),
    "language_kappa": Claim(
        title="Language model: kappa and the sink",
        sentence="Does a language model's head keep its number of pseudo-counts as the context grows?",
        topic="language models",
        ours=True,
    ),
    "language_kl": Claim(
        title="Language model: its predictions",
        sentence="How near do a language model's predictions on Markov chains come to the truth?",
        topic="language models",
        ours=True,
    ),
    "language_causal": Claim(
        title="Language model: the law in the heads' place",
        sentence="The matching heads cause a language model's predictions, and the law in their place does as much or "
        "more.",
        topic="language models",
        ours=True,
    ),
    "text_training": Claim(
        title="A small language model in training",
        sentence="Do beta and kappa appear together with the drop of the loss when a small model learns natural text?",
        topic="language models",
        ours=True,
    ),
}


def claim_of(record: Mapping[str, Any]) -> Claim:
    """The claim of a figure's record; the first sentence of its `CLAIM` where none is written here."""
    if known := CLAIMS.get(record["figure"]):
        return known
    first, dot, _ = record["claim"].partition(". ")
    return Claim(
        sentence=first + dot.strip(),
        title=record["figure"].replace("_", " "),
        topic="other",
        ours=record["verdict"]["word"] == "beyond the paper",
    )
