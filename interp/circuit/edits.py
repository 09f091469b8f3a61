"""Hooks that read and edit the heads of a circuit in a live model; `runner.run` takes them.

    reader = MatchReader(circuit, tokens)
    run(circuit, tokens, hooks=reader.hooks)                              reader.scores, reader.pattern are then known
    run(circuit, tokens, hooks=write_pattern(circuit, reader.pattern))    other attention in the match heads

Weights are never changed: hooks return edited copies of activations, so that the edited model is the one that is
studied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int64

from interp.circuit.circuit import Circuit, Head
from interp.circuit.runner import Hook, Hooks, score_hook

NOTICEABLE = 1e-5  # a change of an activation that changes float32 predictions if anything reads it


def layers_of(heads: Iterable[Head]) -> list[int]:
    """The layers that these heads sit in."""
    return sorted({layer for layer, _ in heads})


class MatchReader:
    """Keeps the match heads' scores and attention at some queries, by default the last one.

    Hand `hooks` to a run; afterwards `scores` (before the softmax, -inf where a key is masked) and `pattern` are
    [batch, match, query, key], on the CPU, in the model's precision. Queries are positions of the model, BOS counted.
    """

    def __init__(
        self,
        circuit: Circuit,
        tokens: Int64[torch.Tensor, "batch length"],
        *,
        queries: Int64[torch.Tensor, " query"] | None = None,
    ) -> None:
        circuit.require_match()
        keys = tokens.shape[1] + circuit.has_bos
        self.circuit, self.heads, self.from_end = circuit, circuit.match_heads, _from_end(queries, keys)
        size = (len(tokens), len(self.heads), 1 if queries is None else len(queries), keys)
        self.scores, self.pattern = (torch.empty(size, dtype=circuit.dtype) for _ in range(2))

    def hooks(self, rows: slice) -> list[Hook]:
        """For one part of the batch."""
        scores = [
            score_hook(self.circuit, layer, partial(self._keep, rows, self.scores, layer))
            for layer in layers_of(self.heads)
        ]
        return scores + at_layers(self.heads, "pattern", partial(self._keep, rows, self.pattern))

    def _keep(self, rows: slice, into: torch.Tensor, layer: int, activation: torch.Tensor, hook: Any) -> None:
        for index, (own, head) in enumerate(self.heads):
            if own == layer:
                kept = activation[:, head, self.from_end].detach().cpu()
                if into is self.scores:  # some models mask with the most negative number instead of -inf
                    kept = kept.masked_fill(kept <= torch.finfo(kept.dtype).min / 2, -torch.inf)
                into[rows, index] = kept


def write_pattern(
    circuit: Circuit,
    pattern: Float[torch.Tensor, "batch match query key"],
    *,
    queries: Int64[torch.Tensor, " query"] | None = None,
) -> Hooks:
    """Hooks that put this attention in place of the match heads' own, at these queries, by default the last one."""
    circuit.require_match()
    from_end = _from_end(queries, pattern.shape[-1])

    def write(part: slice, layer: int, own: torch.Tensor, hook: Any) -> torch.Tensor:
        edited = own.clone()
        for index, (place, head) in enumerate(circuit.match_heads):
            if place == layer:
                edited[:, head, from_end] = pattern[part, index].to(own)
        return edited

    return lambda part: at_layers(circuit.match_heads, "pattern", partial(write, part))


def write_output(place: Head, value: Callable[[torch.Tensor, slice], Float[torch.Tensor, "batch pos d_head"]]) -> Hooks:
    """Hooks that replace the output z of one head, at every position, by `value(z, rows)`.

    In a run with last_only=True, `value` is called for some positions of a copy head at a time.
    """

    def write(part: slice, layer: int, z: torch.Tensor, hook: Any) -> torch.Tensor:
        edited = z.clone()
        edited[:, :, place[1]] = value(z[:, :, place[1]], part).to(z)
        return edited

    return lambda part: at_layers([place], "z", partial(write, part))


def together(edits: Iterable[Hooks]) -> Hooks:
    """Several edits in one run."""
    every = list(edits)
    return lambda part: [hook for one in every for hook in one(part)]


def moved_at_random(
    z: Float[torch.Tensor, "*rows d_head"], mean: Float[torch.Tensor, " d_head"], generator: torch.Generator
) -> Float[torch.Tensor, "*rows d_head"]:
    """The control of an ablation: outputs moved in random directions, as far as their mean is away."""
    own = z.cpu().double()
    direction = torch.randn(own.shape, generator=generator, dtype=torch.float64)
    step = (own - mean).norm(dim=-1, keepdim=True)
    moved: torch.Tensor = own + step * direction / direction.norm(dim=-1, keepdim=True)
    return moved


class HeadMeans:
    """The mean output of every head of some layers over sequences and positions; `reading` gathers it in a run.

    `positions` of the model, BOS counted, are read and written; all by default.
    """

    def __init__(self, layers: Sequence[int], *, positions: Int64[torch.Tensor, " position"] | None = None) -> None:
        self.layers, self.positions = list(layers), slice(None) if positions is None else positions
        self._sums: dict[int, Any] = dict.fromkeys(self.layers, 0.0)
        self._counts = dict.fromkeys(self.layers, 0)

    def reading(self, rows: slice) -> list[Hook]:
        """Hooks that change nothing."""

        def add(layer: int, z: torch.Tensor, hook: Any) -> None:
            seen = z[:, self.positions].detach()
            self._sums[layer] = self._sums[layer] + seen.double().sum((0, 1)).cpu()
            self._counts[layer] += seen.shape[0] * seen.shape[1]

        return at_layers([(layer, 0) for layer in self.layers], "z", add)

    def of(self, place: Head) -> Float[torch.Tensor, " d_head"]:
        """The mean output of one head, in float64 on the CPU."""
        mean: torch.Tensor = self._sums[place[0]][place[1]] / self._counts[place[0]]
        return mean

    def writing(self, heads: Sequence[Head]) -> Hooks:
        """Hooks that replace these heads' outputs by their means."""

        def write(layer: int, z: torch.Tensor, hook: Any) -> torch.Tensor:
            edited = z.clone()
            for place in heads:
                if place[0] == layer:
                    edited[:, self.positions, place[1]] = self.of(place).to(z)
            return edited

        return lambda rows: at_layers(heads, "z", write)


def at_layers(heads: Iterable[Head], name: str, act: Callable[[int, torch.Tensor, Any], Any]) -> list[Hook]:
    """`act(layer, activation, hook)` at `hook_name` of the attention of every layer that these heads sit in."""
    return [(f"blocks.{layer}.attn.hook_{name}", partial(act, layer)) for layer in layers_of(heads)]


def _from_end(queries: Int64[torch.Tensor, " query"] | None, keys: int) -> slice | list[int]:
    """Positions counted from the end, which are right in a run of the last query, too; a slice where that is enough."""
    places = [-1] if queries is None else (queries - keys).tolist()
    return slice(places[0], None) if places == list(range(places[0], 0)) else places
