"""Match attention of three families, T = 128: scores above, weights below."""

from __future__ import annotations

from typing import TYPE_CHECKING

from figures import _attention as panels
from figures import _circuit as circuit
from figures.rows import Row
from figures.verdict import Check, Verdict
from models.families import PAPER

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LABEL = "fig:hier_layer2_attn"
ANALYSES = ("attention",)
CLAIM = (
    "At T = 128 the second layer of all three families shows the induction-head pattern: each query attends to the "
    "keys whose preceding context matches its own."
)
LENGTH = 128


def chosen(results: dict[str, list[Row]]) -> dict[str, list[Row]]:
    found = circuit.of_one_length(results["attention"], LENGTH, **circuit.HIERARCHICAL)
    return {"attention": [circuit.kept(row, "match_scores", "match_pattern") for row in found.values()]}


def draw(results: dict[str, list[Row]]) -> Figure:
    import matplotlib.pyplot as plt

    found = panels.families_of(results)
    figure, grid = plt.subplots(2, len(PAPER), figsize=(6.3, 4.6))
    length = panels.length_in(found, LENGTH)
    for column, family in enumerate(PAPER):
        above, below = grid[:, column]
        row = found.get(family)
        if row is None:
            panels.note(above, panels.family_missing(family, length))
            panels.note(below, panels.family_missing(family, length))
        else:
            panels.match_score_panel(above, row)
            panels.match_panel(below, row)
            above.set_xlabel("")
            if column != panels.first_column(found):
                above.set_ylabel("")
                below.set_ylabel("")
        above.set_title(panels.title_of(family))
    panels.below_best_bar(figure, list(grid[0]), location="bottom", shrink=0.5, aspect=40)
    panels.weight_bar(figure, list(grid[1]), location="bottom", shrink=0.5, aspect=40)
    return figure


def caption(results: dict[str, list[Row]]) -> str:
    found = panels.families_of(results)
    if not found:
        return "Match attention on the hierarchical task: no checkpoint to show."
    return (
        "Match head on one sequence of the hierarchical prior with BOS "
        f"({circuit.setting(next(iter(found.values())))}); families: {', '.join(found)}. Top: scores before the "
        "softmax, less the largest of their query, on one scale for all families: the softmax sees no more of them. "
        "Bottom: weights after it; colours follow the square root of the weight. The red arrow marks the last query, "
        "the only one that carries the loss."
    )


def verdict(results: dict[str, list[Row]]) -> Verdict:
    found = panels.families_of(results)
    checks: dict[str, bool | Check] = {}
    measured = []
    for family, row in found.items():
        hits, total = row["on_full"]
        if total:
            name = f"{family}: the largest weight is on a full match at {circuit.FOLLOWS:.0%} of queries that have one"
            checks[name] = Check(passed=circuit.follows_matches(row), found=f"{hits} of {total}")
        measured.append(f"{family}: largest weight on a full match at {hits} of {total} queries that have one")
    missing = [family for family in PAPER if family not in found] if found else ()
    note = ["BOS and early keys are left aside, and only the last query carries the loss"] if found else []
    hits = ", ".join(
        f"{family} {row['on_full'][0]} of {row['on_full'][1]}" for family, row in circuit.trained_of(found).items()
    )
    return circuit.verdict_of(
        checks,
        measured=measured,
        missing=missing,
        why=note,
        headline=f"Queries that attend most to a full match, of those that have one: {hits}." if hits else "",
        number=f"largest weight on a full match: {hits} queries" if hits else "",
    )
