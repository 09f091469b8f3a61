"""How kappa of a trained construction is trained: freely, or tied to beta.

The paper trains "only the two per-lag scalars" beta_1, beta_2 of its construction (app:hierarchical_experiments) and
does not say what happens to kappa. There are three readings; in the last two, kappa = offset + slope * sum(beta):

    free          kappa is trained as beta is, as the free parameter of prop:transformer_estimator. The default.
    tied(ALPHA)   kappa = sum(beta) + ln(ALPHA |V|), the only formula for kappa in the paper (prop:add_constant has
                  k beta + ln(alpha |V|)): BOS gives every symbol ALPHA pseudo-counts of a full match.
    fixed(DELTA)  kappa = DELTA + sum(beta) / |V|: the relative bias of BOS, delta_2 in the proof, is a constant, and
                  only W_A moves.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass


@dataclass(frozen=True)
class KappaRule:
    """A reading of kappa; `value` is ALPHA or DELTA.

    >>> KappaRule.parse("tied(1)").line(vocab=5)
    (1.6094379124341003, 1.0)
    """

    word: str
    value: float | None = None

    @classmethod
    def parse(cls, text: str) -> KappaRule:
        if text == "free":
            return cls("free")
        match = re.fullmatch(r"(tied|fixed)\(([^()]+)\)", text.replace(" ", ""))
        try:
            value = float(match[2]) if match else math.nan
        except ValueError:
            value = math.nan
        if match is None or not math.isfinite(value) or (match[1] == "tied" and value <= 0):
            raise ValueError(f"kappa must be free, tied(ALPHA) with ALPHA > 0, or fixed(DELTA), got {text!r}")
        return cls(match[1], value)

    @property
    def free(self) -> bool:
        return self.value is None

    def line(self, *, vocab: int) -> tuple[float, float]:
        """(offset, slope) of kappa in sum(beta)."""
        if self.value is None:
            raise ValueError("a free kappa does not follow beta")
        return (math.log(self.value * vocab), 1.0) if self.word == "tied" else (self.value, 1.0 / vocab)

    def __str__(self) -> str:
        return self.word if self.value is None else f"{self.word}({self.value:g})"
