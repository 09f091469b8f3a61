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
Word: TypeAlias = Literal["does not hold", "holds where", "cannot tell", "holds", "not judged"]
YES = "yes or no"
SET_AFTER_DATA: tuple[Quantifier, ...] = ("most",)  # quantifiers that were chosen after results were seen


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

    word       its verdict; "cannot tell" where a number is within one standard error of the bound, or is missing
    why        the condition under which it holds, or why it cannot be told
    evidence   the counts that a condition of the study `conditions` rests on
    value      the number that decides, of the length nearest to failing, as text
    held       of what holds under a condition: the number that decides where the condition is met
    margin     how far the number is on the right side of the bound
    runs, met  how many runs were asked, and how many are on the right side of the bound
    """

    family: str = ""
    start: str = ""
    word: Word
    why: str = ""
    evidence: str = ""
    value: str = ""
    held: str = ""
    margin: float = 0.0
    runs: int = 0
    met: int = 0
    protocols: tuple[str, ...] = ()
    lengths: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What was found for one need.

    groups  what the verdict rests on: of each family the start nearest to the paper's, or every other alternative
    others  the same families from other starts
    """

    need: Need
    groups: tuple[Group, ...]
    others: tuple[Group, ...] = ()
