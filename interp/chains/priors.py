"""Order-k Markov chains whose transition laws are drawn from a prior, one draw per sequence (sec:in-context).

    prior = HierarchicalDirichlet(order=2, vocab=5, eta=(5.0, 5.0))
    chains = prior.sample(batch=512, length=64, seed=0)
    chains.tokens, chains.next_law, chains.laws()

Two exact samplers of the same joint law. `explicit` draws the whole kernel, so that the true law after every position
is known. `collapsed` draws tokens from the urn (see `urn`) and never builds the |V|^k table. It then draws one law,
that of the last context, from its posterior given the urn.

A prior has a `kind`, a text form, `hierarchical:5,5`, which every command takes, and a description, a dict, which
checkpoints keep (`descriptions` reads both). `register_prior` makes a new kind known to all of them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeAlias, TypeVar

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray

from interp.arguments import NumberField, NumbersField, Whole, WholeField, count, fits_memory, seed_number, shown
from interp.chains.batch import ChainBatch as ChainBatch
from interp.chains.batch import Method, context_codes
from interp.chains.dirichlet import draw_dirichlet
from interp.chains.symmetry import check_symmetric
from interp.chains.trie import trie_bytes
from interp.chains.urn import base_law, draw_batch
from interp.digits import shortest
from interp.notation import as_alpha, check_concentration, check_order, check_vocab

Array: TypeAlias = NDArray[Any]

DEFAULT_ETA = 5.0  # the paper's, at every level


@dataclass(frozen=True, kw_only=True)
class Prior(ABC):
    """A prior over order-k transition kernels.

    A prior is symmetric in the labels (eq:prior_symmetry) unless its alpha or eta0 is a vector.

    kind    the word that names it in texts, descriptions and tables
    form    how its text is written, for help and error messages
    """

    kind: ClassVar[str]
    form: ClassVar[str]

    order: WholeField
    vocab: WholeField

    def concentrations(self) -> Float[np.ndarray, " depth"]:
        """Total concentration at each depth 0..k of the context tree, as `urn.draw_chain` takes it."""
        raise ValueError(
            f"the {self.kind} prior is not a tree of Dirichlet laws, so it has no urn to train or to infer with "
            "(its chains are sampled with method='explicit')"
        )

    def seating(self) -> Float[np.ndarray, " number"]:
        """The urn's parameters: the concentration at each depth, then the cumulative base law unless it is uniform.

        `concentrations` refuses a prior that treats symbols differently: formulas that use it need label symmetry.
        """
        return self.concentrations()

    @property
    def symmetric(self) -> bool:
        """Whether no relabeling of the symbols changes the prior (eq:prior_symmetry)."""
        return True

    @property
    def independent(self) -> bool:
        """Whether contexts are independent (True) or centred on their suffix (False); for trees of Dirichlet laws."""
        self.concentrations()
        return False

    def pseudo_counts(self) -> Float[np.ndarray, " vocab"]:
        """The vector alpha of independent contexts: what the Bayes predictor adds to their counts."""
        if not self.independent:
            raise ValueError(f"contexts of the {self.kind} prior are not independent: no vector alpha describes them")
        return np.full(self.vocab, self.concentrations()[-1] / self.vocab)

    @abstractmethod
    def draw_tree(self, batch: int, rng: np.random.Generator) -> dict[int, Float[np.ndarray, "batch context vocab"]]:
        """The law of every node of the context tree, by its depth (fig:task_priors); row = context code, lag 1 lowest.

        Depth k holds the kernel. Smaller depths are present only if the prior has laws for shorter contexts.
        """

    @property
    @abstractmethod
    def text(self) -> str:
        """The short form that `parse_prior` reads back, given order and vocabulary.

        >>> HierarchicalDirichlet(order=2, vocab=5, eta=(5.0, 5.0)).text
        'hierarchical:5,5'
        """

    @classmethod
    @abstractmethod
    def from_numbers(cls, numbers: Sequence[Sequence[float]], *, order: int, vocab: int) -> Prior:
        """The prior of a text KIND:a,b:c from its lists of numbers, ((a, b), (c,)).

        Lists that do not fit are a `ValueError`.
        """

    def draw_kernel(self, batch: int, rng: np.random.Generator) -> Float[np.ndarray, "batch context vocab"]:
        """One kernel per sequence; row = context code with lag 1 in the lowest digit."""
        return self.draw_tree(batch, rng)[self.order]

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able description, which `prior_from_dict` reads back: the kind and every field."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {"kind": self.kind} | {
            name: list(value) if isinstance(value, tuple) else value for name, value in values.items()
        }

    def sample(self, *, batch: Whole, length: Whole, seed: Whole, method: Method = "explicit") -> ChainBatch:
        """`batch` sequences of `length` tokens; the same seed gives the same tokens on every run.

        >>> prior = IndependentDirichlet(order=2, vocab=3, alpha=1.0)
        >>> prior.sample(batch=4, length=8, seed=0).tokens.shape
        torch.Size([4, 8])
        """
        batch, length, seed = count(batch, name="batch"), count(length, name="length", least=0), seed_number(seed)
        if length <= self.order:
            raise ValueError(f"length must exceed the order: length {length}, order {self.order}")
        fits_memory(8 * batch * length, what=f"{batch} sequences of {length} tokens")
        rng = np.random.default_rng(seed)
        if method == "explicit":
            tokens, next_law, kernel = self._sample_explicit(batch, length, rng)
        elif method == "collapsed":
            tokens, next_law = self._sample_collapsed(batch, length, rng)
            kernel = None
        else:
            raise ValueError(f"method must be 'explicit' or 'collapsed', got {shown(method)}")
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
        numbers = self.vocab ** (self.order + 1)
        fits_memory(
            8 * batch * numbers,
            what=f"{batch} kernels of |V|^(k+1) = {shown(numbers)} numbers",
            instead="use method='collapsed', or fewer sequences",
        )
        kernel = self.draw_kernel(batch, rng)
        cumulative = np.cumsum(kernel, axis=-1)
        uniforms = rng.random((batch, length))
        tokens = np.empty((batch, length), dtype=np.int64)
        tokens[:, : self.order] = (uniforms[:, : self.order] * self.vocab).astype(np.int64)
        rows = np.arange(batch)
        code = context_codes(tokens[:, : self.order], order=self.order, vocab=self.vocab)[:, 0]
        for t in range(self.order, length):
            # The last cumulative entry may be 1 - 1e-16: a uniform number above it must not give a token past the end.
            below = uniforms[:, t, None] >= cumulative[rows, code, :-1]
            tokens[:, t] = below.sum(axis=-1)
            code = (code * self.vocab + tokens[:, t]) % self.vocab**self.order
        return tokens, kernel[rows, code], kernel

    def _sample_collapsed(self, batch: int, length: int, rng: np.random.Generator) -> tuple[Array, Array]:
        concentrations = self.seating()
        fits_memory(trie_bytes(length, self.order, self.vocab), what="the contexts of one sequence")
        fits_memory(8 * batch * (self.order + 1) * self.vocab, what="the customers of the last contexts")
        uniforms = rng.random((batch, length))
        tokens = np.empty((batch, length), dtype=np.int64)
        customers = np.empty((batch, self.order + 1, self.vocab), dtype=np.int64)
        draw_batch(uniforms, tokens, customers, self.order, self.vocab, concentrations, self.independent)
        # Given the seating, the laws along the path are Dirichlet around their parent plus the customers.
        base = np.empty(self.vocab)
        base_law(base, self.order, self.vocab, concentrations)
        law = np.tile(base, (batch, 1))
        for depth in range(self.order if self.independent else 0, self.order + 1):
            law = draw_dirichlet(concentrations[depth] * law + customers[:, depth], rng)
        return tokens, law


PRIORS: dict[str, type[Prior]] = {}
P = TypeVar("P", bound=type[Prior])


def register_prior(prior: P) -> P:
    """Make a kind of prior known to `parse_prior`, `prior_from_dict` and so to every command; a class decorator."""
    kind = getattr(prior, "kind", None)
    if not (isinstance(prior, type) and issubclass(prior, Prior) and isinstance(kind, str)):
        raise ValueError(f"a kind of prior is a class derived from Prior, with a text as `kind`; got {shown(prior)}")
    if PRIORS.get(kind, prior) is not prior:
        raise ValueError(f"there is a {prior.kind} prior already: {PRIORS[prior.kind].__name__}")
    PRIORS[prior.kind] = prior
    return prior


@register_prior
@dataclass(frozen=True, kw_only=True)
class IndependentDirichlet(Prior):
    """pi_u ~ Dirichlet(alpha), independently for every context u in V^k.

    `alpha` is one number for all symbols, or one per symbol. With unequal numbers the prior has no label symmetry.
    Chains can then be sampled, and the Bayes predictor is exact (eq:bayes_optimal_markov), but models cannot be
    trained.

    >>> IndependentDirichlet(order=1, vocab=3, alpha=(0.5, 1.0, 2.0)).text
    'independent:0.5,1,2'
    """

    kind: ClassVar[str] = "independent"
    form: ClassVar[str] = "independent[:ALPHA,...]"

    alpha: NumberField | NumbersField = 1.0

    def __post_init__(self) -> None:
        _keep_plain(self, order=check_order(self.order), vocab=check_vocab(self.vocab))
        values = tuple(as_alpha(self.alpha, vocab=self.vocab).tolist())
        _keep_plain(self, alpha=values[0] if len(set(values)) == 1 else values)

    @property
    def independent(self) -> bool:
        return True

    @property
    def text(self) -> str:
        return f"independent:{','.join(map(shortest, (self.alpha,) if isinstance(self.alpha, float) else self.alpha))}"

    @classmethod
    def from_numbers(cls, numbers: Sequence[Sequence[float]], *, order: int, vocab: int) -> IndependentDirichlet:
        """A single ALPHA serves all symbols."""
        if len(numbers) > 1:
            raise ValueError("too many numbers")
        given = tuple(numbers[0]) if numbers else (1.0,)
        return cls(order=order, vocab=vocab, alpha=given[0] if len(given) == 1 else given)

    @property
    def symmetric(self) -> bool:
        return isinstance(self.alpha, float)

    def concentrations(self) -> Float[np.ndarray, " depth"]:
        check_symmetric(self, what="A concentration for each depth needs label symmetry")
        assert isinstance(self.alpha, float)
        return np.full(self.order + 1, self.alpha * self.vocab)

    def seating(self) -> Float[np.ndarray, " number"]:
        if isinstance(self.alpha, float):
            return self.concentrations()
        total = math.fsum(self.alpha)
        return np.append(np.full(self.order + 1, total), np.cumsum(self.alpha) / total)

    def pseudo_counts(self) -> Float[np.ndarray, " vocab"]:
        return as_alpha(self.alpha, vocab=self.vocab)

    def draw_tree(self, batch: int, rng: np.random.Generator) -> dict[int, Float[np.ndarray, "batch context vocab"]]:
        contexts = self.vocab**self.order
        return {self.order: draw_dirichlet(np.tile(self.pseudo_counts(), (batch, contexts, 1)), rng)}


@register_prior
@dataclass(frozen=True, kw_only=True)
class HierarchicalDirichlet(Prior):
    """pi_() ~ Dirichlet(eta0 1) and pi_c ~ Dirichlet(eta_l pi_{suffix of c}) for every context c of length l <= k.

    `eta` lists eta_1..eta_k. The paper does not give eta0; 1.0 is our choice. `eta0` is one number for all symbols, or
    one per symbol: pi_() ~ Dirichlet(eta0). With unequal numbers the prior has no label symmetry. Sampling, the Bayes
    predictor and the search for the best soft matching accept it; training and the predicted optimum do not.

    >>> HierarchicalDirichlet(order=2, vocab=3, eta=(5, 5), eta0=(4, 1, 1)).text
    'hierarchical:5,5:4,1,1'
    """

    kind: ClassVar[str] = "hierarchical"
    form: ClassVar[str] = "hierarchical[:ETA,...[:ETA0,...]]"

    eta: NumbersField
    eta0: NumberField | NumbersField = 1.0

    def __post_init__(self) -> None:
        _keep_plain(self, order=check_order(self.order), vocab=check_vocab(self.vocab))
        if isinstance(self.eta, (str, bytes)) or not hasattr(self.eta, "__len__"):
            raise ValueError(f"eta must list one number per level 1..{self.order}, got {shown(self.eta)}")
        eta = tuple(self.eta)
        if len(eta) != self.order:
            raise ValueError(f"eta must list one number per level 1..{self.order}, got {len(eta)}: {shown(list(eta))}")
        _keep_plain(self, eta=tuple(check_concentration(value, name="eta") for value in eta))
        base = tuple(as_alpha(self.eta0, vocab=self.vocab, name="eta0").tolist())
        _keep_plain(self, eta0=base[0] if len(set(base)) == 1 else base)

    @property
    def independent(self) -> bool:
        return False

    @property
    def text(self) -> str:
        base = (self.eta0,) if isinstance(self.eta0, float) else self.eta0
        root = "" if self.eta0 == 1.0 else f":{','.join(map(shortest, base))}"
        return f"hierarchical:{','.join(map(shortest, self.eta))}{root}"

    @classmethod
    def from_numbers(cls, numbers: Sequence[Sequence[float]], *, order: int, vocab: int) -> HierarchicalDirichlet:
        """A single ETA serves all levels, a single ETA0 all symbols."""
        if len(numbers) > 2:
            raise ValueError("too many numbers")
        eta = tuple(numbers[0]) if numbers else (DEFAULT_ETA,)
        base = tuple(numbers[1]) if len(numbers) == 2 else (1.0,)
        return cls(
            order=order,
            vocab=vocab,
            eta=eta * order if len(eta) == 1 else eta,
            eta0=base[0] if len(base) == 1 else base,
        )

    @property
    def symmetric(self) -> bool:
        return isinstance(self.eta0, float)

    def concentrations(self) -> Float[np.ndarray, " depth"]:
        check_symmetric(self, what="A concentration for each depth needs label symmetry")
        assert isinstance(self.eta0, float)
        return np.array([self.eta0 * self.vocab, *self.eta], dtype=np.float64)

    def seating(self) -> Float[np.ndarray, " number"]:
        if isinstance(self.eta0, float):
            return self.concentrations()
        total = math.fsum(self.eta0)
        return np.array([total, *self.eta, *(np.cumsum(self.eta0) / total)], dtype=np.float64)

    def draw_tree(self, batch: int, rng: np.random.Generator) -> dict[int, Float[np.ndarray, "batch context vocab"]]:
        tree = {0: draw_dirichlet(np.tile(as_alpha(self.eta0, vocab=self.vocab), (batch, 1, 1)), rng)}
        for level, eta in enumerate(self.eta, start=1):
            # Code c of length `level` has suffix code c mod |V|^(level-1), so the parents repeat |V| times in order.
            parents = np.tile(tree[level - 1], (1, self.vocab, 1))
            assert parents.shape[1] == self.vocab**level
            tree[level] = draw_dirichlet(eta * parents, rng)
        return tree


def _keep_plain(prior: Prior, **values: Any) -> None:
    """Replace what was given by Python's own numbers, because descriptions are written as JSON."""
    for name, value in values.items():
        object.__setattr__(prior, name, value)


def check_prior(prior: Any) -> Prior:
    """A prior, or a `ValueError` that says what is expected."""
    if not isinstance(prior, Prior):
        raise ValueError(
            f"expected a prior, such as HierarchicalDirichlet(order=2, vocab=5, eta=(5, 5)), got {shown(prior)}"
        )
    return prior
