"""Requests and documents: what an analysis is asked, and its results, ready to be printed, written or drawn.

request  ->  questions_of  ->  answers (here one after the other; in parallel in `analyses.running.plan`)  ->
document_of
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from analyses.running import answers
from analyses.running.answers import Answer, Question
from analyses.running.command import listed, one_line
from analyses.running.files import write_file
from analyses.running.options import Options, places
from analyses.running.report import csv_text, heading, json_text, render_table, wrapped
from analyses.running.subject import flat_rows


@dataclass(frozen=True, kw_only=True)
class Request:
    """An analysis, its options, and the checkpoints it is asked about (none for a study)."""

    analysis: str
    options: Options
    checkpoints: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Document:
    """What an analysis found.

    rows        JSON-able, one for each checkpoint, or the rows of a study
    provenance  where they come from, with the options that shaped them
    tidy        the rows of the results' own tables; None for studies, whose rows are their table
    text        what a terminal shows
    failures    verdicts that failed, a line each
    errors      for each checkpoint that was not read: checkpoint, error, and whether its run is only `unfinished`
    """

    analysis: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    provenance: dict[str, Any] = field(default_factory=dict)
    tidy: list[dict[str, Any]] | None = None
    text: str = ""
    failures: tuple[str, ...] = ()
    errors: tuple[dict[str, Any], ...] = ()

    def content(self) -> dict[str, Any]:
        """The JSON object."""
        found = {"analysis": self.analysis, "rows": self.rows, "provenance": self.provenance}
        return {**found, "errors": list(self.errors)} if self.errors else found

    def table(self) -> str:
        """The rows as CSV."""
        return csv_text(self.analysis, flat_rows(self.rows))

    def write(self, out: Path) -> None:
        """NAME.json, NAME.csv and, for checkpoints, NAME_tidy.csv."""
        write_file(out / f"{self.analysis}.json", json_text(self.content()) + "\n")
        write_file(out / f"{self.analysis}.csv", self.table())
        if self.tidy is not None:
            write_file(out / f"{self.analysis}_tidy.csv", csv_text(self.analysis, self.tidy))


def questions_of(request: Request) -> list[Question]:
    """The parts of a request that can be answered on their own, in the order of the document."""
    module = answers.load_module(request.analysis)
    if module.KIND != "study":
        return [
            Question(analysis=request.analysis, options=request.options, checkpoint=path)
            for path in request.checkpoints
        ]
    pieces = module.pieces(request.options) if hasattr(module, "pieces") else [None]
    return [Question(analysis=request.analysis, options=request.options, piece=piece) for piece in pieces]


def document_of(
    request: Request,
    found: Mapping[Question, Answer],
    *,
    asked: Sequence[Question] | None = None,
    with_places: bool = False,
) -> Document:
    """One document of the answers to a request. `with_places` also gives the paths of the files that were read.

    asked   the request's questions as they were answered; new checkpoints may have appeared since
    """
    module = answers.load_module(request.analysis)
    asked = questions_of(request) if asked is None else asked
    given = [found[question] for question in asked]
    good = [answer for answer in given if answer.error is None]
    errors = tuple(
        {"checkpoint": str(question.checkpoint), "error": answer.error, "unfinished": answer.unfinished}
        for question, answer in zip(asked, given, strict=True)
        if answer.error is not None
    )
    if module.KIND == "zoo":
        whole = answers.study_answer(module.survey([row for one in good for row in one.rows], request.options))
    elif module.KIND == "study" and hasattr(module, "pieces"):
        whole = answers.study_answer(module.join(request.options, [one.study() for one in good]))
    elif module.KIND == "study":
        (whole,) = good
    else:
        whole = _compared(good, module)
    hidden = set() if with_places else places(type(request.options))
    options = {name: value for name, value in request.options.described().items() if name not in hidden}
    return Document(
        analysis=request.analysis,
        rows=whole.rows,
        provenance={**whole.provenance, "options": options} if given else {},
        tidy=whole.tidy,
        text=whole.text or _study_text(whole),
        failures=whole.failures,
        errors=errors,
    )


def _compared(good: Sequence[Answer], module: ModuleType) -> Answer:
    """Checkpoint beside checkpoint, or the page of a single one; then what the numbers are."""
    rows = [row for answer in good for row in answer.rows]
    if len(good) == 1:
        text = page(rows[0]["checkpoint"], good[0])
    else:
        shown = [module.compared(row) for row in rows] if hasattr(module, "compared") else rows
        text = compared_text(shown, columns=getattr(module, "COLUMNS", ()))
    terms: dict[str, str] = getattr(module, "LEGEND", {})
    widest = max(map(len, terms), default=0)
    legend = "\n".join(["what the numbers are:", *(listed(term, words, names=widest) for term, words in terms.items())])
    return Answer(
        rows=rows,
        provenance=_origin(good),
        tidy=[row for answer in good for row in answer.tidy or []] if good else None,
        text=f"{text}\n\n{legend}" if terms else text,
    )


def compared_text(rows: Sequence[dict[str, Any]], *, columns: Sequence[str]) -> str:
    """The table of several checkpoints, with their common folder above it and their warnings below it."""
    paths = [str(row["checkpoint"]) for row in rows]
    folders = [os.path.dirname(path) for path in paths]
    alike = all(folders) and len({os.path.isabs(folder) for folder in folders}) == 1
    shared = os.path.commonpath(folders) if alike else ""
    short = [one_line(path[len(shared) + 1 :] if shared else path) for path in paths]
    named = [
        {**{key: value for key, value in row.items() if key != "warning"}, "checkpoint": name}
        for row, name in zip(rows, short, strict=True)
    ]
    table = render_table(flat_rows(named), columns=tuple(dict.fromkeys(("checkpoint", *columns))) if columns else ())
    warned = [f"warning: {name}: {row['warning']}" for row, name in zip(rows, short, strict=True) if row.get("warning")]
    text = "\n".join([table, *map(wrapped, warned)])
    return f"checkpoints below {one_line(shared)}/\n\n{text}" if shared else text


def _origin(good: Sequence[Answer]) -> dict[str, Any]:
    """Provenance of several checkpoints, with the prior that each one was tested on."""
    priors = {path: prior for answer in good for path, prior in answer.provenance.get("priors", {}).items()}
    return {**good[0].provenance, "priors": priors} if good else {}


def page(path: str, answer: Answer) -> str:
    """One checkpoint's result for a terminal."""
    return "\n".join([heading(path), wrapped(answer.about), answer.text])


def _study_text(study: Answer) -> str:
    """A study's table for a terminal, with its notes below."""
    by_checkpoint = study.rows and all(isinstance(row.get("checkpoint"), str) for row in study.rows)
    show = compared_text if by_checkpoint else _plain_table
    text = show(study.rows, columns=study.shown)
    return text + "\n\n" + "\n".join(wrapped(note) for note in study.notes) if study.notes else text


def _plain_table(rows: Sequence[dict[str, Any]], *, columns: Sequence[str]) -> str:
    return render_table(flat_rows(rows), columns=columns)
