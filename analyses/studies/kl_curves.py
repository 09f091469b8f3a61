"""KL to the true law over length: estimators, constructions, trained models, Bayes.

    python -m analyses kl_curves                                        both priors, the paper's nine lengths
    python -m analyses kl_curves --priors hierarchical:5 --lengths 32 64 --batch 2000
    python -m analyses kl_curves --zoo runs/mine --out results

One row per prior, length and predictor (fig:kl_vs_position): KL(truth || prediction) in nats at the last position, its
standard error, and its excess over the Bayes predictor on the same sequences, in nats and as a share of Bayes' own KL;
also how far it lies below the best of the add-alphas, those of --alphas and the one whose alpha is tuned for that
length on other sequences (`alpha` says which it is). The floor for infinite KLs is stated, and how often it was needed:
where it is needed often, the KL depends on the floor. Checkpoints are measured at the length they were trained on.
Results are cached by content: a second run is instant.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from analyses.parts.estimators import TUNED_ALPHA, estimators
from analyses.parts.heldout import Measured, Sequences, excess_columns, measure, measure_bayes, predictor_of
from analyses.running.ask import Ask
from analyses.running.options import PAPER_LENGTHS, PRIOR_FORMS, ChainOptions, ZooOptions, option
from analyses.running.subject import find_subjects
from analyses.running.table import Table

if TYPE_CHECKING:
    from analyses.running.cache import Cache


TUNING_DRAWS = 40_000  # sequences on which the optimum and the Jelinek-Mercer weights are found


@dataclass(frozen=True, kw_only=True)
class Options(ChainOptions, ZooOptions):
    batch: int = option(10_000, "number of sequences (default: %(default)s)", metavar="N", least=1)
    priors: tuple[str, ...] = option(
        ("hierarchical:5", "independent:1"), f"{PRIOR_FORMS} (default: %(default)s)", metavar="PRIOR"
    )
    lengths: tuple[int, ...] = option(
        PAPER_LENGTHS, "tokens before the prediction (default: %(default)s)", metavar="T", least=2
    )
    alphas: tuple[float, ...] = option((0.1, 0.5, 1.0), "of add-alpha (default: %(default)s)", metavar="A")
    draws: int = option(120, "posterior draws of the Bayes predictor (default: %(default)s)", metavar="N", least=16)


ASK = Ask(options=Options(batch=4000), cost=0.8)


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where predictors are compared."""

    prior: str
    length: int

    def __str__(self) -> str:
        return f"{self.prior} T={self.length}"


def pieces(options: Options) -> list[Place]:
    """One for each prior and length."""
    lengths = sorted(set(options.lengths))
    return [Place(prior=prior, length=length) for prior in dict.fromkeys(options.priors) for length in lengths]


def together(options: Options, piece: Place) -> str:
    """`optimal` needs the same optimum."""
    return str(piece)


def study_piece(options: Options, piece: Place, cache: Cache) -> Table:
    """One row per predictor."""
    from interp.chains.descriptions import parse_prior
    from interp.results import provenance

    prior = parse_prior(piece.prior, order=options.order, vocab=options.vocab)
    sequences = Sequences(prior=prior, batch=options.batch, length=piece.length, seed=options.seed)
    bayes = measure_bayes(sequences, cache, draws=options.draws)
    named: list[tuple[dict[str, Any], Measured]] = [
        ({"predictor": "bayes", "group": "bayes", "subject": None, "alpha": None}, bayes)
    ]
    others = estimators(
        prior, length=piece.length, alphas=options.alphas, draws=TUNING_DRAWS, seed=options.seed, cache=cache
    )
    subjects = [
        one
        for one in find_subjects(options.zoo, unfinished=options.unfinished)
        if one.trained_on(prior, length=piece.length)
    ]
    for predictor in itertools.chain(others, map(predictor_of, subjects)):
        names = {
            "predictor": predictor.name,
            "group": predictor.group,
            "subject": predictor.subject,
            "alpha": predictor.key.get("alpha"),
        }
        named.append((names, measure(sequences, predictor, cache)))
    wanted = {TUNED_ALPHA, *(f"add-{alpha:g}" for alpha in options.alphas)}
    rival, best = min(
        ((names["predictor"], measured) for names, measured in named if names["predictor"] in wanted),
        key=lambda pair: pair[1].values.mean(),
    )
    place = {"prior": piece.prior, "order": prior.order, "vocab": prior.vocab, "length": piece.length}
    rows = [
        {**place, **names, **columns(measured, bayes), "best_add_alpha": rival, **below_columns(measured, best)}
        for names, measured in named
    ]
    failure = f"{piece.prior}, T = {piece.length}: the Bayes predictor did not converge; try more --draws"
    return Table(
        rows=rows,
        provenance=provenance(seed=options.seed, priors=[prior.to_dict()]),
        failures=[] if bayes.converged else [failure],
    )


def join(options: Options, studies: Sequence[Table]) -> Table:
    """All curves."""
    rows = [row for study in studies for row in study.rows]
    found = find_subjects(options.zoo, unfinished=options.unfinished)
    priors = list({str(prior): prior for study in studies for prior in study.provenance["priors"]}.values())
    origin = {"priors": priors, "checkpoints": {one.name: one.digest[:16] for one in found}}
    return Table(
        rows=rows,
        provenance={**studies[0].provenance, **origin},
        shown=("prior", "length", "predictor", "kl", "stderr", "excess", "excess_stderr", "excess_share", "floored"),
        notes=notes(rows, len(found)),
        failures=[failure for study in studies for failure in study.failures],
    )


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
    """KL of the best add-alpha minus its KL on the same sequences, in nats; negative if it is worse."""
    from interp.results import mean_stderr

    gain, stderr = mean_stderr(rival.values - measured.values)
    return {"below_add_alpha": gain, "below_add_alpha_stderr": stderr}


def notes(rows: list[dict[str, Any]], checkpoints: int) -> list[str]:
    """The predictor nearest to Bayes at each prior and length; and what was missing."""
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
