"""Exact draws from Dirichlet distributions."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]


def draw_dirichlet(concentration: Array, rng: np.random.Generator) -> Array:
    """One Dirichlet draw per row of the last axis, exact also where concentrations are so small that gammas
    underflow.

    log Gamma(a) variates come from Gamma(a + 1) U^(1/a), and the normalisation is done in logs.
    """
    gammas = np.log(rng.standard_gamma(concentration + 1.0))
    with np.errstate(divide="ignore", over="ignore"):
        gammas += np.log(rng.random(concentration.shape)) / concentration
    gammas -= gammas.max(axis=-1, keepdims=True)
    weights = np.exp(gammas)
    law: Array = weights / weights.sum(axis=-1, keepdims=True)
    return law
