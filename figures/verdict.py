"""What a figure says of the paper's claim: what was required, what was found, which part holds, and where.

A claim has parts ("in the scores", "in the weight blocks"), and each requirement belongs to one of them. A part holds
if all its requirements are met. Where one is not, the part holds under the conditions of those that are not, or it does
not hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

Word = Literal["holds", "holds where", "does not hold", "cannot tell", "beyond the paper"]
WORDS: tuple[str, ...] = get_args(Word)
FAILED = ("holds where", "does not hold")  # a requirement was not met
BRIEF = 160  # characters of a verdict's sentence and of its number: a cell of the table of claims
BOUND = re.compile(r"(.+) (>=|<=) ([0-9.]+)")
SYMBOLS = ("alpha", "beta", "eta", "gamma", "kappa", "lambda")


@dataclass(frozen=True, kw_only=True)
class Where:
    """A condition that completes `holds where`.

    any_of    its alternatives, each a short clause that a reader can check: "the copy heads are frozen", "T >= 64"
    evidence  what it rests on: how many runs meet the claim with it, and how many without
    note      said in brackets behind it: how many runs have it, where few lack it

    >>> frozen = Where(any_of=("copies are frozen",))
    >>> either = Where(any_of=("it is read from the scores", "copies are frozen"))
    >>> str(either), frozen.implies(either), either.implies(frozen)
    ('it is read from the scores or copies are frozen', True, False)
    >>> Where(any_of=("T >= 64",)).implies(Where(any_of=("T >= 32",)))
    True
    """

    any_of: tuple[str, ...]
    evidence: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        if not self.any_of or not all(self.any_of):
            raise ValueError("a condition needs words")

    def __str__(self) -> str:
        return " or ".join(self.any_of) + (f" ({self.note})" if self.note else "")

    def where(self) -> Where:
        return self

    def implies(self, other: Where) -> bool:
        """Whether it says at least as much: each of its alternatives lies within one of the other's."""
        return all(any(_within(mine, theirs) for theirs in other.any_of) for mine in self.any_of)


class Told(Protocol):
    """What tells a condition when it is asked, such as `figures.known_conditions.Condition`."""

    def where(self) -> Where | None:
        """The condition; None where none is known."""


def _within(one: str, other: str) -> bool:
    """Whether a clause says at least as much as another: the same, or a tighter bound of the same number."""
    if " and " in one or " and " in other:
        return all(any(_within(mine, theirs) for mine in one.split(" and ")) for theirs in other.split(" and "))
    mine, theirs = BOUND.fullmatch(one), BOUND.fullmatch(other)
    if mine is None or theirs is None or mine.group(1, 2) != theirs.group(1, 2):
        return one == other
    tight, loose = float(mine[3]), float(theirs[3])
    return tight >= loose if mine[2] == ">=" else tight <= loose


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One word, the sentence that goes with it, and the numbers it rests on.

    word        `beyond the paper` is for pictures of what the paper does not claim; `cannot tell` where results are
                missing
    says        the verdict in a short sentence that begins with the word, or for `holds where` with `holds`: "holds in
                the scores; in the weight blocks where the copy heads are frozen"
    headline    the finding in plain words, one sentence with its number; by default the first clause of `measured`
    number      the one number that decides, with its spread, short enough for a table's cell; by default the headline
    required    the requirements that were not met; where all were met, all of them
    found       what was found in place of what was not met
    measured    all numbers
    why         the reason, where one is known
    parts       of the claim: {"part", "met", "where"}; `where` is empty where no condition is known
    checks      every requirement: {"required", "part", "met", "found", "where", "evidence"}, as a `Check` has them
    """

    word: Word
    measured: str
    says: str = ""
    headline: str = ""
    number: str = ""
    required: str = ""
    found: str = ""
    why: str = ""
    parts: tuple[dict[str, Any], ...] = ()
    checks: tuple[dict[str, Any], ...] = ()

    def __post_init__(self) -> None:
        if self.word not in WORDS:
            raise ValueError(f"a verdict is one of {', '.join(WORDS)}, got {self.word!r}")
        if not self.measured:
            raise ValueError("a verdict needs the numbers it rests on")
        if not self.says:
            object.__setattr__(self, "says", self.word)
        begins = self.says.startswith(self.word.removesuffix(" where"))
        conditional = self.says.startswith("holds") and " where " in self.says
        if not begins or conditional != (self.word == "holds where"):
            raise ValueError(f"a verdict's sentence goes with its word, got {self.says!r} for {self.word!r}")
        if not self.headline:
            object.__setattr__(self, "headline", self.measured.split("; ")[0])
        if not self.number:
            object.__setattr__(self, "number", self.headline)


@dataclass(frozen=True, kw_only=True)
class Check:
    """Whether a requirement was met; if not, what was found, and where it is met.

    found   what was found, whether it was met or not
    where   the condition under which it is met: a clause, a `Where`, or what tells one; empty where none is known
    part    of the claim, to be read after `holds`: "in the scores"; empty for the claim as a whole
    """

    passed: bool
    found: str = ""
    where: str | Told = ""
    part: str = ""

    def condition(self) -> Where | None:
        """The condition under which it is met; None where it is met anyway, or none is known."""
        if self.passed or not self.where:
            return None
        return Where(any_of=(self.where,)) if isinstance(self.where, str) else self.where.where()


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of a claim: whether it holds, or under which conditions, all of them needed; none where none is known."""

    name: str
    met: bool
    conditions: tuple[Where, ...] = ()

    @property
    def where(self) -> str:
        return " and ".join(map(str, self.conditions))


def judged(
    checks: Mapping[str, bool | Check], *, measured: str, headline: str = "", number: str = "", why: str = ""
) -> Verdict:
    """holds if every requirement is met; holds where the conditions of those that are not say; else does not hold.

    >>> found = judged(
    ...     {
    ...         "copies are sharp": Check(passed=True, part="for the copies"),
    ...         "betas agree": Check(passed=False, found="3.1, 2.7", where="there is a BOS", part="for the betas"),
    ...     },
    ...     measured="0.99; 3.1 against 2.7",
    ... )
    >>> found.says, found.required, found.found, found.headline
    ('holds for the copies; for the betas where there is a BOS', 'betas agree', '3.1, 2.7', '0.99')
    """
    if not checks:
        told = measured or "nothing to judge"
        return Verdict(word="cannot tell", measured=told, headline=headline, number=number, why=why)
    made = {name: one if isinstance(one, Check) else Check(passed=bool(one)) for name, one in checks.items()}
    failed = {name: check for name, check in made.items() if not check.passed}
    parts = parts_of(made.values())
    return Verdict(
        word=word_of(parts),
        says=said_of(parts),
        headline=headline,
        number=number,
        required="; ".join(failed or made),
        found=_once(check.found for check in failed.values() if check.found),
        measured=measured,
        why=why,
        parts=tuple({"part": part.name, "met": part.met, "where": part.where} for part in parts),
        checks=tuple(_record(name, check) for name, check in made.items()),
    )


def parts_of(checks: Iterable[Check]) -> list[Part]:
    """The parts of a claim, in the order of their first requirements."""
    groups: dict[str, list[Check]] = {}
    for check in checks:
        groups.setdefault(check.part, []).append(check)
    found = []
    for name, group in groups.items():
        failed = [check.condition() for check in group if not check.passed]
        known = [condition for condition in failed if condition is not None]
        needed = strongest(known) if len(known) == len(failed) else ()
        found.append(Part(name=name, met=not failed, conditions=needed))
    return found


def strongest(conditions: Sequence[Where]) -> tuple[Where, ...]:
    """The conditions without those that another one implies."""
    kept: list[Where] = []
    for one in conditions:
        if not any(other.implies(one) for other in kept):
            kept = [other for other in kept if not one.implies(other)] + [one]
    return tuple(kept)


def word_of(parts: Iterable[Part]) -> Word:
    failed = [part for part in parts if not part.met]
    if not failed:
        return "holds"
    return "holds where" if all(part.conditions for part in failed) else "does not hold"


def said_of(parts: Sequence[Part]) -> str:
    """The verdict in a sentence: what does not hold, what does, and the rest with its conditions.

    >>> said_of([Part(name="", met=True)]), said_of([Part(name="for the copies", met=False)])
    ('holds', 'does not hold')
    >>> both = Part(name="for the scores", met=True), Part(name="for the copies", met=False)
    >>> said_of(both)
    'does not hold for the copies; holds for the scores'
    """
    groups: dict[tuple[bool, str], list[str]] = {}
    for part in parts:
        groups.setdefault((part.met, part.where), []).append(part.name)
    if len(groups) == 1:
        ((met, where),) = groups
        return "holds" if met else f"holds where {where}" if where else "does not hold"
    never, always = groups.pop((False, ""), None), groups.pop((True, ""), None)
    clauses = [named(always)] if always is not None and any(always) else []
    clauses += [f"{named(names)} where {where}".strip() for (_, where), names in groups.items()]
    holds = f"holds {'; '.join(clauses)}" if clauses else ""
    fails = f"does not hold {named(never)}".rstrip() if never is not None else ""
    return "; ".join(filter(None, (fails, holds)))


def named(parts: Iterable[str]) -> str:
    """Parts in a row: `in a, b and c`; a preposition that all share is said once."""
    names = list(parts)
    first = names[0].partition(" ")[0]
    shared = len(names) > 1 and all(name.startswith(f"{first} ") for name in names)
    words = [names[0], *(name.removeprefix(f"{first} ") if shared else name for name in names[1:])]
    return " and ".join([*([", ".join(words[:-1])] if len(words) > 1 else []), *words[-1:]])


def sentence(verdict: Mapping[str, Any]) -> str:
    """The verdict of a record in a sentence."""
    return str(verdict.get("says") or verdict["word"])


def _record(name: str, check: Check) -> dict[str, Any]:
    condition = check.condition()
    return {
        "required": name,
        "part": check.part,
        "met": check.passed,
        "found": check.found,
        "where": "" if condition is None else str(condition),
        "evidence": "" if condition is None else condition.evidence,
    }


def _once(texts: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(texts))


def capital(text: str) -> str:
    """The text as the beginning of a sentence; a symbol such as beta_1 stays as it is.

    >>> capital("largest gap 0.02"), capital("beta_1 > beta_2"), capital("kappa rises"), capital("p = 1")
    ('Largest gap 0.02', 'beta_1 > beta_2', 'kappa rises', 'p = 1')
    """
    first = re.split(r"[\s,:;(]", text, maxsplit=1)[0]
    symbol = len(first) == 1 or "_" in first or first in SYMBOLS
    return text if symbol else text[:1].upper() + text[1:]


def sentences(parts: Iterable[str]) -> str:
    """Sentences in a row, each with a capital, without the last full stop.

    >>> sentences(["it is hard", "", "beta_1 grows."])
    'It is hard. beta_1 grows'
    """
    return ". ".join(capital(part.strip().rstrip(".")) for part in parts if part.strip())
