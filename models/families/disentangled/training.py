"""Loss, gradient and predictions of the disentangled transformer (sec:models) in compiled code, and a run of it.

All parameters live in one flat vector (`weights.views`), whose dtype is that of the arithmetic.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from einops import rearrange

from interp.hooked.transformer import InductionConfig, InductionTransformer
from models.families.disentangled import kernels
from models.families.disentangled.weights import from_hooked, initial, read_weights, to_hooked, training_mask, views
from models.training.spec import RunSpec
from models.training.trainers import Array, Trainer, config_of


class DisentangledTrainer(Trainer):
    """One seed; every factor of a run determines the shape, the start vector or the mask."""

    def __init__(self, spec: RunSpec, **others: Any) -> None:
        config = config_of(spec, **others)
        super().__init__(spec, config, initial(config, init=spec.init, seed=spec.seed))
        self.mask = training_mask(config, spec.frozen).astype(self.params.dtype)
        self._gradient, laws = np.zeros_like(self.params), np.empty((spec.batch, config.vocab))
        self._memory = _memory(config, self.params, self._gradient, laws)

    def gradient(self, tokens: Array, laws: Array) -> tuple[float, Array]:
        loss = kernels.run_batch(True, tokens, laws, *self._memory)
        if self.spec.symmetrise:
            symmetrise(self.config, self._gradient)
        self._gradient *= self.mask
        return loss, self._gradient

    def predict(self, tokens: Array) -> Array:
        return predict(self.config, self.params, tokens)

    def reading(self) -> tuple[list[float], float | None]:
        return read_weights(self.config, self.params)

    def hooked(self) -> InductionTransformer:
        return to_hooked(self.config, self.params)


def loss_and_gradient(config: InductionConfig, flat: Array, tokens: Array, target: Array) -> tuple[float, Array, Array]:
    """Mean cross-entropy over the batch, its gradient in the layout of `flat`, and the predictions [batch, vocab].

    `target` is the law to compare with, [batch, vocab].
    """
    gradient, laws = np.zeros_like(flat), np.empty((len(tokens), config.vocab))
    memory = _memory(config, flat, gradient, laws)
    return kernels.run_batch(True, _check(config, tokens), target, *memory), gradient, laws


def symmetrise(config: InductionConfig, gradient: Array) -> None:
    """Replace every |V| x |V| block of a gradient by its mean over all relabelings of the symbols (theorem:invariance).

    Where the parameters are fixed by every relabeling, the gradient of a relabeled batch is the relabeled gradient. Its
    mean over all |V|! relabelings is a I + b J with the same sums on and off the diagonal: a step on it is a step on
    the symmetrised batch, at the price of the batch itself.
    """
    parts, vocab = views(config, gradient), config.vocab
    for weight in (*parts["copy_weight"], parts["match_weight"], parts["readout_weight"]):
        blocks = rearrange(weight, "(row m) (column n) -> row column m n", m=vocab, n=vocab)  # a view
        diagonal = np.trace(blocks, axis1=2, axis2=3, dtype=np.float64)
        off = (blocks.sum(axis=(2, 3), dtype=np.float64) - diagonal) / (vocab * (vocab - 1))
        blocks[:] = off[..., None, None]
        blocks[..., range(vocab), range(vocab)] = diagonal[..., None] / vocab


def predict(config: InductionConfig, flat: Array, tokens: Array) -> Array:
    """The law of the token after the last one, [batch, vocab] float64."""
    laws = np.empty((len(tokens), config.vocab))
    kernels.run_batch(False, _check(config, tokens), laws, *_memory(config, flat, flat, laws))
    return laws


def predict_hooked(model: InductionTransformer, tokens: torch.Tensor) -> torch.Tensor:
    """`interp.predict` for a disentangled model or a construction, thousands of long sequences in seconds."""
    return torch.from_numpy(predict(model.config, from_hooked(model), tokens.numpy())).double()


def _memory(config: InductionConfig, flat: Array, gradient: Array, laws: Array) -> tuple[Any, ...]:
    """What the kernels take beside sequences: views of the parameters and their gradient, and room to work in."""
    params, grads = (kernels.Params(**views(config, vector)) for vector in (flat, gradient))
    room = kernels.new_room(
        order=config.order, vocab=config.vocab, n=config.n_ctx, bos=config.bos, batch=len(laws), dtype=flat.dtype
    )
    return params, grads, laws, room, config.readout == "probability", config.floor


def _check(config: InductionConfig, tokens: Array) -> Array:
    """The tokens as the kernels take them: what does not fit would be read past the end of an array."""
    tokens = np.ascontiguousarray(tokens, dtype=np.int64)
    if tokens.ndim != 2 or tokens.shape[0] < 1 or tokens.shape[1] != config.length:
        raise ValueError(f"tokens must be [batch, {config.length}], got {list(tokens.shape)}")
    if tokens.min() < 0 or tokens.max() >= config.vocab:
        raise ValueError(f"tokens must lie in 0..{config.vocab - 1}, got {tokens.min()}..{tokens.max()}")
    return tokens
