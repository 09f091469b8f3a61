"""The best beta and kappa under the population loss, and what models learned.

    python -m analyses optimal                                        every sweep, both priors, with and without BOS
    python -m analyses optimal --sweeps length --lengths 32 64 128
    python -m analyses optimal --priors hierarchical:5 --draws 200000

The paper leaves the optimum open. Around its base point (k = 2, |V| = 5, T = 64, alpha = 1 or eta = 5) one
quantity is varied at a time. Each row has beta*, kappa* and KL* with standard errors, the closed form of
lemma:optimal_beta, and on --batch common sequences the excess over the Bayes predictor. With BOS under the
independent prior beta* is infinite: then `combination`, kappa - sum(beta), is what is identified, and
ln(alpha |V|) is what prop:add_constant says of it. Rows of source `trained` are the checkpoints of the zoo:
beta and kappa as `fit_scores` reads them from their attention, beside the optimum of the same setting
(`gap_*` is trained less optimum).
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from analyses.cache import Cache
from analyses.command import whole_number
from analyses.subject import Study
from analyses.yardstick import (
    PAPER_LENGTHS,
    Predictor,
    Sequences,
    Trained,
    add_common_arguments,
    add_zoo_argument,
    alpha_of,
    excess_columns,
    measure,
    measure_bayes,
    open_cache,
    optimum,
    prior_text,
    progress,
    remembered,
    trained_checkpoints,
)

if TYPE_CHECKING:
    from interp.chains.priors import Prior
    from interp.estimators.optimal import OptimalParameters

KIND = "study"

SHOWN = (
    "source", "prior", "order", "vocab", "length", "bos", "beta_1", "beta_2", "kappa", "combination", "kl",
    "excess_share",
)  # fmt: skip
SWEEPS = ("length", "vocab", "order", "concentration")
BASE = {"order": 2, "vocab": 5, "length": 64}
BAYES_DRAWS = 120
FITTED_KEYS = 32_768  # keys that a trained model's beta is read from, in as many sequences as that takes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(batch=2000)
    parser.add_argument("--sweeps", nargs="+", choices=SWEEPS, default=list(SWEEPS), help="what to vary (default: all)")
    parser.add_argument(
        "--priors",
        metavar="PRIOR",
        nargs="+",
        default=["hierarchical:5", "independent:1"],
        help="base points (default: hierarchical:5 independent:1)",
    )
    grids: list[tuple[str, Any, list[Any]]] = [
        ("lengths", whole_number(2), list(PAPER_LENGTHS)),
        ("vocabs", whole_number(2), [2, 3, 5, 10, 20]),
        ("orders", whole_number(1), [1, 2, 3]),
        ("concentrations", float, [0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0]),
    ]
    for name, kind, default in grids:
        text = " ".join(f"{value:g}" for value in default)
        what = "alpha, or eta of every level" if name == "concentrations" else name
        parser.add_argument(
            f"--{name}", metavar="N", type=kind, nargs="+", default=default, help=f"{what} (default: {text})"
        )
    parser.add_argument(
        "--draws",
        metavar="N",
        type=whole_number(100),
        default=50_000,
        help="sequences that the optimum is found on (default: %(default)s)",
    )
    parser.add_argument(
        "--models",
        choices=("all", "swept"),
        default="all",
        help="trained models: all of the zoo, or those of the --lengths alone (default: all)",
    )
    add_zoo_argument(parser)
    add_common_arguments(parser)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One point of a sweep."""

    sweep: str
    prior: Prior
    length: int
    bos: bool


def study(options: argparse.Namespace) -> Study:
    """All sweeps, then the trained models."""
    from interp.results import provenance

    checkpoints = trained_checkpoints(options.zoo)
    if options.models == "swept":
        checkpoints = [one for one in checkpoints if one.model["length"] in options.lengths]
    digests = {checkpoint.name: checkpoint.digest for checkpoint in checkpoints}
    found = remembered("optimal", options, lambda: table(options, checkpoints), checkpoints=digests)
    return Study(
        rows=found["rows"],
        provenance=provenance(seed=options.seed, checkpoints={name: d[:16] for name, d in digests.items()}),
        shown=SHOWN,
        notes=[
            "beta, kappa -: infinite; then combination, kappa - sum(beta) over those lags, is what is identified",
            *([] if checkpoints else ["no trained checkpoint was found; `python -m models sweep zoo` trains them"]),
        ],
        failures=found["failures"],
    )


def settings(options: argparse.Namespace) -> Iterator[Setting]:
    """Base point by base point, one quantity varied at a time."""
    from interp.chains.priors import parse_prior

    for text in options.priors:
        kind = text.partition(":")[0]
        for sweep in options.sweeps:
            values = getattr(options, f"{sweep}s")
            for value in dict.fromkeys(values):
                shape = dict(BASE)
                named = text
                if sweep == "concentration":
                    named = f"{kind}:{value:g}"
                else:
                    shape[sweep] = value
                prior = parse_prior(named, order=shape["order"], vocab=shape["vocab"])
                for bos in (True, False):
                    yield Setting(sweep=sweep, prior=prior, length=shape["length"], bos=bos)


def table(options: argparse.Namespace, checkpoints: list[Trained]) -> dict[str, Any]:
    cache = open_cache(options)
    rows, failures = [], []
    bar = progress(list(settings(options)), "optimal")
    for setting in bar:
        bar.set_postfix_str(f"{setting.sweep}: k={setting.prior.order} |V|={setting.prior.vocab} T={setting.length}")
        best = find(setting, options, cache)
        rows.append({**place(setting), **numbers(best, setting.prior), **bayes_columns(setting, best, options, cache)})
        if not best.success:
            failures.append(f"{place(setting)}: {best.message}")
    bar = progress(checkpoints, "trained")
    for checkpoint in bar:
        bar.set_postfix_str(checkpoint.name)
        rows.append(trained_row(checkpoint, options, cache))
    # One set of columns for both sources.
    names = list(dict.fromkeys(name for row in rows for name in row))
    return {"rows": [{name: row.get(name) for name in names} for row in rows], "failures": failures}


def find(setting: Setting, options: argparse.Namespace, cache: Cache) -> OptimalParameters:
    return optimum(
        setting.prior, length=setting.length, bos=setting.bos, draws=options.draws, seed=options.seed, cache=cache
    )


def place(setting: Setting, source: str = "optimum") -> dict[str, Any]:
    """Which point of which sweep."""
    values = setting.prior.to_dict()
    return {
        "source": source,
        "sweep": setting.sweep,
        "prior": prior_text(setting.prior),
        "kind": values["kind"],
        "concentration": values["alpha"] if setting.prior.independent else values["eta"][0],
        "order": setting.prior.order,
        "vocab": setting.prior.vocab,
        "length": setting.length,
        "bos": setting.bos,
    }


def numbers(best: OptimalParameters, prior: Prior) -> dict[str, Any]:
    """The optimum, beside what the paper has in closed form."""
    from interp.estimators.soft_matching import beta_for_add_alpha

    alpha = alpha_of(prior)
    lemma = None
    if best.length >= prior.order + 2:
        lemma = beta_for_add_alpha(length=best.length, order=prior.order, vocab=prior.vocab, alpha=alpha)
    return {
        "beta": list(best.beta),
        "kappa": best.kappa,
        "stderr": list(best.stderr),
        "combination": best.combination,
        "combination_stderr": best.combination_stderr,
        "log_alpha_vocab": math.log(alpha * prior.vocab) if prior.independent else None,
        "lemma_beta": lemma,
        "kl_population": best.kl,
        "kl_population_stderr": best.kl_stderr,
        "floored": best.floored,
        "n": best.n,
        "success": best.success,
        "message": best.message,
    }


def soft(best: OptimalParameters) -> Predictor:
    """The optimum as a predictor."""
    beta, kappa = best.usable()
    key = {"name": "soft matching", "vocab": best.vocab, "beta": list(beta), "kappa": kappa}
    return Predictor(name="optimum", group="construction", key=key, law=best.predict)


def bayes_columns(
    setting: Setting, best: OptimalParameters, options: argparse.Namespace, cache: Cache
) -> dict[str, Any]:
    """KL on the common sequences, Bayes' KL, and the excess."""
    sequences = Sequences(prior=setting.prior, batch=options.batch, length=setting.length, seed=options.seed + 1)
    bayes = measure_bayes(sequences, cache, draws=BAYES_DRAWS)
    columns = excess_columns(measure(sequences, soft(best), cache).values, bayes.values)
    columns["kl_stderr"] = columns.pop("stderr")
    return {**columns, "bayes_kl": float(bayes.values.mean()), "batch": options.batch}


def trained_row(checkpoint: Trained, options: argparse.Namespace, cache: Cache) -> dict[str, Any]:
    """What a trained model learned, beside the optimum of its setting."""
    from interp.chains.priors import prior_from_dict

    prior = prior_from_dict(checkpoint.training["prior"])
    setting = Setting(sweep="zoo", prior=prior, length=checkpoint.model["length"], bos=checkpoint.model["bos"])
    best = find(setting, options, cache)
    fit = cache.value(
        {"what": "fit", "digest": checkpoint.digest, "keys": FITTED_KEYS, "covariance": True},
        lambda: fitted(checkpoint, prior),
    )
    sequences = Sequences(prior=prior, batch=options.batch, length=setting.length, seed=options.seed + 1)
    bayes = measure_bayes(sequences, cache, draws=BAYES_DRAWS)
    columns = excess_columns(measure(sequences, checkpoint.predictor(), cache).values, bayes.values)
    columns["kl_stderr"] = columns.pop("stderr")
    flat = [lag for lag, is_flat in enumerate(best.flat) if is_flat]
    learned, learned_stderr = learned_combination(fit, flat)
    return {
        **place(setting, "trained"),
        **numbers(best, prior),
        **columns,
        "bayes_kl": float(bayes.values.mean()),
        "batch": options.batch,
        "beta": fit["beta"],
        "kappa": fit["kappa"],
        "stderr": fit["stderr"],
        "combination": learned,
        "combination_stderr": learned_stderr,
        "checkpoint": checkpoint.name,
        "subject": checkpoint.summary(),
        "family": checkpoint.model["family"],
        "seed": checkpoint.training.get("seed"),
        "gap_beta": [value - other for value, other in zip(fit["beta"], best.beta, strict=True)],
        "gap_kappa": fit["kappa"] - best.kappa if fit["kappa"] is not None and best.kappa is not None else None,
        "gap_combination": learned - best.combination if learned is not None and best.combination is not None else None,
        "success": fit["success"],
        "message": fit["message"],
    }


def learned_combination(fit: dict[str, Any], flat: list[int]) -> tuple[float | None, float | None]:
    """kappa less the betas of the flat lags, with the error that their joint covariance gives; None without BOS."""
    import numpy as np

    if not flat or fit["kappa"] is None:
        return None, None
    signs = np.zeros(len(fit["beta"]) + 1)
    signs[flat], signs[-1] = -1.0, 1.0
    variance = signs @ np.array(fit["covariance"]) @ signs
    return float(signs @ [*fit["beta"], fit["kappa"]]), float(np.sqrt(np.maximum(variance, 0.0)))  # keeps NaN


def fitted(checkpoint: Trained, prior: Prior) -> dict[str, Any]:
    """beta and kappa as the match head's scores show them."""
    from interp.circuit.capture import capture
    from interp.hooked.checkpoint import load
    from interp.instruments.beta_kappa import fit_scores

    length = checkpoint.model["length"]
    tokens = prior.sample(batch=max(32, FITTED_KEYS // length), length=length, seed=0, method="collapsed").tokens
    fit = fit_scores(capture(load(checkpoint.path), tokens, copies=False))
    errors = [*fit.stderr.tolist(), *([] if fit.kappa_stderr is None else [fit.kappa_stderr])]
    return {
        "beta": fit.beta.tolist(),
        "kappa": fit.kappa,
        "stderr": errors,
        "covariance": fit.covariance.tolist(),
        "success": fit.success,
        "message": fit.message,
    }
