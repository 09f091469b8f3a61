"""Conditions that decide a claim, as the study `conditions` found them (`python -m figures conditions`).

Each completes `holds where`. A figure names one beside the requirement that failed in its own results.
"""

from __future__ import annotations

from figures.verdict import Check
from models.families import find_family

# Free copy heads of the last query put part of their attention on BOS and elsewhere, and the blocks of W_A grow for it.
FROZEN_COPIES = "the copy heads are frozen on their lags"
READ_FROM_SCORES = "it is read from the scores, or the copy heads are frozen on their lags"
# A softmax readout adds evidence in the logits. Under the hierarchical prior it also adds what passes by the match
# head: copy heads then count tokens, and the match head discounts the votes of tokens that are counted there.
READOUT_ADDS_VOTES = "the readout adds votes, which the standard family's softmax does not"
# A free readout passes a constant into every prediction, and so does half of the smoothing where there is no BOS.
FIXED_READOUT = "the readout is fixed at the construction's"
LOWER_ORDERS_TELL = "lower orders tell something, as under the hierarchical prior"


def softmax_family(family: str) -> bool:
    """Whether the models of a family have a logit readout, whatever they were asked for."""
    return "probability" not in find_family(family).readouts


def by_family(family: str, passed: bool, *, otherwise: str, found: str = "") -> Check:
    """A requirement of a family's model: a softmax readout decides it in one family, `otherwise` in the others."""
    return Check(passed=passed, found=found, where=READOUT_ADDS_VOTES if softmax_family(family) else otherwise)


def runs_that_meet(met: int, total: int, *, what: str = "the run has found the law") -> str:
    """A condition that seeds decide: no factor of the study tells them apart."""
    return f"{what} ({met} of {total} runs)"
