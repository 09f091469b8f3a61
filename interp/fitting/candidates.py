"""A capture seen query by query: candidate keys with their masks and attention, BOS and early keys beside them.

    for view in query_views(cap, columns=12):
        view.masks, view.scores, view.pattern          # [batch, key], candidate keys only, oldest first

Every instrument on match attention reads a capture this way. So one place decides which keys are candidates, and little
memory is needed at a time: a view is part of the batch at one query. Views are float64 and cannot be written to,
because some share the capture's memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from scipy.special import xlogy

from interp.circuit.capture import Capture
from interp.estimators.counts import match_masks
from interp.fitting.likelihood import AttentionRows, KeyPart, sum_by_group
from interp.fitting.regression import SPLINE_TERMS, Array, distance_basis

Source: TypeAlias = Literal["scores", "pattern"]

VIEW_BYTES = 32 << 20  # of one array with `columns` numbers per key
MIN_COVERED = 1e-6  # attention on candidates and BOS below which a query is left out of a fit of attention


@dataclass(frozen=True, kw_only=True)
class QueryView:
    """Some of the sequences, at one query t.

    sequences      which rows of the capture these are
    head, row      which match head and which query of the capture this is
    tokens         [batch, length] tokens up to the query, x_t last
    masks          [batch, key] the mask of each candidate key s = k..t
    distance       [key] t - s
    scores         [batch, key] before the softmax; only differences within a query mean anything. With
                   source="pattern" log-attention, which has the same differences; -inf where it underflowed
    known          [batch, key] False at the keys to leave out: where attention underflowed, all keys of that mask
    pattern        [batch, key] attention
    early_pattern  [batch, early] attention on the k keys without a full context
    bos_scores, bos_pattern   [batch] scores and attention of BOS; None where there is none. If the first token stands
                   in for it, they are its own, and its attention is 0 among the early keys
    """

    sequences: slice
    head: int
    row: int
    tokens: Int64[np.ndarray, "batch length"]
    masks: Int64[np.ndarray, "batch key"]
    distance: Int64[np.ndarray, " key"]
    scores: Float[np.ndarray, "batch key"]
    known: Bool[np.ndarray, "batch key"]
    pattern: Float[np.ndarray, "batch key"]
    early_pattern: Float[np.ndarray, "batch early"]
    bos_scores: Float[np.ndarray, " batch"] | None
    bos_pattern: Float[np.ndarray, " batch"] | None


def candidate_rows(cap: Capture) -> list[int]:
    """The queries of the capture that see at least one candidate key; those before have nothing to match."""
    return [row for row, position in enumerate(cap.queries.tolist()) if position - int(cap.bos) >= cap.order]


def count_distances(cap: Capture) -> int:
    """How many distances t - s there are between a query and its candidates: T - k, from 0, at the last query."""
    return int(cap.queries.max()) - int(cap.bos) - cap.order + 1


def smallest_normal(cap: Capture) -> float:
    """Attention below this has underflowed: it is zero, or has lost most of its digits."""
    return float(torch.finfo(cap.match_pattern.dtype).tiny)


def query_views(cap: Capture, *, columns: int = 1, source: Source = "scores") -> Iterator[QueryView]:
    """Views of all match heads, and for each of all queries with a candidate, in parts of the batch: `columns` numbers
    per key fit into `VIEW_BYTES`.
    """
    order, bos = cap.order, int(cap.bos)
    tokens, candidates_from = _read_only(cap.tokens), bos + order
    for head, row in itertools.product(range(cap.match_pattern.shape[1]), candidate_rows(cap)):
        t = int(cap.queries[row]) - bos
        step = max(1, VIEW_BYTES // (8 * columns * (t + 1)))
        for start in range(0, len(tokens), step):
            part = slice(start, min(start + step, len(tokens)))
            visible = slice(0, bos + t + 1)
            pattern = _read_only(cap.match_pattern[part, head, row, visible].double())
            if source == "pattern":
                with np.errstate(divide="ignore"):
                    scores = np.log(np.where(pattern < smallest_normal(cap), 0.0, pattern))
            else:
                scores = _read_only(cap.match_scores[part, head, row, visible].double())
            # The masks from the last query of a prefix are those from query t.
            masks = match_masks(tokens[part, : t + 1], order=order).numpy()[:, order:]
            early = pattern[:, bos:candidates_from]
            if cap.first_as_bos:
                early = np.concatenate([np.zeros((len(early), 1)), early[:, 1:]], axis=1)
            yield QueryView(
                sequences=part,
                head=head,
                row=row,
                tokens=tokens[part, : t + 1],
                masks=masks,
                distance=np.arange(t - order, -1, -1),
                scores=scores[:, candidates_from:],
                known=_known(masks, scores[:, candidates_from:], source=source),
                pattern=pattern[:, candidates_from:],
                early_pattern=early,
                bos_scores=scores[:, 0] if cap.has_sink else None,
                bos_pattern=pattern[:, 0] if cap.has_sink else None,
            )


def attention_rows(cap: Capture, *, position: bool, own: bool = False) -> tuple[AttentionRows, Array]:
    """What a fit of the capture's attention needs, and the mass on early keys of every query.

    Its match heads count as one, with a row for each of them. Queries with less than `MIN_COVERED` on candidates and
    BOS have no row.
    """
    groups = (1 << cap.order + int(own)) + int(cap.has_sink)
    basis = distance_basis(count_distances(cap), terms=SPLINE_TERMS if position else 0)
    none = np.zeros((0, groups))
    blocks: list[tuple[Array, ...]] = [(none, none, np.zeros(0), np.zeros(0, dtype=np.int64), np.zeros(0))]
    parts, start = [], 0
    for view in query_views(cap, columns=1 + bool(position) * (cap.order + 1 + basis.shape[1])):
        codes, pattern = view.masks.astype(np.int16), view.pattern
        if own:
            codes |= (view.tokens[:, cap.order :] == view.tokens[:, -1:]).astype(np.int16) << cap.order
        if view.bos_pattern is not None:
            codes = np.pad(codes, ((0, 0), (0, 1)), constant_values=groups - 1)
            pattern = np.column_stack([pattern, view.bos_pattern])
        covered = pattern.sum(axis=1)
        kept = covered > MIN_COVERED
        codes, p = codes[kept], pattern[kept] / covered[kept, None]
        sums, counts = sum_by_group(codes, p, groups), sum_by_group(codes, None, groups)
        sequence = np.arange(len(cap.tokens))[view.sequences][kept]
        blocks.append((sums, counts, xlogy(p, p).sum(axis=1), sequence, view.early_pattern.sum(axis=1)))
        if basis.shape[1] and len(p):
            places = basis[view.distance] - basis[view.distance].mean(axis=0)
            places = np.pad(places, ((0, int(cap.has_sink)), (0, 0)))
            parts.append(KeyPart(rows=slice(start, start + len(p)), groups=codes, shares=p, places=places))
        start += len(p)
    shares, counts, entropy, sequence, early = map(np.concatenate, zip(*blocks, strict=True))
    rows = AttentionRows(
        shares=shares[None],
        counts=counts,
        entropy=entropy[None],
        kept=np.ones((1, len(sequence)), dtype=bool),
        sequence=sequence,
        sequences=len(cap.tokens),
        parts=tuple(parts),
        basis=basis,
    )
    return rows, early


def _read_only(tensor: torch.Tensor) -> Array:
    array = tensor.detach().cpu().numpy()
    array.setflags(write=False)
    return array


def _known(masks: Array, scores: Array, *, source: Source) -> Bool[np.ndarray, "batch key"]:
    """Which keys can be compared. Leaving out underflowed keys one by one would remove the low scores of a mask and
    keep its high ones, so all keys of that mask at that query are left out together.
    """
    known = np.ones(scores.shape, dtype=bool)
    if source == "scores":
        return known
    gone = np.isneginf(scores)
    for mask in np.unique(masks[gone]):
        same = masks == mask
        known &= ~(same & (gone & same).any(axis=1, keepdims=True))
    return known
