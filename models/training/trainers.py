"""One interface for the families' trainers: advance, predict, save, restore, and convert to a HookedTransformer.

A trainer's whole state is `dump()`: arrays, and a JSON-able dict with the step and the generator. Restored from it, a
trainer continues bit for bit. `register_family` adds a family with its code.
"""

from __future__ import annotations

import pkgutil
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
    """The functions that train a family and run it fast; as text where they are imported when they are needed.

    trainer   makes the trainer of a run, at step 0
    predict   (model, tokens) to laws: the numbers of `interp.predict`, thousands of long sequences in seconds
    """

    trainer: Callable[[RunSpec], Trainer] | str
    predict: Callable[[InductionTransformer, Tensor], Tensor] | str


CODE = {
    CONSTRUCTION.name: Code(
        trainer="models.families.construction:ConstructionTrainer",
        predict="models.families.disentangled.training:predict_hooked",
    ),
    DISENTANGLED.name: Code(
        trainer="models.families.disentangled.training:DisentangledTrainer",
        predict="models.families.disentangled.training:predict_hooked",
    ),
    STANDARD.name: Code(
        trainer="models.families.standard.trainer:StandardTrainer",
        predict="models.families.standard:predict_hooked",
    ),
}


def make_trainer(spec: RunSpec) -> Trainer:
    """A trainer at step 0 of the run."""
    trainer: Trainer = _resolved(code_of(spec.family).trainer)(spec)
    return trainer


def fast_predict(model: InductionTransformer, tokens: Tensor) -> Tensor:
    """`interp.predict` by the family's own fast forward."""
    law: Tensor = _resolved(code_of(model.config.family).predict)(model, tokens)
    return law


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


def _resolved(code: Any) -> Any:
    return pkgutil.resolve_name(code) if isinstance(code, str) else code
