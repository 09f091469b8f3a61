"""Panels of attention that several figures share; each draws one row of `attention` or `construction_attention`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from figures.parts.circuit import (
    blocks_by_lag,
    bos_offset,
    by_lag,
    by_start,
    copies_are_distinct,
    kept,
    length_of,
    order_of,
    setting,
    starts_in_words,
    vocab_of,
)
from figures.parts.panels import absent, on_one_scale
from figures.parts.rows import Row, start_in
from interp.plotting import (
    NEGATIVE,
    OVERLAP_COLOURS,
    OVERLAP_NAMES,
    attention_heatmap,
    block_heatmap,
    induction_bars,
    overlap_handles,
    rpe_stem,
    score_heatmap,
    share_text,
    visible_masses,
)
from models.families.registry import PAPER, find_family

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

FORBIDDEN = 1000.0  # scores and biases of this size are a construction's "always" and "never", not values to compare
PAGE_FIELDS = ("copy_bias", "match_bias", "match_weight", "copy_pattern", "match_scores", "match_pattern")
LEANS = 0.05  # of a copy head's last query on BOS: then its own share is written too
SCORE_RANGE = 8.0  # nats below the best key: e^-8 is 0.0003
WEIGHT_TICKS = (0.0, 0.05, 0.2, 0.5, 1.0)
WEIGHT_LABEL = "weight (nats; dash: < 0)"
DASHES = f"a dash: negative, by {NEGATIVE:.0%} of the scale or more"


def title_of(family: str, row: Row | None = None) -> str:
    """The family's name in two short lines; with a row, the start of its training in place of `trained`."""
    start = None if row is None or find_family(family).analytic else start_in(row)
    return f"{family},\n{start} start" if start else find_family(family).label.replace(", ", ",\n")


def ticks_of(row: Row) -> list[int]:
    """First position, middle and end."""
    return [1 - bos_offset(row), length_of(row) // 2, length_of(row)]


def copy_panel(ax: Axes, row: Row, place: int) -> Axes:
    """The attention of a copy head, the `place`-th by lag; it says which head it is, and its share on its lag.

    Where the last query leans on BOS, its own share is added.
    """
    copy = by_lag(row)[place]
    attention_heatmap(ax, np.array(row["copy_pattern"][copy["head"]]), first_position=1 - bos_offset(row))
    return _with_ticks(_copy_words(ax, copy), row)


def _copy_words(ax: Axes, copy: dict[str, Any]) -> Axes:
    words = [f"head {copy['head']}", f"lag {copy['lag']}: {copy['share']:.2f}"]
    if copy["bos"] >= LEANS:  # then the last query differs from the rest
        words.append(f"last: {copy['last']:.2f}")
    ax.text(0.97, 0.96, "\n".join(words), transform=ax.transAxes, ha="right", va="top", fontsize=6)
    return ax


def copy_score_panel(ax: Axes, row: Row, place: int) -> Axes:
    """The scores of a copy head below each query's largest, with the words of `copy_panel`."""
    copy = by_lag(row)[place]
    below_best_panel(ax, row["copy_scores"][copy["head"]], row)
    return _with_ticks(_copy_words(ax, copy), row)


def match_score_panel(ax: Axes, row: Row) -> Axes:
    """The match head's scores below each query's largest."""
    below_best_panel(ax, row["match_scores"], row, mark_last=True)
    return _with_ticks(ax, row)


def below_best_panel(ax: Axes, scores: Sequence[Sequence[float | None]], row: Row, *, mark_last: bool = False) -> Axes:
    """Scores less the largest of their query: the softmax sees no more than that, so that heads share one scale.

    What lies `SCORE_RANGE` or more below has less than e^-SCORE_RANGE of the weight of the best key, and has the palest
    colour.
    """
    values = np.array(scores, dtype=np.float64)
    relative = values - np.nanmax(values, axis=-1, keepdims=True)
    score_heatmap(
        ax,
        np.where(np.isfinite(relative), np.maximum(relative, -SCORE_RANGE), relative),
        lowest=-SCORE_RANGE,
        highest=0.0,
        first_position=1 - bos_offset(row),
        mark_last=mark_last,
    )
    return ax


def below_best_bar(figure: Figure | SubFigure, panels: Sequence[Axes], **options: Any) -> None:
    """The colour bar of `below_best_panel`, common to all panels that have a picture."""
    drawn = [panel for panel in panels if panel.images]
    if drawn:
        label = "score below the query's largest (nats)"
        ticks = range(-int(SCORE_RANGE), 1)
        bar = figure.colorbar(drawn[0].images[0], ax=list(panels), ticks=ticks, label=label, **options)
        words = [f"{tick}".replace("-", "\N{MINUS SIGN}") for tick in ticks]
        bar.set_ticklabels([f"\N{LESS-THAN OR EQUAL TO}{words[0]}", *words[1:]])  # what lies lower has its colour
        bar.ax.minorticks_off()


def match_panel(ax: Axes, row: Row) -> Axes:
    """The match head's attention after the softmax."""
    attention_heatmap(ax, np.array(row["match_pattern"]), first_position=1 - bos_offset(row), mark_last=True)
    return _with_ticks(ax, row)


def score_panel(ax: Axes, row: Row) -> Axes:
    """The match head's scores before the softmax; what lies below those of the candidates is red."""
    scores = np.array(row["match_scores"], dtype=np.float64)
    score_heatmap(
        ax,
        scores,
        lowest=lowest_candidate(row),
        highest=float(np.nanmax(scores)),
        first_position=1 - bos_offset(row),
        mark_last=True,
    )
    return _with_ticks(ax, row)


def lowest_candidate(row: Row) -> float:
    """The lowest score of a key that has k tokens before it: early keys are shut out, and would stretch the scale."""
    scores = np.array(row["match_scores"], dtype=np.float64)
    first = bos_offset(row) + order_of(row)
    return float(np.nanmin(scores[first:, first:]))


def _with_ticks(ax: Axes, row: Row) -> Axes:
    ax.set_xticks(ticks_of(row))
    ax.set_yticks(ticks_of(row))
    return ax


def bars_panel(ax: Axes, row: Row, *, title: str, short: bool = False) -> Axes:
    """The last query's attention by overlap, with the share of each kind in the legend; BOS is position 0.

    `short` puts only colours and shares above the panel; then `overlap_key` has to say elsewhere what they mean.
    """
    from matplotlib.ticker import MaxNLocator

    weights = np.array(row["weights"])
    induction_bars(ax, weights, row["kinds"], first_position=1 - bos_offset(row))
    ax.set_xlim(-1.5, length_of(row) + 1.5)
    ax.xaxis.set_major_locator(MaxNLocator("auto", integer=True, steps=[1, 2, 5, 10]))
    ax.set_title(title)
    masses = shown_masses(row)
    handles = overlap_handles(masses)
    spacing: dict[str, Any] = {"borderaxespad": 0.0, "handlelength": 0.9, "handletextpad": 0.5, "labelspacing": 0.25}
    if short:
        ax.set_ylim(0, 1.1 * float(weights.max()))
        shares = [share_text(share) for share in masses.values()]
        place: dict[str, Any] = {
            "loc": "lower right",
            "bbox_to_anchor": (1.0, 1.02),
            "ncols": len(masses),
            "columnspacing": 0.8,
        }
        ax.legend(handles, shares, **place, **{**spacing, "borderpad": 0.2})
    else:
        ax.set_ylim(0, (1.18 + 0.17 * len(masses)) * float(weights.max()))  # headroom, so that no bar is hidden
        ax.legend(handles=handles, loc="upper right", **spacing)
    return ax


def shown_masses(row: Row) -> dict[str, float]:
    """The shares worth a legend entry."""
    return visible_masses(np.array(row["weights"]), row["kinds"], row["mass"])


def overlap_key(figure: SubFigure, rows: Iterable[Row]) -> None:
    """What the overlap colours mean, for all panels of a figure with short legends."""
    from matplotlib.patches import Patch

    kinds = {kind for row in rows for kind in shown_masses(row)}
    handles = [
        Patch(facecolor=OVERLAP_COLOURS[kind], label=OVERLAP_NAMES[kind]) for kind in OVERLAP_COLOURS if kind in kinds
    ]
    if handles:
        figure.legend(
            handles=handles,
            loc="outside lower center",
            ncols=len(handles),
            handlelength=0.9,
            handletextpad=0.4,
            columnspacing=0.9,
        )


def note(ax: Axes, what: str, *, width: int = 24, square: bool = True) -> Axes:
    """`absent`, with the words broken to fit a narrow panel; the warning stays one line."""
    absent(ax, what)
    if square:
        ax.set_box_aspect(1)  # as the pictures beside it, so that titles stand in line
    ax.texts[-1].set_text("not available:\n" + textwrap.fill(what, width))
    return ax


def weight_panel(ax: Axes, row: Row, *, highest: float | None = None) -> Axes:
    """W_A^(2), its blocks in the order of the lags they hold."""
    block_heatmap(ax, blocks_by_lag(row), vocab=vocab_of(row), highest=highest)
    if not copies_are_distinct(row):  # then no block can be named by a lag
        names = ["token", *(f"head {head}" for head in range(order_of(row)))]
        ax.set_xticks(ax.get_xticks(), names)
        ax.set_yticks(ax.get_yticks(), names)
    ax.spines[:].set_visible(True)
    return ax


def bias_panel(ax: Axes, bias: Sequence[float]) -> Axes:
    """A relative bias; a construction's "always" and "never" are arrow heads with their value beside them."""
    values = np.array(bias)
    ordinary = np.abs(values[np.abs(values) < FORBIDDEN])
    limit = 1.25 * max(float(ordinary.max(initial=0.0)), 4.0)
    rpe_stem(ax, values, limit=limit if (np.abs(values) >= FORBIDDEN).any() else None)
    for sign in (1, -1):
        beyond = np.flatnonzero(sign * values >= FORBIDDEN)
        if len(beyond):
            place = int(beyond[0])
            left = place < len(values) / 2  # write towards the middle
            ax.annotate(
                f"{values[place]:,.0f}".replace("-", "\N{MINUS SIGN}").replace(",", " "),
                (place if left else int(beyond[-1]), sign * limit),
                xytext=(4 if left else -6, 0),
                textcoords="offset points",
                ha="left" if left else "right",
                va="center",
                fontsize=6,
            )
    ax.set_xticks([0, len(values) // 2, len(values) - 1])
    return ax


def weight_bar(figure: Figure | SubFigure, panels: Sequence[Axes], **options: Any) -> None:
    """The colour bar of attention weights, common to all panels that have a picture."""
    drawn = [panel for panel in panels if panel.images]
    if not drawn:
        return
    bar = figure.colorbar(drawn[0].images[0], ax=list(panels), ticks=WEIGHT_TICKS, label="attention weight", **options)
    bar.set_ticklabels([f"{tick:g}" for tick in WEIGHT_TICKS])
    bar.ax.minorticks_off()


def score_bar(figure: Figure | SubFigure, panel: Axes, row: Row, **options: Any) -> None:
    """The colour bar of one panel of scores."""
    below = np.nanmin(np.array(row["match_scores"], dtype=np.float64)) < lowest_candidate(row)
    figure.colorbar(panel.images[0], ax=panel, extend="min" if below else "neither", **options)


def columns_of(results: dict[str, list[Row]], families: Sequence[str] = PAPER) -> list[tuple[str, str, Row | None]]:
    """A column for each model: its family, its title, and its row; a soft start stands beside the hard one."""
    first, soft = by_start(results)
    columns: list[tuple[str, str, Row | None]] = []
    for family in families:
        row = first.get(family)
        columns.append((family, title_of(family, row if soft else None), row))
        if family in soft:
            columns.append((family, title_of(family, soft[family]), soft[family]))
    return columns


def caption_fields(results: dict[str, list[Row]]) -> dict[str, object]:
    """What the captions of these figures say of their rows."""
    rows = [row for rows in results.values() for row in rows]
    return {"setting": setting(rows), "starts": starts_in_words(rows), "dashes": DASHES, "range": SCORE_RANGE}


def length_in(results: dict[str, list[Row]], wanted: int) -> int:
    """The length the figure is of: the one that is there, or the one that was wanted."""
    return next((length_of(row) for row in results["attention"]), wanted)


def first_column(columns: Sequence[tuple[str, str, Row | None]]) -> int:
    """The first model that is there: its panels have the labels of the vertical axis."""
    return next((place for place, (_, _, row) in enumerate(columns) if row is not None), 0)


def family_missing(family: str, length: int) -> str:
    """The note in place of a panel."""
    return f"{family} model, hierarchical prior with BOS, T = {length}"


def parts_of(figure: Figure | SubFigure, *, rows: int = 1, columns: int = 1, **ratios: Any) -> list[SubFigure]:
    """The parts of a figure that is divided one way, in order."""
    return list(np.ravel(np.array(figure.subfigures(rows, columns, squeeze=False, **ratios), dtype=object)))


def draw_bars(rows: Sequence[tuple[str, Row | None, str]], *, height: float) -> Figure:
    """Bars of the last query below each other on one scale: (title, row or None, what is missing then)."""
    import matplotlib.pyplot as plt

    figure, grid = plt.subplots(len(rows), 1, figsize=(6.3, height), squeeze=False)
    panels = grid[:, 0]
    for panel, (title, row, what) in zip(panels, rows, strict=True):
        if row is None:
            absent(panel, what)
            panel.set_title(title)
        else:
            bars_panel(panel, row, title=title)
            panel.set_xlabel("")
    on_one_scale(panel for panel in panels if panel.containers)
    for panel in reversed(panels):
        if panel.containers:
            panel.set_xlabel("key position (BOS, where there is one, is position 0)")
            break
    return figure


def construction_page(results: dict[str, list[Row]], name: str) -> dict[str, list[Row]]:
    """What the page of one construction draws."""
    rows = [row for row in results["construction_attention"] if row["construction"] == name]
    return {"construction_attention": [kept(row, *PAGE_FIELDS) for row in rows[:1]]}


def page_row(results: dict[str, list[Row]]) -> Row | None:
    """The one row of a page; None if there is none."""
    return next((row for rows in results.values() for row in rows), None)


def draw_page(row: Row | None, *, title: str, what: str, scores: bool) -> Figure:
    """One model in full: relative biases, match weights, copy and match attention, the last query's bars.

    `scores` shows the match head before the softmax rather than after it.
    """
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(6.3, 5.3))
    if row is None:
        absent(figure.add_subplot(), what)
        return figure
    order = order_of(row)
    top, middle, bottom = parts_of(figure, rows=3, height_ratios=(1.25, 1.45, 1.15))

    stems = top.subplots(1, order + 2, width_ratios=[1.0] * (order + 1) + [1.15])
    biases = [row["copy_bias"][copy["head"]] for copy in by_lag(row)] + [row["match_bias"]]
    names = [f"copy head {copy['head']} (lag {copy['lag']})" for copy in by_lag(row)] + ["match head"]
    for panel, bias, name in zip(stems, biases, names, strict=False):
        bias_panel(panel, bias)
        panel.set_title(f"$R_A$, {name}")
        if panel is not stems[0]:
            panel.set_ylabel("")
    on_one_scale(stems[:order])
    weight_panel(stems[-1], row)
    stems[-1].set_title("$W_A^{(2)}$, match head")
    top.colorbar(stems[-1].images[0], ax=stems[-1], shrink=0.9, label=WEIGHT_LABEL)

    maps = middle.subplots(1, order + 1)
    for place in range(order):
        copy_panel(maps[place], row, place)
        maps[place].set_title(f"copy head {by_lag(row)[place]['head']}, after softmax")
    (score_panel if scores else match_panel)(maps[-1], row)
    maps[-1].set_title(f"match, {'before' if scores else 'after'} softmax")
    for panel in maps[1:]:
        panel.set_ylabel("")
    if scores:
        weight_bar(middle, maps[:-1], location="right", shrink=0.75)
        score_bar(middle, maps[-1], row, location="right", shrink=0.75, label="score (nats)")
    else:
        weight_bar(middle, maps, location="right", shrink=0.75)

    bars_panel(bottom.subplots(), row, title=title)
    return figure


def page_caption(model: str, *, scores: bool) -> str:
    """The caption of `draw_page`."""
    match = "before it (red: below all candidates, at early keys or BOS)" if scores else "after it"
    return (
        f"{model} ({{setting}}) on one sequence of the independent prior. Top: relative biases of the copy heads, "
        "ordered by the lag they attend to, and of the match head (an arrow head: beyond the scale), and the match "
        "weights, query blocks down and key blocks across ({dashes}). Middle: attention of the copy heads after the "
        "softmax, with each head's mean weight on its lag (`last`: of the last query, where BOS takes some), and of "
        f"the match head {match}; colours of weights follow their square root. Bottom: the last query's match "
        "attention, each key coloured by its overlap; the legend gives the share of each kind. {starts}"
    )
