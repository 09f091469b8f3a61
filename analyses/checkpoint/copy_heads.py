"""Which copy head attends to which lag, and how sharply?

Attention of the copy layer by lag, heads matched to lags by the Hungarian method, with the spread over positions, the
entropy, and the share of the pattern that position alone explains (sec:copying). The verdict on a head is "copies lag
r", "mixed" or "none"; `success` means that every lag has a head that copies it.

    python -m analyses copy_heads CKPT
    python -m analyses copy_heads CKPT --copies 0.9        a stricter verdict
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import interp as ip
from analyses.running.ask import Ask
from analyses.running.options import CheckpointOptions, option
from analyses.running.report import decimals
from analyses.running.subject import Subject
from interp.results import Result

COLUMNS = ("success", "mass_lag_1", "last_mass_lag_1", "mass_lag_2", "last_mass_lag_2")
LEGEND = {
    "mass": "attention of a copy head on its lag, mean over sequences and over all queries that have a token at that "
    "lag",
    "last_mass": "the same at the last query alone, the only one at which models of this suite are trained; it can be "
    "far smaller",
    "entropy": "of a query's attention in nats, mean over queries and sequences",
    "by position": "share of the attention's variation over keys that is the same in every sequence",
    "copies": "at least half of the attention (--copies) is on this lag, and little of it on the other lags 1..k",
}


@dataclass(frozen=True, kw_only=True)
class Options(CheckpointOptions):
    copies: float | None = option(None, "attention on one lag that makes a copy head (default: 0.5)", metavar="MASS")


ASK = Ask(options=Options(batch=64), cost=0.05)


def analyse(subject: Subject, options: Options) -> Result:
    from interp.instruments.copy_heads import MIN_MASS

    return ip.copy_heads(subject.capture(copies=True), min_mass=MIN_MASS if options.copies is None else options.copies)


def compared(row: dict[str, Any]) -> dict[str, Any]:
    """By lag, whichever head copies it: the order of the heads differs between seeds."""
    shown = {"checkpoint": row["checkpoint"], "success": row["success"]}
    for lag in sorted(lag for lag in row["lag"] if lag):
        head = row["lag"].index(lag)
        shown[f"mass_lag_{lag}"] = decimals(row["mass"][head])
        shown[f"last_mass_lag_{lag}"] = decimals(row["last_mass"][head])
    return shown
