"""The parts of the picture of the circuit, from the sequence at the top to the predicted law at the bottom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from figures.parts.schematic import letter
from interp.plotting import OVERLAP_COLOURS, OVERLAP_NAMES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from figures.parts.rows import Row

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
QUIET = "#8c8c8c"


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
    rows = [OWN, *LAG_ROWS]
    return [height - (OWN - LAG_ROWS[0]) for height in rows] if position == row["length"] else rows


def draw_box(
    page: Axes,
    x: float,
    y: float,
    text: str,
    *,
    label: str,
    ink: str = "black",
    facecolor: str = "white",
    edgecolor: str = "#404040",
    linewidth: float = 0.7,
) -> None:
    """A square with a letter in it."""
    from matplotlib.patches import FancyBboxPatch

    page.add_patch(
        FancyBboxPatch(
            (x - BOX / 2 + 0.03, y - BOX / 2 + 0.03),
            BOX - 0.06,
            BOX - 0.06,
            boxstyle="round,pad=0.03",
            facecolor=facecolor,
            edgecolor=edgecolor,
            linewidth=linewidth,
            zorder=5,
            label=label,
        )
    )
    size = 6 if len(text) > 1 else 7.5
    page.text(x, y - 0.005, text, fontsize=size, ha="center", va="center", color=ink, zorder=6, gid=label)


def draw_sequence(page: Axes, row: Row) -> None:
    """BOS and the tokens, with their positions."""
    draw_box(page, column(0), TOKENS, "BOS", edgecolor=OVERLAP_COLOURS["bos"], label="token 0")
    for position, token in enumerate(row["tokens"], start=1):
        draw_box(page, column(position), TOKENS, letter(token), label=f"token {position}")
    for position in range(row["length"] + 1):
        page.text(column(position), TOKENS + 0.2, str(position), fontsize=6, ha="center", va="center", color=QUIET)


def draw_stack(page: Axes, row: Row, stack: dict[str, Any]) -> None:
    """What a position holds after the copy layer, and the attention that brought it there."""
    from matplotlib.patches import FancyArrowPatch

    position = stack["position"]
    x = column(position)
    own, *copied = rows_of(row, position)
    query = position == row["length"]
    edge = "#404040" if query else OVERLAP_COLOURS[row["keys"][position]["kind"]]
    page.plot([x, x], [TOKENS - BOX / 2, own + BOX / 2], color=QUIET, linewidth=0.7, zorder=1)
    draw_box(page, x, own, letter(stack["token"]), edgecolor=edge, linewidth=1.2, label=f"stack {position} own")
    for head, height in zip(stack["heads"], copied, strict=True):
        unused = query and head["lag"] == row["order"]  # the oldest copy at the query is compared with nothing
        draw_box(
            page,
            x,
            height,
            "BOS" if head["token"] is None else letter(head["token"]),
            edgecolor=QUIET if unused else edge,
            linewidth=0.6 if unused else 1.2,
            ink=QUIET if unused else "black",
            label=f"stack {position} lag {head['lag']}",
        )
        page.add_patch(
            FancyArrowPatch(
                (column(head["source"]), TOKENS - BOX / 2),
                (x - BOX / 2 - 0.01, height),
                connectionstyle="angle3,angleA=-90,angleB=0",
                arrowstyle="-|>,head_length=2.2,head_width=1.3",
                shrinkA=0,
                shrinkB=0,
                color=HEAD_COLOURS[head["lag"] - 1],
                linewidth=COPY_POINTS * head["weight"],
                zorder=3,
                label=f"copy {position} lag {head['lag']}",
            )
        )


def draw_comparison(page: Axes, row: Row) -> None:
    """The query's context against each candidate's, lag by lag."""
    end = column(row["length"]) - BOX / 2
    for height in LAG_ROWS:
        page.plot(
            [column(min(row["shown"])) + BOX / 2, end],
            [height, height],
            color="#595959",
            linewidth=0.6,
            linestyle=(0, (1, 2)),
            zorder=0,
        )
    for position in row["shown"]:
        key = row["keys"][position]
        x = column(position)
        for lag, height in enumerate(LAG_ROWS, start=1):
            agrees = lag in key["lags"]
            page.text(
                x + BOX / 2 + 0.1,
                height,
                "=" if agrees else "≠",
                fontsize=9,
                ha="center",
                va="center",
                color="#1a7a1a" if agrees else "#c1121f",
                zorder=6,
                gid=f"mark {position} lag {lag}",
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
            )
        exponent = "+".join(rf"\beta_{lag}" for lag in key["lags"]) or "0"
        page.text(x, 2.87, OVERLAP_NAMES[key["kind"]], fontsize=6.5, ha="center", va="center")
        page.text(x, 2.73, rf"$e^{{{exponent}}}={key['expected']:.3g}$", fontsize=6.5, ha="center", va="center")
    bos = row["keys"][0]["expected"]
    page.text(column(0), 2.73, rf"$e^{{\kappa}}={bos:.3g}$", fontsize=6.5, ha="center", va="center")


def draw_values(page: Axes, row: Row) -> None:
    """What each key votes for, coloured by its overlap, with the query's attention to it."""
    for key in row["keys"]:
        x, kind = column(key["position"]), key["kind"]
        early = kind == "early"
        draw_box(
            page,
            x,
            VALUES,
            "BOS" if key["token"] is None else letter(key["token"]),
            facecolor="white" if early else OVERLAP_COLOURS[kind],
            edgecolor="#bfbfbf" if early else OVERLAP_COLOURS[kind],
            ink=QUIET if early else "white" if kind in ("bos", "partial") else "black",
            label=f"value {key['position']}",
        )
        page.text(
            x,
            VALUES + 0.2,
            f"{key['weight']:.3f}" if key["weight"] > 0 else "0",
            fontsize=6,
            ha="center",
            va="center",
            color=QUIET if early else "black",
            gid=f"weight {key['position']}",
        )


def draw_votes(page: Axes, row: Row) -> None:
    """Arrows from each key to the symbols it votes for, as wide as the attention; they fill the symbol's width."""
    vocab = row["vocab"]
    filled = [
        symbol_place(symbol, vocab=vocab) - row["aggregated"][symbol] * ATTENTION_INCHES / 2 for symbol in range(vocab)
    ]
    for key in row["keys"]:
        symbols = range(vocab) if key["token"] is None else [key["token"]]
        width = key["weight"] / len(symbols) * ATTENTION_INCHES
        if width == 0:
            continue
        for place, symbol in enumerate(symbols):
            start = column(key["position"]) + (place - (len(symbols) - 1) / 2) * width
            draw_vote(
                page,
                start=start,
                end=filled[symbol] + width / 2,
                width=width,
                colour=OVERLAP_COLOURS[key["kind"]],
                label=f"vote {key['position']} {symbol}",
            )
            filled[symbol] += width


def draw_vote(page: Axes, *, start: float, end: float, width: float, colour: str, label: str) -> None:
    """One arrow from the row of keys down to the symbols; thin ones lie above broad ones.

    A white rim tells crossing arrows apart. It leaves out the ends, where neighbours touch and widths are compared.
    """
    import numpy as np
    from matplotlib.bezier import split_de_casteljau
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    top, bottom = VALUES - BOX / 2, BINS
    bend = (top + bottom) / 2
    curve = np.array([(start, top), (start, bend), (end, bend), (end, bottom)])
    middle = split_de_casteljau(split_de_casteljau(curve, 0.85)[0], 0.15 / 0.85)[1]
    points = 72 * width
    layer = 3.0 - width  # every width is far below an inch
    for vertices, thickness, ink, name in ((middle, points + 1.4, "white", ""), (curve, points, colour, label)):
        page.add_patch(
            PathPatch(
                Path(vertices, [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4]),
                facecolor="none",
                edgecolor=ink,
                linewidth=thickness,
                capstyle="butt",
                zorder=layer,
                label=name,
            )
        )


def draw_law(page: Axes, row: Row) -> None:
    """The predicted law as bars stacked by the kind of key that voted, the true law as black lines."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    vocab = row["vocab"]
    left, _, width, _ = CHART
    places = [symbol_place(symbol, vocab=vocab) for symbol in range(vocab)]
    panel = page.inset_axes(CHART, transform=page.transData, label="law")
    bottom = [0.0] * vocab
    shown = [kind for kind in OVERLAP_COLOURS if any(row["votes"][kind])]
    for kind in shown:
        heights = row["votes"][kind]
        panel.bar(places, heights, width=0.5, bottom=bottom, color=OVERLAP_COLOURS[kind], linewidth=0, label=kind)
        bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
    panel.hlines(
        row["truth"],
        [x - 0.33 for x in places],
        [x + 0.33 for x in places],
        color="black",
        linewidth=1.1,
        label="truth",
    )
    for symbol, (x, high) in enumerate(zip(places, row["aggregated"], strict=True)):
        draw_box(page, x, BINS - BOX / 2 - 0.03, letter(symbol), label=f"symbol {symbol}")
        panel.text(x + 0.36, high, f"{high:.3f}", fontsize=6, va="center", gid=f"law {symbol}")
    highest = max(*bottom, *row["truth"])
    panel.set_xlim(left, left + width)
    panel.set_ylim(0.0, 1.08 * highest)
    panel.set_xticks([])
    panel.set_ylabel("probability")
    handles: list[Any] = [Patch(facecolor=OVERLAP_COLOURS[kind], label=OVERLAP_NAMES[kind]) for kind in shown]
    handles.append(Line2D([], [], color="black", linewidth=1.1, label="true law"))
    page.legend(
        handles=handles,
        loc="lower right",
        bbox_to_anchor=(WIDTH - 0.04, 0.2),
        bbox_transform=page.transData,
        borderaxespad=0.0,
        borderpad=0.0,
        handlelength=1.0,
        handletextpad=0.5,
    )


def draw_words(page: Axes, row: Row) -> None:
    """What each row is."""
    small: dict[str, Any] = {"fontsize": 6.5, "va": "center"}
    page.text(0.05, TOKENS, "sequence", **small)
    page.text(0.05, 3.92, "layer 1:\ncopy heads", fontsize=7, va="center", fontweight="bold")
    for text, height, colour in (
        (r"own token $x_s$", OWN, "black"),
        (r"head 0 copies $x_{s-1}$", LAG_ROWS[0], HEAD_COLOURS[0]),
        (r"head 1 copies $x_{s-2}$", LAG_ROWS[1], HEAD_COLOURS[1]),
    ):
        page.text(0.05, height, text, color=colour, **small)
    page.text(0.05, 2.9, "layer 2: match head", fontsize=7, va="center", fontweight="bold")
    page.text(0.05, VALUES + 0.2, "attention", **small)
    page.text(0.05, VALUES, "votes for", **small)
    page.text(0.05, BINS - 0.15, "predicted law", fontsize=7, va="center", fontweight="bold")
    own, *copied = rows_of(row, row["length"])
    x = column(row["length"]) + BOX / 2 + 0.05
    for text, height in zip((r"$x_t$", r"$x_{t-1}$", r"$x_{t-2}$"), (own, *copied), strict=True):
        page.text(x, height, text, color=QUIET if height == copied[-1] else "black", **small)
    page.text(column(row["length"]) + 0.06, OWN, f"query\n$t={row['length']}$", **small)
