"""Does the latest token weigh more? beta_1 against beta_2, and the raw blocks.

The effective betas are what the match scores show. The raw ones are the identity coefficients of the blocks of W_A,
which the paper reads: a block behind an impure copy head is larger for the same effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from figures.parts.curves import listed, shape_words
from figures.parts.panels import absent, lettered
from figures.parts.rows import Row, lengths_of, matching, start_in
from interp.results import half_width
from models.families.registry import drawing_order, find_family

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABEL = "beyond:lag_asymmetry"
ANALYSES = ("lag_asymmetry",)
CLAIMS = ("lag_1_leads", "score_lead", "every_block_order")
CAPTION = (
    "Match weights of lag 1 against lag 2, a marker for each of {models} checkpoints of T = {lengths} ({shape}). "
    "Left, the effective betas, fitted to the match scores (95% intervals of beta_1 - beta_2: at most {error:.2g}). "
    "Right, the identity coefficients of the weight blocks, which the standard family does not have. Below the "
    "diagonal the most recent token weighs more. A run whose scores follow no law is on the right only, and named "
    "there. {starts}"
)
STARTS = "Above, models from hard copies; below, from other starts; constructions in both."
COLUMNS = (
    (("beta_1", "beta_2"), "effective (from the scores)", r"$\beta_1$ (nats)", r"$\beta_2$ (nats)"),
    (("raw_1", "raw_2"), "raw weight blocks", "lag-1 block (nats)", "lag-2 block (nats)"),
)
CLAIMED = ("hierarchical", "independent")  # the priors of the paper; others are drawn after them


def chosen(results: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """All checkpoints but those of runs beside the main ones: from hard copies, and of one other start."""
    hard = [row for row in results["lag_asymmetry"] if start_in(row) == "hard"]
    rest = [row for row in results["lag_asymmetry"] if start_in(row) != "hard"]
    return {"lag_asymmetry": [*matching(hard), *matching(rest)]}


def by_start(rows: list[Row]) -> dict[str, list[Row]]:
    """The rows by the words of their start, the paper's first; no words where one start is there."""
    analytic = [row for row in rows if find_family(row["family"]).analytic]
    hard = [row for row in rows if start_in(row) == "hard"]
    rest = [row for row in rows if row not in analytic and row not in hard]
    if not hard or not rest:
        return {"": rows}
    other = "soft start" if all(start_in(row) == "soft" for row in rest) else "other starts"
    return {", hard start": [*analytic, *hard], f", {other}": [*analytic, *rest]}


def drawable(rows: list[Row], kind: str, fields: tuple[str, str]) -> list[Row]:
    """The rows of one prior that have both numbers."""
    return [row for row in rows if row["prior"] == kind and all(row[field] is not None for field in fields)]


def kinds_of(rows: list[Row]) -> list[str]:
    """The kinds of prior among the rows, those of the claim first."""
    found = {row["prior"] for row in rows}
    return [kind for kind in CLAIMED if kind in found] + sorted(found - set(CLAIMED))


def draw(results: dict[str, list[Row]]) -> Figure:
    """Scores on the left, blocks on the right, a row for each start, on one scale; the diagonal is beta_1 = beta_2."""
    import matplotlib.pyplot as plt

    starts = by_start(results["lag_asymmetry"])
    figure, grid = plt.subplots(len(starts), 2, figsize=(6.3, 0.6 + 2.7 * len(starts)), squeeze=False)
    values = [
        row[field]
        for rows in starts.values()
        for fields, *_ in COLUMNS
        for kind in kinds_of(rows)
        for row in drawable(rows, kind, fields)
        for field in fields
    ]
    limits = min(0.0, *values, 0.0), 1.08 * max(values, default=1.0)  # one scale: readings are compared
    handles: dict[str, Any] = {}
    for place, (start, rows) in enumerate(starts.items()):
        for ax, (fields, title, across, up) in zip(grid[place], COLUMNS, strict=True):
            ax.set_title(f"{title}{start}", loc="left")
            if not draw_panel(ax, rows, fields, handles=handles, limits=limits):
                absent(ax, f"{title},\nlag asymmetry")
                continue
            ax.set_xlabel(across if place == len(grid) - 1 else "")
            ax.set_ylabel(up)
    lettered(grid.flat)
    if handles:
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=2)
    return figure


def draw_panel(
    ax: Axes, rows: list[Row], fields: tuple[str, str], *, handles: dict[str, Any], limits: tuple[float, float]
) -> bool:
    """One reading of the models of one start, into `handles` what the legend says; whether there is anything."""
    if not any(drawable(rows, kind, fields) for kind in kinds_of(rows)):
        return False
    for kind in kinds_of(rows):
        for family in reversed(drawing_order()):  # constructions below: trained models lie on them
            for bos in (True, False):
                mine = [row for row in drawable(rows, kind, fields) if row["family"] == family]
                mine = [row for row in mine if row["subject"]["bos"] == bos]
                if mine:
                    words = f"{find_family(family).label}, {kind}, {'BOS' if bos else 'no BOS'}"
                    handles[words] = scatter(ax, mine, fields, kind=kind, family=family)
        for row in drawable(rows, kind, fields):
            if not row["fit"]:
                name_run(ax, row, fields)
    (handles["equal"],) = ax.plot(limits, limits, color="#7f7f7f", linewidth=0.6, linestyle="--", zorder=0)
    ax.set_xlim(limits)
    ax.set_ylim(limits)
    ax.set_aspect("equal")
    return True


def scatter(ax: Axes, rows: list[Row], fields: tuple[str, str], *, kind: str, family: str) -> Any:
    """A marker for each checkpoint: filled under the hierarchical prior, open under others; upside down without BOS."""
    colour = find_family(family).colour
    (points,) = ax.plot(
        [row[fields[0]] for row in rows],
        [row[fields[1]] for row in rows],
        linestyle="None",
        marker=find_family(family).marker if rows[0]["subject"]["bos"] else "v",
        markersize=5.0 if find_family(family).analytic else 3.2,
        color=colour,
        markerfacecolor=colour if kind == "hierarchical" else "white",
        markeredgewidth=0.6,
    )
    return points


def name_run(ax: Axes, row: Row, fields: tuple[str, str]) -> None:
    """Beside the marker of a run whose scores follow no law, which run it is."""
    ax.annotate(
        f"{run_words(row)}:\nno law in the scores", (row[fields[0]], row[fields[1]]), xytext=(-5, 0),
        textcoords="offset points", ha="right", va="bottom", fontsize=6,
    )  # fmt: skip


def run_words(row: Row) -> str:
    """The length, and the seed where it is known."""
    seed = row["subject"]["seed"]
    return f"T = {row['length']}" + ("" if seed is None else f", seed {seed}")


def fields(results: dict[str, list[Row]]) -> dict[str, object]:
    rows = results["lag_asymmetry"]
    return {
        "models": len(rows),
        "lengths": listed(lengths_of(rows)) if rows else "none",
        "shape": shape_words([row["subject"] for row in rows]) if rows else "none is there",
        "error": max(
            (float(half_width(row["stderr"], n=None)) for row in rows if row["stderr"] is not None), default=0.0
        ),
        "starts": STARTS if len(by_start(rows)) > 1 else "",
    }
