"""Attention as fits of it need it: by group of keys and mean distance, from patterns that need not be kept.

    seen = SeenKeys(cap.tokens, cap.queries, order=2, bos=True, sink=True, terms=8)
    sums = seen.sums(heads=1, dtype=torch.float64)
    every = slice(0, len(cap.tokens))  # or a part at a time
    sums.add(every, seen.groups(every), cap.match_pattern)
    seen.rows(sums)

The rows are what `Likelihood` takes. A scan adds the patterns of a layer while the model runs, a fit those of a
capture: both fit the same numbers.
"""

from __future__ import annotations

import einops
import numpy as np
import torch
from jaxtyping import Float, Int64

from interp.circuit.law import key_masks_at
from interp.fitting.likelihood import AttentionRows
from interp.fitting.regression import distance_basis

MIN_COVERED = 1e-6  # attention on candidates and BOS below which a query is left out of a fit of attention


class SeenKeys:
    """Which keys the queries see: groups, by mask, then BOS where there is one, then early keys; and their distances.

    queries    positions of the model, each with a candidate
    own        double the masks: whether the key's own token is the query's
    terms      of the positional term
    early      the last group, of early keys; keys that are not visible are one more
    counts     [sequence, query, group] keys in each group
    places     [query, key, term] the functions of a candidate's distance, else 0
    """

    def __init__(
        self,
        tokens: Int64[torch.Tensor, "batch length"],
        queries: Int64[torch.Tensor, " query"],
        *,
        order: int,
        bos: bool,
        sink: bool,
        terms: int,
        own: bool = False,
    ) -> None:
        self.tokens, self.queries, self.order, self.bos, self.sink, self.own = tokens, queries, order, bos, sink, own
        self.early = (1 << order + own) + sink
        keys, self.first = torch.arange(tokens.shape[1] + bos), order + bos
        self.distance = queries[:, None] - keys
        self.candidate = (keys >= self.first) & (self.distance >= 0)
        distances = int(queries.max()) - self.first + 1 if len(queries) else 0
        self.basis = torch.from_numpy(distance_basis(distances, terms=terms if distances else 0))
        self.places = self.basis[self.distance.clamp(0, max(0, distances - 1))] * self.candidate[..., None]
        self.counts = torch.zeros(len(tokens), len(queries), self.early + 1, dtype=torch.float64)
        self.keys = np.full((len(tokens), len(queries), distances), -1, dtype=np.int16)

    def groups(self, rows: slice) -> Int64[torch.Tensor, "batch query key"]:
        """The group of every key that some sequences' queries see; they are counted."""
        tokens = self.tokens[rows]
        masks = key_masks_at(tokens, order=self.order, bos=self.bos, queries=self.queries)
        if self.own:
            masks = masks + (self.same(rows).long() << self.order)
        outside = torch.where(self.distance >= 0, self.early, self.early + 1)
        groups = torch.where(self.candidate, masks, outside)
        if self.sink:  # key 0 is BOS, or the first token in its place
            groups[..., 0] = self.early - 1
        counts = torch.zeros(*groups.shape[:2], self.early + 2, dtype=torch.float64)
        counts.scatter_add_(2, groups, torch.ones(1, dtype=torch.float64).expand(groups.shape))
        self.counts[rows] = counts[..., :-1]
        at = self.queries[:, None] - torch.arange(self.keys.shape[2])
        keys = groups.gather(2, at.clamp(min=0).expand(len(groups), -1, -1))
        self.keys[rows] = torch.where(at >= self.first, keys, -1).numpy()
        return groups

    def same(self, rows: slice) -> torch.Tensor:
        """[batch, query, key] whether a key's own token is the query's; BOS has none."""
        tokens = self.tokens[rows]
        own = torch.nn.functional.pad(tokens, (int(self.bos), 0), value=-1)
        return tokens[:, self.queries - int(self.bos), None] == own[:, None]

    def sums(self, *, heads: int, dtype: torch.dtype) -> AttentionSums:
        """For the attention of this many heads, none yet."""
        size = (heads, len(self.tokens), len(self.queries))
        return AttentionSums(
            masses=torch.zeros(*size, self.early + 1, dtype=dtype),
            places=torch.zeros(*size, self.basis.shape[1], dtype=dtype),
            entropy=torch.zeros(*size, dtype=dtype),
            at=self.places.to(dtype),
        )

    def rows(self, sums: AttentionSums) -> AttentionRows:
        """The attention, renormalised over candidates and BOS."""
        inside = sums.masses[..., :-1].double().numpy()
        covered = inside.sum(axis=-1)
        kept = covered > MIN_COVERED
        whole = np.where(kept, covered, 1.0)
        shares = np.where(kept[..., None], inside / whole[..., None], 0.0)
        places = np.where(kept[..., None], sums.places.double().numpy() / whole[..., None], 0.0)
        centre = None
        if self.sink:
            centre = (self.places.sum(dim=1) / self.candidate.sum(dim=1)[:, None]).numpy()
            places = places + shares[..., -1:] * centre
        return AttentionRows(
            shares=shares,
            places=places,
            # sum q log q of q = p / c is (sum p log p) / c - log c.
            entropy=sums.entropy.double().numpy() / whole - np.log(whole),
            kept=kept,
            keys=self.keys,
            basis=self.basis.numpy(),
            centre=centre,
        )


class AttentionSums:
    """The attention of some heads, summed over keys.

    masses    [head, sequence, query, group] attention on each group
    places    [head, sequence, query, term] sum of the functions of a candidate's distance under it
    entropy   [head, sequence, query] sum of p log p over candidates and BOS
    at        [query, key, term] these functions
    """

    def __init__(self, *, masses: torch.Tensor, places: torch.Tensor, entropy: torch.Tensor, at: torch.Tensor) -> None:
        self.masses, self.places, self.entropy, self.at = masses, places, entropy, at

    def add(
        self,
        rows: slice,
        groups: Int64[torch.Tensor, "batch query key"],
        pattern: Float[torch.Tensor, "batch head query key"],
    ) -> None:
        """Take in the attention of some sequences."""
        seen = pattern.to(self.masses.dtype)
        early, size = self.masses.shape[-1] - 1, (*seen.shape[:3], self.masses.shape[-1] + 1)
        into = einops.repeat(groups, "b q k -> b h q k", h=seen.shape[1])
        masses = torch.zeros(size, dtype=seen.dtype).scatter_add_(3, into, seen)
        self.masses[:, rows] = einops.rearrange(masses[..., :-1], "b h q g -> h b q g")
        self.places[:, rows] = einops.einsum(seen, self.at, "b h q k, q k t -> h b q t")
        logs = seen * seen.clamp(min=torch.finfo(seen.dtype).tiny).log()
        self.entropy[:, rows] = einops.einsum(logs, (groups < early).to(seen), "b h q k, b q k -> h b q")
