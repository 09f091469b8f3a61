"""Pictures of attention: heat maps of a head, one query's bars coloured by overlap, relative biases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import matplotlib
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.colors import Normalize, PowerNorm
from matplotlib.patches import Patch
from numpy.typing import NDArray

from interp.plotting.panel import (
    LETTER,
    OVERLAP_COLOURS,
    OVERLAP_NAMES,
    SHUT_OUT,
    area,
    text_size,
    width_in_points,
)

Array: TypeAlias = NDArray[Any]

LEAST_MASS = 5e-3  # a share that rounds to 0.00 gets no legend entry, unless a bar of it is visible
LEAST_HEIGHT = 0.02  # of the highest bar: about a point of a bar in the smallest panel
LEAST_ROOM = 6.0  # points between two bars that a token below each needs


def attention_heatmap(
    ax: Axes,
    values: Float[np.ndarray, "query key"],
    *,
    norm: Normalize | None = None,
    colours: str = "Blues",
    first_position: int = 0,
    mark_last: bool = False,
) -> Axes:
    """One head's attention weights or scores, queries down and keys across; keys after the query are grey.

    By default the colour runs with the square root of the weight, so that shares of a few percent can be seen; for
    scores give a `norm`. What lies below it, such as the construction's masked scores, is red (SHUT_OUT). The image is
    `ax.images[0]`, e.g. for a colour bar. `first_position` is what the first key is called. `mark_last` points at the
    last query, the only one that carries the loss.
    """
    queries, keys = values.shape
    left, top = first_position - 0.5, first_position + keys - queries - 0.5
    future = np.arange(keys)[None, :] > np.arange(keys - queries, keys)[:, None]
    shown = np.ma.masked_array(np.asarray(values, dtype=np.float64), mask=future | ~np.isfinite(values))
    colourmap = matplotlib.colormaps[colours].with_extremes(bad="#e6e6e6", under=SHUT_OUT)
    norm, extent = norm or PowerNorm(0.5, vmin=0.0, vmax=1.0), (left, left + keys, top + queries, top)
    ax.imshow(shown, norm=norm, cmap=colourmap, interpolation="nearest", aspect="equal", extent=extent)
    ax.spines[:].set_visible(True)
    if mark_last:
        ax.plot(1.02, 0.5 / queries, "<", color="#c1121f", markersize=3, transform=ax.transAxes, clip_on=False)
    ax.set_xlabel("key position")
    ax.set_ylabel("query position")
    return ax


def induction_bars(
    ax: Axes,
    weights: Float[np.ndarray, " key"],
    kinds: Sequence[str],
    *,
    first_position: int = 0,
    tokens: Sequence[str] | None = None,
) -> Axes:
    """One query's attention weights, a bar for each key, coloured by what the key is (see `key_kinds`).

    `tokens` are written below their bars where there is room; otherwise the axis counts positions, and the first key is
    called `first_position`. The bars are `ax.containers[0]`, in the order of the keys.
    """
    positions = np.arange(len(weights)) + first_position
    ax.bar(positions, weights, width=0.85, color=[OVERLAP_COLOURS[kind] for kind in kinds], linewidth=0)
    ax.set_xlim(positions[0] - 1, positions[-1] + 1)
    ax.set_ylim(bottom=0)
    ax.set_xlabel("key position")
    ax.set_ylabel("attention weight")
    if tokens is not None:
        _write_tokens(ax, positions, tokens)
    return ax


def _write_tokens(ax: Axes, positions: Array, tokens: Sequence[str]) -> None:
    """The keys' tokens as tick labels that do not touch, long ones vertical; none where they would be unreadable."""
    room = width_in_points(ax) / (len(tokens) + 1)
    if room < LEAST_ROOM:
        return
    size = min(room, text_size("xtick.labelsize"))
    ax.set_xticks(positions, tokens, fontsize=size)
    for label, token in zip(ax.get_xticklabels(), tokens, strict=True):
        if LETTER * size * len(token) > room:
            label.set_rotation(90)
    ax.tick_params(axis="x", length=0)
    ax.set_xlabel("key, by its token")


def visible_masses(weights: Array, kinds: Sequence[str], masses: Mapping[str, float]) -> dict[str, float]:
    """The kinds with a legend entry: those whose mass does not round to zero, and those with a visible bar."""
    highest = dict.fromkeys(OVERLAP_COLOURS, 0.0)
    for kind, weight in zip(kinds, weights, strict=True):
        highest[kind] = max(highest[kind], float(weight))
    visible = LEAST_HEIGHT * max(highest.values())
    return {
        kind: masses[kind]
        for kind in OVERLAP_COLOURS
        if masses[kind] >= LEAST_MASS or (highest[kind] >= visible and highest[kind] > 0)
    }


def overlap_handles(masses: Mapping[str, float]) -> list[Patch]:
    """Legend entries, in the fixed order, with each kind's share of the attention; no share is written as 0.00."""
    return [
        area(f"{OVERLAP_NAMES[kind]}: {share_text(masses[kind])}", colour)
        for kind, colour in OVERLAP_COLOURS.items()
        if kind in masses
    ]


def share_text(share: float) -> str:
    """A share to two places."""
    return f"{share:.2f}" if share >= LEAST_MASS else "<0.01"


def rpe_stem(ax: Axes, bias: Float[np.ndarray, " distance"], *, limit: float | None = None) -> Axes:
    """A relative bias over the distance i - j, as stems.

    Values beyond `limit` in size, such as the construction's masked ones, are drawn at the limit as arrow heads.
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
    ax.set_ylabel("relative bias $r_{i-j}$ (nats)")
    return ax
