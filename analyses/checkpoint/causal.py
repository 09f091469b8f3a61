"""Does the match mechanism cause the prediction?

Edits of the live model at its last query: the pattern replaced by the fitted law's, beta clamped to zero, infinity or
one lag, BOS or partial matches removed, each copy head mean-ablated; each beside a matched random control, and each
checked to reach the logits. `loss_recovered` is near 1 if the law is the mechanism; `pair_loss_recovered` is the same
for the law that also compares tokens of unequal lags (corollary:inductive).

    python -m analyses causal CKPT
    python -m analyses causal CKPT --out results       every edit, in results/causal_tidy.csv
"""

from __future__ import annotations

import interp as ip
from analyses.running.ask import Ask, near, not_long
from analyses.running.options import CheckpointOptions
from analyses.running.subject import Subject
from interp.results import Result
from models.families.registry import find_family

COLUMNS = (
    "loss",
    "loss_recovered",
    "pair_loss_recovered",
    "kl_recovered",
    "change.law",
    "change.beta_zero",
    "change.no_bos",
    "success",
)
LEGEND = {
    "loss": "KL(truth || prediction) in nats at the last query, mean over sequences; of an edit: its rise (change)",
    "KL": "KL(model || edited model) in nats, mean over sequences",
    "loss_recovered": "share of the rise by even attention that the law, in place of the attention, avoids, cut to "
    "[0, 1]; 1 where the law predicts as well as the model's own attention",
    "kl_recovered": "`of the predictions`: the same share for KL(model || edited model)",
    "pair_loss_recovered": "loss_recovered by the law of all lag pairs",
    "loss_change": "rise of the loss by an edit, and by its random control (control_loss_change)",
}


def every_seed(zoo: list[Subject]) -> list[Subject]:
    """At both lengths, every seed of the main trained runs and one seed of all others."""
    several = [one for one in zoo if one.training.get("protocol") != "paper" and not analytic(one)]
    others = [one for one in zoo if one not in several]
    return near(32, 64)(several) + near(32, 64, seeds=1)(others)


def analytic(one: Subject) -> bool:
    """Whether its weights are written by hand, not trained."""
    return find_family(one.model_config["family"]).analytic


ASK = Ask(select=not_long(every_seed), options=CheckpointOptions(batch=2048), cost=1.8)


def analyse(subject: Subject, options: CheckpointOptions) -> Result:
    seen = subject.capture()
    return ip.causal_tests(
        subject.model,
        subject.chains.tokens,
        next_law=subject.chains.next_law,
        law=subject.law(seen),
        pair_law=ip.fit_score_pairs(seen),
        seed=options.seed,
    )
