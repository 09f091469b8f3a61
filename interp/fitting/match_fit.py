"""What a fit of match scores returns: `MatchFit`; `interp.instruments.beta_kappa` says how to read it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int64

from interp.arguments import Number
from interp.digits import plus_minus
from interp.fitting.candidates import Source
from interp.notation import mask_bits, mask_name, overlap
from interp.results import Result, half_width, interval

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


@dataclass(frozen=True, kw_only=True)
class MatchFit(Result):
    """The fitted law of the match scores. Arrays over lags have lag 1 first; arrays over masks are indexed by mask.

    beta, stderr            match weight per lag and its standard error, by leaving out each sequence in turn; NaN where
                            one sequence alone determines beta
    kappa, kappa_stderr     BOS score relative to an empty match; None without BOS
    kappa_spread            standard deviation of that score over queries: 0 if BOS is the paper's constant sink
    covariance              of (beta, kappa)
    beta_no_position        beta without the positional term
    r2, r2_match, r2_attended, position_share, token_share     see `beta_kappa`; token_share is NaN where there are too
                            many symbols to tell
    position                [distance] the fitted positional term at distance 0, 1, ..., mean 0
    mask_count              candidate keys with this mask
    mask_score              score relative to the empty match, with a free number per mask; NaN if never seen
    mask_residual           mean residual of the additive fit over the keys with this mask
    additivity_p            p-value of "no interactions" by random signs, so at least 1 / 2000; NaN where there are
                            none, or no more sequences than interactions: cannot tell
    additivity_gain         the r2 that free masks add
    additivity_terms        interactions tested
    early_score             mean score of the k early keys, oldest first, relative to the empty match; NaN where one is
                            not finite
    n, queries, sequences   candidate keys in the fit, queries, sequences (clusters)
    underflowed             keys whose attention underflowed to zero (source="pattern" only)
    mass_gap                between the attention and the fitted law, see `interp.fitting.agreement`; NaN if unknown
    attention_beta, attention_kappa    from the fit of the attention itself
    bounds                  [mask] where a mask underflowed beside a full match: |beta|_[k] - |beta|_M is at least this
    warning                 why a fit that succeeded is doubtful, see `agreement`; else empty
    heads                   where the capture has several match heads, the fit of each one alone; else empty
    """

    beta: Float[np.ndarray, " lag"]
    stderr: Float[np.ndarray, " lag"]
    kappa: float | None
    kappa_stderr: float | None
    kappa_spread: float | None
    covariance: Float[np.ndarray, "parameter parameter"]
    beta_no_position: Float[np.ndarray, " lag"]
    r2: float
    r2_match: float
    r2_attended: float
    position_share: float
    token_share: float
    position: Float[np.ndarray, " distance"]
    mask_count: Int64[np.ndarray, " mask"]
    mask_score: Float[np.ndarray, " mask"]
    mask_residual: Float[np.ndarray, " mask"]
    additivity_p: float
    additivity_gain: float
    additivity_terms: int
    early_score: Float[np.ndarray, " lag"]
    n: int
    queries: int
    sequences: int
    underflowed: int
    bounds: Float[np.ndarray, " mask"]
    mass_gap: float
    attention_beta: Float[np.ndarray, " lag"]
    attention_kappa: float | None
    source: Source
    warning: str = ""
    heads: tuple[MatchFit, ...] = ()

    def table(self) -> pd.DataFrame:
        """One row per parameter: parameter, lag (missing for kappa), estimate, stderr, no_position (kappa: missing)
        attention (from the fit of the attention itself); and, where there is one, the warning.
        """
        import pandas as pd

        rows = [
            {
                "parameter": f"beta_{lag}",
                "lag": lag,
                "estimate": self.beta[lag - 1],
                "stderr": self.stderr[lag - 1],
                "no_position": self.beta_no_position[lag - 1],
                "attention": self.attention_beta[lag - 1],
            }
            for lag in range(1, len(self.beta) + 1)
        ]
        if self.kappa is not None:
            rows.append(
                {
                    "parameter": "kappa",
                    "lag": None,
                    "estimate": self.kappa,
                    "stderr": self.kappa_stderr,
                    "no_position": math.nan,
                    "attention": self.attention_kappa,
                }
            )
        table = pd.DataFrame(rows).astype({"lag": "Int64"})
        return table.assign(warning=self.warning) if self.warning else table

    def interval(self, level: Number = 0.95) -> tuple[Float[np.ndarray, " end"], Float[np.ndarray, " end"]]:
        """Lower and upper ends for beta_1, .., beta_k and, with BOS, kappa: `level` of such intervals hold the truth.

        Student's t with a degree of freedom less than there are sequences.
        """
        kappa = [] if self.kappa is None else [(self.kappa, self.kappa_stderr)]
        estimates, errors = zip(*zip(self.beta, self.stderr, strict=True), *kappa, strict=True)
        return interval(estimates, errors, n=self.sequences, level=level)

    def masks(self) -> pd.DataFrame:
        """One row per mask: count, the additive law's score, the free score, and the mean residual of the law."""
        import pandas as pd

        order = len(self.beta)
        return pd.DataFrame(
            {
                "mask": [mask_name(mask) for mask in range(1 << order)],
                "overlap": [overlap(mask) for mask in range(1 << order)],
                "count": self.mask_count,
                "additive": mask_bits(order) @ self.beta,
                "free": self.mask_score,
                "residual": self.mask_residual,
            }
        )

    def record(self) -> dict[str, Any]:
        """All fields as JSON-able values; arrays over masks become dicts by the mask's name."""
        by_mask = ("mask_count", "mask_score", "mask_residual", "bounds")
        record = {
            name: {mask_name(mask): item for mask, item in enumerate(value)} if name in by_mask else value
            for name, value in super().record().items()
            if name != "heads"
        }
        return record | ({"heads": [one.record() for one in self.heads]} if self.heads else {})

    def plot(self, ax: Axes | None = None) -> Axes:
        """beta per lag and kappa, with 95% intervals; those of each head alone, where there are several, are dashes.

        A fit that failed has none to draw, and the title says why.
        """
        from interp.plotting import INTERVAL_NAME, heading, panel, parameter_points

        rows = self.table()
        ax = panel(ax, width=4.8)
        parameter_points(
            ax,
            rows["parameter"].tolist(),
            rows["estimate"].to_numpy(np.float64),
            half_width(rows["stderr"], n=self.sequences),
        )
        for place, one in enumerate(self.heads):
            values = one.table()["estimate"].to_numpy(np.float64)
            ax.plot(range(len(values)), values, "_", color="#7f7f7f", label=None if place else "each head alone")
        if self.heads:
            ax.legend(frameon=False)
        ax.set_ylabel(f"score above an empty match\n(nats, {INTERVAL_NAME})")
        title = f"match weights of {self.sequences} sequences"
        if self.success:
            title += f": matches explain {self.r2_match:.1%} of the scores"
        return heading(ax, title, doubt=self.doubt)

    @property
    def outcome(self) -> str:
        """In a few words: ok, ok with a warning, or FAILED."""
        return "FAILED" if not self.success else "ok, with a warning" if self.warning else "ok"

    def __str__(self) -> str:
        pairs = zip(self.beta, self.stderr, strict=True)
        beta = ", ".join(plus_minus(value, error) for value, error in pairs)
        queries = "1 query" if self.queries == 1 else f"{self.queries} queries"
        lines = [
            f"match fit of {self.n} keys, {self.sequences} sequences, {queries}: {self.outcome}",
            f"  beta       {beta}",
        ]
        if self.kappa is not None:
            lines.append(
                f"  kappa      {plus_minus(self.kappa, self.kappa_stderr)} (over queries: sd {self.kappa_spread:.2g})"
            )
        lines.append(
            f"  R2         {self.r2:.4f}; of what position leaves {self.r2_match:.4f}; "
            f"keys weighted by attention {self.r2_attended:.4f}"
        )
        tokens = "" if math.isnan(self.token_share) else f"; the key's own tokens then add {self.token_share:.2%}"
        lines.append(f"  position   adds {self.position_share:.2%} of the variance{tokens}")
        if self.additivity_terms:
            tested = f"p = {self.additivity_p:.2g}"
            if math.isnan(self.additivity_p):
                tested = f"cannot tell with {self.sequences} sequences for {self.additivity_terms} interactions"
            lines.append(f"  additive   {tested}; free masks add {self.additivity_gain:.2%} of the variance")
        return "\n".join([*lines, *self.remarks()])
