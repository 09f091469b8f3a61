"""The two task priors as trees of bars, with the correlation of sibling contexts.

Draws the rows of `python -m analyses prior_trees` for k = 2 and |V| = 3: one draw of each prior, and below it the
correlations over many draws.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from figures.parts.panels import absent
from figures.parts.schematic import letter, letters, page_of_inches, whole
from interp.results import half_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from figures.parts.rows import Row

LABEL = "fig:task_priors"
ANALYSES = ("prior_trees",)
CLAIMS = ("task_priors",)
CAPTION = (
    "One draw of each prior over the laws of order-2 contexts (k = 2, |V| = 3; symbols 0, 1, 2 are written {letters}). "
    "Bars show the law of the next token, full height being probability 1, above the name of its context, (older, "
    "recent); a black tick marks the mean that a law is drawn around. (a) Independent prior, alpha = {alpha:g}: nine "
    "laws, and none for shorter contexts. (b) Hierarchical prior, eta_0 = {eta0:g}, {eta}: each law is drawn around "
    "that of its suffix. Below, correlations of laws over n = {n} draws (dots, with bars of two standard errors; "
    "diamonds: exact)."
)
ORDER, VOCAB = 2, 3  # the picture is laid out for these, as the paper's
PRIORS = ("independent", "hierarchical")
PAIRS = {"parent": "context and suffix", "siblings": "same suffix", "others": "another suffix"}

SYMBOL_COLOURS = ("#003566", "#5b99c2", "#c1121f")
HIGHLIGHT = "#d9e6f2"
EDGE = "#8c8c8c"
WIDTH, HEIGHT = 6.3, 3.7  # inches, as are all places below
LEFT = {"independent": 0.12, "hierarchical": 3.34}  # where each tree begins
PITCH, GROUP_GAP = 0.292, 0.1
BARS = (0.23, 0.52)  # width and height of one law; the height stands for probability 1
BASELINES = {0: 2.84, 1: 2.06, 2: 1.27}  # of the bars, by depth
LABEL_ROOM = 0.15  # below the bars, for the context's name
NOTES = 0.97  # height of the line below the trees


def chosen(results: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """The trees and correlations of k = 2, |V| = 3."""
    return {
        "prior_trees": [
            row
            for row in results["prior_trees"]
            if row["parameters"]["order"] == ORDER and row["parameters"]["vocab"] == VOCAB
        ]
    }


def draw(results: dict[str, list[Row]]) -> Figure:
    """A tree of each prior, and its correlations below."""
    page = page_of_inches(WIDTH, HEIGHT)
    for place, prior in enumerate(PRIORS):
        nodes, pairs = of_prior(results, prior)
        left = LEFT[prior]
        page.text(left, HEIGHT - 0.16, f"({'ab'[place]}) {prior} prior", fontsize=7.5, va="center")
        if not nodes:
            absent(page.inset_axes((left, 1.2, 2.8, 2.1), transform=page.transData), f"{prior} prior, k = 2, |V| = 3")
            continue
        draw_tree(page, nodes, left=left)
        (draw_hierarchy if prior == "hierarchical" else draw_independence)(page, nodes, left=left)
        panel = page.inset_axes(
            (left + 0.92, 0.34, 1.86, 0.48), transform=page.transData, label=f"{prior} correlations"
        )
        draw_correlations(panel, pairs)
        if prior == "independent":  # the room is there
            panel.legend(loc="center right", handletextpad=0.2, borderaxespad=0.0)
    draw_key(page)
    return whole(page)


def of_prior(results: dict[str, list[Row]], prior: str) -> tuple[list[Row], dict[str, Row]]:
    """One prior's nodes, and its pairs by name."""
    rows = [row for row in results["prior_trees"] if row["prior"] == prior]
    return [row for row in rows if row["what"] == "node"], {row["name"]: row for row in rows if row["what"] == "pair"}


def place_of(context: list[int]) -> float:
    """Where the middle of a node stands, from the left of its tree: siblings side by side, parents above them."""
    if len(context) == ORDER:
        older, recent = context
        return (recent * VOCAB + older + 0.5) * PITCH + recent * GROUP_GAP
    below = [[older, *context] for older in range(VOCAB)]
    return sum(map(place_of, below)) / VOCAB


def named(context: list[int]) -> str:
    """A context in letters, older to recent."""
    return f"({','.join(map(letter, context))})"


def draw_tree(page: Axes, nodes: list[Row], *, left: float) -> None:
    """The bars of every node, each with the law that it is drawn around as ticks, and its name."""
    laws = {tuple(row["context"]): row["law"] for row in nodes}
    width, height = BARS
    for row in nodes:
        context = tuple(row["context"])
        middle, base = left + place_of(row["context"]), BASELINES[row["depth"]]
        panel = page.inset_axes(
            (middle - width / 2, base, width, height),
            transform=page.transData,
            label=f"{row['prior']} {row['name']}",
            zorder=4,
        )
        panel.bar(range(VOCAB), row["law"], width=0.8, color=SYMBOL_COLOURS, linewidth=0)
        centre = [1.0 / VOCAB] * VOCAB if row["parent"] is None else laws[context[1:]]
        ends = [x - 0.5 for x in range(VOCAB)], [x + 0.5 for x in range(VOCAB)]
        for colour, thickness in (("white", 1.5), ("black", 0.7)):  # the rim keeps ticks visible on dark bars
            panel.hlines(centre, *ends, color=colour, linewidth=thickness)
        panel.set_xlim(-0.55, VOCAB - 0.45)
        panel.set_ylim(0.0, 1.0)
        panel.set_xticks([])
        panel.set_yticks([])
        panel.patch.set_alpha(0.0)
        panel.spines[["left"]].set_visible(False)
        page.text(middle, base - 0.03, named(row["context"]), fontsize=6, ha="center", va="top")


def draw_hierarchy(page: Axes, nodes: list[Row], *, left: float) -> None:
    """Lines from parents to children, the first siblings highlighted, and what each level is."""
    eta = nodes[0]["parameters"]["eta"]
    eta0 = nodes[0]["parameters"]["eta0"]
    for row in nodes:
        if row["parent"] is None:
            continue
        context = row["context"]
        sibling = len(context) == ORDER and context[-1] == 0
        page.plot(
            [left + place_of(context[1:]), left + place_of(context)],
            [BASELINES[row["depth"] - 1] - LABEL_ROOM, BASELINES[row["depth"]] + BARS[1] + 0.01],
            color=SYMBOL_COLOURS[0] if sibling else EDGE,
            linewidth=1.2 if sibling else 0.7,
            zorder=1,
        )
    surround(page, left=left, filled=True)
    page.text(left, NOTES, "siblings: one parent", fontsize=6.5, va="center", color="#003566")
    root = left + place_of([])
    page.text(
        root + 0.24,
        BASELINES[0] + 0.22,
        rf"base: Dirichlet$({eta0:g}\cdot\mathbf{{1}})$",
        fontsize=6.5,
        va="center",
    )
    page.text(
        left + place_of([0]) + 0.16,
        BASELINES[1] + 0.4,
        rf"Dirichlet$({eta[0]:g}\,\pi_{{()}})$",
        fontsize=6.5,
        va="center",
    )
    page.text(
        left + place_of([VOCAB - 1, VOCAB - 1]) + 0.14,
        NOTES,
        rf"$\pi_{{(c_1,c_2)}}\sim$ Dirichlet$({eta[1]:g}\,\pi_{{(c_2)}})$",
        fontsize=6.5,
        ha="right",
        va="center",
    )


def draw_independence(page: Axes, nodes: list[Row], *, left: float) -> None:
    """One fixed law that every context is drawn from on its own, and the contexts that would be siblings."""
    alpha = nodes[0]["parameters"]["alpha"]
    middle, top = left + place_of([]), BASELINES[1] + 0.36
    page.text(
        middle,
        top,
        rf"each context on its own: Dirichlet$({alpha:g}\cdot\mathbf{{1}})$",
        fontsize=6.5,
        ha="center",
        va="center",
    )
    for row in nodes:
        place = left + place_of(row["context"])
        page.plot(
            [middle, place],
            [top - 0.12, BASELINES[ORDER] + BARS[1] + 0.01],
            color=EDGE,
            linewidth=0.6,
            linestyle=(0, (1, 2)),
            zorder=1,
        )
    surround(page, left=left, filled=False)
    page.text(left, NOTES, "same suffix, no parent", fontsize=6.5, va="center", color="#595959")


def surround(page: Axes, *, left: float, filled: bool) -> None:
    """A box around the contexts that end in the first symbol."""
    from matplotlib.patches import FancyBboxPatch

    low, high = left + place_of([0, 0]) - PITCH / 2, left + place_of([VOCAB - 1, 0]) + PITCH / 2
    bottom, top = BASELINES[ORDER] - LABEL_ROOM - 0.02, BASELINES[ORDER] + BARS[1] + 0.02
    page.add_patch(
        FancyBboxPatch(
            (low + 0.02, bottom),
            high - low - 0.04,
            top - bottom,
            boxstyle="round,pad=0.02",
            facecolor=HIGHLIGHT if filled else "none",
            edgecolor="#003566" if filled else "#595959",
            linewidth=0.7,
            linestyle="-" if filled else "--",
            zorder=0,
            label="siblings" if filled else "same suffix",
        )
    )


def draw_correlations(panel: Axes, pairs: dict[str, Row]) -> None:
    """Measured correlations as dots with 95% intervals, the exact values as open diamonds."""
    names = [name for name in PAIRS if name in pairs]
    rows = [pairs[name] for name in names]
    places = list(range(len(rows)))[::-1]
    panel.axvline(0.0, color=EDGE, linewidth=0.6, zorder=0)
    panel.plot(
        [row["exact"] for row in rows],
        places,
        "D",
        markersize=5.5,
        markerfacecolor="none",
        markeredgecolor="#7f7f7f",
        markeredgewidth=0.8,
        label="exact",
    )
    panel.errorbar(
        [row["correlation"] for row in rows],
        places,
        xerr=[half_width(row["stderr"], n=row["n"]) for row in rows],
        fmt="o",
        markersize=2.5,
        color="#003566",
        linewidth=1.0,
        label="measured,\n95% interval",
    )
    panel.set_yticks(places, [PAIRS[name] for name in names])
    panel.set_ylim(-0.6, len(rows) - 0.4)
    panel.set_xlim(-0.08, 1.0)
    panel.set_xlabel("correlation of their laws", labelpad=1.5)
    panel.tick_params(axis="y", length=0)


def draw_key(page: Axes) -> None:
    """What the colours and ticks are."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [
        Patch(facecolor=colour, label=f"probability of token {letter(symbol)}")
        for symbol, colour in enumerate(SYMBOL_COLOURS)
    ]
    handles.append(Line2D([], [], color="black", linewidth=0.7, label="the mean it is drawn around"))
    page.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(LEFT["independent"], HEIGHT - 0.28),
        bbox_transform=page.transData,
        ncols=2,
        borderaxespad=0.0,
        borderpad=0.0,
        handlelength=0.9,
        columnspacing=1.0,
    )


def fields(results: dict[str, list[Row]]) -> dict[str, object]:
    rows = results["prior_trees"]
    parameters = {row["prior"]: row["parameters"] for row in rows}
    alone, tied = parameters.get("independent", {}), parameters.get("hierarchical", {})
    return {
        "letters": letters(VOCAB),
        "alpha": alone.get("alpha", math.nan),
        "eta0": tied.get("eta0", math.nan),
        "eta": " and ".join(f"eta_{level} = {value:g}" for level, value in enumerate(tied.get("eta", ()), start=1)),
        "n": next((row["n"] for row in rows if row["what"] == "pair"), 0),
    }
