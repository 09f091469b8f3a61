"""Attention of the constructions without and with BOS, the last query by overlap.

Draws the rows of `python -m analyses construction_attention`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from interp.plotting import OVERLAP_COLOURS, attention_heatmap, induction_bars, overlap_handles

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LABEL = "fig:mech_indep"
ANALYSES = ("construction_attention",)

LEAST_MASS = 1e-6  # hard attention leaves 1e-43 on other matches: not worth a legend entry


def draw(results: dict[str, list[dict[str, Any]]]) -> Figure:
    """A row for each construction: its copy heads, its match head, and the last query's weights."""
    import matplotlib.pyplot as plt

    rows = results["construction_attention"]
    heads = len(rows[0]["copy_pattern"])
    figure = plt.figure(figsize=(6.3, 1.4 * len(rows) + 0.5))
    grid = figure.add_gridspec(len(rows), heads + 2, width_ratios=[1.0] * (heads + 1) + [2.4])
    for place, row in enumerate(rows):
        first = 0 if row["bos"] else 1  # token t is at position t, and BOS at 0
        *maps, bars = (figure.add_subplot(grid[place, column]) for column in range(heads + 2))
        patterns = [*row["copy_pattern"], row["match_pattern"]]
        names = [f"copy head, lag {head + 1}" for head in range(heads)] + ["match head"]
        for panel, pattern, name in zip(maps, patterns, names, strict=True):
            attention_heatmap(panel, np.array(pattern), first_position=first, mark_last=panel is maps[-1])
            panel.set_xticks([first, row["length"] // 2, row["length"]])
            panel.set_yticks([first, row["length"] // 2, row["length"]])
            if place == 0:
                panel.set_title(name)
            if panel is not maps[0]:
                panel.set_ylabel("")
        induction_bars(bars, np.array(row["weights"]), row["kinds"], first_position=first)
        bars.set_xlim(-1.5, row["length"] + 1.5)
        bars.set_ylim(0, 1.3 * max(row["weights"]))
        bars.set_title(title_of(row))
        masses = {kind: row[f"mass_{kind}"] for kind in OVERLAP_COLOURS if row[f"mass_{kind}"] > LEAST_MASS}
        bars.legend(handles=overlap_handles(masses), loc="upper right", borderaxespad=0.0, handlelength=1.0)
        for panel in [*maps, bars] if place < len(rows) - 1 else []:
            panel.set_xlabel("")
    ticks = [0.0, 0.05, 0.2, 0.5, 1]
    bar = figure.colorbar(
        figure.axes[0].images[0],
        ax=[panel for panel in figure.axes if panel.images],
        location="top",
        shrink=0.5,
        aspect=40,
        ticks=ticks,
        label="attention weight",
    )
    bar.ax.set_xticklabels([f"{tick:g}" for tick in ticks])
    bar.ax.minorticks_off()
    return figure


def title_of(row: dict[str, Any]) -> str:
    """What the construction is."""
    beta = row["beta"][0]
    if row["bos"]:
        return rf"BOS: $\beta={beta:g}$, $\kappa=k\beta+\ln(\alpha|V|)$ (add-{row['alpha']:g})"
    kind = "counting" if row["construction"] == "hard" else "interpolation"
    return rf"no BOS: $\beta={beta:.3g}$ ({kind})"


def caption(results: dict[str, list[dict[str, Any]]]) -> str:
    """What is to be seen, with the numbers."""
    rows = {row["construction"]: row for row in results["construction_attention"]}
    hard, soft, bos = rows["hard"], rows["adaptive"], rows["bos"]
    return (
        f"Attention of the constructions of prop:transformer_estimator on one sequence of the independent prior "
        f"(alpha = {hard['alpha']:g}, k = {hard['order']}, |V| = {hard['vocab']}, T = {hard['length']}). "
        f"From left: the copy heads and the match head at all queries, and the match weights of the last query "
        f"(arrow), each key coloured by its overlap with the query's context; the legends give each kind's mass. "
        f"Top, hard matching (beta = {hard['beta'][0]:g}): all mass on full matches. "
        f"Middle, the beta of lemma:optimal_beta ({soft['beta'][0]:.3g}): {soft['mass_full']:.2f} on full, "
        f"{soft['mass_partial']:.2f} on partial and {soft['mass_none']:.2f} on empty matches. "
        f"Bottom, hard matching with BOS (position 0) at kappa = k beta + ln(alpha |V|): {bos['mass_bos']:.2f} on BOS, "
        f"which adds alpha to every count. Colours follow the square root of the weight, and the vertical scales of "
        f"the bars differ. The relative bias is tied to the length, so only the last query computes the estimator."
    )
