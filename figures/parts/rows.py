"""Choosing rows of results by what their checkpoint is, and saying in captions which ones were chosen.

Rows of checkpoint analyses have a `subject`: family, prior, bos, length, order, vocab, seed, protocol, init
and start (`analyses.running.subject.Subject.summary`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analyses.running.subject import place_of_start as place
from interp.notation import MAX_ORDER
from interp.outside import shown as shown_value
from models.families.registry import FAMILIES

Row = dict[str, Any]
Results = dict[str, list[Row]]

# Of what results from elsewhere may say: figures make as many panels, cells or ticks.
MOST = {"order": MAX_ORDER, "layer": 1000, "head": 1000, "matches": 1000}
# Protocols of runs that were made beside the zoo's main ones, to compare.
BESIDE = ("paper", "long", "paper_changed")
PRIORS_IN_SHORT = {"hierarchical": "hier.", "independent": "ind."}
SHOWN_LENGTH = 64  # the length of the paper's figures of mechanism; the nearest one is taken


class MissingPanel(UserWarning):
    """A panel was left out because its results are not there."""


def too_large(value: Any) -> str:
    """What is wrong where one of the numbers in `MOST`, wherever it stands, is larger; else empty."""
    if isinstance(value, dict):
        for name, most in MOST.items():
            if isinstance(number := value.get(name), int) and number > most:
                return f"{name} is {shown_value(number)}, more than the {most} that are drawn"
        value = list(value.values())
    return next(filter(None, map(too_large, value)), "") if isinstance(value, list) else ""


def where(rows: Iterable[Row], **named: Any) -> list[Row]:
    """The rows whose columns have these values."""
    return [row for row in rows if all(row.get(name) == value for name, value in named.items())]


def matching(rows: Iterable[Row], **words: Any) -> list[Row]:
    """The rows whose checkpoint fits every word, e.g. family="disentangled", bos=True; shortest first, then by seed.

    Protocols other than those of `BESIDE`, and rows without a record, count as the main kind: say protocol="paper" for
    those of the paper. Without the word `start` the rows are of one start (`of_one_start`).
    """
    wanted = dict(words)
    protocol = wanted.pop("protocol", None)
    protocol = protocol if protocol in BESIDE else None
    found = []
    for row in rows:
        subject = row.get("subject")
        if subject is None or any(subject.get(word) != value for word, value in wanted.items()):
            continue
        if beside(subject) == protocol:
            found.append(row)
    return sorted(found if "start" in words else of_one_start(found), key=_length_seed_name)


def _length_seed_name(row: Row) -> tuple[Any, ...]:
    subject = row["subject"]
    return subject["length"], subject["seed"] or 0, row["checkpoint"] if "checkpoint" in row else row["predictor"]


def beside(subject: Mapping[str, Any] | None) -> str | None:
    """The protocol of a run that stands beside the main ones; None for a main run."""
    if subject is None or subject.get("main"):
        return None
    protocol = subject.get("protocol")
    return protocol if protocol in BESIDE else None


def only_beside(rows: Iterable[Row]) -> str | None:
    """The protocol of the trained models, if none of them is of the main kind: the one to draw; else None."""
    found = {beside(row["subject"]) for row in rows if row.get("subject") is not None and not analytic(row["subject"])}
    return None if None in found else next((protocol for protocol in BESIDE if protocol in found), None)


def with_main(rows: Iterable[Row], protocol: str) -> list[Row]:
    """The rows with the runs of one protocol in the place of the main ones.

    They are marked as `main` in their subject. What has no training to speak of (a construction, an estimator) stays;
    other trained models of the main kind go, so that two protocols never share a curve.
    """
    changed = []
    for row in rows:
        subject = row.get("subject")
        if subject is not None and not analytic(subject) and beside(subject) == protocol:
            changed.append({**row, "subject": {**subject, "main": True}})
        elif subject is None or analytic(subject) or beside(subject) is not None:
            changed.append(row)
    return changed


def of_one_start(rows: Iterable[Row]) -> list[Row]:
    """Of each family and task the rows of one start: that with the most lengths, then that nearest to the paper's.

    A curve never mixes starts. Rows that no checkpoint, or no start, belongs to are kept.
    """
    rows = list(rows)
    lengths: dict[tuple[Any, ...], dict[str, set[int]]] = {}
    for row in rows:
        if (start := start_in(row)) is not None:
            lengths.setdefault(_task(row), {}).setdefault(start, set()).add(row["subject"]["length"])
    chosen = {task: min(found, key=lambda one: (-len(found[one]), place(one))) for task, found in lengths.items()}
    return [row for row in rows if (start := start_in(row)) is None or start == chosen[_task(row)]]


def start_in(row: Row) -> str | None:
    """The start of the row's checkpoint; None where there is no checkpoint, or no record of its start."""
    start: str | None = (row.get("subject") or {}).get("start")
    return start


def _task(row: Row) -> tuple[Any, ...]:
    return tuple(row["subject"][name] for name in ("family", "prior", "bos"))


def analytic(subject: Mapping[str, Any]) -> bool:
    """Whether it is of a family whose weights are written, not found."""
    family = subject.get("family")  # a result may come from elsewhere
    return isinstance(family, str) and family in FAMILIES and FAMILIES[family].analytic


def protocol_note(results: Mapping[str, Sequence[Row]]) -> str:
    """Sentences for the caption where runs beside the main ones are drawn in their place, or unfinished ones."""
    subjects = [row["subject"] for rows in results.values() for row in rows if row.get("subject") is not None]
    found = sorted({subject["protocol"] for subject in subjects if subject.get("main")})
    words = [f"Trained models are runs of the `{found[0]}` protocol."] if found else []
    if any(subject.get("unfinished") for subject in subjects):
        words.append("Some trained models are of unfinished runs.")
    return " ".join(words)


def nearest(rows: Sequence[Row], length: int, **words: Any) -> Row | None:
    """Of the matching rows the one of the length nearest to `length`, first start and seed; None if there is none."""
    starts = {start_in(row) for row in rows if row.get("subject")} if "start" not in words else {words.pop("start")}
    found = [row for start in starts for row in matching(rows, **words, start=start)]

    def distance(row: Row) -> tuple[float, int, int]:
        subject = row["subject"]
        return abs(math.log(subject["length"] / length)), place(start_in(row)), subject["seed"] or 0

    return min(found, key=distance, default=None)


def lengths_of(rows: Iterable[Row]) -> list[int]:
    """The lengths that occur, in order."""
    return sorted({(row.get("subject") or row)["length"] for row in rows})


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A family on a task. The standard family was trained on the hierarchical task only."""

    family: str
    prior: str
    bos: bool

    @property
    def bos_words(self) -> str:
        return "BOS" if self.bos else "no BOS"

    @property
    def title(self) -> str:
        """Two short lines, for a narrow panel."""
        return f"{self.family}\n{self.prior}, {self.bos_words}"

    @property
    def short(self) -> str:
        """The same with less room: `hier. BOS`."""
        return f"{self.family}\n{PRIORS_IN_SHORT[self.prior]} {self.bos_words}"

    def __str__(self) -> str:
        """One line, for prose."""
        return f"{self.family} ({self.prior} prior, {'with' if self.bos else 'no'} BOS)"

    def narrow(self, row: Row) -> str:
        """Three lines with the length, for a panel of a fifth of the width."""
        return f"{self.family}\n{self.prior}\n{self.bos_words}, T = {row['subject']['length']}"

    def of(self, rows: Iterable[Row]) -> list[Row]:
        """Its rows, shortest first, then by seed; runs beside the main ones left out."""
        return matching(rows, family=self.family, prior=self.prior, bos=self.bos)


SETTINGS = (
    Setting(family="construction", prior="hierarchical", bos=True),
    Setting(family="disentangled", prior="hierarchical", bos=True),
    Setting(family="standard", prior="hierarchical", bos=True),
    Setting(family="disentangled", prior="independent", bos=True),
    Setting(family="disentangled", prior="independent", bos=False),
)


def of_settings(rows: Sequence[Row]) -> list[Row]:
    """Every model of the settings."""
    return [row for setting in SETTINGS for row in setting.of(rows)]


def seeds_shown(rows: Sequence[Row]) -> dict[Setting, list[Row]]:
    """The settings that have a row: the rows of every seed at the length nearest to the one shown, the first first."""
    found = {}
    for setting in SETTINGS:
        row = nearest(rows, SHOWN_LENGTH, family=setting.family, prior=setting.prior, bos=setting.bos)
        if row is not None:
            found[setting] = [other for other in rows if _but_seed(other) == _but_seed(row)]
    return found


def of_seeds(rows: Sequence[Row]) -> list[Row]:
    """The rows of `seeds_shown`."""
    return [row for seeds in seeds_shown(rows).values() for row in seeds]


def _but_seed(row: Row) -> dict[str, Any]:
    return {name: word for name, word in row["subject"].items() if name != "seed"}


def picked(rows: Iterable[Row], *fields: str) -> list[Row]:
    """The rows with these columns."""
    return [{name: row[name] for name in fields} for row in rows]


def listed(values: Iterable[Any]) -> str:
    """`32, 64 and 128`."""
    words = [str(value) for value in values]
    return " and ".join([*([", ".join(words[:-1])] if len(words) > 1 else []), *words[-1:]])


def lengths_text(rows: Iterable[Row]) -> str:
    """T = 64, or T = 32 to 512."""
    lengths = lengths_of(rows)
    if not lengths:
        return "no model"
    return f"T = {lengths[0]}" if len(lengths) == 1 else f"T = {lengths[0]} to {lengths[-1]}"


def shape_words(rows: Iterable[Row]) -> str:
    """`k = 2, |V| = 5`, every pair that occurs in the rows or their subjects."""
    shapes = sorted({(one["order"], one["vocab"]) for row in rows for one in [row.get("subject") or row]})
    return " and ".join(f"k = {order}, |V| = {vocab}" for order, vocab in shapes)


def seeds_text(rows: Iterable[Row]) -> str:
    """seed 0, or seeds 0, 1 and 2."""
    seeds = sorted({row["subject"]["seed"] for row in rows if (row.get("subject") or {}).get("seed") is not None})
    return f"seed{'s' if len(seeds) > 1 else ''} {listed(seeds)}" if seeds else ""


def setting_fields(rows: Iterable[Row]) -> dict[str, object]:
    """The fields of a caption that say what was measured."""
    rows = list(rows)
    parts = (lengths_text(rows), shape_words(rows), seeds_text(rows)) if rows else ("no such model is there",)
    return {
        "setting": ", ".join(filter(None, parts)),
        "lengths": lengths_text(rows),
        "shape": shape_words(rows) or "no model",
        "seeds": seeds_text(rows) or "seed not recorded",
        "n": rows[0].get("sequences", rows[0].get("n")) if rows else "no",
    }
