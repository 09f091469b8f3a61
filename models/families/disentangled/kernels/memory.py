"""The memory of the kernels: where the parameters lie in their flat vector, and room for one sequence's activations.

Rows run over positions, eight at a time (`simd`), and are padded with positions that weigh nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np

from models.compiled import njit
from models.families.disentangled.kernels.simd import LANES, pointer, pointers

Array: TypeAlias = np.ndarray[Any, Any]

kernel = njit(error_model="numpy")  # a division by zero is inf or NaN, not an exception

GROUP = 4 * LANES  # positions whose sums are held in registers at a time


class Params(NamedTuple):
    """Pointers into a flat vector of parameters, or of gradients."""

    copy_weight: Any  # [head, query vocab, key vocab]
    copy_bias: Any  # [head, lag]
    match_weight: Any  # [stream, stream]
    match_bias: Any  # [lag]
    readout_weight: Any  # [vocab, 2 stream]


class Work(NamedTuple):
    """The sizes, and pointers to room for one sequence and for the sums over the batch.

    Names with `pull` are gradients, names with `sum` are gradients summed over the batch. A row is n_ctx positions and
    padding; a half is a residual stream and padding; a table has an entry per symbol, BOS, and padding.
    """

    order: int
    vocab: int
    n: int  # positions, BOS included
    bos: int  # 1 with BOS, 0 without
    row: int
    half: int
    table: int
    symbols: Any  # [row] the symbol at each position; |V| is BOS, |V| + 1 padding
    shifts: Any  # [row] symbol * row + position
    places: Any  # [vocab, row] the positions of each symbol, in order
    tallies: Any  # [vocab] how many there are
    low: Any  # [head, row] the positions that were computed directly
    n_low: Any  # [head]
    law: Any  # [vocab] the prediction
    is_bos: Any  # [row] 1 at the BOS position, else 0
    is_padding: Any  # [row] 1 at padding, else 0
    late: Any  # [row] match bias by key position; -inf at padding
    decay: Any  # [head, 2 row] exp(r - max r), after a row of zeros for the lags below 0
    content: Any  # [head, key vocab, table of queries] exp(W - maximum over keys)
    content_bos: Any  # [head, table of queries] the same for the BOS key
    match: Any  # [stream, half] W_A of the match layer
    readout: Any  # [vocab, 2 half] W_O
    counts: Any  # [head, vocab, row] C
    scale: Any  # [head, vocab, row] exp(W[x_i, m]) / normaliser
    copied: Any  # [head, vocab, row] what the head writes
    pull: Any  # [head, vocab, row] dC
    bos_share: Any  # [head, row] attention on BOS
    pull_bos: Any  # [head, row]
    normaliser: Any  # [row]
    direct: Any  # [row] one query's attention, where it is computed directly
    query_dot: Any  # [head, row] q . copied
    pull_dot: Any  # [head, row] dout . copied
    pattern: Any  # [row] scores of the match layer, then its pattern
    pull_score: Any  # [row]
    stream: Any  # [2 half] the last position's residual stream, and what the match head adds
    pull_stream: Any  # [2 half]
    query: Any  # [half] W_A^T h_T
    pull_query: Any  # [half]
    by_symbol: Any  # [table] what block 0 contributes to a key's score or gradient
    means: Any  # [2, head] what BOS contributes to them through the copied blocks
    sum_decay: Any  # [head, row] d exp(r)
    sum_bias: Any  # [head, row] d r, where it is known directly
    sum_content: Any  # [head, key vocab, query vocab, lane]
    sum_content_bos: Any  # [head, query vocab, lane]
    sum_match: Any  # [stream, half]
    sum_match_bias: Any  # [row] by key position
    sum_readout: Any  # [vocab, 2 half]


class Room(NamedTuple):
    """The memory behind `Work`, allocated once per call, never in the step loop; and where its pointers point."""

    sizes: tuple[int, ...]
    integers: Array
    doubles: Array
    numbers: Array
    integer_starts: tuple[int, ...]
    double_starts: tuple[int, ...]
    number_starts: tuple[int, ...]


def new_room(*, order: int, vocab: int, n: int, bos: bool, dtype: Any) -> Room:
    """Room for sequences of n positions, BOS included, in the arithmetic of `dtype`."""
    row = padded(n) + GROUP  # `_uncount` reads up to a group past the end
    stream = (order + 1) * vocab
    half = padded(stream)
    table = padded(vocab + 2)
    inputs = [row, row, row, order * 2 * row, order * vocab * table, order * table, stream * half, vocab * 2 * half]
    copying = [order * vocab * row] * 4 + [order * row] * 2 + [row] * 2
    matching = [order * row] * 2 + [row] * 2 + [2 * half] * 2 + [half] * 2 + [table, 2 * order]
    by_symbol = [order * vocab * vocab * LANES, order * vocab * LANES]
    sums = [order * row, order * row, *by_symbol, stream * half, row, vocab * 2 * half]
    integers, integer_starts = _reserve([row, row, vocab * row, vocab, order * row, order], np.int32)
    doubles, double_starts = _reserve([vocab], np.float64)
    numbers, number_starts = _reserve(inputs + copying + matching + sums, dtype)
    return Room(
        sizes=(order, vocab, n, int(bos), row, half, table),
        integers=integers,
        doubles=doubles,
        numbers=numbers,
        integer_starts=integer_starts,
        double_starts=double_starts,
        number_starts=number_starts,
    )


def _reserve(sizes: list[int], dtype: Any) -> tuple[Array, tuple[int, ...]]:
    ends = [0]
    for size in sizes:
        ends.append(ends[-1] + padded(size))
    return np.zeros(ends[-1], dtype=dtype), tuple(ends[:-1])


@njit()
def padded(size: int) -> int:
    return (size + LANES - 1) // LANES * LANES


@kernel
def lay_out(room: Room) -> Work:
    _, vocab, n, bos, row, _, _ = room.sizes
    work = Work(
        *room.sizes,
        *pointers(room.integers, room.integer_starts),
        *pointers(room.doubles, room.double_starts),
        *pointers(room.numbers, room.number_starts),
    )
    for i in range(row):
        work.symbols[i] = vocab + 1
        work.late[i] = -np.inf
        work.is_padding[i] = 1 if i >= n else 0
    if bos:
        work.is_bos[0] = 1
        work.symbols[0] = vocab
    return work


@kernel
def cut(flat: Array, work: Work) -> Params:
    stream = (work.order + 1) * work.vocab
    a = work.order * work.vocab * work.vocab
    b = a + work.order * work.n
    c = b + stream * stream
    d = c + work.n
    return Params(pointer(flat, 0), pointer(flat, a), pointer(flat, b), pointer(flat, c), pointer(flat, d))
