"""Are partial matches a constant pseudo-count? Its mean and spread beside alpha.

    python -m analyses pseudo_counts
    python -m analyses pseudo_counts --lengths 32 128 512 --vocabs 5 --orders 1 2 3 --alpha 0.5

lemma:optimal_beta chooses beta so that the data-dependent pseudo-count of eq:pseudo_count has mean alpha,
takes it to be close to that mean in every sequence, and takes E[K_M] from eq:approx_expectation. One row per
setting says how far each holds, on sequences from the independent prior, at the lemma's beta:

    mean, sd, low, high       of the pseudo-count over sequences and symbols; low and high are its 5% and 95% points
    ratio                     mean / alpha: 1 if the expectation is right
    variation                 sd / mean: small if it concentrates
    within_two                share of pseudo-counts within a factor 2 of alpha
    correlation               with the exact count K_[k](m), which the lemma takes to say nothing about it
    measured, approximation   E[K_M] for |M| = 0..k (mean over the masks of that size), and (T-k-1) / |V|^|M|
"""

from __future__ import annotations

import argparse
from typing import Any

from analyses.command import whole_number
from analyses.subject import Study
from analyses.yardstick import add_common_arguments, progress, remembered

KIND = "study"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(batch=10_000)
    for name, lowest, default in (
        ("lengths", 2, [32, 64, 128, 256, 512, 1024]),
        ("vocabs", 2, [2, 5, 10]),
        ("orders", 1, [1, 2, 3]),
    ):
        parser.add_argument(
            f"--{name}",
            metavar="N",
            type=whole_number(lowest),
            nargs="+",
            default=default,
            help=f"(default: {' '.join(map(str, default))})",
        )
    parser.add_argument("--alpha", type=float, default=1.0, help="of the prior (default: 1)")
    add_common_arguments(parser)


def study(options: argparse.Namespace) -> Study:
    """One row per order, vocabulary and length."""
    from interp.results import provenance

    found = remembered("pseudo_counts", options, lambda: {"rows": table(options)})
    rows = found["rows"]
    far = [row for row in rows if abs(row["ratio"] - 1) > 0.25]
    spread = [row for row in rows if row["variation"] > 0.5]
    return Study(
        rows=rows,
        provenance=provenance(seed=options.seed),
        shown=("order", "vocab", "length", "beta", "mean", "stderr", "ratio", "variation", "within_two", "correlation"),
        notes=[
            f"The mean is more than 25% from alpha in {len(far)} of {len(rows)} settings: {places(far)}.",
            f"The spread is more than half the mean in {len(spread)} of {len(rows)} settings: {places(spread)}.",
        ],
    )


def table(options: argparse.Namespace) -> list[dict[str, Any]]:
    settings = [
        (order, vocab, length)
        for order in sorted(set(options.orders))
        for vocab in sorted(set(options.vocabs))
        for length in sorted(set(options.lengths))
    ]
    for order, _, length in settings:
        if length < order + 2:
            raise ValueError(f"length must be at least order + 2 = {order + 2} for the lemma, got {length}")
    return [
        measure_setting(order, vocab, length, alpha=options.alpha, batch=options.batch, seed=options.seed)
        for order, vocab, length in progress(settings, "pseudo_counts")
    ]


def measure_setting(order: int, vocab: int, length: int, *, alpha: float, batch: int, seed: int) -> dict[str, Any]:
    """The pseudo-counts of one setting."""
    import numpy as np

    from interp.chains.priors import IndependentDirichlet
    from interp.estimators.counts import cumulative_counts
    from interp.estimators.pseudo_counts import expected_cumulative_count, pseudo_counts
    from interp.estimators.soft_matching import beta_for_add_alpha
    from interp.notation import overlap
    from interp.results import mean_stderr

    prior = IndependentDirichlet(order=order, vocab=vocab, alpha=alpha)
    tokens = prior.sample(batch=batch, length=length, seed=seed, method="collapsed").tokens
    beta = beta_for_add_alpha(length=length, order=order, vocab=vocab, alpha=alpha)
    pseudo = pseudo_counts(tokens, order=order, vocab=vocab, beta=beta).numpy()
    counts = cumulative_counts(tokens, order=order, vocab=vocab)
    sizes = np.array([overlap(mask) for mask in range(1 << order)])
    totals = counts.sum(-1).numpy().astype(float)
    by_size = [mean_stderr(totals[:, sizes == size].mean(1)) for size in range(order + 1)]
    expected = [
        expected_cumulative_count(length=length, order=order, vocab=vocab, overlap=size) for size in range(order + 1)
    ]
    mean, stderr = mean_stderr(pseudo.mean(1))  # symbols of one sequence are not independent
    low, high = np.quantile(pseudo, [0.05, 0.95])
    exact = counts[:, -1].numpy()
    return {
        "order": order,
        "vocab": vocab,
        "length": length,
        "alpha": alpha,
        "beta": beta,
        "mean": mean,
        "stderr": stderr,
        "ratio": mean / alpha,
        "sd": float(pseudo.std()),
        "variation": float(pseudo.std() / mean),
        "low": float(low),
        "high": float(high),
        "within_two": float(((pseudo >= alpha / 2) & (pseudo <= 2 * alpha)).mean()),
        "correlation": float(np.corrcoef(pseudo.ravel(), exact.ravel())[0, 1]) if exact.std() > 0 else float("nan"),
        "measured": [value for value, _ in by_size],
        "measured_stderr": [error for _, error in by_size],
        "approximation": expected,
        "measured_over_approximation": [value / other for (value, _), other in zip(by_size, expected, strict=True)],
        "n": batch,
    }


def places(rows: list[dict[str, Any]], most: int = 6) -> str:
    """The settings, shortened."""
    names = [f"k={row['order']} |V|={row['vocab']} T={row['length']}" for row in rows]
    return (
        ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "") if names else "none"
    )
