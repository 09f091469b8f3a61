"""Where the match head's attention goes, by overlap, beside the fitted law."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.parts.panels import absent, each_setting, legend_above, lettered, side_by_side
from figures.parts.rows import (
    SETTINGS,
    Results,
    Row,
    lengths_of,
    lengths_text,
    listed,
    of_settings,
    shape_words,
)
from interp.plotting import OVERLAP_COLOURS, OVERLAP_NAMES, area, mark
from models.families.registry import find_family

LABEL = "beyond:mass_by_overlap"
ANALYSES = ("overlap_mass",)
CLAIMS = ("follows_law", "partial_with_bos", "scores_are_the_law")
CAPTION = (
    "Attention mass of the match head at the last query by what the key is, against training length ({lengths}, "
    "{shape}). Dots: observed; rings: N_M e^{{|beta|_M}} / Z (BOS: e^kappa / Z) with each model's own fitted beta and "
    "kappa; early keys, which lack a full context, get nothing by it. Each point is the mean over n = {n} held-out "
    "sequences of one model; seeds stand side by side; standard errors are at most {error:.3f}. Last panel: the "
    "largest difference between observed and predicted mass over the kinds, for each model, settings side by side. "
    "Models: {counts}. Left out, because no law fits their scores: {failed}."
)
FIELDS = (
    "by_overlap", "bos", "early", "predicted_by_overlap", "predicted_bos", "stderr_by_group", "largest_gap",
    "distance", "beta", "kappa", "n", "success", "message",
)  # fmt: skip
LEAST_GAP = 1e-5  # a gap at the lower end of the axis lies there or below


def chosen(results: Results) -> Results:
    """Every model of the zoo, but those of runs beside the main ones."""
    return {"overlap_mass": of_settings(results["overlap_mass"], *FIELDS)}


def masses(row: Row, *, predicted: bool) -> dict[str, float]:
    """Mass of each kind of key, observed or by the law, which gives early keys nothing; partial are 0 < |M| < k."""
    prefix = "predicted_" if predicted else ""
    by_overlap = row[f"{prefix}by_overlap"]
    order = len(by_overlap) - 1
    found = {
        "full": by_overlap[str(order)],
        "partial": sum(by_overlap[str(size)] for size in range(1, order)),
        "none": by_overlap["0"],
    }
    if row["subject"]["bos"]:
        found["bos"] = row[f"{prefix}bos"]
    return found if predicted else {**found, "early": row["early"]}


def draw(results: Results) -> Figure:
    """A panel for each setting, mass against length; then the largest gaps of all."""
    rows = [row for row in results["overlap_mass"] if row["success"]]
    figure, axes = plt.subplots(2, 3, figsize=(6.3, 4.2))
    panels = list(axes.flat)
    lengths = lengths_of(rows)  # of all: panels share their axes
    fitted = {setting: mine for setting in SETTINGS if (mine := setting.of(rows))}
    for ax, setting, mine in each_setting(panels, fitted):
        draw_masses(ax, mine)
        ax.set_title(setting.title)
        length_axis(ax, lengths)
    if rows:
        draw_gaps(panels[-1], rows)
        length_axis(panels[-1], lengths)
    else:
        absent(panels[-1], "gaps to the law")
    for ax in axes[:, 0]:
        ax.set_ylabel("attention mass")
    lettered(panels)
    handles: list[Any] = [area(OVERLAP_NAMES[kind], colour) for kind, colour in OVERLAP_COLOURS.items()]
    handles.append(mark("observed", marker="o"))
    handles.append(mark("law's prediction", marker="o", markersize=6, fillstyle="none"))
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


def draw_gaps(ax: Axes, rows: list[Row]) -> None:
    """The largest difference between observed and predicted mass, for each model, settings side by side."""
    for place, setting in enumerate(SETTINGS):
        shift, look = 1.0 + side_by_side(place, len(SETTINGS), 0.06), find_family(setting.family)
        if mine := setting.of(rows):
            ax.plot(
                [row["subject"]["length"] * shift for row in mine],
                [max(row["largest_gap"], LEAST_GAP) for row in mine],
                look.marker if setting.bos else "v", color=look.colour, markersize=3,
                fillstyle="full" if setting.prior == "hierarchical" else "none",
                label=setting.short.replace("\n", ", "),
            )  # fmt: skip
    ax.set_yscale("log")
    ax.set_ylim(LEAST_GAP / 2, 30)
    ax.set_yticks([1e-5, 1e-4, 1e-3, 1e-2, 1e-1], ["≤$10^{-5}$", "$10^{-4}$", "$10^{-3}$", "$10^{-2}$", "$10^{-1}$"])
    ax.set_title("largest gap to the law")
    ax.legend(loc="upper right", fontsize=6, handletextpad=0.1, borderaxespad=0.0, labelspacing=0.2)


def length_axis(ax: Axes, lengths: list[int]) -> None:
    """Logarithmic, with the lengths that occur; powers of two where they crowd."""
    ax.set_xscale("log")
    marked = lengths if len(lengths) <= 4 else [length for length in lengths if length & (length - 1) == 0]
    ax.set_xticks(marked, [str(length) for length in marked])
    ax.minorticks_off()
    ax.set_xlim(0.8 * lengths[0], 1.25 * lengths[-1])
    ax.set_xlabel("training length $T$")


def fields(results: Results) -> dict[str, Any]:
    rows = results["overlap_mass"]
    fitted = [row for row in rows if row["success"]]
    return {
        "lengths": lengths_text(rows),
        "shape": shape_words(rows),
        "n": rows[0]["n"] if rows else 0,
        "error": max((error for row in fitted for error in row["stderr_by_group"]), default=0.0),
        "counts": listed(f"{len(setting.of(fitted))} {setting.words}" for setting in SETTINGS),
        "failed": listed(names_of(row for row in rows if not row["success"])) or "none",
    }


def names_of(rows: Iterable[Row]) -> list[str]:
    """The checkpoints by the last parts of their paths."""
    return ["/".join(PurePosixPath(row["checkpoint"].replace("\\", "/")).parts[-4:]) for row in rows]
