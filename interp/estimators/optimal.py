"""The parameters of soft matching that minimise the population loss, which the paper leaves open.

    best = optimal_parameters(prior, length=64, bos=True)
    best.beta, best.kappa, best.kl          with standard errors
    best.predict(tokens)                    the law of the token after the last one

The loss eq:icl_optimization_markov is estimated on one large sample from the prior, the same for all parameters
(`population`). Gradient and curvature are exact. The search runs on a part of the sample first, and ends on all of it;
the sandwich formula gives the standard errors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from scipy import special
from scipy.optimize import minimize

from interp.arguments import Number, Switch, Whole, count, seed_number, switch
from interp.chains.priors import Prior, check_prior
from interp.divergence import kl_divergence
from interp.estimators.population import Loss, Population, draw_population, pooled, population_loss
from interp.estimators.soft_matching import Law, law_from_counts, soft_matching
from interp.notation import Tokens, check_order
from interp.results import Result, half_width, interval, mean_stderr, provenance

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

Array: TypeAlias = NDArray[Any]

CHUNK = 4096  # sequences predicted at once
COARSE = 1000  # families that the search starts on
SLOPE = 1e-7  # of a converged search, per parameter
START = 1.5  # beta where the search begins
SHARP = 40.0  # used for an infinite beta: partial matches weigh e^-40
# A finite beta is reported only if it is better than its own limit by this many standard errors. The finite one is
# fitted, so that where the limit is the truth the gain is z^2 / 2n with error z / n, z standard normal: 2 means z = 4.
FLAT_SIGMAS = 2.0
CLEAR_SIGMAS = 8.0  # on a part of the sample: a difference this large needs no check on the whole sample


@dataclass(frozen=True, kw_only=True)
class Optimum(Result):
    """What a searched and a predicted optimum of soft matching share.

    beta         per lag, lag 1 first; inf for a lag along which the loss is flat
    kappa        the score of BOS; None without BOS, inf where some beta is
    combination  kappa minus the sum of the infinite betas, which stays finite; None where no beta is infinite. If all
                 are, the optimum is add-alpha with alpha |V| = exp(combination) (prop:add_constant)
    length, bos, order, vocab   T, whether there is BOS, k and |V|
    """

    beta: tuple[float, ...]
    kappa: float | None
    combination: float | None
    length: int
    bos: bool
    order: int
    vocab: int

    @property
    def flat(self) -> tuple[bool, ...]:
        """Per lag: whether no finite beta is better than beta -> infinity."""
        return tuple(map(math.isinf, self.beta))

    def usable(self) -> tuple[tuple[float, ...], float | None]:
        """Finite beta and kappa that predict the same: an infinite beta becomes a very large one."""
        beta = tuple(SHARP if math.isinf(value) else value for value in self.beta)
        if self.combination is None:
            return beta, self.kappa
        return beta, self.combination + SHARP * sum(self.flat)

    def predict(self, tokens: Tokens, *, every_position: bool = False) -> Law:
        """Soft matching at these parameters."""
        beta, kappa = self.usable()
        return soft_matching(tokens, vocab=self.vocab, beta=beta, kappa=kappa, every_position=every_position)

    @property
    def _task(self) -> str:
        return f"length {self.length}, {'BOS' if self.bos else 'no BOS'}"

    def _rows(self, *columns: Sequence[float], kappas: Sequence[float | None]) -> list[tuple[Any, ...]]:
        """Rows of a table: the name of a parameter, and its value in each column (a value per lag; kappa apart)."""
        rows: list[tuple[Any, ...]] = [
            (f"beta_{lag}", *values) for lag, values in enumerate(zip(*columns, strict=True), start=1)
        ]
        return [*rows, ("kappa", *kappas)] if self.bos else rows

    def _panel(self, ax: Axes | None, values: Array, reach: Array, *, note: str) -> Axes:
        """beta per lag and kappa, or the combination that is finite; infinite values stand at the upper end."""
        from interp.plotting import heading, panel, parameter_points

        ax = panel(ax, width=4.8)
        taken = "".join(rf"-\beta_{lag}" for lag, flat in enumerate(self.flat, start=1) if flat)
        names = [f"beta_{lag}" for lag in range(1, self.order + 1)] + ["kappa"] * self.bos
        parameter_points(ax, [*names, rf"$\kappa{taken}$"][: len(values)], values, reach)
        ax.set_ylabel(f"score above an empty match\n(nats, {note})")
        return heading(ax, self.title, doubt=self.doubt)


@dataclass(frozen=True, kw_only=True)
class OptimalParameters(Optimum):
    """The population-loss optimum of eq:transformer_estimator under a prior; `Optimum` has the other fields.

    stderr       of beta per lag, then of kappa; NaN where the number itself is not identified
    combination_stderr  of `combination`
    kl           mean KL(truth || prediction) in nats at the optimum, with `kl_stderr`
    floored      share of sequences in which a possible symbol got probability 0, so that the KL needed its floor
    n, families  number of sequences in the sample, and of independent families of them (`population`)
    """

    SHOWN = ("parameter", "estimate", "stderr")

    stderr: tuple[float, ...]
    combination_stderr: float | None
    kl: float
    kl_stderr: float
    floored: float
    n: int
    families: int

    @property
    def title(self) -> str:
        return f"optimal soft matching, {self._task}: KL {self.kl:.4f} nats"

    def interval(self, level: Number = 0.95) -> tuple[Float[np.ndarray, " end"], Float[np.ndarray, " end"]]:
        """Lower and upper ends for beta_1, .., beta_k and, with BOS, kappa: `level` of such intervals hold the optimum.

        NaN for what is not identified.
        """
        estimates = [*self.beta, *([] if self.kappa is None else [self.kappa])]
        return interval(estimates, self.stderr, n=self.families, level=level)

    def table(self) -> pd.DataFrame:
        """One row per parameter: parameter, estimate, stderr; then the KL."""
        import pandas as pd

        rows = self._rows(self.beta, self.stderr[: self.order], kappas=(self.kappa, self.stderr[-1]))
        if self.combination is not None:
            rows.append(("combination", self.combination, self.combination_stderr))
        rows.append(("kl", self.kl, self.kl_stderr))
        return pd.DataFrame(rows, columns=["parameter", "estimate", "stderr"]).assign(n=self.n)

    def plot(self, ax: Axes | None = None) -> Axes:
        """beta per lag and kappa, with 95% intervals; what is infinite at the optimum is written at the upper end."""
        from interp.plotting import INTERVAL_NAME

        rows = self.table().iloc[:-1]
        reach = half_width(rows["stderr"], n=self.families)
        return self._panel(ax, rows["estimate"].to_numpy(), reach, note=INTERVAL_NAME)


def optimal_parameters(
    prior: Prior,
    *,
    length: Whole,
    bos: Switch = True,
    order: Whole | None = None,
    draws: Whole = 100_000,
    seed: Whole = 0,
) -> OptimalParameters:
    """beta_1..beta_k (and kappa, with BOS) that minimise the population loss under the prior at one length.

    `order` is the estimator's, by default the prior's. `draws` is the size of the sample; errors shrink with its square
    root. They come in families of eight that differ in their last tokens alone (`population`), and the errors take that
    into account.

    With BOS the loss may have no finite minimum. Under the independent prior only exact matches are
    informative, so beta -> infinity with kappa - sum(beta) -> ln(alpha |V|). Each beta is therefore compared
    with its own limit on the same sequences, and where no finite value is clearly better, the lag is reported as
    flat.

    Without BOS a symbol that has not occurred yet gets probability 0 at any beta. It adds the same amount to the loss
    at all parameters, so that it does not move the optimum. But `kl` then depends on the floor of `divergence`; see
    `floored`.

    Parameters
    ----------
    prior
        What the sequences are drawn from.
    length
        Tokens of a sequence, more than the order.
    bos
        Whether there is a BOS, and so a kappa.
    order
        k of the estimator; by default the prior's.
    draws
        Sequences of the sample, at least 100; errors shrink with the root.
    seed
        Of the random numbers; one seed gives one result.

    Returns
    -------
    OptimalParameters
        beta, kappa and the KL with their standard errors.

    Examples
    --------
    >>> from interp.chains.priors import HierarchicalDirichlet
    >>> prior = HierarchicalDirichlet(order=1, vocab=3, eta=(5.0,))
    >>> optimal_parameters(prior, length=32, draws=1000).success
    True
    """
    prior, bos = check_prior(prior), switch(bos, name="bos")
    order = check_order(prior.order if order is None else order)
    length, draws, seed = count(length, name="length"), count(draws, name="draws"), seed_number(seed)
    if draws < 100:
        raise ValueError(f"draws must be at least 100 for standard errors to mean anything, got {draws}")
    sample = draw_population(prior, length=length, order=order, draws=draws, seed=seed)
    full = _fit(sample, bos=bos)
    flat = _flat_lags(sample, full) if bos else ()
    fit = _fit(sample.sharpened(flat), bos=bos) if flat else full
    finite = [lag for lag in range(order) if lag not in flat]
    beta, errors = np.full(order, math.inf), np.full(order, math.nan)
    beta[finite], errors[finite] = fit.theta[: len(finite)], fit.stderr[: len(finite)]
    # kappa, or what of it is identified where some beta is infinite
    score, error = (float(fit.theta[-1]), float(fit.stderr[-1])) if bos else (None, None)
    kl, kl_error, floored = population_divergence(sample.sharpened(flat), fit.theta, bos=bos)
    return OptimalParameters(
        beta=tuple(beta.tolist()),
        kappa=math.inf if flat else score,
        stderr=(*errors.tolist(), *([] if error is None else [math.nan if flat else error])),
        combination=score if flat else None,
        combination_stderr=error if flat else None,
        kl=kl,
        kl_stderr=kl_error,
        floored=floored,
        length=length,
        bos=bos,
        order=order,
        vocab=prior.vocab,
        n=len(sample.laws),
        families=sample.families,
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


@dataclass(frozen=True, kw_only=True)
class _Fit:
    theta: Array  # the free betas, then kappa where there is BOS
    stderr: Array
    losses: Array  # per family, at theta
    success: bool
    message: str


def _fit(sample: Population, *, bos: bool, start: Array | None = None) -> _Fit:
    """The minimum, searched on the first families and then on all of them."""
    theta = start
    if theta is None:
        lags = sample.counts.shape[1].bit_length() - 1
        theta = np.array([START] * lags + [START * lags] * bos)
    if sample.families > 2 * COARSE:
        theta, _, _ = _search(sample.part(COARSE), theta, bos=bos)
    theta, point, message = _search(sample, theta, bos=bos)
    # The sandwich: curvature on both sides of the spread of the gradients. Along a flat direction it is
    # singular.
    bread = np.linalg.pinv(point.hessian, rcond=1e-10)
    spread = np.atleast_2d(np.cov(point.gradients.T)) / sample.families
    slope = float(np.abs(point.gradient).max())
    success = slope < 1e-5
    return _Fit(
        theta=theta,
        # Where the targets are the optimal predictions themselves, the spread is zero: the remaining Newton step is
        # added.
        stderr=np.sqrt(np.diag(bread @ spread @ bread) + (bread @ point.gradient) ** 2),
        losses=point.losses,
        success=success,
        message="converged" if success else f"the search stopped with a slope of {slope:.1e}: {message}",
    )


def _search(sample: Population, start: Array, *, bos: bool) -> tuple[Array, Loss, str]:
    """A trust-region search, safe from anywhere; near the minimum its steps are Newton's."""

    @lru_cache(maxsize=2)  # value, gradient and curvature are asked for one after the other
    def at(theta: bytes) -> Loss:
        return population_loss(sample, np.frombuffer(theta), bos=bos)

    search: Any = minimize
    found = search(
        lambda theta: at(theta.tobytes()).value,
        start,
        jac=lambda theta: at(theta.tobytes()).gradient,
        hess=lambda theta: at(theta.tobytes()).hessian,
        method="trust-exact",
        options={"gtol": SLOPE, "maxiter": 200},
    )
    return found.x, at(found.x.tobytes()), str(found.message)


def _flat_lags(sample: Population, full: _Fit) -> tuple[int, ...]:
    """The lags (0-based) for which an infinite beta is as good as a finite one on these sequences.

    Losses are compared on the same sequences, so that the error is that of the difference. First all lags are tested
    together, as the independent prior requires, then one after the other. Clear cases are decided on a part of the
    sample.
    """
    order = sample.counts.shape[1].bit_length() - 1

    def as_good(lags: tuple[int, ...]) -> bool:
        kept = [lag for lag in range(order) if lag not in lags]
        start = np.append(full.theta[kept], full.theta[-1] - full.theta[list(lags)].sum())
        if sample.families > 2 * COARSE:
            limit = _fit(sample.part(COARSE).sharpened(lags), bos=True, start=start)
            loss, error = mean_stderr(limit.losses - full.losses[:COARSE])
            if loss > CLEAR_SIGMAS * error:
                return False
        limit = _fit(sample.sharpened(lags), bos=True, start=start)
        loss, error = mean_stderr(limit.losses - full.losses)
        return loss <= FLAT_SIGMAS * error

    everything = tuple(range(order))
    if as_good(everything):
        return everything
    flat: tuple[int, ...] = ()
    for lag in range(order if order > 1 else 0):
        if as_good((*flat, lag)):
            flat = (*flat, lag)
    return flat


def population_divergence(sample: Population, theta: Array, *, bos: bool) -> tuple[float, float, float]:
    """Mean KL(truth || soft matching) on the sample, its standard error, and the share that needed the floor."""
    beta = torch.from_numpy(theta[: theta.size - bos].copy())
    kappa = float(theta[-1]) if bos else None
    predictions = [
        law_from_counts(torch.from_numpy(sample.counts[start : start + CHUNK]), beta=beta, kappa=kappa)
        for start in range(0, len(sample.laws), CHUNK)
    ]
    divergence = kl_divergence(torch.from_numpy(sample.laws), torch.cat(predictions))
    # The divergence of the mean law, and by how much the mean law's entropy exceeds the mean entropy.
    gaps = -special.xlogy(sample.laws, sample.laws).sum(1) - sample.entropies
    mean, error = mean_stderr(pooled(divergence.values.numpy() + gaps, family=sample.family))
    return mean, error, divergence.floored
