"""A map of a model's heads: a number for each layer and head, and marks on heads with a role."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from interp.plotting.blocks import UNKNOWN
from interp.plotting.panel import text_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes
else:
    Axes = Any

TICKS = 12  # at most, along each axis


def head_heatmap(
    ax: Axes,
    values: Float[np.ndarray, "layer head"],
    *,
    marks: Mapping[tuple[int, int], tuple[str, str]] | None = None,
    highest: float = 1.0,
    colours: str = "Blues",
) -> Axes:
    """A number for each head, layers down and heads across; a NaN leaves its cell grey.

    `marks` frame a head in a colour and write a word into it: {(layer, head): (word, colour)}. The image is
    `ax.images[0]`.
    """
    import matplotlib
    from matplotlib.patches import Rectangle

    colourmap = matplotlib.colormaps[colours].with_extremes(bad=UNKNOWN)
    ax.imshow(np.ma.masked_invalid(values), cmap=colourmap, vmin=0.0, vmax=highest, interpolation="nearest")
    ax.spines[:].set_visible(True)
    size = text_size("xtick.labelsize")
    for (layer, head), (word, colour) in (marks or {}).items():
        ax.add_patch(Rectangle((head - 0.5, layer - 0.5), 1, 1, fill=False, edgecolor=colour, linewidth=2.0))
        dark = bool(np.nan_to_num(values[layer, head]) > 0.55 * highest)
        ax.text(head, layer, word, ha="center", va="center", fontsize=size, color="white" if dark else "black")
    for axis, count in ((ax.yaxis, values.shape[0]), (ax.xaxis, values.shape[1])):
        step = -(-count // TICKS)
        axis.set_ticks(range(0, count, step))
    ax.tick_params(length=0)
    ax.set_xlabel("head")
    ax.set_ylabel("layer")
    return ax
