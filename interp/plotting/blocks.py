"""Maps of numbers: weight matrices, one number for each pair of query and key block, one for each head of a model."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib
import numpy as np
from jaxtyping import Float
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

UNKNOWN = "#e6e6e6"  # cells without a number
NEGATIVE = 0.2  # of the scale: from here on a negative cell has a dash, for grey print, where both ends look alike
HEAD_TICKS = 12  # at most, along each axis of a map of heads


def lag_names(letter: str, blocks: int) -> list[str]:
    """The tokens that the blocks of a stream hold, as axis labels: $x_t$, $x_{t-1}$, ..."""
    return [f"$x_{letter}$" if lag == 0 else f"$x_{{{letter}-{lag}}}$" for lag in range(blocks)]


def pair_heatmap(
    ax: Axes,
    values: Float[np.ndarray, "block block"],
    stderrs: Float[np.ndarray, "block block"],
    *,
    highest: float | None = None,
    fontsize: float | None = None,
) -> Axes:
    """A weight for each pair of query block and key block, with ± one standard error; aligned pairs are framed.

    The scale diverges around zero and ends at `highest`. A NaN leaves its cell grey and empty. The image is
    `ax.images[0]`.
    """
    scale = highest or float(np.nanmax(np.abs(values), initial=0.0)) or 1.0
    _cells(ax, values, colours="RdBu_r", lowest=-scale, highest=scale)
    for (query, key), value in np.ndenumerate(values):
        if np.isfinite(value):
            stderr = float(stderrs[query, key])
            error = f"±{stderr:.2f}" if stderr >= 0.005 else "±<.01"
            words = f"{value:.2f}\n{error}".replace("-0.00", "0.00")
            _write(ax, query, key, words, light=bool(abs(value) > 0.6 * scale), fontsize=fontsize)
    return _name_pairs(ax, len(values))


def share_heatmap(
    ax: Axes,
    shares: Float[np.ndarray, "block block"],
    *,
    p_values: Float[np.ndarray, "block block"] | None = None,
    heavy: float = 0.05,
    query: bool = True,
    fontsize: float | None = None,
) -> Axes:
    """Each pair's share of a whole, in percent; p of a test, if it is finite, where the share is at least `heavy`."""
    _cells(ax, shares, colours="Blues", lowest=0.0, highest=1.0)
    for (row, column), share in np.ndenumerate(shares):
        if not np.isfinite(share):
            continue
        words = f"{100 * share:.0f}%" if share >= heavy else f"{100 * share:.1f}%"
        if share >= heavy and p_values is not None and np.isfinite(p_values[row, column]):
            words += f"\np={p_values[row, column]:.3f}".replace("0.", ".")
        _write(ax, row, column, words, light=bool(share > 0.55), fontsize=fontsize)
    return _name_pairs(ax, len(shares), query=query)


def _name_pairs(ax: Axes, blocks: int, *, query: bool = True) -> Axes:
    """Names of a [query block, key block] map, and frames around the pairs (r - 1, r), where the law has its weights.

    query=False leaves out the names of query blocks.
    """
    for place in range(blocks - 1):
        corner = (place + 0.5, place - 0.5)
        ax.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor="#000000", linewidth=1.1))
    ax.set_xticks(range(blocks), lag_names("s", blocks))
    ax.set_yticks(range(blocks), lag_names("t", blocks) if query else [""] * blocks)
    ax.tick_params(length=0)
    ax.set_xlabel("key block")
    ax.set_ylabel("query block" if query else "")
    return ax


def block_heatmap(
    ax: Axes, matrix: Float[np.ndarray, "query_dim key_dim"], *, vocab: int, highest: float | None = None
) -> Axes:
    """A weight matrix in a diverging scale around zero, with its |V| x |V| blocks ruled and named by lag.

    A dash marks the negative cells that can be seen. The image is `ax.images[0]`.
    """
    rows, columns = matrix.shape
    scale = (float(np.abs(matrix).max()) if highest is None else highest) or 1.0
    ax.imshow(matrix, cmap="RdBu_r", vmin=-scale, vmax=scale, interpolation="nearest", aspect="equal")
    query, key = np.nonzero(matrix <= -NEGATIVE * scale)
    shades = np.where(matrix[query, key] < -0.6 * scale, "white", "black")
    ax.hlines(query, key - 0.22, key + 0.22, colors=shades.tolist(), linewidth=0.5, gid="negative")
    for size, rule, ticks, letter in (
        (columns, ax.axvline, ax.set_xticks, "j"),
        (rows, ax.axhline, ax.set_yticks, "i"),
    ):
        for edge in range(vocab, size, vocab):
            rule(edge - 0.5, color="#555555", linewidth=0.5)
        ticks([(block + 0.5) * vocab - 0.5 for block in range(size // vocab)], lag_names(letter, size // vocab))
    ax.tick_params(length=0)
    ax.set_xlabel("key block")
    ax.set_ylabel("query block")
    return ax


def head_heatmap(
    ax: Axes,
    values: Float[np.ndarray, "layer head"],
    *,
    marks: Mapping[tuple[int, int], tuple[str, str]] | None = None,
    highest: float = 1.0,
) -> Axes:
    """A number for each head, layers down and heads across; a NaN leaves its cell grey.

    `marks` frame a head in a colour and write a word into it: {(layer, head): (word, colour)}. The image is
    `ax.images[0]`.
    """
    _cells(ax, values, colours="Blues", lowest=0.0, highest=highest)
    for (layer, head), (word, colour) in (marks or {}).items():
        ax.add_patch(Rectangle((head - 0.5, layer - 0.5), 1, 1, fill=False, edgecolor=colour, linewidth=2.0))
        light = bool(np.nan_to_num(values[layer, head]) > 0.55 * highest)
        _write(ax, layer, head, word, light=light, fontsize=None)
    for axis, count in ((ax.yaxis, values.shape[0]), (ax.xaxis, values.shape[1])):
        axis.set_ticks(range(0, count, -(-count // HEAD_TICKS)))
    ax.tick_params(length=0)
    ax.set_xlabel("head")
    ax.set_ylabel("layer")
    return ax


def _cells(ax: Axes, values: Float[np.ndarray, "row column"], *, colours: str, lowest: float, highest: float) -> None:
    colourmap = matplotlib.colormaps[colours].with_extremes(bad=UNKNOWN)
    ax.imshow(np.ma.masked_invalid(values), cmap=colourmap, vmin=lowest, vmax=highest, interpolation="nearest")
    ax.spines[:].set_visible(True)


def _write(ax: Axes, row: int, column: int, words: str, *, light: bool, fontsize: float | None) -> None:
    size = fontsize or rcParams["xtick.labelsize"]
    ax.text(column, row, words, ha="center", va="center", fontsize=size, color="white" if light else "black")
