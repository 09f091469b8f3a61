"""How often keys match the query under a prior, in closed form; the predicted optimum uses this instead of sequences.

    correlations = law_correlations(prior)             how alike the laws of two contexts are, by their common suffix
    mask_shares(correlations, vocab=5)                 the expected share of keys of each mask
    visit_scenarios(prior)                             the same, spread over frequent and rare queries

docs/concepts/optimum.md derives each line and says what is left out.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import expit, logit, polygamma

from interp.chains.priors import Prior

PEAKS = 2  # points of the quadrature rule over how uneven the root law is
# Points of the quadrature rule over how frequent the query's token at each lag is, by order; one point beyond.
POINTS = {1: (6,), 2: (5, 4), 3: (4, 3, 2), 4: (3, 2, 2, 2), 5: (2, 2, 2, 2, 2)}
LEAST_SPREAD = 1e-6  # of the symbols' frequencies; below it they are treated as equal
EVEN = 1e4  # concentration per symbol at which the frequencies are treated as equal
NARROW = 1e-12  # a smaller variance is rounding


def law_correlations(prior: Prior) -> Float[np.ndarray, " depth"]:
    """r_0..r_k: the correlation of pi_c(m) and pi_c'(m) when c and c' agree on their last l tokens and no more.

    Two tokens drawn from such laws are equal with probability 1/|V| + (1 - 1/|V|) r_l. Exact. Under the hierarchical
    prior 1 - r_l = (1 - r_{l-1}) eta_l / (eta_l + 1), from 1 - r_0 = eta0 |V| / (eta0 |V| + 1); under the
    independent prior r_l = 0 below k, and r_k = 1 / (alpha |V| + 1).
    """
    concentrations = prior.concentrations()
    if prior.independent:
        return np.append(np.zeros(prior.order), 1.0 / (concentrations[-1] + 1.0))
    return 1.0 - np.cumprod(concentrations / (concentrations + 1.0))


def mask_shares(correlations: Float[np.ndarray, " depth"], *, vocab: int) -> Float[np.ndarray, " mask"]:
    """The expected share N_M / (T - k) of keys with each mask, for a query and a key far apart.

    Move query and key on by one token: the next two tokens agree with probability 1/|V| + (1 - 1/|V|) r_J, where J is
    the number of the most recent lags on which they agree now. So the mask is a Markov chain with 2^k states, and this
    is its stationary law.
    """
    order = len(correlations) - 1
    masks = 1 << order
    agree = 1.0 / vocab + (1.0 - 1.0 / vocab) * np.asarray(correlations)
    moves = np.zeros((masks, masks))
    for mask in range(masks):
        run = next((lag for lag in range(order) if not mask >> lag & 1), order)
        moves[mask, (mask << 1 | 1) & (masks - 1)] += agree[run]
        moves[mask, (mask << 1) & (masks - 1)] += 1.0 - agree[run]
    equations = np.vstack([moves.T - np.eye(masks), np.ones(masks)])
    shares, *_ = np.linalg.lstsq(equations, np.append(np.zeros(masks), 1.0), rcond=None)
    kept: Float[np.ndarray, " mask"] = np.maximum(shares, 0.0)
    return kept


@dataclass(frozen=True, kw_only=True)
class VisitScenarios:
    """Kinds of queries: each has its shares of masks, and all of them together the mean.

    weights   of each scenario; they sum to one
    shares    of the keys, per mask
    siblings  how many equally frequent contexts the other |V| - 1 symbols at a lag amount to
    """

    weights: Float[np.ndarray, " scenario"]
    shares: Float[np.ndarray, "scenario mask"]
    siblings: Float[np.ndarray, "scenario lag"]


def visit_scenarios(prior: Prior, *, spread: bool = True) -> VisitScenarios:
    """Frequent and rare queries, for even and for peaked root laws; without `spread`, the mean alone."""
    correlations = law_correlations(prior)
    if not spread:
        one, mean, number = _query_scenarios(correlations, vocab=prior.vocab, points=(1,) * prior.order)
        return VisitScenarios(weights=one, shares=mean, siblings=number[None])
    if prior.independent:
        peaks, peak_weights = np.array([math.nan]), np.ones(1)
    else:
        peaks, peak_weights = root_peaks(prior.concentrations()[0] / prior.vocab, vocab=prior.vocab)
    parts = []
    for peak, peak_weight in zip(peaks, peak_weights, strict=True):
        here = correlations
        if not prior.independent:
            here = 1.0 - (1.0 - correlations) * (1.0 - peak) / (1.0 - correlations[0])
        points = POINTS.get(prior.order, (1,) * prior.order)
        these, spread_shares, number = _query_scenarios(here, vocab=prior.vocab, points=points)
        parts.append((peak_weight * these, spread_shares, np.tile(number, (len(these), 1))))
    weights, shares, siblings = (np.concatenate(part) for part in zip(*parts, strict=True))
    return VisitScenarios(weights=weights, shares=shares, siblings=siblings)


def root_peaks(alpha: float, *, vocab: int) -> tuple[Float[np.ndarray, " point"], Float[np.ndarray, " point"]]:
    """A two-point rule for r_0 = (sum theta^2 - 1/|V|) / (1 - 1/|V|) with theta ~ Dirichlet(alpha).

    Mean and variance are exact. The third moment is that of the Beta law with this mean and variance.
    """
    total = alpha * vocab
    mean = (alpha + 1.0) / (total + 1.0)
    rising = total * (total + 1.0) * (total + 2.0) * (total + 3.0)
    fourth = vocab * alpha * (alpha + 1.0) * (alpha + 2.0) * (alpha + 3.0) / rising
    mixed = vocab * (vocab - 1) * (alpha * (alpha + 1.0)) ** 2 / rising
    scale = 1.0 - 1.0 / vocab
    peak, variance = (mean - 1.0 / vocab) / scale, (fourth + mixed - mean**2) / scale**2
    if variance < NARROW:
        return np.array([peak]), np.ones(1)
    size = peak * (1.0 - peak) / variance - 1.0
    return beta_rule(peak * size, (1.0 - peak) * size, points=PEAKS)


def _query_scenarios(
    correlations: Float[np.ndarray, " depth"], *, vocab: int, points: tuple[int, ...]
) -> tuple[Float[np.ndarray, " scenario"], Float[np.ndarray, "scenario mask"], Float[np.ndarray, " lag"]]:
    """Weights, shares of masks and the number of siblings, given the laws' correlations.

    The frequencies of the symbols count as Dirichlet, with the concentration that gives the share of lag-1 matches.
    The query meets a symbol in proportion to its frequency, so that a query token's frequency is
    Beta(a + 1, a (|V| - 1)). Each lag has its own; it moves the odds of a match at that lag, and the mean stays.
    """
    order = len(correlations) - 1
    shares = mask_shares(correlations, vocab=vocab)
    bits = np.arange(1 << order)
    suffixes = [float(shares[bits & ((1 << lag) - 1) == (1 << lag) - 1].sum()) for lag in range(order + 1)]
    alphas = [_concentration(suffixes[lag + 1] / suffixes[lag], vocab=vocab) for lag in range(order)]
    siblings = [(alpha * (vocab - 1) + 1.0) / (alpha + 1.0) for alpha in alphas]
    rules = [
        beta_rule(alpha + 1.0, alpha * (vocab - 1), points=number if alpha < EVEN else 1)
        for alpha, number in zip(alphas, points, strict=True)
    ]
    spread_shares = np.ones((*(len(weight) for _, weight in rules), 1 << order))
    first_width = math.nan
    for lag, (frequency, weight) in enumerate(rules):
        alpha = alphas[lag]
        recent = bits & ((1 << lag) - 1)
        path = (1 << lag) - 1
        width = float(polygamma(1, alpha + 1.0) + polygamma(1, alpha * (vocab - 1)))
        first_width = width if lag == 0 else first_width
        tilts = min(first_width / width, 1.0) * logit(frequency)
        for pattern in range(1 << lag):
            inside = recent == pattern
            matched = inside & (bits >> lag & 1 == 1)
            mean = float(shares[matched].sum() / shares[inside].sum())
            chance = frequency if pattern == path else _tilted(mean, tilts, weight)
            chance = chance.reshape((-1,) + (1,) * (order - 1 - lag))
            spread_shares[..., matched] *= chance[..., None]
            spread_shares[..., inside & ~matched] *= 1.0 - chance[..., None]
    weights = np.array([math.prod(chosen) for chosen in itertools.product(*(weight for _, weight in rules))])
    return weights, spread_shares.reshape(-1, 1 << order), np.array(siblings)


def _concentration(match: float, *, vocab: int) -> float:
    """The Dirichlet concentration per symbol at which two draws are equal with this probability."""
    spread = max((match - 1.0 / vocab) / (1.0 - 1.0 / vocab), LEAST_SPREAD)
    return (1.0 / spread - 1.0) / vocab


def _tilted(mean: float, tilts: Float[np.ndarray, " point"], weight: Float[np.ndarray, " point"]) -> np.ndarray:
    """Probabilities whose log-odds differ as `tilts` do and whose weighted mean is `mean`, by bisection."""
    low, high = logit(mean) - tilts.max() - 1.0, logit(mean) - tilts.min() + 1.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if weight @ expit(tilts + middle) < mean else (low, middle)
    chances: Float[np.ndarray, " point"] = expit(tilts + 0.5 * (low + high))
    return chances


def beta_rule(a: float, b: float, *, points: int) -> tuple[Float[np.ndarray, " point"], Float[np.ndarray, " point"]]:
    """Gauss's rule for Beta(a, b): nodes and weights that give moments up to 2 points - 1 exactly."""
    n = np.arange(1, points)
    total = a + b - 2.0
    diagonal = np.array([(a - b) / (a + b)])
    if points > 1:
        diagonal = np.append(diagonal, ((a - 1) ** 2 - (b - 1) ** 2) / ((2 * n + total) * (2 * n + total + 2)))
    first = 4.0 * a * b / ((a + b) ** 2 * (a + b + 1.0))
    later = n[1:]
    sides = 4.0 * later * (later + b - 1) * (later + a - 1) * (later + total)
    sides = sides / ((2 * later + total) ** 2 * (2 * later + total + 1) * (2 * later + total - 1))
    off = np.sqrt(np.append([first] if points > 1 else [], sides))
    nodes, vectors = np.linalg.eigh(np.diag(diagonal) + np.diag(off, 1) + np.diag(off, -1))
    return 0.5 * (nodes + 1.0), vectors[0] ** 2
