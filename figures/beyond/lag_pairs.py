"""Which tokens the match head compares: a weight for each pair of blocks."""

from __future__ import annotations

import math
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from figures.parts.panels import lettered, of_each_setting
from figures.parts.rows import Results, of_seeds, seeds_shown
from interp.plotting import pair_heatmap

LABEL = "beyond:lag_pairs"
ANALYSES = {"lag_pairs": of_seeds}  # of which the first is drawn
CLAIMS = ("aligned_pairs", "scores_are_the_law")
CAPTION = (
    "Weight beta_{{a,b}} of every pair of query token x_{{t-a}} and key token x_{{s-b}} in the match scores "
    "(corollary:inductive), the first seed of each setting ({setting}): least squares over all "
    "candidate keys of the last query, with a free level per query and a smooth function of the distance; n = "
    "{n} held-out sequences. ± is one standard error, clustered by sequence. The aligned pairs, in which "
    "prop:transformer_estimator has its weights, are framed. Below each map: the share of the explained squared "
    "score that the aligned pairs explain alone, and R2 of all pairs with position."
)
NOTE = "frame: aligned pairs,\nwhere the law has its weights\n±: one standard error"


def draw(results: Results) -> Figure:
    """A map for each setting, its numbers written in."""
    firsts = {setting: seeds[0] for setting, seeds in seeds_shown(results["lag_pairs"]).items()}
    found = of_each_setting({setting: row for setting, row in firsts.items() if row["success"]})
    lines = 1 + len(found) // 3
    figure, axes = plt.subplots(lines, 3, figsize=(6.3, 2.25 * lines))
    panels, spare = axes.flat[: len(found)], axes.flat[-1]
    for ax in axes.flat[len(found) :]:
        ax.set_axis_off()
    largest = max(float(np.abs(row["beta"]).max()) for row in found.values())
    for ax, (setting, row) in zip(panels, found.items(), strict=True):
        pair_heatmap(ax, np.array(row["beta"]), np.array(row["stderr"]), highest=largest, fontsize=6.5)
        ax.set_title(f"{setting.title}, T = {row['subject']['length']}")
        ax.set_xlabel(f"key block\naligned pairs {row['aligned_share']:.1%}, $R^2$ = {row['r2']:.3f}")
    lettered(panels)
    end = math.floor(largest) or largest
    words: dict[str, Any] = {"ticks": [-end, 0, end], "label": r"weight $\beta_{a,b}$ (nats)"}
    place = spare.inset_axes((0.0, 0.55, 0.9, 0.07))
    figure.colorbar(panels[0].images[0], cax=place, orientation="horizontal", **words)
    spare.text(0.0, 0.8, NOTE, transform=spare.transAxes, va="bottom", fontsize=6.5)
    return figure
