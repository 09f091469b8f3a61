"""Which tokens the match head compares: a weight for each pair of blocks.

Draws the rows of `python -m analyses lag_pairs`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from figures.parts.instruments import SETTINGS, Results, only, seeds_shown, setting_fields, shown
from figures.parts.panels import absent, lettered
from interp.plotting import pair_heatmap

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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


def chosen(results: Results) -> Results:
    """The seeds of each setting; the first is drawn."""
    return {"lag_pairs": [only(row, *FIELDS) for _, rows in seeds_shown(results["lag_pairs"]) for row in rows]}


def draw(results: Results) -> Figure:
    """A map for each setting, its numbers written in."""
    import matplotlib.pyplot as plt

    found = dict(shown(results["lag_pairs"]))
    figure, axes = plt.subplots(2, 3, figsize=(6.3, 4.5))
    panels = axes.ravel()
    largest = max((np.abs(row["beta"]).max() for row in found.values() if row["success"]), default=1.0)
    for ax, setting in zip(panels, SETTINGS, strict=False):
        row = found.get(setting)
        if row is None or not row["success"]:
            absent(ax, setting.title if row is None else f"{setting.title}\nno fit to trust")
            continue
        beta, stderr = (np.array(row[name], dtype=np.float64) for name in ("beta", "stderr"))
        pair_heatmap(ax, beta, stderr, highest=float(largest), fontsize=6.5)
        subject = row["subject"]
        ax.set_title(f"{setting.title}, T = {subject['length']}")
        ax.set_xlabel(f"key block\naligned pairs {row['aligned_share']:.1%}, $R^2$ = {row['r2']:.3f}")
    spare = panels[-1]
    spare.set_axis_off()
    lettered(panels[: len(SETTINGS)])
    images = [ax.images[0] for ax in panels if ax.images]
    if images:
        inside = spare.inset_axes((0.0, 0.55, 0.9, 0.07))
        end = math.floor(largest) or largest
        figure.colorbar(
            images[0],
            cax=inside,
            orientation="horizontal",
            ticks=[-end, 0, end],
            label=r"weight $\beta_{a,b}$ (nats)",
        )
        outline_note = "frame: aligned pairs,\nwhere the law has its weights\n±: one standard error"
        spare.text(0.0, 0.8, outline_note, transform=spare.transAxes, va="bottom", fontsize=6.5)
    return figure


def fields(results: Results) -> dict[str, object]:
    return setting_fields(results["lag_pairs"], n="sequences")
