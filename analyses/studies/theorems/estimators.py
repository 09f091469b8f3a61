"""prop:transformer_estimator and its other forms: add-alpha, sub-n-grams, the mixture, Jelinek-Mercer."""

from __future__ import annotations

import itertools
import math

import numpy as np
import torch

from analyses.studies.theorems.definitions import (
    SHAPES,
    cumulative_estimator,
    estimator,
    gap,
    samples,
    suffix_model,
)
from analyses.studies.theorems.result import Claim, judge
from interp.circuit.runner import predict
from interp.estimators.soft_matching import add_alpha, order_mixture, soft_matching
from interp.hooked.construction import construct
from interp.notation import overlap


def transformer_estimator(seed: int, batch: int) -> Claim:
    """The hooked construction, the estimator on counts, and a loop over positions give one law."""
    rng = np.random.default_rng([seed, 1])
    of_model, of_counts, cases = 0.0, 0.0, 0
    for order, vocab in SHAPES:
        for bos in (False, True):
            for hard in (False, True):
                tokens = samples(rng, order=order, vocab=vocab, batch=batch)
                beta = [100.0] * order if hard else rng.normal(1.0, 1.5, order).tolist()
                kappa = (sum(beta) * hard + float(rng.uniform(-3, 5))) if bos else None
                model = construct(order=order, vocab=vocab, length=tokens.shape[1], beta=beta, kappa=kappa)
                defined = [estimator(row, vocab=vocab, beta=beta, kappa=kappa) for row in tokens.tolist()]
                of_model = max(of_model, gap(predict(model, tokens), defined))
                counted = soft_matching(tokens, vocab=vocab, beta=beta, kappa=kappa)
                of_counts = max(of_counts, gap(counted, defined))
                cases += batch
    return judge(
        label="prop:transformer_estimator",
        claim="HookedTransformer = estimator = loop over positions; random betas and beta = 100, with and without BOS",
        cases=cases,
        error=max(of_model, of_counts),
        tolerance=1e-9,
        note=f"model {of_model:.0e}, counts {of_counts:.0e} from the loop",
    )


def add_constant(seed: int, batch: int) -> Claim:
    """prop:add_constant: with kappa = k beta + ln(alpha |V|) the error falls with beta, to add-alpha."""
    rng = np.random.default_rng([seed, 2])
    betas = (2.0, 4.0, 8.0, 16.0, 32.0)
    errors = dict.fromkeys(betas, 0.0)
    hooked, cases = 0.0, 0
    for order, vocab in SHAPES:
        for alpha in (0.1, 1.0, 4.0):
            tokens = samples(rng, order=order, vocab=vocab, batch=batch)
            target = add_alpha(tokens, order=order, vocab=vocab, alpha=alpha)
            for beta in betas:
                kappa = order * beta + math.log(alpha * vocab)
                law = soft_matching(tokens, vocab=vocab, beta=[beta] * order, kappa=kappa)
                errors[beta] = max(errors[beta], gap(law, target))
            model = construct(order=order, vocab=vocab, length=tokens.shape[1], beta=[beta] * order, kappa=kappa)
            hooked = max(hooked, gap(predict(model, tokens), target))
            cases += batch
    falling = all(errors[high] < errors[low] for low, high in itertools.pairwise(betas))
    return judge(
        label="prop:add_constant",
        claim="construction with kappa = k beta + ln(alpha |V|) against add-alpha at beta = 32",
        cases=cases,
        error=max(errors[betas[-1]], hooked),
        tolerance=1e-9,
        controls={"the error falls with beta": falling},
        note="largest error at beta " + ", ".join(f"{beta:g}: {error:.0e}" for beta, error in errors.items()),
    )


def sub_ngrams(seed: int, batch: int) -> Claim:
    """lemma:transformer_estimator: the same law from the cumulative counts with gamma = e^beta - 1."""
    rng = np.random.default_rng([seed, 3])
    error, cases = 0.0, 0
    for order, vocab in SHAPES:
        for beta in (-1.0, 0.0, float(rng.uniform(0.2, 2)), 5.0):
            tokens = samples(rng, order=order, vocab=vocab, batch=batch)
            law = soft_matching(tokens, vocab=vocab, beta=[beta] * order)
            gamma = math.expm1(beta)
            for row, predicted in zip(tokens.tolist(), law, strict=True):
                rewritten = cumulative_estimator(row, vocab=vocab, order=order, gamma=gamma)
                error = max(error, gap(predicted, rewritten))
                cases += 1
    return judge(
        label="lemma:transformer_estimator",
        claim="estimator on N_M = sum of gamma^|M| K_M(m), normalised, beta from -1 to 5",
        cases=cases,
        error=error,
        tolerance=1e-9,
        note="beta = 0 (0^0 = 1) is the unigram; beta < 0 is covered too",
    )


def mixture(seed: int, batch: int) -> Claim:
    """corollary:mixture: the weights sum to one, the models are laws, and the mixture is the estimator."""
    rng = np.random.default_rng([seed, 4])
    error, cases, lowest = 0.0, 0, {True: 1.0, False: 1.0}
    for order, vocab in SHAPES:
        sizes = torch.tensor([overlap(mask) for mask in range(1 << order)])
        for beta in (-0.7, 0.0, float(rng.uniform(0.2, 3)), 30.0):
            tokens = samples(rng, order=order, vocab=vocab, batch=batch)
            parts = order_mixture(tokens, order=order, vocab=vocab, beta=beta)
            law = soft_matching(tokens, vocab=vocab, beta=[beta] * order)
            lowest[beta >= 0] = min(lowest[beta >= 0], float(parts.order_weights.min()))
            error = max(error, gap(parts.order_weights.sum(-1), torch.ones(batch)))
            rebuilt = torch.zeros_like(law)
            for size in range(order + 1):
                of_size = sizes == size
                seen = ~torch.isnan(parts.order_models[:, size, 0])
                weights = parts.pattern_weights[:, of_size]
                # An order of which nothing was seen has weight zero, and no model.
                error = max(error, float(parts.order_weights[~seen, size].abs().sum()))
                error = max(error, gap(weights.sum(-1), seen.double()))
                models = torch.nan_to_num(parts.pattern_models[:, of_size], nan=0.0)
                model = torch.einsum("bm,bmv->bv", weights, models)
                error = max(error, gap(model[seen], parts.order_models[seen, size]) if seen.any() else 0.0)
                rebuilt += parts.order_weights[:, size, None] * model
            error = max(error, gap(rebuilt, law), gap(parts.prediction(), law))
            cases += batch
    return judge(
        label="corollary:mixture",
        claim="order, then pattern of that size, then its model: the mixture is the estimator, weights sum to 1",
        cases=cases,
        error=error,
        tolerance=1e-9,
        controls={"no weight is negative for beta >= 0": lowest[True] >= 0},
        note=f"a mixture only for beta >= 0: below it gamma < 0, and a weight of {lowest[False]:.2g} occurs",
    )


def jelinek_mercer(seed: int, batch: int) -> Claim:
    """eq:jelinek_mercer at k = 1: the bigram-unigram interpolation, with weights of each sequence's own."""
    rng = np.random.default_rng([seed, 5])
    errors = {1: 0.0, 2: 0.0}
    cases = 0
    for order in (1, 2):
        for vocab in (2, 3, 5, 8):
            for beta in (0.3, 1.5, 4.0):
                tokens = samples(rng, order=order, vocab=vocab, batch=batch)
                law = soft_matching(tokens, vocab=vocab, beta=[beta] * order)
                weights = order_mixture(tokens, order=order, vocab=vocab, beta=beta).order_weights
                for row, own, predicted in zip(tokens.tolist(), weights.tolist(), law, strict=True):
                    mixed = [0.0] * vocab
                    for suffix, weight in enumerate(own):
                        model = suffix_model(row, vocab=vocab, order=order, suffix=suffix) or [0.0] * vocab
                        mixed = [total + weight * share for total, share in zip(mixed, model, strict=True)]
                    errors[order] = max(errors[order], gap(predicted, mixed))
                    cases += order == 1
    return judge(
        label="eq:jelinek_mercer",
        claim="k = 1: estimator = lambda_0 unigram + lambda_1 bigram, lambda of eq:transformer_mixture",
        cases=cases,
        error=errors[1],
        tolerance=1e-9,
        controls={"contiguous suffixes do not suffice at k = 2": errors[2] > 1e-2},
        note="the unigram counts candidates only, so not the first token; at k = 2 the same weights on "
        f"contiguous suffixes are {errors[2]:.2g} off",
    )
