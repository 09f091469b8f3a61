"""Least squares with a free intercept per query, and standard errors that let errors correlate within a sequence.

Attention scores are known up to a constant per query, because the softmax takes it away. So every fit here uses only
differences within a query: columns and response are first centred over the query's keys.

Standard errors are the jackknife's, with the sequence as the cluster,

    (G - 1) / G  sum_g d_g d_g',    d_g = (X'X - X_g'X_g)^-1 X_g' residual_g,

where d_g is how far the estimates move when sequence g is left out. For a column of ones that is `results.mean_stderr`.
With many sequences it equals the usual sandwich. With few, a sequence of unusual tokens moves a fit more than the
sandwich says, whose intervals are then too narrow (`benchmarks/coverage.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from scipy.interpolate import BSpline

from interp.results import mean_stderr

Array: TypeAlias = NDArray[Any]

RANK_TOLERANCE = 1e-9  # eigenvalues of the correlation matrix below this count as zero
SPLINE_TERMS = 8  # cubic B-splines in log(1 + distance): finest near the query, where trained biases bend most
ROUNDING = 8  # units in the last place that a forward pass may lose
SUM_ROUNDING = 1e-12  # relative, of the normal equations
TOO_LARGE = 1e100  # a score; sums of squares must not overflow
ALONE = 1e-6  # share of a column's information without a cluster, below which the cluster alone determines the column
FLIPS = 1999  # random sign flips of the clusters


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
    """Coefficients for every column of the design (zero where a column was left out) and the inverse that made them.

    Where the columns are collinear, `full_rank` is False and this is the shortest solution: its fitted values and its
    sse are right, its coefficients are one choice of many.
    """

    coefficients: Float[np.ndarray, "*head column"]
    inverse: Float[np.ndarray, "column column"]
    sse: Any  # a number, or one for each head
    full_rank: bool


@dataclass(kw_only=True)
class NormalEquations:
    """X'X, X'y and y'y of centred columns and scores; then regressions on any of the columns.

    The scores may be those of several heads on the same columns: all but `gram` then have a head axis. `n` counts
    keys, `largest` is the largest score in absolute value, `epsilon` the relative rounding of the scores.
    """

    gram: Float[np.ndarray, "column column"]
    moments: Float[np.ndarray, "*head column"]
    total: Any = 0.0
    largest: Any = 0.0
    n: int = 0
    not_finite: int = 0
    epsilon: float

    @classmethod
    def empty(cls, *, columns: int, epsilon: float) -> NormalEquations:
        """Without any key, for `add`."""
        return cls(gram=np.zeros((columns, columns)), moments=np.zeros(columns), epsilon=epsilon)

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
        x, y = centred(design, known).reshape(-1, len(self.moments)), centred(response, known).ravel()
        self.gram += x.T @ x
        self.moments += x.T @ y
        self.total += float(y @ y)

    @property
    def resolution(self) -> Any:
        """How well a score is known: the rounding of the model's numbers, and of the sums made from them here."""
        return (ROUNDING * self.epsilon + SUM_ROUNDING) * np.maximum(self.largest, 1.0)

    @property
    def noise(self) -> Any:
        """Sums of squares below this are rounding."""
        with np.errstate(over="ignore"):
            return self.n * self.resolution * self.resolution

    @property
    def usable(self) -> Any:
        """Whether there is something to regress: the scores vary, and can be squared."""
        return (self.largest < TOO_LARGE) & (self.total > self.noise)

    def trouble(self) -> str | None:
        """Why there is nothing to regress, or None."""
        if self.not_finite:
            return f"{self.not_finite} scores of candidate keys are not finite"
        if not self.largest < TOO_LARGE:
            return f"the scores reach {self.largest:.1g}: too large to be squared and summed"
        return None if self.usable else "the scores do not vary over the candidate keys of a query"

    def solve(self, columns: list[int]) -> Solution:
        """Regress on some of the columns."""
        return solve_normal_equations(self.gram, self.moments, self.total, columns=columns)

    def independent(self, *, base: list[int], extra: list[int]) -> list[int]:
        """Those of the extra columns that are linearly independent of the base and of the extra columns before them."""
        chosen: list[int] = []
        for column in extra:
            length = float(self.gram[column, column])
            rest = solve_normal_equations(self.gram, self.gram[:, column], length, columns=base + chosen)
            if rest.sse > RANK_TOLERANCE * length:
                chosen.append(column)
        return chosen


def solve_normal_equations(
    gram: Float[np.ndarray, "all all"],
    moments: Float[np.ndarray, "*head all"],
    total: Any,
    *,
    columns: list[int] | None = None,
) -> Solution:
    """Regress on some of the columns (by default all) from X'X, X'y and y'y; every least-squares fit ends here."""
    inverse = np.zeros_like(gram)
    within = np.ix_(*[range(len(gram)) if columns is None else columns] * 2)
    inverse[within], told = inverse_on_known(gram[within])
    coefficients = moments @ inverse
    # y'y - b'X'y is subject to rounding; it must not become negative.
    sse = np.maximum(0.0, total - (coefficients * moments).sum(axis=-1))
    return Solution(coefficients=coefficients, inverse=inverse, sse=sse, full_rank=bool(told.all()))


def inverse_on_known(
    gram: Float[np.ndarray, "*head column column"], *, least: float = 0.0
) -> tuple[Float[np.ndarray, "*head column column"], Bool[np.ndarray, "*head column"]]:
    """The inverse on the directions that the data determine, and which columns they determine.

    Columns are scaled to one, so that a rare mask is not mistaken for a collinear one. Columns with no more than
    `least` on the diagonal are left out first.
    """
    diagonal = np.diagonal(gram, axis1=-2, axis2=-1)
    known = diagonal > least
    scale = np.sqrt(np.where(known, diagonal, 1.0))
    scales = scale[..., :, None] * scale[..., None, :]
    values, vectors = np.linalg.eigh(np.where(known[..., :, None] & known[..., None, :], gram / scales, 0.0))
    kept = values > RANK_TOLERANCE
    reciprocal = np.where(kept, 1.0 / np.where(kept, values, 1.0), 0.0)
    inverse = (vectors * reciprocal[..., None, :]) @ np.swapaxes(vectors, -1, -2) / scales
    lost = ((vectors**2) * ~kept[..., None, :]).sum(axis=-1)
    return inverse, lost < 1e-6


def leave_one_out(
    pull: Float[np.ndarray, "*head cluster column"],
    information: Float[np.ndarray, "*head cluster column column"],
    inverse: Float[np.ndarray, "*head column column"],
) -> Float[np.ndarray, "*head cluster column"]:
    """How far the estimates move when each cluster is left out: exactly for least squares, else by one Newton step.

    pull          each cluster's part of X' residual, or of the gradient of the likelihood
    information   each cluster's part of X'X, or of the information
    inverse       of the sum of the information; zero in columns that are not fitted

    NaN in a column that the data would not determine without some cluster: its error is not known.
    """
    inverse = inverse[..., None, :, :]
    size = inverse.shape[-1]
    without = np.linalg.solve((1 + ALONE * ALONE) * np.eye(size) - inverse @ information, inverse)
    moved = np.einsum("...ab,...b->...a", without, pull)
    before, after = np.diagonal(inverse, axis1=-2, axis2=-1), np.diagonal(without, axis1=-2, axis2=-1)
    return np.asarray(np.where((ALONE * np.abs(after) > before).any(axis=-2, keepdims=True), np.nan, moved))


def clustered(moved: Float[np.ndarray, "*head cluster column"]) -> Float[np.ndarray, "*head column column"]:
    """The jackknife's covariance, from how far each cluster moves the estimates; NaN for fewer than two clusters."""
    groups, size = moved.shape[-2:]
    if groups < 2:
        return np.full((*moved.shape[:-2], size, size), np.nan)
    return np.asarray(np.swapaxes(moved, -1, -2) @ moved * ((groups - 1) / groups))


class Slope(NamedTuple):
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
    if bottom == 0:
        return Slope(slope=math.nan, stderr=math.nan, r2=math.nan)
    total, slope = float((y**2).sum()), float((x * y).sum(axis=-1).mean()) / bottom
    residual = y - slope * x
    _, spread = mean_stderr((x * residual).sum(axis=-1))
    r2 = 1 - float((residual**2).sum()) / total if total > 0 else math.nan
    return Slope(slope=slope, stderr=spread / bottom, r2=r2)


def sign_flip_test(influence: Float[np.ndarray, "cluster column"], *, resolution: float) -> float:
    """p-value of "all column sums are zero in expectation", by flipping the signs of whole clusters at random.

    If nothing is there, a cluster's influence is as likely as its opposite, so that Wald's statistic of the data is one
    draw among those of flipped data. That holds for few clusters and for unequal ones, where the chi2 and F
    distributions reject too often. The least p-value is 1 / (FLIPS + 1). NaN, cannot tell, where there are no more
    clusters than columns.

    Sums below `resolution` are no evidence: an exact construction would else be rejected because of rounding.
    """
    groups, size = influence.shape
    if size == 0 or groups <= size:
        return math.nan
    if np.abs(influence.sum(axis=0)).max() <= resolution:
        return 1.0
    left, values, _ = np.linalg.svd(influence, full_matrices=False)
    white = left[:, values > RANK_TOLERANCE * values[0]]  # the statistic is that of columns made orthogonal
    flips = np.random.default_rng(0).choice([-1.0, 1.0], size=(FLIPS, groups))
    observed = (white.sum(axis=0) ** 2).sum()
    as_large = ((flips @ white) ** 2).sum(axis=1) >= observed * (1 - RANK_TOLERANCE)
    return float((1 + as_large.sum()) / (FLIPS + 1))


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
