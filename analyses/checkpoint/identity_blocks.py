"""Is each |V| x |V| block of the match weights a multiple of the identity?

Every block (query lag a, key lag b) of the match weights as a I + b J + residual, with the share of norm in each, a
permutation test, and the map of which blocks carry the weight (lemma:permutation_invariant_matrix,
corollary:inductive). Disentangled models are read from their weights and from their scores on held-out sequences,
standard ones from their scores and from their embedding and OV circuits.

    python -m analyses identity_blocks CKPT
    python -m analyses identity_blocks CKPT --routes weights scores circuit
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import interp as ip
from analyses.running.ask import Ask, near, not_long
from analyses.running.options import CheckpointOptions, option
from analyses.running.subject import DoesNotApply, Subject
from interp.results import Result

COLUMNS = ("weights.aligned", "weights.residual", "scores.aligned", "scores.residual", "scores.r2", "agreement")
LEGEND = {
    "blocks": "of the match weights, each written as a I + b J + residual. beta: a of the aligned blocks, lag 1 first",
    "weights": "read from W_A itself",
    "scores": "fitted to the scores of the last query, from which `beta_kappa`, too, reads beta; r2: of this fit",
    "circuit": "from the embedding, the copy heads' OV circuits and the match head's QK circuit, without MLPs",
    "aligned": "share of the squared norm that the softmax sees which lies in the aligned blocks",
    "residual": "the largest share of a block outside span{I, J}, among blocks with at least 5% of that norm",
    "agreement": "cosine between the blocks of the first two readings. It can be below 1: copy heads that put only a "
    "part of the last query's attention on their lag dilute what the weights say",
}


@dataclass(frozen=True, kw_only=True)
class Options(CheckpointOptions):
    routes: tuple[Literal["weights", "scores", "circuit"], ...] | None = option(
        None, "how the blocks are found (default: every route that suits the model's family)"
    )


ASK = Ask(select=not_long(near(64)), cost=0.1)


def analyse(subject: Subject, options: Options) -> Result:
    from interp.circuit.circuit import as_circuit

    heads = as_circuit(subject.model).match_heads
    if len(heads) > 1:
        raise DoesNotApply(
            f"it reads one match head, the circuit has {len(heads)}; in Python circuit.with_match_heads({heads[0]}) "
            "picks one"
        )
    return ip.identity_blocks(
        subject.model,
        subject.chains.tokens,
        routes=options.routes,
        seed=options.seed,
    )
