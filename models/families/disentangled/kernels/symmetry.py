"""The mean of a gradient over all relabelings of the symbols (theorem:invariance).

Where the parameters are fixed by every relabeling, the gradient of a relabeled batch is the relabeled gradient. Its
mean over all |V|! relabelings replaces each |V| x |V| block by a I + b J with the same sums on and off the diagonal:
a step on it is a step on the symmetrised batch, at the price of the batch itself.
"""

from __future__ import annotations

from typing import Any

from models.families.disentangled.kernels.memory import Params, Work, kernel


@kernel
def symmetrise(grads: Params, work: Work) -> None:
    """Replace the gradient of every W_A and of W_O by its mean over relabelings; relative biases keep theirs."""
    order, vocab = work.order, work.vocab
    width = (order + 1) * vocab
    for h in range(order):
        _symmetrise_block(grads.copy_weight, h * vocab * vocab, vocab, vocab)
    for row in range(order + 1):
        for column in range(order + 1):
            _symmetrise_block(grads.match_weight, row * vocab * width + column * vocab, width, vocab)
    for column in range(2 * (order + 1)):
        _symmetrise_block(grads.readout_weight, column * vocab, 2 * width, vocab)


@kernel
def _symmetrise_block(matrix: Any, start: int, stride: int, vocab: int) -> None:
    diagonal = 0.0
    everything = 0.0
    for r in range(vocab):
        diagonal += matrix[start + r * stride + r]
        for c in range(vocab):
            everything += matrix[start + r * stride + c]
    off = (everything - diagonal) / (vocab * (vocab - 1))
    diagonal /= vocab
    for r in range(vocab):
        for c in range(vocab):
            matrix[start + r * stride + c] = diagonal if r == c else off
