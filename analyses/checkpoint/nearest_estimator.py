"""Which estimator does the model compute?

KL from the model's predictions to each estimator, the nearest first: soft matching at the parameters fitted to the
scores and at its own best ones, add-alpha, maximum likelihood, Jelinek-Mercer, Katz, Witten-Bell and Kneser-Ney.

    python -m analyses nearest_estimator CKPT
"""

from __future__ import annotations

import interp as ip
from analyses.running.ask import Ask, near, not_long
from analyses.running.options import CheckpointOptions
from analyses.running.subject import Subject
from interp.results import Result

COLUMNS = (
    "nearest",
    "kl.soft_matching_fitted",
    "kl.soft_matching_best",
    "kl.add_alpha_best",
    "kl.jelinek_mercer_best",
)
LEGEND = {
    "kl": "KL(model || estimator) at the last query in nats, mean over sequences",
    "fitted": "at the beta and kappa that `beta_kappa` reads from the scores",
    "best": "at the parameters with the least KL, tuned on one half of the sequences and judged on the other",
    "floored": "share of sequences where the estimator gives a symbol less than the floor of the KL: the KL depends "
    "on it",
}
ASK = Ask(select=not_long(near(64)), cost=0.2)


def analyse(subject: Subject, options: CheckpointOptions) -> Result:
    return ip.nearest_estimator(subject.model, subject.chains.tokens, law=subject.law(subject.capture()))
