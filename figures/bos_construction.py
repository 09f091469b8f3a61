"""Construction with BOS, at large beta.

Weights, attention, exact matches and BOS at the last query. It joins
fig:app2_bos_con_weights and fig:app2_bos_con_attn of the paper.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from figures import _attention as panels
from figures import _circuit as circuit
from figures.rows import Row
from figures.verdict import Check, Verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LABEL = "fig:app2_bos_con_attn"
ANALYSES = ("construction_attention",)
CLAIM = (
    "With BOS the construction's match bias lifts BOS at the largest distance and masks the first k tokens; it matches "
    "sharply and stays smooth, because BOS holds alpha|V| pseudo-counts."
)
CONSTRUCTION = "bos"


def chosen(results: dict[str, list[Row]]) -> dict[str, list[Row]]:
    return panels.construction_page(results, CONSTRUCTION)


def draw(results: dict[str, list[Row]]) -> Figure:
    row = panels.page_row(results)
    return panels.draw_page(
        row,
        title="last query: exact matches and BOS",
        what="construction_attention, bos",
        scores=True,
    )


def caption(results: dict[str, list[Row]]) -> str:
    row = panels.page_row(results)
    return panels.page_caption(row, model="The construction with BOS", scores=True)


def verdict(results: dict[str, list[Row]]) -> Verdict:
    row = panels.page_row(results)
    if row is None:
        return circuit.verdict_of({}, measured=())
    expected = circuit.expected_bos_share(row, row["alpha"])
    share, bias, order = row["mass"]["bos"], row["match_bias"], circuit.order_of(row)
    masked, rest = max(bias[-1 - order : -1]), 1 - share - row["mass"]["full"]
    checks = circuit.construction_checks(row) | {
        "the match bias lifts BOS": Check(passed=bias[-1] > 0, found=f"{bias[-1]:+.2f} at its distance"),
        "the match bias masks the first k tokens": Check(
            passed=masked <= -panels.FORBIDDEN, found=f"at most {masked:.0f} at their distances"
        ),
        "BOS has alpha|V|/(n + alpha|V|)": Check(
            passed=abs(share - expected) <= 1 - circuit.HARD, found=f"{share:.4f}, {expected:.4f}"
        ),
        "the rest is on full matches": Check(passed=rest <= 1 - circuit.HARD, found=f"{rest:.4f} is elsewhere"),
    }
    measured = [
        circuit.copies_in_words(row),
        f"bias {bias[-1]:.2f} at the distance of BOS, {masked:.0f} at those of the first tokens",
        f"BOS {share:.4f}, alpha|V|/(n + alpha|V|) = {expected:.4f}",
    ]
    return circuit.verdict_of(
        checks,
        measured=measured,
        headline=f"BOS has {share:.4f} of the last query's attention, and alpha|V| pseudo-counts would have "
        f"{expected:.4f} (one sequence).",
        number=f"attention on BOS {share:.4f}; alpha|V|/(n + alpha|V|) = {expected:.4f} (one sequence)",
    )
