"""The law as attention: masks of the model's keys, and the patterns that eq:transformer_estimator gives them.

masks = key_masks_at(tokens, order=2, bos=True, queries=torch.tensor([64]))    [batch, query, key]
law_pattern(masks, by_mask=mask_bits(2) @ beta, kappa=kappa)      e^{|beta|_M} / Z, BOS e^kappa / Z, else 0
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64, Shaped

from interp.arguments import Numbers
from interp.divergence import as_laws
from interp.estimators.counts import NOT_A_CANDIDATE
from interp.notation import mask_bits


def key_masks_at(
    tokens: Int64[torch.Tensor, "batch length"], *, order: int, bos: bool, queries: Int64[torch.Tensor, " query"]
) -> Int64[torch.Tensor, "batch query key"]:
    """The match mask of every key as seen from each of the queries; -1 for BOS, early keys and keys after the query.

    Queries are positions of the model, BOS counted. A query with fewer than k tokens before it has no candidate.
    """
    length = tokens.shape[1]
    own = queries - int(bos)  # token indices
    keys = torch.arange(length)
    masks = torch.zeros(len(tokens), len(own), length, dtype=torch.int64)
    for lag in range(1, order + 1):
        query = tokens[:, (own - lag + 1).clamp(min=0)]
        key = tokens[:, (keys - lag).clamp(min=0)]
        masks |= (query[:, :, None] == key[:, None, :]).long() << (lag - 1)
    candidate = (keys >= order) & (keys <= own[:, None])
    masks = torch.where(candidate, masks, NOT_A_CANDIDATE)
    return torch.nn.functional.pad(masks, (int(bos), 0), value=NOT_A_CANDIDATE)


def scores_by_mask(
    masks: Int64[torch.Tensor, "*rows key"], by_mask: Float[np.ndarray, " mask"]
) -> Float[torch.Tensor, "*rows key"]:
    """The score of its mask for every candidate key; 0 for the others. For the law `by_mask` is |beta|_M."""
    return torch.where(masks >= 0, torch.from_numpy(by_mask)[masks.clamp(min=0)], 0.0)


def law_pattern(
    masks: Int64[torch.Tensor, "*rows key"], *, by_mask: Float[np.ndarray, " mask"], kappa: float | None
) -> Float[torch.Tensor, "*rows key"]:
    """The attention of eq:transformer_estimator: e^{|beta|_M} / Z on candidates, e^kappa / Z on BOS, else 0.

    With kappa, key 0 is BOS, or the first token in its place. `by_mask` is a score for every mask, |beta|_M or another.
    """
    scores = torch.where(masks >= 0, scores_by_mask(masks, by_mask), -torch.inf)
    if kappa is not None:
        scores[..., 0] = kappa
    return torch.softmax(scores, dim=-1)


def pair_scores(
    tokens: Int64[torch.Tensor, "batch length"], pairs: Float[np.ndarray, "block block"]
) -> Float[torch.Tensor, "batch candidate"]:
    """sum_ab beta_ab [x_{t-a} = x_{s-b}] of the last query t and its candidates s = k..t (corollary:inductive)."""
    last = tokens.shape[1] - 1
    keys = torch.arange(len(pairs) - 1, last + 1)
    scores = torch.zeros(tokens.shape[0], len(keys), dtype=torch.float64)
    for (query, key), weight in np.ndenumerate(pairs):
        scores += float(weight) * (tokens[:, last - query, None] == tokens[:, keys - key])
    return scores


def full_matches(masks: Int64[torch.Tensor, "*rows key"], *, order: int, bos: bool) -> Bool[torch.Tensor, "*rows key"]:
    """Where a key is a full match, or is BOS if `bos` says to count it."""
    kept = masks == (1 << order) - 1
    if bos:
        kept[..., 0] = True
    return kept


def largest_overlaps(masks: Int64[torch.Tensor, "*rows key"], *, order: int) -> Bool[torch.Tensor, "*rows key"]:
    """Where a candidate has the largest overlap of its row."""
    sizes = torch.from_numpy(mask_bits(order).sum(-1))
    overlaps = torch.where(masks >= 0, sizes[masks.clamp(min=0)], -1)
    return overlaps == overlaps.max(dim=-1, keepdim=True).values


def even_pattern(masks: Int64[torch.Tensor, "*rows key"]) -> Float[torch.Tensor, "*rows key"]:
    """Even attention to all keys that a query sees; the last of them is its last candidate."""
    last = (masks >= 0).long().cumsum(-1).argmax(-1, keepdim=True)
    seen = (torch.arange(masks.shape[-1]) <= last).double()
    return seen / seen.sum(-1, keepdim=True)


def shuffled(
    values: Shaped[torch.Tensor, "batch query key"],
    masks: Int64[torch.Tensor, "batch query key"],
    *,
    generator: torch.Generator,
) -> Shaped[torch.Tensor, "batch query key"]:
    """The values of each query's candidates, such as their masks, in a random order: the control of a match."""
    dealt = values.clone()
    for query in range(masks.shape[1]):
        candidates = (masks[0, query] >= 0).nonzero().squeeze(-1)  # the same keys in every sequence
        order = torch.rand(len(dealt), len(candidates), generator=generator).argsort(dim=-1)
        dealt[:, query, candidates] = values[:, query, candidates].gather(1, order)
    return dealt


def keep_keys(
    scores: Float[torch.Tensor, "... key"], kept: Bool[torch.Tensor, "... key"]
) -> Float[torch.Tensor, "... key"]:
    """The softmax over the kept keys alone. Where none is kept the row is zero: the head attends to nothing.

    `kept` is broadcast to the shape of `scores`.
    """
    pattern = torch.softmax(torch.where(kept, scores, -torch.inf), dim=-1)
    return torch.nan_to_num(pattern, nan=0.0)


def check_next_law(
    next_law: Numbers, tokens: Int64[torch.Tensor, "batch length"], *, vocab: int
) -> Float[torch.Tensor, "batch vocab"]:
    """The true laws of these sequences' next tokens, in float64."""
    expected = (tokens.shape[0], vocab)
    given = as_laws(next_law, name="next_law")
    if tuple(given.shape) != expected:
        raise ValueError(f"next_law must have shape {list(expected)}, got {list(given.shape)}")
    return given.detach().cpu()
