"""A claim, what it needs, and what a need measures: the records that `paper`, `ours` and `quantities` fill in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Row: TypeAlias = Mapping[str, Any]
Tables: TypeAlias = Mapping[str, Sequence[Row]]
# What a reader makes of a row: a value with its standard error (0 where none is known); None where the row has none.
Value: TypeAlias = tuple[float, float] | None
Reader: TypeAlias = Callable[[Row, Tables], Value]
Quantifier: TypeAlias = Literal["every", "most", "mean", "nine in ten"]
State: TypeAlias = Literal["met", "unmet", "unsure", "measured", "missing"]
YES = "yes or no"
SET_AFTER_DATA: tuple[Quantifier, ...] = ("most",)  # quantifiers that were chosen after results were seen
Word: TypeAlias = Literal["holds", "holds where", "does not hold", "cannot tell", "not judged"]


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """A number that claims are judged by.

    words       what it is, in at most 36 characters
    bound       its one threshold; None where it is only reported
    side        on which side of the bound a need is met
    reason      why this bound
    after_data  whether the bound was set after results were seen
    read        by the name of a table, how it is read from a row of that table
    form        how it is printed; YES for a 1 or a 0
    """

    words: str
    bound: float | None = None
    side: Literal[">=", "<=", "=="] = ">="
    reason: str = ""
    after_data: bool = False
    read: Mapping[str, Reader]
    form: str = ".2f"

    @property
    def required(self) -> str:
        """The bound as it is printed; of a yes or no there is nothing to say."""
        if self.bound is None or self.form == YES:
            return ""
        return f"{self.side} {format(self.bound, '.0%') if self.form.endswith('%') else format(self.bound, 'g')}"

    def written(self, number: float) -> str:
        """
        >>> Quantity(words="a", form=YES, read={}).written(0.0)
        'no'
        """
        return ("no", "yes")[number >= 1] if self.form == YES else format(number, self.form)


@dataclass(frozen=True, kw_only=True)
class Need:
    """One comparison: rows of a table, a quantity, and the part of the claim that it decides.

    rows        which rows: words of `subject`, or columns; a tuple stands for any of its values. A `length` that the
                table does not have is said, and never replaced by another one
    quantifier  of the runs of one family, start and length: every one, most of them, or their mean; "nine in ten" is of
                all rows, whatever their length
    part        to be read after `holds`: "for the copies"; empty for the claim as a whole
    by          what splits the rows into alternatives that a verdict names
    """

    table: str
    quantity: str
    rows: Mapping[str, Any] = field(default_factory=dict)
    quantifier: Quantifier = "most"
    part: str = ""
    by: str = "start"

    def after_data(self, quantity: Quantity) -> bool:
        """Whether what it asks for, the threshold or of which runs, was set after results were seen."""
        return quantity.bound is not None and (quantity.after_data or self.quantifier in SET_AFTER_DATA)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A statement of the paper, or one of ours.

    id        by which figures name it
    number    of the statement in the order of the paper; None for what we ask beyond it
    label     the paper's label or section
    sentence  what is said, in our words
    where     a restriction without which the checks of the claim themselves show it wrong
    note      what the paper leaves open, or what we set: said beside the verdict
    ours      whether the paper does not say it
    """

    id: str
    number: int | None = None
    label: str
    topic: str
    sentence: str
    needs: tuple[Need, ...] = ()
    where: str = ""
    note: str = ""
    ours: bool = False


@dataclass(frozen=True, kw_only=True)
class Group:
    """What a need finds in the runs of one family from one start.

    state      met, unmet, unsure (within one standard error of the bound), measured (no bound), or missing
    where      a bound of the length within which it is met, as "T >= 64"
    runs, met  how many runs were asked, and how many are on the right side of the bound
    worst      the value that decides, of the length nearest to failing, as text
    margin     how far that value is on the right side of the bound
    """

    family: str
    start: str
    state: State
    where: str = ""
    runs: int = 0
    met: int = 0
    worst: str = ""
    margin: float = 0.0
    protocols: tuple[str, ...] = ()
    lengths: tuple[int, ...] = ()
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What was found for one need.

    condition  under which it is met in the study `conditions`, where it is not met here, and the counts it rests on
    """

    need: Need
    groups: tuple[Group, ...]
    condition: str = ""
    evidence: str = ""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A claim's verdict: one word, its sentence, the start it was judged from, and the number that decides."""

    claim: Claim
    word: Word
    says: str
    start: str
    number: str
    findings: tuple[Finding, ...]
