"""The results that figures draw: made from the checkpoints below --checkpoints, or read from --results."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from analyses.running import plan
from analyses.running.ask import Ask
from analyses.running.subject import find_subjects, left_out
from analyses.running.table import Table
from figures.parts.rows import analytic, beside, only_beside, too_large, with_main
from figures.running.order import Order
from interp.outside import one_line, read_json
from models.running.command_line import FAILED, BadInput
from models.running.terminal import say

Documents = Mapping[str, Table | BadInput]  # a result that is not there is what is wrong


def documents_of(names: Iterable[str], order: Order) -> Documents:
    """The results of these analyses. The checkpoints that one of them could not read are named."""
    names = dict.fromkeys(names)
    if order.results is not None:
        return {name: read_document(order.results / f"{name}.json", name) for name in names}
    plan.check_zoo(names, order.zoo, unfinished=order.unfinished)
    return made(plan.asks_for(names), order).tables


def made(asks: Mapping[str, Ask], order: Order) -> plan.Run:
    """The results of these analyses, made where the cache has none."""
    with contextlib.redirect_stdout(sys.stderr):
        run = plan.run_plan(
            asks, zoo=order.zoo, cache=order.kept, jobs=order.jobs, cluster=order.cluster, unfinished=order.unfinished
        )
    for name, document in run.tables.items():
        for error in document.errors:
            say(f"error: {name}: {one_line(error['error'])}")
    return run


def read_document(file: Path, name: str) -> Table | BadInput:
    """A result that an analysis left in a folder, or what is wrong with it."""
    if not file.is_file():
        return BadInput(f"{file}: no such file; python -m analyses {name} ... --out {file.parent} makes it")
    try:
        content = read_json(file)
    except ValueError as error:
        return BadInput(one_line(error))
    if not isinstance(content, dict) or content.get("analysis") != name:
        return BadInput(f"{file} is not a result of the analysis {name}")
    rows, origin = content.get("rows"), content.get("provenance")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows) or not isinstance(origin, dict):
        return BadInput(f"{file}: a result has rows, a list of objects, and provenance, an object")
    if not all(isinstance(row.get("subject"), (dict, type(None))) for row in rows):
        return BadInput(f"{file}: the subject of a row must be an object")
    if large := too_large(rows):
        return BadInput(f"{file}: {large}")
    return Table(analysis=name, rows=rows, provenance=origin)


def say_left_out(order: Order) -> bool:
    """Name the unfinished runs below --checkpoints, and end if there are no others; returns whether there are any."""
    lines = {} if order.unfinished or order.results is not None else left_out([order.zoo])
    for line in lines.values():
        say(f"failed: {one_line(line)}")
    if lines and not find_subjects(order.zoo):
        raise SystemExit(FAILED)
    return bool(lines)


def check_protocol(figure: str, documents: Documents, protocol: str) -> None:
    """Refuse a protocol of which an analysis of the figure has no run; analyses without trained models do not count."""
    for name, document in documents.items():
        rows = [] if isinstance(document, BadInput) else document.rows
        trained = [row["subject"] for row in rows if row.get("subject") is not None and not analytic(row["subject"])]
        if trained and not any(beside(subject) == protocol for subject in trained):
            known = ", ".join(sorted({str(subject.get("protocol")) for subject in trained}))
            raise BadInput(f"{figure} --protocol {protocol}: the analysis {name} has no run of it, only of: {known}")


def of_protocol(documents: Documents, protocol: str | None) -> Documents:
    """The results with the runs of a protocol in the place of the main ones; see `figures.parts.rows.with_main`."""
    read = {name: document for name, document in documents.items() if not isinstance(document, BadInput)}
    if protocol is None:
        protocol = only_beside(row for document in read.values() for row in document.rows)
        if protocol is None:
            return documents
        say(f"note: all trained models are of the {protocol} protocol; the figures show those")
    changed = {name: replace(document, rows=with_main(document.rows, protocol)) for name, document in read.items()}
    return {**documents, **changed}
