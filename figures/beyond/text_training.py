"""A small language model along its training: losses, beta and kappa."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from figures.parts.language import Results
from figures.parts.panels import absent, lettered, on_one_scale, whisker
from figures.parts.rows import Row
from interp.plotting import MAIN_COLOUR
from interp.results import half_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABEL = "beyond:text_training"
ANALYSES = ("text_training",)
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


def chosen(results: Results) -> Results:
    return {"text_training": results["text_training"]}


def runs_of(rows: list[Row]) -> dict[str, list[Row]]:
    """The histories by run."""
    return {name: [row for row in rows if row["run"] == name] for name in dict.fromkeys(row["run"] for row in rows)}


def draw(results: Results) -> Figure:
    """The gain on repeats, the attention on matches, beta and kappa over the steps; a line for each run."""
    import matplotlib.pyplot as plt

    runs = runs_of(results["text_training"])
    figure, axes = plt.subplots(2, 2, figsize=(6.3, 4.3), sharex=True)
    if not runs:
        for ax in axes.flat:
            absent(ax, "snapshots")
        return figure
    gain, attention, beta, kappa = axes.flat
    for place, (name, rows) in enumerate(runs.items()):
        look = LOOKS[place % len(LOOKS)]
        line(gain, rows, lambda row: (row["gain"], row["gain_stderr"]), look, label=name)
        line(attention, rows, relative_attention, look)
        line(beta, rows, lambda row: (row["beta"][0], row["beta_stderr"][0]), look)
        if len(rows[0]["beta"]) > 1:
            line(beta, rows, lambda row: (row["beta"][1], row["beta_stderr"][1]), {**look, **SECOND_LAG})
        line(kappa, rows, lambda row: (row["kappa"], row["kappa_stderr"]), look)
    gain.set_title("gain: loss of the first copy less that of the second", loc="left")
    attention.set_title("attention on matches, even attention = 1", loc="left")
    attention.set_ylabel("times even attention")
    beta.set_title(r"$\beta_1$ (filled) and $\beta_2$ (open) of the law", loc="left")
    kappa.set_title(r"$\kappa$ of the law", loc="left")
    on_one_scale([beta, kappa])
    for ax, empty in ((gain, 0.0), (attention, 1.0), (beta, 0.0), (kappa, 0.0)):
        ax.axhline(empty, color="#555555", linewidth=0.5, zorder=0)
        ax.set_xscale("symlog", linthresh=10)
        ax.minorticks_off()
    last = max(row["step"] for rows in runs.values() for row in rows)
    gain.set_xlim(-2.0, 1.4 * last)  # step 0 at the left end, the last one whole
    gain.set_xticks([step for step in (0, 10, 100, 1000, 10000, 100000) if step <= last])
    gain.xaxis.set_major_formatter("{x:g}")
    for ax in (gain, beta, kappa):
        ax.set_ylabel("nats per token" if ax is gain else "nats")
    for ax in axes[-1]:
        ax.set_xlabel("step")
    lettered(axes.flat)
    figure.legend(handles=legend(runs), loc="outside lower center", ncols=2)
    return figure


def legend(runs: dict[str, list[Row]]) -> list[Any]:
    """Runs, and the intervals."""
    from matplotlib.lines import Line2D

    found = [
        Line2D([], [], label=f"{name}: {in_short(rows[0])}", **LOOKS[place % len(LOOKS)], markersize=3)
        for place, (name, rows) in enumerate(runs.items())
    ]
    return [
        *found,
        whisker("95% interval over passages"),
    ]


def relative_attention(row: Row) -> tuple[float | None, float | None]:
    """Of the best head on keys that follow the query's token, as a multiple of what even attention has there."""
    even = row["induction_even"]
    if row["induction"] is None or not even:
        return None, None
    return row["induction"] / even, (row["induction_stderr"] or 0.0) / even


def line(
    ax: Axes, rows: list[Row], number: Callable[[Row], Any], look: dict[str, Any], *, label: str | None = None
) -> None:
    """One number of every snapshot with its standard error, drawn as a 95% interval."""
    mine = [(row["step"], *number(row), row["n"]) for row in rows]
    reach = (half_width(error or 0.0, n=n) for _, _, error, n in mine)
    known = [(step, value, side) for (step, value, _, _), side in zip(mine, reach, strict=True) if value is not None]
    if not known:
        return
    steps, values, errors = zip(*known, strict=True)
    ax.errorbar(steps, values, yerr=errors, markersize=3, linewidth=1.0, elinewidth=0.6, label=label, **look)


def in_short(row: Row) -> str:
    """The same in a few words, for the legend."""
    text = {"alice": "a book, in characters", "asv": "the Bible, in byte pairs"}[row["text"]]
    return f"{text}, {row['repeated']:.0%} with a repeat" if row["repeated"] else text
