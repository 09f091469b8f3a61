"""Which estimator each model's predictions are nearest to."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.parts.panels import RULE, legend_above, lettered, named_lines, of_each_setting
from figures.parts.rows import Results, Row, of_seeds, seeds_shown
from interp.plotting import MAIN_COLOUR, QUIET, area, mark

LABEL = "beyond:nearest_estimator"
ANALYSES = {"nearest_estimator": of_seeds}
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
NEAR_COLOUR = "#fff0c2"
LEAST, MOST = 1e-5, 10.0  # nats: what lies at the left edge lies there or below


def draw(results: Results) -> Figure:
    """A panel for each setting, a line for each estimator, a marker for each seed."""
    found = of_each_setting(seeds_shown(results["nearest_estimator"]))
    figure, grid = plt.subplots(1, len(found), figsize=(6.3, 3.0), sharex=True, squeeze=False)
    known = {one["estimator"] for rows in found.values() for row in rows for one in row["estimators"]}
    names = [name for name in NAMES if name in known]
    for ax, (setting, rows) in zip(grid[0], found.items(), strict=True):
        draw_distances(ax, rows, names)
        ax.set_title(setting.narrow(rows[0]))
    named_lines(grid[0], [NAMES[name] for name in names])
    lettered(grid[0], fontsize=6.5)
    figure.supxlabel("KL from the model to the estimator (nats, logarithmic)", fontsize=7)
    handles = [
        mark("soft matching (a marker for each seed)", **look_of("soft_matching_best")),
        mark("soft matching, pseudo-counts added", **look_of(ADDED)),
        mark("classical estimator", **look_of("katz")),
        area("nearest in some seed", NEAR_COLOUR),
        mark("$10^{-5}$ nats or less", marker="<"),
    ]
    legend_above(figure, handles, 3, handletextpad=0.3)
    return figure


def draw_distances(ax: Axes, rows: list[Row], names: list[str]) -> None:
    """The KL of every seed, a band behind the estimators that are nearest."""
    for place, name in enumerate(names):
        values = [one["kl"] for row in rows for one in row["estimators"] if one["estimator"] == name]
        if not values:
            ax.text(1.3 * LEAST, place, "does not apply", va="center", fontsize=6, color=QUIET)
        if values and name in {row["nearest"] for row in rows}:
            ax.axhspan(place - 0.5, place + 0.5, color=NEAR_COLOUR, linewidth=0, zorder=0, gid=f"nearest {name}")
        for value in values:
            look = look_of(name) | ({} if value > LEAST else {"marker": "<"})
            ax.plot(max(value, LEAST), place, linestyle="none", **look, gid=name, zorder=2)
    ax.axhline(len([name for name in names if name in SOFT]) - 0.5, **RULE)
    ax.set_xscale("log")
    ax.set_xlim(0.5 * LEAST, MOST)
    ax.set_xticks([1e-5, 1e-3, 1e-1, 10], ["$10^{-5}$", "$10^{-3}$", "0.1", "10"])
    ax.minorticks_off()


def look_of(name: str) -> dict[str, Any]:
    """Filled circles for soft matching, open ones where pseudo-counts were added, squares for the classical ones."""
    colour = MAIN_COLOUR if name in SOFT else QUIET
    face = "white" if name == ADDED else colour
    return {"color": colour, "marker": "o" if name in SOFT else "s", "markersize": 3.2, "markerfacecolor": face}
