"""What an analysis found: a `Table` of rows with their origin, whoever asks for it.

A study returns one, the cache keeps it, processes send it, the command line shows it, and figures draw its rows.
"""

from __future__ import annotations

import dataclasses
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from analyses.running.files import write_file

MAX_VECTOR = 16
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")


@dataclass(frozen=True, kw_only=True)
class Table:
    """The rows that were found, for one checkpoint, one piece of a study, or all that was asked.

    rows        JSON-able dicts with the same keys: one for each checkpoint, or the rows of a study
    provenance  where the numbers come from, as `interp.provenance` makes it, with the options that shaped them
    analysis    its name
    shown       the columns to print in a terminal, in this order; all that fit, if empty
    notes       lines to print below the table: what was found
    failures    what makes the command exit with 1, a line each
    text        what a terminal shows in place of the rows and notes; of one checkpoint, the result as it prints itself
    about       of one checkpoint, what it is
    tidy        the rows of the results' own tables; None for studies, whose rows are their table
    errors      for each checkpoint that was not read: checkpoint, error, and whether its run is only `unfinished`
    seconds     of processor time that it took
    """

    rows: Sequence[dict[str, Any]] = ()
    provenance: dict[str, Any] = field(default_factory=dict, repr=False)
    analysis: str = ""
    shown: Sequence[str] = ()
    notes: Sequence[str] = ()
    failures: Sequence[str] = ()
    text: str = ""
    about: str = ""
    tidy: Sequence[dict[str, Any]] | None = None
    errors: Sequence[dict[str, Any]] = ()
    seconds: float = 0.0

    def plain(self) -> Table:
        """The same with rows, tidy rows and provenance as JSON has them."""
        from interp.results import jsonable

        def plain(rows: Iterable[dict[Any, Any]]) -> list[dict[str, Any]]:
            return [jsonable({str(name): value for name, value in row.items()}) for row in rows]

        tidy = None if self.tidy is None else plain(self.tidy)
        return dataclasses.replace(self, rows=plain(self.rows), tidy=tidy, provenance=jsonable(self.provenance))

    def content(self) -> dict[str, Any]:
        """The JSON object."""
        found = {"analysis": self.analysis, "rows": list(self.rows), "provenance": self.provenance}
        return {**found, "errors": list(self.errors)} if self.errors else found

    def csv(self) -> str:
        """The rows as CSV; vectors become columns, larger arrays are left to the JSON."""
        return csv_text(self.analysis, flat_rows(self.rows))

    def write(self, out: Path) -> None:
        """NAME.json, NAME.csv and, for checkpoints, NAME_tidy.csv."""
        write_file(out / f"{self.analysis}.json", json_text(self.content()) + "\n")
        write_file(out / f"{self.analysis}.csv", self.csv())
        if self.tidy is not None:
            write_file(out / f"{self.analysis}_tidy.csv", csv_text(self.analysis, self.tidy))


def gathered(tables: Sequence[Table], *, origin: Mapping[str, Any] | None = None, **more: Any) -> Table:
    """The rows, notes and failures of the parts of a study as one table; its origin is the first one's and `origin`."""
    notes = [*(note for one in tables for note in one.notes), *more.pop("notes", ())]
    return Table(
        rows=[row for one in tables for row in one.rows],
        provenance={**(tables[0].provenance if tables else {}), **(origin or {})},
        notes=notes,
        failures=[failure for one in tables for failure in one.failures],
        **more,
    )


def flat_rows(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of scalars: `beta: [x, y]` becomes beta_1, beta_2, `a: {b: x}` becomes a.b; bigger arrays go."""
    return [_flat(row) for row in rows]


def _flat(row: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in row.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            if key != "provenance":
                flat.update(_flat(value, f"{name}."))
        elif isinstance(value, (list, tuple)):
            scalars = not any(isinstance(item, (list, tuple, dict)) for item in value)
            if scalars and 0 < len(value) <= MAX_VECTOR:
                flat.update({f"{name}_{place}": item for place, item in enumerate(value, start=1)})
        else:
            flat[name] = value
    return flat


def csv_text(name: str, rows: Sequence[dict[str, Any]]) -> str:
    """The rows as CSV, with the analysis in the first column, so that a file says what it is.

    A text that a spreadsheet would run as a formula gets an apostrophe in front, which spreadsheets do not show.
    """
    import pandas as pd

    table = pd.DataFrame([{key: _harmless(value) for key, value in row.items()} for row in rows])
    if "analysis" in table.columns:
        table.insert(0, "analysis", table.pop("analysis"))
    else:
        table.insert(0, "analysis", name)
    buffer = io.StringIO()
    table.to_csv(buffer, index=False, lineterminator="\n")
    return buffer.getvalue()


def _harmless(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA_STARTS) else value


def json_text(document: dict[str, Any]) -> str:
    """Indented JSON with every list of plain values on one line, so that matrices stay readable and small."""
    text = json.dumps(document, indent=1, allow_nan=False)
    text = text.replace("\x7f", "\\u007f")  # the one control character that `dumps` leaves as it is
    return re.sub(r'\[[^][{}"]*\]', lambda found: " ".join(found[0].split()), text)
