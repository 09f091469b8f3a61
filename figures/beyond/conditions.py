"""Which condition does each claim need? Claims against cells, for each prior.

Freedom grows to the right: frozen copies and readout, a free readout, a sharp start, a random start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from figures.parts.panels import absent, lettered
from figures.parts.rows import Row
from interp.plotting import MAIN_COLOUR

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABEL = "beyond:conditions"
ANALYSES = ("conditions",)
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
MET, NOT_MET, NOT_ASKED = MAIN_COLOUR, "#e3e3e3", "#7f7f7f"
SIDE = 0.84  # of a square, in cells of the matrix
GAP = 0.7  # cells between two readouts, and lines between two groups of claims
HEAD = 1.0  # lines that the name of a group takes
Results = dict[str, list[Row]]


def chosen(results: Results) -> Results:
    """The annealed runs of the cells that are drawn."""
    kept = [row for row in results["conditions"] if row["protocol"] == "annealed" and row["cell"] in DRAWN]
    return {"conditions": kept}


def columns_of(rows: Sequence[Row]) -> list[tuple[float, str, str]]:
    """(place, cell, readout) of what was measured in one setting; readouts stand apart."""
    known = {(row["cell"], row["readout"]) for row in rows}
    found: list[tuple[float, str, str]] = []
    place = 0.0
    for readout in READOUT_WORDS:
        mine = [cell for cell in DRAWN if (cell, readout) in known]
        for cell in mine:
            found.append((place, cell, readout))
            place += 1.0
        place += GAP if mine else 0.0
    return found


def lines_of(rows: Sequence[Row]) -> tuple[dict[str, float], dict[str, float]]:
    """The height of each line, downwards, and of each group's name."""
    asked = {name for row in rows for name, (_, runs) in row["met"].items() if runs}
    lines: dict[str, float] = {}
    heads: dict[str, float] = {}
    height = 0.0
    for group, claims in GROUPS.items():
        mine = [name for name in claims if name in asked]
        if not mine:
            continue
        heads[group] = height
        height += HEAD
        for name in mine:
            lines[name] = height
            height += 1.0
        height += GAP / 2
    return lines, heads


def counted(rows: Sequence[Row], cell: str, readout: str, claim: str) -> tuple[int, int]:
    """In how many runs of a cell a quantity is met, over all lengths and seeds, and of how many."""
    counts = [row["met"][claim] for row in rows if (row["cell"], row["readout"]) == (cell, readout)]
    return sum(met for met, _ in counts), sum(asked for _, asked in counts)


def draw(results: Results) -> Figure:
    """A matrix for each setting: claims down, cells across."""
    import matplotlib.pyplot as plt

    rows = results["conditions"]
    if not rows:
        figure, ax = plt.subplots(figsize=(6.3, 2.0))
        absent(ax, "runs of the study conditions")
        return figure
    settings = {one: [row for row in rows if (row["prior"], row["bos"]) == one] for one in SETTINGS}
    settings = {one: mine for one, mine in settings.items() if mine}
    lines, heads = lines_of(rows)
    bottom = max(lines.values()) + 0.6
    places = {one: columns_of(mine) for one, mine in settings.items()}
    figure, axes = plt.subplots(
        1, len(settings), figsize=(6.3, 1.9 + 0.135 * bottom), sharey=True, squeeze=False,
        gridspec_kw={"width_ratios": [found[-1][0] + 1.2 for found in places.values()]},
    )  # fmt: skip
    for ax, (setting, mine) in zip(axes[0], settings.items(), strict=True):
        draw_matrix(ax, mine, places[setting], lines)
        ax.set_title(f"{setting[0]} prior,\n{'with' if setting[1] else 'no'} BOS", loc="left", pad=2)
    first = axes[0][0]
    first.set_ylim(bottom, -0.6)
    words = {name: text for claims in GROUPS.values() for name, text in claims.items()}
    first.set_yticks([*lines.values(), *heads.values()], [*(words[name] for name in lines), *heads])
    for label in first.get_yticklabels()[len(lines) :]:
        label.set_fontweight("bold")
    lettered(axes[0])
    figure.legend(handles=legend(), loc="outside lower center", ncols=4, handlelength=1.0, handleheight=1.0)
    return figure


def draw_matrix(
    ax: Axes, rows: Sequence[Row], places: Sequence[tuple[float, str, str]], lines: Mapping[str, float]
) -> None:
    """A square for each claim and cell, filled from below by the share of runs that meet it."""
    from matplotlib.patches import Rectangle

    for place, cell, readout in places:
        for claim, line in lines.items():
            met, asked = counted(rows, cell, readout, claim)
            if not asked:
                ax.plot(place, line, ".", color=NOT_ASKED, markersize=2.5, gid="not asked")
                continue
            corner = (place - SIDE / 2, line - SIDE / 2)
            ax.add_patch(Rectangle(corner, SIDE, SIDE, facecolor=NOT_MET, linewidth=0))
            high = SIDE * met / asked
            ax.add_patch(
                Rectangle(
                    (corner[0], line + SIDE / 2 - high), SIDE, high, facecolor=MET, linewidth=0,
                    gid=f"{claim}|{cell}|{readout}",
                )
            )  # fmt: skip
    ax.set_xlim(-0.7, places[-1][0] + 0.7)
    ax.xaxis.tick_top()
    ax.set_xticks([place for place, _, _ in places], [DRAWN[cell] for _, cell, _ in places], rotation=90)
    ax.tick_params(length=0, pad=2)
    ax.spines[:].set_visible(False)
    for readout, words in READOUT_WORDS.items():
        mine = [place for place, _, other in places if other == readout]
        if mine:
            ax.annotate(
                words.replace(" ", "\n", 1), (sum(mine) / len(mine), 0.0), xycoords=("data", "axes fraction"),
                xytext=(0, -2), textcoords="offset points", ha="center", va="top",
            )  # fmt: skip


def legend() -> list[Any]:
    """What a square says, and a dot in its place."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    return [
        Patch(facecolor=MET, label="every run meets it (filled in part: that share of them)"),
        Patch(facecolor=NOT_MET, label="no run meets it"),
        Line2D([], [], color=NOT_ASKED, marker=".", markersize=3.5, linestyle="none", label="not asked"),
    ]


def fields(results: Results) -> dict[str, object]:
    rows = results["conditions"]
    lengths = sorted({row["length"] for row in rows})
    return {
        "runs": sum(row["seeds"] for row in rows) or "No",
        "lengths": " to ".join(map(str, dict.fromkeys([*lengths[:1], *lengths[-1:]]))) or "any",
    }
