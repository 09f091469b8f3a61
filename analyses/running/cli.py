"""The command line of the analyses: lists them, runs one or all, prints and writes the results.

    python -m analyses                                    the analyses, a line each
    python -m analyses theory                             a study: needs no checkpoint
    python -m analyses beta_kappa CKPT [CKPT ...]         one analysis on one or more checkpoints
    python -m analyses all CKPT                           every analysis that applies, on one page

CKPT is a directory with config.json and model.safetensors, a folder, which stands for the finished checkpoints below
it, or file.py:function for a model of your own.

Exit codes: 0 success, 1 a verdict failed, a result has success False or a run is unfinished, 2 bad input (one line on
stderr for each; the other checkpoints still run).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from analyses.running import questions, report
from analyses.running.cache import Cache
from analyses.running.command import (
    BAD_INPUT,
    FAILED,
    MAKES_FOLDERS,
    OK,
    BadInput,
    Entry,
    Parser,
    failing_in_one_line,
    listed,
    one_line,
    path,
    path_text,
    say,
    say_loading,
    show,
)
from analyses.running.files import (
    check_cache,
    check_directory,
    check_document_target,
    check_table_target,
    is_result,
    write_file,
)
from analyses.running.options import CachedOptions, CheckpointOptions, Options, add_arguments, read_options
from analyses.running.questions import FOLDERS, Question
from analyses.running.subject import ZOOS, DoesNotApply, Opened, checkpoints_at, left_out, open_subject
from analyses.running.table import Table, json_text
from analyses.running.watching import watched
from models.running.help_text import HelpFormatter, reflowed
from models.running.suggest import unknown

TITLES = {
    "studies": "studies, which need no checkpoint",
    "checkpoint": "questions to a checkpoint (several checkpoints: one row each)",
}
ALL = Entry(name="all", marker="checkpoint", document="Every question that applies to a checkpoint, on one page.")
EXAMPLES = """\
examples:
  {command}
  {command} --json > {name}.json
  {command} --seed 1 --out results

With --json, stdout holds one JSON object and nothing else:
  {{"analysis": "{name}", "rows": [...], "provenance": {{...}}}}

Exit codes: 0 success, 1 a verdict failed or a result has success False, 2 bad input (one line on stderr for each).
"""


def entries() -> dict[str, Entry]:
    """Every analysis as a listing shows it, read without importing it."""
    return {
        name: Entry(name=name, marker=file.parent.name, document=docstring(file))
        for name, file in questions.analyses().items()
    }


def docstring(file: Path) -> str:
    """What a module says of itself."""
    return file.read_text(encoding="utf-8").partition('"""')[2].partition('"""')[0]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    code = BAD_INPUT
    with failing_in_one_line():
        code = run(list(sys.argv[1:] if arguments is None else arguments))
    return code


def run(argv: list[str]) -> int:
    """List, or find the analysis, read its options, run it and deliver what it found."""
    if not argv:
        print(listing())
        return OK
    name, rest = argv[0], argv[1:]
    if name in ("-h", "--help"):
        print(f"{reflowed(__doc__ or '')}\n\n{listing()}")
        return OK
    known = {**entries(), ALL.name: ALL}
    if name not in known:
        raise BadInput(unknown("analysis", name, known))
    parser = make_parser(known[name])
    given = parser.parse_args(rest)
    options = read_options(kind_of_options(name), given)
    check_targets(name, given)
    if isinstance(options, CachedOptions) and not options.no_cache:
        check_cache(options.cache, overwrite=given.overwrite)
    with bad_options():
        named = () if known[name].marker == "studies" else (*given.checkpoints, *given.model)
        checkpoints = list(dict.fromkeys(one for path in named for one in checkpoints_at(path)))
    if known[name].marker != "studies" and not checkpoints:
        parser.error("the following arguments are required: CKPT")
    # Small matrices: more threads only wait for each other. Torch reads this when it is imported, later.
    os.environ["OMP_NUM_THREADS"] = "1"
    # What libraries print goes to stderr: stdout is for the result.
    with contextlib.redirect_stdout(sys.stderr):
        found = run_all(options, checkpoints) if name == ALL.name else run_one(name, options, checkpoints)
    return deliver(found, given)


def listing() -> str:
    """One line per analysis, grouped by what it needs."""
    known = entries().values()
    width = max(len(entry.name) for entry in known)
    lines = []
    for folder in FOLDERS:
        lines.append(f"{TITLES[folder]}:")
        lines += [listed(entry.name, entry.summary, names=width) for entry in known if entry.marker == folder]
        lines.append("")
    more = "`python -m analyses NAME --help` says more; `all CKPT` runs every question that applies."
    return "\n".join([*lines, report.wrapped(more)])


def check_targets(name: str, given: argparse.Namespace) -> None:
    """Refuse, before any work, to write where something else lies."""
    tables = [given.csv] if given.csv is not None else []
    if given.out is not None:
        check_directory(given.out, ours=is_result, overwrite=given.overwrite)
        check_document_target(given.out / f"{name}.json", key="analysis", name=name, overwrite=given.overwrite)
        tables += [given.out / f"{name}.csv", given.out / f"{name}_tidy.csv"]
    for table in tables:
        check_table_target(table, overwrite=given.overwrite)


def kind_of_options(name: str) -> type[Options]:
    """The options of an analysis; `all` takes those that every question to a checkpoint takes."""
    return CheckpointOptions if name == ALL.name else questions.options_of(name)


def make_parser(entry: Entry) -> Parser:
    """The arguments of one analysis: its checkpoints, where the result goes, and its options."""
    command = f"python -m analyses {entry.name}"
    needs = "" if entry.marker == "studies" else " CKPT"
    parser = Parser(
        prog=command,
        description=entry.document,
        epilog=EXAMPLES.format(name=entry.name, command=command + needs),
        formatter_class=HelpFormatter,
    )
    if entry.marker != "studies":
        parser.add_argument(
            "checkpoints",
            metavar="CKPT",
            nargs="*",
            type=path_text,
            help="a directory with config.json and model.safetensors, a folder (the finished checkpoints below it), or "
            "file.py:function",
        )
        parser.add_argument(
            "--model",
            metavar="FILE.py:FUNCTION",
            action="append",
            default=[],
            type=path_text,
            help="a function that returns a HookedTransformer or a Circuit; the same as giving it as CKPT",
        )
    parser.add_argument("--json", action="store_true", help="print one JSON object on stdout, and nothing else there")
    parser.add_argument("--csv", metavar="FILE", type=path, help=f"also write the table to FILE ({MAKES_FOLDERS})")
    parser.add_argument(
        "--out",
        metavar="DIR",
        type=path,
        help=f"also write {entry.name}.csv and {entry.name}.json into DIR ({MAKES_FOLDERS})",
    )
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help="let --csv and --out replace files that are not earlier results",
    )
    add_arguments(parser, kind_of_options(entry.name))
    return parser


def run_one(name: str, options: Options, checkpoints: Sequence[str]) -> Table:
    """One analysis. A checkpoint that cannot be read is reported at once, and the others still run."""
    keeping = isinstance(options, CachedOptions) and not options.no_cache
    cache = Cache(options.cache if isinstance(options, CachedOptions) and keeping else None)
    left = unread_runs(options)
    with bad_options():
        asked = questions.questions_of(name, options, checkpoints)
        keys = questions.keys_of(asked) if keeping else {}
    say_loading(f"torch and TransformerLens for {asked[0].words if asked else name}")
    tables = []
    for question in watched(asked, name, words=lambda question: question.words):
        if keeping:
            table = questions.kept_answer(question, keys[question], cache=cache)
        else:
            table = questions.answer(question, cache=cache)
        tables.append(table)
        for one in table.errors:
            say_unread(one)
    with bad_options():
        found = questions.joined(name, options, tables)
    return replace(found, errors=[*found.errors, *left])


def unread_runs(options: Options) -> list[dict[str, Any]]:
    """The unfinished runs below the directories that a study reads, which it leaves out; each is named."""
    if getattr(options, "unfinished", True):
        return []
    found = left_out([getattr(options, name) for name in ZOOS if hasattr(options, name)])
    errors = [{"checkpoint": path, "error": why, "unfinished": True} for path, why in found.items()]
    for one in errors:
        say_unread(one)
    return errors


def say_unread(error: dict[str, Any]) -> None:
    """Say why a checkpoint is not read: a run that is not finished has failed, anything else is bad input."""
    say(f"{'failed' if error['unfinished'] else 'error'}: {one_line(error['error'])}")


def run_all(options: Options, checkpoints: Sequence[str]) -> Table:
    """Every analysis that applies to each checkpoint: a page for each, and a row for each analysis."""
    say_loading("torch and TransformerLens for every question to a checkpoint")
    assert isinstance(options, CheckpointOptions)
    pages = [_page_of_all(path, options) for path in checkpoints]
    return Table(
        analysis=ALL.name,
        rows=[row for page in pages for row in page.rows],
        provenance={**questions.joined_origin(pages), "options": options.shaping()},
        text="\n\n\n".join(page.text for page in pages if page.text),
        errors=[error for page in pages for error in page.errors],
    )


def _page_of_all(path: str, options: CheckpointOptions) -> Table:
    """Every analysis that applies to one checkpoint; they share what they capture."""
    opened: Opened = {}
    try:
        subject = open_subject(path, options, opened)
    except (ValueError, OSError) as error:
        table = questions.unread(path, ALL.name, error)
        say_unread(table.errors[0])
        return table
    good: dict[str, Table] = {}
    errors: list[dict[str, Any]] = []
    parts, refused = [], []
    for entry in watched(asked_by_all(), subject.name, words=lambda one: one.name):
        mine = questions.options_of(entry.name)(**vars(options))
        try:
            table = questions.ask_checkpoint(Question(analysis=entry.name, options=mine, checkpoint=path), opened)
        except DoesNotApply as error:
            refused.append(f"{entry.name}: {one_line(error)}")
        except (ValueError, OSError) as error:
            errors += questions.unread(path, entry.name, error).errors
            why = errors[-1]["error"]
            parts.append(f"{entry.name}\n  did not run: {why}")
            say(f"error: {entry.name}: {why}")
        else:
            good[entry.name] = table
            parts.append(f"{entry.name}: {entry.summary}\n{report.indented(table.text)}")
    if refused:
        parts.append("not applicable\n" + report.indented("\n".join(refused)))
    return Table(
        rows=[{"analysis": name, **row} for name, table in good.items() for row in table.rows],
        provenance=questions.joined_origin(list(good.values())),
        text="\n\n".join([f"{report.heading(path)}\n{report.wrapped(subject.about)}", *parts]),
        errors=errors,
    )


def asked_by_all() -> list[Entry]:
    """The questions to one checkpoint, without those that only compare several."""
    mine = [entry for entry in entries().values() if entry.marker == "checkpoint"]
    return [entry for entry in mine if not hasattr(questions.load_module(entry.name), "survey")]


@contextlib.contextmanager
def bad_options() -> Iterator[None]:
    """A `ValueError` before and after the work means that an option was wrong."""
    try:
        yield
    except ValueError as error:
        raise BadInput(one_line(error)) from error


def deliver(found: Table, given: argparse.Namespace) -> int:
    """Print the result and write the files; returns the exit code."""
    unread = [one for one in found.errors if not one["unfinished"]]
    if found.rows or (given.json and not unread):
        show(json_text(found.content()) if given.json else report.fitted(screen(found)))
        if given.csv:
            write_file(given.csv, found.csv())
            say(f"wrote {given.csv}")
        if given.out:
            found.write(given.out)
            say(f"wrote {given.out / found.analysis}.json and .csv")
    failures = [*found.failures, *failed_rows(found.rows)]
    for failure in failures:
        say(f"failed: {one_line(failure)}")
    if unread:
        return BAD_INPUT
    return FAILED if failures or found.errors else OK


def screen(found: Table) -> str:
    """What a terminal shows: the page of one result, or a table; and what the numbers are."""
    module: Any = None if found.analysis == ALL.name else questions.load_module(found.analysis)
    text = found.text
    if found.about:
        text = "\n".join([report.heading(found.rows[0]["checkpoint"]), report.wrapped(found.about), found.text])
    elif not text:
        rows = [module.compared(row) for row in found.rows] if hasattr(module, "compared") else found.rows
        text = report.rows_text(rows, columns=found.shown or getattr(module, "COLUMNS", ()))
        text = "\n\n".join([text, "\n".join(map(report.wrapped, found.notes))] if found.notes else [text])
    terms: dict[str, str] = getattr(module, "LEGEND", {})
    widest = max(map(len, terms), default=0)
    legend = ["what the numbers are:", *(listed(term, words, names=widest) for term, words in terms.items())]
    return "\n\n".join([text, "\n".join(legend)] if terms else [text])


def failed_rows(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The checkpoints whose result says that it cannot be trusted, each with its reason.

    For the command line only: in a survey of many checkpoints a failed seed is a result, not an error.
    """
    failed = [row for row in rows if row.get("success") is False]
    parts = [(row["checkpoint"], row.get("analysis"), row.get("message") or "no reason given") for row in failed]
    return [": ".join(part for part in each if part) for each in parts]
