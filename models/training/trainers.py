"""What trains a family: `Trainer` takes the steps, and a family's own trainer says what the parameters mean.

A trainer's whole state is `dump()`: arrays, and a JSON-able dict with the step and the generator. Restored from it, a
trainer continues bit for bit. A family names its trainer and its fast forward pass (`models.families.registry`).
"""

from __future__ import annotations

import contextlib
import math
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from interp.chains.urn import draw_chain, new_urn, predictive_law
from interp.hooked.transformer import InductionConfig, InductionTransformer
from models.compiled import njit
from models.families.registry import find_family
from models.training.spec import RunSpec

Array: TypeAlias = np.ndarray[Any, Any]
Arrays: TypeAlias = dict[str, Array]


class Trainer(ABC):
    """A run at some step: a flat vector of parameters, Adam's two moments, the step, and the generator of the data."""

    # Whether a number for the next token is drawn even where the target is a law: sequences are then the same for both.
    same_sequences = False

    def __init__(self, spec: RunSpec, config: InductionConfig, params: Array) -> None:
        self.spec, self.config, self.prior = spec, config, spec.build_prior()
        self.step, self.generator = 0, np.random.default_rng([spec.seed, 0])
        # `restore` writes into these arrays: others may hold views of them.
        self.params, self.first_moment, self.second_moment = params.copy(), np.zeros_like(params), np.zeros_like(params)
        concentrations = np.ascontiguousarray(self.prior.concentrations(), dtype=np.float64)
        self._urn = (config.order, config.vocab, concentrations, self.prior.independent, spec.target == "law")

    @abstractmethod
    def gradient(self, tokens: Array, laws: Array) -> tuple[float, Array]:
        """The mean cross-entropy of the predictions against `laws` [batch, vocab], and its gradient."""

    @abstractmethod
    def predict(self, tokens: Array) -> Array:
        """[batch, vocab] laws of the next token, by the current weights."""

    @abstractmethod
    def reading(self) -> tuple[list[float], float | None]:
        """beta per lag and kappa of the current weights; NaN where the weights do not determine them."""

    @abstractmethod
    def hooked(self) -> InductionTransformer:
        """The current weights as a HookedTransformer."""

    def advance(self, rates: Array) -> Array:
        """One step per rate on fresh sequences; returns the loss of each.

        How the steps are divided into calls changes nothing, not even the last bit. If a loss or its gradient is not
        finite, training stops before that step's update: its loss and those after it are then not finite, and the
        parameters are those of that step.
        """
        losses = np.full(len(rates), np.nan)
        with one_thread(), np.errstate(all="ignore"):
            for number, rate in enumerate(rates.tolist()):
                losses[number], gradient = self.gradient(*self.draw())
                if not math.isfinite(losses[number] + gradient.sum()):  # the sum is not, if any entry is not
                    losses[number] = np.nan if math.isfinite(losses[number]) else losses[number]
                    break
                self.step += 1
                self.descend(gradient, rate)
        return losses

    def draw(self) -> tuple[Array, Array]:
        """One step's sequences, and what is to follow each: the urn's law, or one token drawn from it."""
        batch, length = self.spec.batch, self.config.length
        uniforms = self.generator.random((batch, length + (self.same_sequences or self.spec.target == "token")))
        tokens, laws = np.empty((batch, length), dtype=np.int64), np.empty((batch, self.config.vocab))
        _draw(uniforms, tokens, laws, *self._urn)
        return tokens, laws

    def descend(self, gradient: Array, rate: float) -> None:
        """One step of Adam; `step` counts it already."""
        _adam(self.params, gradient, self.first_moment, self.second_moment, self.step, rate)

    def dump(self) -> tuple[Arrays, dict[str, Any]]:
        """The whole state."""
        arrays = {name: getattr(self, name).copy() for name in ("params", "first_moment", "second_moment")}
        return arrays, {"step": self.step, "generator": self.generator.bit_generator.state}

    def restore(self, arrays: Arrays, rest: dict[str, Any]) -> None:
        """Go back to a dumped state."""
        for name, value in arrays.items():
            getattr(self, name)[:] = value
        self.step, self.generator.bit_generator.state = int(rest["step"]), rest["generator"]


@njit()
def _draw(
    uniforms: Array, tokens: Array, laws: Array, order: int, vocab: int, concentrations: Array, independent: bool,
    by_law: bool,
) -> None:  # fmt: skip
    length = tokens.shape[1]
    urn = new_urn(length, order, vocab)
    for row in range(tokens.shape[0]):
        draw_chain(uniforms[row, :length], tokens[row], order, vocab, concentrations, independent, urn)
        predictive_law(laws[row], order, vocab, concentrations, independent, urn)
        if not by_law:
            left, chosen = uniforms[row, length], 0
            while chosen < vocab - 1 and left >= laws[row, chosen]:
                left -= laws[row, chosen]
                chosen += 1
            laws[row] = 0.0
            laws[row, chosen] = 1.0


@njit(error_model="numpy")
def _adam(params: Array, gradient: Array, first: Array, second: Array, step: int, rate: float) -> None:
    """One step of torch.optim.Adam (no weight decay, no amsgrad), in its order of operations."""
    dtype = params.dtype
    size, root = dtype.type(rate / (1.0 - 0.9**step)), dtype.type(np.sqrt(1.0 - 0.999**step))
    keep, one, two, epsilon = dtype.type(0.999), dtype.type(1.0 - 0.9), dtype.type(1.0 - 0.999), dtype.type(1e-8)
    for i in range(params.shape[0]):
        g = gradient[i]
        first[i] += one * (g - first[i])
        second[i] = keep * second[i] + two * g * g
        params[i] -= size * first[i] / (np.sqrt(second[i]) / root + epsilon)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Matrices here are small: a second thread costs more time than it saves. Several runs use several processes."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def config_of(spec: RunSpec, **others: Any) -> InductionConfig:
    """The shape of a run's model; `others` are fields that no run sets, such as its widths."""
    return InductionConfig(
        family=spec.family,
        order=spec.prior["order"],
        vocab=spec.prior["vocab"],
        length=spec.length,
        bos=spec.bos,
        readout="logit" if spec.readout == "logit" else "probability",
        **others,
    )


def make_trainer(spec: RunSpec) -> Trainer:
    """A trainer at step 0 of the run."""
    trainer: Trainer = _resolved(find_family(spec.family).trainer)(spec)
    return trainer


def fast_predict(model: InductionTransformer, tokens: Tensor) -> Tensor:
    """`interp.predict` by the family's own fast forward."""
    law: Tensor = _resolved(find_family(model.config.family).predict)(model, tokens)
    return law


def _resolved(code: Any) -> Any:
    return pkgutil.resolve_name(code) if isinstance(code, str) else code
