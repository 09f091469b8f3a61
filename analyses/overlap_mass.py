"""Where does the match head's attention go, and is it where the law says?

Attention mass by overlap |M|, by mask, on BOS and on early keys, beside N_M e^{|beta|_M} / Z with the fitted beta and
kappa; contiguous and other partial matches apart; and the effective order weights lambda_i (eq:transformer_mixture).

    python -m analyses overlap_mass CKPT
    python -m analyses overlap_mass CKPT --query all --batch 64      at every query, not only the last
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from analyses.subject import Subject
    from interp.instruments.overlap_mass import OverlapMass

KIND = "checkpoint"
COLUMNS = ("success", "by_overlap.0", "by_overlap.1", "by_overlap.2", "bos", "early", "distance", "largest_gap")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--query",
        choices=("last", "all"),
        default="last",
        help="which queries to read (default: the trained one, the last)",
    )


def analyse(subject: Subject, options: argparse.Namespace) -> OverlapMass:
    from interp.circuit.capture import capture
    from interp.instruments.overlap_mass import overlap_mass

    cap = capture(subject.model, subject.chains.tokens, query=options.query, copies=False, checkpoint=str(subject.path))
    return overlap_mass(cap)
