"""Where the match head's attention goes, by overlap, beside the fitted law.

Draws the rows of `python -m analyses overlap_mass`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from figures.parts.instruments import (
    SETTINGS,
    Results,
    Setting,
    all_of,
    lengths_text,
    listed,
    only,
    shape_text,
)
from figures.parts.panels import PRIORS_IN_SHORT, absent, lettered
from figures.parts.rows import Row, lengths_of
from interp.plotting import OVERLAP_COLOURS, OVERLAP_NAMES
from models.families.registry import find_family

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
    "by_overlap",
    "bos",
    "early",
    "predicted_by_overlap",
    "predicted_bos",
    "stderr_by_group",
    "largest_gap",
    "distance",
    "beta",
    "kappa",
    "n",
    "success",
    "message",
)
LEFT_OUT_OF_THE_LAW = "early"  # keys without a full context: the law gives them nothing


def chosen(results: Results) -> Results:
    """Every model of the zoo, but those of runs beside the main ones."""
    rows = results["overlap_mass"]
    return {"overlap_mass": [only(row, *FIELDS) for setting in SETTINGS for row in all_of(rows, setting)]}


def masses(row: Row, *, predicted: bool) -> dict[str, float]:
    """Mass of each kind of key, observed or by the law. Partial matches are those with 0 < |M| < k."""
    prefix = "predicted_" if predicted else ""
    by_overlap = row[f"{prefix}by_overlap"]
    order = len(by_overlap) - 1
    return {
        "full": by_overlap[str(order)],
        "partial": sum(by_overlap[str(size)] for size in range(1, order)),
        "none": by_overlap["0"],
        **({"bos": row[f"{prefix}bos"]} if row["subject"]["bos"] else {}),
        "early": 0.0 if predicted else row["early"],
    }


def draw(results: Results) -> Figure:
    """A panel for each setting, mass against length; then the largest gaps of all."""
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    rows = results["overlap_mass"]
    figure, axes = plt.subplots(2, 3, figsize=(6.3, 4.2))
    panels = axes.ravel()
    lengths = lengths_of([row for row in rows if row["success"]])  # of all: panels share their axes
    for ax, setting in zip(panels, SETTINGS, strict=False):
        fitted = [row for row in all_of(rows, setting) if row["success"]]
        if not fitted:
            absent(ax, setting.title)
            continue
        draw_masses(ax, fitted)
        length_axis(ax, lengths)
        ax.set_title(setting.title)
    if draw_gaps(panels[-1], [row for row in rows if row["success"]]):
        length_axis(panels[-1], lengths)
    for ax in axes[:, 0]:
        ax.set_ylabel("attention mass")
    lettered(panels)
    handles: list[Any] = [
        Patch(facecolor=colour, label=OVERLAP_NAMES[kind]) for kind, colour in OVERLAP_COLOURS.items()
    ]
    grey = "#555555"
    handles += [
        Line2D([], [], color=grey, marker="o", linestyle="none", markersize=3, label="observed"),
        Line2D(
            [], [], color=grey, marker="o", linestyle="none", markersize=6, fillstyle="none", label="law's prediction"
        ),
    ]
    figure.legend(
        handles=handles, loc="outside upper center", ncols=7, handletextpad=0.4, columnspacing=1.0, handlelength=1.0
    )
    return figure


def draw_masses(ax: Axes, rows: list[Row]) -> None:
    """A dot for the observed mass, a ring around it for the predicted one, for each model and kind of key."""
    seeds = sorted({row["subject"]["seed"] or 0 for row in rows})
    shift = {seed: 1.0 + 0.07 * (place - (len(seeds) - 1) / 2) for place, seed in enumerate(seeds)}
    positions = [row["subject"]["length"] * shift[row["subject"]["seed"] or 0] for row in rows]
    for kind in masses(rows[0], predicted=False):
        observed = [masses(row, predicted=False)[kind] for row in rows]
        expected = [masses(row, predicted=True)[kind] for row in rows]
        colour = OVERLAP_COLOURS[kind]
        ax.plot(positions, observed, "o", color=colour, markersize=2.2, label=kind, zorder=3)
        if kind != LEFT_OUT_OF_THE_LAW:
            ax.plot(
                positions, expected, "o", color=colour, markersize=5, fillstyle="none", markeredgewidth=0.6,
                label=f"{kind}, predicted",
            )  # fmt: skip
    ax.set_ylim(-0.03, 1.0)


def draw_gaps(ax: Axes, rows: list[Row]) -> bool:
    """The largest difference between observed and predicted mass, for each model, settings side by side."""
    if not rows:
        absent(ax, "gaps to the law")
        return False
    for place, setting in enumerate(SETTINGS):
        mine = [row for row in all_of(rows, setting) if row["success"]]
        if mine:
            shift = 1.0 + 0.06 * (place - (len(SETTINGS) - 1) / 2)
            ax.plot(
                [row["subject"]["length"] * shift for row in mine],
                [max(row["largest_gap"], 1e-5) for row in mine],
                find_family(setting.family).marker if setting.bos else "v",
                color=find_family(setting.family).colour,
                markersize=3,
                fillstyle={"independent": "none", "hierarchical": "full"}[setting.prior],
                label=gap_name(setting),
            )
    ax.set_yscale("log")
    ax.set_ylim(0.5e-5, 30)
    ax.set_yticks([1e-5, 1e-4, 1e-3, 1e-2, 1e-1], ["≤$10^{-5}$", "$10^{-4}$", "$10^{-3}$", "$10^{-2}$", "$10^{-1}$"])
    ax.minorticks_off()
    ax.set_title("largest gap to the law")
    ax.legend(loc="upper right", fontsize=6, handletextpad=0.1, borderaxespad=0.0, labelspacing=0.2)
    return True


def gap_name(setting: Setting) -> str:
    task = PRIORS_IN_SHORT.get(setting.prior, setting.prior)
    return f"{setting.family}, {task} {'BOS' if setting.bos else 'no BOS'}"


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
        "shape": shape_text(rows),
        "n": rows[0]["n"] if rows else 0,
        "error": max((error for row in fitted for error in row["stderr_by_group"]), default=0.0),
        "counts": listed([f"{len(all_of(fitted, setting))} {setting.words}" for setting in SETTINGS]),
        "failed": listed([name_of(row) for row in rows if not row["success"]]) or "none",
    }


def name_of(row: Row) -> str:
    """The checkpoint by the last parts of its path."""
    return "/".join(row["checkpoint"].replace("\\", "/").split("/")[-4:])
