"""Maximum likelihood of attention: which weights make a softmax law nearest to attention that was observed?

A law gives every key that a query sees a score, linear in its parameters; its attention is the softmax of these scores.
For observed attention p the likelihood is minus the cross-entropy,

    L(theta) = sum over queries of ( sum_s p_s e_s - log sum_s exp(e_s) ),      e_s = x_s . theta,

which is concave, so that Newton's method finds its maximum. A constant of the query drops out of it. The maximum is
also where KL(p || law) is smallest.

Keys of one group have one score. So attention summed by group and the number of keys in each group are all that is
needed, for many heads at once. With a term for the position, keys of one group differ, and every key is kept.

Standard errors leave out one sequence at a time, as in `regression`: they do not need the law to be true.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int, Int64
from scipy.sparse import csr_array
from scipy.special import logsumexp

from interp.fitting.regression import Array, inverse_on_known, leave_one_out

MAX_STEPS = 100
DECREMENT = 1e-13  # of Newton's method: the search stops where fewer nats per query can be gained
HALVINGS = 40
LONGEST = 10.0  # nats that one step may move a parameter: after a longer one the gradient may vanish
GAIN = 0.3  # least gain of a step, as a share of what the slope predicts (Armijo's rule)
INFORMATION = 1e-11  # per query; a direction with less cannot be determined in double precision
# Of one parameter, per query, with all others free. The search stops at `DECREMENT`, which leaves an error of the
# parameter of up to sqrt(2 DECREMENT / information): 0.014 nats here, and more where there is less information.
OWN_INFORMATION = 1e-9
BLOCK_BYTES = 256 << 20  # of the information of single sequences, held at once


@dataclass(frozen=True, kw_only=True)
class KeyPart:
    """Queries of one head at one position, which see the same keys: each key with its group, attention and place.

    rows      which rows these are; each of them is of another sequence
    groups    [row, key]
    shares    [row, key] observed attention; rows sum to one
    places    [key, term] functions of the position
    """

    rows: slice
    groups: Int[np.ndarray, "row key"]
    shares: Float[np.ndarray, "row key"]
    places: Float[np.ndarray, "key term"]


@dataclass(frozen=True, kw_only=True)
class AttentionRows:
    """Observed attention over groups of keys. A row is a query of a sequence; many heads may share their rows.

    shares     [head, row, group] attention, renormalised over candidates and BOS; zero in rows that are not kept
    counts     [row, group] keys of each group
    entropy    [head, row] sum_s p_s log p_s over single keys
    kept       [head, row] False where nearly all attention is on early keys
    sequence   [row]
    parts      the same key by key, for a positional term of a single head; empty without one
    basis      the functions of the distance that make up that term
    """

    shares: Float[np.ndarray, "head row group"]
    counts: Float[np.ndarray, "row group"]
    entropy: Float[np.ndarray, "head row"]
    kept: Bool[np.ndarray, "head row"]
    sequence: Int64[np.ndarray, " row"]
    sequences: int
    parts: tuple[KeyPart, ...]
    basis: Float[np.ndarray, "distance term"]


@dataclass(frozen=True, kw_only=True)
class LawAttention:
    """A law at some parameters: log Z of every query, its attention by group, and the mean of its keys' columns."""

    totals: Float[np.ndarray, "head row"]
    masses: Float[np.ndarray, "head row group"]
    means: Float[np.ndarray, "head row column"]


class Likelihood:
    """The likelihood of a law over rows of attention. Its columns are the design's, then the terms of the rows' basis.

    A positional term needs `rows.parts`, which are of a single head, or of several that share their parameters.
    """

    def __init__(self, rows: AttentionRows, design: Float[np.ndarray, "group column"]) -> None:
        self.rows, self.design, self.count = rows, design, len(rows.sequence)
        placed = np.zeros((len(rows.shares), self.count, rows.basis.shape[1]))
        for part in rows.parts:
            placed[0, part.rows] = part.shares @ part.places
        self.observed = np.concatenate([rows.shares @ design, placed], axis=-1)  # mean columns, [head, row, column]
        with np.errstate(divide="ignore"):
            self._log_counts = np.log(rows.counts)

    def law(self, theta: Float[np.ndarray, "head column"]) -> LawAttention:
        """The law's attention at one parameter vector per head."""
        kept, (groups, columns) = self.rows.kept, self.design.shape
        if not self.rows.parts:
            weights = (theta @ self.design.T)[:, None, :] + self._log_counts
            totals = logsumexp(weights, axis=-1)
            masses = np.exp(weights - totals[..., None])
            if not kept.all():
                totals, masses = np.where(kept, totals, 0.0), np.where(kept[..., None], masses, 0.0)
            return LawAttention(totals=totals, masses=masses, means=masses @ self.design)
        totals, masses, means = np.zeros(kept.shape), np.zeros((*kept.shape, groups)), np.zeros_like(self.observed)
        for part in self.rows.parts:
            totals[0, part.rows], on_keys = self._keys(part, theta)
            masses[0, part.rows] = sum_by_group(part.groups, on_keys, groups)
            means[0, part.rows, columns:] = on_keys @ part.places
        means[..., :columns] = masses @ self.design
        return LawAttention(totals=totals, masses=masses, means=means)

    def _keys(self, part: KeyPart, theta: Array) -> tuple[Array, Array]:
        """log Z, and the law's attention on single keys."""
        columns = self.design.shape[1]
        scores = (self.design @ theta[0, :columns])[part.groups] + part.places @ theta[0, columns:]
        totals = logsumexp(scores, axis=1)
        return totals, np.exp(scores - totals[:, None])

    def evaluate(self, theta: Float[np.ndarray, "head column"]) -> tuple[Array, Array, Array]:
        """The likelihood of each head, summed over queries; its gradient; and its information (minus the Hessian)."""
        law, (groups, columns) = self.law(theta), self.design.shape
        moments = np.zeros((*theta.shape, theta.shape[1]))
        moments[:, :columns, :columns] = self._weighted(law.masses.sum(axis=1))
        for part in self.rows.parts:
            _, on_keys = self._keys(part, theta)
            keys = part.groups.shape[1]
            by_key = sum_by_group(
                (part.groups * np.int64(keys) + np.arange(keys)).reshape(1, -1), on_keys, groups * keys
            )
            by_key = by_key.reshape(groups, keys)
            moments[0, :columns, columns:] += self.design.T @ by_key @ part.places
            moments[0, columns:, columns:] += part.places.T @ (by_key.sum(axis=0)[:, None] * part.places)
        moments[:, columns:, :columns] = np.swapaxes(moments[:, :columns, columns:], 1, 2)
        value = (self.observed.sum(axis=1) * theta).sum(axis=1) - law.totals.sum(axis=1)
        gradient = (self.observed - law.means).sum(axis=1)
        return value, gradient, moments - np.swapaxes(law.means, 1, 2) @ law.means

    def logs(self, theta: Float[np.ndarray, "head column"]) -> Float[np.ndarray, "head row"]:
        """sum_s p_s log law_s of every row: minus its cross-entropy."""
        return np.asarray((self.observed @ theta[..., None])[..., 0] - self.law(theta).totals)

    def pull(self, theta: Float[np.ndarray, "head column"]) -> Float[np.ndarray, "head sequence column"]:
        """The gradient, sequence by sequence."""
        return sum_by_sequence(self.observed - self.law(theta).means, self.rows.sequence, self.rows.sequences)

    def information(
        self, theta: Float[np.ndarray, "head column"], block: slice
    ) -> Float[np.ndarray, "head sequence column column"]:
        """The information of each sequence of a block."""
        law, size = self.law(theta), block.stop - block.start
        inside = (self.rows.sequence >= block.start) & (self.rows.sequence < block.stop)
        owner, means = self.rows.sequence[inside] - block.start, law.means[:, inside]
        outer = [sum_by_sequence(means * column[..., None], owner, size) for column in np.moveaxis(means, -1, 0)]
        if not self.rows.parts:
            found = self._weighted(sum_by_sequence(law.masses[:, inside], owner, size))
            return np.asarray(found - np.stack(outer, axis=-2))
        found = np.zeros((1, size, theta.shape[1], theta.shape[1]))
        for part in self.rows.parts:
            chosen = inside[part.rows]
            groups, weights = part.groups[chosen], self._keys(part, theta)[1][chosen]
            places = np.broadcast_to(part.places, (*groups.shape, part.places.shape[1]))
            x = np.concatenate([self.design[groups], places], axis=-1)
            found[0, self.rows.sequence[part.rows][chosen] - block.start] += (
                np.swapaxes(x * weights[..., None], 1, 2) @ x
            )
        return np.asarray(found - np.stack(outer, axis=-2))

    def _weighted(self, weights: Float[np.ndarray, "*some group"]) -> Float[np.ndarray, "*some column column"]:
        """sum_g w_g x_g x_g'."""
        return np.asarray(np.swapaxes(weights[..., None] * self.design, -1, -2) @ self.design)


@dataclass(frozen=True, kw_only=True)
class Maximum:
    """Where the likelihood of each head is largest.

    theta         [head, column]; zero in the columns that were left out
    inverse       [head, column, column] of the information; zero there, too
    converged     [head]
    told          [head, column] whether the data determine this parameter: False where it is left out, collinear with
                  others, or so large that the attention underflows
    """

    theta: Float[np.ndarray, "head column"]
    inverse: Float[np.ndarray, "head column column"]
    converged: Bool[np.ndarray, " head"]
    told: Bool[np.ndarray, "head column"]


def maximise(
    likelihood: Likelihood, *, start: Float[np.ndarray, "head column"], columns: Sequence[int] | None = None
) -> Maximum:
    """Newton's method with step halving, for all heads at once; columns outside `columns` stay at zero.

    A step must gain a part of what the slope predicts. Not to lose would not be enough: from even attention the first
    step towards sharp attention may pass the maximum so far that the gradient vanishes there.
    """
    used = np.arange(start.shape[1]) if columns is None else np.asarray(columns, dtype=np.int64)
    theta = np.zeros_like(start)
    theta[:, used] = start[:, used]
    value, gradient, information = likelihood.evaluate(theta)
    converged = np.zeros(len(theta), dtype=bool)
    within, least = np.ix_(np.arange(len(theta)), used, used), INFORMATION * likelihood.count
    for _ in range(MAX_STEPS):
        step = np.zeros_like(theta)
        step[:, used] = (inverse_on_known(information[within], least=least)[0] @ gradient[:, used, None])[..., 0]
        step *= np.minimum(1.0, LONGEST / np.maximum(np.abs(step).max(axis=1, initial=0.0), LONGEST))[:, None]
        # The last step, too small to matter, is still taken: the error of Newton's method is then its square.
        step[converged] = 0.0
        near = (step * gradient).sum(axis=1) <= DECREMENT * likelihood.count
        for _ in range(HALVINGS):
            there = likelihood.evaluate(theta + step)
            worse = ~near & ~(there[0] >= value + GAIN * (step * gradient).sum(axis=1))
            if not worse.any():
                break
            step[worse] /= 2
        else:  # no step improves it any more: rounding
            step[worse] = 0.0
            there = likelihood.evaluate(theta + step)
        converged |= near
        theta, (value, gradient, information) = theta + step, there
        if converged.all() or not step.any():
            break
    inverse, told = np.zeros_like(information), np.zeros(theta.shape, dtype=bool)
    inverse[within], told[:, used] = inverse_on_known(information[within], least=least)
    told &= np.einsum("haa->ha", inverse) * OWN_INFORMATION * likelihood.count < 1.0
    return Maximum(theta=theta, inverse=inverse, converged=converged, told=told)


def influence(likelihood: Likelihood, found: Maximum) -> Float[np.ndarray, "head sequence column"]:
    """How far each estimate moves without each sequence; `regression.clustered` makes covariances of it."""
    pull = likelihood.pull(found.theta)
    heads, sequences, columns = pull.shape
    step = max(1, BLOCK_BYTES // max(1, 8 * heads * columns**2))
    for start in range(0, sequences, step):
        block = slice(start, min(start + step, sequences))
        pull[:, block] = leave_one_out(pull[:, block], likelihood.information(found.theta, block), found.inverse)
    # One sequence without which a parameter is not determined is enough for its error to be unknown.
    return np.asarray(np.where(np.isnan(pull).any(axis=1, keepdims=True), np.nan, pull))


def sum_by_sequence(
    rows: Float[np.ndarray, "head row column"], sequence: Int64[np.ndarray, " row"], sequences: int
) -> Float[np.ndarray, "head sequence column"]:
    """Sums over the rows of each sequence."""
    member = csr_array((np.ones(len(sequence)), (sequence, np.arange(len(sequence)))), (sequences, len(sequence)))
    return np.stack([member @ one for one in rows])


def sum_by_group(groups: Int[np.ndarray, "row key"], weights: Array | None, size: int) -> Array:
    """Sum of the weights (or the number) of the keys of each group, row by row: [row, group]."""
    rows = len(groups)
    codes = groups + size * np.arange(rows)[:, None]
    flat = None if weights is None else weights.ravel()
    return np.bincount(codes.ravel(), weights=flat, minlength=rows * size).astype(np.float64).reshape(rows, size)
