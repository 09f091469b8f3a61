"""Match weights W_A^(2), construction and trained, T = 128; hard and soft starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from figures.parts import attention as panels
from figures.parts import circuit
from figures.parts.rows import Row
from models.families.registry import PAPER, find_family

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LABEL = "fig:hier_layer2_wa"
ANALYSES = ("attention",)
CLAIMS = ("blocks_long",)
CAPTION = (
    "Match weights W_A^(2) on the hierarchical prior with BOS ({setting}), on one scale: query blocks down, key blocks "
    "across, each |V| x |V|, in the order of the lags that the copy heads write into them ({dashes}). {starts}"
)
LENGTH = 128
WITH_BLOCKS = tuple(family for family in PAPER if find_family(family).blocks)


def chosen(results: dict[str, list[Row]]) -> dict[str, list[Row]]:
    rows = circuit.of_both_starts(results["attention"], LENGTH, **circuit.HIERARCHICAL)
    return {"attention": [circuit.kept(row, "match_weight") for row in rows if row["subject"]["family"] in WITH_BLOCKS]}


def draw(results: dict[str, list[Row]]) -> Figure:
    import matplotlib.pyplot as plt

    columns = panels.columns_of(results, WITH_BLOCKS)
    figure, axes = plt.subplots(1, len(columns), figsize=(6.3, 2.8 if len(columns) < 3 else 2.4))
    length = panels.length_in(results, LENGTH)
    highest = max((float(np.abs(row["match_weight"]).max()) for row in results["attention"]), default=1.0)
    for ax, (family, title, row) in zip(axes, columns, strict=True):
        if row is None:
            panels.note(ax, panels.family_missing(family, length))
            continue
        panels.weight_panel(ax, row, highest=highest)
        ax.set_title(title)
        if ax is not axes[panels.first_column(columns)]:
            ax.set_ylabel("")
    if drawn := [ax.images[0] for ax in axes if ax.images]:
        figure.colorbar(drawn[0], ax=list(axes), label=panels.WEIGHT_LABEL)
    return figure


fields = panels.caption_fields
