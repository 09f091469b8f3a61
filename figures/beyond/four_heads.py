"""A model from elsewhere, in which four heads match: all edited, or one left.

Draws the rows of `python -m analyses four_heads`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from figures.parts.panels import absent
from figures.parts.rows import Row
from interp.plotting import MAIN_COLOUR
from interp.results import half_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABEL = "beyond:four_heads"
ANALYSES = ("four_heads",)
CLAIMS = ("four_heads",)
CAPTION = (
    "A plain next-token model that this suite did not make, without BOS (its first token stands in for it), whose "
    "match heads are edited at every query of held-out sequences. Dots: the share of what ablating all of them "
    "costs that an edit recovers, with 95% intervals over sequences. Above the line all heads together: attention "
    "replaced by the fitted law, by hard matching, by even attention. Below it one head alone, the others "
    "ablated, as it is and with its law. Open: the same weights at random keys; an arrow head lies left of the "
    "axis, its value beside it; even attention and heads as they are have none."
)

CONTROL_EDGE = "#8c8c8c"
TOGETHER = {"law": "the law", "hard": "hard matching", "even": "even attention"}
FIELDS = (
    "edit", "change", "stderr", "recovered", "recovered_stderr", "control_recovered", "model", "heads", "queries", "n",
    "success", "message",
)  # fmt: skip


def chosen(results: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """What is drawn of each edit."""
    return {"four_heads": [{name: row[name] for name in FIELDS} for row in results["four_heads"]]}


def edit_of(rows: list[Row], name: str) -> Row | None:
    return next((row for row in rows if row["edit"] == name), None)


def alone(rows: list[Row], kind: str) -> list[Row]:
    """The edits that leave one head: `only` as it is, `law` with its law."""
    return [row for row in rows if row["edit"].startswith(f"{kind} ")]


def draw(results: dict[str, list[Row]]) -> Figure:
    """What each edit recovers of the loss: all heads together above, one head left below."""
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D

    rows = [row for row in results["four_heads"] if row["success"]]
    figure, ax = plt.subplots(figsize=(4.6, 2.8))
    if not rows:
        absent(ax, "edits of the four-head model")
        return figure
    lines = [(f"{name} in all match heads", edit_of(rows, edit)) for edit, name in TOGETHER.items()]
    lines += [(f"head {row['edit'].partition(' ')[2]} alone, as it is", row) for row in alone(rows, "only")]
    lines += [(f"head {row['edit'].partition(' ')[2]} alone, with its law", row) for row in alone(rows, "law")]
    found = [(name, row) for name, row in lines if row is not None]
    draw_edits(ax, found)
    ax.axhline(sum(row["edit"] in TOGETHER for _, row in found) - 0.5, color="#d9d9d9", linewidth=0.6)
    handles = [
        Line2D([], [], color=MAIN_COLOUR, marker="o", markersize=4, label="the edit, with its 95% interval"),
        Line2D([], [], color=CONTROL_EDGE, marker="o", markersize=4, markerfacecolor="white", linestyle="none",
               label="its control: the same weights at random keys"),
    ]  # fmt: skip
    figure.legend(handles=handles, loc="outside lower center", ncols=2, columnspacing=1.0)
    return figure


def draw_edits(ax: Axes, found: list[tuple[str, Row]]) -> None:
    """A line for each edit; a control that lies left of the axis is an arrow head with its value."""
    least = -0.3
    for place, (_, row) in enumerate(found):
        ax.errorbar(
            row["recovered"], place, xerr=half_width(row["recovered_stderr"], n=row["n"]), fmt="o", color=MAIN_COLOUR,
            markersize=4, elinewidth=0.8, zorder=3, gid=row["edit"],
        )  # fmt: skip
        control = row["control_recovered"]
        if control is not None:
            ax.plot(
                max(control, least), place, "o" if control > least else "<", color=CONTROL_EDGE, markersize=4,
                markerfacecolor="white", gid=f"control of {row['edit']}",
            )  # fmt: skip
            if control <= least:
                ax.annotate(
                    f"{control:.1f}", (least, place), xytext=(5, 0), textcoords="offset points", va="center", fontsize=6
                )
    for share, words in ((0.0, "all match heads ablated"), (1.0, "the model as it is")):
        ax.axvline(share, color="#7f7f7f", linewidth=0.6, zorder=0)
        ax.annotate(
            words, (share, 1.0), xycoords=("data", "axes fraction"), xytext=(0, 2), textcoords="offset points",
            ha="center" if share < 1 else "right", va="bottom", fontsize=6, color="#555555",
        )  # fmt: skip
    ax.set_xlim(least - 0.05, 1.05)
    ax.set_ylim(len(found) - 0.5, -0.5)
    ax.set_yticks(range(len(found)), [name for name, _ in found])
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("share recovered of what ablating all match heads costs")
