"""Is each |V| x |V| block of the match weights a multiple of the identity?

Every block (query lag a, key lag b) of the match weights as a I + b J + residual, with the share of norm in each, a
permutation test, and the map of which blocks carry the weight (lemma:permutation_invariant_matrix,
corollary:inductive). Disentangled models are read from their weights and from their scores on held-out sequences,
standard ones from their scores and from their embedding and OV circuits.

    python -m analyses identity_blocks CKPT
    python -m analyses identity_blocks CKPT --routes weights scores circuit
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from analyses.subject import Subject
    from interp.instruments.identity_blocks import IdentityBlocks

KIND = "checkpoint"
COLUMNS = ("weights.aligned", "weights.residual", "scores.aligned", "scores.residual", "scores.r2", "agreement")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--routes",
        nargs="+",
        choices=("weights", "scores", "circuit"),
        help="how the blocks are found (default: every route that suits the model's family)",
    )


def analyse(subject: Subject, options: argparse.Namespace) -> IdentityBlocks:
    from interp.instruments.identity_blocks import identity_blocks

    return identity_blocks(
        subject.model,
        subject.chains.tokens,
        routes=options.routes,
        seed=options.seed,
        checkpoint=str(subject.path),
    )
