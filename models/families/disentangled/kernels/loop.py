"""One sequence forward and backward, a batch of them, and the training loop around both."""

from __future__ import annotations

from typing import Any

import numpy as np

from interp.chains.urn import draw_chain, new_urn, predictive_law
from models.compiled import njit
from models.families.disentangled.kernels.by_symbol import enter
from models.families.disentangled.kernels.copy_heads import copy_backward, copy_forward
from models.families.disentangled.kernels.match_head import match_backward, match_forward, query_backward
from models.families.disentangled.kernels.memory import Array, Params, Room, Work, cut, kernel, lay_out
from models.families.disentangled.kernels.readout import normalise, readout_backward, readout_forward
from models.families.disentangled.kernels.simd import pointer
from models.families.disentangled.kernels.step import close_step, open_step
from models.families.disentangled.kernels.symmetry import symmetrise
from models.training.adam import adam


@kernel
def _forward(params: Params, tokens: Any, probability: bool, floor: float, tiny: float, work: Work) -> None:
    """One sequence to its unnormalised `law`, leaving in `work` what the backward pass needs."""
    order, vocab, stream = work.order, work.vocab, work.stream
    last = work.n - 1
    enter(tokens, work)
    for m in range(vocab):
        stream[m] = 0
    stream[work.symbols[last]] = 1
    for h in range(order):
        copy_forward(h, params, tiny, work)
        for m in range(vocab):
            stream[(h + 1) * vocab + m] = work.copied[(h * vocab + m) * work.row + last]
    match_forward(work)
    readout_forward(probability, floor, work)


@kernel
def _backward(params: Params, target: Any, probability: bool, floor: float, work: Work) -> float:
    """The loss of the sequence that `_forward` has just seen; adds its gradient to the sums and normalises `law`."""
    loss = readout_backward(target, probability, floor, work)
    match_backward(work)
    query_backward(work)
    for h in range(work.order):
        copy_backward(h, params, work)
    return loss


# A normaliser below this has lost digits to underflow somewhere in its sums.
@kernel
def _tiny(flat: Array) -> float:
    return 1e-20 if flat.itemsize == 4 else 1e-200


@njit()
def batch_gradient(
    flat: Array, grad: Array, tokens: Array, targets: Array, laws: Array, room: Room, probability: bool, floor: float,
    relabelled: bool,
) -> float:  # fmt: skip
    work = lay_out(room)
    params, grads = cut(flat, work), cut(grad, work)
    batch, length = tokens.shape
    open_step(params, work)
    loss = 0.0
    for b in range(batch):
        _forward(params, pointer(tokens, b * length), probability, floor, _tiny(flat), work)
        loss += _backward(params, pointer(targets, b * work.vocab), probability, floor, work)
        for m in range(work.vocab):
            laws[b, m] = work.law[m]
    close_step(grads, batch, work)
    if relabelled:
        symmetrise(grads, work)
    return loss / batch


@njit()
def batch_predict(flat: Array, tokens: Array, laws: Array, room: Room, probability: bool, floor: float) -> None:
    work = lay_out(room)
    params = cut(flat, work)
    batch, length = tokens.shape
    open_step(params, work)
    for b in range(batch):
        _forward(params, pointer(tokens, b * length), probability, floor, _tiny(flat), work)
        normalise(work)
        for m in range(work.vocab):
            laws[b, m] = work.law[m]


@kernel
def _choose(law: Any, vocab: int, uniform: float) -> None:
    """Replace a law by one token drawn from it."""
    chosen = -1
    for m in range(vocab):
        uniform -= law[m]
        law[m] = 0
        if uniform < 0 and chosen < 0:
            chosen = m
    law[chosen if chosen >= 0 else vocab - 1] = 1


@njit()
def train(
    flat: Array, first: Array, second: Array, mask: Array, step: int, generator: np.random.Generator, lrs: Array,
    losses: Array, grad: Array, uniforms: Array, tokens: Array, target: Array, room: Room, batch: int,
    probability: bool, floor: float, concentrations: Array, independent: bool, by_law: bool, relabelled: bool,
    beta1: float, beta2: float, epsilon: float,
) -> int:  # fmt: skip
    """Steps until `lrs` is used up or the loss or its gradient is not finite; returns how many were taken."""
    work = lay_out(room)
    params, grads = cut(flat, work), cut(grad, work)
    order, vocab, length = work.order, work.vocab, tokens.shape[0]
    urn = new_urn(length, order, vocab)
    for s in range(lrs.shape[0]):
        open_step(params, work)
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
        close_step(grads, batch, work)
        if relabelled:
            symmetrise(grads, work)
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
