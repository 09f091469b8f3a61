"""A batch of chains: the sequences, and the true distribution of the next token of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int64
from numpy.typing import NDArray

if TYPE_CHECKING:
    from interp.chains.priors import Prior

Method: TypeAlias = Literal["explicit", "collapsed"]
Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class ChainBatch:
    """Sequences, each with the true distribution of its next token.

    tokens    [batch, length] int64, without BOS
    next_law  [batch, vocab] float64: pi_{u_T}, the true distribution of the token after the last one
    kernel    [batch, |V|^k, vocab] float64, row = context code with lag 1 in the lowest digit; None if collapsed
    prior     what the chains were drawn from
    seed      the seed that gives the same chains again
    method    the sampler, "explicit" or "collapsed"
    """

    tokens: Int64[torch.Tensor, "batch length"]
    next_law: Float[torch.Tensor, "batch vocab"]
    kernel: Float[torch.Tensor, "batch context vocab"] | None = field(repr=False)
    prior: Prior
    seed: int
    method: Method

    @property
    def order(self) -> int:
        """k of the chains."""
        return self.prior.order

    @property
    def vocab(self) -> int:
        """|V|."""
        return self.prior.vocab

    def __str__(self) -> str:
        batch, length = self.tokens.shape
        return (
            f"ChainBatch of {batch} sequences of {length} tokens\n"
            f"  order {self.order}, vocabulary {self.vocab}, seed {self.seed}, {self.method} sampler"
        )

    __repr__ = __str__

    def laws(self) -> Float[torch.Tensor, "batch length vocab"]:
        """The true distribution of the token after each position; uniform while fewer than k tokens have been seen.

        Collapsed chains draw it on demand, for the contexts that occur, from the posterior given the urn. So it is
        exact, and the same at every call.
        """
        if self.kernel is None:
            return self.prior.draw_laws(self)
        tokens = self.tokens.numpy()
        batch, length = tokens.shape
        codes = context_codes(tokens, order=self.order, vocab=self.vocab)
        laws = np.full((batch, length, self.vocab), 1.0 / self.vocab)
        laws[:, self.order - 1 :] = self.kernel.numpy()[np.arange(batch)[:, None], codes]
        return torch.from_numpy(laws)


def context_codes(tokens: Array, *, order: int, vocab: int) -> Int64[np.ndarray, "batch position"]:
    """The code of the length-k context that ends at each position >= k - 1; lag 1 is the lowest digit."""
    length = tokens.shape[1]
    codes = np.zeros((tokens.shape[0], length - order + 1), dtype=np.int64)
    for lag in range(1, order + 1):
        codes += tokens[:, order - lag : length - lag + 1] * vocab ** (lag - 1)
    return codes
