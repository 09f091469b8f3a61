"""Which estimator each model's predictions are nearest to.

Draws the rows of `python -m analyses nearest_estimator`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from figures.parts.instruments import SETTINGS, Results, only, seeds_shown, setting_fields
from figures.parts.panels import absent, lettered
from figures.parts.rows import Row
from interp.plotting import MAIN_COLOUR

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABEL = "beyond:nearest_estimator"
ANALYSES = ("nearest_estimator",)
CLAIMS = ("nearest",)
CAPTION = (
    "KL(model || estimator) after the last token, n = {n} sequences ({shape}, {lengths}; {seeds}, a marker for "
    "each). `best`: parameters tuned to the model's predictions on one half of the sequences and judged on the "
    "other. `of the scores`: beta and kappa fitted to the match scores. Without BOS the attention can add no "
    "pseudo-counts; soft matching with them shows what the readout adds. Shaded: the nearest estimator of a seed; "
    "its rivals can be nearly as near. KL has a floor, which shapes that of estimators that give a symbol no "
    "mass."
)

SOFT = {
    "soft_matching_fitted": "soft matching, of the scores",
    "soft_matching_best": "soft matching, best",
    "soft_matching_best_bos": "the same with pseudo-counts",
}
ADDED = "soft_matching_best_bos"  # what a model without BOS cannot make with its attention
CLASSICAL = {
    "add_alpha_best": r"add-$\alpha$, best $\alpha$",
    "add_alpha_1": "add-1",
    "jelinek_mercer_best": "Jelinek-Mercer, best",
    "witten_bell": "Witten-Bell",
    "kneser_ney": "Kneser-Ney",
    "maximum_likelihood": "maximum likelihood",
    "katz": "Katz back-off",
}
NAMES = SOFT | CLASSICAL
CLASSICAL_COLOUR = "#7f7f7f"
NEAR_COLOUR = "#fff0c2"
LEAST = 1e-5  # nats: what lies there or below is drawn at the left edge
MOST = 10.0
FIELDS = ("nearest", "estimators", "floor", "n", "success", "message")


def chosen(results: Results) -> Results:
    """The seeds of each setting."""
    groups = seeds_shown(results["nearest_estimator"])
    return {"nearest_estimator": [only(row, *FIELDS) for _, rows in groups for row in rows]}


def draw(results: Results) -> Figure:
    """A panel for each setting, a line for each estimator, a marker for each seed."""
    import matplotlib.pyplot as plt

    found = dict(seeds_shown(results["nearest_estimator"]))
    figure, axes = plt.subplots(1, len(SETTINGS), figsize=(6.3, 3.0), sharex=True)
    names = known_names([row for rows in found.values() for row in rows])
    first = next((place for place, setting in enumerate(SETTINGS) if setting in found), 0)
    for place, (setting, ax) in enumerate(zip(SETTINGS, axes, strict=True)):
        rows = found.get(setting)
        if rows is None:
            absent(ax, setting.title.replace(", ", ",\n"))
            continue
        draw_distances(ax, rows, names)
        ax.set_yticks(range(len(names)), [NAMES[name] for name in names] if place == first else [])
        task = f"{setting.prior}\n{'BOS' if setting.bos else 'no BOS'}, T = {rows[0]['subject']['length']}"
        ax.set_title(f"{setting.family}\n{task}", fontsize=6.5, loc="left")
    lettered([ax for ax in axes if ax.axison])
    if found:
        figure.supxlabel("KL from the model to the estimator (nats, logarithmic)", fontsize=7)
        figure.legend(handles=legend(), loc="outside upper center", ncols=3, columnspacing=1.2, handletextpad=0.3)
    return figure


def known_names(rows: list[Row]) -> list[str]:
    """The estimators that occur, soft matching first."""
    there = {one["estimator"] for row in rows for one in row["estimators"]}
    return [name for name in NAMES if name in there]


def draw_distances(ax: Axes, rows: list[Row], names: list[str]) -> None:
    """The KL of every seed, a band behind the estimators that are nearest."""
    near = {row["nearest"] for row in rows}
    for place, name in enumerate(names):
        values = [one["kl"] for row in rows for one in row["estimators"] if one["estimator"] == name]
        if not values:
            ax.text(1.3 * LEAST, place, "does not apply", va="center", fontsize=6, color="#7f7f7f")
            continue
        if name in near:
            ax.axhspan(place - 0.5, place + 0.5, color=NEAR_COLOUR, linewidth=0, zorder=0, gid=f"nearest {name}")
        look = look_of(name)
        for value in values:
            marker = look["marker"] if value > LEAST else "<"
            ax.plot(max(value, LEAST), place, linestyle="none", **{**look, "marker": marker}, gid=name, zorder=2)
    ax.axhline(len([name for name in names if name in SOFT]) - 0.5, color="#d9d9d9", linewidth=0.5)
    ax.set_xscale("log")
    ax.set_xlim(0.5 * LEAST, MOST)
    ax.set_xticks([1e-5, 1e-3, 1e-1, 10], ["$10^{-5}$", "$10^{-3}$", "0.1", "10"])
    ax.minorticks_off()
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)


def look_of(name: str) -> dict[str, Any]:
    """Filled circles for soft matching, open ones where pseudo-counts were added, squares for the classical ones."""
    colour = MAIN_COLOUR if name in SOFT else CLASSICAL_COLOUR
    face = "white" if name == ADDED else colour
    return {"color": colour, "marker": "o" if name in SOFT else "s", "markersize": 3.2, "markerfacecolor": face}


def legend() -> list[Any]:
    """Kinds of estimators, the nearest, and what lies left of the scale."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    def mark(name: str, words: str, **other: Any) -> Any:
        return Line2D([], [], linestyle="none", label=words, **{**look_of(name), **other})

    return [
        mark("soft_matching_best", "soft matching (a marker for each seed)"),
        mark(ADDED, "soft matching, pseudo-counts added"),
        mark("katz", "classical estimator"),
        Patch(facecolor=NEAR_COLOUR, label="nearest in some seed"),
        mark("katz", "$10^{-5}$ nats or less", marker="<", color="#404040", markerfacecolor="#404040"),
    ]


def fields(results: Results) -> dict[str, object]:
    return setting_fields(results["nearest_estimator"])
