"""Which tokens the match head compares: a weight for each pair of blocks."""

from __future__ import annotations

import math

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from figures.parts.panels import absent, each_setting, lettered
from figures.parts.rows import Results, of_seeds, setting_fields, shown
from interp.plotting import pair_heatmap

LABEL = "beyond:lag_pairs"
ANALYSES = ("lag_pairs",)
CLAIMS = ("aligned_pairs", "scores_are_the_law")
CAPTION = (
    "Weight beta_{{a,b}} of every pair of query token x_{{t-a}} and key token x_{{s-b}} in the match scores "
    "(corollary:inductive), the first seed of each setting ({setting}): least squares over all "
    "candidate keys of the last query, with a free level per query and a smooth function of the distance; n = "
    "{n} held-out sequences. ± is one standard error, clustered by sequence. The aligned pairs, in which "
    "prop:transformer_estimator has its weights, are framed. Below each map: the share of the explained squared "
    "score that the aligned pairs explain alone, and R2 of all pairs with position."
)
FIELDS = ("beta", "stderr", "aligned_share", "aligned_share_stderr", "r2", "n", "sequences", "success", "message")
NOTE = "frame: aligned pairs,\nwhere the law has its weights\n±: one standard error"


def chosen(results: Results) -> Results:
    """The seeds of each setting; the first is drawn."""
    return {"lag_pairs": of_seeds(results["lag_pairs"], *FIELDS)}


def draw(results: Results) -> Figure:
    """A map for each setting, its numbers written in."""
    found = shown(results["lag_pairs"])
    figure, axes = plt.subplots(2, 3, figsize=(6.3, 4.5))
    *panels, spare = axes.flat
    largest = max((float(np.abs(row["beta"]).max()) for row in found.values() if row["success"]), default=1.0)
    for ax, setting, row in each_setting(panels, found):
        if not row["success"]:
            absent(ax, f"{setting.title}\nno fit to trust")
            continue
        pair_heatmap(ax, np.array(row["beta"]), np.array(row["stderr"]), highest=largest, fontsize=6.5)
        ax.set_title(f"{setting.title}, T = {row['subject']['length']}")
        ax.set_xlabel(f"key block\naligned pairs {row['aligned_share']:.1%}, $R^2$ = {row['r2']:.3f}")
    spare.set_axis_off()
    lettered(panels)
    for image in [image for ax in panels for image in ax.images][:1]:
        end = math.floor(largest) or largest
        place = spare.inset_axes((0.0, 0.55, 0.9, 0.07))
        ticks, label = [-end, 0, end], r"weight $\beta_{a,b}$ (nats)"
        figure.colorbar(image, cax=place, orientation="horizontal", ticks=ticks, label=label)
        spare.text(0.0, 0.8, NOTE, transform=spare.transAxes, va="bottom", fontsize=6.5)
    return figure


def fields(results: Results) -> dict[str, object]:
    return setting_fields(results["lag_pairs"], n="sequences")
