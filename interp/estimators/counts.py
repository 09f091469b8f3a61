"""Match masks and the counts that every estimator here is made of (def:match_mask, def:occurrences).

N_M(m) says how often symbol m followed a context that agrees with the query's on exactly the lags M. Together these
counts are a sufficient statistic of the soft-matching family: whatever beta and kappa, the prediction reads the
sequence only through them. So they are computed once, by compiled code, and the estimators are small functions of them.

Counts at every position do not cost T^2. N_M follows by inclusion-exclusion from K_M, how often m followed a context
that agrees on at least the lags M. A hash table holds, for each mask M and each content of its lags that occurs, the
symbols that followed it. A new token adds one to 2^k of these entries, and a query reads 2^k of them: O(T 2^k) steps
besides the numbers that are written, for any alphabet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int64, Shaped
from numpy.typing import NDArray

from interp.arguments import Numbers, Switch, Whole, fits_memory, plain_array, switch
from interp.notation import Tokens, as_tokens, check_order, check_vocab, mask_bits
from interp.source import njit

Array: TypeAlias = NDArray[Any]

NOT_A_CANDIDATE = -1
CHUNK_BYTES = 16 << 20  # working memory of the every-position forms
GOLDEN = -7046029254386353131  # 2^64 over the golden ratio, as a signed number: multiplied by it, close keys lie apart


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

    def empty_laws(self) -> Float[np.ndarray, "batch position vocab"]:
        """Room for the answer."""
        fits_memory(8 * self.shape[0] * self.shape[1] * self.vocab, what="the laws")
        return np.empty((*self.shape, self.vocab))


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

    Parameters
    ----------
    tokens
        Sequences [batch, length] without BOS, or chains of a prior.
    order
        k, the number of tokens of a context.
    every_position
        Ask from every position rather than from the last one.

    Returns
    -------
    Tensor
        Masks [batch, key]; with `every_position` [batch, query, key].

    Examples
    --------
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

    Parameters
    ----------
    tokens
        Sequences [batch, length] without BOS, or chains of a prior.
    order
        k, the number of tokens of a context.
    vocab
        |V|, the number of symbols.
    every_position
        Count at every position rather than at the last one.

    Returns
    -------
    Tensor
        Counts [batch, mask, vocab]; with `every_position` [batch, length, mask, vocab].

    Examples
    --------
    >>> mask_counts([[0, 1, 0, 1]], order=2, vocab=2)[0].tolist()
    [[0, 1], [0, 0], [0, 0], [1, 0]]
    """
    asked = queries(tokens, order=order, vocab=vocab, every_position=every_position)
    fits_memory(8 * asked.shape[0] * asked.shape[1] * (asked.vocab << asked.order), what="counts for every mask")
    return asked.result(next(chunks(asked, len(asked.tokens), asked.shape[1]))[1])


def from_counts(
    estimate: Callable[[torch.Tensor], torch.Tensor],
    tokens: Tokens,
    *,
    order: Whole,
    vocab: Whole,
    every_position: Switch,
) -> Float[torch.Tensor, "*rows vocab"]:
    """Apply a function of N_M(m) at the last or at every position; working memory is bounded by `CHUNK_BYTES`."""
    asked = queries(tokens, order=order, vocab=vocab, every_position=every_position)
    laws = asked.empty_laws()
    at_once = max(1, CHUNK_BYTES // (32 * asked.vocab << asked.order))
    for part, counts in chunks(asked, max(1, at_once // asked.shape[1]), at_once):
        laws[part] = estimate(torch.from_numpy(counts))
    return asked.result(laws)


def chunks(
    asked: Queries, sequences: int, positions: int
) -> Iterator[tuple[tuple[slice, slice], Int64[np.ndarray, "batch position mask vocab"]]]:
    """N_M(m) for a few sequences and positions at a time, with their place among all that are asked."""
    memory = new_memory(asked) if asked.every_position else None
    for row in range(0, len(asked.tokens), sequences):
        tokens = asked.tokens[row : row + sequences]
        for start in range(0, asked.shape[1], positions):
            stop = min(start + positions, asked.shape[1])
            counts = np.zeros((len(tokens), stop - start, 1 << asked.order, asked.vocab), dtype=np.int64)
            if memory is None:
                _count_last(tokens, asked.order, counts[:, 0])
            else:
                _count_prefixes(tokens, asked.order, start, memory, counts)
            yield (slice(row, row + sequences), slice(start, stop)), counts


def cumulative_counts(
    tokens: Tokens, *, order: Whole, vocab: Whole, every_position: Switch = False
) -> Int64[torch.Tensor, "batch mask vocab"] | Int64[torch.Tensor, "batch length mask vocab"]:
    """K_M(m): successors of contexts that match on at least the lags in M; the sum of N_S(m) over S containing M.

    Parameters
    ----------
    tokens
        Sequences [batch, length] without BOS, or chains of a prior.
    order
        k, the number of tokens of a context.
    vocab
        |V|, the number of symbols.
    every_position
        Count at every position rather than at the last one.

    Returns
    -------
    Tensor
        Counts as `mask_counts` arranges them.

    Examples
    --------
    >>> cumulative_counts([[0, 1, 1, 0, 1]], order=1, vocab=2).tolist()  # masks {} and {1}, symbols 0 and 1
    [[[1, 3], [1, 1]]]
    """
    return superset_sum(mask_counts(tokens, order=order, vocab=vocab, every_position=every_position))


def superset_sum(counts: Numbers) -> Shaped[torch.Tensor, "*rows mask vocab"]:
    """From N_M to K_M: sum over all S that contain M, one lag at a time.

    >>> superset_sum(torch.tensor([[[0, 2], [1, 1]]])).tolist()
    [[[1, 3], [1, 1]]]
    """
    result = as_counts(counts).clone()
    masks = torch.arange(result.shape[-2])
    for lag in range(result.shape[-2].bit_length() - 1):
        without = masks[masks >> lag & 1 == 0]
        result[..., without, :] += result[..., without | 1 << lag, :]
    return result


def as_counts(counts: Numbers) -> Shaped[torch.Tensor, "*rows mask vocab"]:
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


Memory: TypeAlias = tuple[Array, Array, Array]


def new_memory(asked: Queries) -> Memory:
    """Room for what one sequence's contexts were followed by.

    A table of contexts: key, or -1, and the latest of its entries. Entries: symbol, count and the context's next entry.
    Then the context of each mask at the position that was read last, and how many entries are in use.
    """
    length, order, vocab = asked.tokens.shape[1], asked.order, asked.vocab
    sizes = np.minimum(float(vocab) ** mask_bits(order).sum(1), length)
    entries = int(np.minimum(sizes * vocab, length).sum())
    slots = 1 << int(1.5 * sizes.sum()).bit_length()
    fits_memory(16 * slots + 12 * entries, what="the contexts of one sequence")
    return (
        np.empty((slots + 1, 2), dtype=np.int64),
        np.empty((entries, 3), dtype=np.int32),
        np.empty((1 << order) + 1, dtype=np.int64),
    )


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
def _count_last(tokens: Array, order: int, counts: Array) -> None:
    last = tokens.shape[1] - 1
    for b in range(tokens.shape[0]):
        for key in range(order, last + 1):
            counts[b, mask_between(tokens[b], order, last, key), tokens[b, key]] += 1


@njit(error_model="numpy")
def _count_prefixes(tokens: Array, order: int, start: int, memory: Memory, counts: Array) -> None:
    """Fill counts [batch, position, mask, vocab] for the positions from `start` on.

    Unless it starts at 0, the memory holds what came before, in the only sequence.
    """
    positions, masks, vocab = counts.shape[1:]
    _, entries, seen = memory
    for b in range(tokens.shape[0]):
        if start == 0:
            _forget(memory)
        for t in range(max(start, order - 1), start + positions):
            if t >= order:
                _follow(tokens[b, t], memory)
            _read_contexts(tokens[b], t, order, vocab, memory)
            if t < order:
                continue
            for mask in range(masks):
                entry = memory[0][seen[mask], 1]
                while entry >= 0:
                    counts[b, t - start, mask, entries[entry, 0]] = entries[entry, 1]
                    entry = entries[entry, 2]
            for lag in range(order):  # from K_M to N_M
                bit = 1 << lag
                for mask in range(masks):
                    if not mask & bit:
                        for m in range(vocab):
                            counts[b, t - start, mask, m] -= counts[b, t - start, mask | bit, m]


@njit(error_model="numpy")
def _forget(memory: Memory) -> None:
    table, _, seen = memory
    for slot in range(table.shape[0]):
        table[slot, 0] = table[slot, 1] = -1
    seen[-1] = 0


@njit(error_model="numpy")
def _read_contexts(row: Array, t: int, order: int, vocab: int, memory: Memory) -> None:
    """Find the context of each mask that ends at t, and make room for it where it is new.

    Its key is the context without the mask's largest lag, that lag, and the token there: no two contexts share a key.
    """
    table, _, seen = memory
    last = table.shape[0] - 1
    seen[0] = last  # the empty context has the row behind the table
    for lag in range(order):
        for mask in range(1 << lag):
            key = (seen[mask] * order + lag) * vocab + row[t - lag]
            slot = (key * GOLDEN >> 32) & (last - 1)
            while table[slot, 0] != key and table[slot, 0] >= 0:
                slot = (slot + 1) & (last - 1)
            table[slot, 0] = key
            seen[mask | 1 << lag] = slot


@njit(error_model="numpy")
def _follow(token: int, memory: Memory) -> None:
    """Count the token as a successor of each context that was read last."""
    table, entries, seen = memory
    for mask in range(seen.shape[0] - 1):
        slot = seen[mask]
        entry = table[slot, 1]
        while entry >= 0 and entries[entry, 0] != token:
            entry = entries[entry, 2]
        if entry >= 0:
            entries[entry, 1] += 1
        else:
            entry = seen[-1]
            seen[-1] += 1
            entries[entry, 0] = token
            entries[entry, 1] = 1
            entries[entry, 2] = table[slot, 1]
            table[slot, 1] = entry
