"""Classical smoothers with their parameters tuned for a prior and a length.

    tune_add_alpha(prior, length=64).alpha
    tune_jelinek_mercer(prior, length=64).weights

The parameters are tuned on sequences of the prior; no test sequence is used. The true law of the next token is the
target of the cross-entropy, which acts as held-out data of infinite size.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import brentq

from interp.arguments import Whole, count, seed_number
from interp.chains.priors import Prior, check_prior
from interp.divergence import kl_divergence
from interp.estimators.classical import suffix_models
from interp.estimators.counts import mask_counts, queries
from interp.estimators.suffixes import suffix_counts
from interp.results import Result, half_width, mean_stderr, provenance

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

Array: TypeAlias = NDArray[Any]

LEAST, MOST = 1e-4, 1e4  # the range in which alpha is searched
EM_CHANGE = 1e-8  # of a weight, at which EM has converged
STEPS = 2000  # of EM at most
TINY = 1e-300
EDGE = 1e-6  # a weight below it is at the edge of the simplex


@dataclass(frozen=True, kw_only=True)
class Tuned(Result):
    """What tuned smoothers share.

    kl       mean KL(truth || smoother) at the tuned parameters, with `kl_stderr` and the share of laws `floored`
    length   tokens of a sequence; order: k; n: number of sequences
    """

    kl: float
    kl_stderr: float
    floored: float
    length: int
    order: int
    n: int

    NAME: ClassVar[str]  # of the smoother

    @property
    def title(self) -> str:
        return f"{self.NAME}, length {self.length}: KL {self.kl:.4f} ± {self.kl_stderr:.4f} nats, n = {self.n}"


@dataclass(frozen=True, kw_only=True)
class AddAlphaFit(Tuned):
    """alpha tuned on a prior; `Tuned` has the other fields.

    alpha    the one with the least population cross-entropy, with `stderr` (sandwich formula)
    success  False where the loss has no minimum inside the range that was searched
    """

    NAME = "best add-alpha"
    SHOWN = ("alpha", "stderr")

    alpha: float
    stderr: float

    def table(self) -> pd.DataFrame:
        """One row: alpha, stderr, kl, kl_stderr, length, n."""
        import pandas as pd

        names = ("alpha", "stderr", "kl", "kl_stderr", "length", "n")
        return pd.DataFrame([{name: getattr(self, name) for name in names}])

    def plot(self, ax: Axes | None = None) -> Axes:
        """alpha with its 95% interval."""
        from interp.plotting import INTERVAL_NAME, heading, panel, parameter_points

        ax = panel(ax, width=4.8)
        parameter_points(ax, [r"$\alpha$"], np.array([self.alpha]), half_width([self.stderr], n=self.n))
        ax.set_ylabel(f"pseudo-count ({INTERVAL_NAME})")
        return heading(ax, self.title, doubt=self.doubt)


@dataclass(frozen=True, kw_only=True)
class JelinekMercerFit(Tuned):
    """Mixture weights tuned on a prior; `Tuned` has the other fields.

    weights  lambda_0..lambda_k
    stderr   of each weight (sandwich formula); NaN where a weight is at 0
    """

    NAME = "best Jelinek-Mercer weights"

    weights: tuple[float, ...]
    stderr: tuple[float, ...]

    def table(self) -> pd.DataFrame:
        """One row per order: order, weight, stderr."""
        import pandas as pd

        return pd.DataFrame({"order": range(len(self.weights)), "weight": self.weights, "stderr": self.stderr})

    def plot(self, ax: Axes | None = None) -> Axes:
        """The weight of each order, with 95% intervals."""
        from interp.plotting import INTERVAL_NAME, OVERLAP_COLOURS, grouped_bars, heading, overlap_kind, panel

        orders = range(len(self.weights))
        ax = panel(ax, width=4.8)
        grouped_bars(
            ax,
            [f"order {order}" for order in orders],
            {"weight": np.array(self.weights)},
            reach={"weight": half_width(self.stderr, n=self.n)},
            colours={"weight": [OVERLAP_COLOURS[overlap_kind(order, order=orders[-1])] for order in orders]},
        )
        ax.set_ylabel(rf"weight $\lambda_i$ ({INTERVAL_NAME})")
        return heading(ax, self.title, doubt=self.doubt)


def tune_add_alpha(prior: Prior, *, length: Whole, draws: Whole = 20_000, seed: Whole = 0) -> AddAlphaFit:
    """The alpha with the least population cross-entropy, on `draws` sequences of the prior.

    The slope of the loss in alpha is exact, and its zero is found to rounding.

    Parameters
    ----------
    prior
        What the sequences are drawn from.
    length
        Tokens of a sequence, more than the order.
    draws
        Sequences of the sample.
    seed
        Of the random numbers; one seed gives one result.

    Returns
    -------
    AddAlphaFit
        alpha, its standard error and the KL.

    Examples
    --------
    >>> from interp.chains.priors import IndependentDirichlet
    >>> tune_add_alpha(IndependentDirichlet(order=1, vocab=3, alpha=1.0), length=32, draws=500).success
    True
    """
    tokens, law, finish = _sampled(prior, length, draws, seed)
    counts = mask_counts(tokens, order=prior.order, vocab=prior.vocab)[..., -1, :].double().numpy()
    totals = counts.sum(-1)

    def slopes(alpha: float) -> Array:
        values: Array = prior.vocab / (totals + alpha * prior.vocab) - (law / (counts + alpha)).sum(-1)
        return values

    def slope(log_alpha: float) -> float:
        return float(slopes(math.exp(log_alpha)).mean())

    low, high = math.log(LEAST), math.log(MOST)
    inside = slope(low) < 0 < slope(high)
    alpha = math.exp(brentq(slope, low, high, xtol=1e-12)) if inside else LEAST if slope(low) >= 0 else MOST
    bends = (law / (counts + alpha) ** 2).sum(-1) - prior.vocab**2 / (totals + alpha * prior.vocab) ** 2
    curvature = float(bends.mean())
    _, error = mean_stderr(slopes(alpha))
    return AddAlphaFit(
        alpha=alpha,
        stderr=error / curvature if inside and curvature > 0 else math.nan,
        success=inside,
        message="converged" if inside else f"the loss has no minimum for alpha in {LEAST:g}..{MOST:g}",
        **finish((counts + alpha) / (totals + alpha * prior.vocab)[:, None]),
    )


def tune_jelinek_mercer(prior: Prior, *, length: Whole, draws: Whole = 20_000, seed: Whole = 0) -> JelinekMercerFit:
    """The weights with the least population cross-entropy, by EM on `draws` sequences of the prior.

    A symbol that no order has seen has probability zero at any weights and is left out.

    Parameters
    ----------
    prior
        What the sequences are drawn from.
    length
        Tokens of a sequence, more than the order.
    draws
        Sequences of the sample.
    seed
        Of the random numbers; one seed gives one result.

    Returns
    -------
    JelinekMercerFit
        The weights, their standard errors and the KL.

    Examples
    --------
    >>> from interp.chains.priors import IndependentDirichlet
    >>> fit = tune_jelinek_mercer(IndependentDirichlet(order=1, vocab=3, alpha=1.0), length=32, draws=500)
    >>> round(sum(fit.weights), 6)
    1.0
    """
    tokens, law, finish = _sampled(prior, length, draws, seed)
    order = prior.order
    counts, _ = suffix_counts(queries(tokens, order=order, vocab=prior.vocab, every_position=False))
    models = suffix_models(counts[:, 0]).numpy()
    columns = np.ascontiguousarray(models.transpose(1, 0, 2).reshape(order + 1, -1))  # one for each sequence and symbol

    def improved(weights: Array) -> Array:
        mixed = weights @ columns
        updated = weights * (columns @ np.divide(law.ravel(), mixed, out=np.zeros_like(mixed), where=mixed > 0))
        step: Array = updated / updated.sum()
        return step

    weights = np.full(order + 1, 1.0 / (order + 1))
    change = math.inf
    for _ in range(STEPS):
        once = improved(weights)
        twice = improved(once)
        step, bend = once - weights, twice - 2.0 * once + weights
        change = np.abs(step).max()
        # Extrapolated along the last two steps (Varadhan and Roland 2008), where that stays inside the simplex.
        stride = float(np.linalg.norm(step)) / max(float(np.linalg.norm(bend)), TINY)
        ahead = weights + 2.0 * stride * step + stride**2 * bend
        weights = improved(ahead / ahead.sum()) if (ahead > 0).all() else twice
        if change < EM_CHANGE:
            break
    return JelinekMercerFit(
        weights=tuple(weights.tolist()),
        stderr=tuple(_weight_errors(models, law, weights).tolist()),
        success=bool(change < EM_CHANGE),
        message="converged" if change < EM_CHANGE else f"EM still moved by {change:.1e} after {STEPS} steps",
        **finish(np.einsum("biv,i->bv", models, weights)),
    )


def _sampled(
    prior: Prior, length: Whole, draws: Whole, seed: Whole
) -> tuple[torch.Tensor, Array, Callable[[Array], dict[str, Any]]]:
    """Sequences of the prior, their true next laws, and a function from predictions to the fields of `Tuned`."""
    length, draws, seed = count(length, name="length"), count(draws, name="draws", least=2), seed_number(seed)
    chains = check_prior(prior).sample(batch=draws, length=length, seed=seed, method="collapsed")

    def finish(prediction: Array) -> dict[str, Any]:
        divergence = kl_divergence(chains.next_law, torch.from_numpy(prediction))
        return {
            "kl": divergence.mean,
            "kl_stderr": divergence.stderr,
            "floored": divergence.floored,
            "length": length,
            "order": prior.order,
            "n": draws,
            "provenance": provenance(seed=seed, prior=prior.to_dict()),
        }

    return chains.tokens, chains.next_law.numpy(), finish


def _ratio(models: Array, law: Array, weights: Array) -> Array:
    """Law over mixture; 0 where the mixture is."""
    mixed = np.einsum("biv,i->bv", models, weights)
    ratio: Array = np.divide(law, mixed, out=np.zeros_like(law), where=mixed > 0)
    return ratio


def _weight_errors(models: Array, law: Array, weights: Array) -> Array:
    """Standard errors of the weights inside the simplex; NaN for all if one of them is at its edge."""
    if (weights < EDGE).any():
        return np.full(weights.shape, np.nan)
    ratio = _ratio(models, law, weights)
    gradients = np.einsum("bv,biv->bi", ratio, models)
    curvature = np.einsum("bv,biv,bjv->ij", _ratio(models, ratio, weights), models, models) / len(law)
    # Only directions that keep the sum at one are free: an orthonormal basis of them.
    basis = np.linalg.svd(np.ones((1, len(weights))))[2][1:].T
    bread = basis @ np.linalg.inv(basis.T @ curvature @ basis) @ basis.T
    spread = np.cov(gradients.T) / len(law)
    result: Array = np.sqrt(np.diag(bread @ spread @ bread))
    return result
