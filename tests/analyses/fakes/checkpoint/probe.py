"""Probes. Really.

More.
"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from analyses.running.options import CheckpointOptions, option
from analyses.running.subject import Subject
from interp.results import Result

COLUMNS = ("beta_1", "n")


@dataclass(frozen=True, kw_only=True)
class Probed(Result):
    """A result as an instrument makes it."""

    beta: tuple[float, ...]
    matrix: tuple[tuple[float, ...], ...]
    n: int

    def table(self) -> pd.DataFrame:
        return pd.DataFrame({"lag": range(1, len(self.beta) + 1), "beta": self.beta})

    def __str__(self) -> str:
        return f"Probed on {self.n} sequences"


@dataclass(frozen=True, kw_only=True)
class Options(CheckpointOptions):
    scale: float = option(1.0, "how much (default: %(default)s)")
    lags: tuple[int, ...] | None = option(None, "which ones", metavar="R", least=1)


def analyse(subject: Subject, options: Options) -> Probed:
    print("a library talks")  # must not reach stdout
    if subject.info.model["length"] == 7:
        raise ValueError("seven is\nnot for us")
    beta = options.scale * float(subject.model.blocks[1].attn.W_Q[0, 0, subject.prior.vocab])
    return Probed(beta=(beta, beta), matrix=((1.0, float("nan")),), n=subject.chains.tokens.shape[0])
