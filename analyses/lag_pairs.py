"""Does the match head compare the right tokens with each other?

The full matrix of weights beta_{a,b}, query block a (x_{t-a}) against key block b (x_{s-b}), from the scores
(corollary:inductive), and the share of the explained score that the aligned pairs b = a + 1 carry on their own.

    python -m analyses lag_pairs CKPT
    python -m analyses lag_pairs CKPT --out results       every pair, in results/lag_pairs_tidy.csv
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from analyses.ask import Ask, near, not_long
from analyses.options import CheckpointOptions

if TYPE_CHECKING:
    from analyses.subject import Subject
    from interp.instruments.lag_pairs import PairFit

KIND = "checkpoint"
COLUMNS = ("success", "aligned_share", "aligned_share_stderr", "r2")
LEGEND = (
    "One weight for each pair of query token and key token, fitted to the scores of the last query. With more terms in "
    "the fit, the aligned pairs and kappa differ a little from those of `beta_kappa`. aligned_share: the part of the "
    "explained score that the aligned pairs alone carry."
)
ASK = Ask(select=not_long(near(64)), cost=0.05)


def analyse(subject: Subject, options: CheckpointOptions) -> PairFit:
    from interp.instruments.lag_pairs import fit_score_pairs

    return fit_score_pairs(subject.capture())
