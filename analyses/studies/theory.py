"""The theory check: every statement of the paper, measured, with a verdict.

    python -m analyses theory                 a table, one row per claim; exits with 1 if one fails
    python -m analyses theory --json          rows with label, claim, cases, error, tolerance, holds, note
    python -m analyses theory --only lemma    the claims whose label contains "lemma"

Models are real HookedTransformers in float64. What they are compared with are the estimators of counts, which the tests
compare with the paper's definitions, written as double loops. --batch is the number of sequences in each random
setting. A claim holds if its largest error is within the tolerance and every control behaves.
"""

from __future__ import annotations

import importlib
import math
from dataclasses import dataclass
from typing import Any

from analyses.running.ask import Ask
from analyses.running.cache import Cache
from analyses.running.options import Options as CommonOptions
from analyses.running.options import option
from analyses.running.table import Table

# In the paper's order: module of analyses.studies.theorems and its function, which gets seed and batch, and whose
# docstring says what is compared; the paper's label; the tolerance.
CLAIMS: tuple[tuple[str, str, float], ...] = (
    ("estimators.transformer_estimator", "prop:transformer_estimator", 1e-9),
    ("estimators.add_constant", "prop:add_constant", 1e-9),
    ("estimators.sub_ngrams", "lemma:transformer_estimator", 1e-9),
    ("estimators.mixture", "corollary:mixture", 1e-9),
    ("estimators.jelinek_mercer", "eq:jelinek_mercer", 1e-9),
    ("gradient.transformer_gradient", "eq:transformer_gradient", 1e-9),
    ("gradient.first_order", "lemma:first_order", 1e-4),
    ("gradient.approx_condition", "eq:approx_gradient_condition", 1e-9),
    ("gradient.closed_form", "lemma:optimal_beta", 1e-9),
    ("gradient.three_methods", "lemma:optimal_beta", 1e-6),
    ("estimators.katz_where_covered", "sec:interpretation", 1e-9),
    ("estimators.hard_limit", "sec:interpretation", 1e-9),
    ("symmetry.label_symmetry", "eq:label_symmetry", 1e-9),
    ("symmetry.invariant_descent", "theorem:invariance", 1e-9),
    ("symmetry.invariant_matrix", "lemma:permutation_invariant_matrix", 1e-12),
    ("symmetry.inductive", "corollary:inductive", 1e-9),
)


@dataclass(frozen=True, kw_only=True)
class Options(CommonOptions):
    batch: int = option(8, "sequences in each random setting (default: %(default)s)", metavar="N", least=1)
    only: str | None = option(None, "check only claims whose label contains TEXT", metavar="TEXT")


ASK = Ask(cost=4.5)


def study(options: Options, cache: Cache) -> Table:
    """All claims, one row each."""
    from models.running.progress import progress_bar

    only = options.only or ""
    chosen = [claim for claim in CLAIMS if only in claim[1]]
    if not chosen:
        labels = ", ".join(dict.fromkeys(claim[1] for claim in CLAIMS))
        raise ValueError(f"no claim's label contains {only!r}; there are {labels}")
    with progress_bar(iterable=chosen, leave=False) as bar:
        rows = [checked(claim, seed=options.seed, batch=options.batch) for claim in bar]
    failed = [row for row in rows if not row["holds"]]
    notes = [f"{row['label']}: {row['note']}" for row in rows if row["note"]]
    return Table(
        rows=rows,
        shown=("label", "holds", "error", "tolerance", "claim", "cases"),
        notes=[*notes, "", f"{len(rows) - len(failed)} of {len(rows)} claims hold."],
        failures=[f"{row['label']}: {row['claim']} (error {row['error']:.2g}; {row['note']})" for row in failed],
    )


def checked(claim: tuple[str, str, float], *, seed: int, batch: int) -> dict[str, Any]:
    """One row; the note names the controls that failed. An error that is NaN fails, and so does a check of no case."""
    place, label, tolerance = claim
    module, _, name = place.partition(".")
    check = getattr(importlib.import_module(f"analyses.studies.theorems.{module}"), name)
    found = check(seed, batch)
    broken = [control for control, passed in found.controls.items() if not passed]
    broken += ["at least one case"] if found.cases < 1 else []
    note = f"{found.note}; failed: {', '.join(broken)}".removeprefix("; ") if broken else found.note
    return {
        "label": label,
        "claim": " ".join((check.__doc__ or "").split()),
        "cases": found.cases,
        "error": float(found.error),
        "tolerance": tolerance,
        "holds": math.isfinite(found.error) and found.error <= tolerance and not broken,
        "note": note,
    }
