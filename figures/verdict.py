"""What a figure says of the paper's claim."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Word = Literal["holds", "holds in part", "does not hold here", "cannot tell", "beyond the paper"]
WORDS: tuple[str, ...] = get_args(Word)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One word, the numbers it rests on, and why it is that word.

    `beyond the paper` is for pictures of what the paper does not claim; `cannot tell` where results are missing.
    """

    word: Word
    measured: str
    why: str = ""

    def __post_init__(self) -> None:
        if self.word not in WORDS:
            raise ValueError(f"a verdict is one of {', '.join(WORDS)}, got {self.word!r}")
        if not self.measured:
            raise ValueError("a verdict needs the numbers it rests on")


def judged(checks: dict[str, bool], *, measured: str, why: str = "") -> Verdict:
    """holds if every check does, does not hold if none does, in part otherwise; the failed ones are named.

    >>> judged({"copies are sharp": True, "betas agree": False}, measured="0.99, 3.1 against 2.7").why
    'fails: betas agree'
    """
    if not checks:
        return Verdict(word="cannot tell", measured=measured or "nothing to judge", why=why)
    failed = [name for name, passed in checks.items() if not passed]
    word: Word = "holds" if not failed else "does not hold here" if len(failed) == len(checks) else "holds in part"
    reason = f"fails: {'; '.join(failed)}" if failed else ""
    return Verdict(word=word, measured=measured, why=". ".join(part for part in (reason, why) if part))
