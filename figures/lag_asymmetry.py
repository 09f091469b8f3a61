"""Does the latest token weigh more? beta_1 against beta_2, and the raw blocks.

The effective betas are what the match scores show. The raw ones are the identity coefficients of the blocks of W_A,
which the paper reads: a block behind an impure copy head is larger for the same effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from figures._curves import listed, shape_words
from figures.known_conditions import LAG_1_LEADS
from figures.panels import absent, lettered
from figures.rows import Row, lengths_of, matching
from figures.verdict import Check, Verdict, judged
from interp.plotting import INTERVAL
from models.families import drawing_order, find_family

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABEL = "beyond:lag_asymmetry"
ANALYSES = ("lag_asymmetry",)
CLAIM = (
    "Under the hierarchical prior the lag-1 block of the match weights is larger than the lag-2 block, beta_1 > "
    "beta_2, because contexts that share their most recent token share a parent. (The paper reads this off the weight "
    "blocks; the figure also asks what the scores say, and what happens under the independent prior, where lags are "
    "alike.)"
)
CLAIMED = ("hierarchical", "independent")  # the priors that the claim is about; others are drawn after them


def chosen(results: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """All checkpoints but those of runs beside the main ones."""
    return {"lag_asymmetry": matching(results["lag_asymmetry"])}


def drawable(rows: list[Row], kind: str, fields: tuple[str, str]) -> list[Row]:
    """The rows of one prior that have both numbers."""
    return [row for row in rows if row["prior"] == kind and all(row[field] is not None for field in fields)]


def kinds_of(rows: list[Row]) -> list[str]:
    """The kinds of prior among the rows, those of the claim first."""
    found = {row["prior"] for row in rows}
    return [kind for kind in CLAIMED if kind in found] + sorted(found - set(CLAIMED))


def draw(results: dict[str, list[Row]]) -> Figure:
    """Scores on the left, blocks on the right, on one scale; below the diagonal beta_1 is the larger one."""
    import matplotlib.pyplot as plt

    rows = results["lag_asymmetry"]
    figure, axes = plt.subplots(1, 2, figsize=(6.3, 3.3))
    handles: dict[str, Any] = {}
    columns = (
        (("beta_1", "beta_2"), r"effective (from the scores)", r"$\beta_1$ (nats)", r"$\beta_2$ (nats)"),
        (("raw_1", "raw_2"), "raw weight blocks", "lag-1 block (nats)", "lag-2 block (nats)"),
    )
    values = [
        row[field]
        for fields, *_ in columns
        for kind in kinds_of(rows)
        for row in drawable(rows, kind, fields)
        for field in fields
    ]
    low, high = min(0.0, *values, 0.0), 1.08 * max(values, default=1.0)  # one scale: readings are compared
    for ax, (fields, title, across, up) in zip(axes, columns, strict=True):
        ax.set_title(title, loc="left")
        shown = [row for kind in kinds_of(rows) for row in drawable(rows, kind, fields)]
        if not shown:
            absent(ax, f"{title},\nlag asymmetry")
            continue
        for kind in kinds_of(rows):
            for family in reversed(drawing_order()):  # constructions below: trained models lie on them
                for bos in (True, False):
                    mine = [row for row in drawable(rows, kind, fields) if row["family"] == family]
                    mine = [row for row in mine if row["subject"]["bos"] == bos]
                    if mine:
                        words = f"{find_family(family).label}, {kind}, {'BOS' if bos else 'no BOS'}"
                        handles[words] = scatter(ax, mine, fields, kind=kind, family=family)
        for row in shown:
            if not row["fit"]:
                name_run(ax, row, fields)
        (handles["equal"],) = ax.plot(
            [low, high], [low, high], color="#7f7f7f", linewidth=0.6, linestyle="--", zorder=0
        )
        ax.set_xlim(low, high)
        ax.set_ylim(low, high)
        ax.set_aspect("equal")
        ax.set_xlabel(across)
        ax.set_ylabel(up)
    lettered(axes)
    if handles:
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=2)
    return figure


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


def caption(results: dict[str, list[Row]]) -> str:
    """What is to be seen, with the numbers."""
    rows = results["lag_asymmetry"]
    told = [row for row in rows if row["fit"]]
    if not rows:
        return "Effective beta_1 against beta_2, beside the raw weight blocks: no results."
    errors = [INTERVAL * row["stderr"] for row in told if row["stderr"] is not None]
    parts = [
        f"Match weights of lag 1 against lag 2, a marker for each of {len(rows)} checkpoints of T = "
        f"{listed(lengths_of(rows))} ({shape_words([row['subject'] for row in rows])}). Left, the effective betas, "
        "fitted to the match scores"
        + (
            f" (95% intervals of beta_1 - beta_2 at most {max(errors):.2g}, smaller than the markers)."
            if errors
            else "."
        )
        + " Right, the identity coefficients of the weight blocks, which the standard family does not have. Below the "
        "diagonal the most recent token weighs more."
    ]
    if len(told) < len(rows):
        lost = sorted({f"{row['family']}, {row['prior']}, {run_words(row)}" for row in rows if not row["fit"]})
        parts.append(
            f"Without a law to fit, and so on the right only and named there: {len(rows) - len(told)} "
            f"({'; '.join(lost)})."
        )
    return " ".join(parts)


def verdict(results: dict[str, list[Row]]) -> Verdict:
    """The order of the lags under either prior, by scores and by blocks."""
    rows = results["lag_asymmetry"]
    checks: dict[str, bool | Check] = {}
    measured, number, said = [], "", []
    told = drawable(rows, "hierarchical", ("beta_1", "beta_2"))
    if told:
        larger = sum(row["asymmetric"] == "beta_1" for row in told)
        checks["the scores of every hierarchical model show beta_1 > beta_2"] = Check(
            passed=larger == len(told), found=f"{larger} of {len(told)}", part="in the scores"
        )
        measured.append(f"hierarchical, from the scores: beta_1 larger in {larger} of {len(told)} ({gaps(told)})")
        number = f"in the scores: {larger} of {len(told)}"
        said.append(f"the scores show a larger weight at lag 1 in {larger} of {len(told)} models")
    raw = drawable(rows, "hierarchical", ("raw_1", "raw_2"))
    if raw:
        larger = sum(row["raw_1"] > row["raw_2"] for row in raw)
        checks["the weight blocks of every hierarchical model show beta_1 > beta_2"] = Check(
            passed=larger == len(raw), found=f"{larger} of {len(raw)}", where=LAG_1_LEADS, part="in the weight blocks"
        )
        parts, counts = [], []
        for family in dict.fromkeys(row["family"] for row in raw):
            mine = [row for row in raw if row["family"] == family]
            many = f"{sum(row['raw_1'] > row['raw_2'] for row in mine)} of {len(mine)}"
            parts.append(f"{family} {many}")
            counts.append(f"{many} {family}")
        measured.append(f"from the blocks: {', '.join(parts)}")
        number = f"{number}; in the blocks: {', '.join(parts)}"
        said.append(f"the weight blocks show it in {' and '.join(counts)} models")
    alike = drawable(rows, "independent", ("beta_1", "beta_2"))
    if alike:
        measured.append(f"independent, from the scores: {gaps(alike)}")
    return judged(
        checks,
        measured="; ".join(measured) or "no checkpoints",
        headline=f"Under the hierarchical prior {'; '.join(said)}." if said else "",
        number=number.removeprefix("; "),
        why="Where the two readings differ, attention follows the scores: a block says nothing of how pure its copy is"
        if raw and any(row["raw_1"] <= row["raw_2"] for row in raw)
        else "",
    )


def gaps(rows: list[Row]) -> str:
    """The smallest and the largest difference."""
    found = sorted(row["difference"] for row in rows)
    return f"beta_1 - beta_2 from {found[0]:+.2f} to {found[-1]:+.2f}"
