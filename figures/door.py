"""The door to the figures: lists them by the paper's label, and draws one or all.

    python -m figures                                      what there is, a line each
    python -m figures kl_vs_position --out DIR             DIR/kl_vs_position.{pdf,png,json}
    python -m figures all --checkpoints runs --out DIR     every figure, of the checkpoints below a directory
    python -m figures all --results results --out DIR      every figure, from results made before
    python -m figures reproduce --out results              every analysis, every figure, and results/index.html

A figure draws results and computes nothing. A module of this package is a figure if it says `LABEL = "fig:..."`. It
names the analyses whose results it draws in `ANALYSES`, picks the rows it needs in `chosen(results)`, where
results[analysis] is a list of rows, draws them in `draw(results)`, describes them in `caption(results)`, says in
`CLAIM` what the paper claims and judges it in `verdict(results)`. Results come from --results DIR, as `python -m
analyses NAME --out DIR` leaves them; without it they are made as `analyses.plan` says, from the checkpoints below
--checkpoints, and kept by content in --cache, so that the second run reads them. What is missing is left out, with a
note in the picture and a warning.

Beside each picture lies a JSON file with its caption, claim and verdict, the numbers that were drawn, and where they
come from. Exit codes: 0 all is well, 2 bad input (one line on stderr; other figures are still drawn).
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from analyses.command import (
    BAD_INPUT,
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
from analyses.door import progress
from analyses.report import check_directory, clipped
from analyses.yardstick import CACHE, ZOO
from figures.drawing import check_figure_target, produce

FOLDER = Path(__file__).parent
FORMATS = ("pdf", "png", "svg")
ALL = Entry(name="all", marker="", document="Every figure.")
REPRODUCE = Entry(
    name="reproduce",
    marker="",
    document="Every analysis of the plan, every figure, and index.html with the paper's claims and our verdicts.",
)


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
        print(f"{__doc__}\n{listing(entries)}")
        return OK
    extra = {entry.name: entry for entry in (ALL, REPRODUCE)}
    if name not in entries and name not in extra:
        raise BadInput(f"no figure {name!r}; there are {', '.join([*entries, *extra])}")
    options = make_parser(entries.get(name) or extra[name]).parse_args(rest)
    if options.cache is None:
        options.cache = options.out / "cache"
    check_directory(options.out)
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ.setdefault("MPLBACKEND", "Agg")
    if name == REPRODUCE.name:
        from figures.reproduce import reproduce

        return reproduce(entries, options)
    chosen = list(entries.values()) if name == ALL.name else [entries[name]]
    files, errors = draw_all(chosen, options)
    print("\n".join(map(str, files)))
    return BAD_INPUT if errors else OK


def listing(entries: dict[str, Entry]) -> str:
    """One line per figure; the paper's label only where the name does not say it."""
    width = max((len(name) for name in entries), default=0)
    lines = []
    for entry in entries.values():
        named = entry.marker in (f"fig:{entry.name}", f"beyond:{entry.name}")
        label = "" if named else f" [{entry.marker}]"
        lines.append(clipped(f"  {entry.name:<{width}}  {entry.summary}{label}"))
    more = [
        "`all` draws every one; `reproduce` also runs every analysis and writes index.html.",
        "python -m figures NAME --help says more.",
    ]
    return "\n".join(["figures (in brackets the paper's label, where it is another than the name):", *lines, "", *more])


def make_parser(entry: Entry) -> Parser:
    """The options, the same for every figure."""
    command = f"python -m figures {entry.name}"
    if entry is REPRODUCE:
        more = f"{command} --checkpoints runs --out runs/results --jobs 2"
    else:
        more = f"{command} --results results --out results/figures --format pdf"
    parser = Parser(
        prog=command,
        description=entry.document,
        epilog=f"examples:\n  {command}\n  {more}\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    out = Path("results") if entry is REPRODUCE else Path("results/figures")
    parser.add_argument("--out", metavar="DIR", type=Path, default=out, help="where to (default: %(default)s)")
    parser.add_argument(
        "--format", metavar="LIST", type=formats, default=("pdf", "png"), help="of pdf, png, svg (default: pdf,png)"
    )
    if entry is not REPRODUCE:
        parser.add_argument("--results", metavar="DIR", type=Path, help="results of `python -m analyses ... --out DIR`")
    parser.add_argument(
        "--checkpoints",
        metavar="DIR",
        type=Path,
        default=Path(os.path.relpath(ZOO)),
        help="where to look for checkpoints (default: models/checkpoints)",
    )
    parser.add_argument(
        "--cache",
        metavar="DIR",
        type=Path,
        default=None if entry is REPRODUCE else CACHE,
        help="where results are kept, and read when they are known "
        f"(default: {'cache, in the directory of --out' if entry is REPRODUCE else CACHE})",
    )
    parser.add_argument(
        "--jobs",
        metavar="N",
        type=whole_number(1),
        default=os.cpu_count() or 1,
        help="processes that run analyses (default: one for each core)",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace files that are not earlier figures")
    return parser


def formats(text: str) -> tuple[str, ...]:
    """An argparse type: a comma-separated list of picture formats."""
    names = tuple(text.split(","))
    for name in names:
        if name not in FORMATS:
            raise argparse.ArgumentTypeError(f"expected a list of {', '.join(FORMATS)}, got {name!r}")
    return names


def draw_all(chosen: Sequence[Entry], options: argparse.Namespace) -> tuple[list[Path], list[str]]:
    """Draw the figures; returns the files, and what was wrong with those that could not be drawn."""
    files: list[Path] = []
    errors: list[str] = []
    for entry in chosen:
        check_figure_target(entry, options)
    modules = {entry.name: importlib.import_module(f"figures.{entry.name}") for entry in chosen}
    needed = list(dict.fromkeys(name for module in modules.values() for name in module.ANALYSES))
    with contextlib.redirect_stdout(sys.stderr):
        documents = read_documents(needed, options) if options.results is not None else made_documents(needed, options)
    for entry in progress(chosen, "figures"):
        try:
            files += produce(entry, modules[entry.name], documents, options)
        except BadInput as error:
            if len(chosen) == 1:
                raise
            errors.append(f"{entry.name}: {one_line(error)}")
            say(f"error: {errors[-1]}")
    return files, errors


def made_documents(names: Sequence[str], options: argparse.Namespace) -> dict[str, dict[str, Any] | BadInput]:
    """Results of the checkpoints below --checkpoints, from the cache where they are known."""
    from analyses.plan import check_zoo, run_plan

    check_zoo(names, options.checkpoints)
    return {**run_plan(names, zoo=options.checkpoints, cache=options.cache, jobs=options.jobs)}


def read_documents(names: Sequence[str], options: argparse.Namespace) -> dict[str, dict[str, Any] | BadInput]:
    """The results that analyses left in --results; for one that is not there, what is wrong."""
    documents: dict[str, dict[str, Any] | BadInput] = {}
    for name in names:
        try:
            documents[name] = read_document(options.results / f"{name}.json", name)
        except BadInput as error:
            documents[name] = error
    return documents


def read_document(file: Path, name: str) -> dict[str, Any]:
    """One result."""
    try:
        document = json.loads(file.read_text())
    except OSError as error:
        raise BadInput(f"{file}: {error.strerror}; make it with python -m analyses {name} --out") from error
    except ValueError as error:
        raise BadInput(f"{file}: not valid JSON ({error})") from error
    if not isinstance(document, dict) or document.get("analysis") != name:
        raise BadInput(f"{file} is no result of the analysis {name}")
    return document
