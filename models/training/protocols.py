"""Training protocols: optimiser settings by name. The name and every number are written to the checkpoint.

paper      Adam at a constant 1e-3, batch 32, the sampled next token as the target, 1e6 steps
annealed   Adam, a short warm-up, the rate held and then taken linearly to zero; far fewer steps, and as the target
           the urn's law of the next token, which has the same expected gradient with less noise
long       `annealed` with five times the steps, to see what had not converged
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from interp.outside import shown

Target: TypeAlias = Literal["token", "law"]


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """Settings of one training run.

    hold     the share of the steps after which the rate starts to fall; 1.0 keeps it constant
    warmup   steps over which the rate rises from zero
    """

    name: str
    steps: int
    learning_rate: float
    batch: int
    target: Target
    hold: float
    warmup: int

    def learning_rates(self, start: int, stop: int) -> np.ndarray:
        """The rate at each step of [start, stop): a function of the step alone, so that resuming changes nothing."""
        step = np.arange(start, stop, dtype=np.float64)
        rate = np.full(stop - start, self.learning_rate)
        if self.hold < 1:
            rate *= np.clip((1 - step / self.steps) / (1 - self.hold), 0, 1)
        if self.warmup:
            rate *= np.minimum(1, (step + 1) / self.warmup)
        return rate


ANNEALED = Protocol(name="annealed", steps=40_000, learning_rate=1e-2, batch=32, target="law", hold=0.3, warmup=200)
PROTOCOLS = {
    "paper": Protocol(name="paper", steps=1_000_000, learning_rate=1e-3, batch=32, target="token", hold=1.0, warmup=0),
    "annealed": ANNEALED,
    "long": replace(ANNEALED, name="long", steps=5 * ANNEALED.steps),
}


def find_protocol(name: Any) -> Protocol:
    """The protocol of that name."""
    if not isinstance(name, str) or name not in PROTOCOLS:
        raise ValueError(f"protocol must be one of {', '.join(PROTOCOLS)}, got {shown(name)}")
    return PROTOCOLS[name]


CHANGED = "paper_changed"  # fewer steps than the paper's, or another rate, batch or target


def protocol_of(record: Mapping[str, Any]) -> str | None:
    """The protocol that a training record names; `CHANGED` where it names the paper's and is not that in full.

    >>> protocol_of({"protocol": "paper", "steps": 50_000, "step": 50_000})
    'paper_changed'
    """
    name: str | None = record.get("protocol")
    if name != "paper":
        return name
    paper = PROTOCOLS[name]
    done = record.get("step", record.get("steps", paper.steps))
    same = all(
        record.get(word, getattr(paper, word)) == getattr(paper, word) for word in ("learning_rate", "batch", "target")
    )
    return name if same and done >= paper.steps else CHANGED
