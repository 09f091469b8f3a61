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
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from numpy.typing import NDArray

from interp.circuit.capture import Capture
from interp.estimators.counts import match_masks

Source: TypeAlias = Literal["scores", "pattern"]
Array: TypeAlias = NDArray[Any]

VIEW_BYTES = 32 << 20  # of one array with `columns` numbers per key


@dataclass(frozen=True, kw_only=True)
class QueryView:
    """Some of the sequences, at one query t.

    sequences      which rows of the capture these are
    head           which match head of the capture this is
    row            which query of the capture this is
    tokens         [batch, length] tokens up to the query, x_t last
    masks          [batch, key] the mask of each candidate key s = k..t
    distance       [key] t - s
    scores         [batch, key] before the softmax; only differences within a query mean anything. With
                   source="pattern" log-attention, which has the same differences; -inf where it underflowed
    known          [batch, key] False at the keys to leave out: where attention underflowed, all keys of that mask
    pattern        [batch, key] attention
    early_scores, early_pattern   [batch, early] the same at the k keys without a full context
    bos_scores, bos_pattern       [batch] the same at BOS; None where there is none. If the first token stands in for
                                  it, they are its own, and its attention is 0 among the early keys
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
    early_scores: Float[np.ndarray, "batch early"]
    early_pattern: Float[np.ndarray, "batch early"]
    bos_scores: Float[np.ndarray, " batch"] | None
    bos_pattern: Float[np.ndarray, " batch"] | None


class BosTally:
    """BOS scores relative to an empty match, collected view by view: kappa, its spread, and its influence function.

    The score of an empty match is a query's mean score without the part of the matches. `indicators` are the match
    columns of the candidate keys, `beta` their weights.
    """

    def __init__(self, *, sequences: int) -> None:
        self.sequences = sequences
        self._relative: list[Array] = []
        self._owner: list[Array] = []
        self._matched: list[Array] = []

    def add(
        self, view: QueryView, indicators: Float[np.ndarray, "batch key column"], beta: Float[np.ndarray, " column"]
    ) -> tuple[Bool[np.ndarray, " batch"], Float[np.ndarray, " some"]]:
        """Take in a view; returns which of its rows have a known key, and the score of an empty match in those."""
        some: Array = np.asarray(view.known.any(axis=1))
        share = view.known[some] / view.known[some].sum(axis=1, keepdims=True)
        matched = np.einsum("bk,bkl->bl", share, indicators[some])
        empty = (share * np.where(view.known, view.scores, 0.0)[some]).sum(axis=1) - matched @ beta
        if view.bos_scores is not None:
            relative = view.bos_scores[some] - empty
            finite = np.isfinite(relative)
            self._relative.append(relative[finite])
            self._owner.append(np.arange(self.sequences)[view.sequences][some][finite])
            self._matched.append(matched[finite])
        return some, empty

    @property
    def relative(self) -> Float[np.ndarray, " query"]:
        """The score of BOS less that of an empty match, at every query where both are known."""
        return np.concatenate(self._relative) if self._relative else np.zeros(0)

    def influence(self, of_beta: Float[np.ndarray, "sequence column"]) -> Float[np.ndarray, " sequence"]:
        """How far kappa moves without each sequence: by BOS's own scores, and through the beta of the empty match."""
        relative, owner, matched = self.relative, np.concatenate(self._owner), np.concatenate(self._matched)
        left = (len(relative) - np.bincount(owner, minlength=self.sequences)).astype(np.float64)
        left[left == 0] = np.nan
        own = np.bincount(owner, weights=relative - relative.mean(), minlength=self.sequences)
        others = np.repeat(matched.sum(axis=0)[None], self.sequences, axis=0)
        np.subtract.at(others, owner, matched)
        return np.asarray((own + (others * of_beta).sum(axis=1)) / left)


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
    tokens = _read_only(cap.tokens)
    candidates_from = bos + order
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
                early_scores=scores[:, bos:candidates_from],
                early_pattern=early,
                bos_scores=scores[:, 0] if cap.has_sink else None,
                bos_pattern=pattern[:, 0] if cap.has_sink else None,
            )


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
