"""The two task priors as trees of bars, with the correlation of sibling contexts.

Draws the rows of `python -m analyses prior_trees` for k = 2 and |V| = 3: one draw of each prior, and below it the
correlations over many draws.
"""

from __future__ import annotations

import math
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.parts import schematic
from figures.parts.panels import there
from figures.parts.rows import Results, Row, where
from figures.parts.schematic import letter, letters, page_of_inches, whole, write
from interp.plotting import area, curve, mark
from interp.results import half_width

LABEL = "fig:task_priors"
ANALYSES = {"prior_trees": lambda rows: [row for row in rows if fits(row["parameters"])]}
CLAIMS = ("task_priors",)
CAPTION = (
    "One draw of each prior over the next-token distributions of order-2 contexts (k = 2, |V| = 3; symbols 0, 1, 2 are "
    "written {letters}). Bars show the distribution of the next token, full height being probability 1, above the name "
    "of its context, (older, recent); a black tick marks the mean that it is drawn around. (a) Independent prior, "
    "alpha = {alpha:g}: nine distributions, and none for shorter contexts. (b) Hierarchical prior, eta_0 = {eta0:g}, "
    "{eta}: each is drawn around that of its suffix. Below, correlations over n = {n} draws (dots, with bars of two "
    "standard errors; diamonds: exact)."
)
ORDER, VOCAB = 2, 3  # the picture is laid out for these, as the paper's
PRIORS = ("independent", "hierarchical")
PAIRS = {"parent": "context and suffix", "siblings": "same suffix", "others": "another suffix"}

SYMBOL_COLOURS = ("#003566", "#5b99c2", "#c1121f")
EDGE = "#8c8c8c"
WIDTH, HEIGHT = 6.3, 3.7  # inches, as are all places below
LEFT = {"independent": 0.12, "hierarchical": 3.34}  # where each tree begins
PITCH, GROUP_GAP = 0.292, 0.1
BARS = (0.23, 0.52)  # width and height of one distribution; the height stands for probability 1
BASELINES = {0: 2.84, 1: 2.06, 2: 1.27}  # of the bars, by depth
LABEL_ROOM = 0.15  # below the bars, for the context's name
NOTES = 0.97  # height of the line below the trees


def fits(shape: dict[str, Any]) -> bool:
    return (shape["order"], shape["vocab"]) == (ORDER, VOCAB)


def draw(results: Results) -> Figure:
    """A tree of each prior, and its correlations below."""
    page = page_of_inches(WIDTH, HEIGHT)
    found = there({f"{prior} prior, k = 2, |V| = 3": where(results["prior_trees"], prior=prior) for prior in PRIORS})
    for rows in found.values():
        prior, nodes = rows[0]["prior"], where(rows, what="node")
        left = LEFT[prior]
        write(page, left, HEIGHT - 0.16, f"({'ab'[PRIORS.index(prior)]}) {prior} prior", fontsize=7.5)
        draw_tree(page, nodes, left=left)
        (draw_hierarchy if prior == "hierarchical" else draw_independence)(page, nodes, left=left)
        place = (left + 0.92, 0.34, 1.86, 0.48)
        panel = page.inset_axes(place, transform=page.transData, label=f"{prior} correlations")
        draw_correlations(panel, {row["name"]: row for row in where(rows, what="pair")})
        if prior == "independent":  # the room is there
            panel.legend(loc="center right", handletextpad=0.2, borderaxespad=0.0)
    keys = [area(f"probability of token {letter(symbol)}", colour) for symbol, colour in enumerate(SYMBOL_COLOURS)]
    page.legend(
        handles=[*keys, mark("the mean it is drawn around", color="black", linestyle="-", linewidth=0.7)],
        loc="upper left", bbox_to_anchor=(LEFT["independent"], HEIGHT - 0.28), bbox_transform=page.transData, ncols=2,
        borderaxespad=0.0, borderpad=0.0, handlelength=0.9, columnspacing=1.0,
    )  # fmt: skip
    return whole(page)


def place_of(context: list[int]) -> float:
    """Where the middle of a node stands, from the left of its tree: siblings side by side, parents above them."""
    if len(context) == ORDER:
        older, recent = context
        return (recent * VOCAB + older + 0.5) * PITCH + recent * GROUP_GAP
    return sum(place_of([older, *context]) for older in range(VOCAB)) / VOCAB


def draw_tree(page: Axes, nodes: list[Row], *, left: float) -> None:
    """The bars of every node, each with the distribution that it is drawn around as ticks, and its name."""
    laws = {tuple(row["context"]): row["law"] for row in nodes}
    width, height = BARS
    for row in nodes:
        context = row["context"]
        middle, base = left + place_of(context), BASELINES[row["depth"]]
        place, name = (middle - width / 2, base, width, height), f"{row['prior']} {row['name']}"
        panel = page.inset_axes(place, transform=page.transData, label=name, zorder=4)
        panel.bar(range(VOCAB), row["law"], width=0.8, color=SYMBOL_COLOURS, linewidth=0)
        centre = [1.0 / VOCAB] * VOCAB if row["parent"] is None else laws[tuple(context[1:])]
        ends = [x - 0.5 for x in range(VOCAB)], [x + 0.5 for x in range(VOCAB)]
        for colour, thickness in (("white", 1.5), ("black", 0.7)):  # the rim keeps ticks visible on dark bars
            panel.hlines(centre, *ends, color=colour, linewidth=thickness)
        panel.set(xlim=(-0.55, VOCAB - 0.45), ylim=(0.0, 1.0), xticks=[], yticks=[])
        panel.patch.set_alpha(0.0)
        panel.spines[["left"]].set_visible(False)
        write(page, middle, base - 0.03, f"({','.join(map(letter, context))})", fontsize=6, ha="center", va="top")


def draw_hierarchy(page: Axes, nodes: list[Row], *, left: float) -> None:
    """Lines from parents to children, the first siblings highlighted, and what each level is."""
    eta, eta0 = nodes[0]["parameters"]["eta"], nodes[0]["parameters"]["eta0"]
    for row in nodes:
        context = row["context"]
        if row["parent"] is not None:
            sibling = len(context) == ORDER and context[-1] == 0
            heights = BASELINES[row["depth"] - 1] - LABEL_ROOM, BASELINES[row["depth"]] + BARS[1] + 0.01
            colour, thickness = (SYMBOL_COLOURS[0], 1.2) if sibling else (EDGE, 0.7)
            ends = [left + place_of(context[1:]), left + place_of(context)]
            page.plot(ends, heights, color=colour, linewidth=thickness, zorder=1)
    surround(page, left=left, facecolor="#d9e6f2", edgecolor="#003566", label="siblings")
    write(page, left, NOTES, "siblings: one parent", color="#003566")
    write(page, left + place_of([]) + 0.24, BASELINES[0] + 0.22, rf"base: Dirichlet$({eta0:g}\cdot\mathbf{{1}})$")
    write(page, left + place_of([0]) + 0.16, BASELINES[1] + 0.4, rf"Dirichlet$({eta[0]:g}\,\pi_{{()}})$")
    words = rf"$\pi_{{(c_1,c_2)}}\sim$ Dirichlet$({eta[1]:g}\,\pi_{{(c_2)}})$"
    write(page, left + place_of([VOCAB - 1, VOCAB - 1]) + 0.14, NOTES, words, ha="right")


def draw_independence(page: Axes, nodes: list[Row], *, left: float) -> None:
    """One fixed centre that every context is drawn from on its own, and the contexts that would be siblings."""
    alpha = nodes[0]["parameters"]["alpha"]
    middle, top = left + place_of([]), BASELINES[1] + 0.36
    write(page, middle, top, rf"each context on its own: Dirichlet$({alpha:g}\cdot\mathbf{{1}})$", ha="center")
    look: dict[str, Any] = {"color": EDGE, "linewidth": 0.6, "linestyle": (0, (1, 2)), "zorder": 1}
    for row in nodes:
        page.plot([middle, left + place_of(row["context"])], [top - 0.12, BASELINES[ORDER] + BARS[1] + 0.01], **look)
    surround(page, left=left, facecolor="none", edgecolor="#595959", linestyle="--", label="same suffix")
    write(page, left, NOTES, "same suffix, no parent", color="#595959")


def surround(page: Axes, *, left: float, **look: Any) -> None:
    """A box around the contexts that end in the first symbol."""
    ends = left + place_of([0, 0]) - PITCH / 2, left + place_of([VOCAB - 1, 0]) + PITCH / 2
    bottom, top = BASELINES[ORDER] - LABEL_ROOM - 0.04, BASELINES[ORDER] + BARS[1] + 0.04
    schematic.surround(page, ends[0], bottom, ends[1], top, pad=0.02, linewidth=0.7, zorder=0, **look)


def draw_correlations(panel: Axes, pairs: dict[str, Row]) -> None:
    """Measured correlations as dots with 95% intervals, the exact values as open diamonds."""
    rows = [pairs[name] for name in PAIRS if name in pairs]
    places = list(range(len(rows)))[::-1]
    panel.axvline(0.0, color=EDGE, linewidth=0.6, zorder=0)
    exact: dict[str, Any] = {"color": "#7f7f7f", "markersize": 5.5, "fillstyle": "none", "markeredgewidth": 0.8}
    panel.plot([row["exact"] for row in rows], places, "D", label="exact", **exact)
    reach = [float(half_width(row["stderr"], n=row["n"])) for row in rows]
    look: dict[str, Any] = {
        "linestyle": "none",
        "marker": "o",
        "markersize": 2.5,
        "color": "#003566",
        "gid": "measured",
    }
    measured = [row["correlation"] for row in rows]
    curve(panel, measured, places, reach=reach, across=True, label="measured,\n95% interval", **look)
    panel.set_yticks(places, [PAIRS[name] for name in PAIRS if name in pairs])
    panel.set_ylim(-0.6, len(rows) - 0.4)
    panel.set_xlim(-0.08, 1.0)
    panel.set_xlabel("correlation of their probabilities", labelpad=1.5)
    panel.tick_params(axis="y", length=0)


def fields(results: Results) -> dict[str, object]:
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
