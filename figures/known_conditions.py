"""Conditions that decide a claim, each told from the runs of the study `conditions` (`python -m figures conditions`).

A figure names one beside the requirement that failed in its own results. Whether it separates runs that meet the claim
from runs that do not is counted each time a verdict is made: in the shipped table of the study (`Condition`), or in the
runs or settings that the figure shows (`among_runs`, `largest_box`). Where it does not, the condition is not known, and
the verdict says that the claim does not hold.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from analyses.condition_answers import CLAIMS, claim_counts
from analyses.shipped import read_shipped
from figures.verdict import Check, Told, Where
from models.families import find_family

Row = dict[str, Any]

# A condition decides a claim that is met in nine of ten runs with it and in at most half of the runs without.
LEAST_WITH, MOST_WITHOUT = 0.9, 0.5
# Each of these frees one part more; the other cells answer other questions.
CELLS = ("frozen", "frozen_copies", "hard_start", "random_start")


@dataclass(frozen=True, kw_only=True)
class Condition:
    """A condition, and the claim of the study that it is said to decide.

    any_of    its alternatives in words, as in `figures.verdict.Where`
    claim     by its name in `analyses.condition_answers`
    has       whether the runs of a cell meet the condition
    settings  (prior, bos) that are compared; empty for all that the claim is about
    among     which cells are compared, else
    scope     the same in words, for the evidence; empty for all cells
    rows      of the study; the shipped table by default
    """

    any_of: tuple[str, ...]
    claim: str
    has: Callable[[Row], bool]
    settings: tuple[tuple[str, bool], ...] = ()
    among: Callable[[Row], bool] = lambda row: True
    scope: str = ""
    rows: Sequence[Row] | None = field(default=None, repr=False)

    def where(self) -> Where | None:
        """The condition with its counts; None where it does not decide."""
        with_it, without = self.counts()
        if not decides(with_it, without):
            return None
        evidence = f"{self.claim}: {_of(with_it)} runs with it, {_of(without)} without{self._scope()}"
        return Where(any_of=self.any_of, evidence=evidence)

    def _scope(self) -> str:
        """The settings and cells that were compared, where they are not all."""
        names = [f"{prior} prior {'with' if bos else 'without'} BOS" for prior, bos in self.settings]
        return f" ({', '.join(filter(None, ('study `conditions`', ' and '.join(names), self.scope)))})"

    def counts(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Runs that meet the claim, and runs asked: with the condition, and without."""
        return _sums(self.claim, filter(self.has, self._cells())), _sums(
            self.claim, (row for row in self._cells() if not self.has(row))
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


def decides(with_it: tuple[int, int], without: tuple[int, int]) -> bool:
    """Whether a condition separates what meets a claim from what does not; counts of those that meet it, and of all."""
    (met, asked), (other, others) = with_it, without
    return asked > 0 and others > 0 and met >= LEAST_WITH * asked and other <= MOST_WITHOUT * others


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


def all_is_free(row: Row) -> bool:
    return not row["freeze"]


def adds_votes(row: Row) -> bool:
    return bool(row["readout"] == "probability")


HIERARCHICAL, NO_BOS = (("hierarchical", True),), (("independent", False),)
WITH_BOS = (*HIERARCHICAL, ("independent", True))

# Free copy heads of the last query put part of their attention on BOS and elsewhere, and the blocks of W_A grow for it.
# That frozen heads copy sharply is no finding: this condition serves claims about W_A alone.
FROZEN = "the copy heads are frozen"
LAG_1_LEADS = Condition(
    any_of=(FROZEN,),
    claim="beta_1 > beta_2 in weights",
    has=copies_are_frozen,
    settings=HIERARCHICAL,
    among=adds_votes,
    scope="readouts that add votes",
)
# A softmax readout that trains adds evidence in the logits: under the hierarchical prior it also adds tokens that it
# reads beside the votes, and the match head discounts the votes of tokens that are counted there or are frequent.
ADDS_VOTES = "the readout adds votes (not in standard models)"
LAW_RECOVERS = Condition(
    any_of=(ADDS_VOTES,),
    claim="law recovers the loss",
    has=adds_votes,
    settings=HIERARCHICAL,
    among=readout_is_free,
    scope="trained readouts",
)
ALIGNED_PAIRS = Condition(  # the discount weighs less where there are more matches
    any_of=(ADDS_VOTES, "T >= 128"),
    claim="aligned pairs carry the score",
    has=lambda row: adds_votes(row) or row["length"] >= 128,
    settings=HIERARCHICAL,
    among=readout_is_free,
    scope="trained readouts",
)
OPTIMAL_BETA = Condition(
    any_of=(ADDS_VOTES,),
    claim="beta of the optimum",
    has=adds_votes,
    settings=HIERARCHICAL,
    among=readout_is_free,
    scope="trained readouts",
)
NO_DIRECT_PATH = (
    Condition(  # a readout that is fixed at the construction's reads nothing else: that would be no finding
        any_of=(f"{ADDS_VOTES} and nothing is frozen",),
        claim="match head knows all",
        has=adds_votes,
        settings=HIERARCHICAL,
        among=all_is_free,
        scope="nothing frozen",
    )
)
# A free readout passes a constant into every prediction, and so does half of the smoothing where there is no BOS.
FIXED = "the readout is fixed"
SMOOTHING_BY_ATTENTION = Condition(
    any_of=(FIXED,),
    claim="attention does the smoothing",
    has=readout_is_frozen,
    settings=NO_BOS,
    among=adds_votes,
    scope="readouts that add votes",
)
OPTIMAL_BETA_WITHOUT_BOS = Condition(
    any_of=(FIXED,),
    claim="beta of the optimum",
    has=readout_is_frozen,
    settings=NO_BOS,
    among=adds_votes,
    scope="readouts that add votes",
)
LOWER_ORDERS_TELL = Condition(
    any_of=("the prior is hierarchical",),
    claim="partial matches smooth",
    has=lambda row: bool(row["prior"] == "hierarchical"),
    settings=WITH_BOS,
    among=adds_votes,
    scope="readouts that add votes",
)


def softmax_family(family: str) -> bool:
    """Whether the models of a family have a logit readout, whatever they were asked for."""
    return "probability" not in find_family(family).readouts


def by_family(
    family: str,
    passed: bool,
    *,
    softmax: str | Told,
    otherwise: str | Told = "",
    found: str = "",
    part: str = "",
) -> Check:
    """A requirement of a family's model: a softmax readout decides it in one family, `otherwise` in the others."""
    return Check(passed=passed, found=found, where=softmax if softmax_family(family) else otherwise, part=part)


def among_runs(
    words: str,
    runs: Sequence[Row],
    *,
    has: Callable[[Row], bool],
    met: Callable[[Row], bool],
    name: Callable[[Row], str],
) -> Where | None:
    """A condition told from the runs that a figure shows: what it says must not be the claim itself.

    None where it does not separate the runs that meet the claim from those that do not.

    >>> runs = [{"seed": seed, "copies": seed != 2, "kl": 0.1 + (seed == 2)} for seed in range(12)]
    >>> print(among_runs("both heads copy", runs, has=lambda run: run["copies"], met=lambda run: run["kl"] < 0.2,
    ...                  name=lambda run: f"seed {run['seed']}").evidence)
    11 of 11 runs with it, 0 of 1 without (seed 2)
    """
    mine = [run for run in runs if has(run)]
    others = [run for run in runs if not has(run)]
    with_it, without = (sum(map(met, mine)), len(mine)), (sum(map(met, others)), len(others))
    if not decides(with_it, without):
        return None
    names = ", ".join(map(name, others))
    return Where(
        any_of=(words,),
        evidence=f"{_of(with_it)} runs with it, {_of(without)} without ({names})",
        note=f"{_of((len(mine), len(runs)))} runs",
    )


HEADS_COPY = "each lag has a copy head"


def copying(rows: Iterable[Row]) -> list[Row]:
    """Of the rows of `copy_heads` what tells whether every lag has a head that copies it."""
    return [{name: row[name] for name in ("checkpoint", "subject", "success")} for row in rows]


def where_heads_copy(
    runs: Sequence[Row], copy_rows: Iterable[Row], *, met: Callable[[Row], bool], name: Callable[[Row], str]
) -> Where | None:
    """Whether runs that do not meet a claim are those in which a copy head has found no lag (`copy_heads`).

    None where that does not separate them, or where it is not known of every run.
    """
    copies = {_identity(row): bool(row["success"]) for row in copy_rows}
    if any(_identity(run) not in copies for run in runs):
        return None
    return among_runs(HEADS_COPY, runs, has=lambda run: copies[_identity(run)], met=met, name=name)


def _identity(row: Row) -> str:
    """Which run a row is of, whatever the analysis."""
    return str(sorted(row["subject"].items()))


def largest_box(rows: Sequence[Row], met: Callable[[Row], bool], sides: dict[str, str]) -> Where | None:
    """The settings in which a claim holds, as bounds of their numbers, with counts; None where no bounds do.

    `sides` gives the name of each number and on which side the claim holds, e.g. {"length": "T >=", "order": "k <="}.
    Of all boxes in which every setting meets the claim it is that with most settings, then that with fewest bounds.

    >>> rows = [{"length": length, "order": order} for length in (32, 64, 128) for order in (1, 2)]
    >>> box = largest_box(rows, lambda row: row["length"] > 32, {"length": "T >=", "order": "k <="})
    >>> str(box), box.evidence
    ('T >= 64', '4 of 4 settings with it, 0 of 2 elsewhere')
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
        return None
    limits, inside = min(whole, key=lambda box: (-len(box[1]), len(box[0])))
    outside = [row for row in rows if all(row is not one for one in inside)]
    words = " and ".join(f"{sides[name]} {bound:g}" for name, bound in limits.items())
    evidence = f"{_of((len(inside),) * 2)} settings with it, {_of((sum(map(met, outside)), len(outside)))} elsewhere"
    return Where(any_of=(words,), evidence=evidence)
