"""Least squares with a free intercept per query, and standard errors that let errors correlate within a sequence.

Attention scores are known up to a constant per query, because the softmax takes it away. So every fit here uses only
differences within a query: columns and response are first centred over the query's keys.

Standard errors are the usual sandwich with the sequence as the cluster,

    (X'X)^-1 (sum_g u_g u_g') (X'X)^-1 G / (G - 1),    u_g = X_g' residual_g,

which for a column of ones is `results.mean_stderr` with clusters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from scipy.interpolate import BSpline
from scipy.stats import f as f_distribution

from interp.results import mean_stderr

RANK_TOLERANCE = 1e-9  # eigenvalues of the correlation matrix below this count as zero
SPLINE_TERMS = 8  # cubic B-splines in log(1 + distance): finest near the query, where trained biases bend most
ROUNDING = 8  # units in the last place that a forward pass may lose
SUM_ROUNDING = 1e-12  # relative, of the normal equations
TOO_LARGE = 1e100  # a score; sums of squares must not overflow


def centred(
    values: Float[np.ndarray, "batch key *column"], known: Bool[np.ndarray, "batch key"]
) -> Float[np.ndarray, "batch key *column"]:
    """The values minus their mean over the known keys of each query; unknown ones become zero."""
    if known.all():
        return np.asarray(values - values.sum(axis=1, keepdims=True) / max(values.shape[1], 1))
    keep = known if values.ndim == 2 else known[..., None]
    kept = np.where(keep, values, 0.0)  # not a product: an unknown value may be infinite
    count = np.maximum(keep.sum(axis=1, keepdims=True), 1)
    return np.where(keep, kept - kept.sum(axis=1, keepdims=True) / count, 0.0)


@dataclass(frozen=True, kw_only=True)
class Solution:
    """Coefficients for every column of the design (zero where a column was left out) and the inverse that made them."""

    coefficients: Float[np.ndarray, " column"]
    inverse: Float[np.ndarray, "column column"]
    sse: float
    full_rank: bool


class NormalEquations:
    """X'X, X'y and y'y, centred within queries, gathered part by part; then regressions on any of the columns.

    `epsilon` is the relative rounding of the numbers that come in.
    """

    def __init__(self, *, columns: int, epsilon: float) -> None:
        self.gram = np.zeros((columns, columns))
        self.moments = np.zeros(columns)
        self.total = 0.0
        self.n = 0
        self.not_finite = 0
        self.largest = 0.0
        self.epsilon = epsilon

    def add(
        self,
        design: Float[np.ndarray, "batch key column"],
        response: Float[np.ndarray, "batch key"],
        known: Bool[np.ndarray, "batch key"],
    ) -> None:
        """Take in the known keys of some queries."""
        values = response[known]
        self.n += values.size
        bad = int((~np.isfinite(values)).sum())
        if bad or not values.size:
            self.not_finite += bad
            return
        self.largest = max(self.largest, float(np.abs(values).max()))
        x = centred(design, known).reshape(-1, len(self.moments))
        y = centred(response, known).ravel()
        self.gram += x.T @ x
        self.moments += x.T @ y
        self.total += float(y @ y)

    @property
    def resolution(self) -> float:
        """How well a score is known: the rounding of the model's numbers, and of the sums made from them here."""
        return (ROUNDING * self.epsilon + SUM_ROUNDING) * max(self.largest, 1.0)

    @property
    def noise(self) -> float:
        """Sums of squares below this are rounding."""
        return self.n * self.resolution * self.resolution  # a product is inf where a power would raise

    def trouble(self) -> str | None:
        """Why there is nothing to regress, or None."""
        if self.not_finite:
            return f"{self.not_finite} scores of candidate keys are not finite"
        if not self.largest < TOO_LARGE:
            return f"the scores reach {self.largest:.1g}: too large to be squared and summed"
        if self.total <= self.noise:
            return "the scores do not vary over the candidate keys of a query"
        return None

    def solve(self, columns: list[int]) -> Solution:
        """Regress on some of the columns.

        Where these are collinear the shortest solution is returned and `full_rank` is False: its fitted values and its
        sse are right, its coefficients are one choice of many.
        """
        return solve_normal_equations(self.gram, self.moments, self.total, columns=columns)

    def independent(self, *, base: list[int], extra: list[int]) -> list[int]:
        """Those of the extra columns that are linearly independent of the base and of the extra columns before them."""
        chosen: list[int] = []
        for column in extra:
            length = float(self.gram[column, column])
            if length > 0:
                rest = solve_normal_equations(self.gram, self.gram[:, column], length, columns=base + chosen)
                left_over = rest.sse
                if left_over > RANK_TOLERANCE * length:
                    chosen.append(column)
        return chosen


def solve_normal_equations(
    gram: Float[np.ndarray, "all all"],
    moments: Float[np.ndarray, " all"],
    total: float,
    *,
    columns: list[int] | None = None,
) -> Solution:
    """Regress on some of the columns (by default all) from X'X, X'y and y'y; every least-squares fit ends here."""
    inverse = np.zeros_like(gram)
    full_rank = True
    columns = list(range(len(gram))) if columns is None else columns
    if columns:
        part = gram[np.ix_(columns, columns)]
        scale = np.sqrt(np.diag(part))
        scale = np.where(scale > 0, scale, 1.0)
        values, vectors = np.linalg.eigh(part / np.outer(scale, scale))
        kept = values > RANK_TOLERANCE
        full_rank = bool(kept.all())
        reciprocal = np.where(kept, 1.0 / np.where(kept, values, 1.0), 0.0)
        inverse[np.ix_(columns, columns)] = (vectors * reciprocal) @ vectors.T / np.outer(scale, scale)
    coefficients = inverse @ moments
    # y'y - b'X'y is subject to rounding; it must not become negative.
    sse = max(0.0, float(total - coefficients @ moments))
    return Solution(coefficients=coefficients, inverse=inverse, sse=sse, full_rank=full_rank)


def clustered(influence: Float[np.ndarray, "cluster column"]) -> Float[np.ndarray, "column column"]:
    """The covariance of estimates from each cluster's influence on them; NaN for fewer than two clusters."""
    groups = len(influence)
    if groups < 2:
        return np.full((influence.shape[1],) * 2, np.nan)
    return np.asarray(influence.T @ influence * (groups / (groups - 1)))


@dataclass(frozen=True, kw_only=True)
class Slope:
    """The slope of y on x through the origin, its standard error over rows, and the share of y that it explains."""

    slope: float
    stderr: float
    r2: float


def slope_through_origin(x: Float[np.ndarray, "row column"], y: Float[np.ndarray, "row column"]) -> Slope:
    """A ratio of means over rows, with the error of its linearisation; NaN where x or y is zero throughout.

    >>> slope_through_origin(np.array([[1.0, -1.0], [2.0, -2.0]]), np.array([[0.5, -0.5], [1.0, -1.0]])).slope
    0.5
    """
    bottom = float((x**2).sum(axis=-1).mean()) if len(x) else 0.0
    total = float((y**2).sum())
    if bottom == 0:
        return Slope(slope=math.nan, stderr=math.nan, r2=math.nan)
    slope = float((x * y).sum(axis=-1).mean()) / bottom
    residual = y - slope * x
    _, spread = mean_stderr((x * residual).sum(axis=-1))
    r2 = 1 - float((residual**2).sum()) / total if total > 0 else math.nan
    return Slope(slope=slope, stderr=spread / bottom, r2=r2)


def joint_test(
    estimate: Float[np.ndarray, " column"],
    influence: Float[np.ndarray, "cluster column"],
    *,
    resolution: float,
) -> float:
    """p-value of "all estimates are zero": Wald's statistic on its Hotelling scale, F(q, G - q).

    Differences below `resolution` do not count as evidence: without it an exact construction would be rejected because
    of rounding.
    """
    groups, size = influence.shape
    if size == 0 or groups <= size:
        return float("nan")
    covariance = clustered(influence) + resolution**2 * np.eye(size)
    statistic = float(estimate @ np.linalg.solve(covariance, estimate))
    return float(f_distribution.sf(statistic * (groups - size) / (size * (groups - 1)), size, groups - size))


def distance_basis(distances: int, *, terms: int = SPLINE_TERMS) -> Float[np.ndarray, "distance term"]:
    """Smooth functions of the distance 0 .. distances-1: cubic B-splines in log(1 + distance), without the constant.

    Knots lie at quantiles of log(1 + distance). The columns are orthogonal over the distances. Where there are no more
    distances than terms, the basis is every function of the distance.

    >>> distance_basis(64).shape, distance_basis(64, terms=0).shape
    ((64, 7), (64, 0))
    """
    if terms == 0:
        return np.zeros((distances, 0))
    if distances <= terms:
        basis = np.eye(distances)
    else:
        place = np.log1p(np.arange(distances))
        inner = np.quantile(place, np.linspace(0.0, 1.0, terms - 2))
        knots = np.r_[[inner[0]] * 3, inner, [inner[-1]] * 3]
        basis = BSpline.design_matrix(place, knots, 3).toarray()
    left, values, _ = np.linalg.svd(basis - basis.mean(axis=0), full_matrices=False)
    return np.asarray(left[:, values > 1e-9] * np.sqrt(distances))
