"""Maps over blocks of the residual stream: weight matrices, and one number for each pair of query and key block."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from interp.plotting.panel import text_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes
else:
    Axes = Any

UNKNOWN = "#e6e6e6"  # cells without a number
NEGATIVE = 0.2  # of the scale: from here on a negative cell has a dash, for grey print, where both ends look alike


def lag_names(letter: str, blocks: int) -> list[str]:
    """The tokens that the blocks of a stream hold, as axis labels: $x_t$, $x_{t-1}$, ..."""
    return [f"$x_{letter}$" if lag == 0 else f"$x_{{{letter}-{lag}}}$" for lag in range(blocks)]


def name_blocks(ax: Axes, blocks: int, *, query: bool = True) -> Axes:
    """Ticks of a [query block, key block] map: the key's tokens across and, unless query=False, the query's down."""
    ax.set_xticks(range(blocks), lag_names("s", blocks))
    ax.set_yticks(range(blocks), lag_names("t", blocks) if query else [""] * blocks)
    ax.tick_params(length=0)
    ax.set_xlabel("key block")
    if query:
        ax.set_ylabel("query block")
    return ax


def outline_aligned(ax: Axes, blocks: int, **style: Any) -> Axes:
    """A frame around the aligned pairs (r - 1, r), where the law has its weights."""
    from matplotlib.patches import Rectangle

    look = {"fill": False, "edgecolor": "#000000", "linewidth": 1.1, **style}
    for place in range(blocks - 1):
        ax.add_patch(Rectangle((place + 0.5, place - 0.5), 1, 1, **look))
    return ax


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
            words = f"{value:.2f}\n{_error_text(float(stderrs[query, key]))}".replace("-0.00", "0.00")
            _write(ax, query, key, words, light=bool(abs(value) > 0.6 * scale), fontsize=fontsize)
    outline_aligned(ax, len(values))
    return name_blocks(ax, len(values))


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
    outline_aligned(ax, len(shares))
    return name_blocks(ax, len(shares), query=query)


def block_heatmap(
    ax: Axes, matrix: Float[np.ndarray, "query_dim key_dim"], *, vocab: int, highest: float | None = None
) -> Axes:
    """A weight matrix in a diverging scale around zero, with its |V| x |V| blocks ruled and named by lag.

    A dash marks the negative cells that can be seen. The image is `ax.images[0]`.
    """
    rows, columns = matrix.shape
    if rows % vocab or columns % vocab:
        raise ValueError(f"a {rows} x {columns} matrix has no whole blocks of {vocab}")
    scale = float(np.abs(matrix).max()) if highest is None else highest
    scale = scale or 1.0
    ax.imshow(matrix, cmap="RdBu_r", vmin=-scale, vmax=scale, interpolation="nearest", aspect="equal")
    query, key = np.nonzero(matrix <= -NEGATIVE * scale)
    shades = np.where(matrix[query, key] < -0.6 * scale, "white", "black")
    ax.hlines(query, key - 0.22, key + 0.22, colors=shades.tolist(), linewidth=0.5, gid="negative")
    for edge in range(vocab, columns, vocab):
        ax.axvline(edge - 0.5, color="#555555", linewidth=0.5)
    for edge in range(vocab, rows, vocab):
        ax.axhline(edge - 0.5, color="#555555", linewidth=0.5)
    ax.set_xticks([(block + 0.5) * vocab - 0.5 for block in range(columns // vocab)], lag_names("j", columns // vocab))
    ax.set_yticks([(block + 0.5) * vocab - 0.5 for block in range(rows // vocab)], lag_names("i", rows // vocab))
    ax.tick_params(length=0)
    ax.set_xlabel("key block")
    ax.set_ylabel("query block")
    return ax


def _cells(ax: Axes, values: Float[np.ndarray, "row column"], *, colours: str, lowest: float, highest: float) -> None:
    import matplotlib

    colourmap = matplotlib.colormaps[colours].with_extremes(bad=UNKNOWN)
    ax.imshow(np.ma.masked_invalid(values), cmap=colourmap, vmin=lowest, vmax=highest, interpolation="nearest")
    ax.spines[:].set_visible(True)


def _write(ax: Axes, row: int, column: int, words: str, *, light: bool, fontsize: float | None) -> None:
    size = text_size("xtick.labelsize") if fontsize is None else fontsize
    ax.text(column, row, words, ha="center", va="center", fontsize=size, color="white" if light else "black")


def _error_text(stderr: float) -> str:
    """A standard error to two places."""
    return f"±{stderr:.2f}" if stderr >= 0.005 else "±<.01"
