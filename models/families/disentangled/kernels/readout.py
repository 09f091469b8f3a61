"""The readout, forward and backward: from the last position's stream to a law, and the loss against a target."""

from __future__ import annotations

from typing import Any

import numpy as np

from models.families.disentangled.kernels.memory import Work, kernel
from models.families.disentangled.kernels.simd import LANES, fill, load, store, total


@kernel
def readout_forward(probability: bool, floor: float, work: Work) -> None:
    """The unnormalised `law`: votes plus a floor, or exponentials of logits."""
    vocab, half, stream, law = work.vocab, work.half, work.stream, work.law
    zero = fill(work.pattern, 0.0)
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


@kernel
def readout_backward(target: Any, probability: bool, floor: float, work: Work) -> float:
    """The loss; the gradients of W_O and of the stream. Normalises `law`."""
    vocab, half = work.vocab, work.half
    law, stream, pull_stream = work.law, work.stream, work.pull_stream
    zero = fill(work.pattern, 0.0)
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
    normalise(work)
    return loss


@kernel
def normalise(work: Work) -> None:
    """`law` divided by its sum."""
    mass = 0.0
    for m in range(work.vocab):
        mass += work.law[m]
    for m in range(work.vocab):
        work.law[m] /= mass
