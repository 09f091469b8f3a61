"""Sequences that repeat: the data on which induction heads are usually looked for, in the form of a prior.

    prior = Repeats(order=1, vocab=32, shortest=8, longest=32)
    prior.sample(batch=64, length=80, seed=0).tokens

Every sequence has a period of its own, drawn evenly from `shortest` to `longest`. One period of tokens is drawn evenly,
and repeated to the end. With a fixed period a model would learn to copy from that distance, without matching.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int64

from interp.arguments import WholeField, count
from interp.chains.batch import ChainBatch
from interp.chains.priors import Array, Prior, register_prior
from interp.notation import check_order, check_vocab


@register_prior
@dataclass(frozen=True, kw_only=True)
class Repeats(Prior):
    """Even draws of one period, repeated. `order` is the length of the contexts that an analysis looks at.

    The true distribution of the next token is even within the first period, and certain from its end on.

    >>> Repeats(order=1, vocab=5).text
    'repeats:8,32'
    >>> Repeats(order=1, vocab=5, shortest=2, longest=2).sample(batch=1, length=5, seed=0).tokens
    tensor([[4, 3, 4, 3, 4]])
    """

    kind: ClassVar[str] = "repeats"
    form: ClassVar[str] = "repeats[:SHORTEST,LONGEST]"

    shortest: WholeField = 8
    longest: WholeField = 32

    def __post_init__(self) -> None:
        shortest = count(self.shortest, name="shortest")
        kept = {"order": check_order(self.order), "vocab": check_vocab(self.vocab), "shortest": shortest}
        for name, value in {**kept, "longest": count(self.longest, name="longest", least=shortest)}.items():
            object.__setattr__(self, name, value)

    @property
    def text(self) -> str:
        return f"repeats:{self.shortest},{self.longest}"

    @classmethod
    def from_numbers(cls, numbers: Sequence[Sequence[float]], *, order: int, vocab: int) -> Repeats:
        """No numbers, or the two periods."""
        if not numbers:
            return cls(order=order, vocab=vocab)
        if [len(part) for part in numbers] != [2] or any(value != int(value) for value in numbers[0]):
            raise ValueError("it takes two whole numbers")
        shortest, longest = (int(value) for value in numbers[0])
        return cls(order=order, vocab=vocab, shortest=shortest, longest=longest)

    def draw_tree(self, batch: int, rng: np.random.Generator) -> dict[int, Float[np.ndarray, "batch context vocab"]]:
        raise ValueError("sequences that repeat have no kernel: their next token depends on the period")

    def draw_laws(self, chains: ChainBatch) -> Float[torch.Tensor, "batch length vocab"]:
        """The true distribution after each position, given the period."""
        batch, length = chains.tokens.shape
        period, tokens = self._draw(batch, length + 1, np.random.default_rng(chains.seed))
        laws = np.full((batch, length, self.vocab), 1.0 / self.vocab)
        known = np.arange(1, length + 1) >= period
        laws[known] = np.eye(self.vocab)[tokens[:, 1:][known]]
        return torch.from_numpy(laws)

    def _sample_explicit(self, batch: int, length: int, rng: np.random.Generator) -> tuple[Array, Array, None]:
        period, tokens = self._draw(batch, length + 1, rng)
        certain = np.eye(self.vocab)[tokens[:, -1]]
        return tokens[:, :-1].copy(), np.where(period <= length, certain, 1.0 / self.vocab), None

    def _draw(
        self, batch: int, length: int, rng: np.random.Generator
    ) -> tuple[Int64[np.ndarray, "batch 1"], Int64[np.ndarray, "batch length"]]:
        """The period of each sequence, and the sequences."""
        period = rng.integers(self.shortest, self.longest + 1, size=(batch, 1))
        drawn = rng.integers(self.vocab, size=(batch, self.longest))
        return period, np.take_along_axis(drawn, np.arange(length) % period, axis=1)
