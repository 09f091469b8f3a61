"""Label symmetry of the two priors (eq:label_symmetry): exact on short sequences, and true of what is sampled."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from analyses.studies.theorems.result import Claim, judge
from interp.chains.priors import HierarchicalDirichlet, IndependentDirichlet, Prior

# order, vocab, length of sequences that can be enumerated
ENUMERATED = [(1, 3, 5), (2, 3, 5), (3, 2, 7)]
SAMPLED = 20_000


def independent_prior(seed: int, batch: int) -> Claim:
    """eq:label_symmetry for the independent Dirichlet prior."""
    priors: list[Prior] = [IndependentDirichlet(order=order, vocab=vocab, alpha=0.7) for order, vocab, _ in ENUMERATED]
    return prior_symmetry(priors, name="independent", seed=seed)


def hierarchical_prior(seed: int, batch: int) -> Claim:
    """eq:label_symmetry for the hierarchical Dirichlet prior."""
    priors: list[Prior] = [
        HierarchicalDirichlet(order=order, vocab=vocab, eta=(2.0,) * order, eta0=0.8) for order, vocab, _ in ENUMERATED
    ]
    return prior_symmetry(priors, name="hierarchical", seed=seed)


def prior_symmetry(priors: Sequence[Prior], *, name: str, seed: int) -> Claim:
    """P(x) = P(sigma x) for every short sequence and relabeling, where P is also what both samplers draw.

    P is exact: a sum over all seatings of the urn. That both samplers draw from it is a chi-square test.
    """
    error, cases, worst, mass = 0.0, 0, 0.0, 0.0
    for prior, (_, vocab, length) in zip(priors, ENUMERATED, strict=True):
        rows = list(itertools.product(range(vocab), repeat=length))
        law = {row: sequence_probability(row, prior) for row in rows}
        mass = max(mass, abs(sum(law.values()) - 1))
        for relabelling in itertools.permutations(range(vocab)):
            for row in rows:
                image = tuple(relabelling[token] for token in row)
                error = max(error, abs(law[image] / law[row] - 1))
                cases += 1
        for method in ("explicit", "collapsed"):
            drawn = prior.sample(batch=SAMPLED, length=length, seed=seed, method=method).tokens.tolist()
            worst = max(worst, chi_square(drawn, law))
    return judge(
        label="eq:label_symmetry",
        claim=f"{name} prior: P(x) = P(sigma x), exact by summing the urn's seatings (relative error)",
        cases=cases,
        error=error,
        tolerance=1e-9,
        controls={"probabilities sum to 1": mass < 1e-9, "both samplers draw from this law": worst < 6},
        note=f"all sequences and relabelings for k = 1, 2, 3; {SAMPLED} draws of both samplers: chi-square at most "
        f"{worst:.1f} sigma above its mean",
    )


def sequence_probability(row: Sequence[int], prior: Prior) -> float:
    """P(x) under a prior, exactly: each token repeats an earlier customer at some depth, or is a fresh uniform draw."""
    order, vocab = prior.order, prior.vocab
    concentrations = prior.concentrations()
    top = order if prior.independent else 0
    customers: dict[tuple[int, ...], list[int]] = {}

    def after(position: int) -> float:
        if position == len(row):
            return 1.0
        token = row[position]
        suffixes = [tuple(row[position - depth : position]) for depth in range(order + 1)]
        total, reach = 0.0, 1.0
        for depth in range(order, top - 2, -1):
            if depth >= top:
                seats = customers.get(suffixes[depth], [0] * vocab)
                room = sum(seats) + concentrations[depth]
                chance, reach = reach * seats[token] / room, reach * concentrations[depth] / room
            else:
                chance = reach / vocab
            if chance > 0:
                seated = suffixes[max(depth, top) :]
                for suffix in seated:
                    customers.setdefault(suffix, [0] * vocab)[token] += 1
                total += chance * after(position + 1)
                for suffix in seated:
                    customers[suffix][token] -= 1
        return total

    return vocab**-order * after(order)


def chi_square(drawn: Sequence[Sequence[int]], law: dict[tuple[int, ...], float]) -> float:
    """How many standard deviations Pearson's statistic lies above its mean; rare sequences are pooled."""
    tally = dict.fromkeys(law, 0)
    for row in drawn:
        tally[tuple(row)] += 1
    rare = [row for row in law if len(drawn) * law[row] < 5]
    cells = [(tally[row], len(drawn) * law[row]) for row in law if len(drawn) * law[row] >= 5]
    if rare:
        cells.append((sum(tally[row] for row in rare), len(drawn) * sum(law[row] for row in rare)))
    statistic = sum((seen - expected) ** 2 / expected for seen, expected in cells)
    freedom = len(cells) - 1
    return (statistic - freedom) / math.sqrt(2 * freedom)
