"""The claims in the paper's order, a line each, with verdict, start and number, judged on the tables of `reproduce`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from analyses.claims import document
from analyses.running.files import write_file
from analyses.running.table import json_text
from figures.running.order import RESULTS
from interp.outside import one_line, read_text
from models.running.command_line import OK, PATH, BadInput
from models.running.terminal import show

BEGIN, END = "<!-- claims: begin -->", "<!-- claims: end -->"
HEAD = ("| | the claim | verdict | the number | judged on | from other starts |", "|---|---|---|---|---|---|")
CELLS = ("sentence", "says", "found", "runs", "others")


@click.command()
@click.option("--results", metavar="DIR", type=PATH, default=RESULTS, help=f"default: {RESULTS}")
@click.option("--write", metavar="FILE", type=PATH, help="write the paper's claims between the marks of docs/claims.md")
@click.option("--ours", is_flag=True, help="with --write: our questions, as in docs/questions.md")
@click.option("--json", "as_json", is_flag=True, help="one JSON object, with every need")
def claims(results: Path, write: Path | None, ours: bool, as_json: bool) -> int:
    """The claims with their verdicts, a line each, from the tables in results."""
    judged = document.read(results)
    if write is not None:
        write_file(write, between_marks(write, "\n".join(lines(judged.rows, ours=ours))))
        show(write)
    else:
        show(json_text(judged.content()) if as_json else judged.text)
    return OK


def lines(rows: Sequence[Mapping[str, Any]], *, ours: bool) -> list[str]:
    """The claims of the paper, or our questions, as a table in Markdown; settings and what is not judged left out."""
    judged = [row for row in rows if row["topic"] != "setting" and row["verdict"] != "not judged"]
    kept = [row for row in judged if (row["number"] is None) == ours]
    return [
        *HEAD,
        *(f"| {' | '.join([_place(row), *(_cell(row[name]) for name in CELLS)])} |" for row in kept),
        "",
        document.LEGEND.replace("*", "\\*"),
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


def _place(row: Mapping[str, Any]) -> str:
    """The claim's place in the paper; "ours" where it asks what the paper does not say."""
    return " ".join([str(row["number"])] * (row["number"] is not None) + ["ours"] * bool(row["ours"]))


def _cell(text: str) -> str:
    return one_line(text).replace("|", "\\|").replace("<", "&lt;")
