"""Which beta and kappa do the match scores show, and how sure is that?

Scores of all candidate keys regressed on one match indicator per lag, with a free intercept per query and a smooth
function of the distance; standard errors are clustered by sequence (prop:transformer_estimator). Also the test of
additivity, the residual of each mask, and BOS relative to an empty match. `success` is false, with the reason, where
beta cannot be told or the law does not describe the scores.

    python -m analyses beta_kappa CKPT
    python -m analyses beta_kappa CKPT --source pattern      from attention alone, where scores are not known
    python -m analyses beta_kappa CKPT --no-position         without the positional term
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from analyses.ask import Ask
from analyses.options import CheckpointOptions, option

if TYPE_CHECKING:
    from analyses.subject import Subject
    from interp.instruments.beta_kappa import MatchFit

KIND = "checkpoint"
COLUMNS = (
    "success",
    "beta_1",
    "stderr_1",
    "beta_2",
    "stderr_2",
    "kappa",
    "kappa_stderr",
    "r2",
    "position_share",
    "token_share",
)


@dataclass(frozen=True, kw_only=True)
class Options(CheckpointOptions):
    source: Literal["scores", "pattern"] = option("scores", "what to read (default: %(default)s)")
    no_position: bool = option(False, "leave the positional term out")
    query: Literal["last", "all"] = option("last", "which queries to read (default: the trained one, the last)")


ASK = Ask(options=Options(batch=256), cost=0.2)


def analyse(subject: Subject, options: Options) -> MatchFit:
    from interp.instruments.beta_kappa import fit_scores

    return fit_scores(subject.capture(query=options.query), source=options.source, position=not options.no_position)
