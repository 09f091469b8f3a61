"""The theory check: every statement of the paper, measured, with a verdict.

    python -m analyses theory                 a table, one row per claim; exits with 1 if one fails
    python -m analyses theory --json          rows with label, claim, cases, error, tolerance, holds, note
    python -m analyses theory --only lemma    the claims whose label contains "lemma"

Models are real HookedTransformers in float64; what they are compared with is written from the paper's definitions,
loop by loop (`analyses.studies.theorems.definitions`). --batch is the number of sequences in each random setting.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from analyses.running.ask import Ask
from analyses.running.options import Options as CommonOptions
from analyses.running.options import option
from analyses.running.subject import Study

if TYPE_CHECKING:
    from analyses.running.cache import Cache
    from analyses.studies.theorems.result import Claim

KIND = "study"

# module of analyses.studies.theorems, function, the paper's label; in the paper's order. Names, because the modules
# need torch: `check_of` imports them.
CLAIMS = [
    ("estimators", "transformer_estimator", "prop:transformer_estimator"),
    ("estimators", "add_constant", "prop:add_constant"),
    ("estimators", "sub_ngrams", "lemma:transformer_estimator"),
    ("estimators", "mixture", "corollary:mixture"),
    ("estimators", "jelinek_mercer", "eq:jelinek_mercer"),
    ("gradient", "transformer_gradient", "eq:transformer_gradient"),
    ("gradient", "first_order", "lemma:first_order"),
    ("gradient", "approx_condition", "eq:approx_gradient_condition"),
    ("adaptive_beta", "closed_form", "lemma:optimal_beta"),
    ("adaptive_beta", "three_methods", "lemma:optimal_beta"),
    ("backoff", "katz_where_covered", "sec:interpretation"),
    ("backoff", "hard_limit", "sec:interpretation"),
    ("backoff", "lexicographic_limit", "sec:interpretation"),
    ("priors", "independent_prior", "eq:label_symmetry"),
    ("priors", "hierarchical_prior", "eq:label_symmetry"),
    ("invariance", "gradient_equivariance", "theorem:invariance"),
    ("invariance", "invariant_descent", "theorem:invariance"),
    ("blocks", "invariant_matrix", "lemma:permutation_invariant_matrix"),
    ("blocks", "inductive", "corollary:inductive"),
]


@dataclass(frozen=True, kw_only=True)
class Options(CommonOptions):
    batch: int = option(8, "sequences in each random setting (default: %(default)s)", metavar="N", least=1)
    only: str | None = option(None, "check only claims whose label contains TEXT", metavar="TEXT")


ASK = Ask(cost=4.5)


def study(options: Options, cache: Cache) -> Study:
    """All claims, one row each."""
    from interp.results import provenance
    from models.running.progress import progress_bar

    only = options.only or ""
    chosen = [entry for entry in CLAIMS if only in entry[2]]
    if not chosen:
        labels = ", ".join(dict.fromkeys(label for _, _, label in CLAIMS))
        raise ValueError(f"no claim's label contains {only!r}; there are {labels}")
    claims = []
    with progress_bar(iterable=chosen, leave=False) as bar:
        for module, function, label in bar:
            bar.set_description(label)
            claims.append(check_of(module, function)(options.seed, options.batch))
    failed = [claim for claim in claims if not claim.holds]
    held = len(claims) - len(failed)
    return Study(
        rows=[asdict(claim) for claim in claims],
        provenance=provenance(seed=options.seed),
        shown=("label", "holds", "error", "tolerance", "claim", "cases"),
        notes=[
            *(f"{claim.label}: {claim.note}" for claim in claims if claim.note),
            "",
            f"{held} of {len(claims)} claims hold.",
        ],
        failures=[f"{claim.label}: {claim.claim} (error {claim.error:.2g}; {claim.note})" for claim in failed],
    )


def check_of(module: str, function: str) -> Callable[[int, int], Claim]:
    """The function that checks a claim. Its modules are imported by name here, so that the cache sees them."""
    from analyses.studies.theorems import adaptive_beta, backoff, blocks, estimators, gradient, invariance, priors

    modules = {one.__name__: one for one in (adaptive_beta, backoff, blocks, estimators, gradient, invariance, priors)}
    check: Callable[[int, int], Claim] = getattr(modules[f"analyses.studies.theorems.{module}"], function)
    return check
