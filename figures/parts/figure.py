"""A figure of a module that holds several of one kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from figures.parts.rows import Results


@dataclass(frozen=True, kw_only=True)
class Figure:
    """What a module of one figure says at its top level, under the same names (`figures.running.cli`)."""

    ANALYSES: tuple[str, ...]
    CLAIMS: tuple[str, ...]
    CAPTION: str
    chosen: Callable[[Results], Results]
    draw: Callable[[Results], Any]
    fields: Callable[[Results], dict[str, object]]
