"""A language model's heads: which match, and with which beta."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from figures.parts.language import HEAD_COLOURS, Results, pick
from figures.parts.panels import absent, lettered, whisker
from figures.parts.rows import Row
from interp.plotting import CONTROL_COLOUR, LAG_COLOURS, MAIN_COLOUR, head_heatmap
from interp.results import half_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABEL = "beyond:language_heads"
ANALYSES = ("language_model",)
CLAIMS = ("language_ablation", "language_law")
CAPTION = (
    "In-context chains of order 2 on five words, an alphabet for each sequence. (a) Of what position leaves of "
    "each head's scores, the share that matches explain; framed in yellow the heads that are studied, with a "
    "number the heads that look at that lag. (b) The same against the attention on the key after the query's "
    "earlier occurrence in repeated random tokens; grey: with the masks of another sequence. (c) Additive law of "
    "the attention, with 95% intervals."
)
MATCH_FRAME = "#ffb703"
NAMED = 0.5  # of the least R2 of a head that matches: from here on a head has its name beside it


def chosen(results: Results) -> Results:
    """All heads, the laws of the best, and the random weights."""
    names = ("layer", "head", "role", "copy_lag", "r2_match", "control_r2_match", "repeat_induction")
    rows = results["language_model"]
    heads = [{name: row[name] for name in ("kind", *names)} for row in pick(rows, part="heads", kind="head")]
    return {"language_model": [*heads, *pick(rows, part="heads", kind="law"), *pick(rows, part="random")]}


def draw(results: Results) -> Figure:
    """The map, matches against the classical score, and betas."""
    import matplotlib.pyplot as plt

    rows = results["language_model"]
    heads, laws = pick(rows, kind="head"), pick(rows, kind="law")
    figure, axes = plt.subplots(1, 3, figsize=(6.3, 4.0), width_ratios=(1.25, 1.1, 1.1))
    if heads:
        draw_map(axes[0], heads, laws)
        figure.colorbar(
            axes[0].images[0], ax=axes[0], location="right", aspect=30, shrink=0.7, pad=0.03,
            label="$R^2$ of matches on chains",
        )  # fmt: skip
        draw_scores(axes[1], heads, laws)
    else:
        absent(axes[0], "the scan")
        absent(axes[1], "the scan")
    if laws:
        draw_betas(axes[2], laws)
    else:
        absent(axes[2], "fits")
    lettered([ax for ax in axes if ax.axison])
    if heads:
        points, _ = axes[1].get_legend_handles_labels()
        figure.legend(handles=[*legend(heads), *points], loc="outside lower center", ncols=3)
    return figure


def legend(heads: list[Row]) -> list[Any]:
    """The frames of the map, and the intervals."""
    from matplotlib.patches import Patch

    lags = sorted({row["copy_lag"] for row in heads if row["role"] == "copy"})
    return [
        Patch(facecolor="none", edgecolor=MATCH_FRAME, linewidth=1.5, label="(a) a head that matches"),
        *(
            Patch(
                facecolor="none", edgecolor=LAG_COLOURS[(lag - 1) % len(LAG_COLOURS)], linewidth=1.5,
                label=f"(a) {lag}: a head that copies lag {lag}",
            )
            for lag in lags
        ),
        whisker("(c) 95% interval"),
    ]  # fmt: skip


def draw_map(ax: Axes, heads: list[Row], laws: list[Row]) -> None:
    """r2_match of every head; the best are framed, heads that copy a lag carry its number."""
    import numpy as np

    values = np.full((1 + max(row["layer"] for row in heads), 1 + max(row["head"] for row in heads)), np.nan)
    for row in heads:
        values[row["layer"], row["head"]] = row["r2_match"]
    best = {row["name"] for row in laws}
    marks = {
        (row["layer"], row["head"]): (str(row["copy_lag"]), LAG_COLOURS[(row["copy_lag"] - 1) % len(LAG_COLOURS)])
        for row in heads
        if row["role"] == "copy"
    }
    marks |= {
        (row["layer"], row["head"]): ("", MATCH_FRAME) for row in heads if f"{row['layer']}.{row['head']}" in best
    }
    head_heatmap(ax, values, marks=marks, highest=max(0.1, float(np.nanmax(values))))
    ax.set_aspect("auto")
    ax.set_title("every head", loc="left")


def draw_scores(ax: Axes, heads: list[Row], laws: list[Row]) -> None:
    """r2_match against the classical induction score; the control is below."""
    names = [row["name"] for row in laws]
    ax.scatter(
        [row["repeat_induction"] for row in heads],
        [row["control_r2_match"] or 0.0 for row in heads],
        s=8,
        color=CONTROL_COLOUR,
        label="(b) masks of another sequence",
        marker="x",
        linewidth=0.7,
    )
    ax.scatter(
        [row["repeat_induction"] for row in heads],
        [row["r2_match"] or 0.0 for row in heads],
        s=8,
        color=MAIN_COLOUR,
        label="(b) masks of its own sequence",
    )
    named = [row for row in heads if f"{row['layer']}.{row['head']}" in names]
    least = NAMED * min((row["r2_match"] for row in named), default=float("inf"))
    for row in heads:
        if row in named or (row["r2_match"] or 0.0) >= least:
            left = row["repeat_induction"] > 0.2  # towards the side that has room
            ax.annotate(
                f"{row['layer']}.{row['head']}",
                (row["repeat_induction"], row["r2_match"]),
                textcoords="offset points",
                xytext=(-3 if left else 3, 3),
                ha="right" if left else "left",
            )
    ax.set_xlabel("classical induction score")
    ax.set_ylabel(r"$R^2$ of matches on chains")
    ax.set_title("beside the classical score", loc="left")


def draw_betas(ax: Axes, laws: list[Row]) -> None:
    """beta of each lag and each of the best heads."""
    for lag in range(len(laws[0]["beta"])):
        ax.errorbar(
            [place + 0.12 * lag for place in range(len(laws))],
            [row["beta"][lag] for row in laws],
            yerr=[half_width(row["beta_stderr"][lag], n=row["n"]) for row in laws],
            linestyle="none",
            marker="o",
            markersize=3,
            color=LAG_COLOURS[lag],
            label=rf"$\beta_{lag + 1}$",
        )
    ax.errorbar(
        [place - 0.12 for place in range(len(laws))],
        [row["kappa"] for row in laws],
        yerr=[half_width(row["kappa_stderr"], n=row["n"]) for row in laws],
        linestyle="none",
        marker="s",
        markersize=3,
        color=HEAD_COLOURS[3],
        label=r"$\kappa$",
    )
    ax.axhline(0.0, color="#555555", linewidth=0.5)
    ax.set_xticks(range(len(laws)), [row["name"] for row in laws], rotation=45)
    ax.set_xlabel("head (layer.head)")
    ax.set_ylabel("nats above an empty match")
    ax.set_title("law of heads that match", loc="left")
    ax.legend(loc="best")
