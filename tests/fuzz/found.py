"""What an instrument's result must be: numbers that are finite, or a doubt in words; and inputs as they were."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch

import interp as ip
from interp.results import Result

MOST_LINES = 8
ROUNDING = 1e-6
# What a result with success must have as finite numbers; the rest of its fields may say "not known" with NaN.
ESTIMATES: dict[str, tuple[str, ...]] = {
    "MatchFit": ("beta", "stderr", "r2"),
    "AttentionFit": ("beta", "stderr", "nats", "nats_explained"),
    "PairFit": ("r2",),
    "OverlapMass": ("by_mask", "by_overlap", "bos", "early", "total"),
    "CopyHeads": ("mass",),
    "LawComparison": ("nats_explained", "nats"),
    "LabelSymmetry": ("kl", "max"),
    "HeadScan": ("induction_even",),
    "ReplacedHeads": ("loss",),
    "CausalTests": ("loss",),
    "DirectPath": ("kl",),
    "LawByLayer": ("from_final",),
    "VoteWeight": ("kl",),
    "OptimalParameters": ("kl",),
    "AddAlphaFit": ("alpha", "kl"),
    "JelinekMercerFit": ("weights", "kl"),
    "BayesPredictive": ("mean",),
}
# Under the independent prior with BOS the optimum is hard matching: as documented, infinite.
MAY_BE_INFINITE = {
    "OptimalParameters": ("beta", "kappa"),
    "PredictedParameters": ("beta", "kappa", "derived_beta", "derived_kappa", "leading_beta", "leading_kappa"),
}
SHARES = ("by_mask", "by_overlap", "bos", "early", "copy_mass", "mass", "masses", "self_mass", "bos_mass")


def wrong_result(found: Any) -> str | None:
    """What is wrong with a result; None if nothing is."""
    if isinstance(found, torch.Tensor):
        return None if torch.isfinite(found).all() else "a tensor that is not finite"
    text = str(found)
    if not isinstance(found, Result):
        return None
    name = type(found).__name__
    json.dumps(found.record(), allow_nan=False)
    found.table()
    if len(text.splitlines()) > MOST_LINES:
        return f"{name}: a text of {len(text.splitlines())} lines"
    if "\n" in found.message or (not found.success and not found.message):
        return f"{name}: success={found.success} with the message {found.message!r}"
    if not found.success:
        return None
    for estimate in ESTIMATES.get(name, ()):
        if not all(map(math.isfinite, numbers_in(getattr(found, estimate)))):
            return f"{name}: success, but {estimate} is not finite"
    for one in fields(found):
        values = list(numbers_in(getattr(found, one.name)))
        if "stderr" in one.name and any(value < 0 for value in values):
            return f"{name}: {one.name} is negative"
        if any(map(math.isinf, values)) and one.name not in MAY_BE_INFINITE.get(name, ()):
            return f"{name}: success, but {one.name} is infinite"
        if one.name in SHARES and any(not -ROUNDING <= value <= 1 + ROUNDING for value in values if value == value):
            return f"{name}: {one.name} is no share"
    return None


def numbers_in(value: Any) -> Iterator[float]:
    """Every number in a field of a result."""
    if hasattr(value, "detach"):
        value = value.detach().numpy()
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "fiu":
            yield from value.astype(float).ravel().tolist()
    elif isinstance(value, (float, np.floating)):
        yield float(value)
    elif isinstance(value, dict):
        for item in value.values():
            yield from numbers_in(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from numbers_in(item)
    elif is_dataclass(value) and not isinstance(value, type):
        for one in fields(value):
            yield from numbers_in(getattr(value, one.name))


def fingerprint(value: Any) -> Any:
    """Something that changes when the value was changed in place."""
    if isinstance(value, torch.nn.Module):
        return [fingerprint(one) for one in value.state_dict().values()]
    if isinstance(value, ip.Circuit):
        return fingerprint(value.model), repr(value)
    if isinstance(value, torch.Tensor):
        return (
            tuple(value.shape),
            value.detach().reshape(-1).contiguous().view(torch.uint8).numpy().tobytes(),
            value.requires_grad,
        )
    if isinstance(value, np.ndarray):
        return value.shape, value.tobytes(), value.flags.writeable
    if isinstance(value, ip.Capture):
        return [fingerprint(getattr(value, one.name)) for one in fields(value)]
    if isinstance(value, dict):
        return [(key, fingerprint(item)) for key, item in value.items()]
    if isinstance(value, (list, tuple)):
        return [fingerprint(item) for item in value]
    return repr(value)
