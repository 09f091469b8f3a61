"""What a command asks for: what is drawn, from which results, and where the files go."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click

from analyses.running.options import CACHE, UNFINISHED, ZOO
from models.running.command_line import Listed, option

FORMATS = ("pdf", "png", "svg")
RESULTS = Path("results")


@dataclass(frozen=True, kw_only=True)
class Order:
    """The options of the commands."""

    out: Path | None = option(
        None,
        "where the files go (default: results/figures; for pages and reproduce: results; missing directories are made)",
        metavar="DIR",
    )
    format: tuple[str, ...] = option(
        ("pdf", "png"),
        "picture formats, separated by commas: pdf, png, svg (default: pdf,png)",
        metavar="LIST",
        kind=Listed(click.Choice(FORMATS)),
    )
    results: Path | None = option(None, "with results of `python -m analyses --out DIR`", metavar="DIR")
    checkpoints: Path | None = option(
        None, "where to look for checkpoints (default: models/checkpoints)", metavar="DIR"
    )
    cache: Path | None = option(
        None,
        f"where results are kept and reused (default: {CACHE}; for reproduce: cache, in the directory of --out)",
        metavar="DIR",
    )
    jobs: int = option(
        os.cpu_count() or 1, "processes that run analyses (default: one for each core)", metavar="N", least=1
    )
    protocol: Literal["paper", "long", "paper_changed"] | None = option(
        None,
        "draw the runs of this training protocol instead of the main ones (default: the main ones, or, where there "
        "are none below --checkpoints, those that are there)",
    )
    unfinished: bool = option(False, UNFINISHED)
    overwrite: bool = option(False, "replace files that are not earlier figures")

    @property
    def place(self) -> Path:
        """Where the files go."""
        return self.out or RESULTS / "figures"

    @property
    def zoo(self) -> Path:
        """Where the checkpoints are."""
        return self.checkpoints or Path(os.path.relpath(ZOO))

    @property
    def kept(self) -> Path:
        """Where results are kept."""
        return self.cache or CACHE
