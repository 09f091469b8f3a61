"""Results that the repository ships, because computing them takes minutes, and weights that not every machine has.

    analyses/shipped/language_model.json        what `python -m analyses language_model --out analyses/shipped` wrote
    analyses/shipped/conditions.json            what `python -m analyses.shipped conditions` wrote

A study that says `SHIPPED = "LANGUAGE"` is read from here by `make reproduce` and by the figures, unless that variable
is set in the environment (`LANGUAGE=1 make reproduce`): then it is computed, and kept in the cache as any other. The
command `python -m analyses language_model` always computes. The file's provenance names the weights by their digest,
the commit and the versions that made it. What the study's `join` computes from its rows (counts, sentences) is computed
again at every reading, so that only measured numbers are shipped.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from analyses.running.questions import load_module, options_of
from analyses.running.table import Table
from models.running.command_line import BadInput

FOLDER = Path(__file__).parent


def shipped_table(name: str, *, folder: Path = FOLDER) -> Table | None:
    """The shipped result of a study; None where it has to be computed."""
    module = load_module(name)
    variable = getattr(module, "SHIPPED", None)
    if variable is None or os.environ.get(variable, "0") not in ("", "0"):
        return None
    try:
        content = read_shipped(name, folder=folder)
        kept = Table(rows=content["rows"], provenance=content["provenance"])
        joined = module.join(options_of(name)(), [kept]).plain()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{folder / name}.json cannot be read ({error}); {variable}=1 computes it anew") from error
    return Table(analysis=name, rows=joined.rows, provenance=joined.provenance)


def read_shipped(name: str, *, folder: Path = FOLDER) -> dict[str, Any]:
    """The file as it is: analysis, rows, provenance."""
    content: dict[str, Any] = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return content
