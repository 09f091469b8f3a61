"""Adam on a flat vector of parameters in compiled code, and the state of a run that uses it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from models.compiled import njit

Array: TypeAlias = np.ndarray[Any, Any]
TargetKind: TypeAlias = Literal["token", "law"]


@njit(error_model="numpy")
def adam(
    params: Array, grad: Array, first: Array, second: Array, mask: Array, step: int, lr: float, beta1: float,
    beta2: float, epsilon: float,
) -> None:  # fmt: skip
    """One step of torch.optim.Adam (no weight decay, no amsgrad), in its order of operations."""
    dtype = params.dtype
    size = dtype.type(lr / (1.0 - beta1**step))
    root = dtype.type(np.sqrt(1.0 - beta2**step))
    keep2, take1, take2, eps = dtype.type(beta2), dtype.type(1.0 - beta1), dtype.type(1.0 - beta2), dtype.type(epsilon)
    for i in range(params.shape[0]):
        g = grad[i] * mask[i]
        first[i] += take1 * (g - first[i])
        second[i] = keep2 * second[i] + take2 * g * g
        params[i] -= size * first[i] / (np.sqrt(second[i]) / root + eps)


@dataclass(kw_only=True)
class TrainState:
    """All that a run needs to continue bit for bit: the parameters, Adam's two moments, the step, and the generator.

    `train_chunk` changes it in place. The dtype of `params` is the dtype of the arithmetic (float32 or float64).
    """

    params: Array
    generator: np.random.Generator
    first_moment: Array = None  # type: ignore[assignment]  # zeros, once params are known
    second_moment: Array = None  # type: ignore[assignment]
    step: int = 0

    def __post_init__(self) -> None:
        self.params = np.array(self.params, order="C")  # training writes to it
        for name in ("first_moment", "second_moment"):
            moment = getattr(self, name)
            moment = np.zeros_like(self.params) if moment is None else np.array(moment, order="C")
            if moment.shape != self.params.shape:  # compiled loops do not look where an array ends
                raise ValueError(f"{name} must have the shape of params, got {moment.shape}")
            setattr(self, name, moment)

    def dump(self) -> dict[str, Any]:
        """Copies of the arrays, the step, and the state of the generator: all of it plain data."""
        return {
            "params": self.params.copy(),
            "first_moment": self.first_moment.copy(),
            "second_moment": self.second_moment.copy(),
            "step": self.step,
            "generator": self.generator.bit_generator.state,
        }

    @classmethod
    def restore(cls, data: dict[str, Any]) -> TrainState:
        """The state that `dump` described."""
        fields = {key: np.array(data[key]) for key in ("params", "first_moment", "second_moment")}
        return cls(generator=restored_generator(data["generator"]), step=int(data["step"]), **fields)


def restored_generator(state: dict[str, Any]) -> np.random.Generator:
    """The generator whose state this is. All are of one kind: a name from a file would choose what is called."""
    generator = np.random.default_rng(0)
    generator.bit_generator.state = state
    return generator
