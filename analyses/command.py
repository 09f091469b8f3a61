"""What the command lines share: one-line errors, listings read from the sources without importing them, option types.

`python -m analyses` and `python -m figures` both stand on this.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from models.suggest import with_suggestion

OK, FAILED, BAD_INPUT = 0, 1, 2


class BadInput(Exception):
    """Something the user gave is wrong; the message is one line that says what."""


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_INPUT, f"error: {with_suggestion(message)} (see {self.prog} --help)\n")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One module of a package, as its source says: the marker's value and the docstring."""

    name: str
    marker: str
    document: str

    @property
    def summary(self) -> str:
        """The docstring's first line."""
        return self.document.partition("\n")[0].rstrip(".")


def read_entries(folder: Path, *, marker: str) -> dict[str, Entry]:
    """The modules of a package folder that assign a string to `marker` at top level, by name."""
    entries = {}
    for file in sorted(folder.glob("*.py")):
        try:
            tree = ast.parse(file.read_text(encoding="utf-8"), filename=str(file))
        except SyntaxError as error:
            raise BadInput(f"{file.name} does not parse: {error}") from error
        for node in tree.body:
            if (
                isinstance(node, ast.Assign)
                and any(isinstance(target, ast.Name) and target.id == marker for target in node.targets)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
            ):
                entries[file.stem] = Entry(
                    name=file.stem, marker=node.value.value, document=ast.get_docstring(tree) or ""
                )
    return entries


def whole_number(lowest: int) -> Callable[[str], int]:
    """An argparse type: an integer that is at least `lowest`."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = lowest - 1
        if value < lowest:
            raise argparse.ArgumentTypeError(f"expected a whole number >= {lowest}, got {text!r}")
        return value

    return parse


@contextlib.contextmanager
def failing_in_one_line() -> Iterator[None]:
    """Bad input leaves one line on stderr and exit code 2. Anything else is a bug and keeps its traceback."""
    try:
        yield
        sys.stdout.flush()
    except BadInput as error:
        say(f"error: {one_line(error)}")
        raise SystemExit(BAD_INPUT) from None
    except KeyboardInterrupt:
        say("interrupted")
        raise SystemExit(130) from None
    except BrokenPipeError:  # the reader, e.g. `head`, has gone: nothing is left to say
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(141) from None


def one_line(message: object) -> str:
    """The message with its line breaks folded."""
    return " ".join(str(message).split())


def say(line: str) -> None:
    """One line on stderr."""
    print(line, file=sys.stderr, flush=True)
