"""lemma:optimal_beta: the beta at which partial matches act like add-alpha, by three methods."""

from __future__ import annotations

import itertools
import math

import torch

from analyses.studies.theorems.result import Claim, judge
from interp.chains.priors import IndependentDirichlet
from interp.estimators.counts import cumulative_counts
from interp.estimators.soft_matching import beta_for_add_alpha
from interp.notation import overlap
from interp.results import mean_stderr

LABEL = "lemma:optimal_beta"
SETTINGS = [
    (1, 5, 64, 1.0),
    (2, 5, 64, 1.0),
    (2, 3, 32, 0.5),
    (3, 3, 128, 1.0),
]  # order, vocab, length, alpha


def closed_form(seed: int, batch: int) -> Claim:
    """The closed form solves eq:sufficient_condition_higher once eq:approx_expectation is put in."""
    error, cases = 0.0, 0
    for order, vocab, length, alpha in itertools.product((1, 2, 3), (2, 3, 5, 9), (8, 64, 1024), (0.1, 1.0, 5.0)):
        gamma = math.expm1(beta_for_add_alpha(length=length, order=order, vocab=vocab, alpha=alpha))
        candidates = length - order - 1
        left = gamma**-order * candidates * (gamma / vocab + 1) ** order
        right = candidates / vocab**order + alpha * vocab
        error = max(error, abs(left / right - 1))
        if order == 1:
            error = max(error, abs(gamma / (candidates / (alpha * vocab)) - 1))
        cases += 1
    return judge(
        label=LABEL,
        claim="the closed form solves its own approximate equation (relative error), and is the k = 1 formula there",
        cases=cases,
        error=error,
        tolerance=1e-9,
        note="counts T-k-1 candidates, as the lemma does",
    )


def three_methods(seed: int, batch: int) -> Claim:
    """Line search and polynomial root agree, and their beta makes the mean pseudo-count alpha on fresh data."""
    error, worst, gaps, at_closed = 0.0, 0.0, [], []
    for order, vocab, length, alpha in SETTINGS:
        betas = {
            method: beta_for_add_alpha(
                length=length, order=order, vocab=vocab, alpha=alpha, method=method, draws=4000, seed=seed
            )
            for method in ("closed_form", "line_search", "polynomial")
        }
        error = max(error, abs(betas["line_search"] - betas["polynomial"]))
        fresh = IndependentDirichlet(order=order, vocab=vocab, alpha=alpha).sample(
            batch=4000, length=length, seed=seed + 1, method="collapsed"
        )
        totals = cumulative_counts(fresh.tokens, order=order, vocab=vocab).sum(-1).double()
        mean, stderr = mean_stderr(pseudo_counts(totals, beta=betas["line_search"]) / vocab)
        # The beta was fitted on as many sequences, so its own noise is of the same size. At k = 1 there is none.
        worst = max(worst, abs(mean - alpha) / (math.sqrt(2) * stderr + 1e-9))
        at_closed.append(float(pseudo_counts(totals, beta=betas["closed_form"]).mean()) / vocab / alpha)
        gaps.append(
            f"k={order} |V|={vocab} T={length} alpha={alpha:g}: {betas['closed_form']:.3f} / {betas['line_search']:.3f}"
        )
    return judge(
        label=LABEL,
        claim="line search = polynomial root (difference in beta); E[pseudo-count] = alpha on fresh sequences",
        cases=len(SETTINGS),
        error=error,
        tolerance=1e-6,
        controls={"the mean pseudo-count is alpha within 5 standard errors": worst < 5},
        note=f"closed form / line search: {'; '.join(gaps)}. At the closed form the mean pseudo-count is "
        f"{', '.join(f'{ratio:.2f}' for ratio in at_closed)} alpha; at the line search it is alpha within "
        f"{worst:.1f} standard errors",
    )


def pseudo_counts(totals: torch.Tensor, *, beta: float) -> torch.Tensor:
    """eq:pseudo_count summed over m: gamma^-k times the sum over M other than [k] of gamma^|M| K_M."""
    gamma = math.expm1(beta)
    masks = totals.shape[-1]
    order = masks.bit_length() - 1
    powers = torch.tensor([gamma ** (overlap(mask) - order) for mask in range(masks - 1)], dtype=torch.float64)
    return totals[:, :-1] @ powers
