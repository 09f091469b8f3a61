"""Training the disentangled transformer (sec:models) in compiled code: sample, forward, backward, Adam, in one loop.

    config = disentangled.config(order=2, vocab=5, length=64, bos=True)
    state = TrainState(params=initial(config, init="random(0.3)", seed=0), generator=np.random.default_rng(0))
    losses = train_chunk(config, state, prior, np.full(1000, 1e-3))

All parameters live in one flat vector (`weights.views`), whose dtype is that of the arithmetic.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from interp.chains.priors import Prior
from interp.hooked.transformer import InductionConfig, InductionTransformer
from models.families.disentangled import kernels
from models.families.disentangled.weights import (
    config as make_config,
)
from models.families.disentangled.weights import (
    from_hooked,
    initial,
    read_weights,
    to_hooked,
    training_mask,
    views,
)
from models.training.adam import Array, TargetKind, TrainState
from models.training.spec import RunSpec
from models.training.trainers import CompiledTrainer


def loss_and_gradient(
    config: InductionConfig, flat: Array, tokens: Array, target: Array, *, symmetrise: bool = False
) -> tuple[float, Array, Array]:
    """Mean cross-entropy over the batch, its gradient in the layout of `flat`, and the predictions [batch, vocab].

    `target` is the next token [batch], or the law to compare with [batch, vocab]. `symmetrise` gives the gradient of
    the batch with all its relabelings, for parameters that no relabeling changes.
    """
    tokens = _check(config, tokens)
    target = np.asarray(target)
    laws = np.eye(config.vocab)[target] if target.ndim == 1 else np.ascontiguousarray(target, dtype=np.float64)
    grad, found = np.zeros_like(flat), np.empty((len(tokens), config.vocab))
    params, grads = _params(config, flat), _params(config, grad)
    loss = kernels.batch_gradient(
        params, grads, tokens, laws, found, _room(config, flat.dtype, len(tokens)), *_readout(config), symmetrise
    )
    return float(loss), grad, found


def predict(config: InductionConfig, flat: Array, tokens: Array) -> Array:
    """The law of the token after the last one, [batch, vocab] float64."""
    tokens = _check(config, tokens)
    laws = np.empty((len(tokens), config.vocab))
    room = _room(config, flat.dtype, len(tokens))
    kernels.batch_predict(_params(config, flat), tokens, laws, room, *_readout(config))
    return laws


def predict_hooked(model: InductionTransformer, tokens: torch.Tensor) -> torch.Tensor:
    """`interp.predict` for a disentangled model or a construction, thousands of long sequences in seconds."""
    return torch.from_numpy(predict(model.config, from_hooked(model), tokens.numpy())).double()


def train_chunk(
    config: InductionConfig,
    state: TrainState,
    prior: Prior,
    lrs: Array,
    *,
    target: TargetKind = "token",
    batch: int = 32,
    betas: tuple[float, float] = (0.9, 0.999),
    epsilon: float = 1e-8,
    mask: Array | None = None,
    symmetrise: bool = False,
) -> Array:
    """len(lrs) steps on fresh sequences from `prior`; changes `state` in place and returns the loss of every step.

    The result does not depend on how a run is divided into chunks, not even in the last bit. `target` is "token", a
    sampled next token as in eq:icl_optimization_markov, or "law", the urn's law of it: the same expected gradient, with
    less noise. `mask` is multiplied into the gradient, so that zeros freeze what they cover. `symmetrise`: see
    `loss_and_gradient`.

    If the loss or its gradient is not finite, the chunk stops before that step's update. Its loss and those after it
    are then not finite, and `state` holds the parameters of that step.
    """
    flat, grad = state.params, np.zeros_like(state.params)
    losses = np.full(len(lrs), np.nan)
    state.step += kernels.train(
        flat,
        state.first_moment,
        state.second_moment,
        np.ones_like(flat) if mask is None else np.ascontiguousarray(mask, dtype=flat.dtype),
        state.step,
        state.generator,
        np.ascontiguousarray(lrs, dtype=np.float64),
        losses,
        _params(config, flat),
        grad,
        _params(config, grad),
        _room(config, flat.dtype, batch),
        config.length,
        batch,
        *_readout(config),
        np.ascontiguousarray(prior.concentrations(), dtype=np.float64),
        prior.independent,
        target == "law",
        symmetrise,
        *betas,
        epsilon,
    )
    return losses


def _params(config: InductionConfig, flat: Array) -> kernels.Params:
    return kernels.Params(**views(config, flat))


def _readout(config: InductionConfig) -> tuple[bool, float]:
    return config.readout == "probability", config.floor


def _room(config: InductionConfig, dtype: Any, batch: int) -> kernels.Room:
    return kernels.new_room(
        order=config.order, vocab=config.vocab, n=config.n_ctx, bos=config.bos, batch=batch, dtype=dtype
    )


def _check(config: InductionConfig, tokens: Array) -> Array:
    """The tokens as the kernels take them: what does not fit would be read past the end of an array."""
    tokens = np.ascontiguousarray(tokens, dtype=np.int64)
    if tokens.ndim != 2 or tokens.shape[0] < 1 or tokens.shape[1] != config.length:
        raise ValueError(f"tokens must be [batch, {config.length}], got {list(tokens.shape)}")
    if tokens.min() < 0 or tokens.max() >= config.vocab:
        raise ValueError(f"tokens must lie in 0..{config.vocab - 1}, got {tokens.min()}..{tokens.max()}")
    return tokens


class DisentangledTrainer(CompiledTrainer):
    """One seed; every factor of a run determines the config, the start vector or the mask."""

    def __init__(self, spec: RunSpec) -> None:
        config = make_config(
            order=spec.prior["order"],
            vocab=spec.prior["vocab"],
            length=spec.length,
            bos=spec.bos,
            readout="logit" if spec.readout == "logit" else "probability",
        )
        config = replace(config, family=spec.family)
        super().__init__(spec, config, initial(config, init=spec.init, seed=spec.seed))
        self.mask = training_mask(config, spec.frozen)

    def advance(self, learning_rates: np.ndarray) -> np.ndarray:
        return train_chunk(
            self.config,
            self.state,
            self.prior,
            learning_rates,
            target=self.spec.schedule.target,
            batch=self.spec.batch,
            mask=self.mask,
            symmetrise=self.spec.symmetrise,
        )

    def predict(self, tokens: np.ndarray) -> np.ndarray:
        return predict(self.config, self.state.params, tokens)

    def reading(self) -> tuple[list[float], float | None]:
        return read_weights(self.config, self.state.params)

    def hooked(self) -> InductionTransformer:
        return to_hooked(self.config, self.state.params)
