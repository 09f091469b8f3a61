"""The table of claims: one line each, with its verdict and one number, from the figures that `reproduce` drew.

    python -m figures claims                              the table, from results/figures
    python -m figures claims --write README.md            the table between the two marks in a file

A line stands for a figure; its verdict and its number are the figure's own.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from analyses.command import OK, BadInput, Entry, Parser, one_line, path
from analyses.files import write_file
from figures.claims import CLAIMS
from figures.verdict import BRIEF, sentence
from interp.outside import read_object, read_text

BEGIN, END = "<!-- claims: begin -->", "<!-- claims: end -->"
HEAD = ("| the claim | verdict | the number |", "|---|---|---|")
ENTRY = Entry(
    name="claims",
    marker="",
    document="The claims with their verdicts, a line each, from the figures in results.",
)
# The figures whose claims the table has, the paper's first; the sentences are those of the page (`figures.claims`).
SHOWN = (
    "kl_vs_position", "mech_main", "hier_layer1_attn", "hier_layer2_wa", "lag_asymmetry", "identity_blocks",
    "mech_indep", "smoothing_source", "mass_by_overlap", "pseudo_counts", "beta_kappa_zoo", "open_choices", "causal",
    "lag_pairs", "direct_path", "leaving_the_law", "conditions",
)  # fmt: skip


def run(argv: Sequence[str]) -> int:
    """Print the table, or write it into a file."""
    given = make_parser().parse_args(argv)
    table = "\n".join(lines(read_records(given.results / "figures")))
    if given.write is None:
        print(table)
    else:
        write_file(given.write, between_marks(given.write, table))
        print(given.write)
    return OK


def make_parser() -> Parser:
    """Where the figures are, and where the table goes."""
    parser = Parser(prog="python -m figures claims", description=ENTRY.document)
    parser.add_argument("--results", metavar="DIR", type=path, default=Path("results"), help="default: %(default)s")
    parser.add_argument("--write", metavar="FILE", type=path, help="an existing file with the two marks, as README.md")
    return parser


def read_records(folder: Path) -> dict[str, dict[str, Any]]:
    """What the figures of a folder say, by name; those that were not drawn are missing."""
    found = {}
    for name in SHOWN:
        file = folder / f"{name}.json"
        if file.is_file():
            found[name] = read_record(file)
    if not found:
        raise BadInput(f"no figure in {folder}; python -m figures reproduce draws them")
    return found


def read_record(file: Path) -> dict[str, Any]:
    """What one figure says: its verdict, in the words of `figures.verdict`."""
    try:
        record = read_object(file)
        verdict = record["verdict"]
        sentence(verdict)
        if not isinstance(verdict.get("number") or verdict["headline"], str):
            raise TypeError
    except ValueError as error:
        raise BadInput(one_line(error)) from error
    except (KeyError, TypeError, AttributeError) as error:
        raise BadInput(f"{file}: no verdict in it; python -m figures reproduce draws it anew") from error
    return record


def lines(records: dict[str, dict[str, Any]]) -> list[str]:
    """The table in Markdown; a claim whose figure is missing says so."""
    rows = []
    for name in SHOWN:
        if name in records:
            verdict = records[name]["verdict"]
            said = sentence(verdict)
            number = textwrap.shorten(verdict.get("number") or verdict["headline"], BRIEF, placeholder=" …")
        else:
            said, number = "cannot tell", "not drawn"
        rows.append(f"| {_cell(CLAIMS[name].sentence)} (`{name}`) | {_cell(said)} | {_cell(number)} |")
    return [*HEAD, *rows]


def between_marks(file: Path, table: str) -> str:
    """The file's text with the table between its marks."""
    try:
        text = read_text(file)
    except ValueError as error:
        raise BadInput(one_line(error)) from error
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise BadInput(f"{file} must have {BEGIN} and, after it, {END}, once each")
    return text[: text.index(BEGIN)] + f"{BEGIN}\n{table}\n" + text[text.index(END) :]


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
