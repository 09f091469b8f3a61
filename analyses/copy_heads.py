"""Which copy head attends to which lag, and how sharply?

Attention of the copy layer by lag, heads matched to lags by the Hungarian method, with the spread over positions, the
entropy, and the share of the pattern that position alone explains (sec:copying). A head "copies lag r", is "mixed" or
does "none" of it; `success` means that every lag has a head that copies it.

    python -m analyses copy_heads CKPT
    python -m analyses copy_heads CKPT --copies 0.9        a stricter verdict
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from analyses.ask import Ask
from analyses.options import CheckpointOptions, option
from analyses.report import decimals

if TYPE_CHECKING:
    from analyses.subject import Subject
    from interp.instruments.copy_heads import CopyHeads

KIND = "checkpoint"
COLUMNS = ("success", "mass_lag_1", "last_mass_lag_1", "mass_lag_2", "last_mass_lag_2")
LEGEND = (
    "mass: the attention that a copy head puts on its lag, mean over all queries and sequences. last_mass: the same at "
    "the last query alone, the one that is trained, mean over sequences; it may be far smaller. A picture shows one "
    "sequence, and its numbers are that sequence's."
)


@dataclass(frozen=True, kw_only=True)
class Options(CheckpointOptions):
    copies: float | None = option(None, "attention on one lag that makes a copy head (default: 0.5)", metavar="MASS")


ASK = Ask(options=Options(batch=64), cost=0.05)


def analyse(subject: Subject, options: Options) -> CopyHeads:
    from interp.instruments.copy_heads import COPIES, copy_heads

    return copy_heads(subject.capture(copies=True), copies=COPIES if options.copies is None else options.copies)


def compared(row: dict[str, Any]) -> dict[str, Any]:
    """By lag, whichever head copies it: the order of the heads differs between seeds."""
    shown = {"checkpoint": row["checkpoint"], "success": row["success"]}
    for lag in sorted(lag for lag in row["lag"] if lag):
        head = row["lag"].index(lag)
        shown[f"mass_lag_{lag}"] = decimals(row["mass"][head])
        shown[f"last_mass_lag_{lag}"] = decimals(row["last_mass"][head])
    return shown
