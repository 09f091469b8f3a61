"""One interface for the families' trainers: advance, predict, save, restore, and convert to a HookedTransformer.

A trainer's whole state is `dump()`: arrays, and a JSON-able dict with the step and the generator. Restored from it, a
trainer continues bit for bit. `register_family` adds a family with its code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from interp.hooked.transformer import InductionConfig, InductionTransformer
from models.families.registry import CONSTRUCTION, DISENTANGLED, STANDARD, Family, describe_family, find_family
from models.training.adam import TrainState
from models.training.spec import RunSpec

Arrays = dict[str, np.ndarray]


class Trainer(Protocol):
    """What the run loop needs from a family."""

    @property
    def step(self) -> int:
        """Steps taken so far."""

    def advance(self, learning_rates: np.ndarray) -> np.ndarray:
        """One step per rate; returns the loss of each. A loss that is not finite means that the run has diverged."""

    def predict(self, tokens: np.ndarray) -> np.ndarray:
        """[batch, vocab] laws of the next token, by the current weights."""

    def reading(self) -> tuple[list[float], float | None]:
        """beta per lag and kappa of the current weights; NaN where the weights do not determine them."""

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


@dataclass(frozen=True, kw_only=True)
class Code:
    """The functions that train a family and run it fast.

    trainer   makes the trainer of a run, at step 0
    predict   (model, tokens) to laws: the numbers of `interp.predict`, thousands of long sequences in seconds
    """

    trainer: Callable[[RunSpec], Trainer]
    predict: Callable[[InductionTransformer, Tensor], Tensor]


def make_trainer(spec: RunSpec) -> Trainer:
    """A trainer at step 0 of the run."""
    return code_of(spec.family).trainer(spec)


def fast_predict(model: InductionTransformer, tokens: Tensor) -> Tensor:
    """`interp.predict` by the family's own fast forward."""
    return code_of(model.config.family).predict(model, tokens)


def code_of(family: str) -> Code:
    """The code of a family."""
    if find_family(family).name not in CODE:
        raise ValueError(f"the {family} family is described, but nothing trains it: see register_family")
    return CODE[family]


def register_family(
    family: Family,
    *,
    trainer: Callable[[RunSpec], Trainer],
    predict: Callable[[InductionTransformer, Tensor], Tensor],
) -> Family:
    """Add a family: its description, and the code that trains it and runs it."""
    describe_family(family)
    CODE[family.name] = Code(trainer=trainer, predict=predict)
    return family


# Imported where they are needed: each imports compiled code or torch.


def _train_construction(spec: RunSpec) -> Trainer:
    from models.families.construction import ConstructionTrainer

    return ConstructionTrainer(spec)


def _train_disentangled(spec: RunSpec) -> Trainer:
    from models.families.disentangled.training import DisentangledTrainer

    return DisentangledTrainer(spec)


def _train_standard(spec: RunSpec) -> Trainer:
    from models.families.standard.trainer import StandardTrainer

    return StandardTrainer(spec)


def _predict_blocks(model: InductionTransformer, tokens: Tensor) -> Tensor:
    from models.families.disentangled.training import predict_hooked

    return predict_hooked(model, tokens)


def _predict_standard(model: InductionTransformer, tokens: Tensor) -> Tensor:
    from models.families.standard import predict_hooked

    return predict_hooked(model, tokens)


CODE = {
    CONSTRUCTION.name: Code(trainer=_train_construction, predict=_predict_blocks),
    DISENTANGLED.name: Code(trainer=_train_disentangled, predict=_predict_blocks),
    STANDARD.name: Code(trainer=_train_standard, predict=_predict_standard),
}
