"""The claims with their verdicts: a table like that of any analysis, and lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from analyses.claims import ours, paper
from analyses.claims.judge import judge
from analyses.claims.wording import LEGEND as LEGEND
from analyses.running.table import Table
from interp.outside import one_line, read_object
from models.running.command_line import BadInput

NAME = "claims"
CLAIMS = (*paper.CLAIMS, *ours.CLAIMS)
WIDTH = 100


def document(documents: Mapping[str, Table]) -> Table:
    """Every claim judged on these documents, the paper's first."""
    tables = {name: one.rows for name, one in documents.items()}
    rows = [judge(claim, tables) for claim in CLAIMS]
    origin = next((one.provenance for one in documents.values() if one.provenance), {})
    return Table(analysis=NAME, rows=rows, provenance=origin, text="\n".join([*lines(rows), "", LEGEND]))


def read(folder: Path) -> Table:
    """The claims judged on the tables that analyses left in a folder; a table that is not there is a "cannot tell"."""
    names = dict.fromkeys([*(need.table for claim in CLAIMS for need in claim.needs), "conditions"])
    files = {name: folder / f"{name}.json" for name in names if (folder / f"{name}.json").is_file()}
    if not files:
        raise BadInput(f"no table in {folder}; python -m figures reproduce makes them")
    found = {}
    try:
        for name, file in files.items():
            content = read_object(file)
            if content.get("analysis") != name:
                raise ValueError(f"{file} is not a result of the analysis {name}")
            found[name] = Table(analysis=name, rows=content["rows"], provenance=content.get("provenance", {}))
        return document(found)
    except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise BadInput(f"a table in {folder} does not hold what the claims ask for ({one_line(error)})") from error


def lines(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """A claim a line: number, label, verdict, start, and the number that decides."""
    told = []
    for row in rows:
        number = "" if row["number"] is None else str(row["number"])
        name = row["claim"] if row["label"] == "ours" else row["label"]
        head = f"{number:>2} {_short(name, 24):<24} {row['verdict']:<13} {row['start'][:9]:<9} "
        told.append(head + _short(row["found"] or row["says"], WIDTH - len(head)))
    return [line.rstrip() for line in told]


def _short(text: str, width: int) -> str:
    """
    >>> _short("app:nobos_trained_visualizations", 24)
    'app:nobos_trained_visua…'
    """
    return text if len(text) <= width else f"{text[: width - 1].rstrip()}…"
