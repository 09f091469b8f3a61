"""Hooks that read and edit the heads of a circuit in a live model; `runner.run` takes them.

    reader = MatchReader(circuit)
    run(circuit, tokens, hooks=reader.hooks)                              reader.scores, reader.pattern are then known
    run(circuit, tokens, hooks=write_pattern(circuit, reader.pattern))    other attention in the match heads

Weights are never changed: hooks return edited copies of activations, so that the edited model is the one that is
studied.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int64

from interp.circuit.circuit import Circuit, Head
from interp.circuit.runner import Hook, Hooks

NOTICEABLE = 1e-5  # a change of an activation that changes float32 predictions if anything reads it


class MatchReader:
    """Collects the match heads' scores and attention at the last query, part by part.

    Hand `hooks` to a run; afterwards `scores` and `pattern` are [batch, match, key], float64, on the CPU.
    """

    def __init__(self, circuit: Circuit) -> None:
        circuit.require_match()
        self.circuit = circuit
        self._kept: dict[tuple[str, Head], list[torch.Tensor]] = {
            (name, place): [] for name in ("hook_attn_scores", "hook_pattern") for place in circuit.match_heads
        }

    def hooks(self, rows: slice) -> list[Hook]:
        """For one part of the batch."""
        return [
            (f"blocks.{layer}.attn.{name}", partial(self._keep, name, layer))
            for name in ("hook_attn_scores", "hook_pattern")
            for layer in sorted({layer for layer, _ in self.circuit.match_heads})
        ]

    def _keep(self, name: str, layer: int, activation: torch.Tensor, hook: Any) -> None:
        for place in self.circuit.match_heads:
            if place[0] == layer:
                self._kept[name, place].append(activation[:, place[1], -1].detach().cpu().double())

    def _gathered(self, name: str) -> Float[torch.Tensor, "batch match key"]:
        return torch.stack([torch.cat(self._kept[name, place]) for place in self.circuit.match_heads], dim=1)

    @property
    def scores(self) -> Float[torch.Tensor, "batch match key"]:
        """Before the softmax."""
        return self._gathered("hook_attn_scores")

    @property
    def pattern(self) -> Float[torch.Tensor, "batch match key"]:
        """After it."""
        return self._gathered("hook_pattern")


def write_pattern(
    circuit: Circuit,
    rows: Float[torch.Tensor, "batch match *query key"],
    *,
    queries: Int64[torch.Tensor, " query"] | None = None,
) -> Hooks:
    """Hooks that put these attention weights in place of the match heads' own: at the last query, or at `queries`.

    Queries are positions of the model, BOS counted; `rows` then has an axis for them.
    """
    circuit.require_match()

    def write(part: slice, layer: int, pattern: torch.Tensor, hook: Any) -> torch.Tensor:
        edited = pattern.clone()
        for index, (own, head) in enumerate(circuit.match_heads):
            if own == layer:
                edited[:, head, -1 if queries is None else queries] = rows[part, index].to(pattern)
        return edited

    layers = sorted({layer for layer, _ in circuit.match_heads})
    return lambda part: [(f"blocks.{layer}.attn.hook_pattern", partial(write, part, layer)) for layer in layers]


def write_output(place: Head, value: Callable[[torch.Tensor, slice], Float[torch.Tensor, "batch pos d_head"]]) -> Hooks:
    """Hooks that replace the output z of one head, at every position, by `value(z, rows)`.

    As `copy_hooks` of a run with last_only=True, `value` is called for some positions at a time.
    """
    layer, head = place

    def overwrite(part: slice) -> list[Hook]:
        def write(z: torch.Tensor, hook: Any) -> torch.Tensor:
            edited = z.clone()
            edited[:, :, head] = value(z[:, :, head], part).to(z)
            return edited

        return [(f"blocks.{layer}.attn.hook_z", write)]

    return overwrite
