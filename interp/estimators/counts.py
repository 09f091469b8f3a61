"""Match masks and the counts that every estimator here is made of (def:match_mask, def:occurrences).

N_M(m) says how often symbol m followed a context that agrees with the query's on exactly the lags M. Together these
counts are a sufficient statistic of the soft-matching family: whatever beta and kappa, the prediction reads the
sequence only through them. So they are computed once, by compiled code, and the estimators are small functions of them.

Counts at every position do not cost T^2. For a small number of contexts a table holds, for each possible query context
u, the counts N_M(m) as seen from u; a new token updates one entry for each u, and a query reads its row. That is O(T
|V|^k). Where the table would cost more, pairs of positions are compared instead, in O(T^2 k).
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Int64, Shaped
from numpy.typing import NDArray

from interp.arguments import Switch, Whole, fits_memory, plain_array, real_array, shown, switch
from interp.notation import Tokens, as_tokens, check_order, check_vocab
from interp.source import njit

Array: TypeAlias = NDArray[Any]

NOT_A_CANDIDATE = -1
MAX_TABLE_CONTEXTS = 2048  # the mask table has |V|^2k entries


def match_masks(
    tokens: Tokens, *, order: Whole, every_position: Switch = False
) -> Int64[torch.Tensor, "batch key"] | Int64[torch.Tensor, "batch query key"]:
    """M_s^(t) for every key s as seen from the last query (or from every query); -1 where s is not a candidate.

    Keys before the (k+1)-th token have no full context and keys after the query are not visible: both are -1.

    >>> match_masks([[0, 1, 0, 1]], order=2).tolist()  # the last token follows (1, 0); the query's context is (0, 1)
    [[-1, -1, 3, 0]]
    """
    order = check_order(order)
    every_position = switch(every_position, name="every_position")
    array = as_tokens(tokens, order=order)
    batch, length = array.shape
    fits_memory(8 * batch * length * (length if every_position else 1), what="the masks")
    if not every_position:
        masks = np.empty((batch, length), dtype=np.int64)
        _masks_from_query(array, order, length - 1, masks)
        return torch.from_numpy(masks)
    masks = np.empty((batch, length, length), dtype=np.int64)
    for query in range(length):
        _masks_from_query(array, order, query, masks[:, query])
    return torch.from_numpy(masks)


def mask_counts(
    tokens: Tokens, *, order: Whole, vocab: Whole, every_position: Switch = False
) -> Int64[torch.Tensor, "batch mask vocab"] | Int64[torch.Tensor, "batch length mask vocab"]:
    """N_M(m): successors m of contexts that match the query's on exactly the lags in M. Sum over vocab for N_M.

    >>> mask_counts([[0, 1, 0, 1]], order=2, vocab=2)[0].tolist()
    [[0, 1], [0, 0], [0, 0], [1, 0]]
    """
    order, vocab = check_order(order), check_vocab(vocab)
    every_position = switch(every_position, name="every_position")
    array = as_tokens(tokens, vocab=vocab, order=order)
    batch, length = array.shape
    fits_memory(8 * batch * (length if every_position else 1) * (vocab << order), what="counts for every mask")
    if not every_position:
        counts = np.zeros((batch, 1 << order, vocab), dtype=np.int64)
        _last_counts(array, order, counts)
        return torch.from_numpy(counts)
    counts = np.zeros((batch, length, 1 << order, vocab), dtype=np.int64)
    if _table_is_cheaper(length, order, vocab):
        _every_counts_by_table(array, order, vocab, context_masks(order=order, vocab=vocab), counts)
    else:
        _every_counts_by_pairs(array, order, counts)
    return torch.from_numpy(counts)


def cumulative_counts(
    tokens: Tokens, *, order: Whole, vocab: Whole, every_position: Switch = False
) -> Int64[torch.Tensor, "batch mask vocab"] | Int64[torch.Tensor, "batch length mask vocab"]:
    """K_M(m): successors of contexts that match on at least the lags in M; the sum of N_S(m) over S containing M.

    >>> cumulative_counts([[0, 1, 1, 0, 1]], order=1, vocab=2).tolist()  # masks {} and {1}, symbols 0 and 1
    [[[1, 3], [1, 1]]]
    """
    return superset_sum(mask_counts(tokens, order=order, vocab=vocab, every_position=every_position))


def superset_sum(
    counts: Any,
) -> Shaped[torch.Tensor, "*rows mask vocab"]:
    """From N_M to K_M: sum over all S that contain M, one lag at a time.

    >>> superset_sum(torch.tensor([[[0, 2], [1, 1]]])).tolist()
    [[[1, 3], [1, 1]]]
    """
    return _superset_transform(counts, sign=1)


def superset_difference(
    counts: Any,
) -> Shaped[torch.Tensor, "*rows mask vocab"]:
    """From K_M back to N_M: inclusion-exclusion, the exact inverse of `superset_sum`.

    >>> superset_difference(torch.tensor([[[1, 3], [1, 1]]])).tolist()
    [[[0, 2], [1, 1]]]
    """
    return _superset_transform(counts, sign=-1)


def as_counts(counts: Any) -> Shaped[torch.Tensor, "*rows mask vocab"]:
    """Counts by mask and symbol as a tensor of int64, or of floats where they are floats; or a `ValueError`.

    Small integer types become int64: their sums would wrap around.
    """
    given = counts if isinstance(counts, torch.Tensor) else torch.as_tensor(_numeric(counts))
    if given.ndim < 2 or given.dtype == torch.bool or given.is_complex():
        raise ValueError(f"counts must be numbers of shape [..., mask, vocab], got {given.dtype} {list(given.shape)}")
    masks = given.shape[-2]
    if masks < 1 or masks & (masks - 1):
        raise ValueError(f"the mask axis must have 2**order entries, got {masks}")
    if given.shape[-1] < 1:
        raise ValueError(f"counts must hold at least one symbol, got shape {shown(list(given.shape))}")
    return given if given.is_floating_point() else given.to(torch.int64)


def _numeric(counts: Any) -> Array:
    array = plain_array(counts, name="counts")
    return array if array.dtype.kind in "iufb" else real_array(array, name="counts")


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
def _masks_from_query(tokens: Array, order: int, query: int, masks: Array) -> None:
    for b in range(tokens.shape[0]):
        for key in range(tokens.shape[1]):
            if order <= key <= query:
                masks[b, key] = mask_between(tokens[b], order, query, key)
            else:
                masks[b, key] = NOT_A_CANDIDATE


@njit()
def _last_counts(tokens: Array, order: int, counts: Array) -> None:
    last = tokens.shape[1] - 1
    for b in range(tokens.shape[0]):
        for key in range(order, last + 1):
            counts[b, mask_between(tokens[b], order, last, key), tokens[b, key]] += 1


@njit()
def _every_counts_by_pairs(tokens: Array, order: int, counts: Array) -> None:
    for b in range(tokens.shape[0]):
        for query in range(order, tokens.shape[1]):
            for key in range(order, query + 1):
                counts[b, query, mask_between(tokens[b], order, query, key), tokens[b, key]] += 1


@njit()
def _every_counts_by_table(tokens: Array, order: int, vocab: int, masks_between: Array, counts: Array) -> None:
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
