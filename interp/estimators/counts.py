"""Match masks and the counts that every estimator here is made of (def:match_mask, def:occurrences).

N_M(m) says how often symbol m followed a context that agrees with the query's on exactly the lags M. Together these
counts are a sufficient statistic of the soft-matching family: whatever beta and kappa, the prediction reads the
sequence only through them. So they are computed once, by compiled code, and the estimators are small functions of them.

Counts at every position do not cost T^2. For a small number of contexts a table holds, for each possible query context
u, the counts N_M(m) as seen from u; a new token updates one entry for each u, and a query reads its row. That is O(T
|V|^k). Where the table would cost more, pairs of positions are compared instead, in O(T^2 k).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Int64, Shaped
from numpy.typing import NDArray

from interp.arguments import Switch, Whole, fits_memory, plain_array, switch
from interp.notation import Tokens, as_tokens, check_order, check_vocab
from interp.source import njit

Array: TypeAlias = NDArray[Any]

NOT_A_CANDIDATE = -1
MAX_TABLE_CONTEXTS = 2048  # the mask table has |V|^2k entries
CHUNK_BYTES = 64 << 20  # working memory of the every-position forms


@dataclass(frozen=True)
class Queries:
    """Checked sequences, and the positions that are asked: the last one, or every one."""

    tokens: Int64[np.ndarray, "batch length"]
    order: int
    vocab: int
    every_position: bool

    @property
    def first(self) -> int:
        """The first position that is asked."""
        return 0 if self.every_position else self.tokens.shape[1] - 1

    @property
    def shape(self) -> tuple[int, int]:
        """Sequences and positions that are asked."""
        return len(self.tokens), self.tokens.shape[1] - self.first

    def result(self, filled: Array) -> torch.Tensor:
        """An array [batch, position, ...] as it is returned: without the axis of positions where only one is asked."""
        found = torch.from_numpy(filled)
        return found if self.every_position else found[:, 0]

    def in_chunks(self, estimate: Callable[[Queries], torch.Tensor], *, numbers: int) -> torch.Tensor:
        """Apply the estimate to a few sequences at a time; a position takes about four arrays of `numbers`."""
        batch, positions = self.shape
        fits_memory(8 * batch * positions * self.vocab, what="the laws")
        step = max(1, CHUNK_BYTES // (32 * positions * numbers))
        parts = (self.tokens[start : start + step] for start in range(0, batch, step))
        return torch.cat([estimate(replace(self, tokens=part)) for part in parts])


def queries(tokens: Tokens, *, order: Whole, vocab: Whole, every_position: Switch) -> Queries:
    """The arguments of every estimator, checked."""
    order, vocab = check_order(order), check_vocab(vocab)
    every_position = switch(every_position, name="every_position")
    return Queries(as_tokens(tokens, vocab=vocab, order=order), order, vocab, every_position)


def match_masks(
    tokens: Tokens, *, order: Whole, every_position: Switch = False
) -> Int64[torch.Tensor, "batch key"] | Int64[torch.Tensor, "batch query key"]:
    """M_s^(t) for every key s as seen from the last query (or from every query); -1 where s is not a candidate.

    Keys before the (k+1)-th token have no full context and keys after the query are not visible: both are -1.

    >>> match_masks([[0, 1, 0, 1]], order=2).tolist()  # the last token follows (1, 0); the query's context is (0, 1)
    [[-1, -1, 3, 0]]
    """
    order = check_order(order)
    asked = Queries(as_tokens(tokens, order=order), order, 0, switch(every_position, name="every_position"))
    shape = (*asked.shape, asked.tokens.shape[1])
    fits_memory(8 * int(np.prod(shape, dtype=float)), what="the masks")
    masks = np.full(shape, NOT_A_CANDIDATE, dtype=np.int64)
    _fill_masks(asked.tokens, order, asked.first, masks)
    return asked.result(masks)


def mask_counts(
    tokens: Tokens, *, order: Whole, vocab: Whole, every_position: Switch = False
) -> Int64[torch.Tensor, "batch mask vocab"] | Int64[torch.Tensor, "batch length mask vocab"]:
    """N_M(m): successors m of contexts that match the query's on exactly the lags in M. Sum over vocab for N_M.

    >>> mask_counts([[0, 1, 0, 1]], order=2, vocab=2)[0].tolist()
    [[0, 1], [0, 0], [0, 0], [1, 0]]
    """
    return count_masks(queries(tokens, order=order, vocab=vocab, every_position=every_position))


def count_masks(asked: Queries) -> Int64[torch.Tensor, "*rows mask vocab"]:
    """N_M(m) for checked arguments."""
    tokens, order, vocab = asked.tokens, asked.order, asked.vocab
    fits_memory(8 * asked.shape[0] * asked.shape[1] * (vocab << order), what="counts for every mask")
    counts = np.zeros((*asked.shape, 1 << order, vocab), dtype=np.int64)
    if asked.every_position and _table_is_cheaper(tokens.shape[1], order, vocab):
        _count_by_table(tokens, order, vocab, context_masks(order=order, vocab=vocab), counts)
    else:
        _count_by_pairs(tokens, order, asked.first, counts)
    return asked.result(counts)


def cumulative_counts(
    tokens: Tokens, *, order: Whole, vocab: Whole, every_position: Switch = False
) -> Int64[torch.Tensor, "batch mask vocab"] | Int64[torch.Tensor, "batch length mask vocab"]:
    """K_M(m): successors of contexts that match on at least the lags in M; the sum of N_S(m) over S containing M.

    >>> cumulative_counts([[0, 1, 1, 0, 1]], order=1, vocab=2).tolist()  # masks {} and {1}, symbols 0 and 1
    [[[1, 3], [1, 1]]]
    """
    return superset_sum(mask_counts(tokens, order=order, vocab=vocab, every_position=every_position))


def superset_sum(counts: Any) -> Shaped[torch.Tensor, "*rows mask vocab"]:
    """From N_M to K_M: sum over all S that contain M, one lag at a time.

    >>> superset_sum(torch.tensor([[[0, 2], [1, 1]]])).tolist()
    [[[1, 3], [1, 1]]]
    """
    return _superset_transform(counts, sign=1)


def superset_difference(counts: Any) -> Shaped[torch.Tensor, "*rows mask vocab"]:
    """From K_M back to N_M: inclusion-exclusion, the exact inverse of `superset_sum`.

    >>> superset_difference(torch.tensor([[[1, 3], [1, 1]]])).tolist()
    [[[0, 2], [1, 1]]]
    """
    return _superset_transform(counts, sign=-1)


def as_counts(counts: Any) -> Shaped[torch.Tensor, "*rows mask vocab"]:
    """Counts by mask and symbol as a tensor of int64, or of floats where they are floats; or a `ValueError`.

    Small integer types become int64: their sums would wrap around.
    """
    array = counts if isinstance(counts, torch.Tensor) else plain_array(counts, name="counts")
    kind = str(array.dtype).removeprefix("torch.")
    if not kind.startswith(("int", "uint", "float", "bfloat")) or array.ndim < 2 or 0 in array.shape[-2:]:
        raise ValueError(f"counts must be numbers of shape [..., mask, vocab], got {kind} {list(array.shape)}")
    masks = array.shape[-2]
    if masks & (masks - 1):
        raise ValueError(f"the mask axis must have 2**order entries, got {masks}")
    given = torch.as_tensor(array)
    return given if given.is_floating_point() else given.to(torch.int64)


def _superset_transform(counts: Any, *, sign: int) -> torch.Tensor:
    result = as_counts(counts).clone()
    masks = result.shape[-2]
    for lag in range(masks.bit_length() - 1):
        without = [mask for mask in range(masks) if not mask >> lag & 1]
        having = [mask | 1 << lag for mask in without]
        result[..., without, :] += sign * result[..., having, :]
    return result


def context_masks(*, order: int, vocab: int) -> Int64[np.ndarray, "context context"]:
    """The mask between any two contexts, by their codes (lag 1 in the lowest digit)."""
    codes = np.arange(vocab**order)
    masks = np.zeros((codes.size, codes.size), dtype=np.int64)
    for lag in range(order):
        digit = codes // vocab**lag % vocab
        masks |= (digit[:, None] == digit[None, :]).astype(np.int64) << lag
    return masks


def _table_is_cheaper(length: int, order: int, vocab: int) -> bool:
    contexts: int = vocab**order
    return contexts <= MAX_TABLE_CONTEXTS and contexts < length * order / 2


@njit()
def mask_between(row: Array, order: int, query: int, key: int) -> int:
    """M_s^(t) of one pair of positions (def:match_mask); compiled loops elsewhere call it too."""
    mask = 0
    for lag in range(1, order + 1):
        if row[query - lag + 1] == row[key - lag]:
            mask |= 1 << (lag - 1)
    return mask


@njit()
def _fill_masks(tokens: Array, order: int, first: int, masks: Array) -> None:
    for b in range(tokens.shape[0]):
        for query in range(first, tokens.shape[1]):
            for key in range(order, query + 1):
                masks[b, query - first, key] = mask_between(tokens[b], order, query, key)


@njit()
def _count_by_pairs(tokens: Array, order: int, first: int, counts: Array) -> None:
    for b in range(tokens.shape[0]):
        for query in range(max(order, first), tokens.shape[1]):
            for key in range(order, query + 1):
                counts[b, query - first, mask_between(tokens[b], order, query, key), tokens[b, key]] += 1


@njit()
def _count_by_table(tokens: Array, order: int, vocab: int, masks_between: Array, counts: Array) -> None:
    contexts = vocab**order
    table = np.empty((contexts, 1 << order, vocab), dtype=np.int64)
    for b in range(tokens.shape[0]):
        table[:] = 0
        context = 0
        for t in range(tokens.shape[1]):
            token = tokens[b, t]
            if t >= order:  # the token succeeds `context`: every query context sees one more (mask, token)
                for seen_from in range(contexts):
                    table[seen_from, masks_between[context, seen_from], token] += 1
            context = (context * vocab + token) % contexts
            if t >= order:
                counts[b, t] = table[context]
