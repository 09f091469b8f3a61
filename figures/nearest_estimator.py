"""Which estimator each model's predictions are nearest to.

Draws the rows of `python -m analyses nearest_estimator`.
"""

from __future__ import annotations

import math
from collections.abc import Container
from typing import TYPE_CHECKING, Any

from figures._instruments import (
    SETTINGS,
    Results,
    Setting,
    lengths_text,
    listed,
    only,
    seeds_shown,
    seeds_text,
    shape_text,
    spread,
)
from figures.panels import absent, lettered
from figures.rows import Row
from figures.verdict import Verdict
from interp.plotting import MAIN_COLOUR

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABEL = "beyond:nearest_estimator"
ANALYSES = ("nearest_estimator",)
CLAIM = (
    "Question: of soft matching and the classical smoothers, each at the parameters that come nearest to it, which one "
    "does a trained model predict like?"
)

SOFT = {
    "soft_matching_fitted": "soft matching, of the scores",
    "soft_matching_best": "soft matching, best",
    "soft_matching_best_bos": "the same with pseudo-counts",
}
WITH_ADDED = "soft matching with added pseudo-counts"
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
LEAST = 1e-5  # nats: what lies there or below is drawn at the left edge, and estimators so near each other are equal
MOST = 10.0
ERRORS = 2  # standard errors of a paired difference within which two estimators are equally near
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
    near = {name for row in rows for name in nearest_of(row)}
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


def nearest_of(row: Row) -> list[str]:
    """The nearest estimator, and those that cannot be told from it."""
    return [
        one["estimator"]
        for one in row["estimators"]
        if one["behind"] <= max(LEAST, ERRORS * one["behind_stderr"]) and one["estimator"] in NAMES
    ]


def kind_of(row: Row) -> str:
    """What the nearest estimators of a model are."""
    near = nearest_of(row)
    made = any(name in SOFT and name != ADDED for name in near)
    if made and any(name in CLASSICAL for name in near):
        return "soft matching and add-alpha alike"
    if made:
        return "soft matching"
    return WITH_ADDED if ADDED in near else NAMES[near[0]]


def distance(row: Row, names: Container[str]) -> float:
    """The least KL of these estimators; infinite where none of them was compared."""
    return min((float(one["kl"]) for one in row["estimators"] if one["estimator"] in names), default=math.inf)


def caption(results: Results) -> str:
    """What is to be seen, with the numbers."""
    rows = results["nearest_estimator"]
    if not rows:
        return "The nearest estimator: no model was there to be compared."
    floored = max((one for row in rows for one in row["estimators"]), key=lambda one: one["floored"])
    return (
        f"KL(model || estimator) after the last token, n = {rows[0]['n']} sequences ({shape_text(rows)}, "
        f"{lengths_text(rows)}; {seeds_text(rows)}, a marker for each). `best`: parameters tuned to the model's "
        f"predictions on one half of the sequences and judged on the other. `of the scores`: beta and kappa fitted to "
        f"the match scores. Without BOS the attention can add no pseudo-counts; soft matching with them shows what the "
        f"readout adds. Shaded: the nearest estimator of a seed, and those within {ERRORS} standard errors of the "
        f"paired difference, or {LEAST:.5f} nats. Laws are raised to {rows[0]['floor']:g}, which mattered most for "
        f"{NAMES[floored['estimator']]} (in up to {floored['floored']:.0%} of the sequences)."
    )


def verdict(results: Results) -> Verdict:
    """No claim of the paper: what is nearest, in how many models, and by how much."""
    groups = [(setting, rows) for setting, rows in seeds_shown(results["nearest_estimator"]) if rows]
    if not groups:
        return Verdict(word="cannot tell", measured="no model was compared")
    trained = [(setting, rows) for setting, rows in groups if setting.trained] or groups
    models = [row for _, rows in trained for row in rows]
    made = [row for row in models if kind_of(row).startswith("soft matching") and kind_of(row) != WITH_ADDED]
    added = [row for row in models if kind_of(row) == WITH_ADDED]
    tied = [row for row in made if kind_of(row) != "soft matching"]
    words = [f"soft matching is the nearest estimator of {len(made)} of {len(models)} trained models"]
    if made:
        words[0] += f" (KL {spread([distance(row, SOFT) for row in made], '.2g')} nats)"
    if added:
        words.append(f"{len(added)} more need pseudo-counts that their attention cannot make")
    told = "; ".join(words)
    return Verdict(
        word="beyond the paper",
        measured="; ".join(setting_text(setting, rows) for setting, rows in groups),
        headline=f"{told[0].upper()}{told[1:]}.",
        number=f"nearest: soft matching in {len(made)} of {len(models)} trained models (in {len(tied)} with add-alpha "
        f"alike), with pseudo-counts added in {len(added)}",
    )


def setting_text(setting: Setting, rows: list[Row]) -> str:
    """What is nearest in a setting, and how far the nearest soft and classical estimators are."""
    kinds = listed(list(dict.fromkeys(kind_of(row) for row in rows)))
    parts = {"soft matching": [name for name in SOFT if name != ADDED], "classical": list(CLASSICAL)}
    if all(distance(row, [ADDED]) < math.inf for row in rows):
        parts["soft matching with added pseudo-counts"] = [ADDED]
    told = ", ".join(
        f"{words} {spread([distance(row, names) for row in rows], '.2g')}" for words, names in parts.items()
    )
    return (
        f"{setting.words}, {len(rows)} model{'s' if len(rows) > 1 else ''}: nearest is {kinds} (least KL: {told} nats)"
    )
