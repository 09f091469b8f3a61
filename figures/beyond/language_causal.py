"""A language model without its matching heads, and with the law in their place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from figures.parts.language import Results, pick
from figures.parts.panels import absent, lettered, whisker
from figures.parts.rows import Row
from interp.plotting import CONTROL_COLOUR, MAIN_COLOUR, grouped_bars
from interp.results import half_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABEL = "beyond:language_causal"
ANALYSES = ("language_model",)
CLAIMS = ("language_ablation", "language_law")
CAPTION = (
    "Match heads edited together. (a) Loss of the second copy of random tokens. Controls: as many other heads of "
    "the same layers (ablated), the same weights on shuffled keys (law, hard, grouped). The law is fitted on "
    "other repeats, without a positional term; `fitted with position` with one, `one law for all` to all heads "
    "together, `law of chains` on chains. (b) The same on chains. (c) On Alice's Adventures in Wonderland: how "
    "much lower the loss of the second half of a window is after its own first half than after another window's, "
    "at contexts of two tokens that repeat from the first half and at all others. 95% intervals over sequences."
)
EDIT_NAMES = {
    "ablated": "heads ablated",
    "even": "even attention",
    "law": "the law",
    "law of chains": "the law of chains",
    "grouped": "grouped by mask",
    "hard": "hard matching",
}


def chosen(results: Results) -> Results:
    rows = results["language_model"]
    return {"language_model": [*pick(rows, part="causal"), *pick(rows, part="text", kind="gain")]}


def draw(results: Results) -> Figure:
    """Edits on repeats, on chains, and the gain on text."""
    import matplotlib.pyplot as plt

    rows = results["language_model"]
    figure, axes = plt.subplots(1, 3, figsize=(6.3, 2.7), width_ratios=(1.0, 1.0, 0.9))
    edits = list(dict.fromkeys(row["edit"] for on in ("repeats", "chains") for row in pick(rows, part="causal", on=on)))
    for ax, on, title in zip(axes, ("repeats", "chains"), ("repeated tokens", "chains"), strict=False):
        mine = pick(rows, part="causal", on=on)
        if mine:
            draw_edits(ax, mine, edits)
            ax.set_title(title, loc="left")
        else:
            absent(ax, f"edits on {on}")
    gains = pick(rows, part="text")
    if gains:
        draw_gains(axes[2], gains)
    else:
        absent(axes[2], "natural text")
    known: dict[str, Any] = {}
    for ax, place in zip(axes, ("(a, b) ", "(a, b) ", "(c) contexts: "), strict=True):
        handles, labels = ax.get_legend_handles_labels()
        known |= {f"{place}{label}": handle for label, handle in zip(labels, handles, strict=True)}
    if known:
        known["bar: 95% interval"] = whisker("95% interval")
        figure.legend(known.values(), known.keys(), loc="outside lower center", ncols=5, columnspacing=1.2)
    lettered([ax for ax in axes if ax.axison])
    return figure


def draw_edits(ax: Axes, rows: list[Row], edits: list[str]) -> None:
    """The rise of the loss under each edit, beside its control; the same edits in every panel."""
    import numpy as np

    made = {row["edit"]: row for row in rows}

    def column(name: str) -> np.ndarray:
        found = [made[edit][name] if edit in made else None for edit in edits]
        return np.array([np.nan if value is None else value for value in found], dtype=np.float64)

    grouped_bars(
        ax,
        [EDIT_NAMES.get(edit, edit) for edit in edits],
        {"edit": column("change"), "its control": column("control_change")},
        reach={
            "edit": half_width(column("stderr"), n=rows[0]["n"]),
            "its control": half_width(column("control_stderr"), n=rows[0]["n"]),
        },
        colours={"edit": MAIN_COLOUR, "its control": CONTROL_COLOUR},
        across=True,
    )
    for place, edit in enumerate(edits):
        if edit not in made:
            ax.annotate(
                "not made", (0.0, place), xytext=(3, 0), textcoords="offset points", va="center", fontsize=6,
                color="#7f7f7f",
            )  # fmt: skip
    ax.set_xlabel("rise of the loss (nats)")


def draw_gains(ax: Axes, rows: list[Row]) -> None:
    """In-context gain on text at repeated and other contexts."""
    import numpy as np

    kinds = list(dict.fromkeys(row["without"] for row in rows))
    grouped_bars(
        ax,
        [f"without\n{kind.replace(' ', chr(10))}" if kind != "nothing" else "whole\nmodel" for kind in kinds],
        {place: np.array([row["gain"] for row in pick(rows, positions=place)]) for place in ("repeated", "new")},
        reach={
            place: half_width([row["gain_stderr"] for row in pick(rows, positions=place)], n=None)
            for place in ("repeated", "new")
        },
        colours={"repeated": MAIN_COLOUR, "new": "#5b99c2"},
        across=True,
    )
    ax.set_xlim(0.0, None)
    ax.set_xlabel("in-context gain (nats)")
    ax.set_title("text", loc="left")
