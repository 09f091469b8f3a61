"""What is predicted with the match head silenced: nothing, or a count of tokens."""

from __future__ import annotations

import itertools
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.parts.panels import (
    DARK,
    legend_above,
    lettered,
    note,
    of_each_setting,
    setting_lines,
    side_by_side,
    whisker,
)
from figures.parts.rows import Results, Row, Setting, of_settings, seeds_shown, setting_fields
from interp.plotting import CONTROL_COLOUR, beside, curve, lag_names, mark
from models.families.registry import find_family

LABEL = "beyond:direct_path"
ANALYSES = ("direct_path", "lag_pairs")
CLAIMS = ("nothing_beside",)
CAPTION = (
    "Models whose match head is silenced at the last query: all its attention on BOS, or on nothing where there "
    "is no BOS ({setting}; n = {n} held-out sequences). (a) KL(truth || prediction) of the "
    "uniform distribution (tick), of the silenced (circle) and of the whole model (diamond), a line for each seed. (b) "
    "Weight that the match scores give to a key whose own token x_s equals the query's x_t, x_(t-1), x_(t-2), "
    "first seed; bars: one standard error; the paper's law has none. (c) Of the silenced model that gains most "
    "over the uniform distribution: share of the variance of its centred log-probabilities that is explained by the "
    "frequency of a symbol in the sequence, by whether it is one of the last k + 1 tokens, by both, and, as "
    "control, by both of another sequence."
)

POINTS = {  # field -> name, marker, its size, whether it is filled
    "kl_uniform": ("uniform distribution", "|", 7, True),
    "kl": ("match head silenced", "o", 4, False),
    "kl_model": ("whole model", "D", 4, True),
}
SHARES = {
    "r2_frequency": "how often a token occurs",
    "r2_recent": "which tokens come last",
    "r2": "both",
    "r2_control": "control: another sequence",
}
PAIR_MARKERS = "os^Dv"
LEAST_REACH = 0.1  # nats to either side: where all weights are zero the axis would show their rounding


def chosen(results: Results) -> Results:
    """Every model of each setting, and its key block 0."""
    return {name: of_settings(results[name]) for name in ANALYSES}


def draw(results: Results) -> Figure:
    """KL with and without the match head, the match head's answer to it, and what the rest is made of."""
    found = of_each_setting(seeds_shown(results["direct_path"]))
    pairs = {setting: rows[0] for setting, rows in seeds_shown(results["lag_pairs"]).items() if setting in found}
    figure, axes = plt.subplots(1, 3, figsize=(6.3, 2.7), width_ratios=[1.25, 1.0, 0.85])
    draw_losses(axes[0], found)
    compared = draw_discount(axes[1], list(found), {setting: row for setting, row in pairs.items() if row["success"]})
    draw_shares(axes[2], {setting: rows[0] for setting, rows in found.items()})
    setting_lines(axes[:2], [setting.title for setting in found])
    lettered(axes)
    above = [
        mark(f"(a) {name}", marker=marker, markersize=size, markerfacecolor=DARK if filled else "white")
        for name, marker, size, filled in POINTS.values()
    ]
    above.append(mark("(a) one seed", linestyle="-", linewidth=0.6))
    below = [
        mark(f"(b) key's token is {name}", marker=marker, markersize=3.5)
        for marker, name in zip(PAIR_MARKERS, lag_names("t", compared), strict=False)
    ]
    below.append(whisker("(b) ± one standard error"))
    order = [one for pair in itertools.zip_longest(above, below) for one in pair if one is not None]  # (a) over (b)
    legend_above(figure, order, len(above), handlelength=1.5)
    return figure


def draw_losses(ax: Axes, found: dict[Setting, list[Row]]) -> None:
    """KL to the truth: uniform, silenced model, whole model; a line of markers for each seed."""
    for place, (setting, seeds) in enumerate(found.items()):
        colour = find_family(setting.family).colour
        for number, row in enumerate(seeds):
            y = place + side_by_side(number, len(seeds), 0.22)
            ax.plot([row[field] for field in POINTS], [y] * len(POINTS), color=colour, linewidth=0.6)
            for field, (_, marker, size, filled) in POINTS.items():
                face = colour if filled else "white"
                ax.plot(row[field], y, marker, color=colour, markersize=size, markerfacecolor=face)
    ax.set_xlim(0, None)
    ax.set_xlabel("KL to the truth (nats)")
    ax.set_title("the loss")


def draw_discount(ax: Axes, settings: list[Setting], known: dict[Setting, Row]) -> int:
    """Weights of the pairs in which a key's own token takes part, a marker for each token of the query; how many."""
    for setting, row in known.items():
        for lag, (weights, errors) in enumerate(zip(row["beta"], row["stderr"], strict=True)):
            y = settings.index(setting) + side_by_side(lag, len(row["beta"]), 0.25)
            marker = PAIR_MARKERS[lag % len(PAIR_MARKERS)]
            look: dict[str, Any] = {"linestyle": "none", "marker": marker, "color": find_family(setting.family).colour}
            curve(ax, weights[0], y, reach=errors[0], across=True, gid="pair", **look)
    ax.axvline(0.0, color=DARK, linewidth=0.6)
    ax.margins(x=0.12)
    low, high = ax.get_xlim()
    ax.set_xlim(min(low, -LEAST_REACH), max(high, LEAST_REACH))
    ax.set_xlabel("weight in the match scores (nats)")
    ax.set_title("the key's own token")
    return max((len(row["beta"]) for row in known.values()), default=0)


def draw_shares(ax: Axes, found: dict[Setting, Row]) -> None:
    """What explains the log-probabilities of the silenced model that gains most over the uniform distribution."""
    counting = [(setting, row) for setting, row in found.items() if row["verdict"] != "nothing"]
    if not counting:
        note(ax, "no model predicts better\nthan uniform\nwithout its match head")
        return
    setting, row = max(counting, key=lambda pair: pair[1]["gain"])
    for place, (field, name) in enumerate(SHARES.items()):
        value = row[field] or 0.0
        colour = CONTROL_COLOUR if field == "r2_control" else find_family(setting.family).colour
        ax.barh(place + 0.15, value, height=0.4, color=colour)
        beside(ax, max(value, 0.0), place + 0.15, f"{value:.2f}", dx=2)
        beside(ax, 0.0, place - 0.1, name, dx=2, va="bottom")
    ax.set_ylim(len(SHARES) - 0.5, -0.6)
    ax.set_yticks([])
    ax.set_xlim(0, 1.2)
    ax.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    ax.set_xlabel("$R^2$ of its log-probabilities")
    ax.set_title(f"{setting.family},\nsilenced: explained by")


def fields(results: Results) -> dict[str, object]:
    return setting_fields(seeds[0] for seeds in seeds_shown(results["direct_path"]).values())
