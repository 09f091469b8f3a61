"""What does each head attend to, on one sequence?

The attention behind the mechanistic figures (fig:mech_main, fig:mech_indep and the appendix): copy patterns at every
query, match scores and pattern, the last query's weights with what each key is to it, the relative biases and the match
weights. Of --batch sequences the first is taken whose last context has occurred at least twice before, so that there is
something to see; checkpoints of the same prior and length are shown the same sequence.

    python -m analyses attention CKPT
    python -m analyses attention CKPT --seed 3 --json
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.results import Result

if TYPE_CHECKING:
    import pandas as pd
    import torch

    from analyses.subject import Subject
    from interp.hooked import InductionTransformer

KIND = "checkpoint"
COLUMNS = ("mass.full", "mass.partial", "mass.none", "mass.bos", "mass.early", "sequence")
LEAST_MATCHES = 2
DIGITS = 6  # what the pictures can show, and more


@dataclass(frozen=True, kw_only=True)
class Attention(Result):
    """One sequence through one model. Positions count BOS, where there is one, as position 0.

    tokens         [length] without BOS
    kinds          what each key is to the last query: bos, early, full, partial or none
    weights        [key] match attention of the last query
    mass           kind -> its share of `weights`
    law            [vocab] the predicted law of the next token
    copy_pattern   [head, query, key] after the softmax
    match_scores   [query, key] before the softmax; None where a key is masked
    match_pattern  [query, key] after it
    copy_bias      [head, distance] r_{i-j} of the copy heads
    match_bias     [distance] r_{i-j} of the match head
    match_weight   [(k+1)|V|, (k+1)|V|] the paper's W_A^(2); None for the standard family, whose scores pass LayerNorm
    sequence       which of the batch it is
    """

    tokens: list[int]
    kinds: list[str]
    weights: list[float]
    mass: dict[str, float]
    law: list[float]
    copy_pattern: list[list[list[float]]]
    match_scores: list[list[float | None]]
    match_pattern: list[list[float]]
    copy_bias: list[list[float]]
    match_bias: list[float]
    match_weight: list[list[float]] | None
    sequence: int
    provenance: dict[str, Any] = field(repr=False)

    def table(self) -> pd.DataFrame:
        """One row per key of the last query."""
        import pandas as pd

        first = 0 if self.kinds[0] == "bos" else 1
        return pd.DataFrame(
            {
                "position": range(first, first + len(self.kinds)),
                "token": [*(["BOS"] if first == 0 else []), *map(str, self.tokens)],
                "kind": self.kinds,
                "weight": self.weights,
                "score": self.match_scores[-1],
            }
        )

    def __str__(self) -> str:
        shares = ", ".join(f"{kind} {share:.3f}" for kind, share in self.mass.items() if share > 0)
        law = " ".join(f"{value:.3f}" for value in self.law)
        return f"sequence {self.sequence}: the last query's attention is {shares}\n  predicted law {law}"


def analyse(subject: Subject, options: argparse.Namespace) -> Attention:
    from interp.results import provenance

    place = first_with_matches(subject.chains.tokens, order=subject.info.model["order"])
    seen = one_sequence(subject.model, subject.chains.tokens[place : place + 1])
    return Attention(**seen, sequence=place, provenance=provenance(seed=options.seed, checkpoint=str(subject.path)))


def first_with_matches(tokens: torch.Tensor, *, order: int) -> int:
    """The first sequence whose last context has occurred often enough before."""
    from interp.counts import match_masks

    exact = (match_masks(tokens, order=order) == (1 << order) - 1).sum(-1)
    if not (exact >= LEAST_MATCHES).any():
        raise ValueError(
            f"none of {len(tokens)} sequences of length {tokens.shape[1]} has met its last context {LEAST_MATCHES} "
            "times; expected a larger --batch or --length"
        )
    return int((exact >= LEAST_MATCHES).nonzero()[0])


def one_sequence(model: InductionTransformer, tokens: torch.Tensor) -> dict[str, Any]:
    """The fields of `Attention` that come from one sequence [1, length] and the model's weights."""
    from interp.counts import match_masks
    from interp.observe import capture, predict
    from interp.plotting import OVERLAP_COLOURS, key_kinds

    config = model.config
    cap = capture(model, tokens, query="all")
    kinds = key_kinds(match_masks(tokens, order=config.order)[0].numpy(), order=config.order, bos=config.bos)
    weights = cap.match_pattern[0, 0, -1].numpy()
    half = config.blocks * config.vocab
    match_weight = None if config.family == "standard" else shortened(model.match_attention.W_Q[0, :half])
    return {
        "tokens": tokens[0].tolist(),
        "kinds": kinds,
        "weights": shortened(weights),
        "mass": {kind: float(weights[np.array(kinds) == kind].sum()) for kind in OVERLAP_COLOURS},
        "law": predict(model, tokens)[0].tolist(),
        "copy_pattern": shortened(cap.copy_pattern[0]),
        "match_scores": shortened(cap.match_scores[0, 0]),
        "match_pattern": shortened(cap.match_pattern[0, 0]),
        "copy_bias": shortened(model.copy_attention.rel_bias),
        "match_bias": shortened(model.match_attention.rel_bias[0]),
        "match_weight": match_weight,
    }


def shortened(values: Any) -> Any:
    """Nested lists of numbers with `DIGITS` significant digits; None for what is not finite."""
    array = np.asarray(values.detach() if hasattr(values, "detach") else values, dtype=np.float64)
    if array.ndim:
        return [shortened(part) for part in array]
    return float(f"{array:.{DIGITS}g}") if np.isfinite(array) else None
