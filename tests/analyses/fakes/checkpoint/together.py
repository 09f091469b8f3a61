"""All of them."""

from typing import Any

from analyses.running.options import CheckpointOptions
from analyses.running.subject import Subject
from analyses.running.table import Table


def analyse(subject: Subject, options: CheckpointOptions) -> Table:
    return Table(rows=[{"name": subject.name, "length": subject.model.config.length}])


def survey(rows: list[dict[str, Any]], options: CheckpointOptions) -> Table:
    return Table(rows=rows, notes=[f"{len(rows)} of them"])
