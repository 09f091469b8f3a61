"""A language model's sink: kappa by position."""

from __future__ import annotations

from typing import TYPE_CHECKING

from figures.parts.language import HEAD_COLOURS, Results, keep, pick
from figures.parts.panels import absent, lettered, on_one_scale, whisker
from figures.parts.rows import Row
from interp.results import half_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABEL = "beyond:language_kappa"
ANALYSES = ("language_model",)
CLAIMS = ("language_kappa",)
CAPTION = (
    "Additive law of the attention, without a positional term, fitted within bands of query positions of long "
    "chains; bars: 95% intervals; heads are set apart sideways. (a) The score of BOS above that of a key that "
    "matches nowhere; where such keys get next to no attention it is told badly. (b) The score of BOS against a "
    "full match. (c) Observed attention on BOS. With a constant number of pseudo-counts kappa would not depend on "
    "the position."
)
HEAD_MARKERS = "os^DvPX*"
PANELS = (
    ("kappa", r"$\kappa$ (nats)", "against an empty match"),
    ("kappa_minus_beta", r"$\kappa - |\beta|$ (nats)", "against a full match"),
    ("bos_mass", "attention on BOS", "share of the attention"),
)


def chosen(results: Results) -> Results:
    return keep(results, part="sink")


def draw(results: Results) -> Figure:
    """Three numbers by position, a line for each head."""
    import matplotlib.pyplot as plt

    rows = pick(results["language_model"], kind="band")
    figure, axes = plt.subplots(1, 3, figsize=(6.3, 2.6))
    for ax, (name, label, title) in zip(axes, PANELS, strict=True):
        if not rows:
            absent(ax, "the sink")
            continue
        draw_lines(ax, rows, name)
        ax.set_ylabel(label)
        ax.set_title(title, loc="left")
    if rows:
        on_one_scale(axes[:2])  # one score against two others
        handles, labels = axes[0].get_legend_handles_labels()
        bar = whisker("95% interval")
        figure.legend([*handles, bar], [*labels, str(bar.get_label())], loc="outside lower center", ncols=6)
    lettered([ax for ax in axes if ax.axison])
    return figure


def draw_lines(ax: Axes, rows: list[Row], name: str) -> None:
    """One number of every head by position, with 95% intervals."""
    heads = list(dict.fromkeys(row["name"] for row in rows))
    for place, head in enumerate(heads):
        aside = 2 ** (0.09 * (place - (len(heads) - 1) / 2))  # so that intervals do not hide each other
        mine = [row for row in pick(rows, name=head) if row[name] is not None]
        ax.errorbar(
            [aside * (row["from"] * row["to"]) ** 0.5 for row in mine],
            [row[name] for row in mine],
            yerr=[half_width(row[f"{name}_stderr"] or 0.0, n=row["n"]) for row in mine],
            color=HEAD_COLOURS[place % len(HEAD_COLOURS)],
            marker=HEAD_MARKERS[place % len(HEAD_MARKERS)],
            markersize=3,
            linewidth=0.9,
            elinewidth=0.6,
            label=f"head {head}",
        )
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set_xlabel("position of the query")
