"""The door to the figures: lists them by the paper's label, and draws one or all.

    python -m figures                                      what there is, a line each
    python -m figures construction_attention --out DIR     DIR/construction_attention.{pdf,png,json}
    python -m figures all --results results --out DIR      every figure, from results made before

A figure draws results and computes nothing. A module of this package is a figure if it says `LABEL = "fig:..."`. It
names the analyses whose results it draws in `ANALYSES`, draws them in `draw(results)`, where results[analysis] is a
list of rows, and describes them in `caption(results)`. Results come from --results DIR, as `python -m analyses NAME
--out DIR` leaves them; without it, studies that need no checkpoint are run on the spot.

Beside each picture lies a JSON file with its caption, the numbers that were drawn, and where they come from.
Exit codes: 0 all is well, 2 bad input (one line on stderr; other figures are still drawn).
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analyses import door as analyses_door
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
from analyses.report import check_directory, check_document_target, clipped, write_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FOLDER = Path(__file__).parent
STYLE = FOLDER / "house.mplstyle"
FORMATS = ("pdf", "png", "svg")
ALL = Entry(name="all", marker="", document="Every figure.")


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
    if name != ALL.name and name not in entries:
        raise BadInput(f"no figure {name!r}; there are {', '.join([*entries, ALL.name])}")
    options = make_parser(entries.get(name, ALL)).parse_args(rest)
    check_directory(options.out)
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ.setdefault("MPLBACKEND", "Agg")
    chosen = list(entries.values()) if name == ALL.name else [entries[name]]
    code = OK
    for entry in chosen:
        try:
            with contextlib.redirect_stdout(sys.stderr):
                files = produce(entry, options)
        except BadInput as error:
            if len(chosen) == 1:
                raise
            say(f"error: {entry.name}: {one_line(error)}")
            code = BAD_INPUT
        else:
            print("\n".join(map(str, files)))
    return code


def listing(entries: dict[str, Entry]) -> str:
    """One line per figure."""
    width = max((len(name) for name in entries), default=0)
    labels = max((len(entry.marker) for entry in entries.values()), default=0)
    lines = [
        clipped(f"  {entry.name:<{width}}  {entry.marker:<{labels}}  {entry.summary}") for entry in entries.values()
    ]
    return "\n".join(["figures, by the paper's label:", *lines, "", "python -m figures NAME --help says more."])


def make_parser(entry: Entry) -> Parser:
    """The options, the same for every figure."""
    parser = Parser(
        prog=f"python -m figures {entry.name}",
        description=entry.document,
        epilog=f"examples:\n  python -m figures {entry.name}\n"
        f"  python -m figures {entry.name} --results results --out results/figures --format pdf\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--out", metavar="DIR", type=Path, default=Path("results/figures"), help="where to (default: %(default)s)"
    )
    parser.add_argument(
        "--format", metavar="LIST", type=formats, default=("pdf", "png"), help="of pdf, png, svg (default: pdf,png)"
    )
    parser.add_argument("--results", metavar="DIR", type=Path, help="results of `python -m analyses ... --out DIR`")
    parser.add_argument(
        "--seed", metavar="S", type=whole_number(0), default=0, help="for studies run on the spot (default: 0)"
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


def produce(entry: Entry, options: argparse.Namespace) -> list[Path]:
    """Draw one figure and write its files; returns their paths."""
    sidecar = options.out / f"{entry.name}.json"
    pictures = [options.out / f"{entry.name}.{suffix}" for suffix in options.format]
    check_document_target(sidecar, key="figure", name=entry.name, overwrite=options.overwrite)
    if not sidecar.exists() and not options.overwrite:
        for picture in pictures:
            if picture.exists():
                raise BadInput(f"{picture} is no figure of ours; --overwrite replaces it")
    module = importlib.import_module(f"figures.{entry.name}")
    documents = {name: result_of(name, options) for name in module.ANALYSES}
    results = {name: document["rows"] for name, document in documents.items()}
    import matplotlib.pyplot as plt

    with plt.style.context(STYLE):
        figure = module.draw(results)
        contents = [picture_bytes(figure, suffix) for suffix in options.format]
        plt.close(figure)
    for picture, content in zip(pictures, contents, strict=True):
        write_file(picture, content)
    record = {
        "figure": entry.name,
        "label": entry.marker,
        "caption": module.caption(results),
        "numbers": results,
        "provenance": {name: document["provenance"] for name, document in documents.items()},
    }
    write_file(sidecar, json.dumps(record, indent=1, allow_nan=False) + "\n")
    return [*pictures, sidecar]


def result_of(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """The result an analysis left in --results; a study without one is run."""
    if options.results is not None:
        file = options.results / f"{name}.json"
        try:
            document = json.loads(file.read_text())
        except OSError as error:
            raise BadInput(f"{file}: {error.strerror}; make it with python -m analyses {name} --out") from error
        except ValueError as error:
            raise BadInput(f"{file}: not valid JSON ({error})") from error
        if not isinstance(document, dict) or document.get("analysis") != name:
            raise BadInput(f"{file} is no result of the analysis {name}")
        return document
    entry = read_entries(analyses_door.FOLDER, marker="KIND")[name]
    if entry.marker != "study":
        raise BadInput(f"give --results DIR: {name} needs checkpoints (python -m analyses {name} CKPT ... --out DIR)")
    module = analyses_door.load_module(entry)
    asked = analyses_door.make_parser(entry, module).parse_args(["--seed", str(options.seed)])
    return analyses_door.document_of(name, analyses_door.run_study(module, asked), asked)


def picture_bytes(figure: Figure, suffix: str) -> bytes:
    """The picture, without dates or versions in it: the same results give the same file."""
    metadata = {"pdf": {"CreationDate": None, "Producer": None, "Creator": None}, "png": {"Software": None}}
    buffer = io.BytesIO()
    figure.savefig(buffer, format=suffix, metadata=metadata.get(suffix, {"Date": None}))
    return buffer.getvalue()
