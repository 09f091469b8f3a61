"""A training sequence and what follows it, from uniform numbers: compiled, for the inner loop of every trainer."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from interp.chains.urn import draw_chain, predictive_law
from models.compiled import njit

Array: TypeAlias = np.ndarray[Any, Any]


@njit()
def draw_task(
    uniforms: Array, tokens: Array, target: Array, order: int, vocab: int, concentrations: Array, independent: bool,
    by_law: bool, urn: Any,
) -> None:  # fmt: skip
    """Write one sequence into `tokens` and, into `target`, the urn's law of its next token, or one token drawn from it.

    `uniforms` has a number for every token, and one for the next token where it is drawn.
    """
    length = tokens.shape[0]
    draw_chain(uniforms[:length], tokens, order, vocab, concentrations, independent, urn)
    predictive_law(target, order, vocab, concentrations, independent, urn)
    if not by_law:
        left, chosen = uniforms[length], 0
        while chosen < vocab - 1 and left >= target[chosen]:
            left -= target[chosen]
            chosen += 1
        target[:] = 0.0
        target[chosen] = 1.0


@njit()
def fill(generator: np.random.Generator, uniforms: Array, count: int) -> None:
    """The generator's next `count` numbers."""
    for place in range(count):
        uniforms[place] = generator.random()
