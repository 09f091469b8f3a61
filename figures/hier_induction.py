"""The last query's attention by overlap in three families, T = 128."""

from __future__ import annotations

from typing import TYPE_CHECKING

from figures import _attention as panels
from figures import _circuit as circuit
from figures.rows import Row
from figures.verdict import Check, Verdict
from models.families import PAPER, find_family

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LABEL = "fig:hier_induction"
ANALYSES = ("attention",)
CLAIM = (
    "At T = 128 the last query of all three families puts the most mass on full matches and a share that is not "
    "negligible on partial ones: it interpolates across context orders."
)
LENGTH = 128


def chosen(results: dict[str, list[Row]]) -> dict[str, list[Row]]:
    found = circuit.of_one_length(results["attention"], LENGTH, **circuit.HIERARCHICAL)
    return {"attention": [circuit.kept(row) for row in found.values()]}


def draw(results: dict[str, list[Row]]) -> Figure:
    found = panels.families_of(results)
    length = panels.length_in(found, LENGTH)
    return panels.draw_bars(
        [
            (
                f"{find_family(family).label}, T = {length}",
                found.get(family),
                f"{family} model, hierarchical prior with BOS, T = {length}",
            )
            for family in PAPER
        ],
        height=4.2,
    )


def caption(results: dict[str, list[Row]]) -> str:
    found = panels.families_of(results)
    if not found:
        return "The last query's attention on the hierarchical task: no checkpoint to show."
    row = next(iter(found.values()))
    return (
        f"Match attention of the last query on one sequence of the hierarchical prior with BOS "
        f"({circuit.setting(row)}), whose last context has occurred {row['kinds'].count('full')} times before; "
        f"families: {', '.join(found)}. "
        "Each key is coloured by its overlap with the query's context; the legends give the share of each kind. "
        "All panels share one vertical scale."
    )


def verdict(results: dict[str, list[Row]]) -> Verdict:
    found = panels.families_of(results)
    checks: dict[str, bool | Check] = {}
    measured = []
    for family, row in found.items():
        masses = circuit.masses_in_words(row)
        fullest = row["mass"]["full"] == max(row["mass"].values())
        checks[f"{family}: most mass on full matches"] = Check(passed=fullest, found=masses)
        checks[f"{family}: at least {circuit.SPREAD} on full and on partial matches"] = Check(
            passed=circuit.spreads(row), found=masses
        )
        checks[f"{family}: full over partial over no match, key by key"] = Check(
            passed=circuit.is_ordered(row), found=circuit.ratios_in_words(row)
        )
        measured.append(f"{family}: {masses}")
    missing = [family for family in PAPER if family not in found] if found else ()
    masses = ", ".join(
        f"{family} {circuit.mass_text(row, 'full')} and {circuit.mass_text(row, 'partial')}"
        for family, row in circuit.trained_of(found).items()
    )
    over = circuit.of_sequences(found.values())
    return circuit.verdict_of(
        checks,
        measured=measured,
        missing=missing,
        headline=f"Attention of the last query on full and on partial matches: {masses} ({over})." if masses else "",
        number=f"full and partial matches: {masses} ({'± sd' if '±' in masses else over})" if masses else "",
    )
