"""The parts of the picture of the circuit, from the sequence at the top to the predicted distribution at the bottom."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.bezier import split_de_casteljau
from matplotlib.patches import FancyArrowPatch, PathPatch
from matplotlib.path import Path

from figures.parts.rows import Row
from figures.parts.schematic import letter, surround, write
from interp.plotting import OVERLAP_COLOURS, OVERLAP_NAMES, area, mark

WIDTH, HEIGHT = 6.3, 4.72  # inches, as are all places below
FIRST, PITCH, BOX = 0.93, 0.4, 0.24  # middle of the BOS column, distance of columns, side of a box
TOKENS, OWN, LAG_ROWS = 4.36, 3.66, (3.38, 3.10)  # heights of rows: the sequence, a stack's own token and its copies
VALUES = 2.36  # the row of what each key votes for
BINS = 1.42  # where the votes arrive
CHART = (1.2, 0.2, 4.1, 0.88)  # left, bottom, width, height
SYMBOL_SPACE = (1.5, 5.0)  # left- and rightmost place of the symbols
ATTENTION_INCHES = 0.95  # width of an arrow that carries all attention
COPY_POINTS = 1.5  # width of a copy arrow that carries all of its head's attention
HEAD_COLOURS = ("#003566", "#3f80aa")
QUIET, EDGE = "#8c8c8c", "#404040"


def column(position: int) -> float:
    """The middle of a position's column; BOS is position 0."""
    return FIRST + position * PITCH


def symbol_place(symbol: int, *, vocab: int) -> float:
    """Where a symbol stands above its bar."""
    low, high = SYMBOL_SPACE
    return low + (symbol + 0.5) * (high - low) / vocab


def rows_of(row: Row, position: int) -> list[float]:
    """The heights of a stack: own token, lag 1, lag 2.

    The query's stands one lower, so that what is compared is level: its own token is lag 1 of what comes next.
    """
    lower = OWN - LAG_ROWS[0] if position == row["length"] else 0.0
    return [height - lower for height in (OWN, *LAG_ROWS)]


def named(token: int | None) -> str:
    """A token as its letter, BOS where there is none."""
    return "BOS" if token is None else letter(token)


def draw_box(page: Axes, x: float, y: float, text: str, *, label: str, ink: str = "black", **look: Any) -> None:
    """A square with a letter in it."""
    half = BOX / 2
    look = {"facecolor": "white", "edgecolor": EDGE, "linewidth": 0.7, "zorder": 5, "label": label, **look}
    surround(page, x - half, y - half, x + half, y + half, pad=0.03, **look)
    write(page, x, y - 0.005, text, fontsize=6 if len(text) > 1 else 7.5, ha="center", color=ink, zorder=6, gid=label)


def draw_sequence(page: Axes, row: Row) -> None:
    """BOS and the tokens, with their positions."""
    for position, token in enumerate([None, *row["tokens"]]):
        edge = OVERLAP_COLOURS["bos"] if token is None else EDGE
        draw_box(page, column(position), TOKENS, named(token), edgecolor=edge, label=f"token {position}")
        write(page, column(position), TOKENS + 0.2, str(position), fontsize=6, ha="center", color=QUIET)


def draw_stack(page: Axes, row: Row, stack: dict[str, Any]) -> None:
    """What a position holds after the copy layer, and the attention that brought it there."""
    position = stack["position"]
    x, (own, *copied) = column(position), rows_of(row, position)
    query = position == row["length"]
    edge = EDGE if query else OVERLAP_COLOURS[row["keys"][position]["kind"]]
    page.plot([x, x], [TOKENS - BOX / 2, own + BOX / 2], color=QUIET, linewidth=0.7, zorder=1)
    draw_box(page, x, own, letter(stack["token"]), edgecolor=edge, linewidth=1.2, label=f"stack {position} own")
    for head, height in zip(stack["heads"], copied, strict=True):
        unused = query and head["lag"] == row["order"]  # the oldest copy at the query is compared with nothing
        look: dict[str, Any] = {"edgecolor": edge, "linewidth": 1.2}
        if unused:
            look = {"edgecolor": QUIET, "linewidth": 0.6, "ink": QUIET}
        draw_box(page, x, height, named(head["token"]), label=f"stack {position} lag {head['lag']}", **look)
        page.add_patch(
            FancyArrowPatch(
                (column(head["source"]), TOKENS - BOX / 2), (x - BOX / 2 - 0.01, height),
                connectionstyle="angle3,angleA=-90,angleB=0", arrowstyle="-|>,head_length=2.2,head_width=1.3",
                shrinkA=0, shrinkB=0, color=HEAD_COLOURS[head["lag"] - 1], linewidth=COPY_POINTS * head["weight"],
                zorder=3, label=f"copy {position} lag {head['lag']}",
            )
        )  # fmt: skip


def draw_comparison(page: Axes, row: Row) -> None:
    """The query's context against each candidate's, lag by lag."""
    ends = column(min(row["shown"])) + BOX / 2, column(row["length"]) - BOX / 2
    page.hlines(LAG_ROWS, *ends, color="#595959", linewidth=0.6, linestyle=(0, (1, 2)), zorder=0)
    behind = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
    for position in row["shown"]:
        key, x = row["keys"][position], column(position)
        for lag, height in enumerate(LAG_ROWS, start=1):
            sign, colour = ("=", "#1a7a1a") if lag in key["lags"] else ("≠", "#c1121f")
            look: dict[str, Any] = {"fontsize": 9, "ha": "center", "color": colour, "zorder": 6, "bbox": behind}
            write(page, x + BOX / 2 + 0.1, height, sign, gid=f"mark {position} lag {lag}", **look)
        exponent = "+".join(rf"\beta_{lag}" for lag in key["lags"]) or "0"
        write(page, x, 2.87, OVERLAP_NAMES[key["kind"]], ha="center")
        write(page, x, 2.73, rf"$e^{{{exponent}}}={key['expected']:.3g}$", ha="center")
    write(page, column(0), 2.73, rf"$e^{{\kappa}}={row['keys'][0]['expected']:.3g}$", ha="center")


def draw_values(page: Axes, row: Row) -> None:
    """What each key votes for, coloured by its overlap, with the query's attention to it."""
    for key in row["keys"]:
        x, kind, place = column(key["position"]), key["kind"], key["position"]
        colour, early = OVERLAP_COLOURS[kind], kind == "early"
        look: dict[str, Any] = {"facecolor": colour, "edgecolor": colour}
        if early:
            look = {"edgecolor": "#bfbfbf"}
        ink = QUIET if early else "white" if kind in ("bos", "partial") else "black"
        draw_box(page, x, VALUES, named(key["token"]), ink=ink, label=f"value {place}", **look)
        weight = f"{key['weight']:.3f}" if key["weight"] > 0 else "0"
        ink = QUIET if early else "black"
        write(page, x, VALUES + 0.2, weight, fontsize=6, ha="center", color=ink, gid=f"weight {place}")


def draw_votes(page: Axes, row: Row) -> None:
    """Arrows from each key to the symbols it votes for, as wide as the attention; they fill the symbol's width."""
    vocab = row["vocab"]
    filled = [
        symbol_place(symbol, vocab=vocab) - row["aggregated"][symbol] * ATTENTION_INCHES / 2 for symbol in range(vocab)
    ]
    for key in row["keys"]:
        symbols = range(vocab) if key["token"] is None else [key["token"]]
        width = key["weight"] / len(symbols) * ATTENTION_INCHES
        for place, symbol in enumerate(symbols if width else ()):
            start = column(key["position"]) + (place - (len(symbols) - 1) / 2) * width
            look = {"colour": OVERLAP_COLOURS[key["kind"]], "label": f"vote {key['position']} {symbol}"}
            draw_vote(page, start, filled[symbol] + width / 2, width, **look)
            filled[symbol] += width


def draw_vote(page: Axes, start: float, end: float, width: float, *, colour: str, label: str) -> None:
    """One arrow from the row of keys down to the symbols; thin ones lie above broad ones.

    A white rim tells crossing arrows apart. It leaves out the ends, where neighbours touch and widths are compared.
    """
    top, bottom = VALUES - BOX / 2, BINS
    bend = (top + bottom) / 2
    curve = np.array([(start, top), (start, bend), (end, bend), (end, bottom)])
    middle = split_de_casteljau(split_de_casteljau(curve, 0.85)[0], 0.15 / 0.85)[1]
    codes = [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4]
    look: dict[str, Any] = {"facecolor": "none", "capstyle": "butt", "zorder": 3.0 - width}  # far below an inch
    rim = 72 * width + 1.4
    page.add_patch(PathPatch(Path(middle, codes), edgecolor="white", linewidth=rim, **look))
    page.add_patch(PathPatch(Path(curve, codes), edgecolor=colour, linewidth=72 * width, label=label, **look))


def draw_prediction(page: Axes, row: Row) -> None:
    """The prediction as bars stacked by the kind of key that voted, the true distribution as black lines."""
    vocab = row["vocab"]
    left, _, width, _ = CHART
    places = np.array([symbol_place(symbol, vocab=vocab) for symbol in range(vocab)])
    panel = page.inset_axes(CHART, transform=page.transData, label="prediction")
    bottom = np.zeros(vocab)
    shown = [kind for kind in OVERLAP_COLOURS if any(row["votes"][kind])]
    for kind in shown:
        look: dict[str, Any] = {"color": OVERLAP_COLOURS[kind], "linewidth": 0, "label": kind}
        panel.bar(places, row["votes"][kind], width=0.5, bottom=bottom, **look)
        bottom = bottom + np.array(row["votes"][kind])
    panel.hlines(row["truth"], places - 0.33, places + 0.33, color="black", linewidth=1.1, label="truth")
    for symbol, (x, high) in enumerate(zip(places, row["aggregated"], strict=True)):
        draw_box(page, x, BINS - BOX / 2 - 0.03, letter(symbol), label=f"symbol {symbol}")
        write(panel, x + 0.36, high, f"{high:.3f}", fontsize=6, gid=f"prediction {symbol}")
    panel.set_xlim(left, left + width)
    panel.set_ylim(0.0, 1.08 * max(*bottom, *row["truth"]))
    panel.set_xticks([])
    panel.set_ylabel("probability")
    handles = [*(area(OVERLAP_NAMES[kind], OVERLAP_COLOURS[kind]) for kind in shown)]
    truth = mark("true distribution", color="black", linestyle="-", linewidth=1.1)
    page.legend(
        handles=[*handles, truth], loc="lower right", bbox_to_anchor=(WIDTH - 0.04, 0.2), bbox_transform=page.transData,
        borderaxespad=0.0, borderpad=0.0, handlelength=1.0, handletextpad=0.5,
    )  # fmt: skip


def draw_words(page: Axes, row: Row) -> None:
    """What each row is."""
    bold = {"fontsize": 7, "fontweight": "bold"}
    for words, height, look in (
        ("sequence", TOKENS, {}),
        ("layer 1:\ncopy heads", 3.92, bold),
        (r"own token $x_s$", OWN, {}),
        (r"head 0 copies $x_{s-1}$", LAG_ROWS[0], {"color": HEAD_COLOURS[0]}),
        (r"head 1 copies $x_{s-2}$", LAG_ROWS[1], {"color": HEAD_COLOURS[1]}),
        ("layer 2: match head", 2.9, bold),
        ("attention", VALUES + 0.2, {}),
        ("votes for", VALUES, {}),
        ("prediction", BINS - 0.15, bold),
    ):
        write(page, 0.05, height, words, **look)
    heights = rows_of(row, row["length"])
    x = column(row["length"])
    for words, height in zip((r"$x_t$", r"$x_{t-1}$", r"$x_{t-2}$"), heights, strict=True):
        write(page, x + BOX / 2 + 0.05, height, words, color=QUIET if height == heights[-1] else "black")
    write(page, x + 0.06, OWN, f"query\n$t={row['length']}$")
