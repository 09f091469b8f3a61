"""Which tokens the match head compares: a weight for every pair of query block and key block (corollary:inductive).

Under label symmetry the most general score is a sum of beta_{a,b} [x_{t-a} = x_{s-b}] over all pairs of blocks. The
claim of prop:transformer_estimator is that only the super-diagonal b = a + 1 carries weight, beta_{r-1,r} = beta_r: the
query's context against the context of the key's own token. Blocks 0..k are those of the residual stream, so key block 0
(x_s itself) and query block k (x_{t-k}) are part of the matrix and should be zero. The corollary numbers its query lags
differently; the alignment here is that of def:match_mask.

The fit is that of `beta_kappa`: candidate keys, a free intercept per query, the same smooth function of the distance,
errors clustered by sequence. The aligned share is

    (SSE_position - SSE_aligned) / (SSE_position - SSE_all)

with the sums of squares of three nested fits: position alone, with the aligned pairs, with all pairs. It is 1 where the
other pairs add nothing. A sum of squared coefficients would not do, because the indicators are correlated: successive
tokens of a chain are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import einops
import numpy as np
from jaxtyping import Float

from interp.arguments import Number, keywords
from interp.fitting.candidates import QueryView, count_distances
from interp.fitting.regression import SPLINE_TERMS, Array, clustered, distance_basis
from interp.fitting.score_fit import Residuals, ScoreRegression
from interp.instruments.beta_kappa import MIN_R2, MIN_SEQUENCES
from interp.instruments.given import Captured, check_capture
from interp.results import Axes, DataFrame, Result, frame, interval, provenance


@dataclass(frozen=True, kw_only=True)
class PairFit(Result):
    """Weights of all block pairs.

    beta, stderr     [query block, key block]; NaN where the fit failed
    kappa, kappa_stderr   BOS score relative to a key that matches in no pair; None without BOS
    aligned_share    of the explained squared score, the part that the aligned pairs explain alone
    aligned_share_stderr   its standard error
    r2               within-query R2 of all pairs and position together
    r2_pairs         of what position alone leaves unexplained, the part that the pairs explain; success is judged on it
    n, sequences     candidate keys, and sequences (clusters)
    """

    NUMBERS = ("r2", "r2_pairs", "kappa")

    beta: Float[np.ndarray, "block block"]
    stderr: Float[np.ndarray, "block block"]
    kappa: float | None
    kappa_stderr: float | None
    aligned_share: float
    aligned_share_stderr: float
    r2: float
    r2_pairs: float
    n: int
    sequences: int

    @property
    def aligned(self) -> Float[np.ndarray, " lag"]:
        """The super-diagonal: beta_r for r = 1..k with every other pair controlled for."""
        return np.diagonal(self.beta, offset=1).copy()

    def interval(self, level: Number = 0.95) -> tuple[Float[np.ndarray, "a b"], Float[np.ndarray, "a b"]]:
        """Lower and upper ends for beta of every pair: `level` of such intervals hold the truth."""
        return interval(self.beta, self.stderr, n=self.sequences, level=level)

    def table(self) -> DataFrame:
        """One row per pair: query_block, key_block, aligned, beta, stderr."""
        query, key = (index.ravel() for index in np.indices(self.beta.shape))
        numbers = {"beta": self.beta.ravel(), "stderr": self.stderr.ravel()}
        return frame({"query_block": query, "key_block": key, "aligned": key == query + 1, **numbers})

    def shown(self) -> DataFrame:
        """The matrix: a row for each query block, a column for each key block."""
        query, key = ([f"x_{place}-{lag}" for lag in range(len(self.beta))] for place in "ts")
        return frame({"query": query, **dict(zip(key, self.beta.T, strict=True))})

    @property
    def title(self) -> str:
        """How far the weights are aligned."""
        share = f": aligned pairs carry {self.aligned_share:.1%} ± {self.aligned_share_stderr:.1%} of what is explained"
        return f"weights of pairs of tokens, {self.sequences} sequences{share if self.success else ''}"

    def plot(self, ax: Axes | None = None) -> Axes:
        """The matrix of weights with their standard errors, aligned pairs framed; empty where the fit failed."""
        from interp.plotting import heading, pair_heatmap, panel

        ax = pair_heatmap(panel(ax, width=4.6, height=4.4), self.beta, self.stderr)
        ax.set_xlabel("key block\n(weight in nats ± one standard error;\naligned pairs framed)")
        return heading(ax, self.title, doubt=self.doubt)


@keywords()
def fit_score_pairs(cap: Captured) -> PairFit:
    """The [k+1, k+1] matrix of pair weights from the match scores, and how far it is aligned.

    Parameters
    ----------
    cap   what `capture` returns

    Returns
    -------
    `PairFit`

    Examples
    --------
        pairs = fit_score_pairs(capture(model, tokens))
        pairs.beta                      # [k+1, k+1]: row a is the query's x_{t-a}, column b the key's x_{s-b}
        pairs.aligned_share             # how much of the explained score the aligned pairs explain on their own
    """
    check_capture(cap)
    blocks, sequences = cap.order + 1, len(cap.tokens)
    basis = distance_basis(count_distances(cap), terms=SPLINE_TERMS)
    pairs, size = list(range(blocks * blocks)), blocks * blocks + basis.shape[1]
    places, aligned = list(range(len(pairs), size)), [a * blocks + a + 1 for a in range(cap.order)]
    regression = ScoreRegression(cap, partial(_design, basis=basis, order=cap.order), columns=size)
    equations = regression.equations
    numbers = dict.fromkeys(("aligned_share", "aligned_share_stderr", "r2", "r2_pairs"), math.nan)
    found: dict[str, Any] = {**numbers, "beta": np.full((blocks, blocks), np.nan)}
    found |= {"stderr": found["beta"], **dict.fromkeys(("kappa", "kappa_stderr"), math.nan if cap.has_sink else None)}
    failure = regression.trouble()
    if failure is None:
        fits = [equations.solve(columns) for columns in (places, aligned + places, pairs + places)]
        place_only, _, everything = fits
        r2_pairs = 1.0 - everything.sse / place_only.sse if place_only.sse > equations.noise else 0.0
        found |= {"r2": 1.0 - everything.sse / equations.total, "r2_pairs": r2_pairs}
        if not everything.full_rank:
            failure = (
                "the match indicators of the block pairs are collinear on these tokens: use more or longer sequences"
            )
        elif sequences < MIN_SEQUENCES:
            failure = f"{sequences} sequences; standard errors need at least {MIN_SEQUENCES}"
        elif r2_pairs < MIN_R2:
            failure = f"matches of any pair explain {r2_pairs:.1%} of the scores; below {MIN_R2:.0%} no beta is trusted"
        else:
            second = regression.residuals(fits, matches=pairs, base=pairs + places)
            found |= _estimates(second, everything.coefficients[pairs], blocks=blocks)
    return PairFit(
        **found,
        n=equations.n,
        sequences=sequences,
        success=failure is None,
        message=failure or "",
        provenance=provenance(checkpoint=cap.checkpoint),
    )


def _estimates(second: Residuals, beta: Array, *, blocks: int) -> dict[str, Any]:
    """The weights, the aligned share and kappa, with their errors, from the residuals of the three nested fits."""
    errors = np.sqrt(np.diag(clustered(second.influence)))
    by_aligned, by_all = (second.squares[:, [0]] - second.squares[:, 1:]).T
    share = float(by_aligned.sum() / by_all.sum())
    # Each fit minimises its sum of squares, so to first order errors of its coefficients do not enter: a plain ratio.
    moved = share - (by_aligned.sum() - by_aligned) / (by_all.sum() - by_all)
    found: dict[str, Any] = {
        "beta": beta.reshape(blocks, blocks),
        "stderr": errors[: len(beta)].reshape(blocks, blocks),
        "aligned_share": share,
        "aligned_share_stderr": float(np.sqrt(clustered(moved[:, None])[0, 0])),
    }
    if len(second.bos):
        found |= {"kappa": float(second.bos.mean()), "kappa_stderr": float(errors[-1])}
    return found


def _design(
    view: QueryView, basis: Float[np.ndarray, "distance term"], *, order: int
) -> Float[np.ndarray, "batch key column"]:
    """Equality of every query block with every key block, then the functions of distance."""
    lags = np.arange(order + 1)
    t = view.tokens.shape[1] - 1
    query_blocks = view.tokens[:, t - lags]
    key_blocks = view.tokens[:, np.arange(order, t + 1)[:, None] - lags]
    equal = query_blocks[:, None, :, None] == key_blocks[:, :, None, :]
    places = np.broadcast_to(basis[view.distance], (*view.masks.shape, basis.shape[1]))
    return np.concatenate(
        [einops.rearrange(equal, "batch key a b -> batch key (a b)"), places], axis=-1, dtype=np.float64
    )
