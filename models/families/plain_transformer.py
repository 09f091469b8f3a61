"""What runs of plain HookedTransformers share: the study file, the model before its first step, the rate, one step."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

FLOOR = 0.05  # share of the learning rate at the end of the cosine
CLIP = 1.0  # largest norm of the gradient

Run = TypeVar("Run")


def read_study(file: Path, make: Callable[..., Run], *, tables: tuple[str, ...] = ()) -> Run:
    """The run that a study file describes, from its tables `transformer`, `training` and perhaps `tables`.

    `make` takes the tables by name, those of `training` one by one. A `ValueError` names what is wrong with the file.
    """
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{file}: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{file}: {error}") from error
    if unknown := sorted(set(values) - {"summary", "transformer", "training", *tables}):
        raise ValueError(f"{file}: unknown table {unknown[0]}")
    try:
        given = {name: values[name] for name in tables if name in values}
        return make(transformer=values["transformer"], **given, **values["training"])
    except KeyError as error:
        raise ValueError(f"{file}: no table {error.args[0]}") from error
    except TypeError as error:
        raise ValueError(f"{file}: {error}") from error


def before_training(shape: dict[str, Any], *, length: int, vocab: int, out: int | None = None, seed: int) -> Any:
    """The transformer before its first step; the global generators are left as they were."""
    import torch

    from interp.lens import HookedTransformer, HookedTransformerConfig

    config = HookedTransformerConfig(
        **shape,
        n_ctx=length,
        d_vocab=vocab,
        d_vocab_out=vocab if out is None else out,
        default_prepend_bos=False,
        device="cpu",
        init_weights=False,
    )
    model = HookedTransformer(config)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model.init_weights()
    return model


def share_of_rate(step: int, *, steps: int, warmup: int, schedule: str = "cosine") -> float:
    """The learning rate of a step as a share of the largest: a linear warm-up, then a cosine or a constant."""
    falling = 1.0 if schedule == "constant" else FLOOR + (1.0 - FLOOR) * 0.5 * (1.0 + math.cos(math.pi * step / steps))
    return min(1.0, (step + 1) / warmup) * falling


def descend(optimiser: Any, model: Any, loss: Any, *, rate: float) -> None:
    """One step down the gradient of a loss."""
    import torch

    for group in optimiser.param_groups:
        group["lr"] = rate
    optimiser.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
    optimiser.step()
