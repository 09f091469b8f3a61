"""The claims in the paper's order, a line each, with verdict, start and number, judged on the tables of `reproduce`.

python -m figures claims                              from results
python -m figures claims --json                       the same as one JSON object, with every need
python -m figures claims --write README.md            as a table between the two marks in a file
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from analyses.claims import document as claims
from analyses.running.command import OK, BadInput, Entry, Parser, one_line, path, show
from analyses.running.files import write_file
from analyses.running.report import json_text
from interp.outside import read_text

BEGIN, END = "<!-- claims: begin -->", "<!-- claims: end -->"
HEAD = ("| | the claim | verdict | the number |", "|---|---|---|---|")
ENTRY = Entry(
    name="claims",
    marker="",
    document="The claims with their verdicts, a line each, from the tables in results.",
)


def run(argv: Sequence[str]) -> int:
    """Print the claims, or write their table into a file."""
    given = make_parser().parse_args(argv)
    judged = claims.read(given.results)
    if given.write is not None:
        write_file(given.write, between_marks(given.write, "\n".join(lines(judged.rows))))
        show(given.write)
    else:
        show(json_text(judged.content()) if given.json else judged.text)
    return OK


def make_parser() -> Parser:
    """Where the tables are, and where the claims go."""
    parser = Parser(prog="python -m figures claims", description=ENTRY.document)
    parser.add_argument("--results", metavar="DIR", type=path, default=Path("results"), help="default: %(default)s")
    parser.add_argument("--write", metavar="FILE", type=path, help="an existing file with the two marks, as README.md")
    parser.add_argument("--json", action="store_true", help="one JSON object, with every need")
    return parser


def lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The claims of the paper as a table in Markdown, and ours that were judged; settings and questions left out."""
    kept = [row for row in rows if row["topic"] != "setting" and row["verdict"] != "not judged"]
    return [
        *HEAD,
        *(
            f"| {row['number'] or 'ours'} | {_cell(row['sentence'])} | {_cell(row['says'])} | {_cell(row['found'])} |"
            for row in kept
        ),
        "",
        claims.LEGEND.replace("*", "\\*"),
    ]


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
    return one_line(text).replace("|", "\\|").replace("<", "&lt;")
