"""The theory check: every statement of the paper, measured, with a verdict.

    python -m analyses theory                 a table, one row per claim; exits with 1 if one fails
    python -m analyses theory --json          rows with label, claim, cases, error, tolerance, holds, note
    python -m analyses theory --only lemma    the claims whose label contains "lemma"

Models are real HookedTransformers in float64; what they are compared with is written from the paper's definitions,
loop by loop (`analyses.studies.theorems.definitions`). --batch is the number of sequences in each random setting. A
claim holds if its largest error is within the tolerance and every control behaves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from analyses.running.ask import Ask
from analyses.running.options import Options as CommonOptions
from analyses.running.options import option
from analyses.running.table import Table

if TYPE_CHECKING:
    from analyses.running.cache import Cache


# In the paper's order: module of analyses.studies.theorems and its function, which gets seed and batch; the paper's
# label, the tolerance, and what is compared.
CLAIMS: tuple[tuple[str, str, float, str], ...] = (
    ("estimators.transformer_estimator", "prop:transformer_estimator", 1e-9,
     "HookedTransformer = estimator = loop over positions; random betas and beta = 100, with and without BOS"),
    ("estimators.add_constant", "prop:add_constant", 1e-9,
     "construction with kappa = k beta + ln(alpha |V|) against add-alpha at beta = 32"),
    ("estimators.sub_ngrams", "lemma:transformer_estimator", 1e-9,
     "estimator on N_M = sum of gamma^|M| K_M(m), normalised, beta from -1 to 5"),
    ("estimators.mixture", "corollary:mixture", 1e-9,
     "order, then pattern of that size, then its model: the mixture is the estimator, weights sum to 1"),
    ("estimators.jelinek_mercer", "eq:jelinek_mercer", 1e-9,
     "k = 1: estimator = lambda_0 unigram + lambda_1 bigram, lambda of eq:transformer_mixture"),
    ("gradient.transformer_gradient", "eq:transformer_gradient", 1e-9,
     "its terms are the gradient in gamma of the loss of the HookedTransformer"),
    ("gradient.first_order", "lemma:first_order", 1e-4,
     "E[X / (c + Y)] = mean(X) / (c + mean(Y)) to first order; what is left out is Taylor's second order"),
    ("gradient.approx_condition", "eq:approx_gradient_condition", 1e-9,
     "it holds where E[B(m)] = alpha for every symbol (eq:sufficient_conditions), exact over all sequences"),
    ("gradient.closed_form", "lemma:optimal_beta", 1e-9,
     "the closed form solves its own approximate equation (relative error), and is the k = 1 formula there"),
    ("gradient.three_methods", "lemma:optimal_beta", 1e-6,
     "line search = polynomial root (difference in beta); E[pseudo-count] = alpha on fresh sequences"),
    ("estimators.katz_where_covered", "sec:interpretation", 1e-9,
     "Katz = limit of equal betas, at k = 1 and wherever the full context was seen"),
    ("estimators.hard_limit", "sec:interpretation", 1e-9,
     "limit of equal betas = average over the matches of largest overlap, contiguous or not"),
    ("estimators.lexicographic_limit", "sec:interpretation", 1e-9,
     "k = 2, limit of beta_1 = 2 beta_2: Katz wherever the last token was seen before"),
    ("symmetry.independent_prior", "eq:label_symmetry", 1e-9,
     "independent prior: P(x) = P(sigma x), exact by summing the urn's seatings (relative error)"),
    ("symmetry.hierarchical_prior", "eq:label_symmetry", 1e-9,
     "hierarchical prior: P(x) = P(sigma x), exact by summing the urn's seatings (relative error)"),
    ("symmetry.gradient_equivariance", "theorem:invariance", 1e-10,
     "gradient at relabeled parameters = relabeled gradient (symmetrised batch); eq:parameter_relabeling"),
    ("symmetry.invariant_descent", "theorem:invariance", 1e-9,
     "30 steps of full-batch descent from a symmetric start: parameters and predictor stay symmetric"),
    ("symmetry.invariant_matrix", "lemma:permutation_invariant_matrix", 1e-12,
     "the average over all relabelings is a I + b J, with a and b from the means on and off the diagonal"),
    ("symmetry.inductive", "corollary:inductive", 1e-9,
     "HookedTransformer with blocks a I + b J = estimator over pairs of lags with beta = a, for any b"),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Options(CommonOptions):
    batch: int = option(8, "sequences in each random setting (default: %(default)s)", metavar="N", least=1)
    only: str | None = option(None, "check only claims whose label contains TEXT", metavar="TEXT")


ASK = Ask(cost=4.5)


def study(options: Options, cache: Cache) -> Table:
    """All claims, one row each."""
    from interp.results import provenance
    from models.running.progress import progress_bar

    only = options.only or ""
    chosen = [claim for claim in CLAIMS if only in claim[1]]
    if not chosen:
        labels = ", ".join(dict.fromkeys(claim[1] for claim in CLAIMS))
        raise ValueError(f"no claim's label contains {only!r}; there are {labels}")
    with progress_bar(iterable=chosen, leave=False) as bar:
        rows = [checked(claim, seed=options.seed, batch=options.batch) for claim in bar]
    failed = [row for row in rows if not row["holds"]]
    return Table(
        rows=rows,
        provenance=provenance(seed=options.seed),
        shown=("label", "holds", "error", "tolerance", "claim", "cases"),
        notes=[
            *(f"{row['label']}: {row['note']}" for row in rows if row["note"]),
            "",
            f"{len(rows) - len(failed)} of {len(rows)} claims hold.",
        ],
        failures=[f"{row['label']}: {row['claim']} (error {row['error']:.2g}; {row['note']})" for row in failed],
    )


def checked(claim: tuple[str, str, float, str], *, seed: int, batch: int) -> dict[str, Any]:
    """One row; the note names the controls that failed. An error that is NaN fails, and so does a check of no case."""
    from analyses.studies.theorems import estimators, gradient, symmetry

    place, label, tolerance, words = claim
    module, name = place.split(".")
    check = getattr({"estimators": estimators, "gradient": gradient, "symmetry": symmetry}[module], name)
    found = check(seed, batch)
    broken = [control for control, passed in found.controls.items() if not passed]
    broken += ["at least one case"] if found.cases < 1 else []
    note = f"{found.note}; failed: {', '.join(broken)}".removeprefix("; ") if broken else found.note
    holds = math.isfinite(found.error) and found.error <= tolerance and not broken
    return {
        "label": label,
        "claim": words,
        "cases": found.cases,
        "error": float(found.error),
        "tolerance": tolerance,
        "holds": holds,
        "note": note,
    }
