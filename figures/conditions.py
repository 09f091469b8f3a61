"""Which condition does each claim need? Claims against cells, for each prior.

Freedom grows to the right: frozen copies and readout, a free readout, a sharp start, a random start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from analyses.condition_answers import CLAIMS, readout_cells, readout_cuts
from figures._curves import listed
from figures.panels import absent, lettered
from figures.rows import Row
from figures.verdict import Verdict, sentences
from interp.plotting import MAIN_COLOUR

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABEL = "beyond:conditions"
ANALYSES = ("conditions",)
CLAIM = (
    "The theory has hypotheses: frozen sharp copies, a start that treats symbols alike, a readout that adds votes. "
    "Each cell of this study frees one part. Which claim of the paper needs which of them? (The paper does not ask.)"
)
NAMES = {
    "frozen": "copies, readout frozen",
    "frozen_copies": "copies frozen",
    "hard_start": "free, hard start",
    "random_start": "free, random start",
    "symmetrised": "free, symmetric",
    "zero_start": "free, zero start",
    "zero_start_symmetrised": "free, zero, symm.",
    "leaving": "free, 5 x steps",
    "frozen_copies_no_direct": "copies frozen, no direct path",
    "frozen_copies_votes": "copies frozen, votes alone",
    "random_start_no_direct": "free, no direct path",
    "random_start_votes": "free, votes alone",
    "standard": "standard family",
}
SETTINGS = (("hierarchical", True), ("independent", True), ("independent", False))
READOUTS = {"probability": "prob.", "logit": "logit"}
READOUT_WORDS = {"probability": "readout adds votes", "logit": "readout is a softmax"}
# Cells that are drawn, each with one part freed more than the one before, with what stands above them.
DRAWN = {
    "frozen": "copies and readout frozen",
    "frozen_copies": "copies frozen",
    "hard_start": "free, sharp start",
    "random_start": "free, random start",
    "standard": "standard family",
}
# Claims by what they are about, in the order of the lines: name in the study -> words of the line.
GROUPS = {
    "the weights look like the paper's": {
        "copy heads are sharp": "copy heads are sharp",
        "weights say what scores say": r"blocks of $W_A$ are the scores' $\beta$",
        "W_A is the construction's": r"$W_A$ is the construction's",
        "beta_1 > beta_2 in weights": r"$\beta_1 > \beta_2$ in the blocks of $W_A$",
    },
    "the model computes the law": {
        "scores are the law": "scores follow the law",
        "law recovers the loss": "law recovers the loss",
        "aligned pairs carry the score": "only equal lags are compared",
        "beta of the optimum": r"$\beta$ is the optimum's",
        "KL of the optimum": "KL is the optimum's",
        "beta_1 > beta_2 in scores": r"$\beta_1 > \beta_2$ in the scores",
        "symbols are alike": "all symbols are treated alike",
    },
    "where the prediction comes from": {
        "partial matches smooth": "partial matches smooth",
        "attention does the smoothing": "the readout does not smooth",
        "match head knows all": "match head alone knows",
        "law of pairs recovers it": "law of all pairs recovers",
    },
}
MET, NOT_MET, NOT_ASKED = MAIN_COLOUR, "#e3e3e3", "#7f7f7f"
SIDE = 0.84  # of a square, in cells of the matrix
GAP = 0.7  # cells between two readouts, and lines between two groups of claims
HEAD = 1.0  # lines that the name of a group takes
Results = dict[str, list[Row]]


def chosen(results: Results) -> Results:
    """The annealed runs, and those trained for longer."""
    kept = [row for row in results["conditions"] if row["protocol"] in ("annealed", "long") and row["cell"] in NAMES]
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
    """The height of each claim's line, downwards, and of each group's name (claims asked of a run)."""
    asked = {name for row in rows for name, (_, runs) in row["claims"].items() if runs}
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
    """In how many runs of a cell a claim is met, over all lengths and seeds, and of how many."""
    counts = [row["claims"][claim] for row in rows if (row["cell"], row["readout"]) == (cell, readout)]
    return sum(met for met, _ in counts), sum(asked for _, asked in counts)


def draw(results: Results) -> Figure:
    """A matrix for each setting: claims down, cells across."""
    import matplotlib.pyplot as plt

    rows = [row for row in results["conditions"] if row["cell"] in DRAWN]
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
    """A square for each claim and cell, filled from below by the share of runs that meet the claim."""
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
        Patch(facecolor=MET, label="every run meets the claim (filled in part: that share of them)"),
        Patch(facecolor=NOT_MET, label="no run meets it"),
        Line2D([], [], color=NOT_ASKED, marker=".", markersize=3.5, linestyle="none", label="not asked"),
    ]


def caption(results: Results) -> str:
    """What is to be seen, with the numbers."""
    rows = results["conditions"]
    if not rows:
        return "Which condition each claim needs: no run of the study was there to be measured."
    lengths = sorted({row["length"] for row in rows})
    runs = sum(row["seeds"] for row in rows)
    drawn = [row for row in rows if row["cell"] in DRAWN]
    beside = sorted({row["cell"] for row in rows} - set(DRAWN))
    others = f" The other cells ({', '.join(beside)}) are in the numbers below." if beside else ""
    asked = {claim.name: claim.required for claim in CLAIMS}
    required = "; ".join(
        f"{plain(words)}: {asked[name]}" for claims in GROUPS.values() for name, words in claims.items()
    )
    return (
        f"{sum(row['seeds'] for row in drawn)} of {runs} runs of the study `conditions` (k = 2, |V| = 5; T = "
        f"{listed(lengths)}, up to three seeds each). A column is a cell of the study: what is frozen, and where "
        f"training starts. A line is a claim. Each square is filled from below by the share of the cell's runs that "
        f"meet the claim; a dot in its place: the claim is not about that prior, or its number cannot be "
        f"measured there. What is asked of a run: {required}.{others}"
    )


def plain(words: str) -> str:
    """Words of a line without the marks of mathematical type."""
    return words.replace("$", "").replace("\\", "")


def verdict(results: Results) -> Verdict:
    """No claim of the paper: where each of its claims holds."""
    rows = results["conditions"]
    if not rows:
        return Verdict(word="cannot tell", measured="no run of the study was measured")
    measured = [f"{name}: {where}" for name in rows[0]["claims"] if (where := counts_text(rows, name))]
    return Verdict(
        word="beyond the paper",
        measured="; ".join([*measured, *readout_cells(list(rows))]),
        **headline(rows),
        why=sentences(
            [
                "Runs that meet the claim, of those asked, by cell: what holds in one cell and not in the next needs "
                "what was freed between them",
                *readout_cuts(list(rows)),
            ]
        ),
    )


def counts_text(rows: Sequence[Row], claim: str) -> str:
    """Cell by cell, in how many runs a claim is met."""
    found: dict[tuple[str, str], list[int]] = {}
    for row in rows:
        met, asked = row["claims"][claim]
        count = found.setdefault((row["cell"], row["readout"]), [0, 0])
        count[0] += met
        count[1] += asked
    return ", ".join(
        f"{cell} {READOUTS[readout]} {met}/{asked}" for (cell, readout), (met, asked) in found.items() if asked
    )


def headline(rows: Sequence[Row]) -> dict[str, Any]:
    """The claim that turns on one condition alone: a sentence, and its number."""
    words = []
    for cell, runs in (("frozen", "with copies and readout frozen"), ("random_start", "with all parts free")):
        counts = [row["claims"]["beta_1 > beta_2 in weights"] for row in rows
                  if (row["cell"], row["readout"]) == (cell, "probability")]  # fmt: skip
        if asked := sum(count[1] for count in counts):
            words.append(f"{sum(count[0] for count in counts)} of {asked} runs {runs}")
    if not words:
        return {}
    return {
        "headline": f"beta_1 > beta_2 in the weights holds in {' and in '.join(words)}.",
        "number": f"beta_1 > beta_2 in the weights: {', '.join(words)}",
    }
