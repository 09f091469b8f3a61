"""Are trained models at the optimum in other worlds than the paper's? The runs of the study `other_worlds`.

    python -m analyses other_worlds
    python -m analyses other_worlds --runs runs/other_worlds --out results     the runs of your own sweep

One row per run. model_*: beta and kappa as `fit_scores` reads them from the scores; predicted_*, searched_*: those of
`predicted_parameters` and `optimal_parameters`. gap: the largest distance of the model's beta from the searched ones.
kl, kl_predicted and kl_searched are taken on the same sequences; excess_share is kl / kl_searched - 1, with its paired
error. copies: the lags that the copy heads were judged to copy, at the trained query.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analyses.parts.estimators import optimum, soft
from analyses.parts.heldout import Sequences, excess_columns, measure
from analyses.running.ask import Ask
from analyses.running.options import ROOT, CheckpointOptions, RunOptions, option, place
from analyses.running.subject import Study, Subject
from analyses.running.zoo import find_subjects, predictor_of

if TYPE_CHECKING:
    from analyses.running.cache import Cache

KIND = "study"
MOST = 3  # lags of the study's runs
NAMES = (*(str(lag + 1) for lag in range(MOST)), "kappa")
SHOWN = (
    "cell", "length", "seed", "init", "r2", "model_1", "model_2", "model_3", "model_kappa", "searched_1", "searched_2",
    "searched_3", "searched_kappa", "excess_share", "excess_share_stderr",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Options(RunOptions):
    batch: int = option(2000, "sequences for the KL (default: %(default)s)", metavar="N", least=1)
    fitted: int = option(512, "sequences that the scores are fitted on (default: %(default)s)", metavar="N", least=1)
    draws: int = option(40_000, "sequences that the optimum is found on (default: %(default)s)", metavar="N", least=100)
    runs: Path = place(
        ROOT / "models" / "other_worlds", "directory of the study's runs (default: models/other_worlds)", metavar="DIR"
    )


ASK = Ask(options=Options(), cost=2.0)


def weights(options: Options) -> dict[str, str]:
    """The runs that are read."""
    return {run.name: run.digest for run in find_subjects(options.runs, unfinished=options.unfinished)}


def study(options: Options, cache: Cache) -> Study:
    """Every run beside the optimum of its world."""
    from interp.results import provenance

    rows = [run_row(run, options, cache) for run in find_subjects(options.runs, unfinished=options.unfinished)]
    rows.sort(key=lambda row: (row["order"], row["vocab"], row["init"], row["length"], row["seed"]))
    return Study(rows=rows, provenance=provenance(seed=options.seed), shown=SHOWN)


def run_row(run: Subject, options: Options, cache: Cache) -> dict[str, Any]:
    """One run: beta and kappa of its scores, of the predicted and of the searched optimum, and the KL of each."""
    from interp.chains.descriptions import prior_from_dict
    from interp.estimators.predicted import predicted_parameters
    from interp.instruments.beta_kappa import fit_scores
    from interp.instruments.copy_heads import copy_heads

    prior = prior_from_dict(run.training["prior"])
    length, bos = run.model_config["length"], run.model_config["bos"]
    seen = run.asked(CheckpointOptions(batch=options.fitted, seed=options.seed)).capture(copies=True)
    fit, heads = fit_scores(seen), copy_heads(seen)
    predicted = predicted_parameters(prior, length=length, bos=bos)
    best = optimum(prior, length=length, bos=bos, draws=options.draws, seed=options.seed, cache=cache)
    sequences = Sequences(prior=prior, batch=options.batch, length=length, seed=options.seed + 1)

    def kl(name: str, beta: Any, kappa: float | None) -> Any:
        return measure(sequences, soft(name, vocab=prior.vocab, beta=beta, kappa=kappa), cache).values

    ideal = kl("optimum", *best.usable())
    columns = excess_columns(measure(sequences, predictor_of(run), cache).values, ideal)
    row: dict[str, Any] = {
        "run": run.name,
        "cell": Path(run.name).parts[0],
        "order": prior.order,
        "vocab": prior.vocab,
        "length": length,
        "seed": run.training.get("seed"),
        "init": run.training.get("init"),
        "r2": _number(fit.r2),
        "copies": "; ".join(heads.verdict),
    }
    parameters: dict[str, tuple[Any, Any]] = {
        "model": (fit.beta, fit.kappa),
        "stderr": (best.stderr[: prior.order], best.stderr[-1]),
        "predicted": (predicted.beta, predicted.kappa),
        "searched": (best.beta, best.kappa),
    }
    for name, (beta, kappa) in parameters.items():
        row |= {f"{name}_{lag + 1}": _number(beta[lag]) if lag < prior.order else None for lag in range(MOST)}
        row[f"{name}_kappa"] = _number(kappa)
    gaps = [abs(float(one) - float(other)) for one, other in zip(fit.beta, best.beta, strict=True)]
    return row | {
        "gap": _number(max(gaps)),
        "kl": columns["kl"],
        "kl_predicted": float(kl("predicted", *predicted.usable()).mean()),
        "kl_searched": float(ideal.mean()),
        "excess_share": columns["excess_share"],
        "excess_share_stderr": columns["excess_share_stderr"],
    }


def _number(value: Any) -> float | None:
    """A finite number, or None."""
    return float(value) if value is not None and math.isfinite(value) else None
