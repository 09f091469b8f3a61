"""Results that the repository ships, because making them takes minutes and weights that not every machine has.

    analyses/shipped/language_model.json        what `python -m analyses language_model --out analyses/shipped` wrote

A study that says `SHIPPED = "LANGUAGE"` is read from here by `make reproduce` and by the figures, unless that variable
is set in the environment (`LANGUAGE=1 make reproduce`): then it is computed, and kept in the cache as any other. The
command `python -m analyses language_model` always computes. The file's provenance names the weights by their digest,
the commit and the versions that made it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from analyses import answers
from analyses.command import BadInput
from analyses.documents import Document

FOLDER = Path(__file__).parent


def shipped_document(name: str, *, folder: Path = FOLDER) -> Document | None:
    """The shipped result of a study; None where it has to be computed."""
    variable = getattr(answers.load_module(name), "SHIPPED", None)
    if variable is None or os.environ.get(variable, "0") not in ("", "0"):
        return None
    file = folder / f"{name}.json"
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        return Document(analysis=name, rows=content["rows"], provenance=content["provenance"])
    except (OSError, ValueError, KeyError) as error:
        raise BadInput(f"{file} cannot be read ({error}); {variable}=1 computes it anew") from error
