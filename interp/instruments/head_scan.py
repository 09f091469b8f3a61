"""What a scan of every head returns: `HeadScan`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float, Int64

from interp.circuit.circuit import Head, head_name
from interp.results import Result

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


@dataclass(frozen=True, kw_only=True)
class HeadScan(Result):
    """Every head of a model. Arrays are [layer, head, ...]; NaN where a layer has fewer heads than others.

    copy_mass, copy_mass_stderr       [layer, head, lag] mean attention on lag 1, 2, ...
    copy_lag                          the lag with the most mass beyond that of even attention
    beta, beta_stderr, kappa, kappa_stderr     NaN where they cannot be trusted; kappa also without BOS
    beta_scores                       [layer, head, lag] beta from the scores by least squares, not checked
    r2_match                          of what position leaves of the scores, the share that matches explain
    nats, nats_explained, nats_explained_stderr, mass_gap     of the law of the attention, see `attention_fit`
    mass, mass_stderr                 [layer, head, group] attention by overlap 0..k, then on BOS, then on early keys
    induction, induction_stderr       [layer, head] attention on keys whose previous token is the query's
    induction_even                    the same for even attention
    role                              [layer][head] "copy", "match" or "none"; "" where there is no such head
    ok, reasons                       [layer][head] whether beta and kappa can be trusted, and why not
    copy_heads                        the copy head chosen for each lag 1..k, None where there is none
    match_heads                       the heads that match
    near                              the heads that are below a threshold of a match head, with the thresholds; else ""
    order, bos                        k, and whether key 0 has the score kappa
    n, queries                        sequences, and the token index of each query
    success                           every lag has its copy head, and some head matches
    """

    DOUBT = "incomplete"  # the measured numbers are valid all the same

    order: int
    copy_mass: Float[np.ndarray, "layer head lag"]
    copy_mass_stderr: Float[np.ndarray, "layer head lag"]
    copy_lag: Int64[np.ndarray, "layer head"]
    beta: Float[np.ndarray, "layer head order"]
    beta_stderr: Float[np.ndarray, "layer head order"]
    beta_scores: Float[np.ndarray, "layer head order"]
    kappa: Float[np.ndarray, "layer head"]
    kappa_stderr: Float[np.ndarray, "layer head"]
    r2_match: Float[np.ndarray, "layer head"]
    nats: Float[np.ndarray, "layer head"]
    nats_explained: Float[np.ndarray, "layer head"]
    nats_explained_stderr: Float[np.ndarray, "layer head"]
    mass_gap: Float[np.ndarray, "layer head"]
    mass: Float[np.ndarray, "layer head group"]
    mass_stderr: Float[np.ndarray, "layer head group"]
    induction: Float[np.ndarray, "layer head"]
    induction_stderr: Float[np.ndarray, "layer head"]
    induction_even: float
    role: tuple[tuple[str, ...], ...]
    ok: Bool[np.ndarray, "layer head"]
    reasons: tuple[tuple[str, ...], ...]
    copy_heads: tuple[Head | None, ...]
    match_heads: tuple[Head, ...]
    near: str = ""
    bos: bool
    n: int
    queries: Int64[np.ndarray, " query"]

    @property
    def heads(self) -> tuple[Head, ...]:
        """Every (layer, head) that there is."""
        return tuple((layer, head) for layer, roles in enumerate(self.role) for head, role in enumerate(roles) if role)

    def table(self) -> pd.DataFrame:
        """One row per head: layer, head, role, copy_lag, copy_mass (on that lag), beta_1 .. beta_k, kappa, r2_match,
        nats, nats_explained, mass_full, mass_partial, mass_none, mass_bos, success, message.
        """
        import pandas as pd

        return pd.DataFrame([self._row(place) for place in self.heads])

    def details(self) -> pd.DataFrame:
        """One row per head with what `table` leaves out: standard errors, beta from the scores, mass on early keys, the
        classical induction score, the gap between the law's masses and the head's, and mass on every lag.
        """
        import pandas as pd

        rows = []
        for layer, head in self.heads:
            at = (layer, head)
            lags = {f"copy_mass_{lag + 1}": mass for lag, mass in enumerate(self.copy_mass[at])}
            errors = {f"beta_{lag + 1}_stderr": error for lag, error in enumerate(self.beta_stderr[at])}
            scores = {f"beta_{lag + 1}_scores": value for lag, value in enumerate(self.beta_scores[at])}
            names = ("kappa_stderr", "nats_explained_stderr", "mass_gap", "induction", "induction_stderr")
            rows.append(
                {
                    "layer": layer,
                    "head": head,
                    "role": self.role[layer][head],
                    **errors,
                    **scores,
                    **{name: getattr(self, name)[at] for name in names},
                    "mass_early": self.mass[at][-1],
                    **lags,
                }
            )
        return pd.DataFrame(rows)

    def _row(self, at: Head) -> dict[str, Any]:
        layer, head = at
        mass = self.mass[at]
        return {
            "layer": layer,
            "head": head,
            "role": self.role[layer][head],
            "copy_lag": int(self.copy_lag[at]),
            "copy_mass": self.copy_mass[at][self.copy_lag[at] - 1],
            **{f"beta_{lag + 1}": value for lag, value in enumerate(self.beta[at])},
            "kappa": self.kappa[at],
            "r2_match": self.r2_match[at],
            "nats": self.nats[at],
            "nats_explained": self.nats_explained[at],
            "mass_full": mass[self.order],
            "mass_partial": mass[1 : self.order].sum(),
            "mass_none": mass[0],
            "mass_bos": mass[self.order + 1],
            "success": bool(self.ok[at]),
            "message": self.reasons[layer][head],
        }

    def plot(self, ax: Axes | None = None) -> Axes:
        """A map of layers and heads: the share of each head's nats that the law of matching explains. Match heads are
        framed in yellow, heads that copy a lag in its colour, with the lag's number.
        """
        from interp.plotting import OVERLAP_COLOURS, head_heatmap, heading, lag_colour, panel

        layers, heads = self.nats_explained.shape
        marks = {at: ("", OVERLAP_COLOURS["full"]) for at in self.match_heads}
        copying = [at for at in self.heads if self.role[at[0]][at[1]] == "copy"]
        marks |= {at: (str(int(self.copy_lag[at])), lag_colour(int(self.copy_lag[at]))) for at in copying}
        width, height = (min(9.0, 1.8 + 0.32 * count) for count in (heads, layers))
        ax = panel(ax, width=max(4.2, width), height=max(2.8, height))
        explained = np.where(self.nats > 0, np.clip(self.nats_explained, 0.0, 1.0), np.nan)
        head_heatmap(ax, explained, marks=marks)
        figure = ax.get_figure(root=True)
        assert figure is not None
        figure.colorbar(ax.images[0], ax=ax, label="nats explained by matches")
        names = ", ".join(map(head_name, self.match_heads)) or "none"
        copies = ", ".join(
            f"{head_name(place)} (lag {lag})" for lag, place in enumerate(self.copy_heads, start=1) if place is not None
        )
        return heading(ax, f"match heads: {names}; copy heads: {copies or 'none'}", doubt=self.doubt)

    def __str__(self) -> str:
        queries = "1 query" if len(self.queries) == 1 else f"{len(self.queries)} queries"
        lines = [f"scan of {len(self.heads)} heads on {self.n} sequences, {queries}, order {self.order}"]
        for lag, place in enumerate(self.copy_heads, start=1):
            mass = "" if place is None else f", mass {self.copy_mass[place][lag - 1]:.3f}"
            lines.append(f"  copies lag {lag}   {'no head' if place is None else f'head {head_name(place)}'}{mass}")
        shown = [f"{head_name(place)} ({self.nats_explained[place]:.0%})" for place in self.match_heads[:6]]
        more = f" and {len(self.match_heads) - 6} more" if len(self.match_heads) > 6 else ""
        heads = f"{'head' if len(shown) == 1 else 'heads'} {', '.join(shown)}{more}; in brackets: nats explained"
        lines.append(f"  match          {heads if shown else 'no head'}")
        lines += self.remarks()
        return "\n".join([*lines[:4], "  ...", *lines[-3:]] if len(lines) > 8 else lines)
