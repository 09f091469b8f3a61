"""The beta and kappa that minimise the population loss, beside those of trained models.

    python -m analyses optimal                                        every sweep, both priors, with and without BOS
    python -m analyses optimal --sweeps length --lengths 32 64 128
    python -m analyses optimal --priors hierarchical:5 --draws 200000
    python -m analyses optimal --sweeps zoo --zoo models/other_worlds --seed 1     trained models alone

The paper leaves the optimum open. Around its base point (k = 2, |V| = 5, T = 64, alpha = 1 or eta = 5) one quantity is
varied at a time. Each row has beta*, kappa* and KL* with standard errors, the closed form of lemma:optimal_beta, and on
--batch common sequences the excess over the Bayes predictor. With BOS under the independent prior beta* is infinite:
then `combination`, kappa - sum(beta), is what is identified, and ln(alpha |V|) is what prop:add_constant says of it.
Sweep `zoo` is the checkpoints: beta and kappa as `fit_scores` reads them from their attention, beside the optimum of
their setting (`gap_*` is trained minus optimum, `over_optimum` the KL over the optimum's on the same sequences).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

import interp as ip
from analyses.parts.estimators import alpha_of, optimum, soft_at
from analyses.parts.heldout import Predictor, Sequences, excess_columns, measure, measure_bayes, predictor_of
from analyses.running.ask import Ask
from analyses.running.cache import Cache
from analyses.running.options import PAPER_LENGTHS, ZooOptions, option
from analyses.running.subject import Subject, find_subjects, prior_text
from analyses.running.table import Table, gathered

SHOWN = (
    "source", "prior", "order", "vocab", "length", "bos", "beta_1", "beta_2", "kappa", "combination", "kl",
    "excess_share", "over_optimum", "over_optimum_stderr",
)  # fmt: skip
BASE = {"order": 2, "vocab": 5, "length": 64}
BAYES_DRAWS = 120
FITTED_KEYS = 32_768  # keys that a trained model's beta is read from, in as many sequences as that takes

Sweep = Literal["length", "vocab", "order", "concentration", "zoo"]


@dataclass(frozen=True, kw_only=True)
class Options(ZooOptions):
    batch: int = option(2000, "number of sequences (default: %(default)s)", metavar="N", least=1)
    sweeps: tuple[Sweep, ...] = option(get_args(Sweep), "what to vary (default: all)")
    priors: tuple[str, ...] = option(
        ("hierarchical:5", "independent:1"), "base points (default: %(default)s)", metavar="PRIOR"
    )
    lengths: tuple[int, ...] = option(PAPER_LENGTHS, "lengths (default: %(default)s)", metavar="N", least=2)
    vocabs: tuple[int, ...] = option((2, 3, 5, 10, 20), "vocabs (default: %(default)s)", metavar="N", least=2)
    orders: tuple[int, ...] = option((1, 2, 3), "orders (default: %(default)s)", metavar="N", least=1)
    concentrations: tuple[float, ...] = option(
        (0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0), "alpha, or eta of every level (default: %(default)s)", metavar="N"
    )
    draws: int = option(50_000, "sequences that the optimum is found on (default: %(default)s)", metavar="N", least=100)


# The draws that kl_curves tunes on, so that each optimum is searched only once.
ASK = Ask(options=Options(sweeps=("length", "zoo"), draws=40_000, seed=1, batch=500), cost=0.15)


@dataclass(frozen=True, kw_only=True)
class Point:
    """One point of a sweep, or (sweep "zoo") the checkpoints that were trained in one setting."""

    sweep: str
    prior: str
    order: int
    vocab: int
    length: int
    checkpoints: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.sweep}: {self.prior} k={self.order} |V|={self.vocab} T={self.length}"


def pieces(options: Options) -> list[Point]:
    """Base point by base point, one quantity varied at a time; then the trained models by what they were trained on."""
    found: list[Point] = []
    for text in options.priors:
        kind = text.partition(":")[0]
        for sweep in [one for one in options.sweeps if one != "zoo"]:
            for value in dict.fromkeys(getattr(options, f"{sweep}s")):
                shape = BASE if sweep == "concentration" else {**BASE, sweep: value}
                named = f"{kind}:{value:g}" if sweep == "concentration" else text
                found.append(Point(sweep=sweep, prior=named, **shape))
    groups: dict[Point, list[str]] = {}
    for one in find_subjects(options.zoo, unfinished=options.unfinished) if "zoo" in options.sweeps else ():
        record, length = one.training["prior"], one.model_config["length"]
        shape = {"order": record["order"], "vocab": record["vocab"], "length": length}
        groups.setdefault(Point(sweep="zoo", prior=prior_text(record), **shape), []).append(one.name)
    return [*found, *(replace(point, checkpoints=tuple(names)) for point, names in groups.items())]


def together(options: Options, piece: Point) -> str:
    """`kl_curves` needs the same optimum."""
    return f"{piece.prior} T={piece.length}"


def study_piece(options: Options, piece: Point, cache: Cache) -> Table:
    """The optimum with and without BOS, or a row per trained model."""
    if piece.sweep == "zoo":
        found = find_subjects(options.zoo, unfinished=options.unfinished)
        return Table(rows=[trained_row(one, piece, options, cache) for one in found if one.name in piece.checkpoints])
    prior = ip.parse_prior(piece.prior, order=piece.order, vocab=piece.vocab)
    rows, failures = [], []
    for bos in (True, False):
        best = optimum(prior, length=piece.length, bos=bos, draws=options.draws, seed=options.seed, cache=cache)
        sequences = Sequences(prior=prior, batch=options.batch, length=piece.length, seed=options.seed + 1)
        rows.append(setting_columns(piece, prior, best) | bayes_columns(sequences, soft_at(best), cache))
        failures += [] if best.success else [f"{piece}, {'BOS' if bos else 'no BOS'}: {best.message}"]
    return Table(rows=rows, failures=failures)


def join(options: Options, studies: Sequence[Table]) -> Table:
    """All sweeps, then the trained models in the order of the zoo; one set of columns for both."""
    subjects = find_subjects(options.zoo, unfinished=options.unfinished)
    whole = gathered(studies, origin={"checkpoints": {one.name: one.digest[:16] for one in subjects}}, shown=SHOWN)
    names = list(dict.fromkeys(name for row in whole.rows for name in row))
    order = {one.name: place for place, one in enumerate(subjects)}
    rows = sorted(whole.rows, key=lambda row: order.get(row.get("checkpoint", ""), -1))
    notes = ["beta, kappa -: infinite; then combination, kappa - sum(beta) over those lags, is what is identified"]
    notes += [] if subjects else ["no trained checkpoint was found; `python -m models sweep zoo` trains them"]
    return replace(whole, rows=[{name: row.get(name) for name in names} for row in rows], notes=notes)


def setting_columns(point: Point, prior: ip.Prior, best: Any) -> dict[str, Any]:
    """Which point of which sweep, and its optimum beside what the paper has in closed form.

    `concentration` is alpha of independent contexts, eta_1 of a hierarchy.
    """
    alpha, order = alpha_of(prior), prior.order
    lemma = None
    if best.length >= order + 2:
        lemma = ip.beta_for_add_alpha(length=best.length, order=order, vocab=prior.vocab, alpha=alpha)
    return {
        "source": "trained" if point.sweep == "zoo" else "optimum",
        "sweep": point.sweep,
        "prior": prior_text(prior.to_dict()),
        "kind": prior.kind,
        "concentration": alpha if prior.independent else float(prior.concentrations()[1]),
        "order": order,
        "vocab": prior.vocab,
        "length": point.length,
        "bos": best.bos,
        "beta": list(best.beta),
        "kappa": best.kappa,
        "stderr": list(best.stderr),
        **{name: getattr(best, name) for name in ("combination", "combination_stderr")},
        "log_alpha_vocab": math.log(alpha * prior.vocab) if prior.independent else None,
        "lemma_beta": lemma,
        "kl_population": best.kl,
        "kl_population_stderr": best.kl_stderr,
        **{name: getattr(best, name) for name in ("floored", "n", "success", "message")},
    }


def bayes_columns(sequences: Sequences, predictor: Predictor, cache: Cache) -> dict[str, Any]:
    """KL on the common sequences, Bayes' KL, and the excess."""
    bayes = measure_bayes(sequences, cache, draws=BAYES_DRAWS).values
    columns = excess_columns(measure(sequences, predictor, cache).values, bayes)
    columns["kl_stderr"] = columns.pop("stderr")
    return {**columns, "bayes_kl": float(bayes.mean()), "batch": sequences.batch}


def trained_row(checkpoint: Subject, point: Point, options: Options, cache: Cache) -> dict[str, Any]:
    """The beta and kappa of a trained model, beside the optimum of its setting."""
    prior, bos = checkpoint.prior, checkpoint.model_config["bos"]
    best = optimum(prior, length=point.length, bos=bos, draws=options.draws, seed=options.seed, cache=cache)
    key = {"what": "fit", "digest": checkpoint.digest, "keys": FITTED_KEYS, "covariance": True}
    fit = cache.value(key, lambda: fitted(checkpoint))
    sequences = Sequences(prior=prior, batch=options.batch, length=point.length, seed=options.seed + 1)
    own, ideal = (measure(sequences, one, cache).values for one in (predictor_of(checkpoint), soft_at(best)))
    over = excess_columns(own, ideal)
    learned, learned_stderr = learned_combination(fit, [lag for lag, is_flat in enumerate(best.flat) if is_flat])
    return {
        **setting_columns(point, prior, best),
        **bayes_columns(sequences, predictor_of(checkpoint), cache),
        "over_optimum": over["excess_share"],
        "over_optimum_stderr": over["excess_share_stderr"],
        **{name: fit[name] for name in ("beta", "kappa", "stderr", "success", "message")},
        "combination": learned,
        "combination_stderr": learned_stderr,
        "checkpoint": checkpoint.name,
        "subject": checkpoint.summary(),
        "family": checkpoint.model_config["family"],
        "seed": checkpoint.training.get("seed"),
        "gap_beta": [value - other for value, other in zip(fit["beta"], best.beta, strict=True)],
        "gap_kappa": difference(fit["kappa"], best.kappa),
        "gap_combination": difference(learned, best.combination),
    }


def difference(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one - other


def learned_combination(fit: dict[str, Any], flat: list[int]) -> tuple[float | None, float | None]:
    """kappa less the betas of the flat lags, with the error that their joint covariance gives; None without BOS."""
    if not flat or fit["kappa"] is None:
        return None, None
    signs = np.zeros(len(fit["beta"]) + 1)
    signs[flat], signs[-1] = -1.0, 1.0
    variance = signs @ np.array(fit["covariance"]) @ signs
    return float(signs @ [*fit["beta"], fit["kappa"]]), float(np.sqrt(np.maximum(variance, 0.0)))  # keeps NaN


def fitted(checkpoint: Subject) -> dict[str, Any]:
    """beta and kappa as the match head's scores show them."""
    length = checkpoint.model_config["length"]
    batch = max(32, FITTED_KEYS // length)
    tokens = checkpoint.prior.sample(batch=batch, length=length, seed=0, method="collapsed").tokens
    fit = ip.fit_scores(ip.capture(checkpoint.model, tokens, copies=False))
    return {
        "beta": fit.beta.tolist(),
        "kappa": fit.kappa,
        "stderr": [*fit.stderr.tolist(), *([] if fit.kappa_stderr is None else [fit.kappa_stderr])],
        "covariance": fit.covariance.tolist(),
        "success": fit.success,
        "message": fit.message,
    }
