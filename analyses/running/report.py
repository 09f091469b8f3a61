"""How results are shown: as tables for a terminal or for LaTeX, and as texts that fit the page."""

from __future__ import annotations

import io
import itertools
import os
import re
import textwrap
from collections.abc import Sequence
from typing import Any

from analyses.running.table import flat_rows
from interp.digits import plus_minus
from interp.outside import one_line
from models.running.terminal import page_width

PAGE = 76  # width of a table in a text that is kept: fits 80 columns with its indentation
NARROWEST_TEXT = 24  # least width of a text column
GAP = 2  # between columns

Row = dict[str, Any]


class Estimate(str):
    """A value with its error, as text that stands to the right like a number."""


def render_table(rows: Sequence[Row], *, columns: Sequence[str] = (), width: int | None = None) -> str:
    """An aligned table of at most `width` characters: numbers rounded and to the right, long texts wrapped.

    Shows `columns`, or all, but for texts that are empty in every row; those that do not fit are named below the table.
    Names of columns break after an underscore or a dot where the table is too wide. A value whose standard error is
    among the columns too is shown with it, as 3.434 ± 0.008.
    """
    if not rows:
        return "no rows"
    width = width or page_width()
    cells, numeric = shown_cells(rows, columns)
    heads = {name: [name] for name in cells}
    if sum(max(map(len, (name, *texts))) + GAP for name, texts in cells.items()) - GAP > width:
        heads = {name: head_lines(name, max(map(len, texts))) for name, texts in cells.items()}
    least = {name: max(map(len, (*heads[name], *texts))) for name, texts in cells.items()}
    least |= {name: min(size, max(NARROWEST_TEXT, len(name))) for name, size in least.items() if name not in numeric}
    shown = list(cells)
    while len(shown) > 1 and sum(least[name] + GAP for name in shown) - GAP > width:
        shown.pop()
    text = _grid({name: ("\n".join(heads[name]), cells[name], least[name]) for name in shown}, numeric, width)
    left_out = ", ".join(name for name in cells if name not in shown)
    more = textwrap.shorten(f"(also in --json and --csv: {left_out})", width, placeholder=" …)")
    return f"{text}\n{more}" if left_out else text


def _grid(columns: dict[str, tuple[str, list[str], int]], numeric: set[str], width: int) -> str:
    """The columns side by side: of each the head, the cells, and the least width."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

    grid = Grid(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, GAP - 1, 0, 0))
    for name, (head, _, size) in columns.items():
        number = name in numeric
        side: Any = "right" if number else "left"
        grid.add_column(Text(head), justify=side, min_width=size, no_wrap=number, overflow="fold")
    for texts in zip(*(texts for _, texts, _ in columns.values()), strict=True):
        grid.add_row(*map(Text, texts))
    stream = io.StringIO()
    Console(file=stream, width=width, color_system=None, legacy_windows=False).print(grid)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())


def latex_table(rows: Sequence[Row], *, columns: Sequence[str]) -> str:
    """The table of `rows_text` for LaTeX, which needs the package booktabs."""
    import pandas as pd

    cells, numeric = shown_cells(*comparable(below_one_folder(rows)[1], columns))
    sides = "".join("r" if name in numeric else "l" for name in cells)
    return pd.DataFrame(cells).to_latex(index=False, escape=True, column_format=sides).rstrip("\n")


def shown_cells(rows: Sequence[Row], columns: Sequence[str]) -> tuple[dict[str, list[str]], set[str]]:
    """The texts of each column that is shown, and which columns hold numbers."""
    rows, columns = with_errors(rows, columns)
    known = list(dict.fromkeys(key for row in rows for key in row))
    asked = [name for name in columns if name in known] or known
    asked = [name for name in asked if any(row.get(name) != "" for row in rows)] or asked
    numeric = {name for name in asked if not any(type(row.get(name)) is str for row in rows)}
    return {name: [cell(row.get(name)) for row in rows] for name in asked}, numeric


def below_one_folder(rows: Sequence[Row]) -> tuple[str, list[Row]]:
    """The folder that the rows' checkpoints share, empty where they share none, and the rows with paths below it."""
    paths = [row.get("checkpoint") for row in rows]
    if not all(isinstance(path, str) and os.path.dirname(path) for path in paths) or not paths:
        return "", list(rows)
    folders = [os.path.dirname(str(path)) for path in paths]
    shared = os.path.commonpath(folders) if len({os.path.isabs(folder) for folder in folders}) == 1 else ""
    return shared, [{**row, "checkpoint": os.path.relpath(row["checkpoint"], shared or ".")} for row in rows]


def rows_text(rows: Sequence[Row], *, columns: Sequence[str]) -> str:
    """The rows as a table; of checkpoints with their common folder above it and their warnings below it."""
    shared, named = below_one_folder(rows)
    plain, columns = comparable(named, columns)
    warned = [f"warning: {one_line(row['checkpoint'])}: {row['warning']}" for row in named if row.get("warning")]
    text = "\n".join([render_table(plain, columns=columns), *map(wrapped, warned)])
    return f"checkpoints below {one_line(shared)}/\n\n{text}" if shared else text


def comparable(rows: Sequence[Row], columns: Sequence[str]) -> tuple[list[Row], Sequence[str]]:
    """The rows flat and without warnings; of checkpoints, the columns begin with the checkpoint."""
    plain = flat_rows([{key: value for key, value in row.items() if key != "warning"} for row in rows])
    if columns and any("checkpoint" in row for row in rows):
        columns = tuple(dict.fromkeys(("checkpoint", *columns)))
    return plain, columns


def head_lines(name: str, width: int) -> list[str]:
    """A column's name in lines of at most `width` where breaks after underscores and dots allow it.

    >>> head_lines("last_mass_1", 6), head_lines("position_share", 6), head_lines("lag_1", 3)
    (['last_', 'mass_1'], ['position_', 'share'], ['lag_1'])
    """
    lines = [""]
    for part in re.split(r"(?<=[_.])(?!\d+$)", name):  # a number stays with its word
        if lines[-1] and len(lines[-1]) + len(part) > width:
            lines.append("")
        lines[-1] += part
    return lines


def decimals(value: float | None, places: int = 3) -> Estimate | None:
    """A number with as many decimals as the others of its column; None where there is none.

    >>> decimals(0.5), decimals(None)
    ('0.500', None)
    """
    return None if value is None else Estimate(f"{value:.{places}f}")


def with_errors(rows: Sequence[Row], columns: Sequence[str]) -> tuple[list[Row], list[str]]:
    """The rows and columns with each value and its standard error in one cell.

    The error of kappa is kappa_stderr, that of beta_1 is stderr_1, and a plain stderr is that of the column before it.
    """
    known = dict.fromkeys(key for row in rows for key in row)
    errors = {name: re.sub(r"^beta_(\d+)_stderr$", r"stderr_\1", f"{name}_stderr") for name in known}
    errors = {name: error for name, error in errors.items() if error in known}
    for name, error in itertools.pairwise(columns):
        alike = name.rpartition(".")[0] == error.rpartition(".")[0] and error.rpartition(".")[2] == "stderr"
        if alike and name not in errors and all(isinstance(row.get(name, 0.0), float | None) for row in rows):
            errors[name] = error
    merged = []
    for row in rows:
        joined = {name: estimate(row[name], row.get(error)) for name, error in errors.items() if name in row}
        merged.append({name: joined.get(name, value) for name, value in row.items() if name not in errors.values()})
    return merged, [name for name in columns if name not in errors.values()]


def estimate(value: float | None, error: float | None) -> Estimate:
    """A value with its error; as `cell` shows it where there is no error.

    >>> estimate(3.43412, 0.0081), estimate(0.5, None), estimate(None, 0.1)
    ('3.434 ± 0.008', '0.5', '-')
    """
    return Estimate(cell(value) if value is None or not error else plus_minus(value, error))


def cell(value: Any) -> str:
    """A value as the table shows it: numbers with four significant digits."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "NO"
    if isinstance(value, float):
        return f"{value:.4g}" if value == 0 or 1e-3 <= abs(value) < 1e5 else f"{value:.1e}"
    return one_line(value)


def heading(text: str) -> str:
    """The text, cut at the page's width and underlined."""
    text, width = one_line(text), page_width()
    text = text if len(text) <= width else f"{text[: width - 1]}…"
    return f"{text}\n{'-' * len(text)}"


def fitted(text: str) -> str:
    """The text with long lines broken at a space; the rest of a broken line is indented."""

    def broken(line: str) -> str:
        below = " " * (len(line) - len(line.lstrip()) + 4)
        return textwrap.fill(
            line, page_width(), subsequent_indent=below, break_long_words=False, break_on_hyphens=False
        )

    return "\n".join(broken(line) if len(line) > page_width() else line for line in text.split("\n"))


def wrapped(note: str) -> str:
    """A paragraph of the page's width."""
    return textwrap.fill(note, page_width(), subsequent_indent="  ")
