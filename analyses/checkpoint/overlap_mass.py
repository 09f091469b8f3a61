"""Where does the match head's attention go, and is it where the law says?

Attention mass by overlap |M|, by mask, on BOS and on early keys, beside N_M e^{|beta|_M} / Z with the fitted beta and
kappa, and the effective order weights lambda_i (eq:transformer_mixture), which --json gives.

    python -m analyses overlap_mass CKPT
    python -m analyses overlap_mass CKPT --query all --batch 64      at every query, not only the last
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

import interp as ip
from analyses.running.ask import Ask
from analyses.running.options import CheckpointOptions, option
from analyses.running.report import decimals
from analyses.running.subject import Subject
from interp.results import Result

COLUMNS = ("success", "|M|=0", "|M|=1", "|M|=2", "bos", "early", "distance", "largest_gap")
LEGEND = {
    "|M|": "number of lags at which a key matches. Numbers are the attention on such keys at the last query (--query: "
    "at others), mean over sequences; predicted: what the law gives, with the beta and kappa of `beta_kappa`",
    "early": "keys that have fewer than k tokens before them",
    "distance": "total variation distance between the mean masses and the law's; distance_each: mean of the distances "
    "at single queries",
    "largest_gap": "the largest difference between one of the mean masses and the law's",
}


@dataclass(frozen=True, kw_only=True)
class Options(CheckpointOptions):
    query: Literal["last", "all", "trained"] = option("last", "which queries to read (default: %(default)s)")


ASK = Ask(options=Options(batch=256), cost=0.03)


def analyse(subject: Subject, options: Options) -> Result:
    seen = subject.capture(query=options.query)
    law = subject.law(seen)
    found = ip.overlap_mass(seen, law)
    return dataclasses.replace(found, message=law.message) if found.success else found


def compared(row: dict[str, Any]) -> dict[str, Any]:
    """Three decimals each: attention adds up to one."""
    masses = {f"|M|={size}": mass for size, mass in row["by_overlap"].items()}
    others = {name: row[name] for name in ("bos", "early", "distance", "largest_gap")}
    shown = {name: decimals(value) for name, value in {**masses, **others}.items()}
    return {"checkpoint": row["checkpoint"], "success": row["success"], **shown}
