"""What we ask beyond the paper. No entry here changes the verdict of a claim of the paper."""

from __future__ import annotations

from typing import Any

from analyses.claims.paper import DISENTANGLED, HIERARCHICAL, NO_BOS, PAPER, TRAINED, WITH_BOS
from analyses.claims.records import Claim, Need, Quantifier


def asked(id: str, topic: str, sentence: str, *needs: Need, note: str = "") -> Claim:
    return Claim(id=id, label="ours", topic=topic, sentence=sentence, needs=needs, note=note, ours=True)


def need(table: str, quantity: str, *, part: str = "", quantifier: Quantifier = "every", **rows: Any) -> Need:
    return Need(table=table, quantity=quantity, rows=rows, part=part, quantifier=quantifier)


FROZEN: dict[str, Any] = {"cell": "frozen", "readout": "probability", "protocol": "annealed"}
STARTS = ("random(0.3)", "copy(3)", "copy(8)", "copy(12)", "copy(20)")  # beside the hard one, copy(40)

CLAIMS = (
    asked(
        "tuned_add_alpha", "prediction",
        "Hierarchical task: every model beats add-alpha even when alpha is tuned for each length.",
        need("kl_curves", "below_tuned", family=PAPER, **HIERARCHICAL),
    ),
    asked(
        "eta_0_range", "prediction",
        "From eta_0 = 0.2 to 5 soft matching beats add-alpha, with beta_1 > beta_2.",
        need("open_choices", "below_tuned", question="eta0"),
        need("open_choices", "score_lead", question="eta0"),
    ),
    asked(
        "pseudo_counts", "prediction",
        "At every k, |V|, alpha and T the pseudo-count is within a quarter of alpha, and hardly varies.",
        need("pseudo_counts", "pseudo_mean", part="for the mean"),
        need("pseudo_counts", "pseudo_spread", part="for its spread over sequences"),
    ),
    asked(
        "last_query_copies", "copying",
        "Copies are sharp at the last query too, the only one with a loss.",
        need("copy_heads", "copy_mass_last", part="on the hierarchical task", family=TRAINED, **HIERARCHICAL),
        need("copy_heads", "copy_mass_last", part="with BOS", family="disentangled", **WITH_BOS),
        need("copy_heads", "copy_mass_last", part="without BOS", family="disentangled", **NO_BOS),
    ),
    asked(
        "every_run_copies", "copying",
        "Copies are sharp in every run, at every length.",
        need("copy_heads", "copy_mass", family=TRAINED, **HIERARCHICAL),
    ),
    asked(
        "score_lead", "matching",
        "The scores of every hierarchical model show beta_1 > beta_2.",
        need("lag_asymmetry", "score_lead", family=PAPER, **HIERARCHICAL),
    ),
    asked(
        "scores_are_the_law", "matching",
        "Soft matching explains the scores of every model.",
        need("beta_kappa", "r2", part="on the hierarchical task", family=TRAINED, **HIERARCHICAL),
        need("beta_kappa", "r2", part="with BOS", family="disentangled", **WITH_BOS),
        need("beta_kappa", "r2", part="without BOS", family="disentangled", **NO_BOS),
    ),
    asked(
        "every_block_order", "matching",
        "The weight blocks of every run show beta_1 > beta_2.",
        need("lag_asymmetry", "block_lead", family=DISENTANGLED, **HIERARCHICAL),
    ),
    asked(
        "bos_smooths", "cause",
        "On the independent task with BOS, BOS does the smoothing; on the hierarchical one partial matches do.",
        need("smoothing_source", "bos_cost", part="with BOS", family="disentangled", **WITH_BOS),
        need("smoothing_source", "partial_cost", part="on the hierarchical task", family=PAPER, **HIERARCHICAL),
    ),
    asked(
        "keys_matter", "cause", "The law's weights on shuffled keys do more harm than on their own.",
        need("causal", "keys_lead", quantifier="most", family=TRAINED),
    ),
    asked(
        "optimal_kappa", "training", "Training arrives at the best kappa; on the independent task at kappa - |beta|.",
        need("optimal", "kappa_gap", part="on the hierarchical task", source="trained", family=PAPER, **HIERARCHICAL),
        need("optimal", "kappa_gap", part="on the independent task", source="trained", **WITH_BOS),
    ),
    asked(
        "symbols_alike", "matching", "A relabeled model predicts the same.",
        need("label_symmetry", "dependence", family=TRAINED),
    ),
    asked(
        "excess", "prediction", "How far are trained models from the Bayes predictor?",
        need("kl_curves", "excess_measured", family=PAPER, **HIERARCHICAL),
    ),
    asked(
        "by_context", "prediction", "In which contexts does soft matching lose to the Bayes predictor?",
        need("worlds", "excess_measured", question="context", predictor="soft matching", by="seen"),
    ),
    asked(
        "nearest", "prediction", "Which classical or soft estimator does each trained model predict like?",
        need("nearest_estimator", "nearest_kl", family=TRAINED),
    ),
    asked(
        "dynamics", "training", "In which order do the parts of the circuit form?",
        need("dynamics", "formed", family=TRAINED),
    ),
    asked(
        "conditions", "cause", "From frozen hard copies and a frozen readout, training arrives at soft matching.",
        need("conditions", "r2", part="on the hierarchical task", **FROZEN, **HIERARCHICAL),
        need("conditions", "r2", part="with BOS", **FROZEN, **WITH_BOS),
        need("conditions", "r2", part="without BOS", **FROZEN, **NO_BOS),
        note="these are the theory's hypotheses; what each part that trains changes: the figure, and `holds where`",
    ),
    asked(
        "leaving_the_law", "training", "Without BOS, five times the steps stay with soft matching.",
        need("beta_kappa", "r2", family="disentangled", protocol="long", **NO_BOS),
    ),
    asked(
        "predicted_optimum", "prediction", "The best beta and kappa follow from the prior and the length.",
        need("worlds", "world_cost", quantifier="nine in ten", question="optimum"),
    ),
    asked(
        "near_bayes_worlds", "prediction", "In which worlds is the best soft matching near the Bayes predictor?",
        need("worlds", "world_share", question="excess"),
    ),
    asked(
        "four_heads", "cause", "The law in four match heads of a model of another make recovers the loss.",
        need("four_heads", "edit_recovered", edit="law"),
    ),
    asked(
        "language_ablation", "language models", "A language model loses in-context prediction without its match heads.",
        need("language_model", "ablation", part="on repeats", on="repeats", edit="ablated"),
        need("language_model", "ablation", part="on chains", on="chains", edit="ablated"),
    ),
    asked(
        "language_law", "language models", "The law in a language model's match heads recovers what they do.",
        need("language_model", "edit_recovered", on="repeats", edit="law"),
    ),
    asked(
        "language_mass", "language models", "Mean attention of a language model's match heads is the law's.",
        need("language_model", "mean_gap", kind="law"),
    ),
    asked(
        "language_kl", "language models", "How near do a language model's predictions on chains come to the truth?",
        need("language_model", "model_kl", kind="kl", predictor="model"),
    ),
    asked(
        "language_kappa", "language models", "What is kappa of a language model's head as the context grows?",
        need("language_model", "sink_kappa", kind="band"),
    ),
    asked(
        "text_training", "language models", "Does the law appear when a small model learns natural text?",
        need("text_training", "explained"),
    ),
    asked(
        "flat_direction", "training", "Does the loss see the start that decides the look of the weights?",
        need("flat_direction", "over_hard", question="start", init=STARTS, length=32, family="disentangled"),
    ),
)  # fmt: skip
