"""Adds the rows of new runs to a shipped table, with the options of `make reproduce`.

    python -m analyses.shipped conditions            measures new runs, and those whose weights have changed
    python -m analyses.shipped conditions --anew     measures every run that is here, and removes the others

Rows of known weights are not changed, even if those weights are not in this clone. The provenance says, under `made`,
which commit and code measured how many runs. It can be run again while a sweep is adding runs.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from analyses.running import questions
from analyses.running.cache import Cache, code_key
from analyses.running.files import write_file
from analyses.running.options import CACHE, at
from analyses.running.table import json_text
from analyses.shipped import FOLDER, read_shipped
from interp.results import git_commit, jsonable
from interp.results import provenance as origin
from models.running.command_line import PATH, BadInput, help_text, run
from models.running.terminal import say

CODE_DIGITS = 12


def extend(name: str, *, anew: bool, cache: Path, folder: Path = FOLDER, options: Any = None) -> int:
    """Bring the table of a study up to date; returns how many runs were measured."""
    if name not in questions.analyses() or not hasattr(module := questions.load_module(name), "merged"):
        raise BadInput(f"{name}: no study with a table that can be added to, as `conditions` has one")
    options = at(module.ASK.options if options is None else options, cache=cache)
    file = folder / f"{name}.json"
    before = read_shipped(name, folder=folder) if file.is_file() and not anew else {"rows": [], "provenance": {}}
    shaping = options.shaping()
    if before["rows"] and before["provenance"]["options"] != shaping:
        raise BadInput(f"{file} was made with other options than `make reproduce` has now: --anew makes all of it anew")
    known = {run["weights"] for row in before["rows"] for run in row["runs"]}
    new: list[dict[str, Any]] = []
    for piece in module.pieces(options):
        study = module.study_piece(options, piece, Cache(cache), known=known).plain()
        say(f"  {piece}: {sum(len(row['runs']) for row in study.rows)} runs measured")
        new += study.rows
    count = sum(len(row["runs"]) for row in new)
    if count:
        made = {"commit": git_commit(), "code": code_key()[:CODE_DIGITS], "runs": count}
        provenance = {
            **jsonable(origin(seed=options.seed)),
            "options": shaping,
            "made": [*before["provenance"].get("made", []), made],
        }
        rows = module.merged(before["rows"], new)
        write_file(file, json_text({"analysis": name, "rows": rows, "provenance": provenance}) + "\n")
    return count


@click.command("python -m analyses.shipped", help=help_text(__doc__ or ""))
@click.argument("name", metavar="STUDY")
@click.option("--anew", is_flag=True, help="measure every run that is here, and remove the others")
@click.option("--cache", type=PATH, metavar="DIR", default=CACHE, help="where optima are kept")
def command(name: str, anew: bool, cache: Path) -> None:
    """Read the command line and extend the table."""
    count = extend(name, anew=anew, cache=cache)
    print(f"{FOLDER / name}.json: {count} runs measured")


if __name__ == "__main__":
    sys.exit(run(lambda: command))
