"""The copy heads, forward and backward: symbol counts weighed by a decay in the lag, and their mirror image."""

from __future__ import annotations

import numpy as np

from models.families.disentangled.kernels.by_symbol import add_by_symbol, per_symbol
from models.families.disentangled.kernels.memory import GROUP, Params, Work, kernel
from models.families.disentangled.kernels.simd import LANES, all_at_least, fill, load, store


@kernel
def _count(h: int, work: Work) -> None:
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


@kernel
def _uncount(h: int, work: Work) -> None:
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


@kernel
def _attend_directly(h: int, i: int, params: Params, work: Work) -> None:
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


@kernel
def copy_forward(h: int, params: Params, tiny: float, work: Work) -> None:
    """What head h writes: scale * counts + bos_share / |V|."""
    _count(h, work)
    vocab, bos, row = work.vocab, work.bos, work.row
    decay, counts, scale, copied = work.decay, work.counts, work.scale, work.copied
    one = fill(decay, 1.0)
    share = fill(decay, 1.0 / vocab)
    n_low = 0
    for i in range(0, work.n, LANES):
        on_bos = fill(decay, 0.0)
        if bos:
            on_bos = per_symbol(work.content_bos, h * work.table, i, work) * load(decay, (2 * h + 1) * row + i)
            on_bos = on_bos + load(work.is_bos, i)
        mass = on_bos + load(work.is_padding, i)
        for m in range(vocab):
            at = (h * vocab + m) * row + i
            value = per_symbol(work.content, (h * vocab + m) * work.table, i, work)
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


@kernel
def copy_backward(h: int, params: Params, work: Work) -> None:
    """From `pull` through head h's softmax to the sums of its parameters.

    `copied` is not needed any more, and is reused for d score by symbol.
    """
    vocab, n, bos, row = work.vocab, work.n, work.bos, work.row
    counts, copied, pull = work.counts, work.copied, work.pull
    for m in range(vocab):
        at = (h * vocab + m) * row
        for i in range(0, n, LANES):
            store(copied, at + i, load(counts, at + i) * load(pull, at + i))
        add_by_symbol(copied, at, work.sum_content, (h * vocab + m) * vocab * LANES, work)
    if bos:
        for i in range(0, n, LANES):
            at = h * row + i
            store(work.sum_bias, at, load(work.sum_bias, at) + load(work.pull_bos, at))
        add_by_symbol(work.pull_bos, h * row, work.sum_content_bos, h * vocab * LANES, work)
    for place in range(work.n_low[h]):
        i = work.low[h * row + place]
        _attend_directly(h, i, params, work)
        for j in range(bos, i + 1):
            work.sum_bias[h * row + i - j] += work.direct[j] * pull[h * vocab * row + work.symbols[j] * row + i]
        for m in range(vocab):
            pull[(h * vocab + m) * row + i] = 0
    _uncount(h, work)
