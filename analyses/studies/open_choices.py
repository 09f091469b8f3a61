"""What depends on two choices that the paper leaves open: eta_0 of the prior, and kappa of the construction.

    python -m analyses open_choices
    python -m analyses open_choices --eta0s 0.2 1 5 --lengths 32 64 --json

Question `eta0`: the paper gives eta_1 = eta_2 = 5 and not eta_0 (ours is 1). For each eta_0 and length: the best soft
matching (beta, kappa), its KL, the best add-alpha, and both above the Bayes predictor on --batch common sequences.
Question `kappa`: the paper trains beta_1, beta_2 alone and does not say how kappa is set (`models.families.kappa`). For
each length the best betas when kappa is free, tied(1), fixed(0), or absent (no BOS), and how much KL each reading costs
against a free kappa, on the same sequences.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import interp as ip
from analyses.parts.estimators import TUNED_ALPHA, optimum, soft_at, tuned_additive
from analyses.parts.heldout import Sequences, excess_columns, measure, measure_bayes
from analyses.running.ask import Ask
from analyses.running.cache import Cache
from analyses.running.options import CachedOptions, ChainOptions, option
from analyses.running.table import Table, gathered

READINGS = ("free", "tied(1)", "fixed(0)", "no BOS")
ETA0 = 1.0  # for the comparison of the readings of kappa; the suite's own choice
BAYES_DRAWS = 120
COLUMNS = (
    "question", "prior", "eta0", "length", "order", "vocab", "reading", "beta", "kappa", "beta_stderr", "kl",
    "kl_stderr", "excess_share", "excess_share_stderr", "alpha", "add_alpha_share", "add_alpha_share_stderr",
    "below_add_alpha", "below_add_alpha_stderr", "over_free", "over_free_stderr", "over_free_share", "floored", "n",
)  # fmt: skip
SHOWN = (
    "question", "eta0", "length", "reading", "beta_1", "beta_2", "kappa", "kl", "excess_share", "add_alpha_share",
    "over_free_share",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Options(ChainOptions, CachedOptions):
    batch: int = option(2000, "sequences to compare with Bayes on (default: %(default)s)", metavar="N", least=1)
    eta: float = option(5.0, "eta of every level (default: %(default)s)", metavar="ETA")
    eta0s: tuple[float, ...] = option((0.2, 0.5, 1.0, 2.0, 5.0), "eta_0 (default: %(default)s)", metavar="N")
    eta0_lengths: tuple[int, ...] = option(
        (32, 128), "tokens before the prediction, for eta_0 (default: %(default)s)", metavar="T", least=4
    )
    lengths: tuple[int, ...] = option(
        (32, 64, 128, 256, 1024), "the same for kappa (default: %(default)s)", metavar="T", least=4
    )
    draws: int = option(20_000, "sequences that optima are found on (default: %(default)s)", metavar="N", least=100)


ASK = Ask(cost=0.3)


@dataclass(frozen=True, kw_only=True)
class Point:
    """One question at one setting."""

    question: str
    eta0: float
    length: int

    def __str__(self) -> str:
        return f"{self.question}: eta0={self.eta0:g} T={self.length}"


def pieces(options: Options) -> list[Point]:
    """eta_0 by length, then kappa by length."""
    swept = itertools.product(dict.fromkeys(options.eta0_lengths), dict.fromkeys(options.eta0s))
    return [
        *(Point(question="eta0", eta0=eta0, length=length) for length, eta0 in swept),
        *(Point(question="kappa", eta0=ETA0, length=length) for length in dict.fromkeys(options.lengths)),
    ]


def study_piece(options: Options, piece: Point, cache: Cache) -> Table:
    """The rows of one question at one setting."""
    order, vocab = options.order, options.vocab
    prior = ip.HierarchicalDirichlet(order=order, vocab=vocab, eta=(options.eta,) * order, eta0=piece.eta0)
    place = {**vars(piece), "prior": prior.text, "order": order, "vocab": vocab}
    rows = [eta0_row(options, piece, prior, cache)] if piece.question == "eta0" else kappa_rows(options, piece, prior)
    found = [{name: {**place, **row}.get(name) for name in COLUMNS} for row in rows]
    return Table(rows=found, provenance={"priors": [prior.to_dict()]})


def eta0_row(options: Options, piece: Point, prior: ip.HierarchicalDirichlet, cache: Cache) -> dict[str, Any]:
    """The optimum, the best add-alpha and Bayes under one eta_0."""
    length, draws, seed = piece.length, options.draws, options.seed
    best = optimum(prior, length=length, bos=True, draws=draws, seed=seed + 1, cache=cache)
    sequences = Sequences(prior=prior, batch=options.batch, length=length, seed=seed)
    bayes = measure_bayes(sequences, cache, draws=BAYES_DRAWS)
    additive = tuned_additive(prior, length=length, draws=draws, seed=seed, cache=cache)
    ours = measure(sequences, soft_at(best), cache)
    rival = measure(sequences, additive, cache)
    gain, gain_stderr = ip.mean_stderr(rival.values - ours.values)
    found, others = (excess_columns(one.values, bayes.values) for one in (ours, rival))
    return {
        "reading": "free",
        "beta": list(best.beta),
        "kappa": best.kappa,
        "beta_stderr": list(best.stderr[: prior.order]),
        **{name: getattr(best, name) for name in ("kl", "floored", "n")},
        "kl_stderr": best.kl_stderr,
        **{name: found[name] for name in ("excess_share", "excess_share_stderr")},
        "alpha": additive.key["alpha"],
        "add_alpha_share": others["excess_share"],
        "add_alpha_share_stderr": others["excess_share_stderr"],
        "below_add_alpha": gain,
        "below_add_alpha_stderr": gain_stderr,
    }


def kappa_rows(options: Options, piece: Point, prior: ip.HierarchicalDirichlet) -> Iterator[dict[str, Any]]:
    """The best betas under each reading of kappa, on one sample."""
    from interp.estimators.optimal import population_divergence
    from interp.estimators.population import draw_population, population_loss

    sample = draw_population(prior, length=piece.length, order=prior.order, draws=options.draws, seed=options.seed + 1)
    free = best_under(sample, "free", order=prior.order, vocab=prior.vocab)
    free_losses = population_loss(sample, free, bos=True).losses
    free_kl, _, _ = population_divergence(sample, free, bos=True)
    for reading in READINGS:
        bos = reading != "no BOS"
        theta = best_under(sample, reading, order=prior.order, vocab=prior.vocab)
        kl, kl_stderr, floored = population_divergence(sample, theta, bos=bos)
        # Paired over the same sequences. Without BOS the loss leaves out symbols that have not occurred, and KL floors
        # them: then the difference of the KLs counts, whose error is not that of a pair.
        losses = population_loss(sample, theta, bos=bos).losses
        over, over_stderr = ip.mean_stderr(losses - free_losses) if bos else (kl - free_kl, None)
        yield {
            "reading": reading,
            "beta": theta[: prior.order].tolist(),
            "kappa": float(theta[-1]) if bos else None,
            "kl": kl,
            "kl_stderr": kl_stderr,
            "over_free": over,
            "over_free_stderr": over_stderr,
            "over_free_share": over / free_kl,
            "floored": floored,
            "n": len(sample.laws),
        }


def best_under(sample: Any, reading: str, *, order: int, vocab: int) -> np.ndarray:
    """(beta, kappa) with the least loss on the sample when kappa follows the reading; without BOS beta alone.

    kappa = offset + slope * sum(beta), so that its gradient goes to beta.
    """
    from scipy.optimize import minimize

    from interp.estimators.population import population_loss
    from models.families.kappa import KappaRule

    bos, free = reading != "no BOS", reading == "free"
    follows = bos and not free
    offset, slope = KappaRule.parse(reading).line(vocab=vocab) if follows else (0.0, 0.0)

    def whole(point: np.ndarray) -> np.ndarray:
        return np.append(point, offset + slope * point.sum()) if follows else point

    def value(point: np.ndarray) -> tuple[float, np.ndarray]:
        at = population_loss(sample, whole(point), bos=bos)
        return at.value, at.gradient[:order] + slope * at.gradient[order] if follows else at.gradient

    start = np.full(order + free, 1.5)
    found = minimize(value, start, jac=True, method="BFGS", options={"gtol": 1e-7})
    _, slope_left = value(found.x)
    if not np.abs(slope_left).max() < 1e-5:
        raise ValueError(f"the search for beta under kappa {reading} stopped with a slope of {slope_left}")
    return whole(found.x)


def join(options: Options, studies: Sequence[Table]) -> Table:
    """All settings in one table."""
    notes = (
        f"excess_share: KL of the best soft matching over Bayes; add_alpha_share: that of `{TUNED_ALPHA}`",
        "over_free_share: KL of a reading of kappa over that of a free kappa, on the same sequences",
    )
    return gathered(studies, shown=SHOWN, notes=notes)
