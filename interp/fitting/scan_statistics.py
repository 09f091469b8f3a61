"""What a scan keeps of every head while the model runs: sums by group of keys, never a pattern.

The keys that a query sees are grouped by their mask, BOS and the early keys beside them. For each head these numbers
are kept: its attention by group and its entropy at every query that was asked for, its mass on each lag at all queries,
and the moments of a least-squares fit of its scores. Masks and the design of that fit depend on the tokens alone, so
they are computed once for all layers and heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import einops
import numpy as np
import torch
from jaxtyping import Float, Int64

from interp.arguments import shown
from interp.circuit.circuit import Circuit, heads_of
from interp.circuit.law import key_masks_at
from interp.circuit.runner import Hook, Hooks, parts
from interp.fitting.regression import SPLINE_TERMS, NormalEquations, distance_basis

KEPT_BYTES = 512 << 20  # of attention by group, over all heads and queries


@dataclass(frozen=True, kw_only=True)
class TokenPart:
    """What depends on the tokens of some sequences alone: the group of every key, and the design of the fit.

    groups      [batch, query, key] the mask of a candidate key, then BOS (where there is one), early, not visible
    candidate   [query, key]
    matches     [batch, query, key, lag] match indicators, centred over the candidates of a query, 0 elsewhere
    places      [query, key, term] functions of the distance, centred likewise
    """

    rows: slice
    groups: Int64[torch.Tensor, "batch query key"]
    candidate: Float[torch.Tensor, "query key"]
    matches: Float[torch.Tensor, "batch query key lag"]
    places: Float[torch.Tensor, "query key term"]


class ScanStatistics:
    """Gathers the statistics of every head, part of the batch by part.

    layers    the layers whose heads are read, by default all
    counts    [sequence, query, group] keys in each group
    masses    by layer: [head, sequence, query, group] attention on each group; early keys are the last group
    entropy   by layer: [head, sequence, query] sum of p log p over candidates and BOS
    on_lag    by layer: [sequence, head, lag] mean attention of the tokens on lag 0, 1, ..
    """

    def __init__(
        self,
        circuit: Circuit,
        tokens: Int64[torch.Tensor, "batch length"],
        queries: Int64[torch.Tensor, " query"],
        *,
        lags: int,
        layers: Sequence[int] | None = None,
    ) -> None:
        self.circuit, self.tokens, self.lags = circuit, tokens, lags
        self.layers = attention_layers(circuit.model) if layers is None else sorted(set(layers))
        self.order, self.bos, self.sink = circuit.order, int(circuit.has_bos), int(circuit.has_sink)
        # Queries before the first candidate have nothing to match.
        self.queries = queries[queries - self.bos >= self.order]
        if not len(self.queries):
            raise ValueError(f"no query has a candidate key: matches of order {self.order} start at token {self.order}")
        self.heads = {layer: heads_of(circuit.model, layer) for layer in self.layers}
        sequences, length = tokens.shape
        self.groups = (1 << self.order) + self.sink + 1
        self.dtype = torch.float64 if circuit.dtype == torch.float64 else torch.float32
        kept = self.dtype.itemsize * sum(self.heads.values()) * len(self.queries) * (self.groups + 1)
        if kept * sequences > KEPT_BYTES:
            raise ValueError(
                f"{len(self.queries)} queries of {sequences} sequences would keep {kept * sequences >> 20} MiB; "
                f"scan at most {max(1, KEPT_BYTES // kept)} sequences, or fewer queries"
            )
        rows = (sequences, len(self.queries))
        self.counts = torch.zeros(*rows, self.groups, dtype=torch.float64)
        self.masses = {
            layer: torch.zeros(heads, *rows, self.groups, dtype=self.dtype) for layer, heads in self.heads.items()
        }
        self.entropy = {layer: torch.zeros(heads, *rows, dtype=self.dtype) for layer, heads in self.heads.items()}
        self.on_lag = {
            layer: torch.zeros(sequences, heads, lags + 1, dtype=torch.float64) for layer, heads in self.heads.items()
        }
        self.basis = torch.from_numpy(distance_basis(length - self.order, terms=SPLINE_TERMS))
        columns = self.order + self.basis.shape[1]
        self.gram = torch.zeros(columns, columns, dtype=torch.float64)
        self.moments = {layer: torch.zeros(heads, columns, dtype=torch.float64) for layer, heads in self.heads.items()}
        self.squares = {layer: torch.zeros(heads, dtype=torch.float64) for layer, heads in self.heads.items()}
        self.largest = {layer: torch.zeros(heads, dtype=torch.float64) for layer, heads in self.heads.items()}
        self.called: set[str] = set()

    def gather(self, edits: Hooks | None = None) -> None:
        """Run the model once over all sequences, up to the last layer that is asked for, under hooks that edit it."""
        with torch.no_grad():
            for rows in parts(self.circuit, self.tokens):
                part = self.token_part(rows)
                self.circuit.model.run_with_hooks(
                    self.circuit.ids(self.tokens[rows], rows),
                    prepend_bos=False,
                    return_type=None,
                    stop_at_layer=self.layers[-1] + 1,
                    fwd_hooks=([] if edits is None else edits(rows)) + self.hooks(part),
                )
        names = [f"blocks.{layer}.attn.hook_pattern" for layer in self.layers]
        if missing := [name for name in names if name not in self.called]:
            raise ValueError(f"the hook {missing[0]} was never called: a scan needs it in every layer")

    def hooks(self, part: TokenPart) -> list[Hook]:
        """For one part of the batch."""
        pairs = (("hook_attn_scores", self.add_scores), ("hook_pattern", self.add_pattern))
        names = [(f"blocks.{layer}.attn.{hook}", layer, add) for hook, add in pairs for layer in self.layers]
        return [(name, partial(add, part, layer, name)) for name, layer, add in names]

    def token_part(self, rows: slice) -> TokenPart:
        """Groups and design of some sequences; their counts and the design's products are added to the sums."""
        tokens, order = self.tokens[rows], self.order
        length = tokens.shape[1]
        masks = key_masks_at(tokens, order=order, bos=bool(self.bos), queries=self.queries)
        keys = torch.arange(length + self.bos)
        candidate = (keys >= order + self.bos) & (keys <= self.queries[:, None])
        early = (keys < order + self.bos) & (keys <= self.queries[:, None])
        outside = torch.where(early, self.groups - 1, self.groups)  # one more group: keys that are not visible
        groups = torch.where(candidate, masks, outside)
        if self.sink:  # key 0 is BOS, or the first token in its place
            groups[..., 0] = 1 << order
        self.counts[rows] = torch.zeros(*groups.shape[:2], self.groups + 1, dtype=torch.float64).scatter_add_(
            2, groups, torch.ones(1, dtype=torch.float64).expand(groups.shape)
        )[..., : self.groups]
        seen = candidate.double()
        share = seen / seen.sum(dim=1, keepdim=True)
        bits = (groups[..., None] >> torch.arange(order) & 1).double()
        matches = (bits - einops.einsum(bits, share, "b q k lag, q k -> b q lag")[:, :, None]) * seen[..., None]
        distance = (self.queries[:, None] - torch.arange(groups.shape[2])).clamp(0, len(self.basis) - 1)
        places = self.basis[distance]
        places = (places - einops.einsum(places, share, "q k term, q k -> q term")[:, None]) * seen[..., None]
        self.gram[:order, :order] += einops.einsum(matches, matches, "b q k i, b q k j -> i j")
        cross = einops.einsum(matches.sum(dim=0), places, "q k i, q k j -> i j")
        self.gram[:order, order:] += cross
        self.gram[order:, :order] += cross.T
        self.gram[order:, order:] += len(tokens) * einops.einsum(places, places, "q k i, q k j -> i j")
        return TokenPart(rows=rows, groups=groups, candidate=seen, matches=matches, places=places)

    def add_scores(self, part: TokenPart, layer: int, name: str, scores: torch.Tensor, hook: Any) -> None:
        """Moments of the scores of candidate keys. The design is centred, so that the scores need not be."""
        self.called.add(name)
        seen = scores.detach().cpu()[:, :, self.queries].double()
        seen = torch.where(part.candidate.bool(), seen, 0.0)
        order = self.order
        self.moments[layer][:, :order] += einops.einsum(seen, part.matches, "b h q k, b q k lag -> h lag")
        self.moments[layer][:, order:] += einops.einsum(seen.sum(dim=0), part.places, "h q k, q k term -> h term")
        self.squares[layer] += einops.reduce(seen**2, "b h q k -> h", "sum")
        count = part.candidate.sum(dim=1)
        self.squares[layer] -= einops.reduce(seen.sum(dim=3) ** 2 / count, "b h q -> h", "sum")
        self.largest[layer] = torch.maximum(self.largest[layer], einops.reduce(seen.abs(), "b h q k -> h", "max"))

    def add_pattern(self, part: TokenPart, layer: int, name: str, pattern: torch.Tensor, hook: Any) -> None:
        """Mass by group and entropy at the queries asked for, mass by lag at all."""
        self.called.add(name)
        whole = pattern.detach().cpu().to(self.dtype)
        for lag in range(self.lags + 1):
            # Row t + bos of the pattern is token t, its key at this lag column t - lag + bos.
            on_lag = torch.diagonal(whole, offset=-lag, dim1=2, dim2=3)[..., self.bos :]
            self.on_lag[layer][part.rows, :, lag] = on_lag.double().mean(dim=2)
        seen = whole[:, :, self.queries]
        groups = einops.repeat(part.groups, "b q k -> b h q k", h=seen.shape[1])
        by_group = torch.zeros(*seen.shape[:3], self.groups + 1, dtype=self.dtype).scatter_add_(3, groups, seen)
        self.masses[layer][:, part.rows] = einops.rearrange(by_group[..., : self.groups], "b h q g -> h b q g")
        logs = seen * seen.clamp(min=torch.finfo(self.dtype).tiny).log()
        covered = (part.groups < self.groups - 1).to(self.dtype)
        self.entropy[layer][:, part.rows] = einops.einsum(logs, covered, "b h q k, b q k -> h b q")

    def equations(self, layer: int, head: int) -> NormalEquations:
        """The least-squares fit of one head's scores: match indicators first, then the functions of distance."""
        found = NormalEquations(columns=len(self.gram), epsilon=torch.finfo(self.circuit.dtype).eps)
        found.gram, found.moments = self.gram.numpy(), self.moments[layer][head].numpy()
        found.total = max(0.0, float(self.squares[layer][head]))
        found.largest = float(self.largest[layer][head])
        found.n = int(self.counts[..., : 1 << self.order].sum())
        return found

    def even_lags(self) -> Float[np.ndarray, " lag"]:
        """Mean attention on lag 0, 1, .. of a pattern that is even over all visible keys."""
        length = self.tokens.shape[1]
        visible = np.arange(1, length + 1) + self.bos
        return np.array([(1.0 / visible[lag:]).mean() for lag in range(self.lags + 1)])


def attention_layers(model: Any) -> list[int]:
    """The layers whose attention can be read; some models have layers of another kind."""
    names = [f"blocks.{layer}.attn.hook_pattern" for layer in range(len(model.blocks))]
    found = [layer for layer, name in enumerate(names) if name in model.hook_dict]
    if not found:
        raise ValueError(f"no layer shows an attention pattern: the model has no hook {names[0]}")
    return found


def check_lags(lags: Any, *, length: int) -> int:
    """How many lags a copy may reach back, cut to the sequences' length."""
    if isinstance(lags, bool) or not isinstance(lags, (int, np.integer)) or lags < 1:
        raise ValueError(f"copy_lags must be an integer >= 1, got {shown(lags)}")
    return min(int(lags), length - 1)
