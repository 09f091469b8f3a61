"""What the command lines share: numbers and paths as arguments, one-line errors, and how a command ends.

`python -m models`, `python -m analyses` and `python -m figures` all use this. A number is written in plain digits:
Python itself would also accept digits of other scripts, underscores, nan and inf.
"""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from interp.outside import as_path, one_line, shown
from models.running.command_line import BAD_INPUT
from models.running.suggest import with_suggestion
from models.running.terminal import page_width

WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]{1,4})?", re.IGNORECASE)
MOST_DIGITS = 400
MAX_SIZE = 10**9
MAKES_FOLDERS = "missing directories are made"  # in the help of every option that names an output directory


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        said = with_suggestion(message, options=list(self._option_string_actions))
        more = "" if said.endswith("?") else f" (see {self.prog} --help)"
        self.exit(BAD_INPUT, f"error: {one_line(said)}{more}\n")


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
