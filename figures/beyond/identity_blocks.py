"""Match weights by block: where they are, and how far multiples of the identity.

Draws the rows of `python -m analyses identity_blocks`. Disentangled models are read from their weights and from their
scores on held-out sequences; standard ones from their scores and from their embedding and OV circuits.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from figures.parts.instruments import SETTINGS, Results, only, seeds_shown, setting_fields, shown
from figures.parts.panels import absent
from figures.parts.rows import Row
from interp.instruments.identity_blocks import CARRIES
from interp.plotting import lag_names, share_heatmap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABEL = "beyond:identity_blocks"
ANALYSES = ("identity_blocks",)
CLAIMS = ("identity",)
CAPTION = (
    "Blocks of the match weights, the first seed of each setting ({setting}), read in two ways: "
    "from W_A itself and from the scores on n = {n} held-out sequences; for the standard model from the scores "
    "and from its circuits (embedding, OV and QK). Maps: each block's part of the squared norm that the softmax "
    "can see, block (x_t-a, x_s-b) comparing these two tokens; aligned blocks framed; a p written in a heavy "
    "block is that of its permutation test over all |V|! relabelings, where it is not the least there can be. "
    "Bars: what heavy blocks are made of, as shares of squared norm; in red what is no test of equality and the "
    "softmax sees. A constant is the same for every key and cancels in the softmax."
)

GRIDS = ("weight_share", "identity_share", "constant_share", "residual_share", "visible_residual_share", "p_value")
PARTS = {  # share of a block's squared norm -> its name and colour
    "identity_share": ("identity $aI$", "#003566"),
    "constant_share": ("constant (unseen by the softmax)", "#d9d9d9"),
    "residual_share": ("residual (number: what the softmax sees of it)", "#c1121f"),
}
ROUTES = {"weights": "the weights", "scores": "the scores", "circuit": "the circuits"}


def chosen(results: Results) -> Results:
    """The seeds of each setting, of which the first is drawn; of each route the maps, not the blocks themselves."""
    rows = []
    for row in (row for _, seeds in seeds_shown(results["identity_blocks"]) for row in seeds):
        maps = [
            {name: found[name] for name in ("route", *GRIDS, "identity", "r2", "n", "success", "message")}
            for found in row["maps"]
        ]
        rows.append(only(row, "agreement", "n", "success", "message") | {"maps": maps})
    return {"identity_blocks": rows}


def draw(results: Results) -> Figure:
    """A row for each setting: for each of its two routes the map of weight, and what the heavy blocks are made of."""
    import matplotlib.pyplot as plt
    from matplotlib.patches import Patch

    found = dict(shown(results["identity_blocks"]))
    figure, axes = plt.subplots(
        len(SETTINGS), 4, figsize=(6.3, 1.55 * len(SETTINGS) + 0.5), width_ratios=[1.25, 1.0, 1.25, 1.0]
    )
    for place, (setting, panels) in enumerate(zip(SETTINGS, axes, strict=True)):
        row = found.get(setting)
        letter = f"({chr(ord('a') + place)}) "
        if row is None:
            absent(panels[0], setting.title)
            for ax in panels[1:]:
                ax.set_axis_off()
            continue
        for side, ax, bars in ((0, panels[0], panels[1]), (1, panels[2], panels[3])):
            if side >= len(row["maps"]):
                absent(ax, f"second reading of\n{setting.title}")
                bars.set_axis_off()
                continue
            reading = row["maps"][side]
            draw_map(ax, reading, first=side == 0, least=least_p(row))
            draw_parts(bars, reading)
            trust = "" if reading["success"] else "\n(not to be trusted)"
            bars.set_title(f"← from {ROUTES[reading['route']]}{trust}", fontsize=6.5)
        for ax in panels if place < len(SETTINGS) - 1 else []:
            ax.set_xlabel("")
        panels[0].set_title(f"{letter}{setting.title}, T = {row['subject']['length']}", fontsize=6.5)
    handles = [Patch(facecolor=colour, label=name) for name, colour in PARTS.values()]
    figure.legend(handles=handles, loc="outside upper center", ncols=3, title="share of the block's squared norm")
    return figure


def draw_map(ax: Axes, reading: dict[str, Any], *, first: bool, least: float) -> None:
    """Each block's part of the visible squared norm; p of a heavy block is written where it is not the least."""
    share, p_value = (np.array(reading[name], dtype=np.float64) for name in ("weight_share", "p_value"))
    larger = np.where(p_value > 1.01 * least, p_value, np.nan)
    share_heatmap(ax, share, p_values=larger, query=first, fontsize=6.0)


def least_p(row: Row) -> float:
    """The least p that a permutation test over all relabelings can give."""
    return 1 / math.factorial(row["subject"]["vocab"])


def draw_parts(ax: Axes, reading: dict[str, Any]) -> None:
    """Stacked bars of the heavy blocks in the rows of the map, the visible residual written beside them."""
    pairs = sorted(heavy(reading))
    blocks = len(reading["weight_share"])
    queried = [query for query, _ in pairs]
    places = queried if len(set(queried)) == len(pairs) else list(range(len(pairs)))  # beside its row of the map
    queries, keys = lag_names("t", blocks), lag_names("s", blocks)
    left = np.zeros(len(pairs))
    for part, (_, colour) in PARTS.items():
        widths = np.array([reading[part][query][key] for query, key in pairs], dtype=np.float64)
        ax.barh(places, widths, left=left, height=0.6, color=colour, linewidth=0)
        left += widths
    for place, (query, key) in zip(places, pairs, strict=True):
        text = f"{reading['visible_residual_share'][query][key]:.3f}"
        ax.text(1.03, place, text, va="center", fontsize=6, color=PARTS["residual_share"][1])
    ax.set_yticks(places, [f"{queries[query]}, {keys[key]}" for query, key in pairs])
    ax.set_ylim(max(len(pairs), blocks) - 0.5, -0.5)
    ax.set_xlim(0, 1)
    ax.set_xticks([0, 0.5, 1], ["0", ".5", "1"])
    ax.set_xlabel("share")


def heavy(reading: dict[str, Any]) -> list[tuple[int, int]]:
    """The blocks that carry weight, heaviest first."""
    share = reading["weight_share"]
    pairs = [(query, key) for query, line in enumerate(share) for key, value in enumerate(line) if value >= CARRIES]
    return sorted(pairs, key=lambda pair: -share[pair[0]][pair[1]])


def fields(results: Results) -> dict[str, object]:
    return setting_fields(results["identity_blocks"])
