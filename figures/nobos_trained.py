"""Disentangled model, trained without BOS.

Independent task: weights, attention, soft matching at the last query. It joins
fig:app2_nobos_tr_weights and fig:app2_nobos_tr_attn of the paper.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from figures import _attention as panels
from figures import _circuit as circuit
from figures.rows import Row, nearest
from figures.verdict import Check, Verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LABEL = "fig:app2_nobos_tr_attn"
ANALYSES = ("attention",)
CLAIM = (
    "Trained without BOS, the disentangled model recovers the lag-specific copies and the aligned blocks of the match "
    "weights, and spreads its attention over full and partial matches. (Whether it attends as the construction does, "
    "key by key, is judged in `mech_indep`; whether partial matches do the smoothing, in `smoothing_source`.)"
)
LENGTH = 64


def chosen(results: dict[str, list[Row]]) -> dict[str, list[Row]]:
    row = nearest(results["attention"], LENGTH, family="disentangled", prior="independent", bos=False)
    return {"attention": [] if row is None else [circuit.kept(row, *panels.PAGE_FIELDS)]}


def draw(results: dict[str, list[Row]]) -> Figure:
    row = panels.page_row(results)
    return panels.draw_page(
        row,
        title="last query: soft matching",
        what="disentangled model, independent prior without BOS",
        scores=True,
    )


def caption(results: dict[str, list[Row]]) -> str:
    row = panels.page_row(results)
    return panels.page_caption(
        row, model="The disentangled model trained without BOS on the independent prior", scores=True
    )


def verdict(results: dict[str, list[Row]]) -> Verdict:
    row = panels.page_row(results)
    if row is None:
        return circuit.verdict_of({}, measured=())
    gap = row["readout_moves"]
    checks: dict[str, bool | Check] = {
        f"each copy head puts at least {circuit.SHARP} on its lag, mean over queries": Check(
            passed=circuit.copies_are_sharp(row), found=circuit.copies_in_words(row)
        ),
        f"aligned blocks hold at least {circuit.ALIGNED} of W_A": Check(
            passed=circuit.is_aligned(row), found=circuit.blocks_in_words(row)
        ),
        f"at least {circuit.SPREAD} on full and on partial matches": Check(
            passed=circuit.spreads(row), found=circuit.masses_in_words(row)
        ),
        "full over partial over no match, key by key": Check(
            passed=circuit.is_ordered(row), found=circuit.ratios_in_words(row)
        ),
    }
    measured = [
        circuit.copies_in_words(row),
        circuit.blocks_in_words(row),
        f"last query: {circuit.masses_in_words(row)}",
        f"predicted law and the attention's vote differ by {gap:.2f} in total variation",
    ]
    why = (
        ["the readout smooths as well, which the construction's does not: see `smoothing_source`, which judges that"]
        if gap > circuit.SPREAD
        else []
    )
    why.append(circuit.starts_in_words([row]))
    masses = " and ".join(circuit.mass_text(row, kind) for kind in ("full", "partial"))
    over = circuit.of_sequences([row])
    return circuit.verdict_of(
        checks,
        measured=measured,
        why=why,
        headline=f"The last query puts {masses} on full and partial matches ({over}), and the readout moves "
        f"{gap:.2f} of the attention's vote (one sequence).",
        number=f"full and partial matches {masses} ({over}); the readout moves {gap:.2f} of the vote",
    )
