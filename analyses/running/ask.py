"""What `make reproduce` runs of an analysis. Each analysis says it at its top level:

    ASK = Ask(select=near(64, seeds=1), options=Options(batch=256))

An analysis without an `ASK` runs from the command line only. A selection is given the checkpoints of the zoo that the
analysis applies to, and returns those to run it on.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analyses.running.options import Options
    from analyses.running.subject import Subject

    Select = Callable[[list[Subject]], list[Subject]]


def everything(zoo: list[Subject]) -> list[Subject]:
    """Every finished checkpoint."""
    return zoo


def up_to(length: int) -> Select:
    """Those trained on sequences of at most this length."""
    return lambda zoo: [one for one in zoo if one.model_config["length"] <= length]


def near(*lengths: int, seeds: int | None = None) -> Select:
    """In each group of one family, prior, BOS, protocol and start, those of the length nearest to each one wanted.

    The paper's figures are of T = 64 and T = 128; for a zoo of other lengths, the nearest ones are taken. `seeds` keeps
    only the first few.
    """

    def select(zoo: list[Subject]) -> list[Subject]:
        groups: dict[tuple[Any, ...], list[Subject]] = {}
        for one in zoo:
            model, record = one.model_config, one.training
            group = (model["family"], record["prior"]["kind"], model["bos"], record.get("protocol"), one.start)
            groups.setdefault(group, []).append(one)
        chosen = []
        for members in groups.values():
            found = {one.model_config["length"] for one in members}
            kept = {min(found, key=lambda length: abs(math.log(length / wanted))) for wanted in lengths}
            for length in sorted(kept):
                here = sorted((one for one in members if one.model_config["length"] == length), key=_seed)
                chosen += here[:seeds]
        return chosen

    return select


def not_long(select: Select) -> Select:
    """The selection without the runs of the `long` protocol, which only a few analyses need."""
    return lambda zoo: select([one for one in zoo if one.training.get("protocol") != "long"])


def _seed(one: Subject) -> tuple[int, str]:
    return one.training.get("seed") or 0, one.name


@dataclass(frozen=True, kw_only=True)
class Ask:
    """Which checkpoints (a study needs none), and with which options (None for the analysis's own defaults).

    `cost` is about how many seconds one checkpoint, or one part of a study, takes on one core at T = 64; longer
    sequences are taken to cost in proportion. It only decides the order and the estimate of the time that is left.
    """

    select: Select = everything
    options: Options | None = None
    cost: float = 0.5
