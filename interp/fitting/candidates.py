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

from interp.circuit.capture import Capture
from interp.estimators.counts import match_masks
from interp.fitting.attention_rows import SeenKeys
from interp.fitting.likelihood import AttentionRows
from interp.fitting.regression import SPLINE_TERMS, Array

Source: TypeAlias = Literal["scores", "pattern"]

VIEW_BYTES = 32 << 20  # of one array with `columns` numbers per key


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
    """What a fit of the capture's attention needs, and the mass on early keys, [head, sequence, query].

    Queries with less than `MIN_COVERED` on candidates and BOS are not kept.
    """
    rows = candidate_rows(cap)
    seen = SeenKeys(
        cap.tokens,
        cap.queries[rows],
        order=cap.order,
        bos=cap.bos,
        sink=cap.has_sink,
        own=own,
        terms=SPLINE_TERMS if position else 0,
    )
    heads, keys = int(cap.match_pattern.shape[1]), int(cap.match_pattern.shape[3])
    sums = seen.sums(heads=heads, dtype=torch.float64)
    step = max(1, VIEW_BYTES // (8 * heads * max(1, len(rows)) * keys))
    for start in range(0, len(cap.tokens), step):
        part = slice(start, min(start + step, len(cap.tokens)))
        sums.add(part, seen.groups(part), cap.match_pattern[part][:, :, rows].detach().cpu())
    return seen.rows(sums), sums.masses[..., -1].numpy()


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
