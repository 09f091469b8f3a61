"""The start of training as text: a word for the whole model, and a word for each part that starts differently.

    hard                             copy heads hard, W_A zero, the construction's readout
    hard,readout=random(0.3)         the same with a random readout
    copies=copy(8),match=zero,match_bias=zero,readout=construction

Each family defines its words and parts: see `models.families.registry`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

# Of a bias on each copy head's lag. From HARD on the softmax is saturated, so that training cannot move a head off its
# lag; up to SOFT, the last query of T = 64 gives 0.3 or more of its attention to other keys.
HARD, SOFT = 40.0, 5.0


@dataclass(frozen=True)
class Start:
    """One word with its number, e.g. copy(8); the number is None for a word that takes none."""

    word: str
    size: float | None = None

    def __str__(self) -> str:
        return self.word if self.size is None else f"{self.word}({self.size:g})"


@dataclass(frozen=True, kw_only=True)
class StartRules:
    """The starts that a family supports.

    whole   each form for the whole model, e.g. "copy(STRENGTH)", and what it means part by part; a name in
            capitals stands for the number
    parts   the forms that each part supports

    >>> rules = StartRules(whole={"flat": "W=zero", "rough(STD)": "W=normal(STD)"},
    ...                    parts={"W": ("zero", "normal(STD)")})
    >>> rules.parse("rough(0.3)")
    {'W': Start(word='normal', size=0.3)}
    """

    whole: Mapping[str, str]
    parts: Mapping[str, tuple[str, ...]]

    def parse(self, text: str) -> dict[str, Start]:
        """The start of every part, or a `ValueError` that lists the known ones."""
        first, *others = text.replace(" ", "").split(",")
        if "=" not in first:
            given = _read(first, tuple(self.whole), what="init")
            form = next(form for form in self.whole if form.partition("(")[0] == given.word)
            first = re.sub(r"\([A-Z]+\)", f"({given.size!r})", self.whole[form])
        found: dict[str, Start] = {}
        for piece in [*first.split(","), *others]:
            part, _, start = piece.partition("=")
            if part not in self.parts:
                raise ValueError(f"init: there is no part {part!r}; the parts are {', '.join(self.parts)}")
            found[part] = _read(start, self.parts[part], what=f"init of {part}")
        if missing := [part for part in self.parts if part not in found]:
            raise ValueError(f"init {text!r} does not say where {', '.join(missing)} start{'s' * (len(missing) == 1)}")
        return {part: found[part] for part in self.parts}


def _read(text: str, forms: tuple[str, ...], *, what: str) -> Start:
    match = re.fullmatch(r"([a-z]+)(?:\(([^()]*)\))?", text)
    for form in forms:
        word, takes_number, _ = form.partition("(")
        if match is None or match[1] != word or bool(takes_number) != (match[2] is not None):
            continue
        if not takes_number:
            return Start(word)
        try:
            size = float(match[2])
        except ValueError:
            break
        if math.isfinite(size) and size >= 0:
            return Start(word, size)
    raise ValueError(f"{what} must be {' or '.join(forms)}, with a number >= 0 in the brackets, got {text!r}")
