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

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import einops
import numpy as np
from jaxtyping import Bool, Float, Int64
from scipy.sparse import csr_array
from scipy.special import logsumexp

from interp.fitting.regression import Array, leave_one_out

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
    groups: Int64[np.ndarray, "row key"]
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
    """The attention of a law at some parameters.

    totals   [head, row] log Z
    masses   [head, row, group]
    means    [head, row, column] of the columns of the keys
    spread   [head, column, column] second moments of these columns, summed over rows
    """

    totals: Float[np.ndarray, "head row"]
    masses: Float[np.ndarray, "head row group"]
    means: Float[np.ndarray, "head row column"]
    spread: Float[np.ndarray, "head column column"]


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The likelihood of each head at given parameters, summed over queries, and its first two derivatives."""

    value: Float[np.ndarray, " head"]
    gradient: Float[np.ndarray, "head column"]
    information: Float[np.ndarray, "head column column"]


class Likelihood(ABC):
    """The likelihood of a law over rows of attention; `observed` are the mean columns [head, row, column] of these."""

    observed: Float[np.ndarray, "head row column"]

    def __init__(self, rows: AttentionRows, design: Float[np.ndarray, "group column"]) -> None:
        self.rows, self.design, self.count = rows, design, len(rows.sequence)

    @abstractmethod
    def law(self, theta: Float[np.ndarray, "head column"]) -> LawAttention:
        """The law's attention at one parameter vector per head."""

    @abstractmethod
    def second_moments(
        self, theta: Float[np.ndarray, "head column"], law: LawAttention, inside: Bool[np.ndarray, " row"], block: slice
    ) -> Float[np.ndarray, "head sequence column column"]:
        """`LawAttention.spread` by sequence, over the rows inside a block of sequences."""

    def evaluate(self, theta: Float[np.ndarray, "head column"]) -> Evaluation:
        """Value and derivatives."""
        law = self.law(theta)
        return Evaluation(
            value=(self.observed.sum(axis=1) * theta).sum(axis=1) - law.totals.sum(axis=1),
            gradient=(self.observed - law.means).sum(axis=1),
            information=law.spread - np.swapaxes(law.means, 1, 2) @ law.means,
        )

    def logs(self, theta: Float[np.ndarray, "head column"]) -> Float[np.ndarray, "head row"]:
        """sum_s p_s log law_s of every row: minus its cross-entropy."""
        return np.asarray((self.observed @ theta[..., None])[..., 0] - self.law(theta).totals)

    def pull(self, theta: Float[np.ndarray, "head column"]) -> Float[np.ndarray, "head sequence column"]:
        """The gradient, sequence by sequence."""
        return sum_by_sequence(self.observed - self.law(theta).means, self.rows.sequence, self.rows.sequences)

    def information(self, theta: Float[np.ndarray, "head column"], block: slice) -> Array:
        """[head, sequence, column, column] the information of each sequence of a block."""
        law, size = self.law(theta), block.stop - block.start
        inside = (self.rows.sequence >= block.start) & (self.rows.sequence < block.stop)
        owner, means = self.rows.sequence[inside] - block.start, law.means[:, inside]
        outer = [sum_by_sequence(means * column[..., None], owner, size) for column in np.moveaxis(means, -1, 0)]
        return np.asarray(self.second_moments(theta, law, inside, block) - np.stack(outer, axis=-2))


class GroupLikelihood(Likelihood):
    """Attention by groups of keys, for many heads at once."""

    def __init__(self, rows: AttentionRows, design: Float[np.ndarray, "group column"]) -> None:
        super().__init__(rows, design)
        self.observed = rows.shares @ design
        with np.errstate(divide="ignore"):
            self._log_counts = np.log(rows.counts)

    def law(self, theta: Float[np.ndarray, "head column"]) -> LawAttention:
        """The law's attention at one parameter vector per head."""
        weights = (theta @ self.design.T)[:, None, :] + self._log_counts
        totals = logsumexp(weights, axis=-1)
        masses = np.exp(weights - totals[..., None])
        if not (kept := self.rows.kept).all():
            totals, masses = np.where(kept, totals, 0.0), np.where(kept[..., None], masses, 0.0)
        spread = self._weighted(masses.sum(axis=1))
        return LawAttention(totals=totals, masses=masses, means=masses @ self.design, spread=spread)

    def second_moments(
        self, theta: Float[np.ndarray, "head column"], law: LawAttention, inside: Bool[np.ndarray, " row"], block: slice
    ) -> Float[np.ndarray, "head sequence column column"]:
        """`LawAttention.spread` by sequence, over the rows inside a block of sequences."""
        owner, size = self.rows.sequence[inside] - block.start, block.stop - block.start
        return self._weighted(sum_by_sequence(law.masses[:, inside], owner, size))

    def _weighted(self, weights: Float[np.ndarray, "*some group"]) -> Float[np.ndarray, "*some column column"]:
        """sum_g w_g x_g x_g'."""
        return np.asarray(np.swapaxes(weights[..., None] * self.design, -1, -2) @ self.design)


class PlacedLikelihood(Likelihood):
    """Attention key by key, of one head (or of several that share their parameters): groups and a term for the place.

    The columns are those of `design`, then the terms of `places`.
    """

    def __init__(self, rows: AttentionRows, design: Float[np.ndarray, "group column"]) -> None:
        super().__init__(rows, design)
        placed = np.zeros((1, self.count, rows.basis.shape[1]))
        for part in rows.parts:
            placed[0, part.rows] = part.shares @ part.places
        self.observed = np.concatenate([rows.shares @ design, placed], axis=-1)

    def _keys(self, part: KeyPart, theta: Array) -> tuple[Array, Array]:
        """log Z, and the law's attention on single keys."""
        columns = self.design.shape[1]
        scores = (self.design @ theta[0, :columns])[part.groups] + part.places @ theta[0, columns:]
        totals = logsumexp(scores, axis=1)
        return totals, np.exp(scores - totals[:, None])

    def law(self, theta: Float[np.ndarray, "head column"]) -> LawAttention:
        """The law's attention; there is one head."""
        design, (groups, columns) = self.design, self.design.shape
        totals, masses = np.zeros((1, self.count)), np.zeros((1, self.count, groups))
        means, spread = np.zeros_like(self.observed), np.zeros((1, theta.shape[1], theta.shape[1]))
        for part in self.rows.parts:
            total, law = self._keys(part, theta)
            totals[0, part.rows], masses[0, part.rows] = total, sum_by_group(part.groups, law, groups)
            means[0, part.rows, columns:] = law @ part.places
            keys = part.groups.shape[1]
            code = part.groups * keys + np.arange(keys)
            by_key = np.bincount(code.ravel(), weights=law.ravel(), minlength=groups * keys).reshape(groups, keys)
            cross = design.T @ by_key @ part.places
            spread[0, :columns, :columns] += design.T @ (by_key.sum(axis=1)[:, None] * design)
            spread[0, :columns, columns:] += cross
            spread[0, columns:, :columns] += cross.T
            spread[0, columns:, columns:] += part.places.T @ (by_key.sum(axis=0)[:, None] * part.places)
        means[..., :columns] = masses @ design
        return LawAttention(totals=totals, masses=masses, means=means, spread=spread)

    def second_moments(
        self, theta: Float[np.ndarray, "head column"], law: LawAttention, inside: Bool[np.ndarray, " row"], block: slice
    ) -> Float[np.ndarray, "head sequence column column"]:
        """`LawAttention.spread` by sequence, over the rows inside a block of sequences."""
        found = np.zeros((block.stop - block.start, theta.shape[1], theta.shape[1]))
        for part in self.rows.parts:
            chosen = inside[part.rows]
            _, on_keys = self._keys(part, theta)
            groups, weights = part.groups[chosen], on_keys[chosen]
            places = np.broadcast_to(part.places, (*groups.shape, part.places.shape[1]))
            x = np.concatenate([self.design[groups], places], axis=-1)
            found[self.rows.sequence[part.rows][chosen] - block.start] += np.swapaxes(x * weights[..., None], 1, 2) @ x
        return found[None]


def likelihood_of(rows: AttentionRows, design: Float[np.ndarray, "group column"]) -> Likelihood:
    """The likelihood of a law; its columns are the law's, then the terms of the rows' basis."""
    return PlacedLikelihood(rows, design) if rows.basis.shape[1] else GroupLikelihood(rows, design)


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
    here = likelihood.evaluate(theta)
    converged = np.zeros(len(theta), dtype=bool)
    within = np.ix_(np.arange(len(theta)), used, used)
    for _ in range(MAX_STEPS):
        step = np.zeros_like(theta)
        inverse, _ = _inverse(here.information[within], rows=likelihood.count)
        step[:, used] = (inverse @ here.gradient[:, used, None])[..., 0]
        step *= np.minimum(1.0, LONGEST / np.maximum(np.abs(step).max(axis=1, initial=0.0), LONGEST))[:, None]
        # The last step, too small to matter, is still taken: the error of Newton's method is then its square.
        step[converged] = 0.0
        near = (step * here.gradient).sum(axis=1) <= DECREMENT * likelihood.count
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
    inverse[within], told[:, used] = _inverse(here.information[within], rows=likelihood.count)
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


def sum_by_group(
    groups: Int64[np.ndarray, "row key"], weights: Float[np.ndarray, "row key"] | None, size: int
) -> Float[np.ndarray, "row group"]:
    """Sum of the weights (or the number) of the keys of each group, row by row."""
    rows = len(groups)
    codes = groups + size * np.arange(rows)[:, None]
    flat = None if weights is None else weights.ravel()
    return np.bincount(codes.ravel(), weights=flat, minlength=rows * size).astype(np.float64).reshape(rows, size)


def _inverse(information: Array, *, rows: int) -> tuple[Array, Array]:
    """The inverse on the directions that the data determine, and which columns they determine.

    Columns are scaled to one, so that a rare mask is not mistaken for a collinear one. Columns with too little
    information for double precision are left out first.
    """
    if not information.shape[1]:
        return information, np.zeros(information.shape[:2], dtype=bool)
    diagonal = np.einsum("haa->ha", information)
    known = diagonal > INFORMATION * rows
    scale = np.sqrt(np.where(known, diagonal, 1.0))
    scales = scale[:, :, None] * scale[:, None, :]
    values, vectors = np.linalg.eigh(np.where(known[:, :, None] & known[:, None, :], information / scales, 0.0))
    kept = values > 1e-9
    reciprocal = np.where(kept, 1.0 / np.where(kept, values, 1.0), 0.0)
    inverse = einops.einsum(vectors * reciprocal[:, None, :], vectors, "head a value, head b value -> head a b")
    inverse = inverse / scales
    lost = ((vectors**2) * ~kept[:, None, :]).sum(axis=2)
    enough = np.einsum("haa->ha", inverse) * OWN_INFORMATION * rows < 1.0
    return inverse, (lost < 1e-6) & enough
