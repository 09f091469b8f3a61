"""Katz back-off as the hard limit (sec:interpretation): where the paper's argument covers it, and where not.

As all betas grow together the estimator becomes the plain average over the candidates with the largest overlap. That is
Katz's rule at k = 1, and wherever the full context has been seen. Elsewhere non-contiguous matches make it differ: a
match at lag 2 alone counts as much as one at lag 1. If beta_1 grows faster than beta_2 this is corrected, but a match
at lag 2 alone still counts more than no match, where Katz uses the unigram. No beta gives Katz everywhere: e^{beta_2}
would have to be infinite together with a match at lag 1, and 1 without it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
import torch

from analyses.studies.theorems.definitions import back_off, best_matches, gap, matching_lags, patterns, samples
from analyses.studies.theorems.result import Claim, judge
from interp.estimators.counts import mask_counts
from interp.estimators.soft_matching import soft_matching, soft_matching_from_counts

HARD = 60.0  # exp(-60) is far below every tolerance
LABEL = "sec:interpretation"

Example: TypeAlias = tuple[tuple[int, ...], list[float], list[float]]  # tokens, the limit, Katz


def katz_where_covered(seed: int, batch: int) -> Claim:
    """Hard attention is Katz's selection at k = 1 always, and at k = 2, 3 where the full context was seen."""
    rng = np.random.default_rng([seed, 6])
    error, cases, backed_off = 0.0, 0, 0
    for order, vocab in itertools.product((1, 2, 3), (2, 3, 5)):
        for row, predicted in hard_cases(rng, beta=[HARD] * order, vocab=vocab, batch=batch):
            seen = any(len(matching_lags(row, order=order, key=key)) == order for key in range(order, len(row)))
            if order > 1 and not seen:
                continue
            error = max(error, gap(predicted, back_off(row, vocab=vocab, order=order)))
            cases += 1
            backed_off += not seen
    return judge(
        label=LABEL,
        claim="Katz = limit of equal betas, at k = 1 and wherever the full context was seen",
        cases=cases,
        error=error,
        tolerance=1e-9,
        controls={"some case backs off": backed_off > 0},
        note=f"{backed_off} of the cases back off to the unigram",
    )


def hard_limit(seed: int, batch: int) -> Claim:
    """In general the limit of equal betas is the average over the matches of largest overlap: not always Katz."""
    rng = np.random.default_rng([seed, 7])
    error, cases, differ = 0.0, 0, 0
    for order, vocab in itertools.product((1, 2, 3), (2, 3, 5)):
        for row, predicted in hard_cases(rng, beta=[HARD] * order, vocab=vocab, batch=batch):
            error = max(error, gap(predicted, best_matches(row, vocab=vocab, weights=[1] * order)))
            differ += gap(predicted, back_off(row, vocab=vocab, order=order)) > 1e-6
            cases += 1
    example = smallest_counterexample(weights=(1, 1), last_token_seen=True)
    return judge(
        label=LABEL,
        claim="limit of equal betas = average over the matches of largest overlap, contiguous or not",
        cases=cases,
        error=error,
        tolerance=1e-9,
        controls={"a counterexample to Katz exists": example is not None and differ > 0},
        note=f"not Katz in {differ} cases; {described(example)}",
    )


def lexicographic_limit(seed: int, batch: int) -> Claim:
    """With beta_1 growing faster than beta_2, k = 2 is Katz wherever the last token was seen before."""
    rng = np.random.default_rng([seed, 8])
    order, weights = 2, (2, 1)
    error, cases, backed_off = 0.0, 0, 0
    for vocab in (2, 3, 5):
        beta = [HARD * weight for weight in weights]
        for row, predicted in hard_cases(rng, beta=beta, vocab=vocab, batch=batch):
            matches = [matching_lags(row, order=order, key=key) for key in range(order, len(row))]
            if not any(1 in match for match in matches):
                continue
            error = max(error, gap(predicted, back_off(row, vocab=vocab, order=order)))
            cases += 1
            backed_off += not any(len(match) == order for match in matches)
    example = smallest_counterexample(weights=weights, last_token_seen=False)
    closest = closest_to_back_off(length=7, vocab=3)
    return judge(
        label=LABEL,
        claim="k = 2, limit of beta_1 = 2 beta_2: Katz wherever the last token was seen before",
        cases=cases,
        error=error,
        tolerance=1e-9,
        controls={
            "some case backs off": backed_off > 0,
            "a counterexample to Katz exists elsewhere": example is not None,
            "no beta is Katz everywhere": closest > 0.1,
        },
        note=f"elsewhere not: {described(example)}; over all sequences of 7 tokens and 3 symbols the best "
        f"(beta_1, beta_2) of a grid is still {closest:.2f} off",
    )


def hard_cases(
    rng: np.random.Generator, *, beta: list[float], vocab: int, batch: int
) -> Iterator[tuple[list[int], torch.Tensor]]:
    """Random sequences, then every pattern of six tokens (in which backing off is frequent), with their laws."""
    order = len(beta)
    drawn = samples(rng, order=order, vocab=vocab, batch=4 * batch).tolist()
    every = [list(row) for row in patterns(length=6, vocab=vocab)]
    for rows in (drawn, every):
        yield from zip(rows, soft_matching(rows, vocab=vocab, beta=beta), strict=True)


def smallest_counterexample(*, weights: tuple[int, int], last_token_seen: bool) -> Example | None:
    """The shortest sequence, most different first, whose hard limit is not Katz's law; k = 2.

    `last_token_seen`: whether the last token had a successor before, so that Katz backs off to lag 1, or not.
    """
    order, vocab = 2, 3
    for length in range(3, 9):
        found = []
        for row in patterns(length=length, vocab=vocab):
            keys = range(order, length)
            if any(1 in matching_lags(row, order=order, key=key) for key in keys) != last_token_seen:
                continue
            law = soft_matching([list(row)], vocab=vocab, beta=[HARD * weight for weight in weights])[0]
            katz = back_off(row, vocab=vocab, order=order)
            if (distance := gap(law, katz)) > 1e-6:
                found.append((-distance, row, law.tolist(), katz))
        if found:
            _, row, limit, katz = min(found)
            return row, limit, katz
    return None


def closest_to_back_off(*, length: int, vocab: int) -> float:
    """k = 2: over all sequences, the worst distance from Katz; over a grid of betas, the best such beta's."""
    rows = list(itertools.product(range(vocab), repeat=length))
    katz = torch.tensor([back_off(row, vocab=vocab, order=2) for row in rows], dtype=torch.float64)
    counts = mask_counts([list(row) for row in rows], order=2, vocab=vocab)
    grid = [-4.0, -1.0, 0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 8.0, 16.0, HARD]
    return min(
        gap(soft_matching_from_counts(counts, beta=torch.tensor(pair, dtype=torch.float64)), katz)
        for pair in itertools.product([*grid, 2 * HARD], grid)
    )


def described(example: Example | None) -> str:
    """The counterexample in words."""
    if example is None:
        return "no counterexample among short sequences"
    row, limit, katz = example
    tokens = " ".join(map(str, row))
    return f"after {tokens} the limit is {shares(limit)}, Katz {shares(katz)}"


def shares(law: list[float]) -> str:
    """The law to two decimals."""
    return "(" + ", ".join(f"{round(share, 2):g}" for share in law) + ")"
