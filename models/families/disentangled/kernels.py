"""Compiled code of the disentangled transformer: forward and backward.

The maths is exact. Tokens are one-hot, so a copy head's attention exp(W[x_i, x_j] + r_{i-j}) factorises: with

    C_m(i) = sum over j <= i with x_j = m of exp(r_{i-j}),

the share of symbol m in the head's output at position i is exp(W[x_i, m]) C_m(i), normalised over m. Building C takes
additions only, and its gradient is the mirror image. Of the match layer only the last query is needed, because only
the last position carries a loss (eq:icl_optimization_markov).

BOS is one more symbol, with value 1/|V| in every coordinate: a weight that reads it is the mean over the symbols. So
the weights get a row and a column for BOS in every block once per step (`open_step`), and their gradients are folded
back after it (`close_step`). Between the two, a stream is a list of shares: (k+1) blocks of |V| symbols and BOS; block
0 is the token itself.

No FFT is used: its absolute error is larger than the tails of sharp heads. For the same reason a position whose
normaliser is tiny (a sharp head whose lag lies before the start of the sequence) is computed directly, with its own
maximum.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np

from models.compiled import njit

Array: TypeAlias = np.ndarray[Any, Any]

GROUP_ROWS = 1200  # positions worked on at once
# Division by zero is no exception; sums may be taken in another order; NaN and inf keep their meaning.
kernel = njit(error_model="numpy", fastmath={"reassoc", "contract", "nsz"})


class Params(NamedTuple):
    """The parameters, or their gradients: views into a flat vector, in its order."""

    copy_weight: Array  # [head, query vocab, key vocab]
    copy_bias: Array  # [head, lag]
    match_weight: Array  # [block, block]
    match_bias: Array  # [lag]
    readout_weight: Array  # [vocab, 2 block]


class Weights(NamedTuple):
    """The weights as one step uses them, with BOS as a symbol; or the sums of their gradients over the batch."""

    bias: Array  # [head, lag] r of the copy heads; its gradient, where it does not go through `decay`
    decay: Array  # [head, lag] exp(r - max r)
    scores: Array  # [head, key symbol, query symbol] W of the copy heads, and its gradient
    content: Array  # [head, key symbol, query symbol] exp(W - maximum over keys)
    match: Array  # [stream, stream] W_A of the match layer
    late: Array  # [position] the match layer's bias by key
    readout: Array  # [vocab, 2 stream] W_O


class Memory(NamedTuple):
    """A group of sequences on their way; names with `pull` are gradients, a row is all positions of all sequences."""

    tokens: Array  # [sequence, position] the symbol at each position; |V| is BOS
    low: Array  # [head, row] whether the copy head's attention was computed directly
    share: Array  # [stream, sequence, position] the stream before the match layer, as shares of symbols
    scale: Array  # [stream, sequence, position] exp(W[x_i, m]) / normaliser: a share is this times C
    pull: Array  # [stream, sequence, position]
    pattern: Array  # [sequence, position] scores of the match layer, then its pattern
    pull_score: Array  # [sequence, position]
    total: Array  # [row] room for sums over symbols
    direct: Array  # [position] one query's attention
    stream: Array  # [sequence, stream] the last position's
    query: Array  # [sequence, stream] W_A^T h_T
    pull_query: Array  # [sequence, stream]
    read: Array  # [sequence, 2 stream] the last position's stream, and what the match head adds to it
    pull_read: Array  # [sequence, 2 stream]
    laws: Array  # [sequence, vocab] float64, the predictions


class Room(NamedTuple):
    """All memory of a call, allocated once. `one`, `half`, `whole` add BOS to a block, to the stream, to twice it."""

    weights: Weights
    sums: Weights
    memory: Memory
    one: Array  # [symbol, vocab]
    half: Array  # [stream, (k+1)|V|]
    whole: Array  # [2 stream, 2(k+1)|V|]


def new_room(*, order: int, vocab: int, n: int, bos: bool, batch: int, dtype: Any) -> Room:
    """Room for sequences of n positions, BOS included, in groups that divide the batch and stay in the cache."""
    group = max(size for size in range(1, max(1, GROUP_ROWS // n) + 1) if batch % size == 0)
    symbols = vocab + bos
    stream = (order + 1) * symbols

    def zeros(*shapes: tuple[int, ...]) -> list[Array]:
        return [np.zeros(shape, dtype=dtype) for shape in shapes]

    scores, by_lag = (order, symbols, symbols), (order, n)
    sizes = (by_lag, by_lag, scores, scores, (stream, stream), (n,), (vocab, 2 * stream))
    rows = [(stream, group, n)] * 3 + [(group, n)] * 2 + [(group * n,), (n,)]
    lasts = [(group, stream)] * 3 + [(group, 2 * stream)] * 2
    tokens, low = np.full((group, n), vocab, dtype=np.int64), np.zeros((order, group * n), dtype=np.bool_)
    one = np.concatenate([np.eye(vocab), np.full((int(bos), vocab), 1 / vocab)]).astype(dtype)
    return Room(
        Weights(*zeros(*sizes)),
        Weights(*zeros(*sizes)),
        Memory(*[tokens, low, *zeros(*rows, *lasts), np.zeros((group, vocab))]),
        *(np.kron(np.eye(blocks, dtype=dtype), one) for blocks in (1, order + 1, 2 * (order + 1))),
    )


# --- The copy heads ------------------------------------------------------------------------------------------------


@kernel
def attend_directly(h: int, row: int, weights: Weights, memory: Memory) -> int:
    """The attention of one query on every key before it, with its own maximum, into `direct`; the query's position."""
    direct, scores, bias = memory.direct, weights.scores[h], weights.bias[h]
    i = row % direct.shape[0]
    tokens = memory.tokens[row // direct.shape[0]]
    top = direct.dtype.type(-np.inf)
    for j in range(i + 1):
        direct[j] = scores[tokens[j], tokens[i]] + bias[i - j]
        top = max(top, direct[j])
    mass = direct.dtype.type(0)
    for j in range(i + 1):
        direct[j] = np.exp(direct[j] - top)
        mass += direct[j]
    for j in range(i + 1):
        direct[j] /= mass
    return i


@kernel
def copy_forward(h: int, weights: Weights, memory: Memory) -> None:
    """The shares that head h writes at every position."""
    symbols, n, rows = weights.content.shape[1], weights.late.shape[0], memory.total.shape[0]
    tokens, mass, low = memory.tokens.reshape(rows), memory.total, memory.low[h]
    content, decay = weights.content[h], weights.decay[h]
    share = memory.share[(h + 1) * symbols : (h + 2) * symbols].reshape(symbols, rows)
    scale = memory.scale[(h + 1) * symbols : (h + 2) * symbols].reshape(symbols, rows)
    # A normaliser below this has lost digits to underflow somewhere in its sums.
    tiny = 1e-20 if mass.itemsize == 4 else 1e-200
    share[:], mass[:] = 0, 0
    for row in range(rows):
        counts = share[tokens[row], row : row - row % n + n]
        for lag in range(counts.shape[0]):
            counts[lag] += decay[lag]
    for m in range(symbols):
        for row in range(rows):
            scale[m, row] = content[m, tokens[row]]
        for row in range(rows):
            share[m, row] *= scale[m, row]
            mass[row] += share[m, row]
    for row in range(rows):
        low[row] = not mass[row] >= tiny  # NaN is low, too
        if low[row]:  # shares take the place of counts, and their scale is one
            i = attend_directly(h, row, weights, memory)
            mass[row], share[:, row], scale[:, row] = 1, 0, 1
            for j in range(i + 1):
                share[tokens[row - i + j], row] += memory.direct[j]
    for row in range(rows):
        mass[row] = 1 / mass[row]
    for m in range(symbols):
        for row in range(rows):
            scale[m, row] *= mass[row]
            share[m, row] *= mass[row]


@kernel
def sum_by_lag(tokens: Array, pull: Array, start: int, stop: int, decay: Array) -> None:
    """What one sequence hands back to each distance. Four keys at a time: each sum is read and written once."""
    last = start + (stop - start) // 4 * 4
    for row in range(start, last, 4):
        one, two = pull[tokens[row], row:stop], pull[tokens[row + 1], row + 1 : stop]
        three, four = pull[tokens[row + 2], row + 2 : stop], pull[tokens[row + 3], row + 3 : stop]
        end = four.shape[0]
        for lag in range(end):
            decay[lag] += (one[lag] + two[lag]) + (three[lag] + four[lag])
        decay[end] += one[end] + two[end] + three[end]
        decay[end + 1] += one[end + 1] + two[end + 1]
        decay[end + 2] += one[end + 2]
    for row in range(last, stop):
        back = pull[tokens[row], row:stop]
        for lag in range(back.shape[0]):
            decay[lag] += back[lag]


@kernel
def copy_backward(h: int, weights: Weights, sums: Weights, memory: Memory) -> None:
    """From `pull` through head h's softmax to the sums of its gradients."""
    symbols, n, rows = weights.content.shape[1], weights.late.shape[0], memory.total.shape[0]
    tokens, inner = memory.tokens.reshape(rows), memory.total
    bias, decay = sums.bias[h], sums.decay[h]
    first = memory.share[:symbols].reshape(symbols, rows)
    share = memory.share[(h + 1) * symbols : (h + 2) * symbols].reshape(symbols, rows)
    scale = memory.scale[(h + 1) * symbols : (h + 2) * symbols].reshape(symbols, rows)
    pull = memory.pull[(h + 1) * symbols : (h + 2) * symbols].reshape(symbols, rows)
    inner[:] = 0
    for m in range(symbols):
        for row in range(rows):
            inner[row] += share[m, row] * pull[m, row]
    for m in range(symbols):
        for row in range(rows):
            pull[m, row] -= inner[row]
            share[m, row] *= pull[m, row]  # d score by symbol
            pull[m, row] *= scale[m, row]
    for m in range(symbols):
        for a in range(symbols):
            value = share.dtype.type(0)
            for row in range(rows):
                value += share[m, row] * first[a, row]
            sums.scores[h, m, a] += value
    for row in range(rows):
        if memory.low[h, row]:
            i = attend_directly(h, row, weights, memory)
            for j in range(i + 1):
                bias[i - j] += memory.direct[j] * pull[tokens[row - i + j], row]
            pull[:, row] = 0
    for start in range(0, rows, n):
        sum_by_lag(tokens, pull, start, start + n, decay)


# --- The match head and the readout --------------------------------------------------------------------------------


@kernel
def match_forward(weights: Weights, memory: Memory) -> None:
    """The last query, all keys: the pattern, and what the head adds to the last position's stream."""
    share, pattern, stream, query, read = memory.share, memory.pattern, memory.stream, memory.query, memory.read
    width, group, n = share.shape
    stream[:] = share[:, :, n - 1].T
    query[:] = 0
    for b in range(group):
        pattern[b] = weights.late
        for r in range(width):  # not one product of matrices: a prediction must not depend on its group
            for c in range(width):
                query[b, c] += stream[b, r] * weights.match[r, c]
        for r in range(width):
            for i in range(n):
                pattern[b, i] += query[b, r] * share[r, b, i]
        top, mass = pattern[b].max(), pattern.dtype.type(0)
        for i in range(n):
            pattern[b, i] = np.exp(pattern[b, i] - top)
            mass += pattern[b, i]
        for i in range(n):
            pattern[b, i] /= mass
        for r in range(width):
            value = pattern.dtype.type(0)
            for i in range(n):
                value += pattern[b, i] * share[r, b, i]
            read[b, r], read[b, width + r] = stream[b, r], value


@kernel
def match_backward(weights: Weights, sums: Weights, memory: Memory) -> None:
    """d score_j = A_j (dout . h_j - dout . out), what keys, values and the query hand back, and the gradient of W_A."""
    share, pull, pattern, felt = memory.share, memory.pull, memory.pattern, memory.pull_score
    read, pull_read, query, pull_query = memory.read, memory.pull_read, memory.query, memory.pull_query
    width, group, n = share.shape
    for b in range(group):
        felt[b] = -np.dot(read[b, width:], pull_read[b, width:])
        for r in range(width):
            for i in range(n):
                felt[b, i] += pull_read[b, width + r] * share[r, b, i]
        for i in range(n):
            felt[b, i] *= pattern[b, i]
            sums.late[i] += felt[b, i]
        for r in range(width):
            value = felt.dtype.type(0)
            for i in range(n):
                value += felt[b, i] * share[r, b, i]
            pull_query[b, r] = value
            for i in range(n):
                pull[r, b, i] = felt[b, i] * query[b, r] + pattern[b, i] * pull_read[b, width + r]
    sums.match[:] += memory.stream.T @ pull_query
    pull[:, :, n - 1] += (pull_read[:, :width] + pull_query @ weights.match.T).T


@kernel
def readout_forward(probability: bool, floor: float, weights: Weights, memory: Memory) -> None:
    """The unnormalised `laws`: votes plus a floor, or exponentials of logits."""
    for law, read in zip(memory.laws, memory.read):  # noqa: B905  (numba knows no `strict`)
        for m in range(law.shape[0]):
            value = read.dtype.type(0)
            for c in range(read.shape[0]):
                value += weights.readout[m, c] * read[c]
            law[m] = value
        if probability:
            for m in range(law.shape[0]):
                law[m] = floor if law[m] <= 0 else law[m] + floor  # not a maximum: NaN must pass through
        else:
            law[:] = np.exp(law - law.max())


@kernel
def readout_backward(
    targets: Array, probability: bool, floor: float, weights: Weights, sums: Weights, memory: Memory
) -> float:
    """The sum of the losses; the gradients of W_O and of what it reads."""
    slopes, loss = np.empty_like(memory.read[:, : targets.shape[1]]), 0.0
    for law, target, slope in zip(memory.laws, targets, slopes):  # noqa: B905  (numba knows no `strict`)
        mass, wanted = law.sum(), target.sum()
        for m in range(law.shape[0]):
            if not probability:
                slope[m] = wanted * law[m] / mass - target[m]
            else:
                slope[m] = 0.0 if law[m] == floor else wanted / mass - target[m] / law[m]
            if target[m] != 0:
                loss -= target[m] * np.log(law[m] / mass)
    sums.readout[:] += slopes.T @ memory.read
    memory.pull_read[:] = slopes @ weights.readout
    return loss


# --- Around the sequences of a step --------------------------------------------------------------------------------


@kernel
def open_step(params: Params, room: Room) -> None:
    """The weights with BOS as a symbol, their exponentials, and empty sums of gradients."""
    weights, sums = room.weights, room.sums
    vocab = params.readout_weight.shape[0]
    weights.bias[:] = params.copy_bias
    for h in range(weights.bias.shape[0]):
        weights.decay[h] = np.exp(weights.bias[h] - weights.bias[h].max())
        weights.scores[h, :, :vocab] = room.one @ params.copy_weight[h].T
        for a in range(weights.scores.shape[2]):  # BOS as a query has scores of zero: it attends to itself alone
            weights.content[h, :, a] = np.exp(weights.scores[h, :, a] - weights.scores[h, :, a].max())
    weights.match[:] = room.half @ params.match_weight @ room.half.T
    weights.late[:] = params.match_bias[::-1]
    weights.readout[:] = params.readout_weight @ room.whole.T
    sums.bias[:], sums.decay[:], sums.scores[:] = 0, 0, 0
    sums.match[:], sums.late[:], sums.readout[:] = 0, 0, 0


@kernel
def close_step(grads: Params, batch: int, room: Room) -> None:
    """From the sums over the batch to the mean gradient of every parameter."""
    weights, sums = room.weights, room.sums
    vocab = grads.readout_weight.shape[0]
    for h in range(weights.bias.shape[0]):
        grads.copy_weight[h] = (room.one.T @ np.ascontiguousarray(sums.scores[h, :, :vocab])).T / batch
        grads.copy_bias[h] = (weights.decay[h] * sums.decay[h] + sums.bias[h]) / batch
    grads.match_weight[:] = room.half.T @ sums.match @ room.half / batch
    grads.match_bias[:] = sums.late[::-1] / batch
    grads.readout_weight[:] = sums.readout @ room.whole / batch


@kernel
def forward(probability: bool, floor: float, room: Room) -> None:
    """The sequences in `memory.tokens` to their unnormalised `laws`, and what the backward pass needs."""
    weights, memory = room.weights, room.memory
    memory.share[: weights.content.shape[1]] = 0
    for b in range(memory.tokens.shape[0]):
        for i in range(memory.tokens.shape[1]):
            memory.share[memory.tokens[b, i], b, i] = 1
    for h in range(weights.bias.shape[0]):
        copy_forward(h, weights, memory)
    match_forward(weights, memory)
    readout_forward(probability, floor, weights, memory)


@kernel
def backward(targets: Array, probability: bool, floor: float, room: Room) -> float:
    """The losses of the sequences that `forward` has just seen; adds their gradients to the sums."""
    weights, sums, memory = room.weights, room.sums, room.memory
    loss = readout_backward(targets, probability, floor, weights, sums, memory)
    match_backward(weights, sums, memory)
    for h in range(weights.bias.shape[0]):
        copy_backward(h, weights, sums, memory)
    return loss


@njit()
def run_batch(
    learn: bool, tokens: Array, targets: Array, params: Params, grads: Params, laws: Array, room: Room,
    probability: bool, floor: float,
) -> float:  # fmt: skip
    """Writes the predictions; to learn, also the gradient of the mean loss, which it returns."""
    batch, length = tokens.shape
    group, n = room.memory.tokens.shape
    open_step(params, room)
    loss = 0.0
    for b in range(0, batch, group):
        room.memory.tokens[:, n - length :] = tokens[b : b + group]
        forward(probability, floor, room)
        if learn:
            loss += backward(targets[b : b + group], probability, floor, room)
        laws[b : b + group] = room.memory.laws
    if learn:
        close_step(grads, batch, room)
    for law in laws:
        law /= law.sum()
    return loss / batch
