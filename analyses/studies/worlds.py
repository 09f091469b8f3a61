"""Soft matching at its optimum in many worlds: what predicts the optimum, who reaches it, and what Bayes adds to it.

    python -m analyses worlds                                          everything
    python -m analyses worlds --questions context --prior independent:1 --length 128

The questions, each with its own columns:

optimum  the law of the optimum on the second test grid, worlds that it was not tuned on (analyses.parts.world_grid).
         `searched_*` is the optimum that `optimal_parameters` finds on sampled sequences, `derived_*` that of
         `predicted_parameters` without its fitted term, `predicted_*` with it, `leading_*` the explicit leading order.
         `over_*` is the KL at those parameters over that at the searched ones, minus 1, on the same sequences.
         `error_*` is predicted minus searched, in nats; empty where the search found no finite value. `sigmas` is the
         largest error in standard errors of the search
excess   what soft matching at the searched optimum adds to the KL of the Bayes predictor, in nats, and as a `share` of
         Bayes' own KL. `queries_*` and `excess_*` say how the last queries, and the excess, are spread over the
         visits of the query's full context before
context  of trained models and estimators on one prior and length, the excess over Bayes within bins of the same
         sequences: `seen`, how often the last context has occurred before; `entropy` of the true law, as a share of
         ln |V|; `position` where the prediction is made, at which `soft matching` keeps the parameters that are best at
         the full length and `soft matching, retuned` has the best ones for that position. `contribution` is the bin's
         share of sequences times its excess, `contribution_share` its part of the whole

The tables of `optimum` and `excess` are shipped; the tests measure some of their worlds again. The notes also say what
the first version of the law gave on the first test grid. Trained models of other worlds stand beside their optima in
`python -m analyses optimal --sweeps zoo --zoo models/other_worlds`.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

import numpy as np

import interp as ip
from analyses.parts.estimators import additive, alpha_of, optimum, soft_at
from analyses.parts.heldout import Predictor, Sequences, excess_columns, measure, measure_bayes, predictor_of
from analyses.parts.world_grid import EXCESS, NAMES, VISITS, shipped_table
from analyses.running.ask import Ask
from analyses.running.cache import Cache
from analyses.running.options import PRIOR_FORMS, ChainOptions, ZooOptions, option
from analyses.running.subject import Subject, find_subjects
from analyses.running.table import Table, gathered

GRID = "second_test"
SHOWN = (
    "question", "prior", "order", "vocab", "length", "bos", "kl", "over_predicted", "over_derived", "worst", "sigmas",
)  # fmt: skip
NEAR, FAR = 0.02, 0.05  # KL over the searched optimum's, or over Bayes'
CLOSE = 0.25  # nats
SEEN = (("0", 0, 0), ("1", 1, 1), ("2", 2, 2), ("3-5", 3, 5), ("more", 6, math.inf))
ENTROPY_EDGES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)

Question = Literal["optimum", "excess", "context"]
Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Options(ChainOptions, ZooOptions):
    batch: int = option(4000, "sequences for each KL (default: %(default)s)", metavar="N", least=2)
    questions: tuple[Question, ...] = option(("optimum", "excess", "context"), "which (default: all)")
    draws: int = option(40_000, "sequences that optima are found on (default: %(default)s)", metavar="N", least=100)
    bayes_draws: int = option(
        120, "posterior draws of the Bayes predictor (default: %(default)s)", metavar="N", least=16
    )
    prior: str = option("hierarchical:5", f"of the contexts: {PRIOR_FORMS} (default: %(default)s)", metavar="PRIOR")
    length: int = option(64, "of the contexts: tokens (default: %(default)s)", metavar="T", least=2)
    all_seeds: bool = option(False, "all checkpoints of that prior and length, not one of each kind")


ASK = Ask(options=Options(), cost=2.0)


def pieces(options: Options) -> list[Question]:
    return list(dict.fromkeys(options.questions))


def together(options: Options, piece: Question) -> str:
    """`kl_curves` needs the same optimum as the contexts."""
    return f"{options.prior} T={options.length}" if piece == "context" else f"worlds {piece}"


def study_piece(options: Options, piece: Question, cache: Cache) -> Table:
    """The rows of one question, with what they say."""
    ask = {"optimum": optimum_table, "excess": excess_table, "context": context_table}
    found = ask[piece](options, cache)
    return dataclasses.replace(found, rows=[{"question": piece, **row} for row in found.rows])


def join(options: Options, studies: Sequence[Table]) -> Table:
    """All questions in one table."""
    zoo = find_subjects(options.zoo, unfinished=options.unfinished)
    return gathered(studies, origin={"checkpoints": {one.name: one.digest[:16] for one in zoo}}, shown=SHOWN)


# --- the law of the optimum ---------------------------------------------------------------------------------------


def optimum_table(options: Options, cache: Cache) -> Table:
    """The shipped second test grid, row by row, and what it says of the law."""
    rows, first = ([judged(row) for row in shipped_table(grid)] for grid in (GRID, "test"))
    notes = [*optimum_notes(rows), f"The first version of the law on the first test grid: {closeness(first)}"]
    return Table(rows=rows, notes=notes)


def judged(row: Row) -> Row:
    """The row with ratios and errors."""
    errors = {name: _error(row[f"predicted_{name}"], row[f"searched_{name}"]) for name in NAMES}
    if row["searched_combination"] is not None and row["predicted_combination"] is not None:
        errors["kappa"] = row["predicted_combination"] - row["searched_combination"]
    known = {name: abs(value) for name, value in errors.items() if value is not None}
    sizes = [value / row[f"stderr_{name}"] for name, value in known.items() if row[f"stderr_{name}"]]
    return {
        **row,
        **{f"over_{name}": row[f"kl_{name}"] / row["kl"] - 1.0 for name in ("predicted", "derived", "leading")},
        **{f"error_{name}": value for name, value in errors.items()},
        "worst": max(known.values(), default=None),
        "sigmas": max(filter(math.isfinite, sizes), default=None),
    }


def _error(predicted: float | None, searched: float | None) -> float | None:
    """Predicted minus searched, where both are finite."""
    if predicted is None or searched is None or not math.isfinite(predicted - searched):
        return None
    return predicted - searched


def optimum_notes(rows: list[Row]) -> list[str]:
    """What share of the worlds is near the searched optimum, with and without the fitted term, and which are far."""
    lines = []
    for name in ("predicted", "derived", "leading"):
        over = [row[f"over_{name}"] for row in rows]
        lines.append(
            f"KL at {name} parameters: within {NEAR:.0%} of the searched in {share(over, NEAR)} of {len(rows)} worlds, "
            f"within {FAR:.0%} in {share(over, FAR)}; largest {max(over):+.1%}."
        )
    return [*lines, closeness(rows)] + [
        f"Beyond {FAR:.0%}: {row['prior']}, k = {row['order']}, |V| = {row['vocab']}, T = {row['length']}, "
        f"{'BOS' if row['bos'] else 'no BOS'}: {row['over_predicted']:+.1%} of a KL of {row['kl']:.4f}"
        for row in sorted(rows, key=lambda row: -row["over_predicted"])
        if row["over_predicted"] > FAR
    ]


def closeness(rows: list[Row]) -> str:
    """In what share of the cases beta and kappa themselves are near the searched ones."""
    errors = {name: [abs(row[f"error_{name}"]) for row in rows if row[f"error_{name}"] is not None] for name in NAMES}
    kappa, beta = errors.pop("kappa"), list(itertools.chain(*errors.values()))
    kinds = {"parameters": beta + kappa, "beta": beta, "kappa": kappa}
    parts = [f"{share(found, CLOSE)} of {len(found)} {name}" for name, found in kinds.items()]
    return f"Within {CLOSE} nats: {', '.join(parts)}."


def share(values: Sequence[float], most: float) -> str:
    """How many are at most this large, as a percentage."""
    return f"{sum(one <= most for one in values) / max(len(values), 1):.1%}"


# --- the excess over Bayes ----------------------------------------------------------------------------------------


def excess_table(options: Options, cache: Cache) -> Table:
    """The shipped map, row by row: how many worlds are near Bayes, and how much of the excess rare contexts carry."""
    rows = [with_error(row) for row in shipped_table(EXCESS)]
    notes = []
    for order in sorted({row["order"] for row in rows}):
        shares = [row["share"] for row in rows if row["order"] == order]
        near = sum(one <= FAR for one in shares)
        notes.append(
            f"k = {order}: within {FAR:.0%} of Bayes in {near} of {len(shares)} worlds; largest {max(shares):.1%}."
        )
    for length in sorted({row["length"] for row in rows}):
        here = [row for row in rows if row["length"] == length]
        parts = []
        for name in VISITS:
            queries, carried = (fmean(row[f"{what}_{name}"] for row in here) for what in ("queries", "excess"))
            parts.append(f"{name} visits {queries:.0%} and {carried:.0%}")
        notes.append(f"T = {length}, share of the queries and of the excess: {', '.join(parts)}.")
    return Table(rows=rows, notes=notes)


def with_error(row: Row) -> Row:
    """The row with a standard error of the share, from those of its two parts as if they were independent."""
    parts = row["excess_stderr"] / row["excess"], row["kl_bayes_stderr"] / row["kl_bayes"]
    return {**row, "share_stderr": row["share"] * math.hypot(*parts)}


# --- contexts -----------------------------------------------------------------------------------------------------


def context_table(options: Options, cache: Cache) -> Table:
    """The excess of every predictor, bin by bin."""
    prior = ip.parse_prior(options.prior, order=options.order, vocab=options.vocab)
    models = chosen(
        find_subjects(options.zoo, unfinished=options.unfinished), prior, length=options.length, every=options.all_seeds
    )
    sequences = Sequences(prior=prior, batch=options.batch, length=options.length, seed=options.seed)
    bayes = measure_bayes(sequences, cache, draws=options.bayes_draws)
    fixed = soft_matching_at(prior, options.length, "soft matching", options, cache)
    # add-alpha has the prior's own alpha if it is independent, and else 0.5, the better of the usual ones.
    usual = additive(prior, alpha_of(prior) if prior.independent else 0.5)
    measured = {one.name: measure(sequences, one, cache).values for one in (fixed, usual, *map(predictor_of, models))}
    rows = [
        bin_row(by, label, name, values, bayes.values, inside)
        for by, bins in (("seen", seen_bins(sequences)), ("entropy", entropy_bins(sequences)))
        for label, inside in bins.items()
        for name, values in {"bayes": bayes.values, **measured}.items()
        if inside.any()
    ]
    for position in sorted({one for one in (options.length >> shift for shift in range(5)) if one > prior.order}):
        # A prefix of a chain is a chain, so each position has sequences of that length.
        shorter = Sequences(prior=prior, batch=options.batch, length=position, seed=options.seed)
        own = soft_matching_at(prior, position, "soft matching, retuned", options, cache)
        predictors = [fixed, own, usual, *(predictor_of(one) for one in models if position == options.length)]
        best = measure_bayes(shorter, cache, draws=options.bayes_draws).values
        values = {"bayes": best} | {one.name: measure(shorter, one, cache).values for one in predictors}
        for name, kl in values.items():
            row = bin_row("position", str(position), name, kl, best, best == best)
            rows.append({**row, "contribution": None, "contribution_share": None})
    summaries = {model.name: model.summary() for model in models}
    where = {"prior": options.prior, "order": prior.order, "vocab": prior.vocab, "length": options.length}
    whole = {name: excess_columns(values, bayes.values) for name, values in measured.items()}
    parts = [f"{name} {one['excess']:.4f} ({one['excess_share']:+.1%})" for name, one in whole.items()]
    notes = [f"{options.prior}, T = {options.length}: Bayes {bayes.values.mean():.4f} nats; excess: {', '.join(parts)}"]
    return Table(
        rows=[{**where, **row, "subject": summaries.get(row["predictor"])} for row in rows],
        notes=notes if models else [*notes, "no trained checkpoint of this prior and length was found"],
        failures=[] if bayes.converged else ["the Bayes predictor did not converge; try more --bayes-draws"],
    )


def chosen(subjects: list[Subject], prior: ip.Prior, *, length: int, every: bool) -> list[Subject]:
    """The checkpoints of this prior and length: all, or the first seed of each family, start and BOS."""
    fitting = [one for one in subjects if one.trained_on(prior, length=length)]
    kinds: dict[tuple[str, str | None, bool], Subject] = {}
    for one in fitting:
        kinds.setdefault((one.model_config["family"], one.start, one.model_config["bos"]), one)
    return fitting if every else list(kinds.values())


def soft_matching_at(prior: ip.Prior, length: int, name: str, options: Options, cache: Cache) -> Predictor:
    """Soft matching with BOS at the population optimum of this length."""
    best = optimum(prior, length=length, bos=True, draws=options.draws, seed=options.seed + 1, cache=cache)
    return soft_at(best, name)


def seen_bins(sequences: Sequences) -> dict[str, np.ndarray]:
    """By the number of exact matches of the last context."""
    counts = ip.mask_counts(sequences.tokens, order=sequences.prior.order, vocab=sequences.prior.vocab)
    exact = counts[:, -1].sum(-1).numpy()
    return {label: (exact >= low) & (exact <= high) for label, low, high in SEEN}


def entropy_bins(sequences: Sequences) -> dict[str, np.ndarray]:
    """By the entropy of the true law over ln |V|."""
    from scipy.special import entr

    entropy = entr(sequences.chains.next_law.numpy()).sum(-1) / np.log(sequences.prior.vocab)
    place = np.clip(np.digitize(entropy, ENTROPY_EDGES) - 1, 0, len(ENTROPY_EDGES) - 2)
    edges = itertools.pairwise(ENTROPY_EDGES)
    return {f"{low:g}-{high:g}": place == number for number, (low, high) in enumerate(edges)}


def bin_row(by: str, label: str, name: str, values: np.ndarray, bayes: np.ndarray, inside: np.ndarray) -> Row:
    """One predictor in one bin."""
    numbers = excess_columns(values[inside], bayes[inside])
    contribution = float(inside.mean()) * numbers["excess"]
    whole = float((values - bayes).mean())
    return {
        "by": by,
        "bin": label,
        "predictor": name,
        "n": int(inside.sum()),
        "share": float(inside.mean()),
        **numbers,
        "contribution": contribution,
        "contribution_share": contribution / whole if whole else None,
    }
