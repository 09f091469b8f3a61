"""prop:transformer_estimator and its other forms: add-alpha, sub-n-grams, the mixture, Jelinek-Mercer, Katz.

Katz back-off is a hard limit (sec:interpretation). As all betas grow together the estimator becomes the plain average
over the candidates with the largest overlap. That is Katz's rule at k = 1, and wherever the full context has been seen.
Elsewhere non-contiguous matches make it differ: a match at lag 2 alone counts as much as one at lag 1. If beta_1 grows
faster than beta_2 this is corrected, but a match at lag 2 alone still counts more than no match, where Katz uses the
unigram. No beta gives Katz everywhere: e^{beta_2} would have to be infinite together with a match at lag 1, and 1
without it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
import torch

from analyses.studies.theorems.definitions import (
    SHAPES,
    Found,
    back_off,
    best_matches,
    cumulative_estimator,
    estimator,
    gap,
    matching_lags,
    patterns,
    samples,
    suffix_model,
)
from interp.circuit.runner import predict
from interp.estimators.counts import mask_counts
from interp.estimators.soft_matching import add_alpha, order_mixture, soft_matching, soft_matching_from_counts
from interp.hooked.construction import construct
from interp.notation import overlap

HARD = 60.0  # exp(-60) is far below every tolerance

Example: TypeAlias = tuple[tuple[int, ...], list[float], list[float]]  # tokens, the limit, Katz


def transformer_estimator(seed: int, batch: int) -> Found:
    """HookedTransformer = estimator = loop over positions; random betas and beta = 100, with and without BOS"""
    rng = np.random.default_rng([seed, 1])
    of_model, of_counts = [], []
    for (order, vocab), bos, hard in itertools.product(SHAPES, (False, True), (False, True)):
        tokens = samples(rng, order=order, vocab=vocab, batch=batch)
        beta = [100.0] * order if hard else rng.normal(1.0, 1.5, order).tolist()
        kappa = (sum(beta) * hard + float(rng.uniform(-3, 5))) if bos else None
        model = construct(order=order, vocab=vocab, length=tokens.shape[1], beta=beta, kappa=kappa)
        defined = [estimator(row, vocab=vocab, beta=beta, kappa=kappa) for row in tokens.tolist()]
        of_model.append(gap(predict(model, tokens), defined))
        of_counts.append(gap(soft_matching(tokens, vocab=vocab, beta=beta, kappa=kappa), defined))
    note = f"model {max(of_model):.0e}, counts {max(of_counts):.0e} from the loop"
    return Found(max(of_model + of_counts), len(of_model) * batch, note)


def add_constant(seed: int, batch: int) -> Found:
    """construction with kappa = k beta + ln(alpha |V|) against add-alpha at beta = 32"""
    rng = np.random.default_rng([seed, 2])
    betas = (2.0, 4.0, 8.0, 16.0, 32.0)
    errors: dict[float, list[float]] = {beta: [] for beta in betas}
    hooked = []
    for (order, vocab), alpha in itertools.product(SHAPES, (0.1, 1.0, 4.0)):
        tokens = samples(rng, order=order, vocab=vocab, batch=batch)
        target = add_alpha(tokens, order=order, vocab=vocab, alpha=alpha)
        for beta in betas:
            kappa = order * beta + math.log(alpha * vocab)
            law = soft_matching(tokens, vocab=vocab, beta=[beta] * order, kappa=kappa)
            errors[beta].append(gap(law, target))
        model = construct(order=order, vocab=vocab, length=tokens.shape[1], beta=[beta] * order, kappa=kappa)
        hooked.append(gap(predict(model, tokens), target))
    largest = [max(errors[beta]) for beta in betas]
    falling = all(high < low for low, high in itertools.pairwise(largest))
    return Found(
        max(largest[-1], *hooked),
        len(hooked) * batch,
        "largest error at beta "
        + ", ".join(f"{beta:g}: {error:.0e}" for beta, error in zip(betas, largest, strict=True)),
        {"the error falls with beta": falling},
    )


def sub_ngrams(seed: int, batch: int) -> Found:
    """estimator on N_M = sum of gamma^|M| K_M(m), normalised, beta from -1 to 5"""
    rng = np.random.default_rng([seed, 3])
    errors = []
    for order, vocab in SHAPES:
        for beta in (-1.0, 0.0, float(rng.uniform(0.2, 2)), 5.0):
            tokens = samples(rng, order=order, vocab=vocab, batch=batch)
            law = soft_matching(tokens, vocab=vocab, beta=[beta] * order)
            gamma = math.expm1(beta)
            rewritten = [cumulative_estimator(row, vocab=vocab, order=order, gamma=gamma) for row in tokens.tolist()]
            errors.append(gap(law, rewritten))
    return Found(max(errors), len(errors) * batch, "beta = 0 (0^0 = 1) is the unigram; beta < 0 is covered too")


def mixture(seed: int, batch: int) -> Found:
    """order, then pattern of that size, then its model: the mixture is the estimator, weights sum to 1"""
    rng = np.random.default_rng([seed, 4])
    errors, cases, lowest = [], 0, {True: 1.0, False: 1.0}
    for order, vocab in SHAPES:
        sizes = torch.tensor([overlap(mask) for mask in range(1 << order)])
        for beta in (-0.7, 0.0, float(rng.uniform(0.2, 3)), 30.0):
            tokens = samples(rng, order=order, vocab=vocab, batch=batch)
            parts = order_mixture(tokens, order=order, vocab=vocab, beta=beta)
            law = soft_matching(tokens, vocab=vocab, beta=[beta] * order)
            lowest[beta >= 0] = min(lowest[beta >= 0], float(parts.order_weights.min()))
            errors.append(gap(parts.order_weights.sum(-1), torch.ones(batch)))
            rebuilt = torch.zeros_like(law)
            for size in range(order + 1):
                of_size = sizes == size
                seen = ~torch.isnan(parts.order_models[:, size, 0])
                weights = parts.pattern_weights[:, of_size]
                models = torch.nan_to_num(parts.pattern_models[:, of_size], nan=0.0)
                model = torch.einsum("bm,bmv->bv", weights, models)
                # An order of which nothing was seen has weight zero, and no model.
                expected = torch.where(seen[:, None], parts.order_models[:, size], 0.0)
                errors += [float(parts.order_weights[~seen, size].abs().sum()), gap(weights.sum(-1), seen.double())]
                errors.append(gap(model, expected))
                rebuilt += parts.order_weights[:, size, None] * model
            errors += [gap(rebuilt, law), gap(parts.prediction(), law)]
            cases += batch
    return Found(
        max(errors),
        cases,
        f"a mixture only for beta >= 0: below it gamma < 0, and a weight of {lowest[False]:.2g} occurs",
        {"no weight is negative for beta >= 0": lowest[True] >= 0},
    )


def jelinek_mercer(seed: int, batch: int) -> Found:
    """k = 1: estimator = lambda_0 unigram + lambda_1 bigram, lambda of eq:transformer_mixture"""
    rng = np.random.default_rng([seed, 5])
    errors: dict[int, list[float]] = {1: [], 2: []}
    for order, vocab, beta in itertools.product((1, 2), (2, 3, 5, 8), (0.3, 1.5, 4.0)):
        tokens = samples(rng, order=order, vocab=vocab, batch=batch)
        law = soft_matching(tokens, vocab=vocab, beta=[beta] * order)
        weights = order_mixture(tokens, order=order, vocab=vocab, beta=beta).order_weights
        models = [
            [suffix_model(row, vocab=vocab, order=order, suffix=size) or [0.0] * vocab for size in range(order + 1)]
            for row in tokens.tolist()
        ]
        errors[order].append(gap(law, torch.einsum("bi,biv->bv", weights, torch.tensor(models, dtype=law.dtype))))
    return Found(
        max(errors[1]),
        len(errors[1]) * batch,
        "the unigram counts candidates only, so not the first token; at k = 2 the same weights on contiguous suffixes "
        f"are {max(errors[2]):.2g} off",
        {"contiguous suffixes do not suffice at k = 2": max(errors[2]) > 1e-2},
    )


def katz_where_covered(seed: int, batch: int) -> Found:
    """Katz = limit of equal betas, at k = 1 and wherever the full context was seen"""
    errors, backed_off = [], 0
    for row, law, matches, vocab in hard_cases(seed, 6, orders=(1, 2, 3), batch=batch):
        order = len(matches)
        if order > 1 and not matches[-1]:
            continue
        errors.append(gap(law, back_off(row, vocab=vocab, order=order)))
        backed_off += not matches[-1]
    note = f"{backed_off} of the cases back off to the unigram"
    return Found(max(errors), len(errors), note, {"some case backs off": backed_off > 0})


def hard_limit(seed: int, batch: int) -> Found:
    """limit of equal betas = average over the matches of largest overlap, contiguous or not"""
    errors, differ = [], 0
    for row, law, matches, vocab in hard_cases(seed, 7, orders=(1, 2, 3), batch=batch):
        order = len(matches)
        errors.append(gap(law, best_matches(row, vocab=vocab, weights=[1] * order)))
        differ += gap(law, back_off(row, vocab=vocab, order=order)) > 1e-6
    example = smallest_counterexample(weights=(1, 1), last_token_seen=True)
    return Found(
        max(errors),
        len(errors),
        f"not Katz in {differ} cases; {described(example)}",
        {"a counterexample to Katz exists": example is not None and differ > 0},
    )


def lexicographic_limit(seed: int, batch: int) -> Found:
    """k = 2, limit of beta_1 = 2 beta_2: Katz wherever the last token was seen before"""
    errors, backed_off = [], 0
    for row, law, matches, vocab in hard_cases(seed, 8, orders=(2,), batch=batch, first=2.0):
        if not matches[0]:
            continue
        errors.append(gap(law, back_off(row, vocab=vocab, order=2)))
        backed_off += not matches[-1]
    example = smallest_counterexample(weights=(2, 1), last_token_seen=False)
    closest = closest_to_back_off(length=7, vocab=3)
    return Found(
        max(errors),
        len(errors),
        f"elsewhere not: {described(example)}; over all sequences of 7 tokens and 3 symbols the best "
        f"(beta_1, beta_2) of a grid is still {closest:.2f} off",
        {
            "some case backs off": backed_off > 0,
            "a counterexample to Katz exists elsewhere": example is not None,
            "no beta is Katz everywhere": closest > 0.1,
        },
    )


def hard_cases(
    seed: int, stream: int, *, orders: Sequence[int], batch: int, first: float = 1.0
) -> Iterator[tuple[list[int], torch.Tensor, list[bool], int]]:
    """Random sequences, then every pattern of six tokens (in which backing off is frequent), with their hard laws.

    Beside them whether some candidate matches at lag 1, ..., at all lags up to k; and |V|. `first` multiplies beta_1.
    """
    rng = np.random.default_rng([seed, stream])
    for order, vocab in itertools.product(orders, (2, 3, 5)):
        beta = [first * HARD, *[HARD] * (order - 1)]
        drawn = samples(rng, order=order, vocab=vocab, batch=4 * batch).tolist()
        for rows in (drawn, [list(row) for row in patterns(length=6, vocab=vocab)]):
            for row, law in zip(rows, soft_matching(rows, vocab=vocab, beta=beta), strict=True):
                yield row, law, suffixes_seen(row, order=order), vocab


def suffixes_seen(row: Sequence[int], *, order: int) -> list[bool]:
    """Whether the last 1, ..., k tokens have a successor before."""
    found = [matching_lags(row, order=order, key=key) for key in range(order, len(row))]
    return [any(set(range(1, size + 1)) <= lags for lags in found) for size in range(1, order + 1)]


def smallest_counterexample(*, weights: tuple[int, int], last_token_seen: bool) -> Example | None:
    """The shortest sequence, most different first, whose hard limit is not Katz's law; k = 2.

    `last_token_seen`: whether the last token had a successor before, so that Katz backs off to lag 1, or not.
    """
    beta = [HARD * weight for weight in weights]
    for length in range(3, 9):
        found = []
        for row in patterns(length=length, vocab=3):
            if suffixes_seen(row, order=2)[0] != last_token_seen:
                continue
            law, katz = soft_matching([list(row)], vocab=3, beta=beta)[0], back_off(row, vocab=3, order=2)
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
    """The counterexample in words, laws to two decimals."""
    if example is None:
        return "no counterexample among short sequences"
    limit, katz = (", ".join(f"{round(share, 2):g}" for share in law) for law in example[1:])
    return f"after {' '.join(map(str, example[0]))} the limit is ({limit}), Katz ({katz})"
