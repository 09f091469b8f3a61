"""The estimator of the paper and its classical relatives: tokens in, the law of the token after the last one out.

    soft_matching(tokens, vocab=5, beta=(2.7, 1.2), kappa=3.3)     eq:transformer_estimator
    maximum_likelihood, add_alpha                                  its limits
    order_mixture                                                  eq:transformer_mixture, corollary:mixture
    soft_matching_pairs                                            corollary:inductive
    beta_for_add_alpha                                             lemma:optimal_beta

Tokens are [batch, length] without BOS; results are [batch, vocab] float64, or [batch, length, vocab] with
`every_position=True`, where row t uses tokens up to t only. Where nothing has been seen (no candidate and no BOS)
the law is uniform.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Shaped
from numpy.typing import NDArray
from scipy.optimize import brentq

from interp.arguments import (
    Number,
    Numbers,
    Switch,
    Whole,
    count,
    finite_number,
    real_array,
    seed_number,
    shown,
)
from interp.chains.priors import IndependentDirichlet
from interp.estimators.counts import as_counts, from_counts, mask_counts, queries, superset_sum
from interp.notation import (
    Tokens,
    as_alpha,
    as_beta,
    as_kappa,
    check_concentration,
    check_order,
    check_sum,
    check_vocab,
    mask_bits,
)
from interp.source import njit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array: TypeAlias = NDArray[Any]
Law: TypeAlias = Float[torch.Tensor, "batch vocab"] | Float[torch.Tensor, "batch length vocab"]

MAX_WEIGHT = 2.0**53  # of one count: above it, n and n + 1 are the same float


def soft_matching(
    tokens: Tokens,
    *,
    vocab: Whole,
    beta: Numbers,
    kappa: Number | None = None,
    every_position: Switch = False,
) -> Law:
    """The soft context-matching estimator, eq:transformer_estimator; the order is the length of beta.

    Each candidate votes for its token with weight exp(|beta|_M); BOS adds exp(kappa) / |V| to every symbol. Weights
    are taken relative to the largest one present, so any finite beta, of either sign, is safe.

    Parameters
    ----------
    tokens
        Sequences [batch, length] without BOS, or chains of a prior.
    vocab
        |V|, the number of symbols.
    beta
        The match weight of each lag, lag 1 first.
    kappa
        The score of BOS above an empty match; None where there is no BOS.
    every_position
        Answer after every token, from the tokens so far, rather than after the last one.

    Returns
    -------
    Law
        Probabilities of the next token, [batch, vocab]; with `every_position` [batch, length, vocab].

    Examples
    --------
    >>> soft_matching([[0, 1, 0, 1]], vocab=2, beta=(100.0, 100.0))[0].tolist()
    [1.0, 0.0]
    """
    weights, pseudo = as_beta(beta), as_kappa(kappa)

    def estimate(counts: torch.Tensor) -> torch.Tensor:
        return law_from_counts(counts, beta=torch.from_numpy(weights), kappa=pseudo)

    return from_counts(estimate, tokens, order=weights.size, vocab=vocab, every_position=every_position)


def soft_matching_from_counts(
    counts: Numbers,
    *,
    beta: Numbers,
    kappa: Number | None = None,
) -> Float[torch.Tensor, "*rows vocab"]:
    """eq:transformer_estimator on counts N_M(m), [..., mask, vocab]; differentiable in beta and kappa.

    Parameters
    ----------
    counts
        N_M(m) as `mask_counts` gives it.
    beta
        The match weight of each lag, lag 1 first; a tensor keeps its gradient.
    kappa
        The score of BOS above an empty match; None where there is no BOS. A tensor keeps its gradient.

    Returns
    -------
    Tensor
        Probabilities of the next token, [..., vocab].

    Examples
    --------
    >>> soft_matching_from_counts([[0, 1], [3, 0]], beta=[0.0]).tolist()
    [0.75, 0.25]
    """
    given, lags, score = as_counts(counts), as_beta(beta), as_kappa(kappa)
    if given.shape[-2] != 1 << lags.size:
        raise ValueError(
            f"beta has {lags.size} lags: expected counts for {1 << lags.size} masks, got {given.shape[-2]}"
        )
    if not ((given >= 0) & (given <= MAX_WEIGHT)).all():
        raise ValueError(f"counts must be finite, not negative and at most {MAX_WEIGHT:g}")
    live = torch.from_numpy(lags)
    if isinstance(beta, torch.Tensor):  # gradients pass through it; half precision could not represent the counts
        live = beta if beta.dtype in (torch.float32, torch.float64) else beta.double()
    return law_from_counts(given, beta=live, kappa=kappa if isinstance(kappa, torch.Tensor) else score)


def law_from_counts(
    counts: Shaped[torch.Tensor, "*rows mask vocab"],
    *,
    beta: Float[torch.Tensor, " lag"],
    kappa: torch.Tensor | float | None,
) -> Float[torch.Tensor, "*rows vocab"]:
    """`soft_matching_from_counts` without checks of counts and parameters, for searches that call it many times."""
    vocab = counts.shape[-1]
    bits = torch.from_numpy(mask_bits(beta.shape[0])).to(beta)
    log_weights = bits @ beta
    totals = counts.sum(-1)
    seen = torch.where(totals > 0, log_weights, -torch.inf)
    top = seen.max(dim=-1).values
    if kappa is not None:
        kappa = torch.as_tensor(kappa, dtype=beta.dtype)
        top = torch.maximum(top, kappa)
    top = torch.where(torch.isfinite(top), top, 0.0).detach()
    # A mask that never occurs may have the largest weight: it would overflow, and multiply a count of zero.
    weights = torch.exp(torch.where(totals > 0, log_weights - top[..., None], -torch.inf))
    votes = torch.einsum("...m,...mv->...v", weights, counts.to(beta.dtype))
    if kappa is not None:
        votes = votes + (torch.exp(kappa - top) / vocab)[..., None]
    return _normalised(votes)


def soft_matching_pairs(
    tokens: Tokens,
    *,
    vocab: Whole,
    beta: Numbers,
    kappa: Number | None = None,
    every_position: Switch = False,
) -> Law:
    """The generalised estimator of corollary:inductive: every query lag may be compared with every key lag.

    beta[r1-1][r2-1] weighs x_{t-r1+1} = x_{s-r2}, the alignment of def:match_mask, so that a diagonal beta is
    `soft_matching`. (The corollary writes x_{t-r1}: there t is the position to be predicted.)

    Parameters
    ----------
    tokens
        Sequences [batch, length] without BOS, or chains of a prior.
    vocab
        |V|, the number of symbols.
    beta
        The match weights [query lag, key lag], a square matrix.
    kappa
        The score of BOS above an empty match; None where there is no BOS.
    every_position
        Answer after every token, from the tokens so far, rather than after the last one.

    Returns
    -------
    Law
        Probabilities of the next token, [batch, vocab]; with `every_position` [batch, length, vocab].

    Examples
    --------
    >>> soft_matching_pairs([[0, 1, 0, 1]], vocab=2, beta=[[0.0]])[0].numpy().round(3).tolist()
    [0.333, 0.667]
    """
    matrix = np.ascontiguousarray(real_array(beta, name="beta"))
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.size == 0:
        raise ValueError(f"beta must be a square matrix [query lag, key lag], got shape {matrix.shape}")
    check_sum(matrix)
    pseudo = as_kappa(kappa)
    asked = queries(tokens, order=len(matrix), vocab=vocab, every_position=every_position)
    laws = asked.empty_laws()
    _pair_laws(asked.tokens, matrix, -np.inf if pseudo is None else pseudo, asked.first, laws)
    return asked.result(laws)


def maximum_likelihood(tokens: Tokens, *, order: Whole, vocab: Whole, every_position: Switch = False) -> Law:
    """The relative frequency among exact matches, N_[k](m) / N_[k]; uniform where the context is new.

    It is the limit of hard attention wherever the context has been seen. Elsewhere that limit is the average over the
    keys with the largest overlap.

    Parameters
    ----------
    tokens
        Sequences [batch, length] without BOS, or chains of a prior.
    order
        k, the number of tokens of a context.
    vocab
        |V|, the number of symbols.
    every_position
        Answer after every token, from the tokens so far, rather than after the last one.

    Returns
    -------
    Law
        Probabilities of the next token, [batch, vocab]; with `every_position` [batch, length, vocab].

    Examples
    --------
    >>> maximum_likelihood([[0, 1, 0, 1, 0]], order=1, vocab=2)[0].tolist()
    [0.0, 1.0]
    """

    def estimate(counts: torch.Tensor) -> torch.Tensor:
        return _normalised(counts[..., -1, :].double())

    return from_counts(estimate, tokens, order=order, vocab=vocab, every_position=every_position)


def add_alpha(
    tokens: Tokens, *, order: Whole, vocab: Whole, alpha: Number | Numbers, every_position: Switch = False
) -> Law:
    """(N_[k](m) + alpha_m) / (N_[k] + sum of alpha): Bayes-optimal for IndependentDirichlet (eq:bayes_optimal_markov).

    `alpha` is one number for all symbols, or one per symbol.

    Parameters
    ----------
    tokens
        Sequences [batch, length] without BOS, or chains of a prior.
    order
        k, the number of tokens of a context.
    vocab
        |V|, the number of symbols.
    alpha
        What is added to each count: one number, or one for each symbol.
    every_position
        Answer after every token, from the tokens so far, rather than after the last one.

    Returns
    -------
    Law
        Probabilities of the next token, [batch, vocab]; with `every_position` [batch, length, vocab].

    Examples
    --------
    >>> add_alpha([[0, 1, 0, 1, 0]], order=1, vocab=2, alpha=(1.0, 3.0)).tolist()
    [[0.16666666666666666, 0.8333333333333334]]
    """
    added = torch.from_numpy(as_alpha(alpha, vocab=check_vocab(vocab)))

    def estimate(counts: torch.Tensor) -> torch.Tensor:
        return _normalised(counts[..., -1, :].double() + added)

    return from_counts(estimate, tokens, order=order, vocab=vocab, every_position=every_position)


@dataclass(frozen=True, kw_only=True)
class OrderMixture:
    """The estimator as a mixture over context orders (eq:transformer_mixture, corollary:mixture).

    order_weights    [batch, k+1]          lambda_i
    order_models     [batch, k+1, vocab]   q_i; NaN where K_i = 0 (its weight is then 0)
    pattern_weights  [batch, mask]         lambda_M within its order: sums to 1 over the masks of one size
    pattern_models   [batch, mask, vocab]  q_M = K_M(m) / K_M; NaN where K_M = 0
    beta             the match weight, one for all lags
    """

    order_weights: Float[torch.Tensor, "batch order"]
    order_models: Float[torch.Tensor, "batch order vocab"]
    pattern_weights: Float[torch.Tensor, "batch mask"]
    pattern_models: Float[torch.Tensor, "batch mask vocab"]
    beta: float

    def __str__(self) -> str:
        mean = ", ".join(f"{value:.3f}" for value in self.order_weights.mean(0))
        return (
            f"OrderMixture of {len(self.order_weights)} sequences at beta {self.beta:g}\n  mean order weights ({mean})"
        )

    __repr__ = __str__

    def plot(self, ax: Axes | None = None) -> Axes:
        """How the weight of each order spreads over the sequences: median, quartiles and whole range."""
        from interp.plotting import OVERLAP_COLOURS, heading, overlap_kind, panel

        weights = self.order_weights.numpy()
        last = weights.shape[1] - 1
        ax = panel(ax, width=4.8)
        look: dict[str, Any] = {"patch_artist": True, "whis": (0, 100), "medianprops": {"color": "#000000"}}
        boxes = ax.boxplot(weights, tick_labels=[f"order {order}" for order in range(last + 1)], **look)
        for order, box in enumerate(boxes["boxes"]):
            box.set_facecolor(OVERLAP_COLOURS[overlap_kind(order, order=last)])
        ax.set_ylabel("weight $\\lambda_i$ of the order\n(median, quartiles, range over sequences)")
        return heading(ax, f"order weights of {len(weights)} sequences at beta {self.beta:g}")

    def prediction(self) -> Float[torch.Tensor, "batch vocab"]:
        """The mixture put together again: equals `soft_matching` at (beta, ..., beta) without BOS."""
        return torch.einsum("bi,biv->bv", self.order_weights, torch.nan_to_num(self.order_models, nan=0.0))


def order_mixture(tokens: Tokens, *, order: Whole, vocab: Whole, beta: Number) -> OrderMixture:
    """Mixture weights and models of every order 0..k at one beta for all lags, without BOS.

    The weights sum to one. For beta < 0 (gamma < 0) they alternate in sign: the identity still holds, but it is not a
    mixture, and for very negative beta its terms are large and cancel.

    Parameters
    ----------
    tokens
        Sequences [batch, length] without BOS, or chains of a prior.
    order
        k, the number of tokens of a context.
    vocab
        |V|, the number of symbols.
    beta
        The match weight of all lags.

    Returns
    -------
    OrderMixture
        Weights and models of the orders, and of the patterns within an order.

    Examples
    --------
    >>> order_mixture([[0, 1, 0, 1]], order=2, vocab=2, beta=0.7).order_weights.sum().round(decimals=6).item()
    1.0
    """
    vocab, order = check_vocab(vocab), check_order(order)
    scale = float(as_beta([finite_number(beta, name="beta")] * order)[0])
    exact = mask_counts(tokens, order=order, vocab=vocab)
    cumulative = superset_sum(exact).double()
    totals = cumulative.sum(-1)
    sizes = torch.from_numpy(mask_bits(order).sum(1))
    by_order = torch.nn.functional.one_hot(sizes, order + 1).double()
    order_totals = totals @ by_order
    # ln |gamma|, and gamma^i K_i in logs: gamma overflows long before the ratio does.
    log_gamma = max(scale, 0.0) + math.log(-math.expm1(-abs(scale))) if scale else -math.inf
    orders = torch.arange(order + 1, dtype=torch.float64)
    powers = torch.where(orders == 0, 0.0, orders * log_gamma)
    logs = powers + torch.log(order_totals)
    logs = torch.where(order_totals > 0, logs, -torch.inf)
    signs = (-1.0) ** orders if scale < 0 else torch.ones_like(orders)
    # The normaliser from the exact counts, where every term is positive: no cancellation whatever the sign of gamma.
    log_z = torch.logsumexp(scale * sizes.double() + torch.log(exact.sum(-1).double()), dim=-1, keepdim=True)
    order_votes = torch.einsum("bmv,mi->biv", cumulative, by_order)
    return OrderMixture(
        order_weights=signs * torch.exp(logs - log_z),
        order_models=order_votes / torch.where(order_totals > 0, order_totals, torch.nan)[..., None],
        pattern_weights=torch.nan_to_num(totals / (order_totals @ by_order.T), nan=0.0),
        pattern_models=cumulative / torch.where(totals > 0, totals, torch.nan)[..., None],
        beta=scale,
    )


def beta_for_add_alpha(
    *,
    length: Whole,
    order: Whole,
    vocab: Whole,
    alpha: Number,
    method: Literal["closed_form", "line_search", "polynomial"] = "closed_form",
    draws: Whole = 20_000,
    seed: Whole = 0,
) -> float:
    """The beta at which partial matches act like add-alpha on average (lemma:optimal_beta).

    closed_form   the lemma's formula: T - k - 1 candidates, and eq:approx_expectation for E[K_M]
    line_search   solves eq:sufficient_condition_higher with E[Z(gamma)] measured on `draws` sampled sequences
    polynomial    the positive root of the same condition with E[K_M] measured on the same sequences

    The last two agree up to rounding for one seed; their distance from the first is the approximation's error.

    Parameters
    ----------
    length
        Tokens of a sequence.
    order
        k, the number of tokens of a context.
    vocab
        |V|, the number of symbols.
    alpha
        The pseudo-count.
    method
        How the condition is solved, as above.
    draws
        Sequences that are sampled, except for the closed form.
    seed
        Of the random numbers; one seed gives one result.

    Returns
    -------
    float
        The match weight of every lag.

    Examples
    --------
    >>> round(beta_for_add_alpha(length=64, order=2, vocab=5, alpha=1.0), 3)
    2.041
    """
    order, vocab, alpha = check_order(order), check_vocab(vocab), check_concentration(alpha, name="alpha")
    length, draws, seed = count(length, name="length"), count(draws, name="draws"), seed_number(seed)
    if method == "closed_form":
        candidates = length - order - 1
        if candidates < 1:
            raise ValueError(f"length must be at least order + 2 = {order + 2} for the closed form, got {length}")
        root = math.expm1(math.log1p(alpha * float(vocab) ** (order + 1) / candidates) / order)
        return math.log1p(vocab / root)
    if method not in ("line_search", "polynomial"):
        raise ValueError(f"method must be 'closed_form', 'line_search' or 'polynomial', got {shown(method)}")
    prior = IndependentDirichlet(order=order, vocab=vocab, alpha=alpha)
    chains = prior.sample(batch=draws, length=length, seed=seed, method="collapsed")
    exact = mask_counts(chains.tokens, order=order, vocab=vocab)
    sizes = mask_bits(order).sum(1)
    if method == "line_search":
        mean_exact = exact.sum(-1).double().mean(0).numpy()
        full = mean_exact[-1]

        def excess(log_gamma: float) -> float:
            gamma = math.exp(log_gamma)
            z = float(((1 + gamma) ** sizes * mean_exact).sum())
            return math.log(z) - order * log_gamma - math.log(full + alpha * vocab)

        return math.log1p(math.exp(brentq(excess, -100.0, 200.0 / order, xtol=1e-14, rtol=1e-15)))
    mean_cumulative = superset_sum(exact).sum(-1).double().mean(0).numpy()
    coefficients = np.bincount(sizes, weights=mean_cumulative)[:-1]
    # sum_{i<k} E[K_i] gamma^i = alpha |V| gamma^k has one sign change, hence exactly one positive root.
    roots = np.polynomial.polynomial.polyroots([*coefficients, -alpha * vocab])
    positive = roots[(np.abs(roots.imag) <= 1e-9 * np.abs(roots)) & (roots.real > 0)].real
    return math.log1p(float(positive.max()))


def _normalised(votes: torch.Tensor) -> torch.Tensor:
    """The votes as a law; uniform where there are none."""
    totals = votes.sum(-1, keepdim=True)
    return torch.where(totals > 0, votes / torch.where(totals > 0, totals, 1.0), 1.0 / votes.shape[-1])


@njit()
def _pair_laws(tokens: Array, beta: Array, kappa: float, first: int, laws: Array) -> None:
    order = beta.shape[0]
    vocab = laws.shape[2]
    length = tokens.shape[1]
    scores = np.empty(length)
    for b in range(tokens.shape[0]):
        for query in range(first, length):
            law = laws[b, query - first]
            top = kappa
            for key in range(order, query + 1):
                score = 0.0
                for a in range(order):
                    for c in range(order):
                        if tokens[b, query - a] == tokens[b, key - c - 1]:
                            score += beta[a, c]
                scores[key] = score
                top = max(top, score)
            if top == -np.inf:
                law[:] = 1.0 / vocab
                continue
            bos = np.exp(kappa - top)
            law[:] = bos / vocab
            total = bos
            for key in range(order, query + 1):
                weight = np.exp(scores[key] - top)
                law[tokens[b, key]] += weight
                total += weight
            law /= total
