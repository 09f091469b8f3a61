"""The circuit in three families: copies, matching, W_A, the last query.

Left, the scores of the copy heads, ordered by the lag they attend to, and of the match head. Top right, the match
weights of the two disentangled models. Bottom right, the last query's attention.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from figures import _attention as panels
from figures import _circuit as circuit
from figures.panels import on_one_scale
from figures.rows import Row
from figures.verdict import Check, Verdict
from models.families import PAPER, find_family

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

LABEL = "fig:mech_main"
ANALYSES = ("attention",)
CLAIM = (
    "On the hierarchical task with BOS the construction, the trained disentangled and the standard transformer run the "
    "same circuit: sharp copies at lags 1 and 2, then matching that spreads its mass over full and partial matches. "
    "The match weights of the disentangled models lie in the aligned blocks. (That the lag-1 block is the larger one "
    "is judged in `lag_asymmetry`.)"
)
LENGTH = 32  # app:hierarchical_experiments: the main text's figure is of T = 32
WITH_BLOCKS = tuple(family for family in PAPER if find_family(family).blocks)


def chosen(results: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """The three families at one length."""
    found = circuit.of_one_length(results["attention"], LENGTH, **circuit.HIERARCHICAL)
    fields = ("copy_scores", "match_scores", "match_weight")
    return {"attention": [circuit.kept(row, *fields) for row in found.values()]}


def draw(results: dict[str, list[Row]]) -> Figure:
    import matplotlib.pyplot as plt

    found = panels.families_of(results)
    figure = plt.figure(figsize=(6.3, 4.3))
    left, right = panels.parts_of(figure, columns=2, width_ratios=(1.28, 1.0))
    draw_attention(left, found)
    top, bottom = panels.parts_of(right, rows=2, height_ratios=(1.0, 1.75))
    draw_weights(top, found)
    draw_bars(bottom, found)
    return figure


def draw_attention(figure: SubFigure, found: dict[str, Row]) -> None:
    """Rows: copy heads by lag, match head. Columns: families."""
    heads = max((circuit.order_of(row) for row in found.values()), default=2)
    grid = figure.subplots(heads + 1, len(PAPER))
    length = panels.length_in(found, LENGTH)
    first = panels.first_column(found)
    for column, family in enumerate(PAPER):
        for place, ax in enumerate(grid[:, column]):
            row = found.get(family)
            if row is None:
                panels.note(ax, panels.family_missing(family, length))
            elif place < heads:
                panels.copy_score_panel(ax, row, place)
            else:
                panels.match_score_panel(ax, row)
            ax.set_xlabel("key position" if place == heads else "")
            name = f"copy, lag {place + 1}" if place < heads else "match"
            ax.set_ylabel(f"{name}\nquery position" if column == first else "")
            if place == 0:
                ax.set_title(panels.title_of(family))
            if place < heads and row is not None:
                ax.set_xticklabels([])
            if column != first and row is not None:
                ax.set_yticklabels([])
    panels.below_best_bar(figure, list(grid.flat), location="bottom", shrink=0.7, aspect=40)


def draw_weights(figure: SubFigure, found: dict[str, Row]) -> None:
    """W_A of the two disentangled models, on one scale."""
    axes = figure.subplots(1, len(WITH_BLOCKS))
    rows = {family: found[family] for family in WITH_BLOCKS if family in found}
    highest = max((float(np.abs(row["match_weight"]).max()) for row in rows.values()), default=1.0)
    for ax, family in zip(axes, WITH_BLOCKS, strict=True):
        if family in rows:
            panels.weight_panel(ax, rows[family], highest=highest)
        else:
            panels.note(ax, f"match weights of the {family} model", width=16)
        ax.set_title(f"$W_A^{{(2)}}$, {family if find_family(family).analytic else 'trained'}")
        if family != next(iter(rows), None):
            ax.set_ylabel("")
    if rows:
        image = next(ax.images[0] for ax in axes if ax.images)
        figure.colorbar(image, ax=list(axes), shrink=0.85, aspect=15, label=panels.WEIGHT_LABEL)


def draw_bars(figure: SubFigure, found: dict[str, Row]) -> None:
    """The last query's attention."""
    axes = figure.subplots(len(PAPER), 1)
    length = panels.length_in(found, LENGTH)
    for ax, family in zip(axes, PAPER, strict=True):
        if family in found:
            panels.bars_panel(ax, found[family], title=family, short=True)
        else:
            panels.note(ax, panels.family_missing(family, length), width=32, square=False)
        ax.set_xlabel("key position (BOS is 0)" if ax is axes[-1] else "")
        ax.set_ylabel("weight")
    on_one_scale(ax for ax in axes if ax.containers)
    panels.overlap_key(figure, found.values())


def caption(results: dict[str, list[Row]]) -> str:
    found = panels.families_of(results)
    if not found:
        return "The circuit on the hierarchical task with BOS: no checkpoint to show."
    words = [
        f"One sequence of the hierarchical prior with BOS through {len(found)} model{'s' if len(found) > 1 else ''} "
        f"({circuit.setting(next(iter(found.values())))}).",
        "Left: scores before the softmax of the two copy heads, ordered by the lag they attend to, and of the match "
        "head, each less the largest of its query, which is all that the softmax sees "
        f"(a key {panels.SCORE_RANGE:g} nats below has e^-{panels.SCORE_RANGE:g} of the best one's weight); the number "
        "in a panel is the head's mean weight on its lag over all queries that have a token there "
        "(`last`: of the last query, where BOS takes some). "
        "The red arrow marks the last query, the only one that carries the loss.",
        "Top right: match weights on one scale, query blocks down and key blocks across, in the order of the lags that "
        f"the copy heads write into them ({panels.DASHES}).",
        "Bottom right: the last query's match attention, each key coloured by its overlap; the legends give the share "
        "of each kind, and the vertical scale is one.",
        "Copy heads, counted from 0: "
        + "; ".join(f"{family}: {circuit.copies_in_words(row)}" for family, row in found.items())
        + ".",
        circuit.starts_in_words(found.values()),
    ]
    return " ".join(words).rstrip()


def verdict(results: dict[str, list[Row]]) -> Verdict:
    found = panels.families_of(results)
    checks: dict[str, bool | Check] = {}
    measured, why = [], []
    for family, row in found.items():
        kind = "disentangled" if family in WITH_BLOCKS else family
        checks[f"{family}: each copy head puts at least {circuit.SHARP} on its lag, mean over queries"] = Check(
            passed=circuit.copies_are_sharp(row), found=circuit.copies_in_words(row), part=f"for {kind} copy heads"
        )
        checks[f"{family}: full over partial over no match, key by key"] = Check(
            passed=circuit.is_ordered(row), found=circuit.ratios_in_words(row), part="for the matching"
        )
        checks[f"{family}: at least {circuit.SPREAD} on full and on partial matches"] = Check(
            passed=circuit.spreads(row), found=circuit.masses_in_words(row), part="for the matching"
        )
        parts = [circuit.copies_in_words(row), f"last query {circuit.masses_in_words(row)}"]
        if row["match_weight"] is not None:
            checks[f"{family}: aligned blocks hold at least {circuit.ALIGNED} of W_A"] = Check(
                passed=circuit.is_aligned(row), found=circuit.blocks_in_words(row), part="for the weight blocks"
            )
            parts.append(circuit.blocks_in_words(row))
        measured.append(f"{family}: {', '.join(parts)}")
        if leaning := circuit.last_copies_in_words(row):
            why.append(f"{family}: at the last query, whose prediction carries the loss, the copy heads put {leaning}")
    return circuit.verdict_of(
        checks,
        measured=measured,
        why=why,
        missing=[family for family in PAPER if family not in found] if found else (),
        headline=headline(found),
        number=f"{circuit.copy_number(found)}{aligned_number(found)}" if found else "",
    )


def headline(found: dict[str, Row]) -> str:
    """Copies and matches of the trained models."""
    parts = [
        f"in the {family} model copy heads put {circuit.mean_shares(row)} on lags 1 and 2, and the last query "
        f"{circuit.mass_text(row, 'full')} on full and {circuit.mass_text(row, 'partial')} on partial matches"
        for family, row in circuit.trained_of(found).items()
    ]
    words = "; ".join(parts)
    return f"{words[:1].upper()}{words[1:]} ({circuit.of_sequences(found.values())})." if parts else ""


def aligned_number(found: dict[str, Row]) -> str:
    """How much of a trained model's match weights lies in the aligned blocks."""
    shares = [
        row["aligned_share"] for row in circuit.trained_of(found).values() if row.get("aligned_share") is not None
    ]
    return f"; aligned blocks {shares[0]:.0%}" if shares else ""
