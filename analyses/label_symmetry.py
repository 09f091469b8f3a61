"""Does the model care what the symbols are called?

KL between the model and its relabelings, over all |V|! of them or a random sample (eq:permuted_transformer,
theorem:invariance). Models of other seeds, given with --against, set the scale: how far apart are two models that
were trained alike?

    python -m analyses label_symmetry CKPT
    python -m analyses label_symmetry CKPT --against OTHER_SEED_1 OTHER_SEED_2
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from analyses.command import whole_number

if TYPE_CHECKING:
    from analyses.subject import Subject
    from interp.symmetry import LabelSymmetry

KIND = "checkpoint"
COLUMNS = ("kl", "stderr", "max", "worst_kl", "seeds_kl", "ratio", "exhaustive", "n")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--draws",
        metavar="N",
        type=whole_number(1),
        default=120,
        help="try all relabelings up to this number, else this many (default: %(default)s)",
    )
    parser.add_argument("--against", metavar="CKPT", nargs="+", default=(), help="models of other seeds, as the scale")


def analyse(subject: Subject, options: argparse.Namespace) -> LabelSymmetry:
    from interp.checkpoint import load
    from interp.symmetry import label_symmetry

    return label_symmetry(
        subject.model,
        subject.chains.tokens,
        draws=options.draws,
        seed=options.seed,
        other_models=[load(path) for path in options.against],
        checkpoint=str(subject.path),
        progress=True,
    )
