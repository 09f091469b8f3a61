"""The Bayes predictor E[pi_{u_T} | tokens] of both priors: no estimator has a lower loss on average.

    bayes_predictive(tokens, prior=prior, draws=200, seed=0).mean        [batch, vocab]

Independent prior: add-alpha, in closed form (eq:bayes_optimal_markov). The hierarchical prior has no closed
form; its posterior is sampled by a blocked Gibbs sampler on the context tree, compiled, one sequence at a
time:

    up    Tokens are customers of their order-k context. Of the n customers of a context who chose m, a random number t
          opened a new table; each table is one draw m from the context's suffix: given the suffix's law, t has
          Antoniak's distribution, a sum of Bernoullis theta / (theta + i), i < n, with theta = eta pi_suffix(m). The
          tables are the customers of the suffix, and so on to the root, each level's law integrated out.
    down  Given the customers, every law of order < k is Dirichlet around its suffix's law, and is drawn anew.

The laws of order k are never drawn. What is averaged is not a drawn law either but E[pi_{u_T} | customers], which is
explicit (Rao-Blackwell): from the root down, (customers + eta law_of_suffix) / (total + eta). The first k tokens are
uniform by definition: they are context only, and customers of no node.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import einops
import numpy as np
import torch
from jaxtyping import Float
from numpy.random import Generator
from numpy.typing import NDArray

from interp.arguments import MAX_COUNT, Number, Whole, count, fits_memory, seed_number, whole_number
from interp.chains.priors import Prior, check_prior
from interp.chains.trie import new_trie, plant, trie_bytes, walk
from interp.chains.urn import base_law, draw_dirichlet_row
from interp.estimators.soft_matching import add_alpha
from interp.notation import Tokens, as_tokens
from interp.results import Result, half_width, interval, provenance
from interp.source import njit

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

Array: TypeAlias = NDArray[Any]

MAX_RHAT = 1.1  # over all sequences
MAX_RHAT_ONE = 1.5  # for single sequences, whose R-hat is noisy with few draws
MAX_APART = 0.001  # the share of sequences that may exceed it by chance; none, in batches below 1000
NEGLIGIBLE = 1e-12  # a variance of 1e-12 is an error of 1e-6 in a probability, and close to rounding
MIN_PER_CHAIN = 4  # two draws in each half of a chain, or R-hat is undefined


@dataclass(frozen=True, kw_only=True)
class BayesPredictive(Result):
    """The posterior mean of the next law, and how well it is known.

    mean     [batch, vocab]; each row sums to one
    mcse     [batch, vocab]: Monte Carlo standard error, from the spread between independent chains; 0 in closed form
    rhat     [batch]: the largest split R-hat of a sequence's entries; 1 in closed form
    error    root mean square of mcse: the typical error of one probability
    n        number of sequences
    success  False if the chains disagree more than their draws explain, with the reason in `message`
    """

    SHOWN = ("sequence", "symbol", "mean", "mcse")

    mean: Float[torch.Tensor, "batch vocab"]
    mcse: Float[torch.Tensor, "batch vocab"]
    rhat: Float[torch.Tensor, " batch"]
    error: float
    draws: int
    chains: int
    n: int

    @property
    def title(self) -> str:
        how = f"{self.draws} draws in {self.chains} chains" if self.draws else "closed form"
        worst = float(self.rhat.max())
        return f"Bayes predictor of {self.n} sequences ({how}): error {self.error:.2g}, largest R-hat {worst:.3f}"

    def table(self) -> pd.DataFrame:
        """One row per sequence and symbol: sequence, symbol, mean, mcse, rhat."""
        import pandas as pd

        batch, vocab = self.mean.shape
        return pd.DataFrame(
            {
                "sequence": np.repeat(np.arange(batch), vocab),
                "symbol": np.tile(np.arange(vocab), batch),
                "mean": self.mean.numpy().ravel(),
                "mcse": self.mcse.numpy().ravel(),
                "rhat": np.repeat(self.rhat.numpy(), vocab),
            }
        )

    def interval(
        self, level: Number = 0.95
    ) -> tuple[Float[np.ndarray, "batch vocab"], Float[np.ndarray, "batch vocab"]]:
        """Lower and upper ends for the posterior mean: `level` of such intervals hold it.

        Student's t with a degree of freedom less than there are chains: two chains know little about their own spread.
        """
        return interval(self.mean.numpy(), self.mcse.numpy(), n=self.chains or None, level=level)

    def plot(self, ax: Axes | None = None, *, sequence: int = 0) -> Axes:
        """The law of the next token of one sequence, with 95% intervals of the Monte Carlo error."""
        from interp.plotting import INTERVAL_NAME, MAIN_COLOUR, grouped_bars, heading, panel

        law, reach = self.mean[sequence], half_width(self.mcse[sequence].numpy(), n=self.chains or None)
        ax = panel(ax, width=4.8)
        grouped_bars(
            ax,
            [str(symbol) for symbol in range(len(law))],
            {"law": law.numpy()},
            reach={"law": reach},
            colours={"law": MAIN_COLOUR},
        )
        ax.set_xlabel("next symbol")
        ax.set_ylabel(f"posterior mean\n(Monte Carlo {INTERVAL_NAME})")
        return heading(ax, f"Bayes predictor of sequence {sequence}, R-hat {self.rhat[sequence]:.3f}", doubt=self.doubt)


def bayes_predictive(
    tokens: Tokens,
    *,
    prior: Prior,
    draws: Whole = 200,
    seed: Whole = 0,
    chains: Whole = 4,
    burn_in: Whole = 20,
) -> BayesPredictive:
    """E[pi_{u_T} | tokens] under the prior, exact or with a Monte Carlo error that it states.

    Parameters
    ----------
    tokens
        Sequences [batch, length] without BOS, or chains of a prior.
    prior
        What the sequences were drawn from.
    draws
        Kept sweeps of the sampler, in all chains together (rounded up to two equal halves per chain). The error falls
        with the root of their number.
    seed
        Of the random numbers; one seed gives one result.
    chains
        Independent chains, each started from a draw of the prior.
    burn_in
        Sweeps thrown away at the start of each chain. What a chain needs to forget its start does not depend on how
        many draws are kept: 20 sweeps serve 16 draws as well as 10,000.

    Returns
    -------
    BayesPredictive
        The posterior mean [batch, vocab], its Monte Carlo error, and whether the chains agree.

    Examples
    --------
    >>> from interp.chains.priors import IndependentDirichlet
    >>> prior = IndependentDirichlet(order=1, vocab=2, alpha=1.0)
    >>> bayes_predictive([[0, 1, 0, 1, 0]], prior=prior).mean.numpy().round(3).tolist()
    [[0.25, 0.75]]
    """
    prior = check_prior(prior)
    array = as_tokens(tokens, vocab=prior.vocab, order=prior.order)
    draws, seed, chains = count(draws, name="draws"), seed_number(seed), count(chains, name="chains")
    burn_in = whole_number(burn_in, name="burn_in", most=MAX_COUNT)
    if prior.independent:
        return _closed_form(array, prior, seed=seed)
    if chains < 2:
        raise ValueError(f"chains must be at least 2 to estimate the Monte Carlo error, got {chains}")
    per_chain = -(-draws // chains)
    if per_chain < MIN_PER_CHAIN:
        raise ValueError(f"draws must be at least {MIN_PER_CHAIN} per chain, got {draws} for {chains} chains")
    batch, length = array.shape
    fits_memory(32 * batch * chains * prior.vocab, what="the means of the chains", instead="use fewer chains")
    fits_memory(trie_bytes(length, prior.order, prior.vocab), what="the contexts of one sequence")
    half = -(-per_chain // 2)
    halves = np.zeros((2, batch, chains, 2, prior.vocab))
    concentrations = prior.seating()
    for chain, child in enumerate(np.random.SeedSequence(seed).spawn(chains)):
        rng = Generator(np.random.PCG64(child))
        _run_chain(array, prior.order, prior.vocab, concentrations, burn_in, half, rng, halves[:, :, chain])
    means, squares = halves / half
    within = (squares - means**2).clip(min=0.0) * half / (half - 1)
    return _summary(means, within, half=half, seed=seed, prior=prior)


def _closed_form(array: Array, prior: Prior, *, seed: int) -> BayesPredictive:
    mean = add_alpha(array, order=prior.order, vocab=prior.vocab, alpha=tuple(prior.pseudo_counts().tolist()))
    return BayesPredictive(
        mean=mean,
        mcse=torch.zeros_like(mean),
        rhat=torch.ones(len(mean), dtype=torch.float64),
        error=0.0,
        draws=0,
        chains=0,
        n=len(mean),
        success=True,
        message="closed form",
        provenance=provenance(seed=seed, prior=prior.to_dict()),
    )


def _summary(means: Array, within: Array, *, half: int, seed: int, prior: Prior) -> BayesPredictive:
    """From the mean and variance of each half chain, [batch, chain, half, vocab], to the result."""
    batch, chains = means.shape[:2]
    chain_means = means.mean(2)
    mean = chain_means.mean(1)
    mcse = np.sqrt(chain_means.var(1, ddof=1) / chains)
    between = einops.rearrange(means, "batch chain half vocab -> batch (chain half) vocab").var(1, ddof=1)
    inside = within.mean((1, 2))
    rhat = _rhat(between, inside, half).max(1)
    pooled = float(_rhat(between.mean(), inside.mean(), half))
    if pooled > MAX_RHAT:
        success, message = False, f"not converged: R-hat {pooled:.2f} over all sequences, above {MAX_RHAT}"
    elif (apart := int((rhat > MAX_RHAT_ONE).sum())) > MAX_APART * batch:
        success = False
        message = f"not converged: chains disagree on {apart} of {batch} sequences, R-hat up to {rhat.max():.2f}"
    else:
        success, message = True, f"converged: R-hat {pooled:.3f} over all sequences"
    return BayesPredictive(
        mean=torch.from_numpy(mean / mean.sum(-1, keepdims=True)),
        mcse=torch.from_numpy(mcse),
        rhat=torch.from_numpy(rhat),
        error=float(np.sqrt((mcse**2).mean())),
        draws=2 * half * chains,
        chains=chains,
        n=batch,
        success=success,
        message=message,
        provenance=provenance(seed=seed, prior=prior.to_dict()),
    )


def _rhat(between: Any, inside: Any, half: int) -> Any:
    """R-hat from the variance of the half chains' means and the mean variance within; 1 where both are negligible."""
    between, inside = np.asarray(between), np.asarray(inside)
    settled = between < NEGLIGIBLE
    ratio = np.divide(between, inside, out=np.full(between.shape, np.inf), where=inside > NEGLIGIBLE)
    return np.where(settled, 1.0, np.sqrt((half - 1) / half + ratio))


Tree: TypeAlias = tuple[Array, Array, Array, Array]
"""For each node: parent, depth, customers of each symbol, law."""


@njit()
def _run_chain(
    tokens: Array, order: int, vocab: int, concentrations: Array, burn_in: int, half: int, rng: Generator, sums: Array
) -> None:
    """One chain for every sequence; adds each draw, and its square, to the sums of its half of the chain."""
    length = tokens.shape[1]
    trie = new_trie(length, order, vocab)
    path = trie[1]
    most = trie[0].shape[0]
    parents = np.zeros(most, dtype=np.int64)
    depths = np.zeros(most, dtype=np.int64)
    customers = np.empty((most, vocab), dtype=np.int64)
    tree = (parents, depths, customers, np.empty((most, vocab)))
    law = np.empty(vocab)
    for b in range(tokens.shape[0]):
        plant(trie)
        customers[0] = 0
        for t in range(order, length + 1):
            opened = walk(tokens[b], t, order, trie)
            for depth in range(order - opened + 1, order + 1):
                node = path[depth]
                parents[node] = path[depth - 1]
                depths[node] = depth
                customers[node] = 0
            if t < length:
                customers[path[order], tokens[b, t]] += 1
        nodes = path[order + 1]
        for sweep in range(-burn_in - 1, 2 * half):
            if sweep >= -burn_in:
                _seat(tree, nodes, order, concentrations, rng)
            # In the first sweep there are no tables yet: the laws start as draws from the prior.
            _draw_laws(tree, nodes, order, concentrations, law, rng)
            if sweep >= 0:
                _law_given_customers(law, customers, path, order, concentrations)
                part = sweep // half
                for m in range(vocab):
                    sums[0, b, part, m] += law[m]
                    sums[1, b, part, m] += law[m] * law[m]


@njit()
def _seat(tree: Tree, nodes: int, order: int, concentrations: Array, rng: Generator) -> None:
    """Draw all tables, from the order-k contexts to the root; tables are the customers of the suffix."""
    parents, depths, customers, laws = tree
    for node in range(nodes):
        if depths[node] < order:
            customers[node] = 0
    for node in range(nodes - 1, 0, -1):  # children have higher numbers: a node is complete when its turn comes
        parent = parents[node]
        concentration = concentrations[depths[node]]
        for m in range(customers.shape[1]):
            n = customers[node, m]
            if n == 0:
                continue
            theta = concentration * laws[parent, m]
            tables = 1
            for i in range(1, n):
                if rng.random() * (theta + i) < theta:
                    tables += 1
            customers[parent, m] += tables


@njit()
def _draw_laws(tree: Tree, nodes: int, order: int, concentrations: Array, scratch: Array, rng: Generator) -> None:
    """Draw the law of every context of order < k, from the root down."""
    parents, depths, customers, laws = tree
    for node in range(nodes):
        depth = depths[node]
        if depth == order:
            continue
        if node == 0:
            base_law(scratch, order, scratch.shape[0], concentrations)
        for m in range(scratch.shape[0]):
            base = scratch[m] if node == 0 else laws[parents[node], m]
            scratch[m] = concentrations[depth] * base + customers[node, m]
        draw_dirichlet_row(scratch, laws[node], rng)


@njit()
def _law_given_customers(law: Array, customers: Array, path: Array, order: int, concentrations: Array) -> None:
    base_law(law, order, law.shape[0], concentrations)
    for depth in range(order + 1):
        node = path[depth]
        total = customers[node].sum() + concentrations[depth]
        for m in range(law.shape[0]):
            law[m] = (customers[node, m] + concentrations[depth] * law[m]) / total
