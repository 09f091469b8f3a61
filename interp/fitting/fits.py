"""What `fit_scores` returns: `MatchFit` from scores, `AttentionFit` from the attention itself.

`interp.instruments.beta_kappa` says how to read them.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int64

from interp.arguments import Number
from interp.digits import plus_minus
from interp.fitting.candidates import Source
from interp.fitting.laws import Law
from interp.notation import mask_name
from interp.results import Axes, DataFrame, Result, counted, frame, half_width, interval


@dataclass(frozen=True, kw_only=True)
class Fit(Result):
    """beta and kappa of a law. Arrays over lags have lag 1 first; arrays over masks are indexed by mask.

    beta, stderr            match weight per lag and its standard error, by leaving out each sequence in turn; NaN where
                            one sequence alone determines beta
    kappa, kappa_stderr     BOS score relative to an empty match at an average position; None without BOS
    covariance              of the parameters
    mask_score              [mask] score relative to the empty match; NaN if the mask was never seen
    position                [distance] the fitted positional term at distance 0, 1, ..., mean 0
    mass_gap                total variation distance between mean observed and mean predicted mass by overlap and BOS
    n, queries, sequences   keys in the fit (of attention: queries), queries of a sequence, sequences (clusters)
    warning                 why a fit that succeeded is doubtful; else empty
    heads                   where the capture has several match heads, the fit of each one alone; else empty
    """

    BY_MASK: ClassVar[tuple[str, ...]] = ("mask_score",)  # the fields that a record has by the mask's name

    beta: Float[np.ndarray, " lag"]
    stderr: Float[np.ndarray, " lag"]
    kappa: float | None
    kappa_stderr: float | None
    covariance: Float[np.ndarray, "parameter parameter"]
    mask_score: Float[np.ndarray, " mask"]
    position: Float[np.ndarray, " distance"]
    mass_gap: float = math.nan
    n: int
    queries: int
    sequences: int
    warning: str = ""
    heads: tuple[Fit, ...] = ()

    @property
    def estimates_and_errors(self) -> tuple[Float[np.ndarray, " parameter"], Float[np.ndarray, " parameter"]]:
        """beta_1, .., beta_k and, with BOS, kappa; and their standard errors."""
        kappa, error = ([], []) if self.kappa is None else ([self.kappa], [self.kappa_stderr])
        return np.array([*self.beta, *kappa]), np.array([*self.stderr, *error])

    def interval(self, level: Number = 0.95) -> tuple[Float[np.ndarray, " end"], Float[np.ndarray, " end"]]:
        """Lower and upper ends for beta_1, .., beta_k and, with BOS, kappa: `level` of such intervals hold the truth.

        Student's t with a degree of freedom less than there are sequences.
        """
        return interval(*self.estimates_and_errors, n=self.sequences, level=level)

    def record(self) -> dict[str, Any]:
        """All fields as JSON-able values; arrays over masks become dicts by the mask's name."""
        record = super().record()
        for name in self.BY_MASK:
            record[name] = {mask_name(mask): value for mask, value in enumerate(record[name])}
        del record["heads"]
        return record | ({"heads": [one.record() for one in self.heads]} if self.heads else {})

    def plot(self, ax: Axes | None = None) -> Axes:
        """Every parameter with its 95% interval; those of each head alone, where there are several, are dashes.

        A fit that failed has none to draw, and the title says why.
        """
        from interp.plotting import INTERVAL_NAME, heading, panel, parameter_points

        rows, ax = self.table(), panel(ax, width=4.8)
        reach = half_width(rows["stderr"], n=self.sequences)
        parameter_points(ax, rows["parameter"].tolist(), rows["estimate"].to_numpy(np.float64), reach)
        for place, one in enumerate(self.heads):
            values = one.table()["estimate"].to_numpy(np.float64)
            ax.plot(range(len(values)), values, "_", color="#7f7f7f", label=None if place else "each head alone")
        if self.heads:
            ax.legend(frameon=False)
        ax.set_ylabel(f"score above an empty match\n(nats, {INTERVAL_NAME})")
        return heading(ax, f"{self.title}, {self.explained}" if self.success else self.title, doubt=self.doubt)

    def table(self) -> DataFrame:
        """One row per parameter: parameter, estimate, stderr; and, where there is one, the warning."""
        return frame(self.columns() | ({"warning": self.warning} if self.warning else {}))

    @abstractmethod
    def columns(self) -> dict[str, Any]:
        """The columns of the table."""

    @property
    @abstractmethod
    def explained(self) -> str:
        """What the fit explains, in the title of its picture."""

    def told(self, subject: str) -> str:
        """The first line of the text: what was fitted, and whether it can be trusted."""
        return f"{subject}: {'FAILED' if not self.success else 'ok, with a warning' if self.warning else 'ok'}"

    def lines(self) -> list[str]:
        """beta, and kappa with BOS."""
        beta = ", ".join(map(plus_minus, self.beta.tolist(), self.stderr.tolist()))
        kappa = [] if self.kappa is None else [f"kappa      {plus_minus(self.kappa, self.kappa_stderr)}"]
        return [f"beta       {beta}", *kappa]


@dataclass(frozen=True, kw_only=True)
class MatchFit(Fit):
    """The law of the match scores, by least squares.

    kappa_spread            standard deviation of BOS's score over queries: 0 if BOS is the paper's constant sink
    beta_no_position        beta without the positional term
    r2, r2_match, r2_attended, position_share, token_share     see `beta_kappa`; token_share is NaN where there are too
                            many symbols to tell
    mask_count              candidate keys with this mask
    additivity_p            p-value of "no interactions" by random signs, so at least 1 / 2000; NaN where there are
                            none, or no more sequences than interactions: cannot tell
    additivity_gain         the r2 that free masks add
    additivity_terms        interactions tested
    underflowed             keys whose attention underflowed to zero (source="pattern" only)
    bounds                  [mask] where a mask underflowed beside a full match: |beta|_[k] - |beta|_M is at least this
    attention_beta, attention_kappa    from the fit of the attention itself
    """

    BY_MASK = ("mask_count", "mask_score", "bounds")

    kappa_spread: float | None
    beta_no_position: Float[np.ndarray, " lag"]
    r2: float = math.nan
    r2_match: float = math.nan
    r2_attended: float = math.nan
    position_share: float = math.nan
    token_share: float = math.nan
    mask_count: Int64[np.ndarray, " mask"]
    additivity_p: float = math.nan
    additivity_gain: float = math.nan
    additivity_terms: int = 0
    underflowed: int
    bounds: Float[np.ndarray, " mask"]
    attention_beta: Float[np.ndarray, " lag"]
    attention_kappa: float | None
    source: Source

    def columns(self) -> dict[str, Any]:
        """With the lag (missing for kappa), the estimate without the positional term (kappa: missing), and that from
        the fit of the attention itself.
        """
        import pandas as pd

        lags, kappa = list(range(1, len(self.beta) + 1)), self.kappa is not None
        estimates, errors = self.estimates_and_errors
        return {
            "parameter": [*(f"beta_{lag}" for lag in lags), *["kappa"] * kappa],
            "lag": pd.array([*lags, *[None] * kappa], dtype="Int64"),
            "estimate": estimates,
            "stderr": errors,
            "no_position": [*self.beta_no_position, *[math.nan] * kappa],
            "attention": [*self.attention_beta, *[self.attention_kappa] * kappa],
        }

    @property
    def explained(self) -> str:
        """What the fit explains, in the title of its picture."""
        return f"matches explain {self.r2_match:.1%} of the scores"

    @property
    def title(self) -> str:
        """What was fitted, and whether it can be trusted."""
        queries = counted(self.queries, "query", "queries")
        return self.told(f"match fit of {self.n} keys, {self.sequences} sequences, {queries}")

    def lines(self) -> list[str]:
        """The estimates, and what the fit explains."""
        lines = super().lines()
        lines[-1] += f" (over queries: sd {self.kappa_spread:.2g})" if self.kappa is not None else ""
        tokens = "" if math.isnan(self.token_share) else f"; the key's own tokens then add {self.token_share:.2%}"
        lines += [
            f"R2         {self.r2:.4f}; of what position leaves {self.r2_match:.4f}; "
            f"keys weighted by attention {self.r2_attended:.4f}",
            f"position   adds {self.position_share:.2%} of the variance{tokens}",
        ]
        tested = f"p = {self.additivity_p:.2g}"
        if math.isnan(self.additivity_p):
            tested = f"cannot tell with {self.sequences} sequences for {self.additivity_terms} interactions"
        gain = f"additive   {tested}; free masks add {self.additivity_gain:.2%} of the variance"
        return [*lines, gain] if self.additivity_terms else lines


@dataclass(frozen=True, kw_only=True)
class AttentionFit(Fit):
    """A law fitted to attention by maximum likelihood.

    law                     "additive", "suffix" or "free"
    own, own_stderr         beta_0, the weight of the key's own token; None unless asked for
    parameters, estimates   all parameters of the law by name: more than beta and kappa where the law is free
    nats, nats_stderr       mean KL(attention || baseline), see `interp.fitting.attention_fit`
    nats_explained, nats_explained_stderr
    groups                  names of the groups of keys: "|M|=0" .. "|M|=k", and "bos" where there is BOS
    observed, predicted     mean mass of each group, renormalised over candidates and BOS
    early                   mean mass on early keys, before that
    left_out                queries left out, because nearly all of their attention is on early keys
    """

    law: Law
    own: float | None
    own_stderr: float | None
    parameters: tuple[str, ...]
    estimates: Float[np.ndarray, " parameter"]
    nats: float = math.nan
    nats_stderr: float = math.nan
    nats_explained: float = math.nan
    nats_explained_stderr: float = math.nan
    groups: tuple[str, ...]
    observed: Float[np.ndarray, " group"]
    predicted: Float[np.ndarray, " group"]
    early: float
    left_out: int

    def columns(self) -> dict[str, Any]:
        """Every parameter of the law."""
        errors = np.sqrt(np.diag(self.covariance))
        return {"parameter": self.parameters, "estimate": self.estimates, "stderr": errors}

    def masses(self) -> DataFrame:
        """One row per group of keys: group, observed, predicted."""
        return frame({"group": self.groups, "observed": self.observed, "predicted": self.predicted})

    @property
    def explained(self) -> str:
        """What the fit explains, in the title of its picture."""
        return f"it explains {self.nats_explained:.1%} of {self.nats:.2f} nats"

    @property
    def title(self) -> str:
        """What was fitted, and whether it can be trusted."""
        return self.told(f"{self.law} law of the attention of {self.n} queries, {self.sequences} sequences")

    def lines(self) -> list[str]:
        """The estimates, what the law explains, and where the attention is."""
        groups = zip(self.groups, self.observed, self.predicted, strict=True)
        masses = ", ".join(f"{name} {seen:.3f} ({law:.3f})" for name, seen, law in groups)
        lines = super().lines()
        lines[0] += "" if self.own is None else f"; lag 0: {plus_minus(self.own, self.own_stderr)}"
        return [
            *lines,
            f"nats       {plus_minus(self.nats, self.nats_stderr)} beyond the baseline; the law explains "
            f"{self.nats_explained:.1%} ± {self.nats_explained_stderr:.1%}",
            f"mass (law) {masses}; gap {self.mass_gap:.3f}",
            f"early keys {self.early:.3f} of the attention, not in the law",
        ]
