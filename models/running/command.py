"""What the command lines share: numbers and paths as arguments, one-line errors, and how a command ends.

`python -m models`, `python -m analyses` and `python -m figures` all use this. A number is written in plain digits:
Python itself would also accept digits of other scripts, underscores, nan and inf.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from interp.outside import as_path, one_line, printable, shown
from models.running.interrupt import INTERRUPTED as INTERRUPTED
from models.running.suggest import with_suggestion

OK, FAILED, BAD_INPUT, READER_GONE = 0, 1, 2, 141

WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]{1,4})?", re.IGNORECASE)
MOST_DIGITS = 400
MAX_SIZE = 10**9  # largest whole number on a command line, unless an option has a lower limit
WIDTH = 110  # of the output where the terminal is wider, or where there is none
MAKES_FOLDERS = "missing directories are made"  # in the help of every option that names an output directory
NARROWEST = 60  # a terminal narrower than this breaks lines by itself


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        said = with_suggestion(message, options=list(self._option_string_actions))
        more = "" if said.endswith("?") else f" (see {self.prog} --help)"
        self.exit(BAD_INPUT, f"error: {one_line(said)}{more}\n")


def page_width() -> int:
    """The terminal's width where there is one (or what COLUMNS says), within limits."""
    return max(NARROWEST, min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns))


def listed(name: str, text: str, *, names: int) -> str:
    """A line of a listing, with a column of `names` characters for the name; long text continues below, indented."""
    start = f"  {one_line(name):<{names}}  "
    return textwrap.fill(one_line(text), page_width(), initial_indent=start, subsequent_indent=" " * len(start))


def whole_number(least: int, most: int = MAX_SIZE) -> Callable[[str], int]:
    """An argparse type: an integer from `least` to `most`."""

    def parse(text: str) -> int:
        value = int(text) if WHOLE.fullmatch(text) else None
        if value is None or value < least:
            raise argparse.ArgumentTypeError(f"expected a whole number >= {least}, got {shown(text)}")
        if value > most:
            raise argparse.ArgumentTypeError(f"expected a whole number of at most {most}, got {shown(text)}")
        return value

    return parse


def seed(text: str) -> int:
    """An argparse type: a seed."""
    return whole_number(0, 10**18)(text)


def number(text: str) -> float:
    """An argparse type: a finite number."""
    value = float(text) if len(text) <= MOST_DIGITS and DECIMAL.fullmatch(text) else float("inf")
    if value in (float("inf"), float("-inf")):
        raise argparse.ArgumentTypeError(f"expected a finite number, got {shown(text)}")
    return value


def positive_number(text: str) -> float:
    """An argparse type: a finite number > 0."""
    value = number(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"expected a number > 0, got {shown(text)}")
    return value


def number_list(text: str) -> list[float]:
    """An argparse type: finite numbers with commas between them."""
    try:
        return [number(part) for part in text.split(",")]
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"expected numbers separated by commas, got {shown(text)}") from None


def path(text: str) -> Path:
    """An argparse type: a path that a file system can hold."""
    try:
        return as_path(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(one_line(error)) from None


def path_text(text: str) -> str:
    """An argparse type: a path that a file system can hold, as the text that was given."""
    path(text)
    return text


def show(text: object) -> None:
    """Write a result to stdout, `printable`: names of files and texts in them may be a stranger's."""
    print(printable(str(text)))


def say(line: str) -> None:
    """Write one line to stderr, `printable`, above a progress bar where there is one; a closed stderr is ignored."""
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


def prepare_output() -> None:
    """Escape characters that the terminal's encoding does not have, instead of raising an error."""
    with contextlib.suppress(AttributeError, OSError, ValueError):
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def flush_output() -> None:
    """Flush what was printed. A full disk or a closed pipe raises its error here at the latest."""
    if sys.stdout is not None:
        sys.stdout.flush()


def end_output() -> None:
    """After an error: flush stdout; if stdout itself has failed, discard what is left."""
    try:
        flush_output()
    except OSError:
        discard_output()


def discard_output() -> None:
    """After stdout has failed: redirect it to the null device, so that Python's exit does not fail again."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
