"""Panels of attention that several figures share; each draws one row of `attention` or `construction_attention`.

A trained head need not copy the lag of its number, so everything here goes by the lag that a head attends to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure as Plt
from matplotlib.figure import SubFigure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from figures.parts.panels import legend_below, on_one_scale, parts_of, there
from figures.parts.rows import SHOWN_LENGTH, Results, Row, matching, nearest, setting_fields, start_in
from interp.plotting import (
    NEGATIVE,
    OVERLAP_COLOURS,
    OVERLAP_NAMES,
    area,
    attention_heatmap,
    beside,
    block_heatmap,
    induction_bars,
    overlap_handles,
    rpe_stem,
    share_text,
    visible_masses,
)
from models.families.registry import PAPER, find_family

HIERARCHICAL = {"prior": "hierarchical", "bos": True}
DRAWN = (  # what tells which row it is, and the last query
    "checkpoint", "subject", "construction", "order", "vocab", "length", "alpha", "beta", "kappa",
    "tokens", "kinds", "weights", "mass", "copies",
)  # fmt: skip
PAGE_FIELDS = ("copy_bias", "match_bias", "match_weight", "copy_pattern", "match_scores", "match_pattern")
WITH_BLOCKS = tuple(family for family in PAPER if find_family(family).blocks)
FORBIDDEN = 1000.0  # scores and biases of this size are a construction's "always" and "never", not values to compare
LEANS = 0.05  # of a copy head's last query on BOS: then its own share is written too
SCORE_RANGE = 8.0  # nats below the best key: e^-8 is 0.0003
MINUS = "\N{MINUS SIGN}"
SCORE_COLOURS = "YlGnBu"
# Colour bars, and the words of captions on them.
WEIGHT_BAR: dict[str, Any] = {"label": "weight (nats; dash: < 0)"}
PATTERN_BAR: dict[str, Any] = {
    "label": "attention weight", "ticks": (0.0, 0.05, 0.2, 0.5, 1.0), "names": ("0", "0.05", "0.2", "0.5", "1"),
}  # fmt: skip
SCORE_BAR: dict[str, Any] = {  # what lies lower has the last colour
    "label": "score below the query's largest (nats)", "ticks": range(-int(SCORE_RANGE), 1),
    "names": (f"\N{LESS-THAN OR EQUAL TO}{MINUS}8", *(f"{MINUS}{nats}" for nats in range(7, 0, -1)), "0"),
}  # fmt: skip
DASHES = f"a dash: negative, by {NEGATIVE:.0%} of the scale or more"


# --- Which rows are drawn ----------------------------------------------------------------------------------------


def kept(rows: Iterable[Row], *fields: str) -> list[Row]:
    """The rows with what tells which row it is, its last query, and these fields."""
    return [{field: row[field] for field in (*DRAWN, *fields) if field in row} for row in rows]


def independent(rows: Sequence[Row], *, bos: bool) -> list[Row]:
    """The trained disentangled model of the independent task whose length is nearest to 64."""
    found = nearest(rows, SHOWN_LENGTH, family="disentangled", prior="independent", bos=bos)
    return [] if found is None else [found]


def of_families(
    rows: Sequence[Row], wanted: int, *, families: Sequence[str] = PAPER, both_starts: bool = False
) -> list[Row]:
    """A row of each family on the hierarchical task with BOS, all of the length nearest to `wanted`.

    With both starts, the first run from a soft start stands beside each that is from hard copies.
    """
    guide = nearest(rows, wanted, **HIERARCHICAL)
    found: list[Row] = []
    for family in families if guide else ():
        words = {"family": family, "length": guide["subject"]["length"], **HIERARCHICAL}  # type: ignore[index]
        mine = matching(rows, **words)[:1]
        if both_starts and mine and start_in(mine[0]) == "hard":
            mine += matching(rows, start="soft", **words)[:1]
        found += mine
    return found


def by_family(results: Results, families: Sequence[str] = PAPER) -> dict[str, list[Row]]:
    """The rows of each family, that in the paper's place first; families without a row are warned of."""
    rows = results["attention"]
    found = {family: [row for row in rows if row["subject"]["family"] == family] for family in families}
    there({f"{family} model, hierarchical prior with BOS": mine for family, mine in found.items()})
    return {family: mine for family, mine in found.items() if mine}


def in_order(results: Results, families: Sequence[str] = PAPER) -> list[Row]:
    """All of them, families in the order of the paper."""
    return [row for mine in by_family(results, families).values() for row in mine]


# --- What a row says ---------------------------------------------------------------------------------------------


def by_lag(row: Row) -> list[dict[str, Any]]:
    """The copy heads, shortest lag first."""
    return sorted(row["copies"], key=lambda copy: (copy["lag"], copy["head"]))


def order_of(row: Row) -> int:
    return row["subject"]["order"] if "subject" in row else row["order"]


def vocab_of(row: Row) -> int:
    return row["subject"]["vocab"] if "subject" in row else row["vocab"]


def bos_offset(row: Row) -> int:
    """1 where BOS stands before the tokens."""
    return int(row["kinds"][0] == "bos")


def length_of(row: Row) -> int:
    return len(row["kinds"]) - bos_offset(row)


def copies_are_distinct(row: Row) -> bool:
    """Whether every head copies a lag of its own."""
    return all(copy["verdict"] == f"copies lag {copy['lag']}" for copy in row["copies"])


def blocks_by_lag(row: Row) -> NDArray[Any]:
    """W_A^(2) with its blocks in the order x_i, x_{i-1}, ..., whichever head writes them."""
    matrix, vocab = np.array(row["match_weight"]), vocab_of(row)
    if not copies_are_distinct(row):
        return matrix
    places = [0, *(copy["head"] + 1 for copy in by_lag(row))]
    index = np.concatenate([np.arange(place * vocab, (place + 1) * vocab) for place in places])
    return matrix[np.ix_(index, index)]


def largest_weight(rows: Iterable[Row]) -> float:
    """The largest match weight of all rows, for one scale of their pictures."""
    found = [row["match_weight"] for row in rows if row["match_weight"] is not None]
    return max((float(np.abs(matrix).max()) for matrix in found), default=1.0)


def caption_fields(results: Results) -> dict[str, object]:
    """What the captions of these figures say of their rows."""
    rows = [row for rows in results.values() for row in rows]
    said: dict[str, Any] = {**setting_fields(rows), "starts": _starts_in_words(rows), "dashes": DASHES}
    said["range"] = SCORE_RANGE
    if len(rows) == 1 and "beta" in rows[0]:  # a construction by itself
        said["setting"] = f"{said['setting']}, beta = {rows[0]['beta'][0]:.3g}"
        said["setting"] += "" if rows[0].get("kappa") is None else f", kappa = {rows[0]['kappa']:.4g}"
    return said


def _starts_in_words(rows: Iterable[Row]) -> str:
    """How training started, a sentence: a head that was started on its lag need not have found it."""
    starts: dict[str, list[str]] = {}
    for row in rows:
        if "subject" in row and not find_family(row["subject"]["family"]).analytic:
            starts.setdefault(row["subject"]["family"], []).append(row["subject"].get("init") or "not recorded")
    said = "; ".join(f"{family} {' and '.join(dict.fromkeys(mine))}" for family, mine in starts.items())
    return f"Start of training: {said} (copy(c): a bias of c on each copy head's lag)." if said else ""


# --- Panels ------------------------------------------------------------------------------------------------------


def copy_panel(ax: Axes, row: Row, place: int, *, scores: bool = False) -> None:
    """The attention or the scores of a copy head, the `place`-th by lag; it says which head, and its share on its lag.

    Where the last query leans on BOS, its own share is added.
    """
    copy = by_lag(row)[place]
    if scores:
        _below_best(ax, row["copy_scores"][copy["head"]], row)
    else:
        attention_heatmap(ax, np.array(row["copy_pattern"][copy["head"]]), first_position=1 - bos_offset(row))
    words = [f"head {copy['head']}", f"lag {copy['lag']}: {copy['share']:.2f}"]
    if copy["bos"] >= LEANS:  # then the last query differs from the rest
        words.append(f"last: {copy['last']:.2f}")
    ax.text(0.97, 0.96, "\n".join(words), transform=ax.transAxes, ha="right", va="top", fontsize=6)
    _with_ticks(ax, row)


def match_panel(ax: Axes, row: Row) -> None:
    """The match head's attention after the softmax."""
    attention_heatmap(ax, np.array(row["match_pattern"]), first_position=1 - bos_offset(row), mark_last=True)
    _with_ticks(ax, row)


def match_score_panel(ax: Axes, row: Row) -> None:
    """The match head's scores below each query's largest."""
    _below_best(ax, row["match_scores"], row, mark_last=True)
    _with_ticks(ax, row)


def _below_best(ax: Axes, scores: Sequence[Sequence[float | None]], row: Row, *, mark_last: bool = False) -> None:
    """Scores less the largest of their query: the softmax sees no more than that, so that heads share one scale.

    What lies `SCORE_RANGE` or more below has less than e^-SCORE_RANGE of the weight of the best key, and has the palest
    colour.
    """
    values = np.array(scores, dtype=np.float64)
    relative = values - np.nanmax(values, axis=-1, keepdims=True)
    cut = np.where(np.isfinite(relative), np.maximum(relative, -SCORE_RANGE), relative)
    look: dict[str, Any] = {"first_position": 1 - bos_offset(row), "mark_last": mark_last}
    attention_heatmap(ax, cut, norm=Normalize(-SCORE_RANGE, 0.0), colours=SCORE_COLOURS, **look)


def _with_ticks(ax: Axes, row: Row) -> None:
    """First position, middle and end."""
    ticks = [1 - bos_offset(row), length_of(row) // 2, length_of(row)]
    ax.set_xticks(ticks)
    ax.set_yticks(ticks)


def weight_panel(ax: Axes, row: Row, *, highest: float | None = None) -> None:
    """W_A^(2), its blocks in the order of the lags they hold."""
    block_heatmap(ax, blocks_by_lag(row), vocab=vocab_of(row), highest=highest)
    if not copies_are_distinct(row):  # then no block can be named by a lag
        names = ["token", *(f"head {head}" for head in range(order_of(row)))]
        ax.set_xticks(ax.get_xticks(), names)
        ax.set_yticks(ax.get_yticks(), names)
    ax.spines[:].set_visible(True)


def bars_panel(ax: Axes, row: Row, *, title: str) -> None:
    """The last query's attention by overlap, with the share of each kind above it; BOS is position 0.

    `overlap_key` says elsewhere what the colours mean.
    """
    weights, masses = np.array(row["weights"]), shown_masses(row)
    induction_bars(ax, weights, row["kinds"], first_position=1 - bos_offset(row))
    ax.set(xlim=(-1.5, length_of(row) + 1.5), ylim=(0, 1.1 * float(weights.max())))
    ax.xaxis.set_major_locator(MaxNLocator("auto", integer=True, steps=[1, 2, 5, 10]))
    ax.set_title(title)
    shares = [share_text(share) for share in masses.values()]
    ax.legend(
        overlap_handles(masses), shares, ncols=len(masses), loc="lower right", bbox_to_anchor=(1.0, 1.02),
        columnspacing=0.8, borderpad=0.2, borderaxespad=0.0, handlelength=0.9,
    )  # fmt: skip


def shown_masses(row: Row) -> dict[str, float]:
    """The shares worth a legend entry."""
    return visible_masses(np.array(row["weights"]), row["kinds"], row["mass"])


def overlap_key(figure: Plt | SubFigure, rows: Iterable[Row]) -> None:
    """What the overlap colours mean, for all panels of bars."""
    there = {kind for row in rows for kind in shown_masses(row)}
    handles = [area(OVERLAP_NAMES[kind], colour) for kind, colour in OVERLAP_COLOURS.items() if kind in there]
    legend_below(figure, handles, len(handles), handlelength=0.9, columnspacing=0.9)


def bias_panel(ax: Axes, bias: Sequence[float]) -> None:
    """A relative bias; a construction's "always" and "never" are arrow heads with their value beside them."""
    values = np.array(bias)
    ordinary = np.abs(values[np.abs(values) < FORBIDDEN])
    limit = 1.25 * max(float(ordinary.max(initial=0.0)), 4.0)
    rpe_stem(ax, values, limit=limit if (np.abs(values) >= FORBIDDEN).any() else None)
    for sign in (1, -1):
        beyond = np.flatnonzero(sign * values >= FORBIDDEN)
        if len(beyond):
            words = f"{values[beyond[0]]:,.0f}".replace("-", MINUS).replace(",", " ")
            left = beyond[0] < len(values) / 2  # write towards the middle
            beside(ax, beyond[0 if left else -1], sign * limit, words, dx=4 if left else -6)
    ax.set_xticks([0, len(values) // 2, len(values) - 1])


def colour_bar(
    figure: Plt | SubFigure, panels: Iterable[Axes], *, label: str, ticks: Any = (), names: Any = (), **options: Any
) -> None:
    """A colour bar common to all panels."""
    panels = list(panels)
    bar = figure.colorbar(panels[0].images[0], ax=panels, label=label, **options)
    if names:
        bar.set_ticks(list(ticks), labels=list(names))
        bar.ax.minorticks_off()


# --- Whole figures -----------------------------------------------------------------------------------------------

Kinds = Sequence[tuple[str, Callable[..., object], dict[str, Any]]]  # name, panel and its options


def title_of(row: Row, rows: Iterable[Row]) -> str:
    """The family's name in two short lines; the start of its training where another start stands beside it."""
    family = row["subject"]["family"]
    if sum(other["subject"]["family"] == family for other in rows) > 1:
        return f"{family},\n{start_in(row)} start"
    return find_family(family).label.replace(", ", ",\n")


def copy_kinds(rows: Iterable[Row], **options: Any) -> Kinds:
    """The copy heads by lag, as rows of `draw_maps`."""
    heads = max(map(order_of, rows))
    return [(f"copy, lag {place + 1}", copy_panel, {"place": place, **options}) for place in range(heads)]


def draw_maps(figure: Plt | SubFigure, rows: Sequence[Row], kinds: Kinds, titles: Sequence[str]) -> NDArray[Any]:
    """A column for each model, a row for each kind of map; labels stand at the left and below."""
    grid = figure.subplots(len(kinds), len(rows), squeeze=False)
    for row, title, axes in zip(rows, titles, grid.T, strict=True):
        for ax, (name, panel, options) in zip(axes, kinds, strict=True):
            panel(ax, row, **options)
            ax.set_ylabel(f"{name}\n{ax.get_ylabel()}".strip() if row is rows[0] else "")
            if ax is not axes[-1]:
                ax.set_xlabel("")
                ax.set_xticklabels([])
            if row is not rows[0]:
                ax.set_yticklabels([])
        axes[0].set_title(title)
    return grid


def draw_weights(
    figure: Plt | SubFigure, rows: Sequence[Row], titles: Sequence[str], *, highest: float, **bar: Any
) -> None:
    """The match weights beside each other, on one scale."""
    grid = figure.subplots(1, len(rows), squeeze=False)[0]
    for ax, row, title in zip(grid, rows, titles, strict=True):
        weight_panel(ax, row, highest=highest)
        ax.set_title(title)
        ax.set_ylabel(ax.get_ylabel() if row is rows[0] else "")
    colour_bar(figure, grid, **WEIGHT_BAR, **bar)


def draw_bars(rows: Sequence[tuple[str, Row]]) -> Plt:
    """Bars of the last query below each other on one scale."""
    figure, grid = plt.subplots(len(rows), 1, figsize=(6.3, 0.3 + 1.2 * len(rows)), squeeze=False)
    for panel, (title, row) in zip(grid[:, 0], rows, strict=True):
        bars_panel(panel, row, title=title)
        panel.set_xlabel("key position (BOS, where there is one, is position 0)" if row is rows[-1][1] else "")
    on_one_scale(grid[:, 0])
    overlap_key(figure, [row for _, row in rows])
    return figure


def draw_model(row: Row, *, title: str, scores: bool) -> Plt:
    """One model in full: relative biases and match weights; copy and match attention; the last query's bars.

    title    of the last query's bars
    scores   whether the match head is shown before the softmax rather than after it
    """
    figure = plt.figure(figsize=(6.3, 5.3))
    top, middle, bottom = parts_of(figure, rows=3, height_ratios=(1.25, 1.45, 1.15))
    _draw_parameters(top, row)
    maps = middle.subplots(1, order_of(row) + 1)
    for place, (ax, copy) in enumerate(zip(maps[:-1], by_lag(row), strict=True)):
        copy_panel(ax, row, place)
        ax.set_title(f"copy head {copy['head']}, after softmax")
    (match_score_panel if scores else match_panel)(maps[-1], row)
    colour_bar(middle, maps[:-1], **PATTERN_BAR, location="right", shrink=0.75)
    colour_bar(middle, maps[-1:], **(SCORE_BAR if scores else PATTERN_BAR), location="right", shrink=0.75)
    maps[-1].set_title(f"match, {'before' if scores else 'after'} softmax")
    for ax in maps[1:]:
        ax.set_ylabel("")
    bars_panel(bottom.subplots(), row, title=title)
    overlap_key(bottom, [row])
    return figure


def _draw_parameters(figure: SubFigure, row: Row) -> None:
    """The relative biases of copy heads and match head, and the match weights."""
    order = order_of(row)
    *stems, weights = figure.subplots(1, order + 2, width_ratios=[1.0] * (order + 1) + [1.15])
    heads = [(row["copy_bias"][copy["head"]], f"copy head {copy['head']} (lag {copy['lag']})") for copy in by_lag(row)]
    for ax, (bias, name) in zip(stems, [*heads, (row["match_bias"], "match head")], strict=True):
        bias_panel(ax, bias)
        ax.set_title(f"$R_A$, {name}")
        if ax is not stems[0]:
            ax.set_ylabel("")
    on_one_scale(stems[:order])
    weight_panel(weights, row)
    weights.set_title("$W_A^{(2)}$, match head")
    colour_bar(figure, [weights], **WEIGHT_BAR, shrink=0.9)
