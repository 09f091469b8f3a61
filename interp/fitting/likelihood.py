"""Maximum likelihood of attention: which weights make a softmax law nearest to attention that was observed?

A law gives every key that a query sees a score, linear in its parameters; its attention is the softmax of these scores.
For observed attention p the likelihood is minus the cross-entropy,

    L(theta) = sum over queries of ( sum_s p_s e_s - log sum_s exp(e_s) ),      e_s = x_s . theta,

which is concave, so that Newton's method finds its maximum. A constant of the query drops out of it. The maximum is
also where KL(p || law) is smallest.

The score of a key is that of its group plus, with a positional term, a function of its distance. So all that is needed
of a head is its attention summed by group, and the mean of the functions of the distance: no attention of single keys.
And which key lies in which group at which distance is the same for all heads: exp(e_s) is a product of two factors, so
that the sums over keys are matrix products for many heads at once.

Standard errors leave out one sequence at a time, as in `regression`: they do not need the law to be true.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import einops
import numpy as np
from jaxtyping import Bool, Float, Int

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
BLOCK_BYTES = 64 << 20  # of the keys of some sequences, and of the information of single sequences, held at once
LEAST = -300.0  # of the logarithm of a factor: the product of two must not underflow


@dataclass(frozen=True, kw_only=True)
class AttentionRows:
    """Observed attention over groups of keys, query by query; many heads may share the queries.

    shares     [head, sequence, query, group] attention, renormalised over candidates and BOS; zero where not kept
    places     [head, sequence, query, term] mean of the functions of the distance under that attention
    entropy    [head, sequence, query] sum_s p_s log p_s over single keys
    kept       [head, sequence, query] False where nearly all attention is on early keys
    keys       [sequence, query, distance] the group of the candidate at this distance; -1 where there is none
    basis      [distance, term] the functions of the distance
    centre     [query, term] their means over the query's candidates, which BOS has in place of a distance: so kappa is
               relative to an average position. None without BOS, which is the last group and no candidate
    """

    shares: Float[np.ndarray, "head sequence query group"]
    places: Float[np.ndarray, "head sequence query term"]
    entropy: Float[np.ndarray, "head sequence query"]
    kept: Bool[np.ndarray, "head sequence query"]
    keys: Int[np.ndarray, "sequence query distance"]
    basis: Float[np.ndarray, "distance term"]
    centre: Float[np.ndarray, "query term"] | None

    @property
    def sequence(self) -> Int[np.ndarray, "sequence query"]:
        """Which sequence each query is of."""
        return np.broadcast_to(np.arange(len(self.keys))[:, None], self.keys.shape[:2])

    @property
    def seen(self) -> Bool[np.ndarray, " group"]:
        """Whether a query sees a key of this group."""
        groups = np.arange(self.shares.shape[-1])
        return np.asarray(np.isin(groups, self.keys) | ((groups == groups[-1]) & (self.centre is not None)))

    def together(self) -> AttentionRows:
        """All heads as one, with as many times the queries."""
        heads = len(self.shares)
        pooled = {
            name: einops.rearrange(getattr(self, name), "head sequence query ... -> 1 sequence (head query) ...")
            for name in ("shares", "places", "entropy", "kept")
        }
        centre = None if self.centre is None else np.tile(self.centre, (heads, 1))
        return replace(self, **pooled, keys=np.tile(self.keys, (1, heads, 1)), centre=centre)

    def some(self, sequences: slice) -> AttentionRows:
        """Some of the sequences."""
        parts = {name: getattr(self, name)[:, sequences] for name in ("shares", "places", "entropy", "kept")}
        return replace(self, **parts, keys=self.keys[sequences])


@dataclass(frozen=True, kw_only=True)
class LawAttention:
    """A law at some parameters: log Z of every query, its attention by group, and the mean of its keys' columns."""

    totals: Float[np.ndarray, "head sequence query"]
    masses: Float[np.ndarray, "head sequence query group"]
    means: Float[np.ndarray, "head sequence query column"]


class Likelihood:
    """The likelihood of a law over rows of attention: columns are the design's, then the functions of the distance."""

    def __init__(self, rows: AttentionRows, design: Float[np.ndarray, "group column"]) -> None:
        self.rows, self.design = rows, design
        self.count = rows.keys.shape[0] * rows.keys.shape[1]
        self.observed = np.concatenate([rows.shares @ design, rows.places], axis=-1)  # mean columns
        self.bos = None  # the columns of BOS at each query
        self.candidates = design
        if rows.centre is not None:
            own = np.broadcast_to(design[-1], (len(rows.centre), design.shape[1]))
            self.bos, self.candidates = np.concatenate([own, rows.centre], axis=1), design[:-1]
        # Without a positional term one number is enough for the keys of a group, at whatever distance.
        self.terms = rows.basis if rows.basis.shape[1] else np.zeros((1, 0))
        self._counts = None
        if not self.terms.size:
            blocks = [keys.sum(axis=-1, keepdims=True) for _, keys in self._keys(1)]
            self._counts = np.concatenate(blocks)

    def _keys(self, heads: int) -> Iterator[tuple[slice, Float[np.ndarray, "sequence query group place"]]]:
        """Of some sequences at a time, the number of candidates of each group at each place."""
        if self._counts is not None:
            yield slice(None), self._counts
            return
        (sequences, queries, distances), groups = self.rows.keys.shape, np.arange(len(self.candidates))
        step = max(1, BLOCK_BYTES // (8 * queries * len(groups) * max(distances, heads * (1 + self.terms.shape[1]))))
        for start in range(0, sequences, step):
            part = slice(start, min(start + step, sequences))
            yield part, (self.rows.keys[part, :, None] == groups[:, None]).astype(np.float64)

    def _factors(self, theta: Array) -> tuple[Array, Array, Array, Array]:
        """Of the weight of a key: the factor of its group, that of its distance, the weight of BOS at each query, and
        the logarithm of the scale of all.
        """
        columns = self.design.shape[1]
        scores, places = theta[:, :columns] @ self.design.T, theta[:, columns:] @ self.terms.T
        top, highest = scores.max(axis=1, keepdims=True), places.max(axis=1, keepdims=True)
        by_group = np.exp(np.maximum(scores[:, : len(self.candidates)] - top, LEAST))
        by_place = np.exp(np.maximum(places - highest, LEAST))
        bos = np.zeros((len(theta), 1))
        if self.bos is not None:
            bos = np.exp(np.maximum(theta @ self.bos.T - top - highest, 2 * LEAST))
        return by_group, by_place, bos, top + highest

    def law(self, theta: Float[np.ndarray, "head column"]) -> LawAttention:
        """The law's attention at one parameter vector per head."""
        (groups, columns), kept = self.design.shape, self.rows.kept
        by_group, by_place, bos, top = self._factors(theta)
        ones = np.ones((len(self.terms), 1))  # the weights themselves, then their products with the functions
        moments = einops.einsum(by_place, np.hstack([ones, self.terms]), "h place, place term -> place h term")
        totals, masses = np.zeros(kept.shape), np.zeros((*kept.shape, groups))
        means = np.zeros((*kept.shape, theta.shape[1]))
        for part, keys in self._keys(len(theta)):
            made = np.tensordot(keys, moments, axes=1)  # [sequence, query, group, head, term]
            made *= by_group.T[..., None]
            whole = made[..., 0].sum(axis=2) + bos.T
            made /= whole[:, :, None, :, None]
            totals[:, part] = np.moveaxis(np.log(whole), -1, 0)
            masses[:, part, :, : made.shape[2]] = einops.rearrange(made[..., 0], "s q g h -> h s q g")
            means[:, part, :, columns:] = einops.reduce(made[..., 1:], "s q g h t -> h s q t", "sum")
        if self.bos is not None:
            masses[..., -1] = bos[:, None] * np.exp(-totals)
            means[..., columns:] += masses[..., -1:] * self.bos[:, columns:]
        means[..., :columns] = masses @ self.design
        totals += top[..., None]
        if not kept.all():
            totals = np.where(kept, totals, 0.0)
            masses, means = (np.where(kept[..., None], one, 0.0) for one in (masses, means))
        return LawAttention(totals=totals, masses=masses, means=means)

    def evaluate(self, theta: Float[np.ndarray, "head column"]) -> tuple[Array, Array, Array]:
        """The likelihood of each head, summed over queries; its gradient; and its information (minus the Hessian)."""
        law = self.law(theta)
        value = (self.observed.sum(axis=(1, 2)) * theta).sum(axis=1) - law.totals.sum(axis=(1, 2))
        return value, (self.observed - law.means).sum(axis=(1, 2)), self._information(theta, law)[:, 0]

    def logs(self, theta: Float[np.ndarray, "head column"]) -> Float[np.ndarray, "head sequence query"]:
        """sum_s p_s log law_s of every query: minus its cross-entropy."""
        return np.asarray(einops.einsum(self.observed, theta, "h s q c, h c -> h s q") - self.law(theta).totals)

    def pull(self, theta: Float[np.ndarray, "head column"]) -> Float[np.ndarray, "head sequence column"]:
        """The gradient, sequence by sequence."""
        return np.asarray((self.observed - self.law(theta).means).sum(axis=2))

    def information(self, theta: Float[np.ndarray, "head column"]) -> Float[np.ndarray, "head sequence column column"]:
        """The information of each sequence."""
        return self._information(theta, self.law(theta), by_sequence=True)

    def _information(self, theta: Array, law: LawAttention, *, by_sequence: bool = False) -> Array:
        by_group, by_place, _, top = self._factors(theta)
        scale = np.where(self.rows.kept, np.exp(top[..., None] - law.totals), 0.0)
        blocks = []
        for part, keys in self._keys(len(theta)):
            n = len(keys) if by_sequence else 1
            weights = einops.rearrange(scale[:, part], "h (n s) q -> n h (s q)", n=n)
            blocks.append(weights @ einops.rearrange(keys, "(n s) q g place -> n (s q) (g place)", n=n))
        joint = np.concatenate(blocks) if by_sequence else np.sum(blocks, axis=0)
        joint = joint.reshape(*joint.shape[:2], by_group.shape[1], -1)
        joint = einops.einsum(joint, by_group, by_place, "n h g place, h g, h place -> h n g place")
        cross = self.candidates.T @ joint @ self.terms
        own = (self.candidates.T * joint.sum(axis=-1)[..., None, :]) @ self.candidates
        placed = (self.terms.T * joint.sum(axis=-2)[..., None, :]) @ self.terms
        found = np.block([[own, cross], [np.swapaxes(cross, -1, -2), placed]])
        n = joint.shape[1]
        if self.bos is not None:
            mass = einops.reduce(law.masses[..., -1], "h (n s) q -> h n q", "sum", n=n)
            found += (self.bos.T * mass[..., None, :]) @ self.bos
        means = einops.rearrange(law.means, "h (n s) q c -> h n (s q) c", n=n)
        return np.asarray(found - np.swapaxes(means, -1, -2) @ means)


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
    pull, rows = likelihood.pull(found.theta), likelihood.rows
    heads, sequences, columns = pull.shape
    step = max(1, BLOCK_BYTES // (8 * heads * max(columns**2, rows.keys.shape[-1] * len(likelihood.design))))
    for start in range(0, sequences, step):
        block = slice(start, start + step)
        information = Likelihood(rows.some(block), likelihood.design).information(found.theta)
        pull[:, block] = leave_one_out(pull[:, block], information, found.inverse)
    # One sequence without which a parameter is not determined is enough for its error to be unknown.
    return np.asarray(np.where(np.isnan(pull).any(axis=1, keepdims=True), np.nan, pull))


def sum_by_group(groups: Int[np.ndarray, "row key"], weights: Array | None, size: int) -> Array:
    """Sum of the weights (or the number) of the keys of each group, row by row: [row, group]."""
    rows = len(groups)
    codes = groups + size * np.arange(rows)[:, None]
    flat = None if weights is None else weights.ravel()
    return np.bincount(codes.ravel(), weights=flat, minlength=rows * size).astype(np.float64).reshape(rows, size)
