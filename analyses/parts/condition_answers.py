"""The answers of the study of conditions: in how many runs of each cell a need of the claims is met, and sentences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from analyses.claims.judge import state_of
from analyses.claims.ours import CLAIMS as OURS
from analyses.claims.paper import CLAIMS as PAPERS
from analyses.claims.quantities import QUANTITIES
from models.training.protocols import PROTOCOLS

Row = dict[str, Any]

PAPER = "paper"  # the protocol
# What the claims are judged by and the study measures too.
ASKED = {name: quantity for name, quantity in QUANTITIES.items() if "conditions" in quantity.read}


def is_met(name: str, row: Row, run: Mapping[str, Any]) -> bool | None:
    """Whether a run of a cell meets a need; None where no claim asks it of its prior, or its number is not known."""
    settings = asked_settings(name)
    if settings and (row["prior"], row["bos"]) not in settings:
        return None
    found = ASKED[name].read["conditions"]({"bos": row["bos"], "freeze": row["freeze"], **run}, {})
    return None if found is None else state_of(found, ASKED[name]) == "met"


def asked_settings(name: str) -> set[tuple[str, bool]]:
    """The priors, with or without BOS, of the needs that name one; empty where none does: then all are asked."""
    needs = [need.rows for claim in (*PAPERS, *OURS) for need in claim.needs if need.quantity == name]
    return {(rows["prior"], rows["bos"]) for rows in needs if "prior" in rows and "bos" in rows}


def met_counts(row: Row) -> dict[str, list[int]]:
    """Of one cell: for each quantity, in how many runs it is met, and of how many."""
    told = {name: [met for run in row["runs"] if (met := is_met(name, row, run)) is not None] for name in ASKED}
    return {name: [sum(met), len(met)] for name, met in told.items()}


def answers(rows: list[Row]) -> list[str]:
    """Where each need is met, then what the paper's protocol changes."""
    found = []
    main = [row for row in rows if row["protocol"] != PAPER]
    for name, quantity in ASKED.items():
        parts = []
        for cell, readout in dict.fromkeys((row["cell"], row["readout"]) for row in main):
            counts = [row["met"][name] for row in pick(main, cell=cell, readout=readout)]
            if asked := sum(count[1] for count in counts):
                parts.append(f"{cell} ({readout}) {sum(count[0] for count in counts)}/{asked}")
        if parts:
            found.append(f"{quantity.words} [{quantity.required}]: {', '.join(parts)}")
    return [*found, *protocol_answer(rows)]


def pick(rows: Iterable[Row], **words: Any) -> list[Row]:
    """The rows with these values."""
    return [row for row in rows if all(row[name] == value for name, value in words.items())]


def protocol_answer(rows: list[Row]) -> list[str]:
    """What the paper's protocol changes: each of its runs beside the annealed run of the same cell and seed."""
    pairs = [pair for row in pick(rows, protocol=PAPER) for pair in _twins(row, rows)]
    if not pairs:
        return []
    asked, moved = 0, []
    for row, paper, annealed in pairs:
        both = {name: (is_met(name, row, annealed), is_met(name, row, paper)) for name in ASKED}
        told = {name: met for name, met in both.items() if None not in met}
        asked += len(told)
        moved += [
            f"{ASKED[name].words} ({row['cell']}, {row['readout']}, T = {row['length']}: "
            + ("gained)" if after else "lost)")
            for name, (before, after) in told.items()
            if before != after
        ]
    differing = f"; different: {'; '.join(moved)}" if moved else ""
    return [
        f"The paper's protocol (a constant rate, sampled tokens) beside the annealed one, {len(pairs)} pairs of runs: "
        f"{asked - len(moved)} of {asked} answers are the same{differing}."
    ]


def _twins(row: Row, rows: list[Row]) -> list[tuple[Row, Row, Row]]:
    """The row, each of its runs with all steps of the protocol, and the annealed run that differs in that alone."""
    same = {name: row[name] for name in ("cell", "readout", "prior", "bos", "length", "init")}
    annealed = {run["seed"]: run for other in pick(rows, **same, protocol="annealed") for run in other["runs"]}
    whole = [run for run in row["runs"] if (run["steps"] or 0) >= PROTOCOLS[PAPER].steps]
    return [(row, run, annealed[run["seed"]]) for run in whole if run["seed"] in annealed]
