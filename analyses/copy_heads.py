"""Which copy head attends to which lag, and how sharply?

Attention of the copy layer by lag, heads matched to lags by the Hungarian method, with the spread over positions, the
entropy, and the share of the pattern that position alone explains (sec:copying). A head "copies lag r", is "mixed" or
does "none" of it; `success` means that every lag has a head that copies it.

    python -m analyses copy_heads CKPT
    python -m analyses copy_heads CKPT --copies 0.9        a stricter verdict
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from analyses.subject import Subject
    from interp.instruments.copy_heads import CopyHeads

KIND = "checkpoint"
COLUMNS = ("success", "lag_1", "mass_1", "last_mass_1", "verdict_1", "lag_2", "mass_2", "last_mass_2", "verdict_2")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--copies", metavar="MASS", type=float, help="attention on one lag that makes a copy head (default: 0.5)"
    )


def analyse(subject: Subject, options: argparse.Namespace) -> CopyHeads:
    from interp.circuit.capture import capture
    from interp.instruments.copy_heads import COPIES, copy_heads

    cap = capture(subject.model, subject.chains.tokens, checkpoint=str(subject.path))
    return copy_heads(cap, copies=COPIES if options.copies is None else options.copies)
