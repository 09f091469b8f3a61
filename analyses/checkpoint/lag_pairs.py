"""Does the match head compare the right tokens with each other?

The full matrix of weights beta_{a,b}, query block a (x_{t-a}) against key block b (x_{s-b}), from the scores
(corollary:inductive), and the share of the explained score that the aligned pairs b = a + 1 carry on their own.

    python -m analyses lag_pairs CKPT
    python -m analyses lag_pairs CKPT --out results       every pair, in results/lag_pairs_tidy.csv
"""

from __future__ import annotations

import interp as ip
from analyses.running.ask import Ask, near, not_long
from analyses.running.options import CheckpointOptions
from analyses.running.subject import Subject
from interp.results import Result

COLUMNS = ("success", "aligned_share", "aligned_share_stderr", "r2")
LEGEND = {
    "weights": "in nats, one for each pair of a query token (row) and a key token (column), fitted to the scores of "
    "the last query. With more terms in the fit, they and kappa differ a little from those of `beta_kappa`",
    "aligned": "pairs x_{t-a} with x_{s-a-1}: the law has weights on these alone",
    "aligned_share": "of the squared score that all pairs explain, the part that the aligned pairs explain alone",
    "r2": "share of the variation of the scores over a query's candidate keys that all pairs and position explain; "
    "r2_pairs: share that the pairs explain of what position alone does not",
    "kappa": "score of BOS relative to a key that matches in no pair",
}
ASK = Ask(select=not_long(near(64)), cost=0.05)


def analyse(subject: Subject, options: CheckpointOptions) -> Result:
    return ip.fit_score_pairs(subject.capture())
