"""What we ask beyond the paper. No entry here changes the verdict of a claim of the paper."""

from __future__ import annotations

from typing import Any

from analyses.claims.paper import (
    ALL_FAMILIES,
    BOS_PART,
    BOTH_DISENTANGLED,
    BOTH_TRAINED,
    HIERARCHICAL,
    HIERARCHICAL_PART,
    MODEL_NO_BOS,
    MODEL_WITH_BOS,
    NO_BOS,
    NO_BOS_PART,
    TRAINED,
    WITH_BOS,
    claim,
    need,
)
from analyses.claims.records import Claim, Need


def asked(id: str, topic: str, sentence: str, *needs: Need, **more: Any) -> Claim:
    return claim(None, id, "ours", topic, sentence, *needs, ours=True, **more)


def each(quantity: str, table: str = "", **rows: Any) -> Need:
    """A need of every run."""
    return need(quantity, table, of="every", **rows)


def on_all_tasks(quantity: str) -> tuple[Need, ...]:
    """A need of every trained run, task by task."""
    return (
        each(quantity, part=HIERARCHICAL_PART, **BOTH_TRAINED),
        each(quantity, part=BOS_PART, **MODEL_WITH_BOS),
        each(quantity, part=NO_BOS_PART, **MODEL_NO_BOS),
    )


FROZEN: dict[str, Any] = {"cell": "frozen", "readout": "probability", "protocol": "annealed"}
STARTS = ("random(0.3)", "copy(3)", "copy(8)", "copy(12)", "copy(20)")  # beside the hard one, copy(40)

CLAIMS = (
    asked("tuned_add_alpha", "prediction",
          "Hierarchical task: every model beats add-alpha even when alpha is tuned for each length.",
          each("below_tuned", **ALL_FAMILIES)),
    asked("eta_0_range", "prediction", "From eta_0 = 0.2 to 5 soft matching beats add-alpha, with beta_1 > beta_2.",
          each("below_tuned", "open_choices", question="eta0"), each("score_lead", "open_choices", question="eta0")),
    asked("pseudo_counts", "prediction",
          "At every k, |V|, alpha and T the pseudo-count is within a quarter of alpha, and hardly varies.",
          each("pseudo_mean", part="for the mean"), each("pseudo_spread", part="for its spread over sequences")),
    asked("last_query_copies", "copying", "Copies are sharp at the last query too, the only one with a loss.",
          *on_all_tasks("copy_mass_last")),
    asked("every_run_copies", "copying", "Copies are sharp in every run, at every length.",
          each("copy_mass", **BOTH_TRAINED)),
    asked("score_lead", "matching", "The scores of every hierarchical model show beta_1 > beta_2.",
          each("score_lead", **ALL_FAMILIES)),
    asked("scores_are_the_law", "matching", "Soft matching explains the scores of every model.", *on_all_tasks("r2")),
    asked("every_block_order", "matching", "The weight blocks of every run show beta_1 > beta_2.",
          each("block_lead", **BOTH_DISENTANGLED)),
    asked("bos_smooths", "cause",
          "On the independent task with BOS, BOS does the smoothing; on the hierarchical one partial matches do.",
          each("bos_cost", part=BOS_PART, **MODEL_WITH_BOS),
          each("partial_cost", part=HIERARCHICAL_PART, **ALL_FAMILIES)),
    asked("keys_matter", "cause", "The law's weights on shuffled keys do more harm than on their own.",
          need("keys_lead", family=TRAINED)),
    asked("optimal_kappa", "training",
          "Training arrives at the best kappa; on the independent task at kappa - |beta|.",
          each("kappa_gap", part=HIERARCHICAL_PART, source="trained", **ALL_FAMILIES),
          each("kappa_gap", part="on the independent task", source="trained", **WITH_BOS)),
    asked("symbols_alike", "matching", "A relabeled model predicts the same.", each("dependence", family=TRAINED)),
    asked("excess", "prediction", "How far are trained models from the Bayes predictor?",
          each("excess_measured", **ALL_FAMILIES)),
    asked("by_context", "prediction", "In which contexts does soft matching lose to the Bayes predictor?",
          Need(table="worlds", quantity="excess_measured", quantifier="every",
               rows={"question": "context", "predictor": "soft matching", "by": "seen"})),
    asked("nearest", "prediction", "Which classical or soft estimator does each trained model predict like?",
          each("nearest_kl", family=TRAINED)),
    asked("dynamics", "training", "In which order do the parts of the circuit form?", each("formed", family=TRAINED)),
    asked("conditions", "cause", "From frozen hard copies and a frozen readout, training arrives at soft matching.",
          each("r2", "conditions", part=HIERARCHICAL_PART, **FROZEN, **HIERARCHICAL),
          each("r2", "conditions", part=BOS_PART, **FROZEN, **WITH_BOS),
          each("r2", "conditions", part=NO_BOS_PART, **FROZEN, **NO_BOS),
          note="these are the theory's hypotheses; what each part that trains changes: the figure, and `holds where`"),
    asked("leaving_the_law", "training", "Without BOS, five times the steps stay with soft matching.",
          each("r2", protocol="long", **MODEL_NO_BOS)),
    asked("predicted_optimum", "prediction", "The best beta and kappa follow from the prior and the length.",
          need("world_cost", of="nine in ten", question="optimum")),
    asked("near_bayes_worlds", "prediction", "In which worlds is the best soft matching near the Bayes predictor?",
          each("world_share", question="excess")),
    asked("four_heads", "cause", "The law in four match heads of a model of another make recovers the loss.",
          each("edit_recovered", edit="law")),
    asked("language_ablation", "language models",
          "A language model loses in-context prediction without its match heads.",
          each("ablation", part="on repeated tokens", text="repeats", edit="ablated"),
          each("ablation", part="on chains", text="chains", edit="ablated")),
    asked("language_law", "language models", "The law in a language model's match heads recovers what they do.",
          each("edit_recovered", "language_model", text="repeats", edit="law")),
    asked("language_mass", "language models", "Mean attention of a language model's match heads is the law's.",
          each("mean_gap", kind="law", text="chains")),
    asked("language_kl", "language models", "How near do a language model's predictions on chains come to the truth?",
          each("model_kl", kind="kl", predictor="model", model="smollm2")),
    asked("language_kappa", "language models", "What is kappa of a language model's head as the context grows?",
          each("sink_kappa", kind="band")),
    asked("formation", "training", "Does copying come before the loss falls, and does beta grow after it is flat?",
          each("lead", kind="order"), each("growth", kind="order")),
    asked("flat_direction", "training", "Does the loss see the start that decides the look of the weights?",
          each("over_hard", question="start", init=STARTS, length=32, family="disentangled")),
)  # fmt: skip
