"""docs/language_model.md says what the shipped result of the study says, number by number."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from analyses import shipped
from analyses.studies.language.case import Row
from analyses.studies.language.page import by_model, cell, compared, pick

ROOT = Path(__file__).parents[3]
Models = dict[str, list[Row]]
EDITS = {
    "even": "even attention",
    "law": "the additive law of each head",
    "grouped": "each head's own mass on matches, spread evenly over them",
    "hard": "hard matching",
}


@pytest.fixture(scope="module")
def models() -> Models:
    document = shipped.shipped_table("language_model")
    assert document is not None
    return by_model([dict(row) for row in document.rows])


def line(*cells: object) -> str:
    return f"| {' | '.join('-' if one is None else str(one) for one in cells)} |"


def on_chains(rows: list[Row]) -> list[str]:
    """The heads that match on chains."""
    found = pick(rows, kind="head", text="chains", role="match")
    return [f"{row['layer']}.{row['head']}" for row in found]


def side_by_side(models: Models) -> Iterator[str]:
    """The comparison."""
    for row in compared(models):
        yield line(*row.values())


def laws(models: Models) -> Iterator[str]:
    """beta on each text, and what the law explains, of the heads that match on chains."""
    rows = models["smollm2"]
    for name in on_chains(rows):
        found = pick(rows, kind="law", name=name, last=True)
        explained = ", ".join(f"{row['nats_explained']:.2f}" for row in found)
        yield line(name, *(cell(row, "beta", "1") for row in found), explained)


def positions(models: Models) -> Iterator[str]:
    """kappa in the first and the last band."""
    rows = models["smollm2"]
    for name in on_chains(rows):
        bands = pick(rows, kind="band", name=name)
        yield line(name, *(cell(row, "kappa", "1") for row in (bands[0], bands[-1])))


def edits(models: Models) -> Iterator[str]:
    """What each edit recovers on repeated tokens, and its control."""
    rows = models["smollm2"]
    for edit, words in EDITS.items():
        for row in pick(rows, kind="edit", text="repeats", edit=edit):
            control = row["control_recovered"]
            yield line(words, cell(row, "recovered", "2"), None if control is None else f"{control:.2f}")


def predictions(models: Models) -> Iterator[str]:
    """KL to the truth."""
    for row in pick(models["smollm2"], kind="kl"):
        yield line(row["predictor"], cell(row, "late_kl", "2"))


TABLES: tuple[Callable[[Models], Iterator[str]], ...] = (side_by_side, laws, positions, edits, predictions)


@pytest.mark.parametrize("told", TABLES, ids=lambda told: told.__name__)
def test_the_page_has_the_numbers_of_the_shipped_result(
    told: Callable[[Models], Iterator[str]], models: Models
) -> None:
    page = re.sub("[ ]+", " ", (ROOT / "docs" / "language_model.md").read_text(encoding="utf-8"))
    lines = list(told(models))
    assert lines
    assert [one for one in lines if one not in page] == []
