"""What the figures of the instruments share: which models are shown, in which order, and how they are named."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from figures.parts.panels import MissingPanel
from figures.parts.rows import Row, matching, nearest

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Results = dict[str, list[Row]]

SHOWN_LENGTH = 64  # the length of the paper's figures of mechanism; the nearest one is taken


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A family on a task. The standard family was trained on the hierarchical task only."""

    family: str
    prior: str
    bos: bool

    @property
    def title(self) -> str:
        """Two short lines, for a narrow panel."""
        return f"{self.family}\n{self.task}"

    @property
    def task(self) -> str:
        return f"{self.prior}, {'BOS' if self.bos else 'no BOS'}"

    @property
    def words(self) -> str:
        """One line, for prose."""
        return f"{self.family} ({self.prior} prior, {'with' if self.bos else 'no'} BOS)"


SETTINGS = (
    Setting(family="construction", prior="hierarchical", bos=True),
    Setting(family="disentangled", prior="hierarchical", bos=True),
    Setting(family="standard", prior="hierarchical", bos=True),
    Setting(family="disentangled", prior="independent", bos=True),
    Setting(family="disentangled", prior="independent", bos=False),
)


def all_of(rows: Sequence[Row], setting: Setting) -> list[Row]:
    """Every row of a setting, shortest first, then by seed; runs beside the main ones left out."""
    return matching(rows, family=setting.family, prior=setting.prior, bos=setting.bos)


def one_of(rows: Sequence[Row], setting: Setting, *, length: int = SHOWN_LENGTH) -> Row | None:
    """The row of a setting at the length nearest to the one wanted, first seed."""
    return nearest(rows, length, family=setting.family, prior=setting.prior, bos=setting.bos)


def shown(rows: Sequence[Row], *, length: int = SHOWN_LENGTH) -> list[tuple[Setting, Row]]:
    """The settings that have a row, in their fixed order, with that row."""
    found = [(setting, one_of(rows, setting, length=length)) for setting in SETTINGS]
    return [(setting, row) for setting, row in found if row is not None]


def seeds_shown(rows: Sequence[Row], *, length: int = SHOWN_LENGTH) -> list[tuple[Setting, list[Row]]]:
    """The same with the rows of every seed at that length, the one that is shown first."""
    return [
        (setting, [other for other in rows if _but_seed(other) == _but_seed(row)])
        for setting, row in shown(rows, length=length)
    ]


def _but_seed(row: Row) -> dict[str, Any]:
    """What its checkpoint is, whichever the seed."""
    return {name: word for name, word in row["subject"].items() if name != "seed"}


def only(row: Row, *fields: str) -> Row:
    """The row's identity and the fields that are drawn."""
    return {name: row[name] for name in ("checkpoint", "subject", *fields)}


def lengths_text(rows: Iterable[Row]) -> str:
    """T = 64, or T = 32 to 512."""
    lengths = sorted({row["subject"]["length"] for row in rows})
    if not lengths:
        return "no model"
    return f"T = {lengths[0]}" if len(lengths) == 1 else f"T = {lengths[0]} to {lengths[-1]}"


def shape_text(rows: Iterable[Row]) -> str:
    """k = 2, |V| = 5 (every pair that occurs)."""
    shapes = sorted({(row["subject"]["order"], row["subject"]["vocab"]) for row in rows})
    return " and ".join(f"k = {order}, |V| = {vocab}" for order, vocab in shapes)


def listed(parts: Sequence[str]) -> str:
    """a, b and c."""
    return " and ".join([*([", ".join(parts[:-1])] if len(parts) > 1 else []), *parts[-1:]])


def seeds_text(rows: Iterable[Row]) -> str:
    """seed 0, or seeds 0, 1 and 2."""
    seeds = sorted({row["subject"]["seed"] for row in rows if row["subject"]["seed"] is not None})
    if not seeds:
        return "seed not recorded"
    return f"seed{'s' if len(seeds) > 1 else ''} {listed([str(seed) for seed in seeds])}"


def setting_fields(rows: Sequence[Row], *, n: str = "n") -> dict[str, object]:
    """The fields of a caption that say what was measured; `n` is the column that counts the sequences."""
    parts = (lengths_text(rows), shape_text(rows), seeds_text(rows)) if rows else ("no such model is there",)
    return {
        "setting": ", ".join(parts),
        "lengths": lengths_text(rows),
        "shape": shape_text(rows) or "no model",
        "seeds": seeds_text(rows),
        "n": rows[0][n] if rows else "no",
    }


def note_missing(ax: Axes, place: float, what: str) -> None:
    """A note at one height of a panel that shows other models, and a warning."""
    ax.annotate("not available", (0.0, place), xytext=(3, 0), textcoords="offset points", va="center", color="#7f7f7f")
    warnings.warn(f"panel left out: {what}", MissingPanel, stacklevel=2)
