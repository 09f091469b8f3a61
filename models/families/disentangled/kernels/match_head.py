"""The match head at the last query, forward and backward. Its keys and values are one and the same stream."""

from __future__ import annotations

import numpy as np

from models.families.disentangled.kernels.by_symbol import mean_of, per_symbol, sum_by_symbol, sum_copied
from models.families.disentangled.kernels.memory import Work, kernel
from models.families.disentangled.kernels.simd import LANES, exp, fill, larger, largest, load, store, total


@kernel
def match_forward(work: Work) -> None:
    """One query, all keys: the pattern, and what the head adds to the last position's stream."""
    order, vocab, n, row, half = work.order, work.vocab, work.n, work.row, work.half
    width = (order + 1) * vocab
    copied, pattern, stream, query = work.copied, work.pattern, work.stream, work.query
    final = work.symbols[n - 1]
    zero = fill(pattern, 0.0)

    for c in range(0, half, LANES):
        value = load(work.match, final * half + c)
        for r in range(vocab, width):
            value = value + stream[r] * load(work.match, r * half + c)
        store(query, c, value)
    for m in range(vocab):
        work.by_symbol[m] = query[m]
    work.by_symbol[vocab] = mean_of(query, 0, vocab)
    peak = fill(pattern, -np.inf)
    for i in range(0, n, LANES):
        score = load(work.late, i) + per_symbol(work.by_symbol, 0, i, work)
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
    sum_by_symbol(pattern, stream, half, work)
    sum_copied(pattern, stream, half + vocab, work)


@kernel
def match_backward(work: Work) -> None:
    """d score_j = A_j (dout . h_j - dout . out), and what the keys and values hand back to the copy heads."""
    order, vocab, n, row, half = work.order, work.vocab, work.n, work.row, work.half
    scale, copied, pull = work.scale, work.copied, work.pull
    pattern, pull_score = work.pattern, work.pull_score
    stream, pull_stream, query, pull_query = work.stream, work.pull_stream, work.query, work.pull_query
    zero = fill(pattern, 0.0)

    inner_row = zero
    for c in range(half, 2 * half, LANES):
        inner_row = inner_row + load(stream, c) * load(pull_stream, c)
    inner = total(inner_row)
    for m in range(vocab):
        work.by_symbol[m] = pull_stream[half + m] - inner
    work.by_symbol[vocab] = mean_of(pull_stream, half, vocab) - inner
    for h in range(order):
        work.means[h] = mean_of(query, (h + 1) * vocab, vocab)
        work.means[order + h] = mean_of(pull_stream, half + (h + 1) * vocab, vocab)
    for i in range(0, n, LANES):
        weight = load(pattern, i)
        felt = per_symbol(work.by_symbol, 0, i, work)
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
    sum_by_symbol(pull_score, pull_query, 0, work)
    sum_copied(pull_score, pull_query, vocab, work)


@kernel
def query_backward(work: Work) -> None:
    """What the last position receives as the query, and through the readout; the gradient of W_A on the way."""
    order, vocab, row, half = work.order, work.vocab, work.row, work.half
    width = (order + 1) * vocab
    last = work.n - 1
    scale, pull = work.scale, work.pull
    stream, pull_stream, pull_query = work.stream, work.pull_stream, work.pull_query
    zero = fill(work.pattern, 0.0)

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
        mean_last = mean_of(pull_stream, (h + 1) * vocab, vocab)
        work.pull_bos[h * row + last] += work.bos_share[h * row + last] * (mean_last - inner_last)
