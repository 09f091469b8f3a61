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

import argparse
from typing import TYPE_CHECKING

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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--source", choices=("scores", "pattern"), default="scores", help="what to read (default: scores)"
    )
    parser.add_argument("--no-position", action="store_true", help="leave the positional term out")
    parser.add_argument(
        "--query",
        choices=("last", "all"),
        default="last",
        help="which queries to read (default: the trained one, the last)",
    )


def analyse(subject: Subject, options: argparse.Namespace) -> MatchFit:
    from interp.circuit.capture import capture
    from interp.instruments.beta_kappa import fit_scores

    cap = capture(subject.model, subject.chains.tokens, query=options.query, copies=False, checkpoint=str(subject.path))
    return fit_scores(cap, source=options.source, position=not options.no_position)
