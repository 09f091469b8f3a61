"""What every instrument returns: frozen results with a text, a table, a plot, a JSON record and their provenance.

A result class adds its own fields (estimates, their `stderr`, `n`) to the three of `Result`, a `title`, and says which
fields and which columns of its table its text has (`NUMBERS`, `SHOWN`). It gives a tidy DataFrame from `.table()`, at
most eight lines from `str()`, one panel from `.plot()`, and the same content as one JSON-able dict from `.record()`. A
class whose rows have names derives from `NamedRows`.

All standard errors and intervals come from here (`mean_stderr`, `share_recovered`, `interval`), so that they agree.
`benchmarks/coverage.py` measures how often intervals hold the truth.
"""

from __future__ import annotations

import functools
import math
import platform
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from html import escape
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from interp.arguments import Number, Numbers, finite_number, real_array
from interp.digits import plus_minus

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from pandas import DataFrame as DataFrame

    Values: TypeAlias = Numbers | Sequence[Number]
else:
    Axes = DataFrame = Values = Any  # so that reading a module of results loads neither matplotlib nor pandas

Row = TypeVar("Row")

TRACED_PACKAGES = ("torch", "transformer-lens", "numpy", "numba")
MOST_LINES = 8  # of a result's text
MOST_ROWS = 30  # of a table in a notebook
# Of a denominator, in standard errors: nearer to zero, the 95% interval of a ratio has no bounds (Fieller's theorem).
CLEAR_ERRORS = 2.0


@dataclass(frozen=True, kw_only=True)
class Result(ABC):
    """Base of every result object. Its fields come last in a record, after those of the class.

    success      whether the numbers can be trusted; estimates that cannot be trusted are NaN
    message      why they cannot be trusted, or a remark on them
    provenance   seed, checkpoint, versions and commit, as the function `provenance` gives them
    """

    DOUBT: ClassVar[str] = "not to be trusted"  # what is said of a result without success; the message gives the reason
    NUMBERS: ClassVar[tuple[str, ...]] = ()  # fields that the text has, each with its `_stderr` where there is one
    SHOWN: ClassVar[tuple[str, ...]] = ()  # columns of the table that the text has; all of them where none is named

    success: bool = True
    message: str = ""
    provenance: dict[str, Any] = field(default_factory=dict)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__repr__" not in cls.__dict__:  # otherwise the dataclass decorator, which runs later, would write its own
            cls.__repr__ = Result.__repr__  # type: ignore[method-assign]

    @abstractmethod
    def table(self) -> DataFrame:
        """The estimates as a tidy table, one row per estimate."""

    @property
    def title(self) -> str:
        """The first line of the text, and of the picture: what was measured, on what, and what came out."""
        return type(self).__name__

    def lines(self) -> list[str]:
        """Lines of the text below its first: the known ones of `NUMBERS`, and as much of the table as has room."""
        known = {name: value for name in self.NUMBERS if (value := getattr(self, name)) is not None and value == value}
        told = (plus_minus(value, getattr(self, f"{name}_stderr", None)) for name, value in known.items())
        numbers, table = [", ".join(map("{} {}".format, known, told))] if known else [], self.shown()
        room = MOST_LINES - len(numbers) - len(self.remarks()) - 2  # without the first line and the table's head
        rows = len(table) if len(table) <= room else room - 1
        text = table.head(rows).to_string(index=False, float_format=_cell_text, na_rep="-").splitlines()
        return [*numbers, *(text if rows else []), *([f"and {len(table) - rows} more"] if len(table) > rows else [])]

    def shown(self) -> DataFrame:
        """The table of the text."""
        table = self.table()
        return table[list(self.SHOWN or table.columns)]

    def plot(self, ax: Axes | None = None) -> Axes:
        """The result as one panel, on `ax` or on a new figure. It draws what the result holds and computes nothing."""
        raise NotImplementedError(f"{type(self).__name__} has no plot; its numbers are in .table()")

    def record(self) -> dict[str, Any]:
        """All fields as JSON-able values, those of the class first; NaN and infinities become None."""
        common = {one.name: getattr(self, one.name) for one in fields(Result)}
        own = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in common}
        return jsonable(own | common)  # type: ignore[no-any-return]

    @property
    def doubt(self) -> str:
        """Why the result is not to be trusted; empty where it is."""
        return "" if self.success else f"{self.DOUBT}: {self.message}"

    def remarks(self) -> list[str]:
        """The last line of the text: why the result cannot be trusted, or else the message; empty without either."""
        remark = self.doubt or self.message
        return [f"  {remark}"] if remark else []

    def __str__(self) -> str:
        return "\n".join([self.title, *(f"  {line}" for line in self.lines()), *self.remarks()])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        """For notebooks: the first line of the text, the message, and the table."""
        table = self.table()
        doubt = f'<p style="color: #c1121f"><b>{escape(self.doubt)}</b></p>'
        cells = table.astype(object).where(table.notna(), "-")
        more = f"<p>{MOST_ROWS} of {len(table)} rows; <code>.table()</code> has them all</p>"
        return "\n".join(
            [
                f"<p><b>{escape(self.title)}</b></p>",
                doubt if self.doubt else f"<p>{escape(self.message)}</p>" if self.message else "",
                cells.to_html(index=False, max_rows=MOST_ROWS, border=0, formatters=[_cell_text] * len(table.columns)),
                more if len(table) > MOST_ROWS else "",
            ]
        )


@dataclass(frozen=True, kw_only=True)
class NamedRows(Result, Generic[Row]):
    """A result whose rows have names: `tests["law"]` is a row, and `list(tests)` names all."""

    ROWS: ClassVar[str]  # the field that holds the rows
    NAME: ClassVar[str]  # the field of a row that is its name
    NOUN: ClassVar[str]  # what a row is called in an error message
    FIRST: ClassVar[tuple[tuple[str, str], ...]] = ()  # (name in the record, field): what opens the record, by row

    def __getitem__(self, name: str) -> Row:
        for row in getattr(self, self.ROWS):
            if getattr(row, self.NAME) == name:
                return row  # type: ignore[no-any-return]
        raise KeyError(f"no {self.NOUN} {name!r}; there are {', '.join(self)}")

    def __iter__(self) -> Iterator[str]:
        return (getattr(row, self.NAME) for row in getattr(self, self.ROWS))

    def table(self) -> DataFrame:
        """One row per named row; the columns are its fields."""
        return rows_table(getattr(self, self.ROWS))

    def record(self) -> dict[str, Any]:
        """The fields, after those of the rows that are asked for most, by the row's name."""
        rows = zip(self, getattr(self, self.ROWS), strict=True)
        named = dict(rows)
        first = {name: {row: getattr(one, of) for row, one in named.items()} for name, of in self.FIRST}
        return jsonable(first) | super().record()  # type: ignore[no-any-return]


def _cell_text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, (float, np.floating)) else str(value)


def rows_table(rows: Sequence[Any], kind: type[Any] | None = None) -> DataFrame:
    """A table of dataclass objects, a row each and a column per field; `kind` is their class, if there may be none."""
    names = [one.name for one in fields(kind or type(rows[0]))]
    return frame({name: [getattr(row, name) for row in rows] for name in names})


def frame(columns: Mapping[str, Any]) -> DataFrame:
    """A table of these columns."""
    import pandas as pd

    return pd.DataFrame(dict(columns))


def counted(number: int, noun: str, plural: str = "") -> str:
    """A number of things: "1 query", "3 queries".

    >>> counted(1, "query", "queries"), counted(3, "head")
    ('1 query', '3 heads')
    """
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def jsonable(value: Any) -> Any:
    """Tensors and arrays as nested lists, dataclasses as dicts, non-finite numbers as None."""
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: jsonable(getattr(value, one.name)) for one in fields(value)}
    return str(value) if isinstance(value, Path) else value


def mean_stderr(values: Values, *, clusters: Values | None = None) -> tuple[float, float]:
    """The mean of `values` and its standard error; within `clusters` (a label for each value) errors may correlate.

    With one cluster or one value there is no spread: the error is then NaN.

    >>> mean_stderr([1.0, 3.0])
    (2.0, 1.0)
    """
    array = real_array(values, name="values").ravel()
    if array.size == 0:
        return math.nan, math.nan
    mean = float(array.mean())
    sums = array - mean
    if clusters is not None:
        _, labels = np.unique(np.asarray(clusters).ravel(), return_inverse=True)
        sums = np.bincount(labels, weights=sums).astype(np.float64)
    groups = sums.size
    if groups < 2:
        return mean, math.nan
    return mean, float(np.sqrt((sums**2).sum() * groups / (groups - 1)) / array.size)


def half_width(stderr: Any, *, n: int | None, level: Number = 0.95) -> NDArray[np.float64]:
    """How far an interval reaches to each side: standard errors times Student's quantile for n independent units.

    Units are what the spread was estimated from: sequences, chains. With fewer than two the reach is NaN; n=None stands
    for so many that their number does not matter. `level` is how often such intervals hold the truth.

    >>> half_width(1.0, n=None).round(2).item(), half_width([1.0, 2.0], n=10).round(2).tolist()
    (1.96, [2.26, 4.52])
    """
    from scipy.special import ndtri, stdtrit

    share = (1 + finite_number(level, name="level", above=0, most=1 - 1e-12)) / 2
    quantile = ndtri(share) if n is None else stdtrit(n - 1, share) if n > 1 else math.nan
    return np.asarray(np.asarray(stderr, dtype=np.float64) * quantile)


def interval(
    estimate: Any, stderr: Any, *, n: int | None, level: Number = 0.95
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The lower and the upper ends of intervals: an estimate and its `half_width` to each side.

    >>> [end.round(2).tolist() for end in interval([2.7, 1.2], [0.1, 0.2], n=16)]
    [[2.49, 0.77], [2.91, 1.63]]
    """
    centre, reach = np.asarray(estimate, dtype=np.float64), half_width(stderr, n=n, level=level)
    return centre - reach, centre + reach


def share_recovered(change: Any, lost: Any) -> tuple[float, float]:
    """1 - mean(change) / mean(lost), and the standard error of that; both are given per sequence.

    The error is the jackknife's: how far the share moves without each sequence. NaN where the mean of `lost` is not
    CLEAR_ERRORS standard errors above zero: then the loss is not significant, and no share of it is defined.

    >>> share_recovered([0.0, 0.5], [1.0, 1.0])
    (0.75, 0.25)
    """
    top, bottom = (real_array(values, name="losses").ravel() for values in (change, lost))
    if not is_clear(*mean_stderr(bottom)):
        return math.nan, math.nan
    ratio = float(top.sum() / bottom.sum())
    without = (top.sum() - top) / (bottom.sum() - bottom)
    return 1.0 - ratio, float(np.sqrt((top.size - 1) * ((without - without.mean()) ** 2).mean()))


def is_clear(mean: float, stderr: float) -> bool:
    """Whether a mean lies CLEAR_ERRORS standard errors above zero; False where the error is unknown."""
    return mean > 0 and mean >= CLEAR_ERRORS * stderr


def nothing_to_recover(edit: str, mean: float, stderr: float) -> str:
    """Why no share of an edit's cost can be given.

    >>> nothing_to_recover("even attention", 0.011, 0.006)
    'cannot tell what is recovered: even attention costs 0.011 ± 0.006 nats, less than 2 standard errors'
    """
    if mean <= 0:
        return f"{edit} costs no loss, so there is none to recover"
    if math.isnan(stderr):
        return f"cannot tell what is recovered: {edit} costs {mean:.2g} nats, and one sequence shows no error"
    words = f"{edit} costs {mean:.2g} ± {stderr:.1g} nats, less than {CLEAR_ERRORS:g} standard errors"
    return f"cannot tell what is recovered: {words}"


def provenance(*, seed: int | None = None, checkpoint: str | None = None, **more: Any) -> dict[str, Any]:
    """Where a number comes from: seed, checkpoint, versions and the git commit of this checkout."""
    return {"seed": seed, "checkpoint": checkpoint, "versions": dict(versions()), "commit": git_commit(), **more}


@functools.cache
def versions() -> tuple[tuple[str, str], ...]:
    """Versions of Python and of the packages that numbers depend on; looked up once."""
    installed = [(package, metadata.version(package)) for package in TRACED_PACKAGES]
    return (("python", platform.python_version()), *installed)


@functools.cache
def git_commit() -> str | None:
    """The commit checked out beside this package, with a + where files have changed; None outside a checkout."""
    git = ["git", "-C", str(Path(__file__).parent.parent)]
    try:
        commit, changed = (
            subprocess.run([*git, *words], capture_output=True, text=True, timeout=10, check=True).stdout.strip()
            for words in (["rev-parse", "--short=12", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return commit + ("+" if changed else "")
