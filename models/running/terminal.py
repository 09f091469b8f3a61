"""What the commands write to a terminal: lines on stdout and stderr, and how wide they may be.

Names of files and texts in results may be a stranger's: all that is written is `printable`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import textwrap

from interp.outside import one_line, printable

NARROWEST, WIDTH = 60, 110  # of a line; narrower terminals break lines by themselves


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
