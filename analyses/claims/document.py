"""The claims with their verdicts: a table like that of any analysis, and lines for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from analyses.claims import ours, paper
from analyses.claims.judge import judge
from analyses.claims.readers import word_of
from analyses.claims.records import Group
from analyses.claims.wording import LEGEND as LEGEND
from analyses.claims.wording import runs_in_words
from analyses.running.subject import place_of_start
from analyses.running.table import Table
from interp.outside import one_line, read_object
from models.running.command_line import BadInput

NAME = "claims"
ZOO = "copy_heads"  # the analysis of every model of the suite
CLAIMS = (*paper.CLAIMS, *ours.CLAIMS)
WIDTH = 100


def document(documents: Mapping[str, Table]) -> Table:
    """Every claim judged on these documents, the paper's first."""
    tables = {name: one.rows for name, one in documents.items()}
    rows = [judge(claim, tables) for claim in CLAIMS]
    origin = next((one.provenance for one in documents.values() if one.provenance), {})
    told = [textwrap.fill(line, WIDTH) for line in zoo_lines(documents[ZOO].rows if ZOO in documents else ())]
    return Table(analysis=NAME, rows=rows, provenance=origin, text="\n".join([*lines(rows), "", LEGEND, *told]))


def zoo_lines(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Which models the verdicts rest on: of each family and task the starts, with their lengths and numbers of runs."""
    found: dict[tuple[str, str], dict[str, list[int]]] = {}
    for row in rows:
        task = f"{word_of(row, 'prior')} task, {'BOS' if word_of(row, 'bos') else 'no BOS'}"
        starts = found.setdefault((str(word_of(row, "family")), task), {})
        starts.setdefault(word_of(row, "start"), []).append(word_of(row, "length"))
    told = []
    for (family, task), starts in found.items():
        known = []
        for start in sorted(starts, key=place_of_start):
            lengths = tuple(sorted(set(starts[start])))
            where = runs_in_words([Group(family=family, start=start, word="holds", lengths=lengths)])
            known.append(f"{where} ({len(starts[start])} run{'s' * (len(starts[start]) > 1)})")
        told.append(f"Judged: {family}, {task}: {'; '.join(known)}.")
    return told


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
