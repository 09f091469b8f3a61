"""The options of an analysis: a frozen dataclass, from which the command line is made.

    @dataclass(frozen=True, kw_only=True)
    class Options(CheckpointOptions):
        source: Literal["scores", "pattern"] = option("scores", "what to read (default: %(default)s)")
        within: int = option(5, "tokens (default: %(default)s)", least=1)

    Options(within=3)                          in Python
    python -m analyses NAME CKPT --within 3    on the command line

The annotation says how an option is read: `bool` is a switch, `Literal` a choice, `tuple[X, ...]` takes several values,
an `int` is a whole number of at least `least`. `subject` makes an option that is given without a flag: what a study is
about. `place` makes an option that only names paths of files: numbers do not depend on it, so it is not part of a
result's key.
"""

from __future__ import annotations

import argparse
import dataclasses
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from analyses.running.command import number, path, seed, whole_number

ROOT = Path(__file__).parents[2]
ZOO = ROOT / "models" / "checkpoints"
CACHE = Path("results") / "cache"
DEFAULT_BATCH = 512
PAPER_LENGTHS = (32, 64, 128, 192, 256, 384, 512, 768, 1024)
UNFINISHED = "also read checkpoints of runs that are unfinished or have diverged"
PRIOR_FORMS = "independent[:ALPHA,...] or hierarchical[:ETA,...[:ETA0]]"

Chosen = TypeVar("Chosen", bound="Options")


def option(default: Any, text: str, *, metavar: str | None = None, least: int | None = None) -> Any:
    """A field of an options class. `%(default)s` in the text stands for the default."""
    return dataclasses.field(default=default, metadata={"help": text, "metavar": metavar, "least": least})


def subject(default: Any, text: str, *, metavar: str) -> Any:
    """A field that is given without a flag: what a study is about."""
    return dataclasses.field(default=default, metadata={"help": text, "metavar": metavar, "positional": True})


def place(default: Any, text: str, *, metavar: str | None = None) -> Any:
    """A field for a path of files; numbers do not depend on it."""
    return dataclasses.field(default=default, metadata={"help": text, "metavar": metavar, "place": True})


@dataclass(frozen=True, kw_only=True)
class Options:
    """What every analysis takes; a study needs no more."""

    batch: int = option(DEFAULT_BATCH, "number of sequences (default: %(default)s)", metavar="N", least=1)
    seed: int = option(0, "random seed (default: %(default)s)", metavar="S", least=0)

    def shaping(self) -> dict[str, Any]:
        """The options that the numbers depend on, as JSON, for the key of a result."""
        return {name: value for name, value in self.described().items() if name not in places(type(self))}

    def described(self) -> dict[str, Any]:
        """Every option as JSON."""
        return {name: _plain(value) for name, value in vars(self).items()}


@dataclass(frozen=True, kw_only=True)
class RunOptions(Options):
    """What takes checkpoints of training runs."""

    unfinished: bool = place(False, UNFINISHED)  # no place; but the weights alone shape the numbers


@dataclass(frozen=True, kw_only=True)
class CheckpointOptions(RunOptions):
    """What every question to checkpoints takes."""

    prior: str | None = option(
        None,
        f"what the sequences are drawn from: {PRIOR_FORMS} (default: the training record's; hierarchical:5 where there "
        "is none)",
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


def add_arguments(parser: argparse.ArgumentParser, kind: type[Options]) -> None:
    """An argument for each option."""
    hints = get_type_hints(kind)
    for field in dataclasses.fields(kind):
        words = field.metadata
        text = words["help"].replace("%(default)s", _shown(field.default))
        flag = f"--{field.name.replace('_', '-')}"
        if words.get("positional"):
            parser.add_argument(field.name, nargs="?", default=field.default, help=text, metavar=words["metavar"])
        elif hints[field.name] is bool:
            parser.add_argument(flag, action="store_true", help=text)
        else:
            reading = _reading(hints[field.name], least=words.get("least"), metavar=words["metavar"])
            parser.add_argument(flag, default=field.default, help=text, **reading)


def read_options(kind: type[Chosen], given: argparse.Namespace) -> Chosen:
    """The options of this kind among what the command line gave."""
    values = {field.name: getattr(given, field.name) for field in dataclasses.fields(kind)}
    fixed: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    return kind(**fixed)


def places(kind: type[Options]) -> set[str]:
    """The names of the options that are paths of files."""
    return {field.name for field in dataclasses.fields(kind) if field.metadata.get("place")}


def at(options: Chosen, **where: Path | bool) -> Chosen:
    """The options with those of these places that they have."""
    known: dict[str, Any] = {name: path for name, path in where.items() if name in places(type(options))}
    return dataclasses.replace(options, **known)


def _reading(hint: Any, *, least: int | None, metavar: str | None) -> dict[str, Any]:
    """How argparse reads a value of this type."""
    if get_origin(hint) is UnionType:
        (hint,) = (inner for inner in get_args(hint) if inner is not NoneType)
    if get_origin(hint) is Literal:
        return {"choices": get_args(hint)}
    if get_origin(hint) is tuple:
        return {**_reading(get_args(hint)[0], least=least, metavar=metavar), "nargs": "+"}
    if hint is int:
        return {"type": seed if metavar == "S" else whole_number(0 if least is None else least), "metavar": metavar}
    return {"type": {float: number, Path: path}.get(hint, hint), "metavar": metavar}


def _shown(default: Any) -> str:
    if isinstance(default, tuple):
        return " ".join(map(_shown, default))
    return f"{default:g}" if isinstance(default, float) else str(default)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value
