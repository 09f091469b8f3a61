"""Match weights W_A^(2), construction and trained, T = 128."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from figures import _attention as panels
from figures import _circuit as circuit
from figures.rows import Row
from figures.verdict import Check, Verdict
from models.families import PAPER, find_family

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LABEL = "fig:hier_layer2_wa"
ANALYSES = ("attention",)
CLAIM = (
    "At T = 128 the match weights of the construction and of the trained disentangled model have the same structure: "
    "they lie in a block for each lag that compares x_{i-r+1} with x_{j-r}. (That the lag-1 block is the larger one is "
    "judged in `lag_asymmetry`.)"
)
LENGTH = 128
WITH_BLOCKS = tuple(family for family in PAPER if find_family(family).blocks)


def chosen(results: dict[str, list[Row]]) -> dict[str, list[Row]]:
    found = circuit.of_one_length(results["attention"], LENGTH, **circuit.HIERARCHICAL)
    return {"attention": [circuit.kept(found[name], "match_weight") for name in WITH_BLOCKS if name in found]}


def draw(results: dict[str, list[Row]]) -> Figure:
    import matplotlib.pyplot as plt

    found = panels.families_of(results)
    figure, axes = plt.subplots(1, len(WITH_BLOCKS), figsize=(6.3, 2.8))
    length = panels.length_in(found, LENGTH)
    highest = max((float(np.abs(row["match_weight"]).max()) for row in found.values()), default=1.0)
    for ax, family in zip(axes, WITH_BLOCKS, strict=True):
        if family not in found:
            panels.note(ax, panels.family_missing(family, length))
            continue
        panels.weight_panel(ax, found[family], highest=highest)
        ax.set_title(f"{find_family(family).label}, T = {length}")
    if found:
        image = next(ax.images[0] for ax in axes if ax.images)
        figure.colorbar(image, ax=list(axes), label=panels.WEIGHT_LABEL)
    return figure


def caption(results: dict[str, list[Row]]) -> str:
    found = panels.families_of(results)
    if not found:
        return "Match weights on the hierarchical task: no checkpoint to show."
    return (
        "Match weights $W_A^{(2)}$ on the hierarchical prior with BOS "
        f"({circuit.setting(next(iter(found.values())))}), on one scale: query blocks down, key blocks across, each "
        "|V| x |V|, in the order of the lags that the copy heads write into them "
        f"({'; '.join(f'{family}: {circuit.copies_in_words(row)}' for family, row in found.items())}; heads are "
        "counted from 0). "
        f"{panels.DASHES[0].upper()}{panels.DASHES[1:]}."
    )


def verdict(results: dict[str, list[Row]]) -> Verdict:
    found = panels.families_of(results)
    checks: dict[str, bool | Check] = {}
    measured, why = [], []
    for family, row in found.items():
        checks[f"{family}: aligned blocks hold at least {circuit.ALIGNED} of W_A"] = Check(
            passed=circuit.is_aligned(row), found=circuit.blocks_in_words(row)
        )
        measured.append(f"{family}: {circuit.blocks_in_words(row)}")
        if note := circuit.block_note(row):
            why.append(f"{family}: {note}")
    missing = [family for family in WITH_BLOCKS if family not in found] if found else ()
    return circuit.verdict_of(
        checks,
        measured=measured,
        missing=missing,
        why=why,
        of="weights of one run each, whatever the sequence",
        **headline(found),
    )


def headline(found: dict[str, Row]) -> dict[str, str]:
    """Where the trained model's weights lie: a sentence and the number."""
    told = {family: row for family, row in circuit.trained_of(found).items() if row.get("raw_beta") is not None}
    if not told:
        return {}
    family, row = next(iter(told.items()))
    sizes = " and ".join(f"{size:.2f}" for size in row["raw_beta"])
    return {
        "headline": f"In the {family} model the aligned blocks hold {row['aligned_share']:.0%} of the match weights "
        f"(of what the softmax sees of their squares); by lag they are {sizes} nats.",
        "number": f"{family}: aligned blocks hold {row['aligned_share']:.0%} of W_A (asked {circuit.ALIGNED:.0%})",
    }
