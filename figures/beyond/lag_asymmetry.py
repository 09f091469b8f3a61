"""Does the latest token weigh more? beta_1 against beta_2, and the raw blocks.

The effective betas are what the match scores show. The raw ones are the identity coefficients of the blocks of W_A,
which the paper reads: a block behind an impure copy head is larger for the same effect.
"""

from __future__ import annotations

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.parts.panels import labelled, legend_below, lettered, there
from figures.parts.rows import Results, Row, lengths_of, listed, matching, shape_words, start_in, where
from interp.plotting import QUIET, beside
from interp.results import half_width
from models.families.registry import drawing_order, find_family

LABEL = "beyond:lag_asymmetry"
ANALYSES = {"lag_asymmetry": lambda rows: of_two_starts(rows)}
CLAIMS = ("lag_1_leads", "score_lead", "every_block_order")
CAPTION = (
    "Match weights of lag 1 against lag 2, a marker for each of {models} checkpoints of T = {lengths} ({shape}). "
    "Left, the effective betas, fitted to the match scores (95% intervals of beta_1 - beta_2: at most {error:.2g}). "
    "Right, the identity coefficients of the weight blocks, which the standard family does not have. Below the "
    "diagonal the most recent token weighs more. A run whose scores follow no law is on the right only, and named "
    "there. {starts}"
)
STARTS = "Above, models from hard copies; below, from other starts; constructions in both."
COLUMNS = {  # title -> fields and axes
    "effective (from the scores)": (("beta_1", "beta_2"), r"$\beta_1$ (nats)", r"$\beta_2$ (nats)"),
    "raw weight blocks": (("raw_1", "raw_2"), "lag-1 block (nats)", "lag-2 block (nats)"),
}
CLAIMED = ("hierarchical", "independent")  # the priors of the paper; others are drawn after them


def of_two_starts(rows: list[Row]) -> list[Row]:
    """All checkpoints but those of runs beside the main ones: from hard copies, and of one other start."""
    hard = [row for row in rows if start_in(row) == "hard"]
    return [*matching(hard), *matching(row for row in rows if start_in(row) != "hard")]


def by_start(rows: list[Row]) -> dict[str, list[Row]]:
    """The rows by the words of their start, the paper's first; no words where one start is there."""
    analytic = [row for row in rows if find_family(row["family"]).analytic]
    hard = [row for row in rows if start_in(row) == "hard"]
    rest = [row for row in rows if row not in analytic and row not in hard]
    if not hard or not rest:
        return {"": rows}
    other = "soft start" if all(start_in(row) == "soft" for row in rest) else "other starts"
    return {", hard start": [*analytic, *hard], f", {other}": [*analytic, *rest]}


def draw(results: Results) -> Figure:
    """Scores on the left, blocks on the right, a row for each start, on one scale; the diagonal is beta_1 = beta_2."""
    everything = results["lag_asymmetry"]
    columns = there({title: having(everything, fields) for title, (fields, *_) in COLUMNS.items()})
    values = [row[field] for title, rows in columns.items() for row in rows for field in COLUMNS[title][0]]
    limits = min(0.0, *values), 1.08 * max(values)  # one scale: readings are compared
    starts = by_start(everything)
    size = (6.3, 0.6 + 2.7 * len(starts))
    figure, grid = plt.subplots(len(starts), len(columns), figsize=size, squeeze=False)
    for place, (start, rows) in enumerate(starts.items()):
        for ax, title in zip(grid[place], columns, strict=True):
            fields, across, up = COLUMNS[title]
            ax.set_title(f"{title}{start}")
            draw_panel(ax, having(rows, fields), fields, limits)
            ax.set_xlabel(across if place == len(starts) - 1 else "")
            ax.set_ylabel(up)
    lettered(grid.flat)
    legend_below(figure, labelled(grid.flat), 2)
    return figure


def having(rows: list[Row], fields: tuple[str, str]) -> list[Row]:
    """The rows that have both numbers."""
    return [row for row in rows if all(row[field] is not None for field in fields)]


def draw_panel(ax: Axes, rows: list[Row], fields: tuple[str, str], limits: tuple[float, float]) -> None:
    """A marker for each checkpoint: filled under the hierarchical prior, open under others; upside down without BOS."""
    kinds = sorted({row["prior"] for row in rows}, key=lambda kind: (kind not in CLAIMED, kind))
    for kind in kinds:
        for family in reversed(drawing_order()):  # constructions below: trained models lie on them
            for bos in (True, False):
                mine = [row for row in where(rows, prior=kind, family=family) if row["subject"]["bos"] == bos]
                if mine:
                    look = find_family(family)
                    ax.plot(
                        *([row[field] for row in mine] for field in fields), linestyle="None",
                        marker=look.marker if bos else "v", markersize=5.0 if look.analytic else 3.2,
                        color=look.colour, markerfacecolor=look.colour if kind == "hierarchical" else "white",
                        markeredgewidth=0.6, label=f"{look.label}, {kind}, {'BOS' if bos else 'no BOS'}",
                    )  # fmt: skip
    for row in rows:
        if not row["fit"]:  # named, because it is not on the left
            seed = row["subject"]["seed"]
            run = f"T = {row['length']}" + ("" if seed is None else f", seed {seed}")
            beside(ax, row[fields[0]], row[fields[1]], f"{run}:\nno law in the scores", dx=-5, va="bottom")
    ax.plot(limits, limits, color=QUIET, linewidth=0.6, linestyle="--", zorder=0, label="equal")
    ax.set(xlim=limits, ylim=limits, aspect="equal")


def fields(results: Results) -> dict[str, object]:
    rows = results["lag_asymmetry"]
    errors = [float(half_width(row["stderr"], n=None)) for row in rows if row["stderr"] is not None]
    return {
        "models": len(rows),
        "lengths": listed(lengths_of(rows)) or "none",
        "shape": shape_words(rows) or "none is there",
        "error": max(errors, default=0.0),
        "starts": STARTS if len(by_start(rows)) > 1 else "",
    }
