"""What a figure is: which rows it draws, how, and what its caption says."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from figures.parts.rows import Results, Row, setting_fields
from models.running.command_line import read_entries

FOLDER = Path(__file__).parents[1]


@dataclass(frozen=True, kw_only=True)
class Figure:
    """What a module of one figure says at its top level, under the same names (`figures.running.cli`)."""

    ANALYSES: Mapping[str, Callable[[list[Row]], list[Row]]]
    CLAIMS: tuple[str, ...]
    CAPTION: str
    draw: Callable[[Results], Any]
    fields: Callable[[Results], Mapping[str, object]] = lambda results: setting_fields(next(iter(results.values())))

    def chosen(self, results: Mapping[str, list[Row]]) -> Results:
        """The rows that it draws, of the rows of its analyses."""
        return {name: pick(results[name]) for name, pick in self.ANALYSES.items()}

    def caption(self, results: Results) -> str:
        """The fixed caption with its fields filled in."""
        return self.CAPTION.format(**self.fields(results)) if "{" in self.CAPTION else self.CAPTION


def load_figure(name: str) -> Figure:
    """A figure: of a module that holds several its place in `FIGURES`."""
    module = importlib.import_module(f"figures.{read_entries(FOLDER, marker='LABEL')[name].module}")
    if found := getattr(module, "FIGURES", {}).get(name):
        return found
    return Figure(**{one.name: getattr(module, one.name) for one in fields(Figure) if hasattr(module, one.name)})


def every(rows: list[Row]) -> list[Row]:
    """All rows."""
    return rows
