"""Which copy head attends to which lag, and how sharply?

Attention of the copy layer by lag, heads matched to lags by the Hungarian method, with the spread over positions, the
entropy, and the share of the pattern that position alone explains (sec:copying). A head "copies lag r", is "mixed" or
does "none" of it; `success` means that every lag has a head that copies it.

    python -m analyses copy_heads CKPT
    python -m analyses copy_heads CKPT --copies 0.9        a stricter verdict
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from analyses.ask import Ask
from analyses.options import CheckpointOptions, option

if TYPE_CHECKING:
    from analyses.subject import Subject
    from interp.instruments.copy_heads import CopyHeads

KIND = "checkpoint"
COLUMNS = ("success", "lag_1", "mass_1", "last_mass_1", "lag_2", "mass_2", "last_mass_2", "verdict_1", "verdict_2")

LEGEND = (
    "Copy heads in their order: lag_1 is the lag that the first one copies. mass: its attention on that lag, mean over "
    "all queries and sequences. last_mass: the same at the last query alone, the one that was trained, mean over "
    "sequences. A picture of one sequence shows the weights of that sequence."
)


@dataclass(frozen=True, kw_only=True)
class Options(CheckpointOptions):
    copies: float | None = option(None, "attention on one lag that makes a copy head (default: 0.5)", metavar="MASS")


ASK = Ask(options=Options(batch=64), cost=0.05)


def analyse(subject: Subject, options: Options) -> CopyHeads:
    from interp.instruments.copy_heads import COPIES, copy_heads

    return copy_heads(subject.capture(copies=True), copies=COPIES if options.copies is None else options.copies)
