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

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import interp as ip
from analyses.running.ask import Ask
from analyses.running.cache import Cache
from analyses.running.options import CachedOptions, option
from analyses.running.table import Table, gathered


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
    values = (sorted(set(one)) for one in (options.orders, options.vocabs, options.lengths))
    settings = [Setting(order=order, vocab=vocab, length=length) for order, vocab, length in itertools.product(*values)]
    for one in settings:
        if one.length < one.order + 2:
            raise ValueError(f"length must be at least order + 2 = {one.order + 2} for the lemma, got {one.length}")
    return settings


def together(options: Options, piece: Setting) -> str:
    """They are fast: one process runs them all."""
    return "pseudo_counts"


def study_piece(options: Options, piece: Setting, cache: Cache) -> Table:
    """The pseudo-counts of one setting."""
    from interp.notation import overlap

    shape: dict[str, Any] = {"order": piece.order, "vocab": piece.vocab}
    alpha = options.alpha
    prior = ip.IndependentDirichlet(**shape, alpha=alpha)
    tokens = prior.sample(batch=options.batch, length=piece.length, seed=options.seed, method="collapsed").tokens
    beta = ip.beta_for_add_alpha(**shape, length=piece.length, alpha=alpha)
    pseudo = ip.pseudo_counts(tokens, **shape, beta=beta).numpy()
    counts = ip.cumulative_counts(tokens, **shape)
    totals, exact = counts.sum(-1).numpy().astype(float), counts[:, -1].numpy()
    sizes = np.array([overlap(mask) for mask in range(1 << piece.order)])
    by_size = [ip.mean_stderr(totals[:, sizes == size].mean(1)) for size in range(piece.order + 1)]
    # eq:approx_expectation: contexts are uniform and independent, and the candidate T is left out
    expected = [(piece.length - piece.order - 1) / piece.vocab**size for size in range(piece.order + 1)]
    mean, stderr = ip.mean_stderr(pseudo.mean(1))  # symbols of one sequence are not independent
    low, high = np.quantile(pseudo, [0.05, 0.95])
    row: dict[str, Any] = {
        **vars(piece),
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
        "n": options.batch,
    }
    return Table(rows=[row])


def join(options: Options, studies: Sequence[Table]) -> Table:
    """The whole table."""
    shown = ("order", "vocab", "length", "beta", "mean", "stderr", "ratio", "variation", "within_two", "correlation")
    return gathered(studies, shown=shown)
