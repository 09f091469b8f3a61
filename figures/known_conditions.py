"""Conditions that decide a claim, each told from the runs of the study `conditions` (`python -m figures conditions`).

A figure names one beside the requirement that failed in its own results. Whether it separates runs that meet the claim
from runs that do not is counted in the shipped table of the study, each time a verdict is made; where it does not, the
condition is not known, and the verdict says so.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from analyses.condition_answers import CLAIMS, claim_counts
from analyses.shipped import read_shipped
from figures.verdict import Check
from models.families import find_family

Row = dict[str, Any]

# A condition decides a claim that is met in nine of ten runs with it and in at most half of the runs without.
LEAST_WITH, MOST_WITHOUT = 0.9, 0.5
# Each of these frees one part more; the other cells answer other questions.
CELLS = ("frozen", "frozen_copies", "hard_start", "random_start")


@dataclass(frozen=True, kw_only=True)
class Condition:
    """A condition, and the claim of the study that it is said to decide.

    words     completes `holds where`
    claim     by its name in `analyses.condition_answers`
    has       whether the runs of a cell meet the condition
    settings  (prior, bos) that are compared; empty for all that the claim is about
    among     which cells are compared, else
    anyway    a claim that is met whatever the condition, where the words say so
    rows      of the study; the shipped table by default

    As text it is the words with the counts, or empty where it does not decide.
    """

    words: str
    claim: str
    has: Callable[[Row], bool]
    settings: tuple[tuple[str, bool], ...] = ()
    among: Callable[[Row], bool] = lambda row: True
    anyway: str = ""
    rows: Sequence[Row] | None = field(default=None, repr=False)

    def __str__(self) -> str:
        with_it, without = self.counts()
        counted = f"{_of(with_it)} runs of the study{self._scope()}; {_of(without)} without"
        return f"{self.words} ({counted})" if self.decides() else ""

    def _scope(self) -> str:
        """The settings that were compared, where they are not all."""
        names = [f"{prior} prior {'with' if bos else 'without'} BOS" for prior, bos in self.settings]
        return f", {' and '.join(names)}" if names else ""

    def counts(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Runs that meet the claim, and runs asked: with the condition, and without."""
        return _sums(self.claim, filter(self.has, self._cells())), _sums(
            self.claim, (row for row in self._cells() if not self.has(row))
        )

    def decides(self) -> bool:
        """Whether it separates the runs that meet the claim from those that do not."""
        (met, asked), (other, others) = self.counts()
        always, total = _sums(self.anyway, self._cells()) if self.anyway else (1, 1)
        return (
            asked > 0
            and others > 0
            and met >= LEAST_WITH * asked
            and other <= MOST_WITHOUT * others
            and always >= LEAST_WITH * total > 0
        )

    def _cells(self) -> list[Row]:
        rows = study_rows() if self.rows is None else self.rows
        return [
            row
            for row in rows
            if row["cell"] in CELLS
            and row["protocol"] == "annealed"
            and (not self.settings or (row["prior"], row["bos"]) in self.settings)
            and self.among(row)
        ]


@functools.cache
def study_rows() -> tuple[Row, ...]:
    """The shipped table of the study, with its claims counted."""
    return tuple({**row, "claims": claim_counts(row)} for row in read_shipped("conditions")["rows"])


def _sums(claim: str, rows: Iterable[Row]) -> tuple[int, int]:
    if claim not in {one.name for one in CLAIMS}:
        raise ValueError(f"the study has no claim {claim!r}")
    counts = [row["claims"][claim] for row in rows]
    return sum(count[0] for count in counts), sum(count[1] for count in counts)


def _of(count: tuple[int, int]) -> str:
    return f"{count[0]} of {count[1]}"


def copies_are_frozen(row: Row) -> bool:
    return "copies" in row["freeze"].split(",")


def readout_is_frozen(row: Row) -> bool:
    return "readout" in row["freeze"].split(",")


def readout_is_free(row: Row) -> bool:
    return not readout_is_frozen(row)


def adds_votes(row: Row) -> bool:
    return bool(row["readout"] == "probability")


HIERARCHICAL, NO_BOS = (("hierarchical", True),), (("independent", False),)
WITH_BOS = (*HIERARCHICAL, ("independent", True))

# Free copy heads of the last query put part of their attention on BOS and elsewhere, and the blocks of W_A grow for it.
FROZEN = "the copy heads are frozen on their lags"
SHARP_COPIES = Condition(words=FROZEN, claim="copy heads are sharp", has=copies_are_frozen, settings=HIERARCHICAL)
TRUE_WEIGHTS = Condition(
    words=FROZEN, claim="weights say what scores say", has=copies_are_frozen, settings=HIERARCHICAL, among=adds_votes
)
READ_FROM_SCORES = Condition(
    words=f"it is read from the scores, or {FROZEN}",
    claim="beta_1 > beta_2 in weights",
    has=copies_are_frozen,
    settings=HIERARCHICAL,
    among=adds_votes,
    anyway="beta_1 > beta_2 in scores",
)
# A softmax readout that trains adds evidence in the logits: under the hierarchical prior it also adds tokens that it
# reads beside the votes, and the match head discounts the votes of tokens that are counted there or are frequent.
ADDS_VOTES = "the readout adds votes, which the standard family's softmax does not"
LAW_IN_SCORES = Condition(
    words=ADDS_VOTES, claim="scores are the law", has=adds_votes, settings=HIERARCHICAL, among=readout_is_free
)
LAW_RECOVERS = Condition(
    words=ADDS_VOTES, claim="law recovers the loss", has=adds_votes, settings=HIERARCHICAL, among=readout_is_free
)
ALIGNED_PAIRS = Condition(  # the discount weighs less where there are more matches
    words=f"{ADDS_VOTES}, or T >= 128",
    claim="aligned pairs carry the score",
    has=lambda row: adds_votes(row) or row["length"] >= 128,
    settings=HIERARCHICAL,
    among=readout_is_free,
)
OPTIMAL_BETA = Condition(
    words=ADDS_VOTES, claim="beta of the optimum", has=adds_votes, settings=HIERARCHICAL, among=readout_is_free
)
# A free readout passes a constant into every prediction, and so does half of the smoothing where there is no BOS.
FIXED = "the readout is fixed at the construction's"
SMOOTHING_BY_ATTENTION = Condition(
    words=FIXED, claim="attention does the smoothing", has=readout_is_frozen, settings=NO_BOS, among=adds_votes
)
NO_DIRECT_PATH = Condition(words=FIXED, claim="match head knows all", has=readout_is_frozen, settings=HIERARCHICAL)
OPTIMAL_BETA_WITHOUT_BOS = Condition(
    words=FIXED, claim="beta of the optimum", has=readout_is_frozen, settings=NO_BOS, among=adds_votes
)
LOWER_ORDERS_TELL = Condition(
    words="lower orders tell something, as under the hierarchical prior",
    claim="partial matches smooth",
    has=lambda row: bool(row["prior"] == "hierarchical"),
    settings=WITH_BOS,
    among=adds_votes,
)


def softmax_family(family: str) -> bool:
    """Whether the models of a family have a logit readout, whatever they were asked for."""
    return "probability" not in find_family(family).readouts


def by_family(
    family: str, passed: bool, *, otherwise: object, softmax: object = LAW_IN_SCORES, found: str = ""
) -> Check:
    """A requirement of a family's model: a softmax readout decides it in one family, `otherwise` in the others."""
    return Check(passed=passed, found=found, where=softmax if softmax_family(family) else otherwise)


def runs_that_meet(met: int, total: int, *, what: str = "the run has found the law") -> str:
    """A condition that seeds decide: no factor of the study tells them apart."""
    return f"{what} ({met} of {total} runs)"


def largest_box(rows: Sequence[Row], met: Callable[[Row], bool], sides: dict[str, str]) -> str:
    """The settings in which a claim holds, as bounds of their numbers, with counts; empty where no bounds do.

    `sides` gives the name of each number and on which side the claim holds, e.g. {"length": "T >=", "order": "k <="}.
    Of all boxes in which every setting meets the claim it is that with most settings, then that with fewest bounds.

    >>> rows = [{"length": length, "order": order} for length in (32, 64, 128) for order in (1, 2)]
    >>> largest_box(rows, lambda row: row["length"] > 32, {"length": "T >=", "order": "k <="})
    'T >= 64 (4 of 4 settings; 0 of 2 elsewhere)'
    """
    boxes: list[tuple[dict[str, Any], list[Row]]] = [({}, list(rows))]
    for name, side in sides.items():
        bounds = sorted({row[name] for row in rows})
        boxes += [
            (
                {**limits, name: bound},
                [row for row in inside if (row[name] >= bound if side.endswith(">=") else row[name] <= bound)],
            )
            for limits, inside in boxes
            for bound in bounds
        ]
    whole = [(limits, inside) for limits, inside in boxes if inside and all(map(met, inside))]
    if not whole or len(max(whole, key=lambda box: len(box[1]))[1]) == len(rows):
        return ""
    limits, inside = min(whole, key=lambda box: (-len(box[1]), len(box[0])))
    outside = [row for row in rows if all(row is not one for one in inside)]
    words = " and ".join(f"{sides[name]} {bound:g}" for name, bound in limits.items())
    return f"{words} ({_of((len(inside),) * 2)} settings; {_of((sum(map(met, outside)), len(outside)))} elsewhere)"
