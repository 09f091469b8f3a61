"""One interface for the families' trainers: advance, predict, save, restore, and become a HookedTransformer.

A trainer's whole state is `dump()`: arrays, and a JSON-able dict with the step and the generator. Restored from it,
a trainer goes on bit for bit.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from interp.hooked.transformer import InductionConfig, InductionTransformer
from models.adam import TrainState
from models.families import find_family
from models.spec import RunSpec

Arrays = dict[str, np.ndarray]


class Trainer(Protocol):
    """What the run loop asks of a family."""

    @property
    def step(self) -> int:
        """Steps taken so far."""

    def advance(self, learning_rates: np.ndarray) -> np.ndarray:
        """One step per rate; the loss of each. A loss that is not finite says that the run has diverged."""

    def predict(self, tokens: np.ndarray) -> np.ndarray:
        """[batch, vocab] laws of the next token, by the current weights."""

    def reading(self) -> tuple[list[float], float | None]:
        """beta per lag and kappa as the weights tell them now; NaN where they do not tell."""

    def hooked(self) -> InductionTransformer:
        """The current weights as a HookedTransformer."""

    def dump(self) -> tuple[Arrays, dict[str, Any]]:
        """The whole state."""

    def restore(self, arrays: Arrays, rest: dict[str, Any]) -> None:
        """Go back to a dumped state."""


class CompiledTrainer:
    """What the compiled families share: a flat parameter vector, Adam's moments and a numpy generator."""

    def __init__(self, spec: RunSpec, config: InductionConfig, params: np.ndarray) -> None:
        self.spec = spec
        self.config = config
        self.prior = spec.build_prior()
        self.state = TrainState(params=params, generator=np.random.default_rng([spec.seed, 0]))

    @property
    def step(self) -> int:
        return self.state.step

    def dump(self) -> tuple[Arrays, dict[str, Any]]:
        state = self.state.dump()
        arrays = {name: state.pop(name) for name in ("params", "first_moment", "second_moment")}
        return arrays, state

    def restore(self, arrays: Arrays, rest: dict[str, Any]) -> None:
        self.state = TrainState.restore({**arrays, **rest})


def make_trainer(spec: RunSpec) -> Trainer:
    """A trainer at step 0 of the run."""
    return find_family(spec.family).trainer(spec)
