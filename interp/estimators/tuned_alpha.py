"""The best add-alpha under a prior, with alpha tuned for each length.

    fit = tune_add_alpha(prior, length=64)
    fit.alpha, fit.kl

The alpha is tuned on sequences of the prior; no test sequence is used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy.optimize import brentq

from interp.arguments import Whole, count, seed_number
from interp.chains.priors import Prior, check_prior
from interp.divergence import kl_divergence
from interp.estimators.counts import mask_counts
from interp.notation import check_order
from interp.results import Result, half_width, mean_stderr, provenance

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

LEAST, MOST = 1e-4, 1e4  # the range in which alpha is searched


@dataclass(frozen=True, kw_only=True)
class AddAlphaFit(Result):
    """alpha tuned on a prior.

    alpha    the one with the least population cross-entropy, with `stderr` (sandwich formula)
    kl       mean KL(truth || add-alpha) there, with `kl_stderr`
    length   tokens of a sequence; order: k; n: number of sequences
    success  False where the loss has no minimum inside the range that was searched
    """

    alpha: float
    stderr: float
    kl: float
    kl_stderr: float
    length: int
    order: int
    n: int

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
        return heading(ax, f"best add-alpha, length {self.length}: KL {self.kl:.4f} nats", doubt=self.doubt)

    def __str__(self) -> str:
        lines = [
            f"Best add-alpha at length {self.length}: alpha {self.alpha:.4f} ± {self.stderr:.4f}",
            f"  KL {self.kl:.4f} ± {self.kl_stderr:.4f} nats, n = {self.n}",
        ]
        return "\n".join([*lines, *self.remarks()])


def tune_add_alpha(
    prior: Prior, *, length: Whole, order: Whole | None = None, draws: Whole = 20_000, seed: Whole = 0
) -> AddAlphaFit:
    """The alpha with the least population cross-entropy, on `draws` sequences of the prior.

    The true law of the next token is the target; it acts as held-out data of infinite size. The slope of the loss in
    alpha is exact, and its zero is found to rounding.
    """
    prior = check_prior(prior)
    order = check_order(prior.order if order is None else order)
    length, draws = count(length, name="length"), count(draws, name="draws", least=2)
    seed = seed_number(seed)
    chains = prior.sample(batch=draws, length=length, seed=seed, method="collapsed")
    counts = mask_counts(chains.tokens, order=order, vocab=prior.vocab)[..., -1, :].double().numpy()
    law = chains.next_law.numpy()
    totals = counts.sum(-1)

    def slopes(alpha: float) -> np.ndarray:
        values: np.ndarray = prior.vocab / (totals + alpha * prior.vocab) - (law / (counts + alpha)).sum(-1)
        return values

    def slope(log_alpha: float) -> float:
        return float(slopes(math.exp(log_alpha)).mean())

    low, high = math.log(LEAST), math.log(MOST)
    inside = slope(low) < 0 < slope(high)
    alpha = math.exp(brentq(slope, low, high, xtol=1e-12)) if inside else LEAST if slope(low) >= 0 else MOST
    curvature = float(
        ((law / (counts + alpha) ** 2).sum(-1) - prior.vocab**2 / (totals + alpha * prior.vocab) ** 2).mean()
    )
    _, error = mean_stderr(slopes(alpha))
    prediction = torch.from_numpy((counts + alpha) / (totals + alpha * prior.vocab)[:, None])
    divergence = kl_divergence(chains.next_law, prediction)
    return AddAlphaFit(
        alpha=alpha,
        stderr=error / curvature if inside and curvature > 0 else math.nan,
        kl=divergence.mean,
        kl_stderr=divergence.stderr,
        length=length,
        order=order,
        n=draws,
        success=inside,
        message="converged" if inside else f"the loss has no minimum for alpha in {LEAST:g}..{MOST:g}",
        provenance=provenance(seed=seed, prior=prior.to_dict()),
    )
