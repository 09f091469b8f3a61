"""The options of an analysis: a frozen dataclass, from which the command line is made.

    @dataclass(frozen=True, kw_only=True)
    class Options(CheckpointOptions):
        source: Literal["scores", "pattern"] = option("scores", "what to read (default: %(default)s)")
        within: int = option(5, "tokens (default: %(default)s)", least=1)

    Options(within=3)                          in Python
    python -m analyses NAME CKPT --within 3    on the command line

`models.running.command_line` reads the annotations. `place` makes an option that only names paths of files: numbers do
not depend on it, so it is not part of a result's key.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from models.running.command_line import option as option

ROOT = Path(__file__).parents[2]
ZOO = ROOT / "models" / "checkpoints"
CACHE = Path("results") / "cache"
DEFAULT_BATCH = 512
PAPER_LENGTHS = (32, 64, 128, 192, 256, 384, 512, 768, 1024)
UNFINISHED = "also read checkpoints of runs that are unfinished or have diverged"
PRIOR_FORMS = "independent[:ALPHA,...] or hierarchical[:ETA,...[:ETA0]]"

Chosen = TypeVar("Chosen", bound="Options")


def place(default: Any, text: str, *, metavar: str | None = None) -> Any:
    """A field for a path of files; numbers do not depend on it."""
    metadata = option(default, text, metavar=metavar).metadata
    return dataclasses.field(default=default, metadata={**metadata, "place": True})


@dataclass(frozen=True, kw_only=True)
class Options:
    """What every analysis takes; a study needs no more."""

    batch: int = option(DEFAULT_BATCH, "number of sequences (default: %(default)s)", metavar="N", least=1)
    seed: int = option(0, "random seed (default: %(default)s)", metavar="S", least=0)

    def shaping(self) -> dict[str, Any]:
        """The options that the numbers depend on, as JSON, for the key of a result."""
        return {name: _plain(value) for name, value in vars(self).items() if name not in places(type(self))}


@dataclass(frozen=True, kw_only=True)
class RunOptions(Options):
    """What takes checkpoints of training runs."""

    unfinished: bool = place(False, UNFINISHED)  # no place; but the weights alone shape the numbers


@dataclass(frozen=True, kw_only=True)
class CheckpointOptions(RunOptions):
    """What every question to checkpoints takes."""

    prior: str | None = option(
        None,
        f"what the sequences are drawn from: {PRIOR_FORMS}, or repeats[:SHORTEST,LONGEST] (default: the training "
        "record's; hierarchical:5 where there is none)",
        metavar="PRIOR",
    )
    order: int | None = option(
        None, "for a model from file.py:function: k, the number of tokens that are matched", metavar="K"
    )
    vocab: int | None = option(None, "for such a model: number of symbols (default: its whole vocabulary)", metavar="V")
    bos: str | None = option(
        None,
        "for such a model: the id of its BOS token, or none, or first, if its first token acts as BOS (default: none)",
        metavar="ID",
    )
    length: int | None = option(
        None, "for such a model: tokens of a sequence (default: its context, at most 128)", metavar="T"
    )


@dataclass(frozen=True, kw_only=True)
class CachedOptions(Options):
    """A study that keeps its results."""

    cache: Path = place(CACHE, "where results are kept (default: %(default)s)", metavar="DIR")
    no_cache: bool = place(False, "compute everything again and keep nothing")


@dataclass(frozen=True, kw_only=True)
class ZooOptions(CachedOptions, RunOptions):
    """A study that also looks at trained checkpoints."""

    zoo: Path = place(
        ZOO, "directory of trained checkpoints; may be absent (default: models/checkpoints)", metavar="DIR"
    )


@dataclass(frozen=True, kw_only=True)
class ChainOptions(Options):
    """A study that makes chains of its own."""

    order: int = option(2, "order of the chain (default: %(default)s)", metavar="K", least=1)
    vocab: int = option(5, "vocabulary size (default: %(default)s)", metavar="V", least=2)


def places(kind: type[Options]) -> set[str]:
    """The names of the options that are paths of files."""
    return {field.name for field in dataclasses.fields(kind) if field.metadata.get("place")}


def at(options: Chosen, **where: Path | bool) -> Chosen:
    """The options with those of these places that they have."""
    known: dict[str, Any] = {name: path for name, path in where.items() if name in places(type(options))}
    return dataclasses.replace(options, **known)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value
