"""The parameters of soft matching that minimise the population loss, which the paper leaves open.

    best = optimal_parameters(prior, length=64, bos=True)
    best.beta, best.kappa, best.kl          with standard errors
    best.predict(tokens)                    the law of the token after the last one

The loss eq:icl_optimization_markov is estimated on one large set of sequences from the prior, the same for
all parameters, with the true law of the next token as target. The prediction reads a sequence only through
its mask counts N_M(m), so these are made once; gradient and curvature are exact, and the sandwich formula
gives the standard errors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from scipy.optimize import minimize

from interp.chains.priors import Prior
from interp.divergence import kl_divergence
from interp.estimators.counts import mask_counts
from interp.estimators.soft_matching import Law, soft_matching, soft_matching_from_counts
from interp.notation import Tokens, check_order, mask_bits
from interp.results import Result, mean_stderr, provenance

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

Array: TypeAlias = NDArray[Any]

CHUNK = 4096  # sequences sampled at once; fixed, so that a seed gives the same sequences whatever the memory
START = 1.5  # beta where the search begins
SHARP = 40.0  # stands for an infinite beta: partial matches weigh e^-40
# A finite beta must beat its own limit by this many standard errors to be reported. The finite one is fitted, so that
# where the limit is the truth the gain is z^2 / 2n with error z / n, z standard normal: 2 means z = 4.
FLAT_SIGMAS = 2.0


@dataclass(frozen=True, kw_only=True)
class OptimalParameters(Result):
    """The population-loss optimum of eq:transformer_estimator under a prior.

    beta         per lag, lag 1 first; inf for a lag along which the loss is flat (see `flat`)
    kappa        the score of BOS; None without BOS, inf where some lag is flat
    stderr       of beta per lag, then of kappa; NaN where the number itself is not identified
    flat         per lag: whether no finite beta is better than beta -> infinity
    combination  kappa less the sum of beta over the flat lags, which stays finite and is identified; None
                 where no lag is flat. If all are, the optimum is add-alpha with alpha |V| = exp(combination)
                 (prop:add_constant)
    kl           mean KL(truth || prediction) in nats at the optimum, with `kl_stderr`
    floored      share of sequences in which a possible symbol was given nothing: the KL needed its floor
    """

    beta: tuple[float, ...]
    kappa: float | None
    stderr: tuple[float, ...]
    flat: tuple[bool, ...]
    combination: float | None
    combination_stderr: float | None
    kl: float
    kl_stderr: float
    floored: float
    length: int
    bos: bool
    order: int
    vocab: int
    n: int

    def usable(self) -> tuple[tuple[float, ...], float | None]:
        """Finite beta and kappa that predict the same: an infinite beta becomes a very large one."""
        beta = tuple(SHARP if flat else value for value, flat in zip(self.beta, self.flat, strict=True))
        if self.combination is None:
            return beta, self.kappa
        return beta, self.combination + SHARP * sum(self.flat)

    def predict(self, tokens: Tokens, *, every_position: bool = False) -> Law:
        """Soft matching at the optimum."""
        beta, kappa = self.usable()
        return soft_matching(tokens, vocab=self.vocab, beta=beta, kappa=kappa, every_position=every_position)

    def table(self) -> pd.DataFrame:
        """One row per parameter: parameter, estimate, stderr; then the KL."""
        import pandas as pd

        names = [*(f"beta_{lag}" for lag in range(1, self.order + 1)), "kappa"]
        values = [*self.beta, *([] if self.kappa is None else [self.kappa])]
        rows: list[tuple[str, float, float | None]] = list(zip(names, values, self.stderr, strict=False))
        if self.combination is not None:
            rows.append(("combination", self.combination, self.combination_stderr))
        rows.append(("kl", self.kl, self.kl_stderr))
        return pd.DataFrame(rows, columns=["parameter", "estimate", "stderr"]).assign(n=self.n)

    def plot(self, ax: Axes | None = None) -> Axes:
        """beta per lag and kappa, with 95% intervals; what is infinite at the optimum is written at the upper end."""
        from interp.plotting import INTERVAL_NAME, heading, panel, parameter_points

        rows = self.table().query("parameter != 'kl'")
        ax = panel(ax, width=4.8)
        taken = "".join(rf"-\beta_{lag}" for lag, flat in enumerate(self.flat, start=1) if flat)
        names = rows["parameter"].replace("combination", rf"$\kappa{taken}$").tolist()
        parameter_points(ax, names, rows["estimate"].to_numpy(), rows["stderr"].to_numpy())
        ax.set_ylabel(f"score above an empty match\n(nats, {INTERVAL_NAME})")
        task = f"length {self.length}, {'BOS' if self.bos else 'no BOS'}"
        return heading(ax, f"optimal soft matching, {task}: KL {self.kl:.4f} nats", doubt=self.doubt)

    def __str__(self) -> str:
        rows = self.table()
        lines = [
            f"  {name:<12} {value:9.4f} +- {error:.4f}"
            for name, value, error in zip(rows.parameter, rows.estimate, rows.stderr, strict=True)
        ]
        shown = lines if len(lines) <= 6 else [*lines[:2], f"  ... {len(lines) - 5} more", *lines[-3:]]
        head = f"Optimal soft matching, length {self.length}, {'BOS' if self.bos else 'no BOS'}, n = {self.n}"
        return "\n".join([head, *shown, *self.remarks()])


def optimal_parameters(
    prior: Prior,
    *,
    length: int,
    bos: bool = True,
    order: int | None = None,
    draws: int = 100_000,
    seed: int = 0,
) -> OptimalParameters:
    """beta_1..beta_k (and kappa, with BOS) that minimise the population loss under the prior at one length.

    `order` is the estimator's, by default the prior's. `draws` sequences make the sample; errors shrink with
    its root.

    With BOS the loss may have no finite minimum. Under the independent prior only exact matches are
    informative, so beta -> infinity with kappa - sum(beta) -> ln(alpha |V|). Each beta is therefore compared
    with its own limit on the same sequences, and where no finite value is clearly better, the lag is reported as
    flat.

    Without BOS a symbol that has not occurred yet gets nothing at any beta. It adds the same to the loss at
    all parameters, so it does not move the optimum, but it makes `kl` depend on the floor of `divergence`;
    see `floored`.
    """
    order = check_order(prior.order if order is None else order)
    if draws < 100:
        raise ValueError(f"draws must be at least 100 for standard errors to mean anything, got {draws}")
    counts, laws = _sample_counts(prior, length=length, order=order, draws=draws, seed=seed)
    full = _fit(counts, laws, bos=bos)
    flat = _flat_lags(counts, laws, full) if bos else ()
    fit = _fit(_sharpen(counts, flat), laws, bos=bos) if flat else full
    sharp = np.isin(np.arange(order), flat)
    beta, errors = np.full(order, math.inf), np.full(order, math.nan)
    beta[~sharp], errors[~sharp] = fit.theta[: (~sharp).sum()], fit.stderr[: (~sharp).sum()]
    bos_score, bos_error = (fit.theta[-1], fit.stderr[-1]) if bos else (None, None)
    kl, kl_error, floored = _divergence(_sharpen(counts, flat), laws, fit)
    return OptimalParameters(
        beta=tuple(beta.tolist()),
        kappa=None if bos_score is None else math.inf if flat else float(bos_score),
        stderr=(*errors.tolist(), *([] if bos_error is None else [math.nan if flat else float(bos_error)])),
        flat=tuple(sharp.tolist()),
        combination=float(bos_score) if flat and bos_score is not None else None,
        combination_stderr=float(bos_error) if flat and bos_error is not None else None,
        kl=kl,
        kl_stderr=kl_error,
        floored=floored,
        length=length,
        bos=bos,
        order=order,
        vocab=prior.vocab,
        n=draws,
        success=fit.success,
        message=_message(fit, flat, order),
        provenance=provenance(seed=seed, prior=prior.to_dict()),
    )


def _message(fit: _Fit, flat: tuple[int, ...], order: int) -> str:
    if not fit.success:
        return fit.message
    if not flat:
        return "converged"
    names = ", ".join(f"beta_{lag + 1}" for lag in flat)
    which = "sum(beta)" if len(flat) == order else " - ".join(f"beta_{lag + 1}" for lag in flat)
    return f"flat direction: {names} -> infinity; only kappa - {which} is identified"


def _sample_counts(prior: Prior, *, length: int, order: int, draws: int, seed: int) -> tuple[Array, Array]:
    """Mask counts [draws, mask, vocab] and the true next laws [draws, vocab] of sequences from the prior."""
    counts = np.empty((draws, 1 << order, prior.vocab), dtype=np.int32)
    laws = np.empty((draws, prior.vocab))
    starts = range(0, draws, CHUNK)
    seeds = np.random.SeedSequence(seed).generate_state(len(starts))
    for start, chunk_seed in zip(starts, seeds, strict=True):
        rows = slice(start, min(start + CHUNK, draws))
        chains = prior.sample(batch=rows.stop - rows.start, length=length, seed=int(chunk_seed), method="collapsed")
        counts[rows] = mask_counts(chains.tokens, order=order, vocab=prior.vocab).numpy()
        laws[rows] = chains.next_law.numpy()
    return counts, laws


@dataclass(frozen=True, kw_only=True)
class _Fit:
    theta: Array  # the free betas, then kappa where there is BOS
    stderr: Array
    losses: Array  # per sequence, at theta
    bos: bool
    success: bool
    message: str


def _features(masks: int, *, bos: bool) -> Array:
    """Row per kind of vote (each mask, then BOS): a vote's log weight is its row @ theta."""
    bits = mask_bits(masks.bit_length() - 1).astype(np.float64)
    if not bos:
        return np.ascontiguousarray(bits)
    features = np.zeros((masks + 1, bits.shape[1] + 1))
    features[:masks, :-1] = bits
    features[masks, -1] = 1.0
    return features


def _fit(counts: Array, laws: Array, *, bos: bool) -> _Fit:
    features = _features(counts.shape[1], bos=bos)
    parameters = features.shape[1]
    n = len(laws)
    losses, gradients = np.empty(n), np.empty((n, parameters))
    hessian = np.empty((parameters, parameters))
    last: dict[str, Array] = {}

    def evaluate(theta: Array) -> None:
        if "theta" not in last or not np.array_equal(last["theta"], theta):
            _population_loss(counts, laws, features, theta, bos, losses, gradients, hessian)
            last["theta"] = theta.copy()

    def value(theta: Array) -> float:
        evaluate(theta)
        return float(losses.mean())

    def gradient(theta: Array) -> Array:
        evaluate(theta)
        slope: Array = gradients.mean(0)
        return slope

    def curvature(theta: Array) -> Array:
        evaluate(theta)
        return hessian / n

    start = np.full(parameters, START)
    if bos:
        start[-1] = START * (parameters - 1)
    if parameters == 0:
        evaluate(start)
        return _Fit(theta=start, stderr=start, losses=losses, bos=bos, success=True, message="no parameter")
    found = minimize(
        value,
        start,
        jac=gradient,
        hess=curvature,
        method="trust-exact",
        options={"gtol": 1e-7, "maxiter": 200},
    )
    evaluate(found.x)
    # The sandwich: curvature on both sides of the spread of the gradients. Along a flat direction it is
    # singular.
    bread = np.linalg.pinv(hessian / n, rcond=1e-10)
    spread = np.atleast_2d(np.cov(gradients.T)) / n
    slope = float(np.abs(gradients.mean(0)).max())
    success = bool(found.success) or slope < 1e-5
    return _Fit(
        theta=found.x,
        stderr=np.sqrt(np.diag(bread @ spread @ bread)),
        losses=losses,
        bos=bos,
        success=success,
        message="converged" if success else f"the search stopped with a slope of {slope:.1e}: {found.message}",
    )


def _flat_lags(counts: Array, laws: Array, full: _Fit) -> tuple[int, ...]:
    """The lags (0-based) whose beta may as well be infinite, on the evidence of these sequences.

    Compared are losses on the same sequences, so the error is that of the difference. All lags together come
    first, as under the independent prior; then one after the other.
    """
    order = counts.shape[1].bit_length() - 1

    def as_good(lags: tuple[int, ...]) -> bool:
        limit = _fit(_sharpen(counts, lags), laws, bos=True)
        gain, error = mean_stderr(limit.losses - full.losses)
        return gain <= FLAT_SIGMAS * error

    everything = tuple(range(order))
    if as_good(everything):
        return everything
    flat: tuple[int, ...] = ()
    for lag in range(order if order > 1 else 0):
        if as_good((*flat, lag)):
            flat = (*flat, lag)
    return flat


def _sharpen(counts: Array, lags: tuple[int, ...]) -> Array:
    """The counts as seen when beta -> infinity at these lags: masks that contain them, these lags struck out."""
    if not lags:
        return counts
    order = counts.shape[1].bit_length() - 1
    required = sum(1 << lag for lag in lags)
    # Masks in ascending order stay in ascending order when the required bits, set in all, are struck out.
    kept = [mask for mask in range(1 << order) if mask & required == required]
    return np.ascontiguousarray(counts[:, kept])


def _divergence(counts: Array, laws: Array, fit: _Fit) -> tuple[float, float, float]:
    beta = torch.from_numpy(fit.theta[: fit.theta.size - fit.bos].copy())
    kappa = float(fit.theta[-1]) if fit.bos else None
    predictions = [
        soft_matching_from_counts(torch.from_numpy(counts[start : start + CHUNK]), beta=beta, kappa=kappa)
        for start in range(0, len(laws), CHUNK)
    ]
    divergence = kl_divergence(torch.from_numpy(laws), torch.cat(predictions))
    return divergence.mean, divergence.stderr, divergence.floored


@njit(cache=True)
def _population_loss(
    counts: Array,
    laws: Array,
    features: Array,
    theta: Array,
    bos: bool,
    losses: Array,
    gradients: Array,
    hessian: Array,
) -> None:
    """Cross-entropy of each sequence, its gradient, and the sum of the Hessians.

    A symbol's votes are a sum of exponentials, so d ln p(m) is the mean feature of the votes for m less that
    of all votes, and d2 ln p(m) the covariance of the former less the covariance of the latter.
    """
    kinds, parameters = features.shape
    n, masks, vocab = counts.shape
    scores = features @ theta
    weights = np.empty(kinds)
    mean, mean_all = np.empty(parameters), np.empty(parameters)
    square, square_all = np.empty((parameters, parameters)), np.empty((parameters, parameters))
    hessian[:] = 0.0
    for b in range(n):
        top = -np.inf
        for j in range(kinds):
            seen = j >= masks or counts[b, j].sum() > 0
            weights[j] = scores[j] if seen else -np.inf
            top = max(top, weights[j])
        total = 0.0
        mean_all[:] = 0.0
        square_all[:] = 0.0
        for j in range(kinds):
            weights[j] = np.exp(weights[j] - top)
            mass = weights[j] * (1.0 if j >= masks else counts[b, j].sum())
            total += mass
            for p in range(parameters):
                mean_all[p] += mass * features[j, p]
                for q in range(p + 1):
                    square_all[p, q] += mass * features[j, p] * features[j, q]
        mean_all /= total
        square_all /= total
        losses[b] = 0.0
        gradients[b] = 0.0
        for m in range(vocab):
            votes = 0.0
            mean[:] = 0.0
            square[:] = 0.0
            for j in range(kinds):
                mass = weights[j] * (1.0 / vocab if j >= masks else counts[b, j, m])
                if mass == 0.0:
                    continue
                votes += mass
                for p in range(parameters):
                    mean[p] += mass * features[j, p]
                    for q in range(p + 1):
                        square[p, q] += mass * features[j, p] * features[j, q]
            if votes == 0.0:
                continue  # nothing depends on the parameters here
            law = laws[b, m]
            losses[b] -= law * np.log(votes / total)
            for p in range(parameters):
                mean[p] /= votes
                gradients[b, p] -= law * (mean[p] - mean_all[p])
                for q in range(p + 1):
                    here = square[p, q] / votes - mean[p] * mean[q]
                    overall = square_all[p, q] - mean_all[p] * mean_all[q]
                    hessian[p, q] -= law * (here - overall)
    for p in range(parameters):
        for q in range(p):
            hessian[q, p] = hessian[p, q]
