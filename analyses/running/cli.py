"""Ask questions to checkpoints, and run studies.

    python -m analyses                                    the analyses, a line each
    python -m analyses theory                             a study: needs no checkpoint
    python -m analyses beta_kappa CKPT [CKPT ...]         one analysis on one or more checkpoints
    python -m analyses all CKPT                           every analysis that applies, on one page

CKPT is a directory with config.json and model.safetensors, a folder, which stands for the finished checkpoints below
it, a language model, or file.py:function for a model of your own.

Exit codes: 0 success, 1 a verdict failed, a result has success False or a run is unfinished, 2 bad input (one line on
stderr for each; the other checkpoints still run).
"""

from __future__ import annotations

import contextlib
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from analyses.running import plan, questions, report
from analyses.running.files import check_cache, check_directory, check_table_target, is_result, write_file
from analyses.running.options import CachedOptions, CheckpointOptions, Options, option
from analyses.running.pool import Engine, Job, run_jobs, watched
from analyses.running.questions import FOLDERS, Question
from analyses.running.subject import ZOOS, DoesNotApply, Opened, checkpoints_at, left_out
from analyses.running.table import Table, json_text
from interp.outside import one_line
from models.running.command_line import (
    BAD_INPUT,
    FAILED,
    OK,
    PATH,
    Command,
    Door,
    Entry,
    help_text,
    listing,
    parameters,
    read,
    run,
)
from models.running.terminal import say, say_loading, show

TITLES = {
    "studies": "studies, which need no checkpoint",
    "checkpoint": "questions to a checkpoint (several checkpoints: one row each)",
}
HERE = Engine()
ALL = Entry(name="all", marker="checkpoint", document="Every question that applies to a checkpoint, on one page.")
CKPT = """
CKPT is a directory with config.json and model.safetensors, a folder (the finished checkpoints below it), a language
model, or file.py:function, where the function returns a HookedTransformer or a Circuit. There may be several.
"""
EXAMPLES = """
examples:
  {command}
  {command} --json > {name}.json
  {command} --seed 1 --out results

With --json, stdout holds one JSON object and nothing else:
  {{"analysis": "{name}", "rows": [...], "provenance": {{...}}}}

Exit codes: 0 success, 1 a verdict failed or a result has success False, 2 bad input (one line on stderr for each).
"""


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """Where the result goes."""

    json: bool = option(False, "print one JSON object on stdout, and nothing else there")
    latex: bool = option(False, "print the table for LaTeX (package booktabs)")
    csv: Path | None = option(None, "also write the table to FILE (missing directories are made)", metavar="FILE")
    out: Path | None = option(
        None, "also write NAME.csv and NAME.json into DIR (missing directories are made)", metavar="DIR"
    )
    overwrite: bool = option(False, "let --csv and --out replace files that are not earlier results")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    return run(door, arguments, refusals=(ValueError,))  # an option was wrong


def door() -> Door:
    """The command line."""
    known = entries()
    return Door(
        "python -m analyses",
        __doc__ or "",
        entries={**known, ALL.name: ALL},
        make=make_command,
        page=lambda: page(known),
    )


def entries() -> dict[str, Entry]:
    """Every analysis as a listing shows it, read without importing it."""

    def docstring(file: Path) -> str:
        return file.read_text(encoding="utf-8").partition('"""')[2].partition('"""')[0]

    found = questions.analyses()
    return {name: Entry(name=name, marker=file.parent.name, document=docstring(file)) for name, file in found.items()}


def page(known: Mapping[str, Entry]) -> str:
    """One line per analysis, grouped by what it needs."""
    parts = []
    for folder in FOLDERS:
        mine = [(name, entry.summary) for name, entry in known.items() if entry.marker == folder]
        parts.append(f"{TITLES[folder]}:\n{listing(mine)}")
    more = "`python -m analyses NAME --help` says more; `all CKPT` runs every question that applies."
    return "\n\n".join([*parts, report.wrapped(more)])


def make_command(entry: Entry) -> click.Command:
    """The command of an analysis: its checkpoints, where the result goes, and its options."""
    asks = entry.marker == "checkpoint"
    several = "A B" if entry is not ALL and asks and compares(entry.name) else "CKPT"
    command = f"python -m analyses {entry.name}{f' {several}' if asks else ''}"
    named = [click.Argument(["checkpoints"], nargs=-1, required=True, type=PATH, metavar="CKPT ...")] if asks else []
    return Command(
        entry.name,
        params=[*named, *parameters(Delivery), *parameters(Engine), *parameters(kind_of_options(entry.name))],
        help=help_text(f"{entry.document}\n{CKPT if asks else ''}"),
        epilog=help_text(EXAMPLES.format(name=entry.name, command=command)),
        callback=lambda **given: perform(entry, given),
    )


def kind_of_options(name: str) -> type[Options]:
    """The options of an analysis; `all` takes those that every question to a checkpoint takes."""
    return CheckpointOptions if name == ALL.name else questions.options_of(name)


def perform(entry: Entry, given: Mapping[str, Any]) -> int:
    """Check where the result goes, find it, and deliver it."""
    options, to = read(kind_of_options(entry.name), given), read(Delivery, given)
    if to.csv is not None:
        check_table_target(to.csv, overwrite=to.overwrite)
    if to.out is not None:
        check_directory(to.out, ours=is_result, overwrite=to.overwrite)
    if isinstance(options, CachedOptions) and not options.no_cache:
        check_cache(options.cache, overwrite=to.overwrite)
    checkpoints = checkpoints_at([*map(str, given["checkpoints"])]) if "checkpoints" in given else []
    engine = read(Engine, given)
    with contextlib.redirect_stdout(sys.stderr):  # what libraries print; stdout is for the result
        if entry is ALL:
            found = run_all(options, checkpoints)
        else:
            found = run_one(entry.name, options, checkpoints, engine=engine)
    return deliver(found, to)


def run_one(name: str, options: Options, checkpoints: Sequence[str], *, engine: Engine = HERE) -> Table:
    """One analysis. A checkpoint that cannot be read is reported at once, and the others still run."""
    keeping = isinstance(options, CachedOptions) and not options.no_cache
    cache = str(options.cache) if isinstance(options, CachedOptions) and keeping else ""
    left = unread_runs(options)
    asked = questions.questions_of(name, options, checkpoints)
    keys = questions.keys_of(asked) if keeping else {}
    say_loading(f"torch and TransformerLens for {asked[0].words if asked else name}")
    plan.forget()
    jobs = [Job(task=({question: keys.get(question)}, cache), words=question.words) for question in asked]
    found: dict[Question, Table] = {}
    for (mine, _), tables in run_jobs(
        plan.perform, jobs, workers=engine.jobs, what=name, cluster=engine.cluster, logged=False
    ):
        found |= dict(zip(mine, tables, strict=True))
        say_unread(tables[0].errors)
    whole = questions.joined(name, options, [found[question] for question in asked])
    return replace(whole, errors=[*whole.errors, *left])


def unread_runs(options: Options) -> list[dict[str, Any]]:
    """The unfinished runs below the directories that a study reads, which it leaves out; each is named."""
    if getattr(options, "unfinished", True):
        return []
    found = left_out([getattr(options, name) for name in ZOOS if hasattr(options, name)])
    errors = [{"checkpoint": path, "error": why, "unfinished": True} for path, why in found.items()]
    say_unread(errors)
    return errors


def say_unread(errors: Sequence[Mapping[str, Any]]) -> None:
    """Say why checkpoints are not read: a run that is not finished has failed, anything else is bad input."""
    for one in errors:
        say(f"{'failed' if one['unfinished'] else 'error'}: {one_line(one['error'])}")


def run_all(options: Options, checkpoints: Sequence[str]) -> Table:
    """Every analysis that applies to each checkpoint: a page for each, and a row for each analysis."""
    say_loading("torch and TransformerLens for every question to a checkpoint")
    pages = [page_of_all(path, options) for path in checkpoints]
    return Table(
        analysis=ALL.name,
        rows=[row for page in pages for row in page.rows],
        provenance={**questions.joined_origin(pages), "options": options.shaping()},
        text="\n\n\n".join(page.text for page in pages if page.text),
        errors=[error for page in pages for error in page.errors],
    )


def page_of_all(path: str, options: Options) -> Table:
    """Every analysis that applies to one checkpoint; they share what they capture."""
    asked = [entry for entry in entries().values() if entry.marker == "checkpoint" and not compares(entry.name)]
    opened: Opened = {}
    found: dict[str, Table] = {}
    parts, refused = [], []
    for entry in watched(asked, path, words=lambda one: one.name):
        mine = questions.options_of(entry.name)(**vars(options))
        try:
            table = questions.ask_checkpoint(Question(analysis=entry.name, options=mine, checkpoint=path), opened)
            parts.append(f"{entry.name}: {entry.summary}\n{textwrap.indent(table.text, '  ')}")
        except DoesNotApply as error:
            refused.append(f"{entry.name}: {one_line(error)}")
            continue
        except (ValueError, OSError) as error:
            table = questions.unread(path, entry.name, error)
            if not opened:
                say_unread(table.errors)
                return table
            why = table.errors[0]["error"]
            parts.append(f"{entry.name}\n  did not run: {why}")
            say(f"error: {entry.name}: {why}")
        found[entry.name] = table
    (subject,) = opened.values()
    if refused:
        parts.append("not applicable\n" + textwrap.indent("\n".join(refused), "  "))
    return Table(
        rows=[{"analysis": name, **row} for name, table in found.items() for row in table.rows],
        provenance=questions.joined_origin([table for table in found.values() if not table.errors]),
        text="\n\n".join([f"{report.heading(path)}\n{report.wrapped(subject.about)}", *parts]),
        errors=[error for table in found.values() for error in table.errors],
    )


def compares(name: str) -> bool:
    """Whether an analysis is about several checkpoints together."""
    return hasattr(questions.load_module(name), "survey")


def deliver(found: Table, to: Delivery) -> int:
    """Print the result and write the files; returns the exit code."""
    unread = [one for one in found.errors if not one["unfinished"]]
    if found.rows or (to.json and not unread):
        show(json_text(found.content()) if to.json else latex(found) if to.latex else report.fitted(screen(found)))
        if to.csv is not None:
            write_file(to.csv, found.csv())
            say(f"wrote {to.csv}")
        if to.out is not None:
            found.write(to.out)
            say(f"wrote {to.out / found.analysis}.json and .csv")
    failures = [*found.failures, *failed_rows(found.rows)]
    for failure in failures:
        say(f"failed: {one_line(failure)}")
    return BAD_INPUT if unread else FAILED if failures or found.errors else OK


def latex(found: Table) -> str:
    """The table that compares checkpoints, or of one checkpoint its result's own, for LaTeX."""
    if len(found.rows) == 1 and found.tidy:
        return report.latex_table([{**row, "checkpoint": ""} for row in found.tidy], columns=())
    rows, columns = compared(found)
    return report.latex_table(rows, columns=columns)


def screen(found: Table) -> str:
    """What a terminal shows: the page of one result, or a table; and what the numbers are."""
    text = found.text
    if found.about:
        text = "\n".join([report.heading(found.rows[0]["checkpoint"]), report.wrapped(found.about), found.text])
    elif not text:
        rows, columns = compared(found)
        text = report.rows_text(rows, columns=columns)
        text = "\n\n".join([text, "\n".join(map(report.wrapped, found.notes))] if found.notes else [text])
    terms: dict[str, str] = getattr(_module(found), "LEGEND", {})
    return "\n\n".join([text, f"what the numbers are:\n{listing(terms.items())}"] if terms else [text])


def compared(found: Table) -> tuple[Sequence[dict[str, Any]], Sequence[str]]:
    """The rows and columns of the table that compares checkpoints."""
    module = _module(found)
    rows = [module.compared(row) for row in found.rows] if hasattr(module, "compared") else found.rows
    return rows, found.shown or getattr(module, "COLUMNS", ())


def _module(found: Table) -> Any:
    return None if found.analysis == ALL.name else questions.load_module(found.analysis)


def failed_rows(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The checkpoints whose result says that it cannot be trusted, each with its reason.

    For the command line only: in a survey of many checkpoints a failed seed is a result, not an error.
    """
    failed = [row for row in rows if row.get("success") is False]
    parts = [(row["checkpoint"], row.get("analysis"), row.get("message") or "no reason given") for row in failed]
    return [": ".join(part for part in each if part) for each in parts]
