"""What the commands write to a terminal: lines on stdout and stderr, and how wide they may be.

Names of files and texts in results may be a stranger's: all that is written is `printable`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from interp.outside import one_line, printable

NARROWEST, WIDTH = 60, 110  # of a line; narrower terminals break lines by themselves
FULL_WIDTH = 10_000  # of a table in a pipe


def page_width() -> int:
    """The terminal's width where there is one (or what COLUMNS says), within limits."""
    return max(NARROWEST, min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns))


def show(text: object) -> None:
    """Write a result to stdout."""
    print(printable(str(text)))


def say(line: str) -> None:
    """Write one line to stderr, above a progress bar where there is one; a closed stderr is ignored."""
    with contextlib.suppress(OSError, ValueError, AttributeError), _bars_hidden():
        print(printable(line), file=sys.stderr, flush=True)


def _bars_hidden() -> contextlib.AbstractContextManager[object]:
    """No progress bar on the terminal inside the block; tqdm is not imported where no bar can be there."""
    if "tqdm" not in sys.modules or sys.stderr is None or not sys.stderr.isatty():
        return contextlib.nullcontext()
    from tqdm import tqdm

    return tqdm.external_write_mode(file=sys.stderr)


def say_loading(what: str) -> None:
    """Say on a terminal what is being loaded: the first import takes seconds without any other output."""
    if sys.stderr is not None and sys.stderr.isatty():
        say(textwrap.shorten(f"loading {what}", page_width() - 4, placeholder="") + " ...")


def error_line(error: BaseException) -> str:
    """The message of an error on one line; files are named as the user gave them."""
    if isinstance(error, MemoryError):
        return "error: not enough memory"
    if isinstance(error, OSError) and error.strerror:
        names = " -> ".join(str(name) for name in (error.filename, error.filename2) if name is not None)
        return f"error: {one_line(f'{names}: {error.strerror}' if names else error.strerror)}"
    return f"error: {one_line(error) or type(error).__name__}"


def discard_output() -> None:
    """After stdout has failed: redirect it to the null device, so that Python's exit does not fail again."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def show_table(columns: Mapping[str, Literal["left", "right"]], rows: Iterable[Sequence[str]]) -> None:
    """Write a table to stdout. In a pipe it has its full width; cells are text, not markup."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name, side in columns.items():
        table.add_column(name, justify=side, overflow="fold")
    for row in rows:
        table.add_row(*(Text(one_line(cell)) for cell in row))
    terminal = sys.stdout is not None and sys.stdout.isatty()
    Console(width=page_width() if terminal else FULL_WIDTH, highlight=False).print(table, soft_wrap=not terminal)
