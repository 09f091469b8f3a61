"""What the command lines of analyses and figures share: one-line errors, and listings read from the sources.

Numbers, paths and the end of a command come from `models.running.command`, which `python -m models` uses, too.
"""

from __future__ import annotations

import ast
import contextlib
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from interp.outside import one_line as one_line
from models.running.command import BAD_INPUT as BAD_INPUT
from models.running.command import FAILED as FAILED
from models.running.command import (
    INTERRUPTED,
    READER_GONE,
    discard_output,
    end_output,
    error_line,
    flush_output,
    prepare_output,
)
from models.running.command import MAKES_FOLDERS as MAKES_FOLDERS
from models.running.command import OK as OK
from models.running.command import Parser as Parser
from models.running.command import listed as listed
from models.running.command import number as number
from models.running.command import path as path
from models.running.command import path_text as path_text
from models.running.command import say as say
from models.running.command import say_loading as say_loading
from models.running.command import seed as seed
from models.running.command import show as show
from models.running.command import whole_number as whole_number


class BadInput(Exception):
    """Bad input from the user; the message is one line that says what is wrong."""


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
    """The modules in the folders of a package that assign a string to `marker` at top level, by name."""
    files = sorted(folder.glob("*/*.py"), key=lambda file: file.stem)
    found = {file.stem: _entry(file, file.read_text(encoding="utf-8"), marker) for file in files}
    return {name: entry for name, entry in found.items() if entry is not None}


@functools.cache  # keyed by the text: a process that runs many commands parses each file once
def _entry(file: Path, text: str, marker: str) -> Entry | None:
    try:
        tree = ast.parse(text, filename=str(file))
    except SyntaxError as error:
        raise BadInput(f"{file.name} does not parse: {error}") from error
    entry = None
    for node in tree.body:
        if (
            isinstance(node, ast.Assign)
            and any(isinstance(target, ast.Name) and target.id == marker for target in node.targets)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            entry = Entry(name=file.stem, marker=node.value.value, document=ast.get_docstring(tree) or "")
    return entry


@contextlib.contextmanager
def failing_in_one_line() -> Iterator[None]:
    """Bad input, a full disk or too little memory leave one line on stderr and exit code 2.

    Anything else is a bug and keeps its traceback.
    """
    prepare_output()
    try:
        yield
        flush_output()
    except BrokenPipeError:  # the reader of the pipe, e.g. `head`, has closed it: end without a message
        discard_output()
        raise SystemExit(READER_GONE) from None
    except (BadInput, OSError, MemoryError) as error:
        say(error_line(error))
        end_output()
        raise SystemExit(BAD_INPUT) from None
    except KeyboardInterrupt:
        say("interrupted")
        raise SystemExit(INTERRUPTED) from None
