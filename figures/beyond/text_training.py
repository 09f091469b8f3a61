"""A small language model along its training: losses, beta and kappa."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.parts.figure import every
from figures.parts.panels import ZERO, legend_below, lettered, on_one_scale, whisker
from figures.parts.rows import Results, Row, where
from interp.plotting import MAIN_COLOUR, curve, mark
from interp.results import half_width

LABEL = "beyond:text_training"
ANALYSES = {"text_training": every}
CLAIMS = ("text_training",)
CAPTION = (
    "Models of two layers along their training on text; passages of held-out text, each twice in its sequence; "
    "bars: 95% intervals over passages. (a) By how much the second copy of a passage is predicted better than the "
    "first. (b) Attention of the head that ends with the highest score, on keys that follow the query's token, as "
    "a multiple of what even attention has there. (c, d) beta and kappa of the additive law, fitted to that "
    "head's attention."
)
LOOKS: tuple[dict[str, Any], ...] = (
    {"color": MAIN_COLOUR, "marker": "o"},
    {"color": "#5b99c2", "marker": "s"},
    {"color": "#c1121f", "marker": "^"},
    {"color": "#52796f", "marker": "D"},
)
SECOND_LAG = {"markerfacecolor": "white", "linestyle": ":"}
TEXTS = {"alice": "a book, in characters", "asv": "the Bible, in byte pairs"}
PANELS = (  # what is drawn, the title, the vertical axis, and the value that means nothing
    ("gain", "gain: loss of the first copy less that of the second", "nats per token", 0.0),
    ("attention", "attention on matches, even attention = 1", "times even attention", 1.0),
    ("beta", r"$\beta_1$ (filled) and $\beta_2$ (open) of the law", "nats", 0.0),
    ("kappa", r"$\kappa$ of the law", "nats", 0.0),
)


def draw(results: Results) -> Figure:
    """The gain on repeats, the attention on matches, beta and kappa over the steps; a line for each run."""
    names = list(dict.fromkeys(row["run"] for row in results["text_training"]))
    figure, axes = plt.subplots(2, 2, figsize=(6.3, 4.3), sharex=True)
    handles = []
    for name, look in zip(names, LOOKS, strict=False):
        rows = where(results["text_training"], run=name)
        for ax, (what, *_) in zip(axes.flat, PANELS, strict=True):
            draw_line(ax, rows, what, 0, **look)
        draw_line(axes[1, 0], rows, "beta", 1, **{**look, **SECOND_LAG})
        first = rows[0]
        repeated = f", {first['repeated']:.0%} with a repeat" if first["repeated"] else ""
        handles.append(mark(f"{name}: {TEXTS[first['text']]}{repeated}", **{**look, "linestyle": "-"}))
    for ax, (_, title, up, empty) in zip(axes.flat, PANELS, strict=True):
        ax.set_title(title)
        ax.set_ylabel(up)
        ax.axhline(empty, color=ZERO, linewidth=0.5, zorder=0)
        ax.set_xscale("symlog", linthresh=10)
        ax.minorticks_off()
    on_one_scale(axes[1])
    last = max(row["step"] for row in results["text_training"])
    axes[0, 0].set_xlim(-2.0, 1.4 * last)  # step 0 at the left end, the last one whole
    axes[0, 0].set_xticks([step for step in (0, 10, 100, 1000, 10000, 100000) if step <= last])
    axes[0, 0].xaxis.set_major_formatter("{x:g}")
    for ax in axes[-1]:
        ax.set_xlabel("step")
    lettered(axes.flat)
    legend_below(figure, [*handles, whisker("95% interval over passages")], 2)
    return figure


def draw_line(ax: Axes, rows: list[Row], what: str, lag: int, **look: Any) -> None:
    """One number of every snapshot that has it, with its 95% interval."""
    points = [(row["step"], *number(row, what, lag), row["n"]) for row in rows]
    points = [(step, value, error, n) for step, value, error, n in points if value is not None]
    if points:
        reach = [float(half_width(error or 0.0, n=n)) for _, _, error, n in points]
        curve(ax, [step for step, *_ in points], [value for _, value, *_ in points], reach=reach, **look)


def number(row: Row, what: str, lag: int) -> tuple[float | None, float | None]:
    """A number of a snapshot and its standard error, None where it has none."""
    if what == "attention":  # of the best head on keys that follow the query's token, as a multiple of even attention
        even = row["induction_even"]
        known = row["induction"] is not None and even
        return (row["induction"] / even, (row["induction_stderr"] or 0.0) / even) if known else (None, None)
    if what == "beta":
        return (row["beta"][lag], row["beta_stderr"][lag]) if lag < len(row["beta"]) else (None, None)
    return row[what], row[f"{what}_stderr"]
