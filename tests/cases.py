"""The one table of cases that runs through counts, estimators and constructed models.

Every order 1..4 with every vocabulary 2..9, each with and without BOS; the betas cover hard, soft, absent, repelling
and mixed matches in [-3, 100], and the lengths start at the shortest that has a candidate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

BETAS = (
    (2.7, 1.2, 0.6, 0.3),
    (100.0, 100.0, 100.0, 100.0),
    (1.5, 1.5, 1.5, 1.5),
    (-3.0, -1.0, -2.5, -0.1),
    (-3.0, 100.0, 0.0, 7.0),
    (0.0, 0.0, 0.0, 0.0),
    (30.0, -3.0, 0.5, 60.0),
    (0.01, 12.0, 4.0, -3.0),
    (5.0, 4.0, 100.0, 2.0),
)
KAPPAS = (3.3, -4.0, 100.0, 0.0, 9.5, 250.0, -40.0)
EXTRA_LENGTHS = (9, 24, 1, 15, 40)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One setting of the estimator, and sequences to try it on."""

    order: int
    vocab: int
    length: int
    beta: tuple[float, ...]
    kappa: float | None

    def __str__(self) -> str:
        return f"k{self.order}-V{self.vocab}-T{self.length}-{'nobos' if self.kappa is None else 'bos'}"

    def tokens(self, batch: int = 3) -> np.ndarray:
        """Rows that are uniform, sticky (many long matches) and nearly constant, in turn; the same on every run."""
        rng = np.random.default_rng([self.order, self.vocab, self.length])
        tokens = rng.integers(self.vocab, size=(batch, self.length))
        for row, keep in enumerate(np.resize([0.0, 0.6, 0.95], batch)):
            for t in range(1, self.length):
                if rng.random() < keep:
                    tokens[row, t] = tokens[row, t - 1]
        return tokens


def _table() -> list[Case]:
    cases: list[Case] = []
    for order in range(1, 5):
        for vocab in range(2, 10):
            n = len(cases)
            beta = BETAS[n // 2 % len(BETAS)][:order]
            length = order + EXTRA_LENGTHS[n // 2 % len(EXTRA_LENGTHS)]
            for kappa in (None, KAPPAS[n // 2 % len(KAPPAS)]):
                cases.append(Case(order=order, vocab=vocab, length=length, beta=beta, kappa=kappa))
    return cases


CASES = _table()
every_case = pytest.mark.parametrize("case", CASES, ids=str)
