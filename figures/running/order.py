"""What a command asks for: what is drawn, from which results, and where the files go."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import click

from analyses.running.options import CACHE, UNFINISHED, ZOO
from analyses.running.pool import Engine
from models.running.command_line import Listed, option

FORMATS = ("pdf", "png", "svg")
INCHES = {"in": 1.0, "cm": 1 / 2.54, "mm": 1 / 25.4}
RESULTS = Path("results")


class Size(click.ParamType):
    """Width and height of a picture: 8x3cm, 80x30mm, or 3.1x1.2 in inches. Read as inches."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, float]:
        found = re.fullmatch(r"(\d+\.?\d*)x(\d+\.?\d*)(in|cm|mm)?", str(value))
        width, height = (float(side) * INCHES[found[3] or "in"] for side in found.groups()[:2]) if found else (0.0, 0.0)
        if not 0.5 <= min(width, height) <= max(width, height) <= 50:
            self.fail(f"{value}: expected width and height from 0.5 to 50 inches, as 8x3cm or 6.3x2.4.", param, ctx)
        return width, height


@dataclass(frozen=True, kw_only=True)
class Order(Engine):
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
    size: tuple[float, float] | None = option(
        None,
        "width and height, as 16x11cm or 6.3x4.4 (inches; letters keep their size; default: the figure's own)",
        metavar="WxH",
        kind=Size(),
    )
    dpi: int | None = option(None, "pixels per inch of PNGs (default: 300)", metavar="N", least=20)
    style: Path | None = option(None, "a matplotlib style sheet on top of the suite's own", metavar="FILE")
    standalone: bool = option(False, "put the pictures into index.html instead of beside it")
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
