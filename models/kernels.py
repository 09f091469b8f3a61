"""The compiled kernels of the disentangled transformer: forward, backward, Adam, and the training loop around them.

The maths is exact. Tokens are one-hot, so a copy head's attention exp(W[x_i, x_j] + r_{i-j}) factorises: with

    C_m(i) = sum over j <= i with x_j = m of exp(r_{i-j}),

the share of symbol m in the head's output at position i is exp(W[x_i, m]) C_m(i), normalised over m. Building C takes
additions only, and its gradient is the mirror image: d exp(r)_d = sum over j of dC_{x_j}(j + d). BOS is one more
symbol, with value 1/|V| everywhere; it occurs once, at position 0, where it attends only to itself. Its key score
against a query token a is therefore the mean of W[a, :]. Of the match layer only the last query is needed, because
only the last position carries a loss (eq:icl_optimization_markov).

No FFT: its absolute error swamps the tails of sharp heads. For the same reason a position whose normaliser is tiny
(a sharp head whose lag lies before the start of the sequence) is computed directly, with its own maximum.

Rows run over positions, eight at a time (`simd`), and are padded with positions that weigh nothing. Numba's cache
notices changes of this file, not of `simd` or `interp.chains.urn`: after editing those, remove models/__pycache__.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numba import njit

from interp.chains.urn import draw_chain, new_urn, predictive_law
from models.simd import (
    LANES,
    all_at_least,
    exp,
    fill,
    larger,
    largest,
    load,
    look_up,
    pointer,
    pointers,
    store,
    total,
    where,
)

Array: TypeAlias = np.ndarray[Any, Any]

_kernel = njit(cache=True, error_model="numpy")  # a division by zero is inf or NaN, not an exception

GROUP = 4 * LANES  # positions whose sums are held in registers at a time


class _Params(NamedTuple):
    """Pointers into a flat vector of parameters, or of gradients."""

    copy_weight: Any  # [head, query vocab, key vocab]
    copy_bias: Any  # [head, lag]
    match_weight: Any  # [stream, stream]
    match_bias: Any  # [lag]
    readout_weight: Any  # [vocab, 2 stream]


class _Work(NamedTuple):
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


class _Room(NamedTuple):
    """The memory behind `_Work`, allocated once per call, never in the step loop; and where its pointers point."""

    sizes: tuple[int, ...]
    integers: Array
    doubles: Array
    numbers: Array
    integer_starts: tuple[int, ...]
    double_starts: tuple[int, ...]
    number_starts: tuple[int, ...]


def new_room(*, order: int, vocab: int, n: int, bos: bool, dtype: Any) -> _Room:
    """Room for sequences of n positions, BOS included, in the arithmetic of `dtype`."""
    row = _padded(n) + GROUP  # `_uncount` reads up to a group past the end
    stream = (order + 1) * vocab
    half = _padded(stream)
    table = _padded(vocab + 2)
    inputs = [row, row, row, order * 2 * row, order * vocab * table, order * table, stream * half, vocab * 2 * half]
    copying = [order * vocab * row] * 4 + [order * row] * 2 + [row] * 2
    matching = [order * row] * 2 + [row] * 2 + [2 * half] * 2 + [half] * 2 + [table, 2 * order]
    by_symbol = [order * vocab * vocab * LANES, order * vocab * LANES]
    sums = [order * row, order * row, *by_symbol, stream * half, row, vocab * 2 * half]
    integers, integer_starts = _reserve([row, row, vocab * row, vocab, order * row, order], np.int32)
    doubles, double_starts = _reserve([vocab], np.float64)
    numbers, number_starts = _reserve(inputs + copying + matching + sums, dtype)
    return _Room(
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
        ends.append(ends[-1] + _padded(size))
    return np.zeros(ends[-1], dtype=dtype), tuple(ends[:-1])


@njit(cache=True)
def _padded(size: int) -> int:
    return (size + LANES - 1) // LANES * LANES


@_kernel
def _lay_out(room: _Room) -> _Work:
    _, vocab, n, bos, row, _, _ = room.sizes
    work = _Work(
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


@_kernel
def _cut(flat: Array, work: _Work) -> _Params:
    stream = (work.order + 1) * work.vocab
    a = work.order * work.vocab * work.vocab
    b = a + work.order * work.n
    c = b + stream * stream
    d = c + work.n
    return _Params(pointer(flat, 0), pointer(flat, a), pointer(flat, b), pointer(flat, c), pointer(flat, d))


@_kernel
def _open_step(params: _Params, work: _Work) -> None:
    """What depends on the parameters alone, once per step: tables of exponentials, padded weights; and empty sums."""
    order, vocab, n, bos, row, half, table = work.order, work.vocab, work.n, work.bos, work.row, work.half, work.table
    stream = (order + 1) * vocab
    for h in range(order):
        top = params.copy_bias[h * n]
        for d in range(1, n):
            top = max(top, params.copy_bias[h * n + d])
        for d in range(n):
            work.decay[(2 * h + 1) * row + d] = np.exp(params.copy_bias[h * n + d] - top)
        for a in range(vocab):
            at = (h * vocab + a) * vocab
            top = params.copy_weight[at]
            mean = 0.0
            for m in range(vocab):
                top = max(top, params.copy_weight[at + m])
                mean += params.copy_weight[at + m] / vocab
            for m in range(vocab):
                work.content[(h * vocab + m) * table + a] = np.exp(params.copy_weight[at + m] - top)
            work.content_bos[h * table + a] = np.exp(mean - top) if bos else 0.0
    for i in range(n):
        work.late[i] = params.match_bias[n - 1 - i]
    for r in range(stream):
        for c in range(stream):
            work.match[r * half + c] = params.match_weight[r * stream + c]
    for r in range(2 * vocab):
        for c in range(stream):
            work.readout[r * half + c] = params.readout_weight[r * stream + c]
    _clear(work.sum_decay, order * row)
    _clear(work.sum_bias, order * row)
    _clear(work.sum_content, order * vocab * vocab * LANES)
    _clear(work.sum_content_bos, order * vocab * LANES)
    _clear(work.sum_match, stream * half)
    _clear(work.sum_match_bias, row)
    _clear(work.sum_readout, vocab * 2 * half)


@_kernel
def _clear(target: Any, size: int) -> None:
    for i in range(0, size, LANES):
        store(target, i, fill(target, 0.0))


@_kernel
def _close_step(grads: _Params, batch: int, work: _Work) -> None:
    """From the sums over the batch to the mean gradient of every parameter."""
    order, vocab, n, row, half = work.order, work.vocab, work.n, work.row, work.half
    stream = (order + 1) * vocab
    for h in range(order):
        for a in range(vocab):
            # The BOS key's score is the mean of W[a, :].
            on_bos = total(load(work.sum_content_bos, (h * vocab + a) * LANES)) / vocab
            for m in range(vocab):
                on_symbol = total(load(work.sum_content, ((h * vocab + m) * vocab + a) * LANES))
                grads.copy_weight[(h * vocab + a) * vocab + m] = (on_symbol + on_bos) / batch
        for d in range(n):
            through_decay = work.decay[(2 * h + 1) * row + d] * work.sum_decay[h * row + d]
            grads.copy_bias[h * n + d] = (through_decay + work.sum_bias[h * row + d]) / batch
    for i in range(n):
        grads.match_bias[n - 1 - i] = work.sum_match_bias[i] / batch
    for r in range(stream):
        for c in range(stream):
            grads.match_weight[r * stream + c] = work.sum_match[r * half + c] / batch
    for r in range(2 * vocab):
        for c in range(stream):
            grads.readout_weight[r * stream + c] = work.sum_readout[r * half + c] / batch


@_kernel
def _enter(tokens: Any, work: _Work) -> None:
    """Sort the sequence's positions by symbol."""
    for m in range(work.vocab):
        work.tallies[m] = 0
    for i in range(work.bos, work.n):
        m = tokens[i - work.bos]
        work.symbols[i] = m
        work.shifts[i] = m * work.row + i
        work.places[m * work.row + work.tallies[m]] = i
        work.tallies[m] += 1


@_kernel
def _per_symbol(table: Any, start: int, i: int, work: _Work) -> Any:
    """table[start + symbol] at the eight positions from i."""
    # The first page, the only one of a small vocabulary, outside the loop: one instruction instead of thirty.
    value = look_up(table, start, work.symbols, i, 0, fill(table, 0.0))
    for page in range(1, work.table // LANES):
        value = look_up(table, start, work.symbols, i, page, value)
    return value


@_kernel
def _count(h: int, work: _Work) -> None:
    """C_m(i) for every symbol m and position i: sums of the decay, shifted to where the symbol occurs."""
    n, row = work.n, work.row
    decay, counts, places = work.decay, work.counts, work.places
    zero = fill(decay, 0.0)
    now = (2 * h + 1) * row
    for m in range(work.vocab):
        out = (h * work.vocab + m) * row
        at = m * row
        seen = 0
        tally = work.tallies[m]
        i = 0
        while i < n:
            wide = n - i > 2 * LANES
            step = GROUP if wide else LANES
            while seen < tally and places[at + seen] < i + step:
                seen += 1
            a = zero
            if wide:
                b = zero
                c = zero
                d = zero
                for s in range(seen):
                    source = now + i - places[at + s]
                    a = a + load(decay, source)
                    b = b + load(decay, source + LANES)
                    c = c + load(decay, source + 2 * LANES)
                    d = d + load(decay, source + 3 * LANES)
                store(counts, out + i + LANES, b)
                store(counts, out + i + 2 * LANES, c)
                store(counts, out + i + 3 * LANES, d)
            else:
                for s in range(seen):
                    a = a + load(decay, now + i - places[at + s])
            store(counts, out + i, a)
            i += step


@_kernel
def _uncount(h: int, work: _Work) -> None:
    """d exp(r)_d += sum over the token positions j of dC_{x_j}(j + d): the mirror image of `_count`."""
    n, bos = work.n, work.bos
    pull, shifts, out = work.pull, work.shifts, work.sum_decay
    rows = h * work.vocab * work.row
    lag = 0
    while lag < n - bos:
        to = h * work.row + lag
        a = load(out, to)
        if n - bos - lag > 2 * LANES:
            b = load(out, to + LANES)
            c = load(out, to + 2 * LANES)
            d = load(out, to + 3 * LANES)
            for j in range(bos, n - lag):
                source = rows + shifts[j] + lag
                a = a + load(pull, source)
                b = b + load(pull, source + LANES)
                c = c + load(pull, source + 2 * LANES)
                d = d + load(pull, source + 3 * LANES)
            store(out, to + LANES, b)
            store(out, to + 2 * LANES, c)
            store(out, to + 3 * LANES, d)
            step = GROUP
        else:
            for j in range(bos, n - lag):
                a = a + load(pull, rows + shifts[j] + lag)
            step = LANES
        store(out, to, a)
        lag += step


@_kernel
def _attend_directly(h: int, i: int, params: _Params, work: _Work) -> None:
    """The attention of query i on every key j <= i, with its own maximum, into `direct`."""
    direct = work.direct
    at = (h * work.vocab + work.symbols[i]) * work.vocab
    bias = h * work.n + i
    if work.bos:
        mean = 0.0
        for m in range(work.vocab):
            mean += params.copy_weight[at + m] / work.vocab
        direct[0] = mean + params.copy_bias[bias]
    for j in range(work.bos, i + 1):
        direct[j] = params.copy_weight[at + work.symbols[j]] + params.copy_bias[bias - j]
    top = direct[0]
    for j in range(1, i + 1):
        top = max(top, direct[j])
    mass = 0.0
    for j in range(i + 1):
        direct[j] = np.exp(direct[j] - top)
        mass += direct[j]
    for j in range(i + 1):
        direct[j] /= mass


@_kernel
def _copy(h: int, params: _Params, tiny: float, work: _Work) -> None:
    """What head h writes: scale * counts + bos_share / |V|."""
    vocab, bos, row = work.vocab, work.bos, work.row
    decay, counts, scale, copied = work.decay, work.counts, work.scale, work.copied
    one = fill(decay, 1.0)
    share = fill(decay, 1.0 / vocab)
    n_low = 0
    for i in range(0, work.n, LANES):
        on_bos = fill(decay, 0.0)
        if bos:
            on_bos = _per_symbol(work.content_bos, h * work.table, i, work) * load(decay, (2 * h + 1) * row + i)
            on_bos = on_bos + load(work.is_bos, i)
        mass = on_bos + load(work.is_padding, i)
        for m in range(vocab):
            at = (h * vocab + m) * row + i
            value = _per_symbol(work.content, (h * vocab + m) * work.table, i, work)
            store(scale, at, value)
            mass = mass + value * load(counts, at)
        if not all_at_least(mass, tiny):
            # Shares take the place of counts, their scale is one, and so is their sum.
            store(work.normaliser, i, mass)
            store(work.bos_share, h * row + i, on_bos)
            for place in range(i, i + LANES):
                if work.normaliser[place] >= tiny:
                    continue
                _attend_directly(h, place, params, work)
                work.low[h * row + n_low] = place
                n_low += 1
                work.normaliser[place] = 1
                if bos:
                    work.bos_share[h * row + place] = work.direct[0]
                for m in range(vocab):
                    scale[(h * vocab + m) * row + place] = 1
                    counts[(h * vocab + m) * row + place] = 0
                for j in range(bos, place + 1):
                    counts[h * vocab * row + work.symbols[j] * row + place] += work.direct[j]
            mass = load(work.normaliser, i)
            on_bos = load(work.bos_share, h * row + i)
        inverse = one / mass
        on_bos = on_bos * inverse
        store(work.bos_share, h * row + i, on_bos)
        on_bos = on_bos * share
        for m in range(vocab):
            at = (h * vocab + m) * row + i
            value = load(scale, at) * inverse
            store(scale, at, value)
            store(copied, at, value * load(counts, at) + on_bos)
    work.n_low[h] = n_low


@_kernel
def _mean(source: Any, start: int, size: int) -> float:
    value = 0.0
    for c in range(start, start + size):
        value += source[c]
    return value / size


@_kernel
def _sum_by_symbol(source: Any, to: Any, start: int, work: _Work) -> None:
    """to[start + a] = the sum of a row over the positions of symbol a, and 1/|V| of what stands at BOS."""
    zero = fill(source, 0.0)
    for a in range(work.vocab):
        value = zero
        for i in range(0, work.n, LANES):
            value = value + where(work.symbols, i, a, load(source, i), zero)
        to[start + a] = total(value)
        if work.bos:
            to[start + a] += source[0] / work.vocab


@_kernel
def _sum_copied(source: Any, to: Any, start: int, work: _Work) -> None:
    """to[start + block] = the sum over positions of a row times each copied row."""
    for block in range(work.order * work.vocab):
        value = fill(source, 0.0)
        for i in range(0, work.n, LANES):
            value = value + load(source, i) * load(work.copied, block * work.row + i)
        to[start + block] = total(value)


@_kernel
def _forward(params: _Params, tokens: Any, probability: bool, floor: float, tiny: float, work: _Work) -> None:
    """One sequence to its unnormalised `law`, leaving in `work` what the backward pass needs."""
    order, vocab, n, row, half = work.order, work.vocab, work.n, work.row, work.half
    width = (order + 1) * vocab
    last = n - 1
    copied, pattern, stream, query = work.copied, work.pattern, work.stream, work.query
    zero = fill(pattern, 0.0)

    _enter(tokens, work)
    final = work.symbols[last]
    for m in range(vocab):
        stream[m] = 0
    stream[final] = 1
    for h in range(order):
        _count(h, work)
        _copy(h, params, tiny, work)
        for m in range(vocab):
            stream[(h + 1) * vocab + m] = copied[(h * vocab + m) * row + last]

    # The match layer: one query, all keys.
    for c in range(0, half, LANES):
        value = load(work.match, final * half + c)
        for r in range(vocab, width):
            value = value + stream[r] * load(work.match, r * half + c)
        store(query, c, value)
    for m in range(vocab):
        work.by_symbol[m] = query[m]
    work.by_symbol[vocab] = _mean(query, 0, vocab)
    peak = fill(pattern, -np.inf)
    for i in range(0, n, LANES):
        score = load(work.late, i) + _per_symbol(work.by_symbol, 0, i, work)
        for h in range(order):
            value = zero
            for m in range(vocab):
                value = value + query[(h + 1) * vocab + m] * load(copied, (h * vocab + m) * row + i)
            store(work.query_dot, h * row + i, value)
            score = score + value
        store(pattern, i, score)
        peak = larger(peak, score)
    top = largest(peak)
    mass = zero
    for i in range(0, n, LANES):
        value = exp(load(pattern, i) - top)
        store(pattern, i, value)
        mass = mass + value
    inverse = 1.0 / total(mass)
    for i in range(0, n, LANES):
        store(pattern, i, load(pattern, i) * inverse)
    _sum_by_symbol(pattern, stream, half, work)
    _sum_copied(pattern, stream, half + vocab, work)

    law = work.law
    for m in range(vocab):
        value = zero
        for c in range(0, 2 * half, LANES):
            value = value + load(work.readout, m * 2 * half + c) * load(stream, c)
        law[m] = total(value)
    if probability:
        for m in range(vocab):
            # Not a maximum: NaN must pass through.
            law[m] = floor if law[m] <= 0 else law[m] + floor
    else:
        top_law = law[0]
        for m in range(1, vocab):
            top_law = max(top_law, law[m])
        for m in range(vocab):
            law[m] = np.exp(law[m] - top_law)


@_kernel
def _normalise(work: _Work) -> None:
    mass = 0.0
    for m in range(work.vocab):
        mass += work.law[m]
    for m in range(work.vocab):
        work.law[m] /= mass


@_kernel
def _backward(params: _Params, target: Any, probability: bool, floor: float, work: _Work) -> float:
    """The loss of the sequence that `_forward` has just seen; adds its gradient to the sums and normalises `law`."""
    order, vocab, n, bos, row, half = work.order, work.vocab, work.n, work.bos, work.row, work.half
    width = (order + 1) * vocab
    last = n - 1
    counts, scale, copied, pull = work.counts, work.scale, work.copied, work.pull
    pattern, pull_score, law = work.pattern, work.pull_score, work.law
    stream, pull_stream, query, pull_query = work.stream, work.pull_stream, work.query, work.pull_query
    zero = fill(pattern, 0.0)

    # The readout.
    mass = 0.0
    wanted = 0.0
    for m in range(vocab):
        mass += law[m]
        wanted += target[m]
    loss = 0.0
    for c in range(0, 2 * half, LANES):
        store(pull_stream, c, zero)
    for m in range(vocab):
        if not probability:
            slope = wanted * law[m] / mass - target[m]
        elif law[m] == floor:
            slope = 0.0
        else:
            slope = wanted / mass - target[m] / law[m]
        if target[m] != 0:
            loss -= target[m] * np.log(law[m] / mass)
        for c in range(0, 2 * half, LANES):
            at = m * 2 * half + c
            store(work.sum_readout, at, load(work.sum_readout, at) + slope * load(stream, c))
            store(pull_stream, c, load(pull_stream, c) + slope * load(work.readout, at))
    _normalise(work)

    # The match layer: d score_j = A_j (dout . h_j - dout . out); keys and values are one and the same stream.
    inner_row = zero
    for c in range(half, 2 * half, LANES):
        inner_row = inner_row + load(stream, c) * load(pull_stream, c)
    inner = total(inner_row)
    for m in range(vocab):
        work.by_symbol[m] = pull_stream[half + m] - inner
    work.by_symbol[vocab] = _mean(pull_stream, half, vocab) - inner
    for h in range(order):
        work.means[h] = _mean(query, (h + 1) * vocab, vocab)
        work.means[order + h] = _mean(pull_stream, half + (h + 1) * vocab, vocab)
    for i in range(0, n, LANES):
        weight = load(pattern, i)
        felt = _per_symbol(work.by_symbol, 0, i, work)
        for h in range(order):
            value = zero
            for m in range(vocab):
                value = value + pull_stream[half + (h + 1) * vocab + m] * load(copied, (h * vocab + m) * row + i)
            store(work.pull_dot, h * row + i, value)
            felt = felt + value
        felt = weight * felt
        store(pull_score, i, felt)
        store(work.sum_match_bias, i, load(work.sum_match_bias, i) + felt)
        for h in range(order):
            mean = felt * load(work.query_dot, h * row + i) + weight * load(work.pull_dot, h * row + i)
            for m in range(vocab):
                block = (h + 1) * vocab + m
                at = (h * vocab + m) * row + i
                value = felt * query[block] + weight * pull_stream[half + block] - mean
                store(pull, at, load(scale, at) * value)
            value = felt * work.means[h] + weight * work.means[order + h] - mean
            store(work.pull_bos, h * row + i, load(work.bos_share, h * row + i) * value)
    _sum_by_symbol(pull_score, pull_query, 0, work)
    _sum_copied(pull_score, pull_query, vocab, work)

    # What the last position feels as the query, and through the readout.
    for c in range(0, half, LANES):
        at = work.symbols[last] * half + c
        store(work.sum_match, at, load(work.sum_match, at) + load(pull_query, c))
    for r in range(vocab, width):
        value = zero
        for c in range(0, half, LANES):
            at = r * half + c
            store(work.sum_match, at, load(work.sum_match, at) + stream[r] * load(pull_query, c))
            value = value + load(work.match, at) * load(pull_query, c)
        pull_stream[r] += total(value)
    for h in range(order):
        inner_last = 0.0
        for r in range((h + 1) * vocab, (h + 2) * vocab):
            inner_last += stream[r] * pull_stream[r]
        for m in range(vocab):
            at = (h * vocab + m) * row + last
            pull[at] += scale[at] * (pull_stream[(h + 1) * vocab + m] - inner_last)
        mean_last = _mean(pull_stream, (h + 1) * vocab, vocab)
        work.pull_bos[h * row + last] += work.bos_share[h * row + last] * (mean_last - inner_last)

    # Through the copy heads' softmax to their parameters; `copied` has served, and now holds d score by symbol.
    for h in range(order):
        for m in range(vocab):
            at = (h * vocab + m) * row
            for i in range(0, n, LANES):
                store(copied, at + i, load(counts, at + i) * load(pull, at + i))
            _add_by_symbol(copied, at, work.sum_content, (h * vocab + m) * vocab * LANES, work)
        if bos:
            for i in range(0, n, LANES):
                at = h * row + i
                store(work.sum_bias, at, load(work.sum_bias, at) + load(work.pull_bos, at))
            _add_by_symbol(work.pull_bos, h * row, work.sum_content_bos, h * vocab * LANES, work)
        for place in range(work.n_low[h]):
            i = work.low[h * row + place]
            _attend_directly(h, i, params, work)
            for j in range(bos, i + 1):
                work.sum_bias[h * row + i - j] += work.direct[j] * pull[h * vocab * row + work.symbols[j] * row + i]
            for m in range(vocab):
                pull[(h * vocab + m) * row + i] = 0
        _uncount(h, work)
    return loss


@_kernel
def _add_by_symbol(source: Any, at: int, to: Any, start: int, work: _Work) -> None:
    """Add a row, split by the symbol at each position, to one sum of eight lanes per symbol."""
    zero = fill(source, 0.0)
    for a in range(work.vocab):
        value = load(to, start + a * LANES)
        for i in range(0, work.n, LANES):
            value = value + where(work.symbols, i, a, load(source, at + i), zero)
        store(to, start + a * LANES, value)


# A normaliser below this has lost digits to underflow somewhere in its sums.
@_kernel
def _tiny(flat: Array) -> float:
    return 1e-20 if flat.itemsize == 4 else 1e-200


@njit(cache=True)
def batch_gradient(
    flat: Array, grad: Array, tokens: Array, targets: Array, laws: Array, room: _Room, probability: bool, floor: float
) -> float:
    work = _lay_out(room)
    params, grads = _cut(flat, work), _cut(grad, work)
    batch, length = tokens.shape
    _open_step(params, work)
    loss = 0.0
    for b in range(batch):
        _forward(params, pointer(tokens, b * length), probability, floor, _tiny(flat), work)
        loss += _backward(params, pointer(targets, b * work.vocab), probability, floor, work)
        for m in range(work.vocab):
            laws[b, m] = work.law[m]
    _close_step(grads, batch, work)
    return loss / batch


@njit(cache=True)
def batch_predict(flat: Array, tokens: Array, laws: Array, room: _Room, probability: bool, floor: float) -> None:
    work = _lay_out(room)
    params = _cut(flat, work)
    batch, length = tokens.shape
    _open_step(params, work)
    for b in range(batch):
        _forward(params, pointer(tokens, b * length), probability, floor, _tiny(flat), work)
        _normalise(work)
        for m in range(work.vocab):
            laws[b, m] = work.law[m]


@njit(cache=True, error_model="numpy")
def adam(
    params: Array, grad: Array, first: Array, second: Array, mask: Array, step: int, lr: float, beta1: float,
    beta2: float, epsilon: float,
) -> None:  # fmt: skip
    """One step of torch.optim.Adam (no weight decay, no amsgrad), in its order of operations."""
    dtype = params.dtype
    size = dtype.type(lr / (1.0 - beta1**step))
    root = dtype.type(np.sqrt(1.0 - beta2**step))
    keep2, take1, take2, eps = dtype.type(beta2), dtype.type(1.0 - beta1), dtype.type(1.0 - beta2), dtype.type(epsilon)
    for i in range(params.shape[0]):
        g = grad[i] * mask[i]
        first[i] += take1 * (g - first[i])
        second[i] = keep2 * second[i] + take2 * g * g
        params[i] -= size * first[i] / (np.sqrt(second[i]) / root + eps)


@_kernel
def _choose(law: Any, vocab: int, uniform: float) -> None:
    """Replace a law by one token drawn from it."""
    chosen = -1
    for m in range(vocab):
        uniform -= law[m]
        law[m] = 0
        if uniform < 0 and chosen < 0:
            chosen = m
    law[chosen if chosen >= 0 else vocab - 1] = 1


@njit(cache=True)
def train(
    flat: Array, first: Array, second: Array, mask: Array, step: int, generator: np.random.Generator, lrs: Array,
    losses: Array, grad: Array, uniforms: Array, tokens: Array, target: Array, room: _Room, batch: int,
    probability: bool, floor: float, concentrations: Array, independent: bool, by_law: bool, beta1: float, beta2: float,
    epsilon: float,
) -> int:  # fmt: skip
    """Steps until `lrs` is used up or the loss or its gradient is not finite; returns how many were taken."""
    work = _lay_out(room)
    params, grads = _cut(flat, work), _cut(grad, work)
    order, vocab, length = work.order, work.vocab, tokens.shape[0]
    urn = new_urn(length, order, vocab)
    for s in range(lrs.shape[0]):
        _open_step(params, work)
        loss = 0.0
        for _ in range(batch):
            for t in range(length):
                uniforms[t] = generator.random()
            draw_chain(uniforms, tokens, order, vocab, concentrations, independent, urn)
            predictive_law(target, order, vocab, concentrations, independent, urn)
            if not by_law:
                _choose(target, vocab, generator.random())
            _forward(params, pointer(tokens, 0), probability, floor, _tiny(flat), work)
            loss += _backward(params, pointer(target, 0), probability, floor, work)
        _close_step(grads, batch, work)
        losses[s] = loss / batch
        size = 0.0
        for i in range(grad.shape[0]):
            size += abs(grad[i])
        if not np.isfinite(losses[s] + size):
            if np.isfinite(losses[s]):
                losses[s] = np.nan
            return s
        adam(flat, grad, first, second, mask, step + s + 1, lrs[s], beta1, beta2, epsilon)
    return lrs.shape[0]
