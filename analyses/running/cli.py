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

# A module of `checkpoint` or `studies` is an analysis if it says `KIND = "checkpoint"`, "zoo" or "study"; its
# docstring's first line is its line in the listing. `analyses.running.answers` says what else it defines. Nothing is
# registered: the sources are read without importing them, so that listings and --help answer at once.

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from analyses.running import answers
from analyses.running.answers import Answer, Opened, Question
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
    read_entries,
    say,
    say_loading,
    show,
)
from analyses.running.documents import Document, Request, document_of, questions_of
from analyses.running.files import (
    check_cache,
    check_directory,
    check_document_target,
    check_table_target,
    is_result,
    write_file,
)
from analyses.running.keys import Weights, key_of
from analyses.running.options import CachedOptions, CheckpointOptions, Options, add_arguments, read_options
from analyses.running.report import fitted, heading, indented, json_text, wrapped
from analyses.running.subject import Unfinished
from analyses.running.watching import watched
from analyses.running.zoo import ZOOS, checkpoints_at, left_out
from models.running.help_text import HelpFormatter, reflowed
from models.running.suggest import unknown

FOLDER = Path(__file__).parents[1]
TITLES = {
    "study": "studies, which need no checkpoint",
    "checkpoint": "questions to a checkpoint (several checkpoints: one row each)",
    "zoo": "questions to several checkpoints together",
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


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """Where a document goes: stdout, as text or as JSON, and files."""

    json: bool
    csv: Path | None
    out: Path | None
    overwrite: bool

    def check(self, name: str) -> None:
        """Refuse, before any work, to write where something else lies."""
        tables = [self.csv] if self.csv is not None else []
        if self.out is not None:
            check_directory(self.out, ours=is_result, overwrite=self.overwrite)
            check_document_target(self.out / f"{name}.json", key="analysis", name=name, overwrite=self.overwrite)
            tables += [self.out / f"{name}.csv", self.out / f"{name}_tidy.csv"]
        for table in tables:
            check_table_target(table, overwrite=self.overwrite)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    code = BAD_INPUT
    with failing_in_one_line():
        code = run(list(sys.argv[1:] if arguments is None else arguments))
    return code


def run(argv: list[str]) -> int:
    """List, or find the analysis, read its options, run it and deliver what it found."""
    entries = read_entries(FOLDER, marker="KIND")
    if not argv:
        print(listing(entries))
        return OK
    name, rest = argv[0], argv[1:]
    if name in ("-h", "--help"):
        print(f"{reflowed(__doc__ or '')}\n\n{listing(entries)}")
        return OK
    if name != ALL.name and name not in entries:
        raise BadInput(unknown("analysis", name, [*entries, ALL.name]))
    entry = entries.get(name, ALL)
    module = None if entry is ALL else load_module(entry)
    request, delivery = read_arguments(entry, module, rest)
    delivery.check(name)
    if isinstance(request.options, CachedOptions) and not request.options.no_cache:
        check_cache(request.options.cache, overwrite=delivery.overwrite)
    # Small matrices: more threads only wait for each other. Torch reads this when it is imported, later.
    os.environ["OMP_NUM_THREADS"] = "1"
    # What libraries print goes to stderr: stdout is for the result.
    with contextlib.redirect_stdout(sys.stderr):
        document = run_all(entries, request) if module is None else run_request(request)
    return deliver(document, delivery)


def listing(entries: dict[str, Entry]) -> str:
    """One line per analysis, grouped by what it needs."""
    width = max((len(name) for name in entries), default=0)
    lines = []
    for kind, title in TITLES.items():
        group = [entry for entry in entries.values() if entry.marker == kind]
        if group:
            lines.append(f"{title}:")
            lines += [listed(entry.name, entry.summary, names=width) for entry in group]
            lines.append("")
    lines.append(wrapped("`python -m analyses NAME --help` says more; `all CKPT` runs every question that applies."))
    return "\n".join(lines)


def load_module(entry: Entry) -> ModuleType:
    """The analysis itself."""
    if entry.marker not in TITLES:
        raise BadInput(f"analyses/{entry.name}.py: KIND is {entry.marker!r}, expected {', '.join(TITLES)}")
    return answers.load_module(entry.name)


def make_parser(entry: Entry, module: ModuleType | None) -> Parser:
    """The arguments of one analysis: its checkpoints, where the result goes, and its options."""
    command = f"python -m analyses {entry.name}"
    needs = {"checkpoint": " CKPT", "zoo": " CKPT CKPT", "study": ""}[entry.marker]
    parser = Parser(
        prog=command,
        description=entry.document,
        epilog=EXAMPLES.format(name=entry.name, command=command + needs),
        formatter_class=HelpFormatter,
    )
    if entry.marker != "study":
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
    add_arguments(parser, kind_of_options(module))
    return parser


def kind_of_options(module: ModuleType | None) -> type[Options]:
    """The options of an analysis; `all` takes those that every question to a checkpoint takes."""
    return CheckpointOptions if module is None else answers.options_of(module)


def read_arguments(entry: Entry, module: ModuleType | None, argv: Sequence[str]) -> tuple[Request, Delivery]:
    """What the command line asks for."""
    parser = make_parser(entry, module)
    given = parser.parse_args(argv)
    named = (*given.checkpoints, *given.model) if entry.marker != "study" else ()
    with bad_options():
        subjects = tuple(dict.fromkeys(one for path in named for one in checkpoints_at(path)))
    if entry.marker != "study" and not subjects:
        parser.error("the following arguments are required: CKPT")
    request = Request(
        analysis=entry.name,
        options=read_options(kind_of_options(module), given),
        checkpoints=subjects,
    )
    return request, Delivery(json=given.json, csv=given.csv, out=given.out, overwrite=given.overwrite)


def run_request(request: Request) -> Document:
    """One analysis. A checkpoint that cannot be read is reported at once, and the others still run."""
    opened: Opened = {}
    found: dict[Question, Answer] = {}
    keeping = isinstance(request.options, CachedOptions) and not request.options.no_cache
    cache = Cache(request.options.cache if isinstance(request.options, CachedOptions) and keeping else None)
    weights = Weights()
    unread = unread_runs(request.options)
    with bad_options():
        questions = questions_of(request)
    say_loading(f"torch and TransformerLens for {questions[0].words if questions else request.analysis}")
    for question in watched(questions, request.analysis, words=lambda question: question.words):
        if keeping:
            with bad_options():
                key = key_of(question, weights)
            found[question] = answers.kept_answer(question, key, cache=cache)
        else:
            found[question] = answers.answer(question, cache=cache, opened=opened)
        opened.clear()  # one checkpoint at a time in memory
        if (error := found[question].error) is not None:
            say_unread(error, unfinished=found[question].unfinished)
    with bad_options():
        document = document_of(request, found, with_places=True)
    return replace(document, errors=(*document.errors, *unread))


def unread_runs(options: Options) -> list[dict[str, Any]]:
    """The unfinished runs below the directories that a study reads, which it leaves out; each is named."""
    if getattr(options, "unfinished", True):
        return []
    found = left_out([getattr(options, name) for name in ZOOS if hasattr(options, name)])
    for why in found.values():
        say_unread(why, unfinished=True)
    return [{"checkpoint": path, "error": why, "unfinished": True} for path, why in found.items()]


def say_unread(why: str, *, unfinished: bool) -> None:
    """Say why a checkpoint is not read: a run that is not finished has failed, anything else is bad input."""
    say(f"{'failed' if unfinished else 'error'}: {one_line(why)}")


def run_all(entries: dict[str, Entry], request: Request) -> Document:
    """Every analysis that applies to each checkpoint: a page for each, and a row for each analysis."""
    say_loading("torch and TransformerLens for every question to a checkpoint")
    modules = {entry: load_module(entry) for entry in entries.values() if entry.marker == "checkpoint"}
    documents = [_page_of_all(modules, path, request.options) for path in request.checkpoints]
    origins = [document.provenance for document in documents if document.provenance]
    priors = {path: prior for origin in origins for path, prior in origin["priors"].items()}
    return Document(
        analysis=ALL.name,
        rows=[row for document in documents for row in document.rows],
        provenance={**(origins[-1] if origins else {}), "priors": priors, "options": request.options.described()},
        text="\n\n\n".join(document.text for document in documents if document.text),
        errors=tuple(error for document in documents for error in document.errors),
    )


def _page_of_all(modules: dict[Entry, ModuleType], path: str, common: Options) -> Document:
    """Every analysis that applies to one checkpoint; they share what they capture."""
    opened: Opened = {}
    found: dict[Entry, Answer] = {}
    try:
        subject = answers.open_subject(Question(analysis=ALL.name, options=common, checkpoint=path), opened)
    except (ValueError, OSError) as error:
        unfinished = isinstance(error, Unfinished)
        say_unread(str(error), unfinished=unfinished)
        unread = {"checkpoint": path, "error": one_line(error), "unfinished": unfinished}
        return Document(analysis=ALL.name, errors=(unread,))
    passed_over = [f"{one.name}: {why}" for one, module in modules.items() if (why := answers.applies(module, subject))]
    asked = [(entry, module) for entry, module in modules.items() if not answers.applies(module, subject)]
    for entry, module in watched(asked, subject.name, words=lambda one: one[0].name):
        question = Question(analysis=entry.name, options=answers.options_of(module)(**vars(common)), checkpoint=path)
        given = answers.answer(question, cache=Cache(None), opened=opened)
        if given.refused is not None:
            passed_over.append(f"{entry.name}: {given.refused}")
            continue
        found[entry] = given
        if found[entry].error is not None:
            say(f"error: {entry.name}: {found[entry].error}")
    good = [answer for answer in found.values() if answer.error is None]
    parts = [
        f"{entry.name}: {entry.summary}\n{indented(answer.text)}"
        if answer.error is None
        else f"{entry.name}\n{indented(f'did not run: {answer.error}')}"
        for entry, answer in found.items()
    ]
    if passed_over:
        parts.append("not applicable\n" + indented("\n".join(passed_over)))
    about = wrapped(good[-1].about if good else answers.about(subject))
    return Document(
        analysis=ALL.name,
        rows=[{"analysis": one.name, **row} for one, answer in found.items() for row in answer.rows],
        provenance=good[-1].provenance if good else {},
        text="\n\n".join([f"{heading(path)}\n{about}", *parts]),
        errors=tuple(
            {"checkpoint": path, "error": answer.error} for answer in found.values() if answer.error is not None
        ),
    )


@contextlib.contextmanager
def bad_options() -> Iterator[None]:
    """A `ValueError` before and after the work means that an option was wrong."""
    try:
        yield
    except ValueError as error:
        raise BadInput(one_line(error)) from error


def deliver(document: Document, delivery: Delivery) -> int:
    """Print the result and write the files; returns the exit code."""
    unread = [one for one in document.errors if not one.get("unfinished")]
    if document.rows or (delivery.json and not unread):
        show(json_text(document.content()) if delivery.json else fitted(document.text))
        if delivery.csv:
            write_file(delivery.csv, document.table())
            say(f"wrote {delivery.csv}")
        if delivery.out:
            document.write(delivery.out)
            say(f"wrote {delivery.out / document.analysis}.json and .csv")
    failures = [*document.failures, *failed_rows(document.rows)]
    for failure in failures:
        say(f"failed: {one_line(failure)}")
    if unread:
        return BAD_INPUT
    return FAILED if failures or document.errors else OK


def failed_rows(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The checkpoints whose result says that it cannot be trusted, each with its reason.

    For the command line only: in a survey of many checkpoints a failed seed is a result, not an error.
    """
    failed = [row for row in rows if row.get("success") is False]
    parts = [(row["checkpoint"], row.get("analysis"), row.get("message") or "no reason given") for row in failed]
    return [": ".join(part for part in each if part) for each in parts]
