"""Plotting primitives: axes in, axes out. They draw arrays and compute nothing.

    attention_heatmap(ax, pattern)                 one head's attention, query by key
    score_heatmap(ax, scores)                      one head's scores, before the softmax
    induction_bars(ax, weights, kinds)             one query's attention, each key coloured by its overlap
    block_heatmap(ax, matrix, vocab=5)             a weight matrix with its |V| x |V| blocks ruled
    rpe_stem(ax, bias)                             a relative bias r_{i-j} over the distance
    kl_curves(ax, lengths, means)                  loss over length, a curve per estimator or model

The overlap colours are fixed, so that they mean the same in every figure: full match yellow, partial teal, none grey,
as in the paper (fig:mech_main), BOS wine and early keys black. They differ in lightness, so they survive greyscale
print and the common colour blindnesses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from jaxtyping import Float, Int64
from numpy.typing import NDArray

from interp.notation import overlap

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize
else:
    Artist = Axes = Normalize = Any  # so that reading this module does not load matplotlib

Array: TypeAlias = NDArray[Any]

OVERLAP_COLOURS = {
    "full": "#f2b701",
    "partial": "#008080",
    "none": "#a6a6a6",
    "bos": "#882255",
    "early": "#1a1a1a",
}
OVERLAP_NAMES = {
    "full": "full match",
    "partial": "partial match",
    "none": "no match",
    "bos": "BOS",
    "early": "early key",
}
SHUT_OUT = "#c1121f"  # scores below the scale


def key_kinds(masks: Int64[np.ndarray, " key"], *, order: int, bos: bool) -> list[str]:
    """What each key is to the query: `bos`, `early`, or a candidate of which `full`, `partial` or `none` matches.

    `masks` are one query's match masks without BOS, as `match_masks` gives them: -1 where a key is no candidate.

    >>> key_kinds(np.array([-1, -1, 3, 0, 1]), order=2, bos=True)
    ['bos', 'early', 'early', 'full', 'none', 'partial']
    """
    kinds = ["bos"] if bos else []
    for mask in masks.tolist():
        if mask < 0:
            kinds.append("early")
        elif overlap(mask) == order:
            kinds.append("full")
        else:
            kinds.append("partial" if mask else "none")
    return kinds


def attention_heatmap(
    ax: Axes,
    pattern: Float[np.ndarray, "query key"],
    *,
    highest: float = 1.0,
    colours: str = "Blues",
    first_position: int = 0,
    mark_last: bool = False,
) -> Axes:
    """One head's attention weights, queries down and keys across; keys after the query are grey.

    The colour runs with the square root of the weight, so that shares of a few percent can be seen. The image is
    `ax.images[0]`, e.g. for a colour bar. `first_position` is what the first key is called. `mark_last` points at the
    last query, the only one that carries the loss.
    """
    from matplotlib.colors import PowerNorm

    norm = PowerNorm(0.5, vmin=0.0, vmax=highest)
    return _causal_image(
        ax, pattern, norm=norm, colours=colours, first_position=first_position, mark_last=mark_last, under=None
    )


def score_heatmap(
    ax: Axes,
    scores: Float[np.ndarray, "query key"],
    *,
    lowest: float | None = None,
    highest: float | None = None,
    colours: str = "YlGnBu",
    first_position: int = 0,
    mark_last: bool = False,
) -> Axes:
    """One head's scores before the softmax, queries down and keys across; keys after the query are grey.

    The scale is linear, between the extremes unless told. Scores below `lowest`, such as a construction's "never", are
    red (SHUT_OUT). The image is `ax.images[0]`.
    """
    from matplotlib.colors import Normalize

    visible = scores[np.isfinite(scores)]
    norm = Normalize(
        vmin=float(visible.min()) if lowest is None else lowest,
        vmax=float(visible.max()) if highest is None else highest,
    )
    return _causal_image(
        ax, scores, norm=norm, colours=colours, first_position=first_position, mark_last=mark_last, under=SHUT_OUT
    )


def _causal_image(
    ax: Axes,
    values: Array,
    *,
    norm: Normalize,
    colours: str,
    first_position: int,
    mark_last: bool,
    under: str | None,
) -> Axes:
    """Queries down, keys across, with what lies in the future of a query left out."""
    import matplotlib

    queries, keys = values.shape
    left, top = first_position - 0.5, first_position + keys - queries - 0.5
    future = np.arange(keys)[None, :] > np.arange(keys - queries, keys)[:, None]
    shown = np.ma.masked_array(np.asarray(values, dtype=np.float64), mask=future | ~np.isfinite(values))
    colourmap = matplotlib.colormaps[colours].with_extremes(bad="#e6e6e6", under=under)
    ax.imshow(
        shown,
        norm=norm,
        cmap=colourmap,
        interpolation="nearest",
        aspect="equal",
        extent=(left, left + keys, top + queries, top),
    )
    ax.spines[:].set_visible(True)
    if mark_last:
        ax.plot(1.02, 0.5 / queries, "<", color="#c1121f", markersize=3, transform=ax.transAxes, clip_on=False)
    ax.set_xlabel("key position")
    ax.set_ylabel("query position")
    return ax


def induction_bars(
    ax: Axes, weights: Float[np.ndarray, " key"], kinds: Sequence[str], *, first_position: int = 0
) -> Axes:
    """One query's attention weights, a bar for each key, coloured by what the key is (see `key_kinds`).

    The bars are `ax.containers[0]`, in the order of the keys.
    """
    if len(weights) != len(kinds):
        raise ValueError(f"expected a kind for each of the {len(weights)} keys, got {len(kinds)}")
    if unknown := sorted(set(kinds) - set(OVERLAP_COLOURS)):
        raise ValueError(f"unknown kind {unknown[0]!r}: expected {', '.join(OVERLAP_COLOURS)}")
    positions = np.arange(len(weights)) + first_position
    ax.bar(positions, weights, width=0.85, color=[OVERLAP_COLOURS[kind] for kind in kinds], linewidth=0)
    ax.set_xlim(positions[0] - 1, positions[-1] + 1)
    ax.set_ylim(bottom=0)
    ax.set_xlabel("key position")
    ax.set_ylabel("attention weight")
    return ax


def overlap_handles(masses: Mapping[str, float]) -> list[Artist]:
    """Legend entries, in the fixed order, with each kind's share of the attention."""
    from matplotlib.patches import Patch

    return [
        Patch(facecolor=colour, label=f"{OVERLAP_NAMES[kind]}: {masses[kind]:.2f}")
        for kind, colour in OVERLAP_COLOURS.items()
        if kind in masses
    ]


def block_heatmap(
    ax: Axes, matrix: Float[np.ndarray, "query_dim key_dim"], *, vocab: int, highest: float | None = None
) -> Axes:
    """A weight matrix in a diverging scale around zero, with its |V| x |V| blocks ruled and named by lag.

    The image is `ax.images[0]`.
    """
    rows, columns = matrix.shape
    if rows % vocab or columns % vocab:
        raise ValueError(f"a {rows} x {columns} matrix has no whole blocks of {vocab}")
    scale = float(np.abs(matrix).max()) if highest is None else highest
    scale = scale or 1.0
    ax.imshow(matrix, cmap="RdBu_r", vmin=-scale, vmax=scale, interpolation="nearest", aspect="equal")
    for edge in range(vocab, columns, vocab):
        ax.axvline(edge - 0.5, color="#555555", linewidth=0.5)
    for edge in range(vocab, rows, vocab):
        ax.axhline(edge - 0.5, color="#555555", linewidth=0.5)
    ax.set_xticks([(block + 0.5) * vocab - 0.5 for block in range(columns // vocab)], _lags("j", columns // vocab))
    ax.set_yticks([(block + 0.5) * vocab - 0.5 for block in range(rows // vocab)], _lags("i", rows // vocab))
    ax.tick_params(length=0)
    ax.set_xlabel("key block")
    ax.set_ylabel("query block")
    return ax


def rpe_stem(ax: Axes, bias: Float[np.ndarray, " distance"], *, limit: float | None = None) -> Axes:
    """A relative bias over the distance i - j, as stems.

    Values beyond `limit` in size, such as a construction's "never", are drawn at the limit as arrow heads.
    """
    distances = np.arange(len(bias))
    bound = np.inf if limit is None else limit
    inside = np.abs(bias) <= bound
    heights = np.clip(bias, -bound, bound)
    ax.vlines(distances, 0.0, heights, color="#5b99c2", linewidth=0.8)
    ax.plot(distances[inside], heights[inside], "o", color="#003566", markersize=2.0)
    for sign, marker in ((1, "^"), (-1, "v")):
        beyond = ~inside & (np.sign(bias) == sign)
        if beyond.any():
            ax.plot(distances[beyond], heights[beyond], marker, color="#003566", markersize=3.0, linestyle="none")
    ax.axhline(0.0, color="#555555", linewidth=0.5)
    ax.set_xlabel("distance $i - j$")
    ax.set_ylabel("relative bias $r_{i-j}$")
    return ax


def kl_curves(
    ax: Axes,
    lengths: Int64[np.ndarray, " length"],
    means: Mapping[str, Array],
    *,
    stderrs: Mapping[str, Array] | None = None,
    colours: Mapping[str, str] | None = None,
    labels: Literal["legend", "ends"] = "legend",
) -> Axes:
    """KL over the length, one curve per name, on logarithmic axes; bands are two standard errors either side.

    A NaN leaves a gap. With labels="ends" the names stand at the right ends of the curves, moved apart where they would
    touch, instead of in a legend. Curves are `ax.lines`, in the order of `means`; their labels are the names.
    """
    from matplotlib.ticker import LogLocator, NullFormatter

    if labels not in ("legend", "ends"):
        raise ValueError(f"labels must be 'legend' or 'ends', got {labels!r}")
    if not means:
        raise ValueError("means hold no curve: expected at least one name")
    for kind, rows in (("means", means), ("stderrs", stderrs or {})):
        for name, values in rows.items():
            if name not in means:
                raise ValueError(f"{kind} name a curve {name!r} that means do not have")
            if np.shape(values) != lengths.shape:
                raise ValueError(f"{kind} of {name!r} have shape {np.shape(values)}, expected {lengths.shape}")
            if kind == "means" and (np.asarray(values) <= 0).any():
                raise ValueError(f"means of {name!r} must be > 0 on a logarithmic axis, got {np.nanmin(values)}")
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    for name, values in means.items():
        colour = (colours or {}).get(name)
        (line,) = ax.plot(lengths, values, "o-", color=colour, markersize=3.5, linewidth=1.3, label=name)
        if stderrs and name in stderrs:
            low, high = values - 2 * stderrs[name], values + 2 * stderrs[name]
            # Where the band reaches zero it is cut a decade below the curve: the axis has no zero.
            low = np.maximum(low, values / 10)
            ax.fill_between(lengths, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    ax.set_xticks(lengths, [str(length) for length in lengths.tolist()])
    ax.set_xticks([], minor=True)
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.set_xlabel("length $T$")
    ax.set_ylabel("KL to the true law (nats)")
    if labels == "legend":
        ax.legend(frameon=False)
    else:
        _label_ends(ax)
    return ax


def _label_ends(ax: Axes) -> None:
    """Write each curve's name at its right end, in its colour, moved up or down until no two touch."""
    ends = []
    for line in ax.lines:
        values = np.asarray(line.get_ydata(), dtype=np.float64)
        known = np.flatnonzero(np.isfinite(values))
        if len(known):
            ends.append((line, float(np.asarray(line.get_xdata())[known[-1]]), float(values[known[-1]])))
    low, high = (float(np.log(limit)) for limit in ax.get_ylim())
    height = ax.get_window_extent().height / ax.get_figure(root=True).dpi * 72  # type: ignore[union-attr]
    step = 11.0 / height * (high - low)  # a line of text of 9 points, in the units of the logarithmic axis
    places: list[float] = []
    for _, _, value in sorted(ends, key=lambda end: end[2]):
        wanted = float(np.log(value))
        places.append(wanted if not places else max(wanted, places[-1] + step))
    for (line, x, value), place in zip(sorted(ends, key=lambda end: end[2]), places, strict=True):
        ax.annotate(
            str(line.get_label()),
            (x, value),
            xytext=(6.0, (place - float(np.log(value))) / (high - low) * height),
            textcoords="offset points",
            color=line.get_color(),
            fontsize=9,
            va="center",
            annotation_clip=False,
        )


def _lags(letter: str, blocks: int) -> list[str]:
    return [f"$x_{letter}$" if lag == 0 else f"$x_{{{letter}-{lag}}}$" for lag in range(blocks)]
