"""What a figure says of the paper's claim: what was required, what was found, and where it holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

Word = Literal[
    "holds",
    "holds where",
    "does not hold, condition not known",
    "does not hold here",
    "cannot tell",
    "beyond the paper",
]
WORDS: tuple[str, ...] = get_args(Word)
FAILED = ("holds where", "does not hold, condition not known", "does not hold here")  # a requirement was not met


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One word, the condition that goes with it, and the numbers it rests on.

    word        `holds where` needs a condition; `beyond the paper` is for pictures of what the paper does not claim;
                `cannot tell` where results are missing
    condition   completes `holds where`: "the copy heads are frozen"; empty for every other word
    headline    the finding in plain words, one sentence with its number; by default the first clause of `measured`
    number      the one number that decides, with its spread, short enough for a table's cell; by default the headline
    required    the requirements that were not met; where all were met, all of them
    found       what was found in place of what was not met
    measured    all numbers
    why         the reason, where one is known
    checks      every requirement, met or not: {"required", "met", "found", "where"}, as a `Check` has them
    """

    word: Word
    measured: str
    condition: str = ""
    headline: str = ""
    number: str = ""
    required: str = ""
    found: str = ""
    why: str = ""
    checks: tuple[dict[str, Any], ...] = ()

    def __post_init__(self) -> None:
        if self.word not in WORDS:
            raise ValueError(f"a verdict is one of {', '.join(WORDS)}, got {self.word!r}")
        if not self.measured:
            raise ValueError("a verdict needs the numbers it rests on")
        if (self.word == "holds where") != bool(self.condition):
            raise ValueError(f"the word `holds where`, and no other, has a condition; got {self.word!r}")
        if not self.headline:
            object.__setattr__(self, "headline", self.measured.split("; ")[0])
        if not self.number:
            object.__setattr__(self, "number", self.headline)


@dataclass(frozen=True, kw_only=True)
class Check:
    """Whether a requirement was met; if not, what was found, and where it is met.

    found   what was found, whether it was met or not
    where   the condition under which it is met, to be read after `holds where`: a text, or what prints as one, such as
            `figures.known_conditions.Condition`; empty where none is known
    """

    passed: bool
    found: str = ""
    where: object = ""


def judged(
    checks: Mapping[str, bool | Check],
    *,
    measured: str,
    headline: str = "",
    number: str = "",
    why: str = "",
    condition: str = "",
) -> Verdict:
    """holds if every requirement is met, does not hold here if none is, and holds where its condition says otherwise.

    The condition is the one given, or else those of the failed checks together. Where a failed check knows none, the
    claim does not hold, and its condition is not known.

    >>> found = judged(
    ...     {"copies are sharp": True, "betas agree": Check(passed=False, found="3.1, 2.7", where="there is a BOS")},
    ...     measured="0.99; 3.1 against 2.7",
    ... )
    >>> sentence(vars(found)), found.required, found.found, found.headline
    ('holds where there is a BOS', 'betas agree', '3.1, 2.7', '0.99')
    """
    if not checks:
        told = measured or "nothing to judge"
        return Verdict(word="cannot tell", measured=told, headline=headline, number=number, why=why)
    made = {name: one if isinstance(one, Check) else Check(passed=bool(one)) for name, one in checks.items()}
    failed = {name: check for name, check in made.items() if not check.passed}
    word: Word = "holds" if not failed else "does not hold here" if len(failed) == len(made) else "holds where"
    if word == "holds where" and not condition:
        known = [str(check.where) for check in failed.values()]
        if all(known):
            condition = " and ".join(dict.fromkeys(known))
        else:
            word = "does not hold, condition not known"
    return Verdict(
        word=word,
        condition=condition if word == "holds where" else "",
        headline=headline,
        number=number,
        required="; ".join(failed or made),
        found=_once(check.found for check in failed.values() if check.found),
        measured=measured,
        why=why,
        checks=tuple(
            {
                "required": name,
                "met": check.passed,
                "found": check.found,
                "where": "" if check.passed else str(check.where),
            }
            for name, check in made.items()
        ),
    )


def sentence(verdict: Mapping[str, str]) -> str:
    """The word with its condition."""
    return f"{verdict['word']} {verdict['condition']}" if verdict["condition"] else verdict["word"]


def _once(texts: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(texts))
