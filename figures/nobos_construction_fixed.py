"""Construction without BOS, fixed large beta.

Weights, attention, hard matching at the last query. It joins
fig:app2_nobos_con_fixed_weights and fig:app2_nobos_con_fixed_attn of the paper.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from figures import _attention as panels
from figures import _circuit as circuit
from figures.rows import Row
from figures.verdict import Check, Verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LABEL = "fig:app2_nobos_con_fixed_attn"
ANALYSES = ("construction_attention",)
CLAIM = (
    "Without BOS and at large beta the construction's copy heads take lags 1 and 2, its match weights are two shifted "
    "identity blocks, and its attention concentrates on exact matches of the context."
)
CONSTRUCTION = "hard"


def chosen(results: dict[str, list[Row]]) -> dict[str, list[Row]]:
    return panels.construction_page(results, CONSTRUCTION)


def draw(results: dict[str, list[Row]]) -> Figure:
    row = panels.page_row(results)
    return panels.draw_page(
        row,
        title="last query: hard matching (large beta)",
        what="construction_attention, hard",
        scores=False,
    )


def caption(results: dict[str, list[Row]]) -> str:
    row = panels.page_row(results)
    return panels.page_caption(row, model="The construction without BOS at fixed large beta", scores=False)


def verdict(results: dict[str, list[Row]]) -> Verdict:
    row = panels.page_row(results)
    if row is None:
        return circuit.verdict_of({}, measured=())
    checks = circuit.construction_checks(row) | {
        "all on full matches": Check(passed=row["mass"]["full"] >= circuit.HARD, found=circuit.masses_in_words(row)),
    }
    measured = [
        circuit.copies_in_words(row),
        f"beta = {row['beta'][0]:g}",
        f"last query: {circuit.masses_in_words(row)} on {row['kinds'].count('full')} full matches",
    ]
    full, beta = row["mass"]["full"], row["beta"][0]
    return circuit.verdict_of(
        checks,
        measured=measured,
        headline=f"At beta = {beta:g} full matches have {full:.3f} of the last query's attention (one sequence).",
        number=f"attention on full matches {full:.3f} at beta = {beta:g} (one sequence)",
    )
