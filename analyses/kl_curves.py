"""KL to the true law over length: estimators, constructions, trained models, Bayes.

    python -m analyses kl_curves                                        both priors, the paper's nine lengths
    python -m analyses kl_curves --priors hierarchical:5 --lengths 32 64 --batch 2000
    python -m analyses kl_curves --zoo runs/mine --out results

One row per prior, length and predictor (fig:kl_vs_position): KL(truth || prediction) in nats at the last
position, its standard error, and its excess over the Bayes predictor on the same sequences, in nats and as a
share of Bayes' own KL; also how far it lies below the best of the add-alphas. The floor for infinite KLs is stated
and so is how often it was needed: where that is often, the number is about the floor. Checkpoints are measured at
the length they were trained on. Results are cached by content: a second run is instant.
"""

from __future__ import annotations

import argparse
import itertools
from typing import Any

from analyses.command import whole_number
from analyses.subject import Study
from analyses.yardstick import (
    PAPER_LENGTHS,
    Measured,
    Sequences,
    Trained,
    add_common_arguments,
    add_shape_arguments,
    add_zoo_argument,
    estimators,
    excess_columns,
    measure,
    measure_bayes,
    open_cache,
    progress,
    remembered,
    trained_checkpoints,
)

KIND = "study"

TUNING_DRAWS = 40_000  # sequences on which the optimum and the Jelinek-Mercer weights are found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(batch=10_000)
    parser.add_argument(
        "--priors",
        metavar="PRIOR",
        nargs="+",
        default=["hierarchical:5", "independent:1"],
        help="independent[:ALPHA] or hierarchical[:ETA,...[:ETA0]] (default: hierarchical:5 independent:1)",
    )
    parser.add_argument(
        "--lengths",
        metavar="T",
        type=whole_number(2),
        nargs="+",
        default=list(PAPER_LENGTHS),
        help=f"tokens before the prediction (default: {' '.join(map(str, PAPER_LENGTHS))})",
    )
    add_shape_arguments(parser)
    parser.add_argument(
        "--alphas",
        metavar="A",
        type=float,
        nargs="+",
        default=[0.1, 0.5, 1.0],
        help="of add-alpha (default: 0.1 0.5 1)",
    )
    parser.add_argument(
        "--draws",
        metavar="N",
        type=whole_number(16),
        default=120,
        help="posterior draws of the Bayes predictor (default: %(default)s)",
    )
    add_zoo_argument(parser)
    add_common_arguments(parser)


def study(options: argparse.Namespace) -> Study:
    """All curves."""
    from interp.results import provenance

    checkpoints = trained_checkpoints(options.zoo)
    digests = {checkpoint.name: checkpoint.digest for checkpoint in checkpoints}
    found = remembered("kl_curves", options, lambda: curves(options, checkpoints), checkpoints=digests)
    return Study(
        rows=found["rows"],
        provenance=provenance(
            seed=options.seed,
            priors=found["priors"],
            checkpoints={name: digest[:16] for name, digest in digests.items()},
        ),
        shown=("prior", "length", "predictor", "kl", "stderr", "excess", "excess_stderr", "excess_share", "floored"),
        notes=notes(found["rows"], len(checkpoints)),
        failures=found["failures"],
    )


def curves(options: argparse.Namespace, checkpoints: list[Trained]) -> dict[str, Any]:
    """One row per prior, length and predictor."""
    from interp.chains.priors import parse_prior

    cache = open_cache(options)
    priors = {text: parse_prior(text, order=options.order, vocab=options.vocab) for text in options.priors}
    tasks = [(text, length) for text in priors for length in sorted(set(options.lengths))]
    rows: list[dict[str, Any]] = []
    failures = []
    bar = progress(tasks, "kl_curves")
    for text, length in bar:
        prior = priors[text]
        sequences = Sequences(prior=prior, batch=options.batch, length=length, seed=options.seed)
        bar.set_postfix_str(f"{text} T={length}: Bayes")
        bayes = measure_bayes(sequences, cache, draws=options.draws)
        if not bayes.converged:
            failures.append(f"{text}, T = {length}: the Bayes predictor did not converge; try more --draws")
        place = {"prior": text, "order": prior.order, "vocab": prior.vocab, "length": length}
        named: list[tuple[dict[str, Any], Measured]] = [
            ({"predictor": "bayes", "group": "bayes", "subject": None}, bayes)
        ]
        others = estimators(
            prior, length=length, alphas=options.alphas, draws=TUNING_DRAWS, seed=options.seed, cache=cache
        )
        models = (checkpoint.predictor() for checkpoint in checkpoints if checkpoint.fits(prior, length=length))
        for predictor in itertools.chain(others, models):
            bar.set_postfix_str(f"{text} T={length}: {predictor.name}")
            names = {"predictor": predictor.name, "group": predictor.group, "subject": predictor.subject}
            named.append((names, measure(sequences, predictor, cache)))
        wanted = {f"add-{alpha:g}" for alpha in options.alphas}
        rival, best = min(
            ((names["predictor"], measured) for names, measured in named if names["predictor"] in wanted),
            key=lambda pair: pair[1].values.mean(),
        )
        for names, measured in named:
            beside = {"best_add_alpha": rival, **below_columns(measured, best)}
            rows.append({**place, **names, **columns(measured, bayes), **beside})
    return {"rows": rows, "failures": failures, "priors": [prior.to_dict() for prior in priors.values()]}


def columns(measured: Measured, bayes: Measured) -> dict[str, Any]:
    """The numbers of one row."""
    from interp.divergence import KL_FLOOR

    return {
        **excess_columns(measured.values, bayes.values),
        "floored": measured.floored,
        "floor": KL_FLOOR,
        "monte_carlo_error": measured.monte_carlo,
        "n": len(measured.values),
    }


def below_columns(measured: Measured, rival: Measured) -> dict[str, float]:
    """How far it lies below the best add-alpha on the same sequences, in nats; negative if above."""
    from interp.results import mean_stderr

    gain, stderr = mean_stderr(rival.values - measured.values)
    return {"below_add_alpha": gain, "below_add_alpha_stderr": stderr}


def notes(rows: list[dict[str, Any]], checkpoints: int) -> list[str]:
    """Nearest to Bayes at each prior and length; and what was not there."""
    lines = []
    for prior in dict.fromkeys(row["prior"] for row in rows):
        parts = []
        for length in dict.fromkeys(row["length"] for row in rows if row["prior"] == prior):
            here = [r for r in rows if (r["prior"], r["length"]) == (prior, length) and r["group"] != "bayes"]
            best = min(here, key=lambda r: r["excess"])
            parts.append(f"T={length} {best['predictor']} {best['excess_share']:+.1%}")
        lines.append(f"{prior}, nearest to Bayes: {'; '.join(parts)}")
    lines.append("floored: share of sequences in which a possible symbol was given less than the floor")
    if not checkpoints:
        lines.append("no trained checkpoint was found; `python -m models sweep zoo` trains them")
    return lines
