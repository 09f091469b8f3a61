"""What is predicted with the match head silenced: nothing, or a count of tokens."""

from __future__ import annotations

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
)
from figures.parts.rows import Results, Row, Setting, of_settings, seeds_shown, setting_fields
from interp.plotting import CONTROL_COLOUR, beside, mark
from models.families.registry import find_family

LABEL = "beyond:direct_path"
ANALYSES = {"direct_path": of_settings}
CLAIMS = ("nothing_beside",)
CAPTION = (
    "Models whose match head is silenced at the last query: all its attention on BOS, or on nothing where there "
    "is no BOS ({setting}; n = {n} held-out sequences). (a) KL(truth || prediction) of the "
    "uniform distribution (tick), of the silenced (circle) and of the whole model (diamond), a line for each seed. "
    "(b) Of the silenced model that gains most "
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


def draw(results: Results) -> Figure:
    """KL with and without the match head, and what is known without it."""
    found = of_each_setting(seeds_shown(results["direct_path"]))
    figure, (losses, shares) = plt.subplots(1, 2, figsize=(6.3, 2.7), width_ratios=[1.6, 1.0])
    draw_losses(losses, found)
    draw_shares(shares, {setting: rows[0] for setting, rows in found.items()})
    setting_lines([losses], [setting.title for setting in found])
    lettered((losses, shares))
    handles = [
        mark(name, marker=marker, markersize=size, markerfacecolor=DARK if filled else "white")
        for name, marker, size, filled in POINTS.values()
    ]
    legend_above(figure, [*handles, mark("one seed", linestyle="-", linewidth=0.6)], 4, handlelength=1.5)
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
