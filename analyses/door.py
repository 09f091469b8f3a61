"""The door to the analyses: lists them, runs one or all, and writes what they found.

    python -m analyses                                    what there is, a line each
    python -m analyses theory                             a study: needs no checkpoint
    python -m analyses beta_kappa CKPT [CKPT ...]         one analysis on one or more checkpoints
    python -m analyses all CKPT                           every analysis that applies, on one page

A module of this package is an analysis if it says `KIND = "checkpoint"`, "zoo" or "study"; its docstring's
first line is its line in the listing. Nothing is registered: the door reads the files without importing them,
so that listings and --help answer at once. A module may also define

    add_arguments(parser)     options of its own
    applies(info)             why a checkpoint is not for it, or None
    COLUMNS                   the columns to print when several checkpoints are compared

Exit codes: 0 all is well, 1 a verdict failed or a result has success False, 2 bad input (one line on stderr each;
other checkpoints still run).
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from analyses.command import (
    BAD_INPUT,
    FAILED,
    OK,
    BadInput,
    Entry,
    Parser,
    failing_in_one_line,
    one_line,
    read_entries,
    say,
    whole_number,
)
from analyses.report import (
    check_directory,
    check_document_target,
    check_table_target,
    clipped,
    csv_text,
    heading,
    indented,
    json_text,
    render_table,
    wrapped,
    write_file,
)
from analyses.subject import DEFAULT_BATCH, Study, Subject, flat_rows

if TYPE_CHECKING:
    import pandas as pd

    from interp.results import Result

FOLDER = Path(__file__).parent
TITLES = {
    "study": "studies, which need no checkpoint",
    "checkpoint": "questions to a checkpoint (several checkpoints: one row each)",
    "zoo": "questions to a whole zoo (several checkpoints at once)",
}
ALL = Entry(name="all", marker="checkpoint", document="Every question that applies to a checkpoint, on one page.")
EXAMPLES = """\
examples:
  python -m analyses {name} {checkpoints}
  python -m analyses {name} {checkpoints}--json > {name}.json
  python -m analyses {name} {checkpoints}--seed 1 --out results

With --json, stdout holds one JSON object and nothing else:
  {{"analysis": "{name}", "rows": [...], "provenance": {{...}}}}
Exit codes: 0 all is well, 1 a verdict failed or a result has success False, 2 bad input (one line on stderr each).
"""


@dataclass(kw_only=True)
class Outcome:
    """What a run leaves: rows, the text for the terminal, and what went wrong."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    text: str = ""
    tidy: pd.DataFrame | None = None  # the results' own tables; None for studies, whose rows are their table
    provenance: dict[str, Any] = field(default_factory=dict)
    failures: Sequence[str] = ()
    errors: list[dict[str, str]] = field(default_factory=list)

    def note(self, path: str, error: Exception, *, name: str | None = None) -> None:
        """Say on stderr what was wrong with a checkpoint, and keep it."""
        message = one_line(error)
        if path not in message:
            message = f"{path}: {message}"
        say(f"error: {name + ': ' if name else ''}{message}")
        self.errors.append({"checkpoint": path, "error": message})


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
        print(f"{__doc__}\n{listing(entries)}")
        return OK
    if name != ALL.name and name not in entries:
        raise BadInput(f"no analysis {name!r}; there are {', '.join([*entries, ALL.name])}")
    entry = entries.get(name, ALL)
    module = None if entry is ALL else load_module(entry)
    options = make_parser(entry, module).parse_args(rest)
    check_targets(name, options)
    # Small matrices: more threads only wait for each other. Torch reads this when it is imported, later.
    os.environ["OMP_NUM_THREADS"] = "1"
    # Whatever a library prints while it works belongs on stderr: stdout is for the result.
    with contextlib.redirect_stdout(sys.stderr):
        if module is None:
            outcome = run_all(entries, options)
        elif entry.marker == "study":
            outcome = run_study(module, options)
        elif entry.marker == "zoo":
            outcome = run_survey(module, name, options)
        else:
            outcome = run_checkpoints(module, name, options)
    return deliver(name, outcome, options)


def listing(entries: dict[str, Entry]) -> str:
    """One line per analysis, grouped by what it needs."""
    width = max((len(name) for name in entries), default=0)
    lines = []
    for kind, title in TITLES.items():
        group = [entry for entry in entries.values() if entry.marker == kind]
        if group:
            lines.append(f"{title}:")
            lines += [clipped(f"  {entry.name:<{width}}  {entry.summary}") for entry in group]
            lines.append("")
    lines.append("python -m analyses NAME --help says more; `all CKPT` runs every question that applies.")
    return "\n".join(lines)


def load_module(entry: Entry) -> ModuleType:
    """The analysis itself."""
    if entry.marker not in TITLES:
        raise BadInput(f"analyses/{entry.name}.py: KIND is {entry.marker!r}, expected {', '.join(TITLES)}")
    return importlib.import_module(f"analyses.{entry.name}")


def make_parser(entry: Entry, module: ModuleType | None) -> Parser:
    """The options of one analysis: the common ones, then its own."""
    needs = {"checkpoint": "CKPT ", "zoo": "CKPT CKPT ", "study": ""}[entry.marker]
    parser = Parser(
        prog=f"python -m analyses {entry.name}",
        description=entry.document,
        epilog=EXAMPLES.format(name=entry.name, checkpoints=needs),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if entry.marker != "study":
        parser.add_argument(
            "checkpoints",
            metavar="CKPT",
            nargs="+",
            help="a directory with config.json and model.safetensors",
        )
        parser.add_argument(
            "--prior",
            metavar="PRIOR",
            help="what the sequences are drawn from: independent[:ALPHA] or hierarchical[:ETA,...[:ETA0]] "
            "(default: the training record's; hierarchical:5 where there is none)",
        )
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout, nothing else there")
    parser.add_argument("--csv", metavar="FILE", type=Path, help="also write the table to FILE")
    parser.add_argument(
        "--batch",
        metavar="N",
        type=whole_number(1),
        default=DEFAULT_BATCH,
        help="sequences to look at (default: %(default)s)",
    )
    parser.add_argument(
        "--seed", metavar="S", type=whole_number(0), default=0, help="random seed (default: %(default)s)"
    )
    parser.add_argument(
        "--out", metavar="DIR", type=Path, help=f"also write {entry.name}.csv and {entry.name}.json into DIR"
    )
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help="let --csv and --out replace files that are not earlier results",
    )
    if module is not None and hasattr(module, "add_arguments"):
        module.add_arguments(parser)
    return parser


def run_study(module: ModuleType, options: argparse.Namespace) -> Outcome:
    """A study that makes its own data."""
    with bad_options():
        return study_outcome(module.study(options), Outcome())


def run_survey(module: ModuleType, name: str, options: argparse.Namespace) -> Outcome:
    """A study over several checkpoints; those that cannot be read are left out, and said."""
    outcome = Outcome()
    subjects = []
    for subject in open_subjects(module, name, options, outcome):
        try:
            _ = subject.model  # a damaged file must not stop the survey of the others
        except ValueError as error:
            outcome.note(str(subject.path), error)
        else:
            subjects.append(subject)
    if not subjects:
        return outcome
    with bad_options():
        return study_outcome(module.survey(subjects, options), outcome)


def study_outcome(study: Study, outcome: Outcome) -> Outcome:
    from interp.results import jsonable

    outcome.rows = [jsonable(dict(row)) for row in study.rows]
    outcome.text = render_table(flat_rows(outcome.rows), columns=study.shown)
    if study.notes:
        outcome.text += "\n\n" + "\n".join(wrapped(note) for note in study.notes)
    outcome.provenance = study.provenance
    outcome.failures = study.failures
    return outcome


def run_checkpoints(module: ModuleType, name: str, options: argparse.Namespace) -> Outcome:
    """One analysis on each checkpoint: a failure of one leaves the others alone."""
    import pandas as pd

    outcome = Outcome()
    subjects = open_subjects(module, name, options, outcome)
    pages, tables = [], []
    for subject in progress(subjects, name):
        result = attempt(module, subject, options, outcome)
        if result is not None:
            pages.append("\n".join([heading(str(subject.path)), describe(subject), str(result)]))
            outcome.rows.append(row_of(subject, result))
            table = result.table().assign(checkpoint=str(subject.path))
            tables.append(table[["checkpoint", *table.columns.drop("checkpoint")]])
    if len(pages) > 1:
        columns = getattr(module, "COLUMNS", ())
        outcome.text = render_table(flat_rows(outcome.rows), columns=("checkpoint", *columns) if columns else ())
    else:
        outcome.text = "\n".join(pages)
    outcome.tidy = pd.concat(tables, ignore_index=True) if tables else None
    outcome.provenance = origin(options, subjects)
    return outcome


def run_all(entries: dict[str, Entry], options: argparse.Namespace) -> Outcome:
    """Every analysis that applies to each checkpoint: a page for each, and a row for each analysis."""
    outcome = Outcome()
    subjects = open_subjects(None, ALL.name, options, outcome)
    questions = [entry for entry in entries.values() if entry.marker == "checkpoint"]
    pages = []
    for subject in subjects:
        parts, passed_over = [], []
        for entry in progress(questions, subject.name):
            module = load_module(entry)
            if reason := applies(module, subject):
                passed_over.append(f"{entry.name}: {reason}")
                continue
            own = vars(make_parser(entry, module).parse_args([str(subject.path)]))
            result = attempt(module, subject, argparse.Namespace(**{**own, **vars(options)}), outcome, name=entry.name)
            if result is None:
                parts.append(f"{entry.name}\n{indented('did not run: ' + outcome.errors[-1]['error'])}")
            else:
                parts.append(f"{clipped(f'{entry.name}: {entry.summary}')}\n{indented(str(result))}")
                outcome.rows.append({"analysis": entry.name, **row_of(subject, result)})
        if passed_over:
            parts.append("not applicable\n" + indented("\n".join(passed_over)))
        pages.append("\n\n".join([f"{heading(str(subject.path))}\n{describe(subject)}", *parts]))
    outcome.text = "\n\n\n".join(pages)
    outcome.provenance = origin(options, subjects)
    return outcome


def open_subjects(module: ModuleType | None, name: str, options: argparse.Namespace, outcome: Outcome) -> list[Subject]:
    """The checkpoints that can be read and that the analysis applies to; the others are noted."""
    subjects = []
    for path in options.checkpoints:
        try:
            subject = Subject.open(path, options)
            if module is not None and (reason := applies(module, subject)):
                raise ValueError(f"{path}: {name} does not apply: {reason}")
        except (ValueError, OSError) as error:
            outcome.note(path, error)
        else:
            subjects.append(subject)
    return subjects


def applies(module: ModuleType, subject: Subject) -> str | None:
    """Why the analysis is not for this checkpoint, or None."""
    return module.applies(subject.info) if hasattr(module, "applies") else None


def attempt(
    module: ModuleType,
    subject: Subject,
    options: argparse.Namespace,
    outcome: Outcome,
    *,
    name: str | None = None,
) -> Result | None:
    """Analyse one checkpoint; a `ValueError` is bad input and is noted, anything else is a bug and rises."""
    try:
        return module.analyse(subject, options)
    except ValueError as error:
        outcome.note(str(subject.path), error, name=name)
        return None


@contextlib.contextmanager
def bad_options() -> Iterator[None]:
    """In a study a `ValueError` means that an option was wrong."""
    try:
        yield
    except ValueError as error:
        raise BadInput(one_line(error)) from error


def progress(items: Sequence[Any], what: str) -> Iterator[Any]:
    """The items, with a bar on stderr where someone watches."""
    if len(items) < 2 or not sys.stderr.isatty():
        yield from items
        return
    from tqdm import tqdm

    yield from tqdm(items, desc=what, file=sys.stderr, leave=False)


def row_of(subject: Subject, result: Result) -> dict[str, Any]:
    """The JSON row of one checkpoint."""
    from interp.results import jsonable

    return {"checkpoint": str(subject.path), "subject": subject.summary(), **jsonable(result.record())}


def origin(options: argparse.Namespace, subjects: Sequence[Subject]) -> dict[str, Any]:
    """Provenance of a run over checkpoints, with the prior that each one was tested on."""
    from interp.results import provenance

    tested = {str(subject.path): subject.prior.to_dict() for subject in subjects if "prior" in vars(subject)}
    return provenance(seed=options.seed, priors=tested)


def describe(subject: Subject) -> str:
    """What the checkpoint is, in one line."""
    model, training = subject.info.model, subject.info.training or {}
    words = [
        f"{model['family']}, k = {model['order']}, |V| = {model['vocab']}, T = {model['length']}",
        "BOS" if model["bos"] else "no BOS",
    ]
    if "protocol" in training:
        words.append(f"protocol {training['protocol']}")
    if "prior" in vars(subject):
        words.append(f"on {subject.prior.to_dict()['kind']} chains")
    return clipped(", ".join(words))


def document_of(name: str, outcome: Outcome, options: argparse.Namespace) -> dict[str, Any]:
    """The JSON object of a run."""
    from interp.results import jsonable

    hidden = {"json", "csv", "out", "overwrite", "checkpoints"}  # these do not shape the numbers
    asked = {key: value for key, value in vars(options).items() if key not in hidden}
    document: dict[str, Any] = {
        "analysis": name,
        "rows": outcome.rows,
        "provenance": jsonable({**outcome.provenance, "options": asked}),
    }
    if outcome.errors:
        document["errors"] = outcome.errors
    return document


def deliver(name: str, outcome: Outcome, options: argparse.Namespace) -> int:
    """Print the result, write the files, and say in the exit code how it went."""
    document = document_of(name, outcome, options)
    if outcome.rows:
        print(json_text(document) if options.json else outcome.text)
        table = csv_text(name, flat_rows(outcome.rows))
        if options.csv:
            write_file(options.csv, table)
        if options.out:
            write_file(options.out / f"{name}.json", json_text(document) + "\n")
            write_file(options.out / f"{name}.csv", table)
            if outcome.tidy is not None:
                tidy = [{str(key): value for key, value in row.items()} for row in outcome.tidy.to_dict("records")]
                write_file(options.out / f"{name}_tidy.csv", csv_text(name, tidy))
            say(f"wrote {options.out / name}.json and .csv")
    failures = [*outcome.failures, *failed_rows(outcome.rows)]
    for failure in failures:
        say(f"failed: {one_line(failure)}")
    if outcome.errors:
        return BAD_INPUT
    return FAILED if failures else OK


def failed_rows(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The checkpoints whose result says that it cannot be trusted, each with its reason.

    Only the command line asks: in a survey of many checkpoints a failed seed is a finding, not a fault.
    """
    failed = [row for row in rows if row.get("success") is False]
    parts = [(row["checkpoint"], row.get("analysis"), row.get("message") or "no reason given") for row in failed]
    return [": ".join(part for part in each if part) for each in parts]


def check_targets(name: str, options: argparse.Namespace) -> None:
    """Refuse, before any work, to write where something else lies."""
    tables = [options.csv] if options.csv is not None else []
    if options.out is not None:
        check_directory(options.out)
        check_document_target(options.out / f"{name}.json", key="analysis", name=name, overwrite=options.overwrite)
        tables += [options.out / f"{name}.csv", options.out / f"{name}_tidy.csv"]
    for table in tables:
        check_table_target(table, overwrite=options.overwrite)
