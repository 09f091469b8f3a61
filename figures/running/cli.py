"""The command line of the figures: lists them by the paper's label, and draws one or all.

    python -m figures                                      what there is, a line each
    python -m figures kl_vs_position --out DIR             DIR/kl_vs_position.{pdf,png,json}
    python -m figures all --checkpoints runs --out DIR     every figure, of the checkpoints below a directory
    python -m figures all --results results --out DIR      every figure, from results made before
    python -m figures mech_main --protocol paper           the runs of the paper's protocol instead of the main ones
    python -m figures explorer --out results               results/explorer.html: models and estimators, live in a page
    python -m figures reproduce --out results              every analysis, every figure, both pages
    python -m figures claims --write README.md             the claims with their verdicts, from results

A figure draws results and computes nothing. A module of `figures.paper` or `figures.beyond` is a figure if it says
`LABEL = "fig:..."`. It names the analyses whose results it draws in `ANALYSES` and the claims that it illustrates in
`CLAIMS` (`analyses.claims` judges them), picks the rows it needs in `chosen(results)`, where results[analysis] is a
list of rows, and draws them in `draw(results)`. `CAPTION` is a fixed text whose fields `fields(results)` fills in.
Results come from --results DIR, as `python -m analyses NAME --out DIR` leaves them; without it the analyses are run on
the checkpoints below --checkpoints (`analyses.running.plan`), and what they find is kept in --cache, so that the second
run reads it. What is missing is left out, with a note in the picture and a warning.

Beside each picture lies a JSON file with its caption and claims, the numbers that were drawn, and where they come
from. Exit codes: 0 success, 1 a run is unfinished (it is named and left out), 2 bad input (one line on stderr; other
figures are still drawn).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from analyses.running import plan
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
    read_entries,
    say,
    say_loading,
    show,
    whole_number,
)
from analyses.running.documents import Document
from analyses.running.files import check_cache, check_directory, is_result
from analyses.running.options import CACHE, UNFINISHED, ZOO
from analyses.running.pool import run_jobs
from analyses.running.report import page_width
from analyses.running.zoo import find_subjects, left_out
from figures.parts.rows import BESIDE, analytic, beside, only_beside, too_large, with_main
from figures.running import claims_table, drawing
from figures.running.drawing import Drawn
from interp.outside import read_json
from models.running.help_text import HelpFormatter, reflowed
from models.running.suggest import unknown

FOLDER = Path(__file__).parents[1]
FORMATS = ("pdf", "png", "svg")
ALL = Entry(name="all", marker="", document="Every figure.")
REPRODUCE = Entry(
    name="reproduce",
    marker="",
    document="Every analysis of the plan, every figure, and index.html with the paper's claims and our verdicts.",
)
EXPLORER = Entry(
    name="explorer",
    marker="",
    document="A page in which models of the zoo and the paper's estimators run live: explorer.html.",
)
PAGES = (REPRODUCE, EXPLORER)  # written to results, not to results/figures


@dataclass(frozen=True, kw_only=True)
class Order:
    """What the command line asks for: where the files go, what they are drawn from, and on how many processes."""

    out: Path
    formats: tuple[str, ...]
    results: Path | None
    checkpoints: Path
    cache: Path
    jobs: int
    overwrite: bool
    protocol: str | None = None
    unfinished: bool = False


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    code = BAD_INPUT
    with failing_in_one_line():
        code = run(list(sys.argv[1:] if arguments is None else arguments))
    return code


def run(argv: list[str]) -> int:
    """List, or draw what was named."""
    entries = read_entries(FOLDER, marker="LABEL")
    if not argv:
        print(listing(entries))
        return OK
    name, rest = argv[0], argv[1:]
    if name in ("-h", "--help"):
        print(f"{reflowed(__doc__ or '')}\n\n{listing(entries)}")
        return OK
    if name == claims_table.ENTRY.name:
        return claims_table.run(rest)
    extra = {entry.name: entry for entry in (ALL, *PAGES)}
    if name not in entries and name not in extra:
        raise BadInput(unknown("figure", name, [*entries, *extra, claims_table.ENTRY.name]))
    order = read_arguments(entries.get(name) or extra[name], rest)
    check_directory(order.out, ours=is_result, overwrite=order.overwrite)
    if order.results is None:
        check_cache(order.cache, overwrite=order.overwrite)
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ.setdefault("MPLBACKEND", "Agg")
    say_loading("the analyses and their checkpoints")
    if name == REPRODUCE.name:
        from figures.running.reproduce import reproduce

        return reproduce(entries, order)
    if name == EXPLORER.name:
        return explore(order)
    chosen = list(entries.values()) if name == ALL.name else [entries[name]]
    for entry in chosen:
        drawing.check_figure_target(entry.name, out=order.out, formats=order.formats, overwrite=order.overwrite)
    unfinished = say_left_out(order)
    documents = documents_for(chosen, order)
    if name != ALL.name and order.protocol is not None:
        check_protocol(name, documents, order.protocol)
    documents = of_protocol(documents, order.protocol)
    unread = say_errors(documents)
    drawn, errors = draw_all(chosen, documents, order)
    show("\n".join(str(file) for one in drawn for file in one.files))
    return BAD_INPUT if errors or unread else FAILED if unfinished else OK


def explore(order: Order) -> int:
    """Write the explorer."""
    from figures.page.explorer import page

    page.check_target(order.out / page.FILE, overwrite=order.overwrite)
    unfinished = say_left_out(order)
    documents = documents_of([page.ANALYSIS], order)
    unread = say_errors(documents)
    document = documents[page.ANALYSIS]
    if isinstance(document, BadInput):
        raise document
    with drawing.of_given_results(EXPLORER.name, given=order.results is not None):
        show(page.write(order.out, document))
    return BAD_INPUT if unread else FAILED if unfinished else OK


def listing(entries: dict[str, Entry]) -> str:
    """One line per figure; the paper's label only where the name does not say it."""
    width = max((len(name) for name in entries), default=0)
    lines = []
    for entry in entries.values():
        named = entry.marker in (f"fig:{entry.name}", f"beyond:{entry.name}")
        label = "" if named else f" [{entry.marker}]"
        lines.append(listed(entry.name, f"{entry.summary}{label}", names=width))
    more = (
        "`all` draws every one; `explorer` writes a page in which models run live; `reproduce` does all of it, runs "
        "every analysis and writes index.html; `claims` prints the table of claims from what it left. "
        "python -m figures NAME --help says more."
    )
    title = "figures (in brackets the paper's label, where it is another than the name):"
    return "\n".join([title, *lines, "", textwrap.fill(more, page_width())])


def make_parser(entry: Entry) -> Parser:
    """The options, the same for every figure."""
    command = f"python -m figures {entry.name}"
    if entry in PAGES:
        more = f"{command} --checkpoints runs --out runs/results --jobs 2"
    else:
        more = f"{command} --results results --out results/figures --format pdf"
    parser = Parser(
        prog=command,
        description=entry.document,
        epilog=f"examples:\n  {command}\n  {more}\n",
        formatter_class=HelpFormatter,
    )
    out = Path("results") if entry in PAGES else Path("results/figures")
    where = f"where the files go (default: %(default)s; {MAKES_FOLDERS})"
    parser.add_argument("--out", metavar="DIR", type=path, default=out, help=where)
    if entry is not EXPLORER:
        parser.add_argument(
            "--format",
            metavar="LIST",
            type=formats,
            default=("pdf", "png"),
            help="picture formats, separated by commas: pdf, png, svg (default: pdf,png)",
        )
    if entry is not REPRODUCE:
        parser.add_argument(
            "--results", metavar="DIR", type=path, help="with results of `python -m analyses --out DIR`"
        )
    parser.add_argument(
        "--checkpoints",
        metavar="DIR",
        type=path,
        default=Path(os.path.relpath(ZOO)),
        help="where to look for checkpoints (default: models/checkpoints)",
    )
    parser.add_argument(
        "--cache",
        metavar="DIR",
        type=path,
        default=None if entry is REPRODUCE else CACHE,
        help="where results are kept and reused "
        f"(default: {'cache, in the directory of --out' if entry is REPRODUCE else CACHE})",
    )
    parser.add_argument(
        "--jobs",
        metavar="N",
        type=whole_number(1, 1024),
        default=os.cpu_count() or 1,
        help="processes that run analyses (default: one for each core)",
    )
    parser.add_argument(
        "--protocol",
        choices=BESIDE,
        help="draw the runs of this training protocol instead of the main ones (default: the main ones, or, where "
        "there are none below --checkpoints, those that are there)",
    )
    parser.add_argument("--unfinished", action="store_true", help=UNFINISHED)
    parser.add_argument("--overwrite", action="store_true", help="replace files that are not earlier figures")
    return parser


def formats(text: str) -> tuple[str, ...]:
    """An argparse type: a comma-separated list of picture formats."""
    names = tuple(text.split(","))
    for name in names:
        if name not in FORMATS:
            raise argparse.ArgumentTypeError(f"expected a list of {', '.join(FORMATS)}, got {name!r}")
    return names


def read_arguments(entry: Entry, argv: Sequence[str]) -> Order:
    """What the command line asks for."""
    given = make_parser(entry).parse_args(argv)
    return Order(
        out=given.out,
        formats=getattr(given, "format", ()),
        results=getattr(given, "results", None),
        checkpoints=given.checkpoints,
        cache=given.out / "cache" if given.cache is None else given.cache,
        jobs=given.jobs,
        overwrite=given.overwrite,
        protocol=given.protocol,
        unfinished=given.unfinished,
    )


def documents_for(chosen: Sequence[Entry], order: Order) -> dict[str, Document | BadInput]:
    """The results that the figures need: read from --results, or made from the checkpoints below --checkpoints."""
    return documents_of([name for entry in chosen for name in drawing.load_module(entry.name).ANALYSES], order)


def documents_of(analyses: Sequence[str], order: Order) -> dict[str, Document | BadInput]:
    """The results of these analyses, read or made."""
    names = list(dict.fromkeys(analyses))
    if order.results is not None:
        return read_documents(names, order.results)
    plan.check_zoo(names, order.checkpoints, unfinished=order.unfinished)
    asks = plan.asks_for(names)
    with contextlib.redirect_stdout(sys.stderr):
        run = plan.run_plan(
            asks, zoo=order.checkpoints, cache=order.cache, jobs=order.jobs, unfinished=order.unfinished
        )
    return dict(run.documents)


def say_left_out(order: Order) -> bool:
    """Name the unfinished runs below --checkpoints, and end if there are no others; returns whether there are any."""
    lines = {} if order.unfinished or order.results is not None else left_out([order.checkpoints])
    for line in lines.values():
        say(f"failed: {one_line(line)}")
    if lines and not find_subjects(order.checkpoints):
        raise SystemExit(FAILED)
    return bool(lines)


def check_protocol(figure: str, documents: Mapping[str, Document | BadInput], protocol: str) -> None:
    """Refuse a protocol of which an analysis of the figure has no run; analyses without trained models do not count."""
    for name, document in documents.items():
        rows = document.rows if isinstance(document, Document) else []
        trained = [row["subject"] for row in rows if row.get("subject") is not None and not analytic(row["subject"])]
        if trained and not any(beside(subject) == protocol for subject in trained):
            known = ", ".join(sorted({str(subject.get("protocol")) for subject in trained}))
            raise BadInput(f"{figure} --protocol {protocol}: the analysis {name} has no run of it, only of: {known}")


def of_protocol(documents: Mapping[str, Document | BadInput], protocol: str | None) -> dict[str, Document | BadInput]:
    """The results with the runs of a protocol in the place of the main ones; see `figures.parts.rows.with_main`."""
    read = [document for document in documents.values() if isinstance(document, Document)]
    if protocol is None:
        protocol = only_beside(row for document in read for row in document.rows)
        if protocol is None:
            return dict(documents)
        say(f"note: all trained models are of the {protocol} protocol; the figures show those")
    return {
        name: replace(document, rows=with_main(document.rows, protocol)) if isinstance(document, Document) else document
        for name, document in documents.items()
    }


def say_errors(documents: Mapping[str, Document | BadInput]) -> bool:
    """Say which checkpoints an analysis could not read, a line each; returns whether there were any."""
    unread = [
        f"{name}: {error['error']}"
        for name, document in documents.items()
        if isinstance(document, Document)
        for error in document.errors
    ]
    for line in unread:
        say(f"error: {one_line(line)}")
    return bool(unread)


def read_documents(names: Sequence[str], folder: Path) -> dict[str, Document | BadInput]:
    """The results that analyses left in a folder; for one that is not there, what is wrong."""
    documents: dict[str, Document | BadInput] = {}
    for name in names:
        try:
            documents[name] = read_document(folder / f"{name}.json", name)
        except BadInput as error:
            documents[name] = error
    return documents


def read_document(file: Path, name: str) -> Document:
    """One result."""
    if not file.is_file():
        raise BadInput(f"{file}: no such file; python -m analyses {name} ... --out {file.parent} makes it")
    try:
        content = read_json(file)
    except ValueError as error:
        raise BadInput(one_line(error)) from error
    if not isinstance(content, dict) or content.get("analysis") != name:
        raise BadInput(f"{file} is not a result of the analysis {name}")
    rows, origin = content.get("rows"), content.get("provenance")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows) or not isinstance(origin, dict):
        raise BadInput(f"{file}: a result has rows, a list of objects, and provenance, an object")
    if not all(isinstance(row.get("subject"), (dict, type(None))) for row in rows):
        raise BadInput(f"{file}: the subject of a row must be an object")
    if large := too_large(rows):
        raise BadInput(f"{file}: {large}")
    return Document(analysis=name, rows=rows, provenance=origin)


def draw_all(
    chosen: Sequence[Entry], documents: Mapping[str, Document | BadInput], order: Order
) -> tuple[list[Drawn], list[str]]:
    """Draw the figures; also returns what was wrong with those that could not be drawn."""
    found: dict[str, Drawn] = {}
    wanted: list[drawing.Drawing] = []
    errors: list[str] = []
    for entry in chosen:
        try:
            with drawing.of_given_results(entry.name, given=order.results is not None):
                one = drawing.drawing_of(entry, documents, out=order.out, formats=order.formats)
        except BadInput as error:
            if len(chosen) == 1:
                raise
            errors.append(f"{entry.name}: {one_line(error)}")
            say(f"error: {errors[-1]}")
            continue
        known = drawing.known_drawing(one)
        if known is None:
            wanted.append(one)
        else:
            found[entry.name] = known
    perform = drawing.draw if order.results is None else drawing.draw_given
    for job, drawn in run_jobs(perform, wanted, workers=order.jobs, what="figures"):
        if isinstance(drawn, BadInput):
            errors.append(one_line(drawn))
            say(f"error: {errors[-1]}")
            continue
        found[job.figure] = drawn
        for note in drawn.record["missing"]:
            say(f"warning: {job.figure}: {one_line(note)}")
    return [found[entry.name] for entry in chosen if entry.name in found], errors
