"""prop:transformer_estimator and its other forms: add-alpha, sub-n-grams, the mixture, Jelinek-Mercer, Katz.

Katz back-off is a hard limit (sec:interpretation). As all betas grow together the estimator becomes the plain average
over the candidates with the largest overlap. That is Katz's rule at k = 1, and wherever the full context has been seen.
Elsewhere non-contiguous matches make it differ: a match at lag 2 alone counts as much as one at lag 1. No beta gives
Katz everywhere: e^{beta_2} would have to be infinite together with a match at lag 1, and 1 without it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
import torch

from analyses.studies.theorems.cases import (
    SHAPES,
    Found,
    back_off,
    best_matches,
    gap,
    patterns,
    samples,
    sizes,
    suffix_models,
)
from interp.circuit.runner import predict
from interp.estimators.counts import cumulative_counts
from interp.estimators.soft_matching import add_alpha, order_mixture, soft_matching
from interp.hooked.construction import construct

HARD = 60.0  # exp(-60) is far below every tolerance


def transformer_estimator(seed: int, batch: int) -> Found:
    """HookedTransformer = estimator of counts; random betas and beta = 100, with and without BOS"""
    rng = np.random.default_rng([seed, 1])
    errors = []
    for (order, vocab), bos, hard in itertools.product(SHAPES, (False, True), (False, True)):
        tokens = samples(rng, order=order, vocab=vocab, batch=batch)
        beta = [100.0] * order if hard else rng.normal(1.0, 1.5, order).tolist()
        kappa = (sum(beta) * hard + float(rng.uniform(-3, 5))) if bos else None
        model = construct(order=order, vocab=vocab, length=tokens.shape[1], beta=beta, kappa=kappa)
        errors.append(gap(predict(model, tokens), soft_matching(tokens, vocab=vocab, beta=beta, kappa=kappa)))
    return Found(max(errors), len(errors) * batch)


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
            counts = cumulative_counts(tokens, order=order, vocab=vocab).double()
            votes = torch.einsum("m,bmv->bv", math.expm1(beta) ** sizes(order).double(), counts)
            errors.append(gap(law, votes / votes.sum(-1, keepdim=True)))
    return Found(max(errors), len(errors) * batch, "beta = 0 (0^0 = 1) is the unigram; beta < 0 is covered too")


def mixture(seed: int, batch: int) -> Found:
    """order, then pattern of that size, then its model: the mixture is the estimator, weights sum to 1"""
    rng = np.random.default_rng([seed, 4])
    errors, cases, lowest = [], 0, {True: 1.0, False: 1.0}
    for order, vocab in SHAPES:
        for beta in (-0.7, 0.0, float(rng.uniform(0.2, 3)), 30.0):
            tokens = samples(rng, order=order, vocab=vocab, batch=batch)
            parts = order_mixture(tokens, order=order, vocab=vocab, beta=beta)
            law = soft_matching(tokens, vocab=vocab, beta=[beta] * order)
            lowest[beta >= 0] = min(lowest[beta >= 0], float(parts.order_weights.min()))
            errors.append(gap(parts.order_weights.sum(-1), torch.ones(batch)))
            rebuilt = torch.zeros_like(law)
            for size in range(order + 1):
                of_size = sizes(order) == size
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
        models = suffix_models(tokens, order=order, vocab=vocab)
        errors[order].append(gap(law, torch.einsum("bi,biv->bv", weights, models)))
    return Found(
        max(errors[1]),
        len(errors[1]) * batch,
        "the unigram counts candidates only, so not the first token; at k = 2 the same weights on contiguous suffixes "
        f"are {max(errors[2]):.2g} off",
        {"contiguous suffixes do not suffice at k = 2": max(errors[2]) > 1e-2},
    )


def katz_where_covered(seed: int, batch: int) -> Found:
    """Katz = limit of equal betas, at k = 1 and wherever the full context was seen"""
    errors, cases, backed_off = [], 0, 0
    for order, vocab, rows, law in hard_cases(seed, 6, batch=batch):
        seen = suffix_models(rows, order=order, vocab=vocab)[:, order].sum(-1) > 0
        covered = seen | (order == 1)
        errors.append(gap(law[covered], back_off(rows, order=order, vocab=vocab)[covered]))
        cases += int(covered.sum())
        backed_off += int((covered & ~seen).sum())
    note = f"{backed_off} of the cases back off to the unigram"
    return Found(max(errors), cases, note, {"some case backs off": backed_off > 0})


def hard_limit(seed: int, batch: int) -> Found:
    """limit of equal betas = average over the matches of largest overlap, contiguous or not"""
    errors, cases, differ = [], 0, 0
    for order, vocab, rows, law in hard_cases(seed, 7, batch=batch):
        errors.append(gap(law, best_matches(rows, order=order, vocab=vocab)))
        cases += len(rows)
        differ += int(((law - back_off(rows, order=order, vocab=vocab)).abs().amax(-1) > 1e-6).sum())
    return Found(max(errors), cases, f"not Katz in {differ} cases", {"somewhere it is not Katz": differ > 0})


def hard_cases(seed: int, stream: int, *, batch: int) -> Iterator[tuple[int, int, torch.Tensor, torch.Tensor]]:
    """k, |V|, random sequences or every pattern of six tokens (in which backing off is frequent), and their laws."""
    rng = np.random.default_rng([seed, stream])
    for order, vocab in SHAPES:
        drawn = samples(rng, order=order, vocab=vocab, batch=4 * batch)
        for rows in (drawn, torch.tensor(list(patterns(length=6, vocab=vocab)))):
            yield order, vocab, rows, soft_matching(rows, vocab=vocab, beta=[HARD] * order)
