"""Maximum likelihood of attention: which weights make a softmax law nearest to attention that was observed?

A law gives every key that a query sees a score, linear in its parameters; its attention is the softmax of these scores.
For observed attention p the likelihood is minus the cross-entropy,

    L(theta) = sum over queries of ( sum_s p_s e_s - log sum_s exp(e_s) ),      e_s = x_s . theta,

which is concave, so that Newton's method finds its maximum. A constant of the query drops out of it. The maximum is
also where KL(p || law) is smallest.

Keys of one group have one score. So attention summed by group and the number of keys in each group are all that is
needed (`GroupLikelihood`), for many heads at once. With a term for the position, keys of one group differ, and every
key is kept (`PlacedLikelihood`).

Standard errors leave out one sequence at a time, as in `regression`: they do not need the law to be true.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import einops
import numpy as np
from jaxtyping import Bool, Float, Int64
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.special import logsumexp

from interp.fitting.regression import leave_one_out

Array: TypeAlias = NDArray[Any]

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
class Evaluation:
    """The likelihood of each head at given parameters, summed over queries, and its first two derivatives."""

    value: Float[np.ndarray, " head"]
    gradient: Float[np.ndarray, "head column"]
    information: Float[np.ndarray, "head column column"]


class GroupLikelihood:
    """Attention by groups of keys, for many heads at once.

    shares     [head, row, group] observed attention; the rows (queries) sum to one
    counts     [row, group] keys of each group; the same for all heads
    design     [group, column]
    sequence   [row] which sequence each row comes from
    kept       [head, row] rows that count; all, if it is not given
    """

    def __init__(
        self,
        *,
        shares: Float[np.ndarray, "head row group"],
        counts: Float[np.ndarray, "row group"],
        design: Float[np.ndarray, "group column"],
        sequence: Int64[np.ndarray, " row"],
        sequences: int,
        kept: Bool[np.ndarray, "head row"] | None = None,
    ) -> None:
        self.shares = shares if kept is None else np.where(kept[..., None], shares, 0.0)
        self.counts, self.design, self.kept = counts, design, kept
        self.sequence, self.sequences = sequence, sequences
        self.rows = len(sequence)
        with np.errstate(divide="ignore"):
            self._log_counts = np.log(counts)

    def _law(self, theta: Array) -> tuple[Array, Array, Array]:
        """Scores by head and group, log Z by head and row, and the law's mass by head, row and group."""
        scores = theta @ self.design.T
        weights = scores[:, None, :] + self._log_counts
        totals = logsumexp(weights, axis=-1)
        masses = np.exp(weights - totals[..., None])
        if self.kept is None:
            return scores, totals, masses
        return scores, np.where(self.kept, totals, 0.0), np.where(self.kept[..., None], masses, 0.0)

    def evaluate(self, theta: Float[np.ndarray, "head column"]) -> Evaluation:
        """Value and derivatives at one parameter vector per head."""
        scores, totals, masses = self._law(theta)
        observed = self.shares.sum(axis=1)
        mean = masses @ self.design
        spread = einops.einsum(masses.sum(axis=1), self.design, self.design, "head group, group a, group b -> head a b")
        return Evaluation(
            value=(observed * scores).sum(axis=1) - totals.sum(axis=1),
            gradient=(observed - masses.sum(axis=1)) @ self.design,
            information=spread - einops.einsum(mean, mean, "head row a, head row b -> head a b"),
        )

    def pull(self, theta: Float[np.ndarray, "head column"]) -> Float[np.ndarray, "head sequence column"]:
        """The gradient, sequence by sequence."""
        rows = (self.shares - self.masses(theta)) @ self.design
        return sum_by_sequence(rows, self.sequence, self.sequences)

    def information(self, theta: Float[np.ndarray, "head column"], block: slice) -> Array:
        """[head, sequence, column, column] the information of each sequence of a block."""
        inside, owner, size = _block(self.sequence, block)
        masses = self.masses(theta)[:, inside]
        by_group = sum_by_sequence(masses, owner, size)
        mean = masses @ self.design
        outer = [sum_by_sequence(mean * mean[..., [column]], owner, size) for column in range(mean.shape[-1])]
        spread = np.swapaxes(by_group[..., None] * self.design, -1, -2) @ self.design
        return np.asarray(spread - np.stack(outer, axis=-2))

    def masses(self, theta: Float[np.ndarray, "head column"]) -> Float[np.ndarray, "head row group"]:
        """The law's attention by group."""
        return np.asarray(self._law(theta)[2])

    def logs(self, theta: Float[np.ndarray, "head column"]) -> Float[np.ndarray, "head row"]:
        """sum_s p_s log law_s of every row: minus its cross-entropy."""
        scores, totals, _ = self._law(theta)
        return np.asarray((self.shares * scores[:, None, :]).sum(axis=-1) - totals)


@dataclass(frozen=True, kw_only=True)
class PlacedPart:
    """Queries at one position, which see the same keys: each key with its group, attention and place.

    rows      which rows of the likelihood these are
    groups    [row, key]
    shares    [row, key] observed attention; rows sum to one
    places    [key, term] functions of the position
    """

    rows: slice
    groups: Int64[np.ndarray, "row key"]
    shares: Float[np.ndarray, "row key"]
    places: Float[np.ndarray, "key term"]


class PlacedLikelihood:
    """Attention key by key, of one head (or of several that share their parameters): groups and a term for the place.

    The columns are those of `design`, then the terms of `places`.
    """

    def __init__(
        self,
        *,
        parts: Sequence[PlacedPart],
        design: Float[np.ndarray, "group column"],
        sequence: Int64[np.ndarray, " row"],
        sequences: int,
    ) -> None:
        self.parts, self.design = parts, design
        self.sequence, self.sequences = sequence, sequences
        self.rows = len(sequence)

    def _law(self, part: PlacedPart, theta: Array) -> tuple[Array, Array]:
        """Scores and log Z."""
        columns = self.design.shape[1]
        scores = (self.design @ theta[0, :columns])[part.groups] + part.places @ theta[0, columns:]
        return scores, logsumexp(scores, axis=1)

    def evaluate(self, theta: Float[np.ndarray, "head column"]) -> Evaluation:
        """Value and derivatives; there is one head."""
        design, groups = self.design, len(self.design)
        columns, size = design.shape[1], theta.shape[1]
        value, gradient, information = 0.0, np.zeros(size), np.zeros((size, size))
        for part in self.parts:
            scores, totals = self._law(part, theta)
            law = np.exp(scores - totals[:, None])
            value += float((part.shares * scores).sum() - totals.sum())
            off = part.shares - law
            # What both halves of the columns need is summed first: by group and key, by row and group.
            keys = part.groups.shape[1]
            code = part.groups * keys + np.arange(keys)
            by_key = np.bincount(code.ravel(), weights=law.ravel(), minlength=groups * keys).reshape(groups, keys)
            off_by_group = np.bincount(part.groups.ravel(), weights=off.ravel(), minlength=groups)
            mean = np.concatenate([sum_by_group(part.groups, law, groups) @ design, law @ part.places], axis=1)
            gradient[:columns] += off_by_group @ design
            gradient[columns:] += off.sum(axis=0) @ part.places
            cross = design.T @ by_key @ part.places
            information[:columns, :columns] += design.T @ (by_key.sum(axis=1)[:, None] * design)
            information[:columns, columns:] += cross
            information[columns:, :columns] += cross.T
            information[columns:, columns:] += part.places.T @ (by_key.sum(axis=0)[:, None] * part.places)
            information -= mean.T @ mean
        return Evaluation(value=np.array([value]), gradient=gradient[None], information=information[None])

    def pull(self, theta: Float[np.ndarray, "head column"]) -> Float[np.ndarray, "head sequence column"]:
        """The gradient, sequence by sequence."""
        rows = np.zeros((1, self.rows, theta.shape[1]))
        columns = self.design.shape[1]
        for part in self.parts:
            scores, totals = self._law(part, theta)
            off = part.shares - np.exp(scores - totals[:, None])
            rows[0, part.rows, :columns] = sum_by_group(part.groups, off, len(self.design)) @ self.design
            rows[0, part.rows, columns:] = off @ part.places
        return sum_by_sequence(rows, self.sequence, self.sequences)

    def information(self, theta: Float[np.ndarray, "head column"], block: slice) -> Array:
        """[head, sequence, column, column] the information of each sequence of a block; there is one head."""
        inside, owner, size = _block(self.sequence, block)
        columns, groups = self.design.shape[1], len(self.design)
        found = np.zeros((size, theta.shape[1], theta.shape[1]))
        place = np.cumsum(inside) - 1  # of a row among those of the block
        for part in self.parts:
            chosen = inside[part.rows]
            some = replace(part, groups=part.groups[chosen], shares=part.shares[chosen])
            scores, totals = self._law(some, theta)
            law = np.exp(scores - totals[:, None])
            by_group = sum_by_group(some.groups, law, groups)
            terms = [sum_by_group(some.groups, law * term, groups) @ self.design for term in part.places.T]
            here = np.empty((len(law), *found.shape[1:]))
            here[:, :columns, :columns] = np.swapaxes(by_group[..., None] * self.design, -1, -2) @ self.design
            here[:, columns:, :columns] = np.stack(terms, axis=1)
            here[:, :columns, columns:] = np.swapaxes(here[:, columns:, :columns], -1, -2)
            products = part.places[:, :, None] * part.places[:, None, :]
            here[:, columns:, columns:] = np.tensordot(law, products, axes=1)
            mean = np.concatenate([by_group @ self.design, law @ part.places], axis=1)
            # A part has one query, so that each sequence occurs in it once.
            found[owner[place[part.rows][chosen]]] += here - mean[:, :, None] * mean[:, None, :]
        return found[None]

    def masses(self, theta: Float[np.ndarray, "head column"]) -> Float[np.ndarray, "head row group"]:
        """The law's attention by group."""
        found = np.zeros((1, self.rows, len(self.design)))
        for part in self.parts:
            scores, totals = self._law(part, theta)
            found[0, part.rows] = sum_by_group(part.groups, np.exp(scores - totals[:, None]), len(self.design))
        return found

    def logs(self, theta: Float[np.ndarray, "head column"]) -> Float[np.ndarray, "head row"]:
        """sum_s p_s log law_s of every row: minus its cross-entropy."""
        found = np.zeros((1, self.rows))
        for part in self.parts:
            scores, totals = self._law(part, theta)
            found[0, part.rows] = (part.shares * scores).sum(axis=1) - totals
        return found


Likelihood: TypeAlias = GroupLikelihood | PlacedLikelihood


@dataclass(frozen=True, kw_only=True)
class Maximum:
    """Where the likelihood of each head is largest.

    theta         [head, column]; zero in the columns that were left out
    inverse       [head, column, column] of the information; zero there, too
    value         [head] summed over queries
    converged     [head]
    told          [head, column] whether the data determine this parameter: False where it is left out, collinear with
                  others, or so large that the attention underflows
    """

    theta: Float[np.ndarray, "head column"]
    inverse: Float[np.ndarray, "head column column"]
    value: Float[np.ndarray, " head"]
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
    here = likelihood.evaluate(theta)
    converged = np.zeros(len(theta), dtype=bool)
    for _ in range(MAX_STEPS):
        step = np.zeros_like(theta)
        step[:, used] = _newton(here.gradient[:, used], _within(here.information, used), rows=likelihood.rows)
        step *= np.minimum(1.0, LONGEST / np.maximum(np.abs(step).max(axis=1, initial=0.0), LONGEST))[:, None]
        # The last step, too small to matter, is still taken: the error of Newton's method is then its square.
        step[converged] = 0.0
        near = (step * here.gradient).sum(axis=1) <= DECREMENT * likelihood.rows
        for _ in range(HALVINGS):
            there = likelihood.evaluate(theta + step)
            promised = (step * here.gradient).sum(axis=1)
            worse = ~near & ~(there.value >= here.value + GAIN * promised)
            if not worse.any():
                break
            step[worse] /= 2
        else:  # no step improves it any more: rounding
            step[worse] = 0.0
            there = likelihood.evaluate(theta + step)
        converged |= near
        theta, here = theta + step, there
        if converged.all() or not step.any():
            break
    inverse, told = np.zeros_like(here.information), np.zeros(theta.shape, dtype=bool)
    inner, known = _inverse(_within(here.information, used), rows=likelihood.rows)
    inverse[:, used[:, None], used[None, :]] = inner
    told[:, used] = known
    return Maximum(theta=theta, inverse=inverse, value=here.value, converged=converged, told=told)


def influence(likelihood: Likelihood, found: Maximum) -> Float[np.ndarray, "head sequence column"]:
    """How far each estimate moves without each sequence; `regression.clustered` makes covariances of it."""
    pull = likelihood.pull(found.theta)
    heads, sequences, columns = pull.shape
    step = max(1, BLOCK_BYTES // max(1, 8 * heads * columns**2))
    for start in range(0, sequences, step):
        block = slice(start, min(start + step, sequences))
        information = likelihood.information(found.theta, block)
        pull[:, block] = leave_one_out(pull[:, block], information, found.inverse)
    # One sequence without which a parameter is not determined is enough for its error to be unknown.
    return np.asarray(np.where(np.isnan(pull).any(axis=1, keepdims=True), np.nan, pull))


def sum_by_sequence(
    rows: Float[np.ndarray, "head row column"], sequence: Int64[np.ndarray, " row"], sequences: int
) -> Float[np.ndarray, "head sequence column"]:
    """Sums over the rows of each sequence."""
    member = csr_array((np.ones(len(sequence)), (sequence, np.arange(len(sequence)))), (sequences, len(sequence)))
    return np.stack([member @ one for one in rows])


def _block(sequence: Int64[np.ndarray, " row"], block: slice) -> tuple[Array, Array, int]:
    """Which rows belong to a block of sequences, the place of their sequence in it, and the size of the block."""
    inside = (sequence >= block.start) & (sequence < block.stop)
    return inside, sequence[inside] - block.start, block.stop - block.start


def sum_by_group(
    groups: Int64[np.ndarray, "row key"], weights: Float[np.ndarray, "row key"] | None, size: int
) -> Float[np.ndarray, "row group"]:
    """Sum of the weights (or the number) of the keys of each group, row by row."""
    rows = len(groups)
    codes = groups + size * np.arange(rows)[:, None]
    flat = None if weights is None else weights.ravel()
    return np.bincount(codes.ravel(), weights=flat, minlength=rows * size).astype(np.float64).reshape(rows, size)


def _within(matrices: Array, used: Array) -> Array:
    return matrices[:, used[:, None], used[None, :]]


def _eigen(information: Array, *, rows: int) -> tuple[Array, Array, Array, Array]:
    """The scale of each column, eigenvalues and vectors of the scaled information, and which of them are large enough.

    Columns are scaled to one, so that a rare mask is not mistaken for a collinear one. Columns with too little
    information for double precision are left out first.
    """
    diagonal = np.einsum("haa->ha", information)
    known = diagonal > INFORMATION * rows
    scale = np.sqrt(np.where(known, diagonal, 1.0))
    both = known[:, :, None] & known[:, None, :]
    values, vectors = np.linalg.eigh(np.where(both, information / (scale[:, :, None] * scale[:, None, :]), 0.0))
    return scale, values, vectors, values > 1e-9


def _inverse(information: Array, *, rows: int) -> tuple[Array, Array]:
    """The inverse on the directions that the data determine, and which columns they determine."""
    if not information.shape[1]:
        return information, np.zeros(information.shape[:2], dtype=bool)
    scale, values, vectors, kept = _eigen(information, rows=rows)
    reciprocal = np.where(kept, 1.0 / np.where(kept, values, 1.0), 0.0)
    inverse = einops.einsum(vectors * reciprocal[:, None, :], vectors, "head a value, head b value -> head a b")
    inverse = inverse / (scale[:, :, None] * scale[:, None, :])
    lost = ((vectors**2) * ~kept[:, None, :]).sum(axis=2)
    enough = np.einsum("haa->ha", inverse) * OWN_INFORMATION * rows < 1.0
    return inverse, (lost < 1e-6) & enough


def _newton(gradient: Array, information: Array, *, rows: int) -> Array:
    inverse, _ = _inverse(information, rows=rows)
    return np.asarray((inverse @ gradient[..., None])[..., 0])
