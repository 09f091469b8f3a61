"""Which condition does each claim need? Claims against cells, for each prior.

Freedom grows to the right: frozen copies and readout, a free readout, a sharp start, a random start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from figures.parts.panels import legend_below, lettered
from figures.parts.rows import Results, Row, where
from interp.plotting import MAIN_COLOUR, QUIET, area, mark

LABEL = "beyond:conditions"
ANALYSES = {"conditions": lambda rows: of_drawn_cells(rows)}
CLAIMS = ("conditions",)
CAPTION = (
    "{runs} runs of the study `conditions` (k = 2, |V| = 5; T = {lengths}, up to three seeds each). A column "
    "is a cell of the study: what is frozen, and where training starts. A line is what a claim is judged by. Each "
    "square is filled from below by the share of the cell's runs that meet it; a dot in its place: no claim asks it of "
    "that prior, or its number cannot be measured there. The theory has hypotheses: frozen sharp copies, a start that "
    "treats symbols alike, a readout that adds votes. What is met in one cell and not in the next needs what was freed "
    "between them."
)
SETTINGS = (("hierarchical", True), ("independent", True), ("independent", False))
READOUT_WORDS = {"probability": "readout adds votes", "logit": "readout is a softmax"}
# Cells that are drawn, each with one part freed more than the one before, with what stands above them.
DRAWN = {
    "frozen": "copies and readout frozen",
    "frozen_copies": "copies frozen",
    "hard_start": "free, sharp start",
    "random_start": "free, random start",
    "standard": "standard family",
}
# The lines by what they are about: quantity of `analyses.claims` -> words of the line.
GROUPS = {
    "the weights look like the paper's": {
        "copy_mass_last": "copies of lag 1 are sharp",
        "block_lead": r"$\beta_1 > \beta_2$ in the blocks of $W_A$",
    },
    "the model computes the law": {
        "r2": "scores follow the law",
        "recovered": "law recovers the loss",
        "aligned_pairs": "equal lags are compared most",
        "beta_gap": r"$\beta$ is the optimum's",
        "score_lead": r"$\beta_1 > \beta_2$ in the scores",
        "dependence": "all symbols are treated alike",
    },
    "where the prediction comes from": {
        "partial_cost": "partial matches smooth most",
        "direct": "match head alone knows",
    },
}
NOT_MET = "#e3e3e3"
SIDE = 0.84  # of a square, in cells of the matrix
GAP = 0.7  # cells between two readouts, and lines between two groups of claims


def of_drawn_cells(rows: Sequence[Row]) -> list[Row]:
    """The annealed runs of the cells that are drawn."""
    return [row for row in where(rows, protocol="annealed") if row["cell"] in DRAWN]


def columns_of(rows: Sequence[Row]) -> dict[tuple[str, str], float]:
    """The place of each readout and cell that was measured in one setting; readouts stand apart."""
    known = {(row["readout"], row["cell"]) for row in rows}
    found: dict[tuple[str, str], float] = {}
    for readout in READOUT_WORDS:
        start = max(found.values(), default=-1 - GAP) + 1 + GAP
        mine = [(readout, cell) for cell in DRAWN if (readout, cell) in known]
        found |= {column: start + place for place, column in enumerate(mine)}
    return found


def lines_of(rows: Sequence[Row]) -> tuple[dict[str, float], dict[str, float]]:
    """The height of each line, downwards, and of each group's name."""
    asked = {name for row in rows for name, (_, runs) in row["met"].items() if runs}
    lines: dict[str, float] = {}
    heads: dict[str, float] = {}
    for group, claims in GROUPS.items():
        start = max(lines.values(), default=-1 - GAP / 2) + 1 + GAP / 2
        mine = [name for name in claims if name in asked]
        lines |= {name: start + 1 + place for place, name in enumerate(mine)}
        heads |= {group: start} if mine else {}
    return lines, heads


def draw(results: Results) -> Figure:
    """A matrix for each setting: claims down, cells across."""
    rows = results["conditions"]
    settings = {one: mine for one in SETTINGS if (mine := where(rows, prior=one[0], bos=one[1]))}
    columns = {one: columns_of(mine) for one, mine in settings.items()}
    lines, heads = lines_of(rows)
    bottom = max(lines.values()) + 0.6
    widths = [max(found.values()) + 1.2 for found in columns.values()]
    size = (6.3, 1.9 + 0.135 * bottom)
    figure, axes = plt.subplots(1, len(columns), figsize=size, sharey=True, squeeze=False, width_ratios=widths)
    for ax, (setting, places) in zip(axes[0], columns.items(), strict=True):
        draw_matrix(ax, settings[setting], places, lines)
        ax.set_title(f"{setting[0]} prior,\n{'with' if setting[1] else 'no'} BOS", pad=2)
    first = axes[0][0]
    first.set_ylim(bottom, -0.6)
    words = {name: text for claims in GROUPS.values() for name, text in claims.items()}
    first.set_yticks([*lines.values(), *heads.values()], [*(words[name] for name in lines), *heads])
    for label in first.get_yticklabels()[len(lines) :]:
        label.set_fontweight("bold")
    lettered(axes[0])
    handles = [
        area("every run meets it (filled in part: that share of them)", MAIN_COLOUR),
        area("no run meets it", NOT_MET),
        mark("not asked", color=QUIET, marker=".", markersize=3.5),
    ]
    legend_below(figure, handles, 3, handlelength=1.0, handleheight=1.0)
    return figure


def draw_matrix(
    ax: Axes, rows: Sequence[Row], places: Mapping[tuple[str, str], float], lines: Mapping[str, float]
) -> None:
    """A square for each claim and cell, filled from below by the share of runs that meet it."""
    for (readout, cell), place in places.items():
        mine = where(rows, cell=cell, readout=readout)
        for claim, line in lines.items():
            met, asked = (sum(row["met"][claim][index] for row in mine) for index in (0, 1))
            if not asked:
                ax.plot(place, line, ".", color=QUIET, markersize=2.5, gid="not asked")
                continue
            left, low = place - SIDE / 2, line + SIDE / 2
            ax.add_patch(Rectangle((left, low - SIDE), SIDE, SIDE, facecolor=NOT_MET, linewidth=0))
            high = SIDE * met / asked
            name = f"{claim}|{cell}|{readout}"
            ax.add_patch(Rectangle((left, low - high), SIDE, high, facecolor=MAIN_COLOUR, linewidth=0, gid=name))
    ax.set_xlim(-0.7, max(places.values()) + 0.7)
    ax.xaxis.tick_top()
    ax.set_xticks(list(places.values()), [DRAWN[cell] for _, cell in places], rotation=90)
    ax.tick_params(length=0, pad=2)
    ax.spines[:].set_visible(False)
    for readout, words in READOUT_WORDS.items():
        here = [place for (other, _), place in places.items() if other == readout]
        if here:
            below, middle = ax.get_xaxis_transform(), sum(here) / len(here)
            ax.text(middle, -0.01, words.replace(" ", "\n", 1), transform=below, ha="center", va="top")


def fields(results: Results) -> dict[str, object]:
    rows = results["conditions"]
    lengths = sorted({row["length"] for row in rows})
    return {
        "runs": sum(row["seeds"] for row in rows) or "No",
        "lengths": " to ".join(map(str, dict.fromkeys([*lengths[:1], *lengths[-1:]]))) or "any",
    }
