"""Samples from a prior, reduced to counts; the population loss of soft matching on them, with its derivatives.

    sample = draw_population(prior, length=64, order=2, draws=10_000, seed=0)
    sample.counts, sample.targets

Soft matching reads a sequence only through its mask counts N_M(m), so these are all that is kept of the tokens.

Sequences come in families. The members of a family share all but their last tokens, as many as the prior's order, so
that each has its own last context. A member is one exact draw from the prior; members of one family are dependent, so
standard errors take the family for the unit. A family costs T steps for its stem and k steps for each member. So eight
members cost little more than one sequence, and give about as much information as four to seven independent ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import einops
import numpy as np
from jaxtyping import Float, Int32
from numpy.typing import NDArray
from scipy.special import digamma

from interp.arguments import fits_memory
from interp.chains.priors import Prior
from interp.chains.trie import trie_bytes
from interp.chains.urn import Urn, base_law, draw_chain, draw_dirichlet_row, draw_token, new_urn, walk_to_context
from interp.estimators.counts import mask_between
from interp.notation import mask_bits
from interp.source import njit

Array: TypeAlias = NDArray[Any]

FAMILY = 8  # members of a family at most; never more than there are contexts
CHUNK = 1024  # families sampled at once; fixed, so that a seed gives the same sequences whatever the memory
LEAST_SCORE = -600.0  # a vote this far below the largest weighs e^-600 and does not underflow


@dataclass(frozen=True, kw_only=True)
class Population:
    """Sequences from a prior, reduced to what the loss needs. Rows of one family are adjacent.

    counts     N_M(m) of each sequence
    targets    the expected law of the next token given the tokens and their seating in the urn: as the target of the
               cross-entropy it has the same expected derivatives as the true law, and less noise
    laws       its expected law given, besides, the law of the context's suffix, which is drawn
    entropies  the expected entropy of its law, given the same. So E[KL(truth || q)] = -entropy - sum(law ln q), with
               the last of the draws integrated out
    family     rows per family
    """

    counts: Int32[np.ndarray, "draw mask vocab"]
    targets: Float[np.ndarray, "draw vocab"]
    laws: Float[np.ndarray, "draw vocab"]
    entropies: Float[np.ndarray, " draw"]
    family: int

    @property
    def families(self) -> int:
        """How many independent families there are."""
        return len(self.laws) // self.family

    def part(self, families: int) -> Population:
        """The first families alone."""
        rows = slice(families * self.family)
        names = ("counts", "targets", "laws", "entropies")
        return replace(self, **{name: getattr(self, name)[rows] for name in names})

    def sharpened(self, lags: tuple[int, ...]) -> Population:
        """The limit beta -> infinity at these lags (0-based): only masks that contain them, without these lags."""
        if not lags:
            return self
        required = sum(1 << lag for lag in lags)
        # Masks in ascending order stay in ascending order when the required bits, set in all of them, are removed.
        kept = [mask for mask in range(self.counts.shape[1]) if mask & required == required]
        return replace(self, counts=np.ascontiguousarray(self.counts[:, kept]))


def draw_population(prior: Prior, *, length: int, order: int, draws: int, seed: int) -> Population:
    """At least `draws` sequences, in whole families; `order` is that of the estimator that will read them."""
    if length <= max(order, prior.order):
        raise ValueError(f"length must exceed the order: length {length}, order {max(order, prior.order)}")
    family = min(FAMILY, prior.vocab**prior.order)
    families = -(-draws // family)
    fits_memory(4 * families * family * (prior.vocab << order), what="counts for every mask", instead="use fewer draws")
    fits_memory(trie_bytes(length, prior.order, prior.vocab), what="the contexts of one sequence")
    counts = np.zeros((families * family, 1 << order, prior.vocab), dtype=np.int32)
    targets, shapes = np.empty((2, families * family, prior.vocab))
    concentrations = prior.seating()
    tail = min(prior.order, length - prior.order)
    starts = range(0, families, CHUNK)
    seeds = np.random.SeedSequence(seed).generate_state(len(starts))
    for start, chunk_seed in zip(starts, seeds, strict=True):
        stop = min(start + CHUNK, families)
        rows = slice(start * family, stop * family)
        rng = np.random.default_rng(int(chunk_seed))
        uniforms = rng.random((stop - start, length - tail))
        # A lattice, shifted at random: each member's point is uniform in the cube, and together they spread evenly.
        ends = (rng.random((stop - start, 1, tail)) + np.arange(family)[:, None] * _lattice(tail)) % 1.0
        customers = np.empty((rows.stop - rows.start, prior.order + 1, prior.vocab), dtype=np.int32)
        _draw_families(uniforms, ends, concentrations, prior.independent, counts[rows], customers)
        _seat_laws(customers, concentrations, prior.independent, rng, targets[rows], shapes[rows])
    totals = shapes.sum(1, keepdims=True)
    laws = shapes / totals
    return Population(
        counts=counts,
        targets=targets,
        laws=laws,
        entropies=-(laws * (digamma(shapes + 1.0) - digamma(totals + 1.0))).sum(1),
        family=family,
    )


def _lattice(dimensions: int) -> Float[np.ndarray, " dimension"]:
    """Steps of an additive recurrence: powers of 1/g, where g > 1 solves g^(d+1) = g + 1."""
    g = 2.0
    for _ in range(60):
        g = (1.0 + g) ** (1.0 / (dimensions + 1))
    return g ** -np.arange(1.0, dimensions + 1)


@njit()
def _seat_laws(
    customers: Array, concentrations: Array, independent: bool, rng: np.random.Generator, targets: Array, shapes: Array
) -> None:
    """From the customers along each last context's path: the mean law, and the last law's shapes under drawn suffixes.

    Given the customers, a law is Dirichlet around its suffix's law. All but the last are drawn.
    """
    vocab = targets.shape[1]
    order = customers.shape[1] - 1
    law = np.empty(vocab)
    for b in range(targets.shape[0]):
        base_law(law, order, vocab, concentrations)
        targets[b] = law
        for depth in range(order if independent else 0, order + 1):
            total = concentrations[depth] + customers[b, depth].sum()
            for m in range(vocab):
                targets[b, m] = (concentrations[depth] * targets[b, m] + customers[b, depth, m]) / total
                shapes[b, m] = concentrations[depth] * law[m] + customers[b, depth, m]
            if depth < order:
                draw_dirichlet_row(shapes[b], law, rng)


@njit(error_model="numpy")
def _draw_families(
    uniforms: Array, ends: Array, concentrations: Array, independent: bool, counts: Array, path_customers: Array
) -> None:
    """Draw each family's stem, then its members one after the other, each from the urn as the stem left it.

    The stem's part of the counts comes from a table of its contexts where that is smaller than the stem, and
    otherwise from the stem's positions.
    """
    order, vocab = path_customers.shape[1] - 1, path_customers.shape[2]
    masked = 0  # the order of the masks that are counted
    while 1 << masked < counts.shape[1]:
        masked += 1
    families, stem = uniforms.shape
    family, tail = ends.shape[1], ends.shape[2]
    length = stem + tail
    urn = new_urn(length, order, vocab)
    children, customers, totals, path = urn
    tokens = np.empty(length, dtype=np.int64)
    before = np.empty(order + 1, dtype=np.int64)
    undo = np.empty((tail * (order + 1), 2), dtype=np.int64)
    grown = np.empty((tail + 1, 2), dtype=np.int64)
    contexts = vocab**masked
    tabled = contexts <= stem
    table = np.empty((contexts if tabled else 1, vocab), dtype=np.int64)
    for f in range(families):
        draw_chain(uniforms[f], tokens[:stem], order, vocab, concentrations, independent, urn)
        if tabled:
            _tabulate(tokens, stem, masked, vocab, table)
        for member in range(family):
            row = f * family + member
            nodes = path[order + 1]
            undone = 0
            sprouts = 0
            for j in range(tail + 1):
                sprouts = _walk(tokens, stem + j, order, vocab, urn, grown, sprouts)
                if j == tail:
                    break
                for depth in range(order + 1):
                    before[depth] = totals[path[depth]]
                token = draw_token(ends[f, member, j], order, vocab, concentrations, independent, urn)
                tokens[stem + j] = token
                for depth in range(order + 1):
                    if totals[path[depth]] > before[depth]:
                        undo[undone, 0] = path[depth]
                        undo[undone, 1] = token
                        undone += 1
            for depth in range(order + 1):
                for m in range(vocab):
                    path_customers[row, depth, m] = customers[path[depth], m]
            if tabled:
                _count_table(tokens, masked, vocab, table, counts[row])
            for key in range(stem if tabled else masked, length):
                counts[row, mask_between(tokens, masked, length - 1, key), tokens[key]] += 1
            for i in range(undone):
                customers[undo[i, 0], undo[i, 1]] -= 1
                totals[undo[i, 0]] -= 1
            for i in range(sprouts):
                children[grown[i, 0], grown[i, 1]] = -1
            path[order + 1] = nodes


@njit(error_model="numpy")
def _walk(tokens: Array, position: int, order: int, vocab: int, urn: Urn, grown: Array, sprouts: int) -> int:
    """Walk to the context before `position` and record where a new branch began; returns how many did."""
    path = urn[3]
    nodes = path[order + 1]
    walk_to_context(tokens, position, order, vocab, urn)
    opened = path[order + 1] - nodes
    if opened:
        grown[sprouts, 0] = path[order - opened]
        grown[sprouts, 1] = tokens[position - 1 - (order - opened)]
        sprouts += 1
    return sprouts


@njit(error_model="numpy")
def _tabulate(tokens: Array, stem: int, order: int, vocab: int, table: Array) -> None:
    """How often each symbol followed each context in the stem; the code has lag 1 in the lowest digit."""
    contexts = table.shape[0]
    table[:] = 0
    code = 0
    for t in range(stem):
        if t >= order:
            table[code, tokens[t]] += 1
        code = (code * vocab + tokens[t]) % contexts


@njit(error_model="numpy")
def _count_table(tokens: Array, order: int, vocab: int, table: Array, counts: Array) -> None:
    """Add the table to the counts, each context under its mask with the query's.

    Codes that differ in one digit are neighbours, so the mask is changed lag by lag as the code is counted up.
    """
    last = tokens.shape[0] - 1
    digits = np.zeros(order, dtype=np.int64)
    mask = 0
    for lag in range(order):
        if tokens[last - lag] == 0:
            mask |= 1 << lag
    for code in range(table.shape[0]):
        for m in range(vocab):
            counts[mask, m] += table[code, m]
        lag = 0
        while lag < order:
            digits[lag] += 1
            if digits[lag] == vocab:
                digits[lag] = 0
            mask &= ~(1 << lag)
            if tokens[last - lag] == digits[lag]:
                mask |= 1 << lag
            if digits[lag] != 0:
                break
            lag += 1


@dataclass(frozen=True, kw_only=True)
class Loss:
    """The mean cross-entropy at one point, with its exact derivatives in (beta, kappa).

    losses, gradients  per family: [family], [family, parameter]; empty where they were not asked for
    """

    value: float
    gradient: Float[np.ndarray, " parameter"]
    hessian: Float[np.ndarray, "parameter parameter"]
    losses: Float[np.ndarray, " family"]
    gradients: Float[np.ndarray, "family parameter"]


def population_loss(sample: Population, theta: Array, *, bos: bool) -> Loss:
    """Cross-entropy of soft matching on the sample; theta lists beta per lag, then kappa where there is BOS."""
    parameters = theta.size
    losses, gradients = np.zeros(sample.families), np.zeros((sample.families, parameters))
    hessian = np.zeros((parameters, parameters))
    order = parameters - bos
    scores = mask_bits(order) @ theta[:order]
    top = max(scores.max(), theta[-1]) if bos else scores.max()
    weights = np.exp(np.maximum(scores - top, LEAST_SCORE))
    pseudo = math.exp(max(theta[-1] - top, LEAST_SCORE)) if bos else 0.0
    _accumulate(sample.counts, sample.targets, sample.family, weights, pseudo, order, losses, gradients, hessian)
    upper = np.triu_indices(parameters, 1)
    hessian[upper] = hessian.T[upper]
    return Loss(
        value=float(losses.mean()),
        gradient=gradients.mean(0),
        hessian=hessian / len(sample.targets),
        losses=losses,
        gradients=gradients,
    )


@njit(error_model="numpy", fastmath={"contract", "reassoc", "nsz"})
def _accumulate(
    counts: Array,
    targets: Array,
    family: int,
    weights: Array,
    pseudo: float,
    order: int,
    losses: Array,
    gradients: Array,
    hessian: Array,
) -> None:
    """Losses and gradients as means over each family, and the lower triangle of the sum of the Hessians.

    The score of a vote is a sum over the lags in its mask, so that the derivatives of ln p(m) need only the votes for
    m whose mask holds one given lag, S_p(m), or two, S_pq(m): all of them come from one superset sum of the weighted
    counts. d ln p(m) = S_p(m) / S(m) - S_p / S, and the second derivative is a covariance, S_pq / S - S_p S_q / S^2,
    of the votes for m less that of all votes. BOS is one more vote, for every symbol alike, with a lag of its own.

    Long because it is one compiled pass over the counts: two functions would have to exchange partial sums.
    """
    n, masks, vocab = counts.shape
    parameters = hessian.shape[0]
    bos = parameters > order
    votes = np.empty(masks)
    totals = np.empty(masks)
    first = np.empty(parameters)
    ratio = np.empty(parameters)
    for b in range(n):
        f = b // family
        totals[:] = 0.0
        first[:] = 0.0
        known = 0.0
        loss = 0.0
        for m in range(vocab):
            for mask in range(masks):
                votes[mask] = weights[mask] * counts[b, mask, m]
            for lag in range(order):
                bit = 1 << lag
                for mask in range(masks):
                    if not mask & bit:
                        votes[mask] += votes[mask | bit]
            for mask in range(masks):
                totals[mask] += votes[mask]
            here = votes[0] + pseudo / vocab
            if here == 0.0:
                continue  # nothing depends on the parameters here
            law = targets[b, m]
            known += law
            loss -= law * np.log(here)
            for p in range(order):
                ratio[p] = votes[1 << p] / here
            if bos:
                ratio[order] = pseudo / vocab / here
            for p in range(parameters):
                first[p] += law * ratio[p]
                for q in range(p):
                    pair = votes[1 << p | 1 << q] / here if p < order else 0.0
                    hessian[p, q] -= law * (pair - ratio[p] * ratio[q])
                hessian[p, p] -= law * ratio[p] * (1.0 - ratio[p])
        total = totals[0] + pseudo
        if total == 0.0:
            continue
        losses[f] += (loss + known * np.log(total)) / family
        for p in range(order):
            ratio[p] = totals[1 << p] / total
        if bos:
            ratio[order] = pseudo / total
        for p in range(parameters):
            gradients[f, p] += (known * ratio[p] - first[p]) / family
            for q in range(p):
                pair = totals[1 << p | 1 << q] / total if p < order else 0.0
                hessian[p, q] += known * (pair - ratio[p] * ratio[q])
            hessian[p, p] += known * ratio[p] * (1.0 - ratio[p])


def pooled(values: Float[np.ndarray, " draw"], *, family: int) -> Float[np.ndarray, " family"]:
    """The mean over each family, the unit of standard errors."""
    return einops.reduce(values, "(family member) -> family", "mean", member=family)
