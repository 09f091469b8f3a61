"""The population loss of soft matching in closed form, for visits that are Poisson: no sequence is drawn.

    risk = TreeRisk(prior, length=64, bos=True)
    value, gradient = risk(np.array([2.7, 1.2, 3.3]))    beta per lag, then kappa where there is BOS

With S(m) the votes for m and S all of them, the loss is E[ln S] - |V| E[pi(m) ln S(m)], and the logarithm is an
integral over Laplace transforms. Given how often each context is visited (`match_rates`), these are products over the
context tree, level by level from the longest contexts to the root. The theory page derives it.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float
from scipy.special import betainc

from interp.arguments import fits_memory
from interp.chains.priors import Prior
from interp.estimators.match_rates import visit_scenarios
from interp.notation import mask_bits

NODES = 48  # of the grid of probabilities; twice as many change the optimum by less than 0.01
LEAST_NODE = 1e-5
STEP = 0.7  # of ln s; the trapezoidal rule, whose error falls exponentially with it
BELOW, ABOVE = 8.0, 4.5  # how far the rule goes beyond the smallest and the largest ln s that matter
TINY = 1e-300


class TreeRisk:
    """The loss at (beta, kappa) under a prior at one length, up to a constant, with its gradient."""

    def __init__(self, prior: Prior, *, length: int, bos: bool, spread: bool = True, nodes: int = NODES) -> None:
        self.order, self.vocab, self.keys, self.bos = prior.order, prior.vocab, length - prior.order, bos
        fits_memory(8 * 60 * nodes << (2 * prior.order), what="the closed-form loss of this order")
        grid = probability_grid(prior.vocab, nodes=nodes)
        scenarios = visit_scenarios(prior, spread=spread)
        concentrations = prior.concentrations()
        # Under the independent prior, the laws of all shorter contexts are uniform: no level in between mixes.
        self.children = [
            None
            if prior.independent and depth < prior.order
            else torch.from_numpy(child_matrix(grid, float(eta)).T.copy())
            for depth, eta in enumerate(concentrations)
        ]
        self.grid = torch.from_numpy(grid)
        self.root = torch.from_numpy(root_weights(grid, prior))
        self.weights = torch.from_numpy(scenarios.weights)
        self.siblings = torch.from_numpy(scenarios.siblings)
        self.bits = torch.from_numpy(mask_bits(prior.order).astype(np.float64))
        self.shares = torch.from_numpy(scenarios.shares)
        contexts = torch.exp(torch.log(self.siblings) @ (1.0 - self.bits).T)  # how many share a mask
        self.rates = self.keys * self.shares / contexts

    def __call__(self, theta: Float[np.ndarray, " parameter"]) -> tuple[float, Float[np.ndarray, " parameter"]]:
        point = torch.tensor(theta, dtype=torch.float64, requires_grad=True)
        value = self.value(point)
        value.backward()  # type: ignore[no-untyped-call]
        assert point.grad is not None
        return float(value.detach()), point.grad.numpy()

    def value(self, theta: Float[torch.Tensor, " parameter"]) -> Float[torch.Tensor, ""]:
        """The integral over ln s of |V| E[pi(m) e^{-s S(m)}] - E[e^{-s S}]; without BOS over the symbols seen."""
        weights = torch.exp(self.bits @ theta[: self.order])
        bos = torch.exp(theta[-1]) if self.bos else torch.zeros((), dtype=torch.float64)
        s = self._points(weights.detach(), float(bos.detach()))
        hit = -torch.expm1(-s[:, None] * weights)
        every = (1.0 - hit @ self.shares.T).clamp_min(0.0).T ** self.keys
        mine = self.vocab * self.laplace(hit)
        if self.bos:
            integrand = self.weights @ (mine * torch.exp(-s * bos / self.vocab) - every * torch.exp(-s * bos))
        else:
            # A symbol that has not occurred gets probability 0 at any beta: its share of the law is left out of both
            # terms.
            unseen = self.vocab * self.laplace(1.0 - hit) * every
            never = self.vocab * self.laplace(torch.ones_like(hit[:1]))
            integrand = self.weights @ (mine - never - every + unseen)
        # Below the first point the integrand is proportional to s: the rest of the sum is a geometric series.
        rest = integrand[0] / math.expm1(STEP)
        return (integrand.sum() + rest) * STEP

    def _points(self, weights: torch.Tensor, bos: float) -> Float[torch.Tensor, " point"]:
        largest = self.keys * float(weights.max()) + bos
        smallest = min(float(weights.min()), bos / self.vocab if self.bos else math.inf)
        # Multiples of the step: the rule does not move with the parameters, so that the gradient is that of the value.
        first = math.floor((-math.log(largest) - BELOW) / STEP)
        last = math.ceil((-math.log(smallest) + ABOVE) / STEP)
        return torch.exp(STEP * torch.arange(first, last + 1, dtype=torch.float64))

    def laplace(self, hit: Float[torch.Tensor, "point mask"]) -> Float[torch.Tensor, "scenario point"]:
        """E[pi(m) prod over keys that vote for m of (1 - hit of the key's mask)].

        `off` holds, for each pattern of matches on the lags so far, the expectation over all keys below a node off the
        query's path, as a function of the node's probability of m; `path` the same for the node on it, times pi(m).
        """
        rates = self.rates[:, None, :, None] * hit[None, :, :, None]
        below = torch.exp(-rates * self.grid)
        path, off = below[:, :, -1] * self.grid, below[:, :, :-1]
        for depth in range(self.order, 0, -1):
            matrix = self.children[depth]
            if matrix is not None:
                path, off = path @ matrix, (off @ matrix).clamp_min(TINY)
            half = 1 << (depth - 1)
            siblings = self.siblings[:, depth - 1, None, None]
            path = path * off[:, :, half - 1] ** siblings
            off = off[:, :, half:] * off[:, :, : half - 1] ** siblings[..., None]
        return path @ self.root


def probability_grid(vocab: int, *, nodes: int) -> Float[np.ndarray, " node"]:
    """Nodes in [0, 1]: dense near 0, where e^{-rate x} is steep; 0, 1/|V| and 1 among them."""
    low = np.geomspace(LEAST_NODE, 0.5, nodes // 2)
    high = 1.0 - np.geomspace(0.01, 0.5, nodes // 4)
    return np.unique(np.concatenate([[0.0, 1.0, 1.0 / vocab], low, high]))


def hat_weights(
    grid: Float[np.ndarray, " node"], a: Float[np.ndarray, " row"], b: Float[np.ndarray, " row"]
) -> Float[np.ndarray, "row node"]:
    """Rows of weights w with w @ f(grid) = E[f(x)], x ~ Beta(a, b), exact for f linear between the nodes."""
    a, b = a[:, None], b[:, None]
    mass = np.diff(betainc(a, b, grid), axis=1)
    first = np.diff(betainc(a + 1.0, b, grid) * a / (a + b), axis=1)
    right = (first - grid[:-1] * mass) / np.diff(grid)
    weights = np.zeros((len(a), len(grid)))
    weights[:, 1:] += right
    weights[:, :-1] += mass - right
    return weights


def child_matrix(grid: Float[np.ndarray, " node"], eta: float) -> Float[np.ndarray, "node child"]:
    """Row p: the weights for a child's probability, Beta(eta p, eta (1 - p)); certain at p = 0 and p = 1."""
    matrix = np.zeros((len(grid), len(grid)))
    matrix[0, 0] = matrix[-1, -1] = 1.0
    matrix[1:-1] = hat_weights(grid, eta * grid[1:-1], eta * (1.0 - grid[1:-1]))
    return matrix


def root_weights(grid: Float[np.ndarray, " node"], prior: Prior) -> Float[np.ndarray, " node"]:
    """Weights for the root's probability of m: Beta(eta0, eta0 (|V| - 1)), or 1/|V| under the independent prior."""
    if prior.independent:
        return np.asarray(grid == 1.0 / prior.vocab, dtype=np.float64)
    total = float(prior.concentrations()[0])
    rows = hat_weights(grid, np.array([total / prior.vocab]), np.array([total * (1.0 - 1.0 / prior.vocab)]))
    return np.asarray(rows[0])
