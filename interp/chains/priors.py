"""Order-k Markov chains whose transition laws are drawn from a prior, one draw per sequence (sec:in-context).

    prior = HierarchicalDirichlet(order=2, vocab=5, eta=(5.0, 5.0))
    chains = prior.sample(batch=512, length=64, seed=0)
    chains.tokens, chains.next_law, chains.laws()

Two exact samplers of the same joint law. `collapsed` draws tokens from the urn (see `urn`) and never builds the |V|^k
table. It then draws the law of the last context from its posterior given the urn; `laws()` draws those of the other
contexts that occur. `explicit` draws the whole kernel first. Priors without an urn have this one alone.

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
from interp.chains.trie import trie_bytes
from interp.chains.urn import base_law, draw_batch, draw_visited_laws
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
    order   k, the number of tokens of a context
    vocab   |V|, the number of symbols
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

    def require_symmetry(self, what: str) -> None:
        """Refuse a prior that treats symbols differently; `what` says which step needs label symmetry, and why."""
        if not self.symmetric:
            raise ValueError(
                f"the prior {self.text} treats symbols differently. {what}: give one alpha or eta0 for all symbols "
                "(sampling, the estimators and Bayes take unequal ones)"
            )

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

        `rng` draws one tree for each of `batch` sequences. Depth k holds the kernel. Smaller depths are present only if
        the prior has laws for shorter contexts.
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
        """The prior of a text KIND:a,b:c from its lists of `numbers`, ((a, b), (c,)), given `order` and `vocab`.

        Lists that do not fit are a `ValueError`.
        """

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able description, which `prior_from_dict` reads back: the kind and every field."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {"kind": self.kind} | {
            name: list(value) if isinstance(value, tuple) else value for name, value in values.items()
        }

    def sample(self, *, batch: Whole, length: Whole, seed: Whole, method: Method | None = None) -> ChainBatch:
        """Sequences of the prior; the same seed and method give the same tokens on every run.

        Parameters
        ----------
        batch
            How many sequences; each has a kernel of its own.
        length
            Tokens of a sequence, more than the order.
        seed
            Of the random numbers.
        method
            "collapsed", the urn, which is the default where the prior has one, or "explicit", which draws all |V|^k
            laws of a kernel and keeps them.

        Returns
        -------
        ChainBatch
            The tokens, and the true distribution of the next token.

        Examples
        --------
        >>> prior = IndependentDirichlet(order=2, vocab=3, alpha=1.0)
        >>> prior.sample(batch=4, length=8, seed=0).tokens.shape
        torch.Size([4, 8])
        """
        batch, seed = count(batch, name="batch"), seed_number(seed)
        length = count(length, name="length", least=self.order + 1)
        fits_memory(8 * batch * length, what=f"{batch} sequences of {length} tokens")
        if method is None:
            method = "collapsed" if self._has_urn() else "explicit"
        kernel = None
        if method == "explicit":
            tokens, next_law, kernel = self._sample_explicit(batch, length, np.random.default_rng(seed))
        elif method == "collapsed":
            tokens, laws, *_ = self._sample_collapsed(batch, length, seed)
            next_law = laws[-1]
        else:
            raise ValueError(f"method must be 'explicit' or 'collapsed', got {shown(method)}")
        return ChainBatch(
            tokens=torch.from_numpy(tokens),
            next_law=torch.from_numpy(next_law),
            kernel=None if kernel is None else torch.from_numpy(kernel),
            prior=self,
            seed=seed,
            method=method,
        )

    def draw_laws(self, chains: ChainBatch) -> Float[torch.Tensor, "batch length vocab"]:
        """`ChainBatch.laws` of collapsed `chains`: the urn is run again, and its contexts get their laws."""
        batch, length = chains.tokens.shape
        fits_memory(8 * batch * length * self.vocab, what="the laws after each position")
        tokens, last, uniforms, rng = self._sample_collapsed(batch, length, chains.seed)
        if not np.array_equal(tokens, chains.tokens.numpy()):
            raise ValueError(
                f"the tokens are not those that the prior draws at seed {chains.seed}: their laws are unknown"
            )
        laws = np.full((batch, length, self.vocab), 1.0 / self.vocab)
        draw_visited_laws(uniforms, last, self.order, self.vocab, self.seating(), self.independent, rng, laws)
        return torch.from_numpy(laws)

    def _has_urn(self) -> bool:
        try:
            self.seating()
        except ValueError:
            return False
        return True

    def _sample_explicit(self, batch: int, length: int, rng: np.random.Generator) -> tuple[Array, Array, Array | None]:
        """Tokens, the distribution of the token after the last one, and the kernels where there are any."""
        numbers = self.vocab ** (self.order + 1)
        fits_memory(
            8 * batch * numbers,
            what=f"{batch} kernels of |V|^(k+1) = {shown(numbers)} numbers",
            instead="use method='collapsed', or fewer sequences",
        )
        kernel = self.draw_tree(batch, rng)[self.order]
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

    def _sample_collapsed(self, batch: int, length: int, seed: int) -> tuple[Array, Array, Array, np.random.Generator]:
        """Tokens; the laws along each last context's path, the context's own last; then what they were drawn with."""
        concentrations, rng = self.seating(), np.random.default_rng(seed)
        fits_memory(trie_bytes(length, self.order, self.vocab), what="the contexts of one sequence")
        fits_memory(8 * batch * (self.order + 1) * self.vocab, what="the customers of the last contexts")
        uniforms = rng.random((batch, length))
        tokens = np.empty((batch, length), dtype=np.int64)
        customers = np.empty((batch, self.order + 1, self.vocab), dtype=np.int64)
        draw_batch(uniforms, tokens, customers, self.order, self.vocab, concentrations, self.independent)
        # Given the seating, the laws along the path are Dirichlet around their parent plus the customers.
        base = np.empty(self.vocab)
        base_law(base, self.order, self.vocab, concentrations)
        laws = [np.tile(base, (batch, 1))]
        for depth in range(self.order if self.independent else 0, self.order + 1):
            laws.append(draw_dirichlet(concentrations[depth] * laws[-1] + customers[:, depth], rng))
        return tokens, np.stack(laws[1:]), uniforms, rng


PRIORS: dict[str, type[Prior]] = {}
P = TypeVar("P", bound=type[Prior])


def register_prior(prior: P) -> P:
    """Make a kind of prior known to `parse_prior`, `prior_from_dict` and so to every command; a class decorator.

    Parameters
    ----------
    prior
        The class, which names its `kind`.

    Returns
    -------
    type
        The class itself.

    Examples
    --------
    >>> register_prior(IndependentDirichlet).kind
    'independent'
    """
    if PRIORS.get(prior.kind, prior) is not prior:
        raise ValueError(f"there is a {prior.kind} prior already: {PRIORS[prior.kind].__name__}")
    PRIORS[prior.kind] = prior
    return prior


@dataclass(frozen=True, kw_only=True)
class DirichletTree(Prior):
    """What the two priors of the paper share: a tree of Dirichlet laws above one base, alpha or eta0.

    The base is one number for all symbols, or one per symbol. With unequal numbers the prior has no label symmetry:
    sampling, the Bayes predictor and the search for the best soft matching accept it, training and closed forms do not.
    """

    def _base(self) -> float | Sequence[float]:
        raise NotImplementedError

    def _totals(self, base: float) -> list[float]:
        """The concentration at each depth, given the base's total."""
        raise NotImplementedError

    @property
    def symmetric(self) -> bool:
        return isinstance(self._base(), float)

    def concentrations(self) -> Float[np.ndarray, " depth"]:
        self.require_symmetry("A concentration for each depth needs label symmetry")
        return self.seating()

    def seating(self) -> Float[np.ndarray, " number"]:
        base = self._base()
        if isinstance(base, float):
            return np.array(self._totals(base * self.vocab))
        total = math.fsum(base)
        return np.array([*self._totals(total), *(np.cumsum(base) / total)])

    def _base_text(self) -> str:
        base = self._base()
        return ",".join(map(shortest, (base,) if isinstance(base, float) else base))

    def _keep(self, **values: Any) -> None:
        """Replace what was given by Python's own numbers, because descriptions are written as JSON."""
        for name, value in {"order": check_order(self.order), "vocab": check_vocab(self.vocab), **values}.items():
            object.__setattr__(self, name, value)


def _plain_base(value: NumberField | NumbersField, *, vocab: Whole, name: str) -> float | tuple[float, ...]:
    """alpha or eta0: a number where all symbols have the same."""
    values = tuple(as_alpha(value, vocab=check_vocab(vocab), name=name).tolist())
    return values[0] if len(set(values)) == 1 else values


@register_prior
@dataclass(frozen=True, kw_only=True)
class IndependentDirichlet(DirichletTree):
    """pi_u ~ Dirichlet(alpha), independently for every context u in V^k.

    `alpha` is one number for all symbols, or one per symbol. The Bayes predictor is exact (eq:bayes_optimal_markov).

    >>> IndependentDirichlet(order=1, vocab=3, alpha=(0.5, 1.0, 2.0)).text
    'independent:0.5,1,2'
    """

    kind: ClassVar[str] = "independent"
    form: ClassVar[str] = "independent[:ALPHA,...]"

    alpha: NumberField | NumbersField = 1.0

    def __post_init__(self) -> None:
        self._keep(alpha=_plain_base(self.alpha, vocab=self.vocab, name="alpha"))

    @property
    def independent(self) -> bool:
        return True

    @property
    def text(self) -> str:
        return f"independent:{self._base_text()}"

    @classmethod
    def from_numbers(cls, numbers: Sequence[Sequence[float]], *, order: int, vocab: int) -> IndependentDirichlet:
        """A single ALPHA serves all symbols."""
        if len(numbers) > 1:
            raise ValueError("too many numbers")
        given = tuple(numbers[0]) if numbers else (1.0,)
        return cls(order=order, vocab=vocab, alpha=given[0] if len(given) == 1 else given)

    def _base(self) -> float | Sequence[float]:
        return self.alpha

    def _totals(self, base: float) -> list[float]:
        return [base] * (self.order + 1)

    def pseudo_counts(self) -> Float[np.ndarray, " vocab"]:
        return as_alpha(self.alpha, vocab=self.vocab)

    def draw_tree(self, batch: int, rng: np.random.Generator) -> dict[int, Float[np.ndarray, "batch context vocab"]]:
        contexts = self.vocab**self.order
        return {self.order: draw_dirichlet(np.tile(self.pseudo_counts(), (batch, contexts, 1)), rng)}


@register_prior
@dataclass(frozen=True, kw_only=True)
class HierarchicalDirichlet(DirichletTree):
    """pi_() ~ Dirichlet(eta0 1) and pi_c ~ Dirichlet(eta_l pi_{suffix of c}) for every context c of length l <= k.

    `eta` lists eta_1..eta_k. The paper does not give eta0; 1.0 is our choice. `eta0` is one number for all symbols, or
    one per symbol: pi_() ~ Dirichlet(eta0).

    >>> HierarchicalDirichlet(order=2, vocab=3, eta=(5, 5), eta0=(4, 1, 1)).text
    'hierarchical:5,5:4,1,1'
    """

    kind: ClassVar[str] = "hierarchical"
    form: ClassVar[str] = "hierarchical[:ETA,...[:ETA0,...]]"

    eta: NumbersField
    eta0: NumberField | NumbersField = 1.0

    def __post_init__(self) -> None:
        base, order = _plain_base(self.eta0, vocab=self.vocab, name="eta0"), check_order(self.order)
        eta = () if isinstance(self.eta, (str, bytes)) or not hasattr(self.eta, "__len__") else tuple(self.eta)
        if len(eta) != order:
            raise ValueError(f"eta must list one number per level 1..{order}, got {len(eta)}: {shown(self.eta)}")
        self._keep(eta=tuple(check_concentration(value, name="eta") for value in eta), eta0=base)

    @property
    def independent(self) -> bool:
        return False

    @property
    def text(self) -> str:
        root = "" if self.eta0 == 1.0 else f":{self._base_text()}"
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

    def _base(self) -> float | Sequence[float]:
        return self.eta0

    def _totals(self, base: float) -> list[float]:
        return [base, *self.eta]

    def draw_tree(self, batch: int, rng: np.random.Generator) -> dict[int, Float[np.ndarray, "batch context vocab"]]:
        tree = {0: draw_dirichlet(np.tile(as_alpha(self.eta0, vocab=self.vocab), (batch, 1, 1)), rng)}
        for level, eta in enumerate(self.eta, start=1):
            # Code c of length `level` has suffix code c mod |V|^(level-1), so the parents repeat |V| times in order.
            tree[level] = draw_dirichlet(eta * np.tile(tree[level - 1], (1, self.vocab, 1)), rng)
        return tree


def draw_dirichlet(concentration: Array, rng: np.random.Generator) -> Array:
    """One Dirichlet draw per row of the last axis, exact also where concentrations are so small that gammas underflow.

    log Gamma(a) variates come from Gamma(a + 1) U^(1/a), and the normalisation is done in logs.
    """
    gammas = np.log(rng.standard_gamma(concentration + 1.0))
    with np.errstate(divide="ignore", over="ignore"):
        gammas += np.log(rng.random(concentration.shape)) / concentration
    gammas -= gammas.max(axis=-1, keepdims=True)
    weights = np.exp(gammas)
    law: Array = weights / weights.sum(axis=-1, keepdims=True)
    return law


def check_prior(prior: Any) -> Prior:
    """A prior, or a `ValueError` that says what is expected."""
    if not isinstance(prior, Prior):
        raise ValueError(
            f"expected a prior, such as HierarchicalDirichlet(order=2, vocab=5, eta=(5, 5)), got {shown(prior)}"
        )
    return prior
