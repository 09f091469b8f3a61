"""Where the match head's attention goes, by overlap, beside the fitted law."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.parts.curves import length_axis
from figures.parts.panels import legend_above, lettered, of_each_setting, side_by_side
from figures.parts.rows import (
    SETTINGS,
    Results,
    Row,
    Setting,
    lengths_of,
    lengths_text,
    listed,
    of_settings,
    shape_words,
)
from interp.plotting import OVERLAP_COLOURS, OVERLAP_NAMES, area, mark
from models.families.registry import find_family

LABEL = "beyond:mass_by_overlap"
ANALYSES = {"overlap_mass": of_settings}
CLAIMS = ("follows_law", "partial_with_bos", "scores_are_the_law")
CAPTION = (
    "Attention mass of the match head at the last query by what the key is, against training length ({lengths}, "
    "{shape}). Dots: observed; rings: N_M e^{{|beta|_M}} / Z (BOS: e^kappa / Z) with each model's own fitted beta and "
    "kappa; early keys, which lack a full context, get nothing by it. Each point is the mean over n = {n} held-out "
    "sequences of one model; seeds stand side by side; standard errors are at most {error:.3f}. Last panel: the "
    "largest difference between observed and predicted mass over the kinds, for each model, settings side by side. "
    "Models: {counts}. Left out, because no law fits their scores: {failed}."
)
LEAST_GAP = 1e-5  # a gap at the lower end of the axis lies there or below


def masses(row: Row, *, predicted: bool) -> dict[str, float]:
    """Mass of each kind of key, observed or by the law, which gives early keys nothing; partial are 0 < |M| < k."""
    prefix = "predicted_" if predicted else ""
    none, *partial, full = row[f"{prefix}by_overlap"].values()
    found = {"full": full, "partial": sum(partial), "none": none}
    if row["subject"]["bos"]:
        found["bos"] = row[f"{prefix}bos"]
    return found if predicted else {**found, "early": row["early"]}


def draw(results: Results) -> Figure:
    """A panel for each setting, mass against length; then the largest gaps of all."""
    rows = [row for row in results["overlap_mass"] if row["success"]]
    found = of_each_setting({setting: setting.of(rows) for setting in SETTINGS})
    lines = 1 + len(found) // 3
    figure, axes = plt.subplots(lines, 3, figsize=(6.3, 0.4 + 1.9 * lines), squeeze=False)
    panels = [*axes.flat[: len(found)], axes.flat[-1]]
    for ax in axes.flat[len(found) : -1]:
        ax.set_axis_off()
    for ax, (setting, mine) in zip(panels, found.items(), strict=False):
        draw_masses(ax, mine)
        ax.set_title(setting.title)
        ax.set_ylabel("attention mass" if ax in axes[:, 0] else "")
    draw_gaps(panels[-1], found)
    for ax in panels:
        length_axis(ax, lengths_of(rows))
        ax.set_xlim(0.8 * lengths_of(rows)[0], 1.25 * lengths_of(rows)[-1])  # of all: panels share their axes
    lettered(panels)
    handles: list[Any] = [area(OVERLAP_NAMES[kind], colour) for kind, colour in OVERLAP_COLOURS.items()]
    handles += [mark("observed", marker="o"), mark("law's prediction", marker="o", markersize=6, fillstyle="none")]
    legend_above(figure, handles, 7, handletextpad=0.4, columnspacing=1.0, handlelength=1.0)
    return figure


def draw_masses(ax: Axes, rows: list[Row]) -> None:
    """A dot for the observed mass, a ring around it for the predicted one, for each model and kind of key."""
    seeds = sorted({row["subject"]["seed"] or 0 for row in rows})
    aside = [side_by_side(seeds.index(row["subject"]["seed"] or 0), len(seeds), 0.07) for row in rows]
    places = [row["subject"]["length"] * (1.0 + by) for row, by in zip(rows, aside, strict=True)]
    dots: dict[str, Any] = {"markersize": 2.2, "zorder": 3}
    rings: dict[str, Any] = {"markersize": 5, "fillstyle": "none", "markeredgewidth": 0.6}
    for look, predicted, after in ((dots, False, ""), (rings, True, ", predicted")):
        for kind in masses(rows[0], predicted=predicted):
            values = [masses(row, predicted=predicted)[kind] for row in rows]
            ax.plot(places, values, "o", color=OVERLAP_COLOURS[kind], label=f"{kind}{after}", **look)
    ax.set_ylim(-0.03, 1.0)


def draw_gaps(ax: Axes, found: dict[Setting, list[Row]]) -> None:
    """The largest difference between observed and predicted mass, for each model, settings side by side."""
    for place, (setting, rows) in enumerate(found.items()):
        shift, look = 1.0 + side_by_side(place, len(found), 0.06), find_family(setting.family)
        places = [row["subject"]["length"] * shift for row in rows]
        gaps = [max(row["largest_gap"], LEAST_GAP) for row in rows]
        fill = "full" if setting.prior == "hierarchical" else "none"
        style: dict[str, Any] = {"color": look.colour, "markersize": 3, "fillstyle": fill}
        ax.plot(places, gaps, look.marker if setting.bos else "v", label=setting.short.replace("\n", ", "), **style)
    ax.set_yscale("log")
    ax.set_ylim(LEAST_GAP / 2, 30)
    ax.set_yticks([1e-5, 1e-4, 1e-3, 1e-2, 1e-1], ["≤$10^{-5}$", "$10^{-4}$", "$10^{-3}$", "$10^{-2}$", "$10^{-1}$"])
    ax.set_title("largest gap to the law")
    ax.legend(loc="upper right", fontsize=6, handletextpad=0.1, borderaxespad=0.0, labelspacing=0.2)


def fields(results: Results) -> dict[str, Any]:
    rows = results["overlap_mass"]
    fitted = [row for row in rows if row["success"]]
    return {
        "lengths": lengths_text(rows),
        "shape": shape_words(rows),
        "n": rows[0]["n"] if rows else 0,
        "error": max((error for row in fitted for error in row["stderr_by_group"]), default=0.0),
        "counts": listed(f"{len(setting.of(fitted))} {setting}" for setting in SETTINGS),
        "failed": listed(names_of(row for row in rows if not row["success"])) or "none",
    }


def names_of(rows: Iterable[Row]) -> list[str]:
    """The checkpoints by the last parts of their paths."""
    return ["/".join(PurePosixPath(row["checkpoint"].replace("\\", "/")).parts[-4:]) for row in rows]
