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
from dataclasses import dataclass, replace
from typing import Any

import interp as ip
from analyses.parts.estimators import TUNED_ALPHA, estimators
from analyses.parts.heldout import Measured, Sequences, excess_columns, measure, measure_bayes, predictor_of
from analyses.running.ask import Ask
from analyses.running.cache import Cache
from analyses.running.options import PAPER_LENGTHS, PRIOR_FORMS, ChainOptions, ZooOptions, option
from analyses.running.subject import find_subjects
from analyses.running.table import Table, gathered

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
    from interp.divergence import KL_FLOOR

    prior = ip.parse_prior(piece.prior, order=options.order, vocab=options.vocab)
    sequences = Sequences(prior=prior, batch=options.batch, length=piece.length, seed=options.seed)
    bayes = measure_bayes(sequences, cache, draws=options.draws)
    tuning: dict[str, Any] = {"draws": TUNING_DRAWS, "seed": options.seed, "cache": cache}
    zoo = find_subjects(options.zoo, unfinished=options.unfinished)
    models = [one for one in zoo if one.trained_on(prior, length=piece.length)]
    found: list[tuple[dict[str, Any], Measured]] = [
        ({"predictor": "bayes", "group": "bayes", "subject": None, "alpha": None}, bayes)
    ]
    for one in itertools.chain(
        estimators(prior, length=piece.length, alphas=options.alphas, **tuning), map(predictor_of, models)
    ):
        names = {"predictor": one.name, "group": one.group, "subject": one.subject, "alpha": one.key.get("alpha")}
        found.append((names, measure(sequences, one, cache)))
    wanted = {TUNED_ALPHA, *(f"add-{alpha:g}" for alpha in options.alphas)}
    rivals = {str(names["predictor"]): measured for names, measured in found if names["predictor"] in wanted}
    best = min(rivals, key=lambda name: rivals[name].values.mean())
    rows = []
    for names, measured in found:
        gain, gain_stderr = ip.mean_stderr(rivals[best].values - measured.values)
        rows.append(
            {
                "prior": piece.prior,
                "order": prior.order,
                "vocab": prior.vocab,
                "length": piece.length,
                **names,
                **excess_columns(measured.values, bayes.values),
                "floored": measured.floored,
                "floor": KL_FLOOR,
                "monte_carlo_error": measured.monte_carlo,
                "n": len(measured.values),
                "best_add_alpha": best,
                "below_add_alpha": gain,  # its KL minus this one's, on the same sequences; negative if this is worse
                "below_add_alpha_stderr": gain_stderr,
            }
        )
    failure = f"{piece.prior}, T = {piece.length}: the Bayes predictor did not converge; try more --draws"
    return Table(rows=rows, provenance={"priors": [prior.to_dict()]}, failures=[] if bayes.converged else [failure])


def join(options: Options, studies: Sequence[Table]) -> Table:
    """All curves."""
    found = find_subjects(options.zoo, unfinished=options.unfinished)
    priors = list({str(prior): prior for study in studies for prior in study.provenance["priors"]}.values())
    whole = gathered(
        studies,
        origin={"priors": priors, "checkpoints": {one.name: one.digest[:16] for one in found}},
        shown=("prior", "length", "predictor", "kl", "stderr", "excess", "excess_stderr", "excess_share", "floored"),
    )
    notes = ["floored: share of sequences in which a possible symbol was given less than the floor"]
    notes += [] if found else ["no trained checkpoint was found; `python -m models sweep zoo` trains them"]
    return replace(whole, notes=notes)
