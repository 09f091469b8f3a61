"""Training the disentangled transformer (sec:models) in compiled code: sample, forward, backward, Adam, in one loop.

    shape = Shape(order=2, vocab=5, length=64, bos=True, readout="probability")
    state = TrainState(params=flat, generator=np.random.default_rng(0))
    losses = train_chunk(shape, state, prior, np.full(1000, 1e-3))

All parameters live in one flat vector; `Shape` says where. The maths and the machinery are in `kernels`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from interp.chains.priors import Prior
from models.families.disentangled.kernels import loop, memory
from models.training.adam import Array, TargetKind, TrainState

Readout: TypeAlias = Literal["probability", "logit"]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The size and the layout of the flat parameter vector.

    order, vocab   k and |V|
    length         T, the number of real tokens; with BOS the model sees one position more
    bos            whether a BOS position comes first
    readout        "probability": (relu(s) + floor) / sum; "logit": softmax(s), for s = W_O h
    floor          keeps the logarithm of a "probability" readout finite; unused by "logit"
    """

    order: int
    vocab: int
    length: int
    bos: bool
    readout: Readout = "probability"
    floor: float = 1e-7

    def __post_init__(self) -> None:
        for name, least in (("order", 1), ("vocab", 2), ("length", self.order + 1)):
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")
        if self.readout not in ("probability", "logit"):
            raise ValueError(f"readout must be 'probability' or 'logit', got {self.readout!r}")
        if not self.floor > 0:
            raise ValueError(f"floor must be positive, got {self.floor}")

    @property
    def n_ctx(self) -> int:
        """Positions the model sees."""
        return self.length + self.bos

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The parameters in the order in which the flat vector holds them."""
        width = (self.order + 1) * self.vocab
        return {
            "copy_weight": (self.order, self.vocab, self.vocab),
            "copy_bias": (self.order, self.n_ctx),
            "match_weight": (width, width),
            "match_bias": (self.n_ctx,),
            "readout_weight": (self.vocab, 2 * width),
        }

    @property
    def sizes(self) -> dict[str, int]:
        """Numbers in each parameter."""
        return {name: int(np.prod(shape)) for name, shape in self.shapes.items()}

    @property
    def size(self) -> int:
        """Numbers in the flat vector."""
        return sum(self.sizes.values())

    def views(self, flat: Array) -> dict[str, Array]:
        """Each parameter as a view into `flat`: writing to a view writes to the vector.

        >>> shape = Shape(order=2, vocab=5, length=64, bos=True)
        >>> {name: view.shape for name, view in shape.views(np.zeros(shape.size)).items()}["copy_bias"]
        (2, 65)
        """
        if flat.shape != (self.size,):
            raise ValueError(f"the flat vector must have shape ({self.size},), got {flat.shape}")
        views = {}
        start = 0
        for name, shape in self.shapes.items():
            stop = start + self.sizes[name]
            views[name] = flat[start:stop].reshape(shape)
            start = stop
        return views


def loss_and_gradient(
    shape: Shape, flat: Array, tokens: Array, target: Array, *, symmetrise: bool = False
) -> tuple[float, Array, Array]:
    """Mean cross-entropy over the batch, its gradient in the layout of `flat`, and the predictions [batch, vocab].

    `target` is the next token [batch], or the law to compare with [batch, vocab]. The arithmetic is in flat's dtype.
    `symmetrise` gives the gradient of the batch with all its relabelings, for parameters that no relabeling changes.
    """
    flat, tokens = _check_flat(shape, flat), _check_tokens(shape, tokens)
    target = _check_target(shape, target, batch=tokens.shape[0])
    grad = np.zeros_like(flat)
    laws = np.empty((tokens.shape[0], shape.vocab))
    room = _room(shape, flat.dtype)
    loss = loop.batch_gradient(
        flat, grad, tokens, target, laws, room, shape.readout == "probability", shape.floor, symmetrise
    )
    return float(loss), grad, laws


def predict(shape: Shape, flat: Array, tokens: Array) -> Array:
    """The law of the token after the last one, [batch, vocab] float64."""
    flat, tokens = _check_flat(shape, flat), _check_tokens(shape, tokens)
    laws = np.empty((tokens.shape[0], shape.vocab))
    room = _room(shape, flat.dtype)
    loop.batch_predict(flat, tokens, laws, room, shape.readout == "probability", shape.floor)
    return laws


def train_chunk(
    shape: Shape,
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
    _check_flat(shape, state.params)
    if (prior.order, prior.vocab) != (shape.order, shape.vocab):
        raise ValueError(
            f"the prior has order {prior.order} and vocab {prior.vocab}, the shape {shape.order} and {shape.vocab}"
        )
    if target not in ("token", "law"):
        raise ValueError(f"target must be 'token' or 'law', got {target!r}")
    if batch < 1:
        raise ValueError(f"batch must be at least 1, got {batch}")
    if mask is None:
        mask = np.ones_like(state.params)
    elif np.shape(mask) != state.params.shape:
        raise ValueError(f"mask must have the shape of the parameters {state.params.shape}, got {np.shape(mask)}")
    lrs = np.ascontiguousarray(lrs, dtype=np.float64)
    losses = np.full(len(lrs), np.nan)
    state.step += loop.train(
        state.params,
        state.first_moment,
        state.second_moment,
        np.ascontiguousarray(mask, dtype=state.params.dtype),
        state.step,
        state.generator,
        lrs,
        losses,
        np.empty_like(state.params),
        np.empty(shape.length),
        np.empty(shape.length, dtype=np.int64),
        np.empty(shape.vocab),
        _room(shape, state.params.dtype),
        batch,
        shape.readout == "probability",
        shape.floor,
        np.ascontiguousarray(prior.concentrations(), dtype=np.float64),
        prior.independent,
        target == "law",
        symmetrise,
        *betas,
        epsilon,
    )
    return losses


def _room(shape: Shape, dtype: Any) -> Any:
    return memory.new_room(order=shape.order, vocab=shape.vocab, n=shape.n_ctx, bos=shape.bos, dtype=dtype)


def _check_flat(shape: Shape, flat: Array) -> Array:
    if flat.shape != (shape.size,) or flat.dtype not in (np.float32, np.float64):
        raise ValueError(f"parameters must be float32 or float64 ({shape.size},), got {flat.dtype} {flat.shape}")
    return np.ascontiguousarray(flat)


def _check_tokens(shape: Shape, tokens: Array) -> Array:
    tokens = np.ascontiguousarray(tokens, dtype=np.int64)
    if tokens.ndim != 2 or tokens.shape[0] < 1 or tokens.shape[1] != shape.length:
        raise ValueError(f"tokens must be [batch, {shape.length}], got {list(tokens.shape)}")
    if tokens.min() < 0 or tokens.max() >= shape.vocab:
        raise ValueError(f"tokens must lie in 0..{shape.vocab - 1}, got {tokens.min()}..{tokens.max()}")
    return tokens


def _check_target(shape: Shape, target: Array, *, batch: int) -> Array:
    target = np.asarray(target)
    if target.shape == (batch,) and np.issubdtype(target.dtype, np.integer):
        if target.min() < 0 or target.max() >= shape.vocab:
            raise ValueError(f"target tokens must lie in 0..{shape.vocab - 1}, got {target.min()}..{target.max()}")
        return np.eye(shape.vocab)[target]
    if target.shape == (batch, shape.vocab):
        return np.ascontiguousarray(target, dtype=np.float64)
    raise ValueError(f"target must be integers [{batch}] or laws [{batch}, {shape.vocab}], got {list(target.shape)}")
