"""Construction without BOS, the lemma's beta.

Weights, attention, interpolation at the last query. It joins
fig:app2_nobos_con_adaptive_weights and fig:app2_nobos_con_adaptive_attn of the paper.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from figures import _attention as panels
from figures import _circuit as circuit
from figures.rows import Row
from figures.verdict import Check, Verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LABEL = "fig:app2_nobos_con_adaptive_attn"
ANALYSES = ("construction_attention",)
CLAIM = (
    "Without BOS and at the beta of lemma:optimal_beta the construction has the same weights up to the scale of the "
    "match weights, and its attention spreads over partial matches."
)
CONSTRUCTION = "adaptive"
ROUNDING = 1e-4  # results keep six digits


def chosen(results: dict[str, list[Row]]) -> dict[str, list[Row]]:
    return panels.construction_page(results, CONSTRUCTION)


def draw(results: dict[str, list[Row]]) -> Figure:
    row = panels.page_row(results)
    return panels.draw_page(
        row,
        title="last query: interpolation (the lemma's beta)",
        what="construction_attention, adaptive",
        scores=False,
    )


def caption(results: dict[str, list[Row]]) -> str:
    row = panels.page_row(results)
    return panels.page_caption(
        row, model="The construction without BOS at the beta of lemma:optimal_beta", scores=False
    )


def verdict(results: dict[str, list[Row]]) -> Verdict:
    row = panels.page_row(results)
    if row is None:
        return circuit.verdict_of({}, measured=())
    means = row["per_key"]
    ratio = math.log(means["full"] / means["partial"]) if {"full", "partial"} <= set(means) else math.nan
    checks = circuit.construction_checks(row) | {
        f"at least {circuit.SPREAD} on full and on partial matches": Check(
            passed=circuit.spreads(row), found=circuit.masses_in_words(row)
        ),
        "a full match weighs exp(beta) partial ones": Check(
            passed=math.isclose(ratio, row["beta"][0], rel_tol=ROUNDING),
            found=f"log of the ratio {ratio:.4f}, beta {row['beta'][0]:.4f}",
        ),
    }
    measured = [
        circuit.copies_in_words(row),
        f"beta = {row['beta'][0]:.4f}",
        f"log weight of a full over a partial match {ratio:.4f}",
        f"last query: {circuit.masses_in_words(row)}",
    ]
    full, partial = row["mass"]["full"], row["mass"]["partial"]
    return circuit.verdict_of(
        checks,
        measured=measured,
        headline=f"At the lemma's beta = {row['beta'][0]:.2f} the last query puts {full:.2f} on full and "
        f"{partial:.2f} on partial matches (one sequence).",
        number=f"full {full:.2f}, partial {partial:.2f} at beta = {row['beta'][0]:.2f} (one sequence)",
    )
