"""Are partial matches a constant pseudo-count? Its mean and spread beside alpha.

    python -m analyses pseudo_counts
    python -m analyses pseudo_counts --lengths 32 128 512 --vocabs 5 --orders 1 2 3 --alpha 0.5

lemma:optimal_beta chooses beta so that the data-dependent pseudo-count of eq:pseudo_count has mean alpha, assumes that
it is close to that mean in every sequence, and takes E[K_M] from eq:approx_expectation. One row per setting shows how
well each assumption holds, on sequences from the independent prior, at the lemma's beta:

    mean, sd, low, high       of the pseudo-count over sequences and symbols; low and high are its 5% and 95% points
    ratio                     mean / alpha: 1 if the expectation is right
    variation                 sd / mean: small if it concentrates
    within_two                share of pseudo-counts within a factor 2 of alpha
    correlation               with the exact count K_[k](m); the lemma assumes that there is none
    measured, approximation   E[K_M] for |M| = 0..k (mean over the masks of that size), and (T-k-1) / |V|^|M|
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from analyses.running.ask import Ask
from analyses.running.options import CachedOptions, option
from analyses.running.table import Table

if TYPE_CHECKING:
    from analyses.running.cache import Cache


@dataclass(frozen=True, kw_only=True)
class Options(CachedOptions):
    batch: int = option(10_000, "number of sequences (default: %(default)s)", metavar="N", least=1)
    lengths: tuple[int, ...] = option((32, 64, 128, 256, 512, 1024), "(default: %(default)s)", metavar="N", least=2)
    vocabs: tuple[int, ...] = option((2, 5, 10), "(default: %(default)s)", metavar="N", least=2)
    orders: tuple[int, ...] = option((1, 2, 3), "(default: %(default)s)", metavar="N", least=1)
    alpha: float = option(1.0, "of the prior (default: %(default)s)")


ASK = Ask(options=Options(batch=4000), cost=0.02)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One row of the table."""

    order: int
    vocab: int
    length: int

    def __str__(self) -> str:
        return f"k={self.order} |V|={self.vocab} T={self.length}"


def pieces(options: Options) -> list[Setting]:
    """One for each order, vocabulary and length."""
    settings = [
        Setting(order=order, vocab=vocab, length=length)
        for order in sorted(set(options.orders))
        for vocab in sorted(set(options.vocabs))
        for length in sorted(set(options.lengths))
    ]
    for one in settings:
        if one.length < one.order + 2:
            raise ValueError(f"length must be at least order + 2 = {one.order + 2} for the lemma, got {one.length}")
    return settings


def together(options: Options, piece: Setting) -> str:
    """They are fast: one process runs them all."""
    return "pseudo_counts"


def study_piece(options: Options, piece: Setting, cache: Cache) -> Table:
    """One row."""
    from interp.results import provenance

    row = measure_setting(
        piece.order, piece.vocab, piece.length, alpha=options.alpha, batch=options.batch, seed=options.seed
    )
    return Table(rows=[row], provenance=provenance(seed=options.seed))


def join(options: Options, studies: Sequence[Table]) -> Table:
    """The whole table."""
    rows = [row for study in studies for row in study.rows]
    far = [row for row in rows if abs(row["ratio"] - 1) > 0.25]
    spread = [row for row in rows if row["variation"] > 0.5]
    return Table(
        rows=rows,
        provenance=studies[0].provenance,
        shown=("order", "vocab", "length", "beta", "mean", "stderr", "ratio", "variation", "within_two", "correlation"),
        notes=[
            f"The mean is more than 25% from alpha in {len(far)} of {len(rows)} settings: {places(far)}.",
            f"The spread is more than half the mean in {len(spread)} of {len(rows)} settings: {places(spread)}.",
        ],
    )


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
