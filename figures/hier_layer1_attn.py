"""Copy heads of three families, T = 128, ordered by the lag they attend to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from figures import _attention as panels
from figures import _circuit as circuit
from figures.rows import Row
from figures.verdict import Check, Verdict
from models.families import PAPER, find_family

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LABEL = "fig:hier_layer1_attn"
ANALYSES = ("attention",)
CLAIM = (
    "At T = 128 one head of the first layer copies the token at lag 1 and the other the token at lag 2, with the same "
    "sharp positional attention in all three families."
)
LENGTH = 128


def chosen(results: dict[str, list[Row]]) -> dict[str, list[Row]]:
    found = circuit.of_one_length(results["attention"], LENGTH, **circuit.HIERARCHICAL)
    return {"attention": [circuit.kept(row, "copy_pattern") for row in found.values()]}


def draw(results: dict[str, list[Row]]) -> Figure:
    import matplotlib.pyplot as plt

    found = panels.families_of(results)
    heads = max((circuit.order_of(row) for row in found.values()), default=2)
    figure, grid = plt.subplots(heads, len(PAPER), figsize=(6.3, 1.85 * heads + 0.4), squeeze=False)
    length = panels.length_in(found, LENGTH)
    for column, family in enumerate(PAPER):
        for place, ax in enumerate(grid[:, column]):
            if family in found:
                panels.copy_panel(ax, found[family], place)
            else:
                panels.note(ax, panels.family_missing(family, length))
            ax.set_xlabel("key position" if place == heads - 1 else "")
            ax.set_ylabel(f"copy, lag {place + 1}\nquery position" if column == panels.first_column(found) else "")
            if place == 0:
                ax.set_title(panels.title_of(family))
    panels.weight_bar(figure, list(grid.flat), location="right", shrink=0.7, aspect=30)
    return figure


def caption(results: dict[str, list[Row]]) -> str:
    found = panels.families_of(results)
    if not found:
        return "Copy heads on the hierarchical task: no checkpoint to show."
    return (
        "Copy heads on one sequence of the hierarchical prior with BOS "
        f"({circuit.setting(next(iter(found.values())))}), ordered by the lag they attend to; heads are counted from "
        "0, and the number in a panel is the mean weight on that lag over the queries that have a token there "
        f"({'; '.join(f'{family}: {circuit.copies_in_words(row)}' for family, row in found.items())}). `last` "
        "is the weight of the last query, where BOS takes some. Colours follow the square root of the weight. "
        + circuit.starts_in_words(found.values())
    ).rstrip()


def verdict(results: dict[str, list[Row]]) -> Verdict:
    found = panels.families_of(results)
    checks: dict[str, bool | Check] = {}
    measured = []
    for family, row in found.items():
        part = f"in the {family}" if find_family(family).analytic else f"in {family} models"
        checks[f"{family}: each copy head puts at least {circuit.SHARP} on its lag, mean over queries"] = Check(
            passed=circuit.copies_are_sharp(row), found=circuit.copies_in_words(row), part=part
        )
        measured.append(f"{family}: {circuit.copies_in_words(row)}")
        needed = circuit.needed_at_last(row)
        checks[
            f"{family}: at the last query, whose prediction carries the loss, so does each copy head that it needs "
            "(lags below k)"
        ] = Check(
            passed=all(circuit.at_last(copy, "last") >= circuit.SHARP for copy in needed),
            found=circuit.in_words_at_last(needed),
            part=part,
        )
    missing = [family for family in PAPER if family not in found] if found else ()
    return circuit.verdict_of(
        checks,
        measured=measured,
        missing=missing,
        headline=headline(found),
        number=number(found),
    )


def number(found: dict[str, Row]) -> str:
    """What the trained models' copy heads put on their lags: the mean over queries, and at the last query."""
    parts = [
        f"{family} {circuit.mean_shares(row)} (last query {circuit.last_shares(row)})".replace(" and ", ", ")
        for family, row in circuit.trained_of(found).items()
    ]
    return f"copy mass, lags 1 and 2, T = {circuit.lengths_in(found)}: {'; '.join(parts)}" if parts else ""


def headline(found: dict[str, Row]) -> str:
    """How sharply the trained models copy, over all queries and at the last."""
    last = [f"{family} {circuit.last_shares(row)}" for family, row in circuit.trained_of(found).items()]
    if not found:
        return ""
    return (
        f"Copy heads put this much of their attention on lags 1 and 2: {circuit.copy_numbers(found)}; at the last "
        f"query, whose prediction is trained: {', '.join(last)}."
    )
