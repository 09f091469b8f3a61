"""What is predicted with the match head silenced: nothing, or a count of tokens.

Draws the rows of `python -m analyses direct_path` and `lag_pairs`.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from figures.parts.instruments import SETTINGS, Results, all_of, note_missing, one_of, only, setting_fields, shown
from figures.parts.panels import absent, lettered, whisker
from figures.parts.rows import Row
from interp.plotting import CONTROL_COLOUR, lag_names
from models.families.registry import find_family

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABEL = "beyond:direct_path"
ANALYSES = ("direct_path", "lag_pairs")
CLAIMS = ("nothing_beside",)
CAPTION = (
    "Models whose match head is silenced at the last query: all its attention on BOS, or on nothing where there "
    "is no BOS ({setting}; n = {n} held-out sequences). (a) KL(truth || prediction) of the "
    "uniform law (tick), of the silenced (circle) and of the whole model (diamond), a line for each seed. (b) "
    "Weight that the match scores give to a key whose own token x_s equals the query's x_t, x_(t-1), x_(t-2), "
    "first seed; bars: one standard error; the paper's law has none. (c) Of the silenced model that gains most "
    "over the uniform law: share of the variance of its centred log-probabilities that is explained by the "
    "frequency of a symbol in the sequence, by whether it is one of the last k + 1 tokens, by both, and, as "
    "control, by both of another sequence."
)

DARK = "#404040"
POINTS = {  # field -> name, marker, whether it is filled
    "kl_uniform": ("uniform law", "|", True),
    "kl": ("match head silenced", "o", False),
    "kl_model": ("whole model", "D", True),
}
SHARES = {
    "r2_frequency": "how often a token occurs",
    "r2_recent": "which tokens come last",
    "r2": "both",
    "r2_control": "control: another sequence",
}
PAIR_MARKERS = "os^Dv"
LEAST_REACH = 0.1  # nats to either side: where all weights are zero the axis would show their rounding
FIELDS = ("verdict", "gain", "gain_stderr", *POINTS, *SHARES, "frequency", "recent", "n", "success", "message")


def chosen(results: Results) -> Results:
    """One model of each setting, and its key block 0."""
    paths = [row for setting in SETTINGS for row in all_of(results["direct_path"], setting)]
    pairs = [row for setting in SETTINGS for row in all_of(results["lag_pairs"], setting)]
    return {
        "direct_path": [only(row, *FIELDS) for row in paths],
        "lag_pairs": [only(row, "beta", "stderr", "success") for row in pairs],
    }


def draw(results: Results) -> Figure:
    """KL with and without the match head, the match head's answer to it, and what the rest is made of."""
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D

    figure, axes = plt.subplots(1, 3, figsize=(6.3, 2.7), width_ratios=[1.25, 1.0, 0.85])
    if not shown(results["direct_path"]):
        for ax in axes:
            absent(ax, "every model")
        return figure
    loss, discount, made_of = axes
    draw_losses(loss, results["direct_path"])
    draw_discount(discount, results["lag_pairs"])
    draw_shares(made_of, results["direct_path"])
    for ax in (loss, discount):
        ax.set_ylim(len(SETTINGS) - 0.5, -0.5)
        ax.set_yticks(range(len(SETTINGS)), [setting.title for setting in SETTINGS] if ax is loss else [])
        ax.tick_params(axis="y", length=0)
        for edge in range(1, len(SETTINGS)):
            ax.axhline(edge - 0.5, color="#d9d9d9", linewidth=0.5)
    lettered([ax for ax in axes if ax.axison])
    handles = [
        Line2D([], [], color=DARK, marker=marker, markersize=7 if marker == "|" else 4, linestyle="none",
               label=f"(a) {name}", markerfacecolor=DARK if filled else "white")
        for name, marker, filled in POINTS.values()
    ] + [Line2D([], [], color=DARK, linewidth=0.6, label="(a) one seed")]  # fmt: skip
    names = lag_names("t", len(PAIR_MARKERS))
    handles += [
        Line2D([], [], color=DARK, marker=marker, markersize=3.5, linestyle="none", label=f"(b) key's token is {name}")
        for marker, name in zip(PAIR_MARKERS, names[: pairs_shown(results["lag_pairs"])], strict=False)
    ]
    handles.append(whisker("(b) ± one standard error"))
    above, below = handles[: len(POINTS) + 1], handles[len(POINTS) + 1 :]
    order = [one for pair in itertools.zip_longest(above, below) for one in pair if one is not None]  # (a) over (b)
    figure.legend(
        handles=order, loc="outside upper center", ncols=len(above), columnspacing=1.5, handletextpad=0.3,
        handlelength=1.5,
    )  # fmt: skip
    return figure


def pairs_shown(rows: list[Row]) -> int:
    """How many tokens of the query a key's own token is compared with."""
    return max((len(row["beta"]) for _, row in shown(rows) if row["success"]), default=0)


def draw_losses(ax: Axes, rows: list[Row]) -> None:
    """KL to the truth: uniform law, silenced model, whole model; a line of markers for each seed."""
    for place, setting in enumerate(SETTINGS):
        row = one_of(rows, setting)
        if row is None:
            note_missing(ax, place, setting.words)
            continue
        colour = find_family(setting.family).colour
        seeds = [one for one in all_of(rows, setting) if one["subject"]["length"] == row["subject"]["length"]]
        for number, one in enumerate(seeds):
            y = place + 0.22 * (number - (len(seeds) - 1) / 2)
            ax.plot([one[field] for field in POINTS], [y] * len(POINTS), color=colour, linewidth=0.6)
            for field, (_, marker, filled) in POINTS.items():
                face = colour if filled else "white"
                ax.plot(
                    one[field], y, marker, color=colour, markersize=7 if marker == "|" else 3.6, markerfacecolor=face
                )  # fmt: skip
    ax.set_xlim(0, None)
    ax.set_xlabel("KL to the truth (nats)")
    ax.set_title("the loss", loc="left")


def draw_discount(ax: Axes, rows: list[Row]) -> None:
    """Weights of the pairs in which a key's own token takes part, a marker for each token of the query."""
    for place, setting in enumerate(SETTINGS):
        row = one_of(rows, setting)
        if row is None or not row["success"]:
            continue
        for lag, weights in enumerate(row["beta"]):
            ax.errorbar(
                weights[0], place + (lag - (len(row["beta"]) - 1) / 2) * 0.25, xerr=row["stderr"][lag][0],
                fmt=PAIR_MARKERS[lag % len(PAIR_MARKERS)], color=find_family(setting.family).colour, markersize=3.6,
                elinewidth=0.8,
            )  # fmt: skip
    ax.axvline(0.0, color=DARK, linewidth=0.6)
    ax.margins(x=0.12)
    low, high = ax.get_xlim()
    ax.set_xlim(min(low, -LEAST_REACH), max(high, LEAST_REACH))
    ax.set_xlabel("weight in the match scores (nats)")
    ax.set_title("the key's own token", loc="left")


def draw_shares(ax: Axes, rows: list[Row]) -> None:
    """What explains the silenced model's log-probabilities, for the first setting that is better than the uniform law.

    Others are named in the caption.
    """
    counting = [(setting, row) for setting, row in shown(rows) if row["verdict"] != "nothing"]
    if not counting:
        ax.set_axis_off()
        ax.text(
            0.5, 0.5, "no model predicts better\nthan the uniform law\nwithout its match head", ha="center",
            va="center", transform=ax.transAxes, color=DARK,
        )  # fmt: skip
        return
    setting, row = max(counting, key=lambda pair: pair[1]["gain"])
    for place, (field, name) in enumerate(SHARES.items()):
        value = row[field] or 0.0
        colour = CONTROL_COLOUR if field == "r2_control" else find_family(setting.family).colour
        ax.barh(place + 0.15, value, height=0.4, color=colour)
        ax.annotate(
            f"{value:.2f}", (max(value, 0.0), place + 0.15), xytext=(2, 0), textcoords="offset points", va="center",
            fontsize=6,
        )  # fmt: skip
        ax.annotate(name, (0.0, place - 0.1), xytext=(2, 0), textcoords="offset points", va="bottom", fontsize=6)
    ax.set_ylim(len(SHARES) - 0.5, -0.6)
    ax.set_yticks([])
    ax.set_xlim(0, 1.2)
    ax.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    ax.set_xlabel("$R^2$ of its log-probabilities")
    ax.set_title(f"{setting.family},\nsilenced: explained by", loc="left")


def fields(results: Results) -> dict[str, object]:
    return setting_fields([row for _, row in shown(results["direct_path"])])
