"""An induction head along its training: loss, copying, matching, beta, kappa."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.parts.figure import every
from figures.parts.panels import CONTROL, ZERO, legend_below, lettered, named_lines, side_by_side, whisker
from figures.parts.rows import Results, Row, where
from interp.plotting import MAIN_COLOUR, curve, mark
from interp.results import half_width

LABEL = "beyond:formation"
ANALYSES = {"formation": every}
CLAIMS = ("formation",)
CAPTION = (
    "Attention-only transformers trained on sequences that repeat, {seeds} seeds each; a line is a run. Means over "
    "queries where the next token has been seen before. (a) Loss. (b) Attention on the previous token, of the head "
    "that has most there at the end. (c) Attention on full matches, of the head that matches best at the end. "
    "(d, e) Its beta and kappa, where its attention is a law of matches; without BOS kappa is that of the first "
    "token. Grey: one layer, the control. (f) Steps from the event to the loss being half way down: attention on "
    "the previous token and on matches half way up, beta first seen above half of its last value (left of 0: later)."
)
PANELS = (
    ("loss", "loss on repeats", "nats"),
    ("copied", "copying", "attention on lag 1"),
    ("matched", "matching", "attention on matches"),
    ("beta", r"$\beta$ of the match head", "nats"),
    ("kappa", r"$\kappa$ of the match head", "nats"),
)
EVENTS = {"copied_leads": "copying", "matched_leads": "matching", "beta_leads": r"$\beta$"}
LOOKS: dict[tuple[int, bool], dict[str, Any]] = {  # by layers, and whether there is a BOS
    (2, True): {"color": MAIN_COLOUR, "linestyle": "-", "marker": "o"},
    (2, False): {"color": MAIN_COLOUR, "linestyle": ":", "marker": "o", "markerfacecolor": "white"},
    (3, True): {"color": "#c1121f", "linestyle": "-", "marker": "^"},
    (3, False): {"color": "#c1121f", "linestyle": ":", "marker": "^", "markerfacecolor": "white"},
    (1, True): {"color": CONTROL, "linestyle": "-", "marker": "s"},
    (1, False): {"color": CONTROL, "linestyle": ":", "marker": "s", "markerfacecolor": "white"},
}
THIN: dict[str, Any] = {"linewidth": 0.7, "markersize": 2.0}
APART = 0.17  # between sizes, in lines


def fields(results: Results) -> dict[str, object]:
    """What the caption says of the runs."""
    return {"seeds": len({row["seed"] for row in where(results["formation"], kind="snapshot")})}


def draw(results: Results) -> Figure:
    """Five quantities over the steps, a line for each run, and the order of the events."""
    figure, axes = plt.subplots(2, 3, figsize=(6.3, 4.2))
    rows = results["formation"]
    for (what, title, up), ax in zip(PANELS, axes.flat, strict=False):
        for look, run in runs(rows):
            steps = [row["step"] for row in run]
            curve(ax, steps, [row[what] for row in run], **look, **THIN)
        ax.set_title(title)
        ax.set_ylabel(up)
        ax.set_xlabel("step")
    axes[1, 1].axhline(0.0, color=ZERO, linewidth=0.5, zorder=0)
    draw_order(axes[1, 2], where(rows, kind="order", run="seeds"))
    lettered(axes.flat)
    handles = [
        mark(f"{layers} layer{'s' * (layers > 1)}, {'BOS' if bos else 'no BOS'}", **look)
        for (layers, bos), look in LOOKS.items()
    ]
    legend_below(figure, [*handles, whisker("(f) 95% interval over seeds")], 4)
    return figure


def runs(rows: list[Row]) -> Iterator[tuple[dict[str, Any], list[Row]]]:
    """The snapshots of each run, with the look of its size."""
    found = where(rows, kind="snapshot")
    for run in dict.fromkeys(row["run"] for row in found):
        mine = where(found, run=run)
        yield LOOKS[mine[0]["layers"], mine[0]["bos"]], mine


def draw_order(ax: Axes, rows: list[Row]) -> None:
    """For each event the mean over seeds of each size, with its interval."""
    ax.set_title("before the loss")
    named_lines([ax], list(EVENTS.values()))
    ax.axvline(0.0, color=ZERO, linewidth=0.5, zorder=0)
    for place, row in enumerate(rows):
        look = LOOKS[row["layers"], row["bos"]] | {"linestyle": "none"}
        for line, name in enumerate(EVENTS):
            if row[name] is not None:
                reach = half_width(row[f"{name}_stderr"] or 0.0, n=row[f"{name}_n"])
                y = line + side_by_side(place, len(rows), APART)
                curve(ax, row[name], y, reach=reach, across=True, **look, markersize=3.0)
    ax.set_xlabel("steps")
