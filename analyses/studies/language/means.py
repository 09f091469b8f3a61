"""Heads whose output is set to its mean over sequences and positions, with hooks; and other heads of their layers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from interp.circuit.circuit import Circuit, Head
    from interp.circuit.runner import Hook, Hooks


class HeadMeans:
    """The mean output of every head of some layers, at some positions; `reading` gathers it in a run of the model.

    positions   token indices at which outputs are read and written; all by default
    """

    def __init__(
        self, circuit: Circuit, tokens: torch.Tensor, *, layers: Sequence[int], positions: torch.Tensor | None = None
    ) -> None:
        import torch

        own = torch.arange(tokens.shape[1]) if positions is None else positions
        self.positions = own + int(circuit.has_bos)
        self.layers, self.count = list(layers), tokens.shape[0] * len(own)
        self.sums: dict[int, torch.Tensor] = {}

    def reading(self, rows: slice) -> list[Hook]:
        """Hooks that change nothing."""

        def add(layer: int, z: torch.Tensor, hook: Any) -> None:
            total = z[:, self.positions].double().sum((0, 1)).cpu()
            self.sums[layer] = self.sums[layer] + total if layer in self.sums else total

        return [(f"blocks.{layer}.attn.hook_z", partial(add, layer)) for layer in self.layers]

    def writing(self, heads: Sequence[Head]) -> Hooks:
        """Hooks that replace these heads' outputs by their means."""

        def write(layer: int, z: torch.Tensor, hook: Any) -> torch.Tensor:
            edited = z.clone()
            for own, head in heads:
                if own == layer:
                    edited[:, self.positions, head] = (self.sums[own][head] / self.count).to(z)
            return edited

        layers = sorted({layer for layer, _ in heads})
        return lambda rows: [(f"blocks.{layer}.attn.hook_z", partial(write, layer)) for layer in layers]


def heads_beside(circuit: Circuit, heads: Sequence[Head], *, seed: int) -> list[Head]:
    """As many other heads of each layer, drawn at random; neither these nor the match heads."""
    import torch

    from interp.circuit.circuit import heads_of

    generator = torch.Generator().manual_seed(seed)
    taken, drawn = {*heads, *circuit.match_heads}, []
    for layer in sorted({layer for layer, _ in heads}):
        free = [(layer, head) for head in range(heads_of(circuit.model, layer)) if (layer, head) not in taken]
        wanted = sum(own == layer for own, _ in heads)
        drawn += [free[place] for place in torch.randperm(len(free), generator=generator).tolist()[:wanted]]
    return drawn
