"""What is done once per training step, before and after the sequences of its batch."""

from __future__ import annotations

from typing import Any

import numpy as np

from models.families.disentangled.kernels.memory import Params, Work, kernel
from models.families.disentangled.kernels.simd import LANES, fill, load, store, total


@kernel
def open_step(params: Params, work: Work) -> None:
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


@kernel
def _clear(target: Any, size: int) -> None:
    for i in range(0, size, LANES):
        store(target, i, fill(target, 0.0))


@kernel
def close_step(grads: Params, batch: int, work: Work) -> None:
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
