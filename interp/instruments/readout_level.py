"""The level of the probability readout in a live model: measured, changed, and split by lag; see `vote_weight`.

stream, pattern = final_stream(circuit, tokens)        what the readout reads, and the match head's attention
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import einops
import numpy as np
import torch
from jaxtyping import Float

from interp.circuit.capture import capture
from interp.circuit.circuit import Circuit
from interp.circuit.edits import NOTICEABLE, MatchReader
from interp.circuit.runner import Hook, laws, run
from interp.divergence import Divergence, kl_divergence
from interp.hooked.transformer import MATCH, InductionTransformer
from interp.instruments.copy_heads import COPY_SEQUENCES, copy_heads
from interp.results import mean_stderr

CLIPPED = 0.01  # share of sequences where holding the level may clip a sum


def final_stream(circuit: Circuit, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What the readout reads after the last token, and the match head's attention there, in float64."""
    streams: list[torch.Tensor] = []
    reader = MatchReader(circuit)

    def read(stream: torch.Tensor, hook: Any) -> None:
        streams.append(stream[:, -1].detach().cpu().double())

    end: Hook = (f"{MATCH}.hook_resid_post", read)
    run(circuit, tokens, hooks=lambda part: [end, *reader.hooks(part)], last_only=True)
    return torch.cat(streams), reader.pattern[:, 0]


def laws_at_level(circuit: Circuit, tokens: torch.Tensor, sums: torch.Tensor, level: torch.Tensor) -> torch.Tensor:
    """What the live model predicts with the readout's level moved to this one, sequence by sequence."""
    model = circuit.model
    assert isinstance(model, InductionTransformer)
    moved = sums + (level - sums.mean(-1))[:, None]
    shares = torch.relu(moved) + model.config.floor
    logits = torch.log(shares / shares.sum(-1, keepdim=True))

    def hooks(part: slice) -> list[Hook]:
        def write(own: torch.Tensor, hook: Any) -> torch.Tensor:
            edited = own.clone()
            edited[:, -1] = logits[part].to(own)
            return edited

        return [("unembed.hook_out", write)]

    return laws(circuit, tokens, hooks=hooks, last_only=True)


@dataclass(frozen=True, kw_only=True)
class MovedLevel:
    """The change of KL with the level held and shuffled; the fields of `VoteWeight` of the same names."""

    held: float = math.nan
    held_stderr: float = math.nan
    shuffled: float = math.nan
    shuffled_stderr: float = math.nan
    clipped: float


def move_level(
    circuit: Circuit,
    tokens: torch.Tensor,
    sums: torch.Tensor,
    *,
    truth: torch.Tensor,
    divergence: Divergence,
    seed: int,
) -> MovedLevel:
    """In the live model, set the level to its harmonic mean, and, as a control, to the level of another sequence."""
    level, base = sums.mean(-1), laws(circuit, tokens)

    def change(levels: torch.Tensor) -> tuple[float, float]:
        moved = laws_at_level(circuit, tokens, sums, levels)
        if float((levels / level - 1).abs().max()) > NOTICEABLE and torch.equal(moved, base):
            raise ValueError("the level was moved, but the edit did not reach the logits")
        return mean_stderr(kl_divergence(truth, moved, floor=divergence.floor).values - divergence.values)

    steady = (1 / (1 / level).mean()).expand_as(level)
    clipped = float(((sums > 0) & (sums - level[:, None] + steady[:, None] <= 0)).any(-1).double().mean())
    if clipped > CLIPPED:
        return MovedLevel(clipped=clipped)
    held, held_stderr = change(steady)
    order = torch.randperm(len(level), generator=torch.Generator().manual_seed(seed))
    shuffled, shuffled_stderr = change(level[order])
    return MovedLevel(
        held=held, held_stderr=held_stderr, shuffled=shuffled, shuffled_stderr=shuffled_stderr, clipped=clipped
    )


@dataclass(frozen=True, kw_only=True)
class Sides:
    query: Float[np.ndarray, "lag vocab"]
    key: Float[np.ndarray, "lag vocab"]
    opposed: tuple[float, ...]
    comparison: Float[torch.Tensor, " batch"]


def sides_by_lag(circuit: Circuit, tokens: torch.Tensor, stream: torch.Tensor, weights: torch.Tensor) -> Sides | None:
    """What each block of the final stream adds to the level, by lag; None where copy heads serve no distinct lags."""
    model = circuit.model
    assert isinstance(model, InductionTransformer)
    heads = copy_heads(capture(circuit, tokens[:COPY_SEQUENCES]))
    if not heads.success:
        return None
    blocks = model.config.blocks
    by_block = einops.rearrange(weights.mean(-1), "(half block v) -> half block v", half=2, block=blocks)
    centred = by_block - by_block.mean(-1, keepdim=True)
    parts = einops.rearrange(stream, "n (half block v) -> half n block v", half=2, block=blocks)
    places = [0, *(1 + np.argsort(heads.lag)).tolist()]
    query, key = centred[0, places[:-1]], centred[1, places[1:]]
    unit = (query - key) / 2
    comparison = ((parts[0][:, places[:-1]] - parts[1][:, places[1:]]) * unit).sum((-2, -1))
    opposed = tuple(correlation(one, -other) for one, other in zip(query, key, strict=True))
    return Sides(query=query.numpy(), key=key.numpy(), opposed=opposed, comparison=comparison)


def explained(level: torch.Tensor, part: torch.Tensor) -> float:
    total = float(level.var(correction=0))
    return 1 - float((level - part).var(correction=0)) / total if total > 0 else math.nan


def correlation(first: torch.Tensor, second: torch.Tensor) -> float:
    """Pearson's; NaN where one side does not vary."""
    one, other = first - first.mean(), second - second.mean()
    size = float(one.norm() * other.norm())
    return float((one * other).sum()) / size if size > 0 else math.nan
