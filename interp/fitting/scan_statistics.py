"""What a scan keeps of every head while the model runs: sums by group of keys, never a pattern.

    statistics = ScanStatistics(circuit, tokens, torch.arange(40, 60), lags=8)   # positions of the model
    statistics.gather()
    statistics.rows(0), statistics.equations(0)    # of the heads of layer 0: for `fit_law`, and for least squares

The keys that a query sees are grouped by their mask, BOS and the early keys beside them. For each head these numbers
are kept: at every query that was asked for its attention by group and by distance (`attention_rows`), on earlier keys
of the query's token and on the first keys; its mass on each lag at all queries; and the moments of a least-squares fit
of its scores.
Masks and the design of that fit depend on the tokens alone, so they are computed once for all layers and heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import einops
import torch
from jaxtyping import Float, Int64

from interp.arguments import takes_memory
from interp.circuit.circuit import Circuit, heads_of
from interp.circuit.runner import Hook, Hooks, no_hooks, observe, score_hook
from interp.fitting.attention_rows import AttentionSums, SeenKeys
from interp.fitting.likelihood import AttentionRows
from interp.fitting.regression import SPLINE_TERMS, NormalEquations


@dataclass(frozen=True, kw_only=True)
class TokenPart:
    """What depends on the tokens of some sequences alone: the group of every key, and the design of the fit.

    groups      [batch, query, key] the mask of a candidate key, then BOS (where there is one), early, not visible
    candidate   [query, key]
    same        [batch, query, key] 1 for an earlier key with the query's own token
    matches     [batch, query, key, lag] match indicators, centred over the candidates of a query, 0 elsewhere
    places      [query, key, term] functions of the distance, centred likewise
    """

    rows: slice
    groups: Int64[torch.Tensor, "batch query key"]
    candidate: Float[torch.Tensor, "query key"]
    same: Float[torch.Tensor, "batch query key"]
    matches: Float[torch.Tensor, "batch query key lag"]
    places: Float[torch.Tensor, "query key term"]


class LayerSums:
    """The sums of one layer's heads.

    seen      the attention by group and distance
    special   [head, sequence, query, 2] attention on earlier keys of the query's token, and on BOS and the first token
    on_lag    [sequence, head, lag] mean attention of the tokens on lag 0, 1, ..
    moments, squares, largest    of the heads' scores, as in `NormalEquations`
    """

    def __init__(self, heads: int, seen: AttentionSums, *, lags: int, columns: int):
        self.seen = seen
        self.special = torch.zeros(*seen.entropy.shape, 2, dtype=seen.entropy.dtype)
        self.on_lag = torch.zeros(seen.entropy.shape[1], heads, lags + 1, dtype=torch.float64)
        self.moments = torch.zeros(heads, columns, dtype=torch.float64)
        self.squares, self.largest = (torch.zeros(heads, dtype=torch.float64) for _ in range(2))
        self.saw_scores = self.saw_pattern = False


class ScanStatistics:
    """Gathers the statistics of every head, part of the batch by part.

    layers    the layers whose heads are read, by default all
    position  whether the laws have a positional term
    scores    whether the scores are read, too
    seen      the keys that the queries see
    same      [sequence, query] earlier keys with the query's own token
    sums      by layer
    """

    def __init__(
        self,
        circuit: Circuit,
        tokens: Int64[torch.Tensor, "batch length"],
        queries: Int64[torch.Tensor, " query"],
        *,
        lags: int,
        layers: Sequence[int] | None = None,
        position: bool = True,
        scores: bool = True,
    ) -> None:
        self.circuit, self.tokens, self.lags, self.scores = circuit, tokens, lags, scores
        layers = attention_layers(circuit.model) if layers is None else sorted(set(layers))
        self.order, self.bos = circuit.order, int(circuit.has_bos)
        # Queries before the first candidate have nothing to match.
        self.queries = queries[queries - self.bos >= self.order]
        if not len(self.queries):
            raise ValueError(f"no query has a candidate key: matches of order {self.order} start at token {self.order}")
        heads = {layer: heads_of(circuit.model, layer) for layer in layers}
        rows = (len(tokens), len(self.queries))
        self.dtype = torch.float64 if circuit.dtype == torch.float64 else torch.float32
        groups, distances = (1 << self.order) + circuit.has_sink + 1, int(self.queries.max()) - self.bos
        kept = self.dtype.itemsize * sum(heads.values()) * (groups + 3 + SPLINE_TERMS) + 8 * groups + 2 * distances
        asked = f"a scan of {rows[1]} queries of {rows[0]} sequences"
        one = f"one sequence needs {kept * rows[1] / 2**20:.0f} MiB"
        takes_memory(kept * rows[0] * rows[1], what=asked, instead=one)
        self.seen = SeenKeys(
            tokens,
            self.queries,
            order=self.order,
            bos=circuit.has_bos,
            sink=circuit.has_sink,
            terms=SPLINE_TERMS if position else 0,
        )
        self.same = torch.zeros(rows, dtype=torch.float64)
        columns = self.order + self.seen.basis.shape[1]
        self.gram = torch.zeros(columns, columns, dtype=torch.float64)
        self.sums = {
            layer: LayerSums(count, self.seen.sums(heads=count, dtype=self.dtype), lags=lags, columns=columns)
            for layer, count in heads.items()
        }

    @property
    def layers(self) -> list[int]:
        """The layers whose heads are read."""
        return list(self.sums)

    def gather(self, edits: Hooks | None = None) -> None:
        """Run the model once over all sequences, up to the last layer that is asked for, under hooks that edit it."""
        observe(
            self.circuit,
            self.tokens,
            hooks=lambda rows: (edits or no_hooks)(rows) + self.hooks(rows),
            last_layer=self.layers[-1],
        )
        if missing := [layer for layer, sums in self.sums.items() if not sums.saw_pattern]:
            name = f"blocks.{missing[0]}.attn.hook_pattern"
            raise ValueError(f"the hook {name} was never called: a scan needs it in every layer")

    def hooks(self, rows: slice) -> list[Hook]:
        """For one part of the batch; its tokens are counted."""
        part = self.token_part(rows)
        found = []
        for layer, sums in self.sums.items():
            if self.scores:
                found.append(score_hook(self.circuit, layer, partial(self.add_scores, part, sums)))
            found.append((f"blocks.{layer}.attn.hook_pattern", partial(self.add_pattern, part, sums)))
        return found

    def token_part(self, rows: slice) -> TokenPart:
        """Groups and design of some sequences; their counts and the design's products are added to the sums."""
        order, groups, distance = self.order, self.seen.groups(rows), self.seen.distance
        same = (self.seen.same(rows) & (distance > 0)).to(self.dtype)
        self.same[rows] = same.sum(dim=2).double()
        seen = self.seen.candidate.double()
        share = seen / seen.sum(dim=1, keepdim=True)
        bits = (groups[..., None] >> torch.arange(order) & 1).double()
        matches = (bits - einops.einsum(bits, share, "b q k lag, q k -> b q lag")[:, :, None]) * seen[..., None]
        places = self.seen.places
        places = (places - einops.einsum(places, share, "q k term, q k -> q term")[:, None]) * seen[..., None]
        self.gram[:order, :order] += einops.einsum(matches, matches, "b q k i, b q k j -> i j")
        cross = einops.einsum(matches.sum(dim=0), places, "q k i, q k j -> i j")
        self.gram[:order, order:] += cross
        self.gram[order:, :order] += cross.T
        self.gram[order:, order:] += len(groups) * einops.einsum(places, places, "q k i, q k j -> i j")
        return TokenPart(rows=rows, groups=groups, candidate=seen, same=same, matches=matches, places=places)

    def add_scores(self, part: TokenPart, sums: LayerSums, scores: torch.Tensor, hook: Any) -> None:
        """Moments of the scores of candidate keys. The design is centred, so that the scores need not be."""
        sums.saw_scores = True
        seen = scores.detach().cpu()[:, :, self.queries].double()
        seen = torch.where(part.candidate.bool(), seen, 0.0)
        sums.moments[:, : self.order] += einops.einsum(seen, part.matches, "b h q k, b q k lag -> h lag")
        sums.moments[:, self.order :] += einops.einsum(seen.sum(dim=0), part.places, "h q k, q k term -> h term")
        sums.squares += einops.reduce(seen**2, "b h q k -> h", "sum")
        sums.squares -= einops.reduce(seen.sum(dim=3) ** 2 / part.candidate.sum(dim=1), "b h q -> h", "sum")
        sums.largest = torch.maximum(sums.largest, einops.reduce(seen.abs(), "b h q k -> h", "max"))

    def add_pattern(self, part: TokenPart, sums: LayerSums, pattern: torch.Tensor, hook: Any) -> None:
        """Mass by group and entropy at the queries asked for, mass by lag at all."""
        sums.saw_pattern = True
        whole = pattern.detach().cpu().to(self.dtype)
        for lag in range(self.lags + 1):
            # Row t + bos of the pattern is token t, its key at this lag column t - lag + bos.
            on_lag = torch.diagonal(whole, offset=-lag, dim1=2, dim2=3)[..., self.bos :]
            sums.on_lag[part.rows, :, lag] = on_lag.double().mean(dim=2)
        seen = whole[:, :, self.queries]
        sums.seen.add(part.rows, part.groups, seen)
        sums.special[:, part.rows, :, 0] = einops.einsum(seen, part.same, "b h q k, b q k -> h b q")
        sums.special[:, part.rows, :, 1] = einops.reduce(seen[..., : 1 + self.bos], "b h q k -> h b q", "sum")

    def rows(self, layer: int) -> AttentionRows:
        """The attention of the layer's heads, for a fit of its law."""
        return self.seen.rows(self.sums[layer].seen)

    def equations(self, layer: int) -> NormalEquations:
        """The least-squares fit of the heads' scores: match indicators first, then the functions of distance."""
        sums = self.sums[layer]
        return NormalEquations(
            gram=self.gram.numpy(),
            moments=sums.moments.numpy(),
            total=sums.squares.clamp(min=0.0).numpy(),
            largest=sums.largest.numpy(),
            n=int(self.seen.counts[..., : 1 << self.order].sum()),
            epsilon=torch.finfo(self.circuit.dtype).eps,
        )


def attention_layers(model: Any) -> list[int]:
    """The layers whose attention can be read; some models have layers of another kind."""
    names = [f"blocks.{layer}.attn.hook_pattern" for layer in range(len(model.blocks))]
    found = [layer for layer, name in enumerate(names) if name in model.hook_dict]
    if not found:
        raise ValueError(f"no layer shows an attention pattern: the model has no hook {names[0]}")
    return found
