"""One line of the theory check: what was compared, the largest difference, and the verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim of the paper, checked on random cases.

    label      the paper's label
    claim      what was compared
    cases      on how many cases
    error      the largest error among them
    tolerance  what counts as equal
    holds      the verdict: error within the tolerance, and every control behaved
    note       what else was found
    """

    label: str
    claim: str
    cases: int
    error: float
    tolerance: float
    holds: bool
    note: str


def judge(
    *,
    label: str,
    claim: str,
    cases: int,
    error: float,
    tolerance: float,
    controls: Mapping[str, bool] | None = None,
    note: str = "",
) -> Claim:
    """The claim with its verdict. All `controls` must be true as well; the note names those that are not.

    The claim fails if the error is NaN or there was no case.
    """
    broken = [name for name, passed in (controls or {}).items() if not passed]
    if cases < 1:
        broken.append("at least one case")
    holds = math.isfinite(error) and error <= tolerance and not broken
    if broken:
        note = f"{note}; failed: {', '.join(broken)}".removeprefix("; ")
    return Claim(
        label=label,
        claim=claim,
        cases=cases,
        error=float(error),
        tolerance=tolerance,
        holds=holds,
        note=note,
    )
