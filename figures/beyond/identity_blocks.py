"""Match weights by block: where they are, and how far multiples of the identity.

Disentangled models are read from their weights and from their scores on held-out sequences; standard ones from their
scores and from their embedding and OV circuits.
"""

from __future__ import annotations

import math
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.parts.panels import legend_above, lettered, of_each_setting
from figures.parts.rows import Results, of_seeds, seeds_shown
from interp.instruments.identity_blocks import CARRIES
from interp.plotting import area, lag_names, share_heatmap

LABEL = "beyond:identity_blocks"
ANALYSES = {"identity_blocks": of_seeds}  # of which the first is drawn
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
PARTS = {  # share of a block's squared norm -> its name and colour
    "identity_share": ("identity $aI$", "#003566"),
    "constant_share": ("constant (unseen by the softmax)", "#d9d9d9"),
    "residual_share": ("residual (number: what the softmax sees of it)", "#c1121f"),
}
ROUTES = {"weights": "the weights", "scores": "the scores", "circuit": "the circuits"}


def draw(results: Results) -> Figure:
    """A row for each setting: for each of its two routes the map of weight, and what the heavy blocks are made of."""
    found = of_each_setting(seeds_shown(results["identity_blocks"]))
    size, widths = (6.3, 1.55 * len(found) + 0.5), [1.25, 1.0, 1.25, 1.0]
    figure, axes = plt.subplots(len(found), 4, figsize=size, width_ratios=widths, squeeze=False)
    for line, (setting, (row, *_)) in enumerate(found.items()):
        panels = axes[line]
        for ax in panels[2 * len(row["maps"]) :]:
            ax.set_axis_off()
        for side, reading in enumerate(row["maps"]):
            ax, bars = panels[2 * side : 2 * side + 2]
            draw_map(ax, reading, vocab=row["subject"]["vocab"], query=side == 0)
            draw_parts(bars, reading)
            trust = "" if reading["success"] else "\n(not to be trusted)"
            bars.set_title(f"← from {ROUTES[reading['route']]}{trust}", fontsize=6.5)
            if line < len(found) - 1:
                ax.set_xlabel("")
                bars.set_xlabel("")
        panels[0].set_title(f"{setting.title}, T = {row['subject']['length']}")
    lettered(axes[:, 0], fontsize=6.5)
    handles = [area(name, colour) for name, colour in PARTS.values()]
    legend_above(figure, handles, 3, title="share of the block's squared norm")
    return figure


def draw_map(ax: Axes, reading: dict[str, Any], *, vocab: int, query: bool) -> None:
    """Each block's part of the visible squared norm; p of a heavy block where it is not the least there can be."""
    share, p_value = (np.array(reading[name], dtype=np.float64) for name in ("weight_share", "p_value"))
    larger = np.where(p_value > 1.01 / math.factorial(vocab), p_value, np.nan)
    share_heatmap(ax, share, p_values=larger, query=query, fontsize=6.0)


def draw_parts(ax: Axes, reading: dict[str, Any]) -> None:
    """Stacked bars of the heavy blocks in the rows of the map, the visible residual written beside them."""
    pairs = heavy(reading)
    blocks = len(reading["weight_share"])
    queried = [query for query, _ in pairs]
    places = queried if len(set(queried)) == len(pairs) else list(range(len(pairs)))  # beside its row of the map
    queries, keys = lag_names("t", blocks), lag_names("s", blocks)
    left = np.zeros(len(pairs))
    for part, (_, colour) in PARTS.items():
        widths = np.array([reading[part][a][b] for a, b in pairs], dtype=np.float64)
        ax.barh(places, widths, left=left, color=colour, label=part, height=0.6, linewidth=0)
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
    """The blocks that carry weight, in their order."""
    shares = enumerate(reading["weight_share"])
    return [(query, key) for query, line in shares for key, value in enumerate(line) if value >= CARRIES]
