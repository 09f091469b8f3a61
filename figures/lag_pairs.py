"""Which tokens the match head compares: a weight for each pair of blocks.

Draws the rows of `python -m analyses lag_pairs`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from figures._instruments import (
    LEAST_R2,
    SETTINGS,
    Results,
    lengths_text,
    only,
    seeds_shown,
    seeds_text,
    shape_text,
    shown,
    spread,
)
from figures.known_conditions import ALIGNED_PAIRS, by_family
from figures.panels import absent, lettered
from figures.rows import Row
from figures.verdict import Verdict, judged
from interp.plotting import pair_heatmap

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LABEL = "beyond:lag_pairs"
ANALYSES = ("lag_pairs",)
CLAIM = (
    "By corollary:inductive a label-symmetric match head scores a key by a sum of weights beta_{a,b} over the pairs of "
    "equal tokens x_{t-a} = x_{s-b}. prop:transformer_estimator uses only the aligned pairs b = a + 1, and the paper "
    "expects, without proof, that training concentrates on these."
)

LEAST_ALIGNED = 0.9  # of the explained squared score: as much as the law must explain of the score (R2)
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


def caption(results: Results) -> str:
    """What is to be seen, with the numbers."""
    rows = results["lag_pairs"]
    if not rows:
        return "Weights of all pairs of query block and key block: no model was there to be measured."
    shares = "; ".join(
        f"{setting.words} {row['aligned_share']:.1%} ± {row['aligned_share_stderr']:.1%}"
        + (
            f" (all seeds: {spread([one['aligned_share'] for one in group if one['success']], '.1%')})"
            * (len(group) > 1)
        )
        for (setting, row), (_, group) in zip(shown(rows), seeds_shown(rows), strict=True)
        if row["success"]
    )
    failed = sum(not row["success"] for row in rows)
    left_out = f" {failed} without a fit to trust left out." if failed else ""
    return (
        f"Weight beta_{{a,b}} of every pair of query token x_{{t-a}} and key token x_{{s-b}} in the match scores "
        f"(corollary:inductive), the first seed of each setting ({lengths_text(rows)}, {shape_text(rows)}, "
        f"{seeds_text(rows)}). Least squares over all candidate keys of the last query, with a free level per query "
        f"and a smooth function of the distance; n = {rows[0]['sequences']} held-out sequences. ± is one standard "
        f"error, clustered by sequence. The aligned pairs are framed. Below each map, the share of the explained "
        f"squared score that the aligned pairs explain alone, and R2 of all pairs with position: {shares}.{left_out}"
    )


def verdict(results: Results) -> Verdict:
    """Trained models: aligned pairs carry the score, and pairs explain it."""
    groups = [(setting, rows) for setting, rows in seeds_shown(results["lag_pairs"]) if setting.trained]
    checks = {
        f"{setting.words}: aligned pairs carry {LEAST_ALIGNED:.0%} of the explained score, R2 >= {LEAST_R2}": by_family(
            setting.family,
            all(row["success"] and row["aligned_share"] >= LEAST_ALIGNED and row["r2"] >= LEAST_R2 for row in rows),
            softmax=ALIGNED_PAIRS,
            found=seeds_in_words(rows),
            part=setting.task_part,
        )
        for setting, rows in groups
    }
    measured = "; ".join(f"{setting.words}: {seeds_in_words(rows)}" for setting, rows in groups)
    weakest = min(
        ((setting, row) for setting, rows in groups for row in rows if row["success"]),
        key=lambda pair: pair[1]["aligned_share"],
        default=None,
    )
    why = ""
    if weakest is not None:
        setting, row = weakest
        why = (
            f"Least aligned is {setting.words}: other pairs hold {1 - row['aligned_share']:.1%} of its explained score"
        )
    shares = aligned_by_family([row for _, rows in groups for row in rows])
    return judged(
        checks,
        measured=measured or "no trained model was measured",
        headline=f"Pairs of equal lag carry this share of the explained match score: {shares}." if shares else "",
        number=f"share of aligned pairs: {shares}" if shares else "",
        why=why,
    )


def aligned_by_family(rows: list[Row]) -> str:
    """The least and the largest share of the aligned pairs, family by family."""
    found: dict[str, list[float]] = {}
    for row in rows:
        if row["success"]:
            found.setdefault(row["subject"]["family"], []).append(row["aligned_share"])
    return ", ".join(f"{family} {spread(shares, '.1%')} ({len(shares)} runs)" for family, shares in found.items())


def seeds_in_words(rows: list[Row]) -> str:
    """What the seeds of one setting show, from the least to the largest."""
    good = [row for row in rows if row["success"]]
    failed = [f"no fit ({row['message']})" for row in rows if not row["success"]]
    if not good:
        return "; ".join(dict.fromkeys(failed))
    words = f"aligned {spread([row['aligned_share'] for row in good], '.1%')}, R2 {spread([row['r2'] for row in good])}"
    words += f" ({len(good)} seeds)" if len(good) > 1 else ""
    return words + (f", {len(failed)} without a fit" if failed else "")
