"""How much do the attention's votes weigh in the prediction, and does the weight grow with the evidence?

A readout with a constant in it mixes a share of the uniform law into every prediction. Where that share is larger with
fewer full matches, the readout smooths as counts would, without BOS: it compares the query's tokens with those before
the attended keys. `held` is the cost of losing that: the rise of KL when the level, which determines the share, is held
at its harmonic mean.

    python -m analyses vote_weight CKPT
"""

from __future__ import annotations

import interp as ip
from analyses.running.ask import Ask, near
from analyses.running.options import CheckpointOptions
from analyses.running.subject import Subject
from interp.results import Result

COLUMNS = ("verdict", "level_spread", "level_full", "compared", "held", "held_stderr", "shuffled")
LEGEND = {
    "weight": "of the attention's votes in the prediction at the last query, by its number of full matches; the rest "
    "is the uniform law",
    "level": "of the readout: the higher it is, the more of the uniform law it mixes in. level_spread: its standard "
    "deviation over sequences, over its mean",
    "level_full": "correlation of the level with the attention on full matches",
    "compared": "share of the level's variance that a comparison of the query's tokens with those before the attended "
    "keys explains",
    "held": "rise of KL(truth || prediction) in nats, mean over sequences, with the level held at its harmonic mean",
    "shuffled": "the same with the level of another sequence",
}
ASK = Ask(select=near(32, 64), options=CheckpointOptions(batch=2048), cost=0.5)


def applies(subject: Subject) -> str | None:
    if not subject.info.one_hot:
        return f"the final stream of the {subject.model_config['family']} family has no block that holds the votes"
    return "a logit readout is not linear in the votes" if subject.model_config["readout"] != "probability" else None


def analyse(subject: Subject, options: CheckpointOptions) -> Result:
    return ip.vote_weight(
        subject.model,
        subject.chains.tokens,
        next_law=subject.chains.next_law,
        alpha=getattr(subject.prior, "alpha", None),
        seed=options.seed,
    )
