"""Order-k Markov chains whose transition laws are drawn from a prior, one draw per sequence (sec:in-context).

    prior = HierarchicalDirichlet(order=2, vocab=5, eta=(5.0, 5.0))
    chains = prior.sample(batch=512, length=64, seed=0)
    chains.tokens, chains.next_law, chains.laws()

Two exact samplers of the same joint law. `explicit` draws the whole kernel, so that the true law after every
position is known. `collapsed` draws tokens from the urn (see `urn`), never builds the |V|^k table, and then draws the
one law it has to report, that of the last context, from its posterior given the urn.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int64
from numpy.typing import NDArray

from interp.chains.urn import draw_batch
from interp.notation import check_order, check_positive, check_vocab

Method: TypeAlias = Literal["explicit", "collapsed"]
Array: TypeAlias = NDArray[Any]

MAX_KERNEL_BYTES = 4 << 30


@dataclass(frozen=True, kw_only=True)
class ChainBatch:
    """Sequences with the law that produced what comes next.

    tokens    [batch, length] int64, without BOS
    next_law  [batch, vocab] float64: pi_{u_T}, the true law of the token after the last one
    kernel    [batch, |V|^k, vocab] float64, row = context code with lag 1 in the lowest digit; None if collapsed
    """

    tokens: Int64[torch.Tensor, "batch length"]
    next_law: Float[torch.Tensor, "batch vocab"]
    kernel: Float[torch.Tensor, "batch context vocab"] | None = field(repr=False)
    order: int
    vocab: int
    seed: int
    method: Method

    def __str__(self) -> str:
        batch, length = self.tokens.shape
        return (
            f"ChainBatch of {batch} sequences of {length} tokens\n"
            f"  order {self.order}, vocabulary {self.vocab}, seed {self.seed}, {self.method} sampler"
        )

    __repr__ = __str__

    def laws(self) -> Float[torch.Tensor, "batch length vocab"]:
        """The true law of the token after each position; uniform while fewer than k tokens have been seen."""
        if self.kernel is None:
            raise ValueError("collapsed chains keep no kernel; sample with method='explicit' to know every law")
        tokens = self.tokens.numpy()
        batch, length = tokens.shape
        codes = context_codes(tokens, order=self.order, vocab=self.vocab)
        laws = np.full((batch, length, self.vocab), 1.0 / self.vocab)
        laws[:, self.order - 1 :] = self.kernel.numpy()[np.arange(batch)[:, None], codes]
        return torch.from_numpy(laws)


@dataclass(frozen=True, kw_only=True)
class Prior(ABC):
    """A prior over order-k transition kernels, symmetric in the labels (eq:prior_symmetry)."""

    order: int
    vocab: int

    @abstractmethod
    def concentrations(self) -> Float[np.ndarray, " depth"]:
        """Total concentration at each depth 0..k of the context tree, as `urn.draw_chain` takes it."""

    @property
    @abstractmethod
    def independent(self) -> bool:
        """Whether contexts are independent (True) or centred on their suffix (False)."""

    @abstractmethod
    def draw_tree(self, batch: int, rng: np.random.Generator) -> dict[int, Float[np.ndarray, "batch context vocab"]]:
        """The law of every node of the context tree, by its depth (fig:task_priors); row = context code, lag 1 lowest.

        Depth k holds the kernel. Shallower depths are there only where the prior has laws for shorter contexts.
        """

    def draw_kernel(self, batch: int, rng: np.random.Generator) -> Float[np.ndarray, "batch context vocab"]:
        """One kernel per sequence; row = context code with lag 1 in the lowest digit."""
        return self.draw_tree(batch, rng)[self.order]

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """A JSON-able description, which `prior_from_dict` reads back."""

    def sample(self, *, batch: int, length: int, seed: int, method: Method = "explicit") -> ChainBatch:
        """`batch` sequences of `length` tokens; the same seed gives the same tokens on every run.

        >>> prior = IndependentDirichlet(order=2, vocab=3, alpha=1.0)
        >>> prior.sample(batch=4, length=8, seed=0).tokens.shape
        torch.Size([4, 8])
        """
        if batch < 1:
            raise ValueError(f"batch must be at least 1, got {batch}")
        if length <= self.order:
            raise ValueError(f"length must exceed the order: length {length}, order {self.order}")
        rng = np.random.default_rng(seed)
        if method == "explicit":
            tokens, next_law, kernel = self._sample_explicit(batch, length, rng)
        elif method == "collapsed":
            tokens, next_law = self._sample_collapsed(batch, length, rng)
            kernel = None
        else:
            raise ValueError(f"method must be 'explicit' or 'collapsed', got {method!r}")
        return ChainBatch(
            tokens=torch.from_numpy(tokens),
            next_law=torch.from_numpy(next_law),
            kernel=None if kernel is None else torch.from_numpy(kernel),
            order=self.order,
            vocab=self.vocab,
            seed=seed,
            method=method,
        )

    def _sample_explicit(self, batch: int, length: int, rng: np.random.Generator) -> tuple[Array, Array, Array]:
        kernel_bytes = 8 * batch * self.vocab ** (self.order + 1)
        if kernel_bytes > MAX_KERNEL_BYTES:
            raise ValueError(
                f"{batch} kernels of |V|^(k+1) = {self.vocab ** (self.order + 1)} numbers need "
                f"{kernel_bytes / 2**30:.1f} GiB; use method='collapsed', or fewer sequences"
            )
        kernel = self.draw_kernel(batch, rng)
        cumulative = np.cumsum(kernel, axis=-1)
        uniforms = rng.random((batch, length))
        tokens = np.empty((batch, length), dtype=np.int64)
        tokens[:, : self.order] = (uniforms[:, : self.order] * self.vocab).astype(np.int64)
        rows = np.arange(batch)
        code = context_codes(tokens[:, : self.order], order=self.order, vocab=self.vocab)[:, 0]
        for t in range(self.order, length):
            # The last cumulative entry may be 1 - 1e-16: never let a uniform above it name a token past the end.
            below = uniforms[:, t, None] >= cumulative[rows, code, :-1]
            tokens[:, t] = below.sum(axis=-1)
            code = (code * self.vocab + tokens[:, t]) % self.vocab**self.order
        return tokens, kernel[rows, code], kernel

    def _sample_collapsed(self, batch: int, length: int, rng: np.random.Generator) -> tuple[Array, Array]:
        concentrations = self.concentrations()
        uniforms = rng.random((batch, length))
        tokens = np.empty((batch, length), dtype=np.int64)
        customers = np.empty((batch, self.order + 1, self.vocab), dtype=np.int64)
        draw_batch(uniforms, tokens, customers, self.order, self.vocab, concentrations, self.independent)
        # Given the seating, the laws along the path are Dirichlet around their parent plus the customers.
        law = np.full((batch, self.vocab), 1.0 / self.vocab)
        for depth in range(self.order if self.independent else 0, self.order + 1):
            law = draw_dirichlet(concentrations[depth] * law + customers[:, depth], rng)
        return tokens, law


@dataclass(frozen=True, kw_only=True)
class IndependentDirichlet(Prior):
    """pi_u ~ Dirichlet(alpha, ..., alpha), independently for every context u in V^k."""

    alpha: float = 1.0

    def __post_init__(self) -> None:
        check_order(self.order)
        check_vocab(self.vocab)
        object.__setattr__(self, "alpha", check_positive(self.alpha, name="alpha"))

    @property
    def independent(self) -> bool:
        return True

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "independent", "order": self.order, "vocab": self.vocab, "alpha": self.alpha}

    def concentrations(self) -> Float[np.ndarray, " depth"]:
        return np.full(self.order + 1, self.alpha * self.vocab)

    def draw_tree(self, batch: int, rng: np.random.Generator) -> dict[int, Float[np.ndarray, "batch context vocab"]]:
        return {self.order: draw_dirichlet(np.full((batch, self.vocab**self.order, self.vocab), self.alpha), rng)}


@dataclass(frozen=True, kw_only=True)
class HierarchicalDirichlet(Prior):
    """pi_() ~ Dirichlet(eta0 1) and pi_c ~ Dirichlet(eta_l pi_{suffix of c}) for every context c of length l <= k.

    `eta` lists eta_1..eta_k. The paper does not give eta0; 1.0 is our choice.
    """

    eta: Sequence[float]
    eta0: float = 1.0

    def __post_init__(self) -> None:
        check_order(self.order)
        check_vocab(self.vocab)
        if isinstance(self.eta, (str, bytes)) or not hasattr(self.eta, "__len__"):
            raise ValueError(f"eta must list one number per level 1..{self.order}, got {self.eta!r}")
        eta = tuple(self.eta)
        if len(eta) != self.order:
            raise ValueError(f"eta must list one number per level 1..{self.order}, got {len(eta)}: {list(eta)}")
        object.__setattr__(self, "eta", tuple(check_positive(value, name="eta") for value in eta))
        object.__setattr__(self, "eta0", check_positive(self.eta0, name="eta0"))

    @property
    def independent(self) -> bool:
        return False

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": "hierarchical",
            "order": self.order,
            "vocab": self.vocab,
            "eta": list(self.eta),
            "eta0": self.eta0,
        }

    def concentrations(self) -> Float[np.ndarray, " depth"]:
        return np.array([self.eta0 * self.vocab, *self.eta], dtype=np.float64)

    def draw_tree(self, batch: int, rng: np.random.Generator) -> dict[int, Float[np.ndarray, "batch context vocab"]]:
        tree = {0: draw_dirichlet(np.full((batch, 1, self.vocab), float(self.eta0)), rng)}
        for level, eta in enumerate(self.eta, start=1):
            # Code c of length `level` has suffix code c mod |V|^(level-1), so the parents repeat |V| times in order.
            parents = np.tile(tree[level - 1], (1, self.vocab, 1))
            assert parents.shape[1] == self.vocab**level
            tree[level] = draw_dirichlet(eta * parents, rng)
        return tree


def prior_from_dict(values: dict[str, Any]) -> Prior:
    """The prior that `to_dict` described; unknown or missing keys are refused."""
    kinds: dict[str, type[Prior]] = {
        "independent": IndependentDirichlet,
        "hierarchical": HierarchicalDirichlet,
    }
    if not isinstance(values, dict):
        raise ValueError(f"a prior's description must be a dict, got {type(values).__name__}")
    kind = values.get("kind")
    if not isinstance(kind, str) or kind not in kinds:
        raise ValueError(f"prior kind must be one of {', '.join(kinds)}, got {kind!r}")
    try:
        return kinds[kind](**{name: value for name, value in values.items() if name != "kind"})
    except TypeError as error:
        raise ValueError(f"bad description of a {kind} prior: {error}") from error


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


def context_codes(tokens: Array, *, order: int, vocab: int) -> Int64[np.ndarray, "batch position"]:
    """The code of the length-k context that ends at each position >= k - 1; lag 1 is the lowest digit."""
    length = tokens.shape[1]
    codes = np.zeros((tokens.shape[0], length - order + 1), dtype=np.int64)
    for lag in range(1, order + 1):
        codes += tokens[:, order - lag : length - lag + 1] * vocab ** (lag - 1)
    return codes
