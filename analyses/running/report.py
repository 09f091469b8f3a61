"""How results are shown in a terminal: tables and texts that fit it."""

from __future__ import annotations

import itertools
import os
import re
import textwrap
from collections.abc import Sequence
from typing import Any

from analyses.running.table import flat_rows
from interp.digits import plus_minus
from interp.outside import one_line
from models.running.terminal import WIDTH as WIDTH
from models.running.terminal import page_width as page_width

PAGE = 76  # width of a table in a text that is kept: fits 80 columns with its indentation
NARROWEST_TEXT = 24  # least width of a text column


def render_table(rows: Sequence[dict[str, Any]], *, columns: Sequence[str] = (), width: int | None = None) -> str:
    """An aligned table of at most `width` characters: numbers rounded and to the right, long texts wrapped.

    Shows `columns`, or all, but for texts that are empty in every row; those that do not fit are named below the table.
    Names of columns break after an underscore or a dot where the table is too wide. A value whose standard error is
    among the columns too is shown with it, as 3.434 ± 0.008.
    """
    if not rows:
        return "no rows"
    width = page_width() if width is None else width
    rows, columns = with_errors(rows, columns)
    known = list(dict.fromkeys(key for row in rows for key in row))
    asked = [name for name in columns if name in known] or known
    asked = [name for name in asked if any(row.get(name) != "" for row in rows)] or asked
    cells = {name: [cell(row.get(name)) for row in rows] for name in asked}
    numeric = {name: not any(type(row.get(name)) is str for row in rows) for name in asked}
    heads = {name: [name] for name in asked}
    if sum(max(len(name), *map(len, cells[name])) + 2 for name in asked) - 2 > width:
        heads = {name: head_lines(name, max(map(len, cells[name]))) for name in asked}
    natural = {name: max(map(len, (*heads[name], *cells[name]))) for name in asked}
    sizes = {
        name: size if numeric[name] else min(size, max(len(name), NARROWEST_TEXT)) for name, size in natural.items()
    }
    shown = list(asked)
    while len(shown) > 1 and sum(sizes[name] + 2 for name in shown) - 2 > width:
        shown.pop()
    for name in shown:  # the remaining width goes to the text columns
        room = width + 2 - sum(sizes[other] + 2 for other in shown)
        sizes[name] += max(0, min(natural[name] - sizes[name], room))

    def line(parts: dict[str, str]) -> str:
        return "  ".join(
            f"{parts[name]:>{sizes[name]}}" if numeric[name] else f"{parts[name]:<{sizes[name]}}" for name in shown
        ).rstrip()

    high = max(len(heads[name]) for name in shown)
    above = {name: [""] * (high - len(heads[name])) + heads[name] for name in shown}
    lines = [line({name: above[name][part] for name in shown}) for part in range(high)]
    lines.append(line({name: "-" * sizes[name] for name in shown}))
    for place in range(len(rows)):
        split = {name: cell_lines(cells[name][place], sizes[name]) for name in shown}
        for part in range(max(map(len, split.values()))):
            lines.append(line({name: split[name][part] if part < len(split[name]) else "" for name in shown}))
    if left_out := [name for name in asked if name not in shown]:
        lines.append(left_out_line(left_out, width))
    return "\n".join(lines)


def rows_text(rows: Sequence[dict[str, Any]], *, columns: Sequence[str]) -> str:
    """The rows as a table; of checkpoints with their common folder above it and their warnings below it."""
    if not rows or not all(isinstance(row.get("checkpoint"), str) for row in rows):
        return render_table(flat_rows(rows), columns=columns)
    paths = [row["checkpoint"] for row in rows]
    folders = [os.path.dirname(path) for path in paths]
    alike = all(folders) and len({os.path.isabs(folder) for folder in folders}) == 1
    shared = os.path.commonpath(folders) if alike else ""
    short = [one_line(path[len(shared) + 1 :] if shared else path) for path in paths]
    named = [
        {**{key: value for key, value in row.items() if key != "warning"}, "checkpoint": name}
        for row, name in zip(rows, short, strict=True)
    ]
    table = render_table(flat_rows(named), columns=tuple(dict.fromkeys(("checkpoint", *columns))) if columns else ())
    warned = [f"warning: {name}: {row['warning']}" for row, name in zip(rows, short, strict=True) if row.get("warning")]
    text = "\n".join([table, *map(wrapped, warned)])
    return f"checkpoints below {one_line(shared)}/\n\n{text}" if shared else text


def left_out_line(names: Sequence[str], width: int) -> str:
    """The columns that did not fit: as many names as one line holds, and the number of the others.

    >>> left_out_line(["kappa", "r2"], 60), left_out_line(["kappa", "r2", "position_share", "token_share"], 60)
    ('(also in --json and --csv: kappa, r2)', '(also in --json and --csv: kappa, r2, and 2 more)')
    """
    for most in range(len(names), 0, -1):
        more = f", and {len(names) - most} more" if most < len(names) else ""
        line = f"(also in --json and --csv: {', '.join(names[:most])}{more})"
        if len(line) <= width:
            return line
    return clipped(f"(also in --json and --csv: {len(names)} more columns)", width)


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


class Estimate(str):
    """A value with its error, as text that stands to the right like a number."""


def decimals(value: float | None, places: int = 3) -> Estimate | None:
    """A number with as many decimals as the others of its column; None where there is none.

    >>> decimals(0.5), decimals(None)
    ('0.500', None)
    """
    return None if value is None else Estimate(f"{value:.{places}f}")


def with_errors(rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> tuple[list[dict[str, Any]], list[str]]:
    """The rows and columns with each value and its standard error in one cell."""
    known = dict.fromkeys(key for row in rows for key in row)
    errors = {name: error for name in known if (error := error_column(name)) in known}
    for name, error in itertools.pairwise(columns):  # a plain stderr is that of the column before it
        alike = name.rpartition(".")[0] == error.rpartition(".")[0] and error.rpartition(".")[2] == "stderr"
        if alike and name not in errors and all(isinstance(row.get(name, 0.0), float | None) for row in rows):
            errors[name] = error
    merged = []
    for row in rows:
        joined = {name: Estimate(estimate(row[name], row.get(error))) for name, error in errors.items() if name in row}
        merged.append({name: joined.get(name, value) for name, value in row.items() if name not in errors.values()})
    return merged, [name for name in columns if name not in errors.values()]


def error_column(name: str) -> str:
    """Where the standard error of a column stands: kappa_stderr, and stderr_1 for beta_1."""
    return name.replace("beta_", "stderr_", 1) if re.fullmatch(r"beta_\d+", name) else f"{name}_stderr"


def estimate(value: float | None, error: float | None) -> str:
    """A value with its error; as `cell` shows it where there is no error.

    >>> estimate(3.43412, 0.0081), estimate(0.5, None), estimate(None, 0.1)
    ('3.434 ± 0.008', '0.5', '-')
    """
    return cell(value) if value is None or not error else plus_minus(value, error)


def cell(value: Any) -> str:
    """A value as the table shows it: numbers with four significant digits."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "NO"
    if isinstance(value, float):
        return f"{value:.4g}" if value == 0 or 1e-3 <= abs(value) < 1e5 else f"{value:.1e}"
    return one_line(value)


def cell_lines(text: str, width: int) -> list[str]:
    """The text in lines of at most `width`; a word that is too long, such as a path, breaks after a slash if it can."""
    words = ["\n".join(path_parts(word, width)) if len(word) > width else word for word in text.split()]
    return [line for part in " ".join(words).split("\n") for line in textwrap.wrap(part, width)] or [""]


def path_parts(path: str, width: int) -> list[str]:
    """As few parts of at most `width` as possible, broken after slashes; a longer name is broken anywhere."""
    parts = [""]
    for step in re.findall("[^/]*/|[^/]+", path):
        for piece in (step[start : start + width] for start in range(0, len(step), width)):
            if len(parts[-1]) + len(piece) > width:
                parts.append("")
            parts[-1] += piece
    return parts


def clipped(line: str, width: int | None = None) -> str:
    """The line, cut at the page's width."""
    width = page_width() if width is None else width
    return line if len(line) <= width else line[: width - 1] + "…"


def heading(text: str) -> str:
    """The text, underlined."""
    text = clipped(one_line(text))
    return f"{text}\n{'-' * len(text)}"


def indented(text: str) -> str:
    """Two spaces before every line."""
    return textwrap.indent(text, "  ")


def fitted(text: str) -> str:
    """The text with long lines broken at a space; the rest of a broken line is indented."""
    lines = []
    for line in text.split("\n"):
        start = line[: len(line) - len(line.lstrip())]
        lines += (
            textwrap.wrap(
                line.lstrip(),
                page_width(),
                initial_indent=start,
                subsequent_indent=f"{start}    ",
                break_long_words=False,
                break_on_hyphens=False,
            )
            if len(line) > page_width()
            else [line]
        )
    return "\n".join(lines)


def wrapped(note: str) -> str:
    """A paragraph of the page's width."""
    return textwrap.fill(note, page_width(), subsequent_indent="  ")
