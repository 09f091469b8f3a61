"""Which beta and kappa do the match scores show, and with which errors?

Scores of all candidate keys regressed on one match indicator per lag, with a free intercept per query and a smooth
function of the distance (prop:transformer_estimator); standard errors leave out one sequence at a time. Also the test
of additivity, and BOS relative to an empty match. `success` is false, with the reason, where
beta cannot be determined or the law does not describe the scores.

    python -m analyses beta_kappa CKPT
    python -m analyses beta_kappa CKPT --source pattern      from attention alone, where scores are not known
    python -m analyses beta_kappa CKPT --source attention --law suffix      the law that makes the attention most likely
    python -m analyses beta_kappa mine.py:build --order 1 --query trained   a model of your own
    python -m analyses beta_kappa CKPT --no-position         without the positional term
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import interp as ip
from analyses.running.ask import Ask
from analyses.running.options import CheckpointOptions, option
from analyses.running.subject import Subject
from interp.results import Result

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
LEGEND = {
    "beta, kappa": "fitted to the scores of all candidate keys of the last query (--query: of other queries; --source "
    "attention: to the attention), ± one standard error, clustered by sequence. beta: lag 1 first. kappa: score of BOS "
    "relative to a key that matches at no lag",
    "R2": "share of the variation of the scores over a query's candidate keys that matches and position explain "
    "together; `of what position leaves` (r2_match): share that matches explain of what position alone does not; "
    "`keys weighted by attention` (r2_attended): R2 where each key counts as much as its attention",
    "additive": "p-value of the test that the weights of the lags add up",
    "nats": "with --source attention: mean KL(attention || baseline), where the baseline is the law without matches; "
    "the law explains a share of them",
}


@dataclass(frozen=True, kw_only=True)
class Options(CheckpointOptions):
    source: Literal["scores", "pattern", "attention"] = option("scores", "what to fit (default: %(default)s)")
    law: Literal["additive", "suffix", "free"] = option("additive", "law of the attention (default: %(default)s)")
    no_position: bool = option(False, "leave the positional term out")
    query: Literal["last", "all", "trained"] = option("last", "which queries to read (default: %(default)s)")


ASK = Ask(options=Options(batch=256), cost=0.1)


def analyse(subject: Subject, options: Options) -> Result:
    cap, position = subject.capture(query=options.query), not options.no_position
    if options.source == "attention":
        return ip.fit_scores(cap, source="attention", law=options.law, position=position)
    if options.law != "additive":
        raise ValueError("--law is for --source attention")
    found = subject.fit(cap, source=options.source, position=position)
    if found.success or not subject.is_foreign:
        return found
    seen = ip.fit_scores(cap, source="attention", position=position)
    hint = f"--source attention: the attention follows the law, which explains {seen.nats_explained:.0%} of its nats"
    return replace(found, message=f"{found.message}; {hint}") if seen.success else found
