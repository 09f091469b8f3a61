"""Reads `model.safetensors` into a model: the header first, compared whole, before anything is allocated.

What the model needs is found by making it on torch's `meta` device, which takes no memory. An error is a `ValueError`
of one line.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO, TypeVar

import torch

from interp.outside import TensorEntry, one_line, read_tensors, shown

Model = TypeVar("Model", bound=torch.nn.Module)

MAX_TENSORS = 4096  # a hundred layers have about a tenth of that; TransformerLens makes as many in a second
DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
SHORTER = (torch.float16, torch.float32)  # what the file may hold for a parameter of more bits


def filled(make: Callable[[], Model], handle: BinaryIO, *, kind: str, least: int = 0) -> Model:
    """The model with the file's numbers in its parameters; a `ValueError` names the first tensor that does not fit.

    make    makes the model; whatever its parameters hold is replaced
    handle  the open file
    kind    the model in an error's words
    least   the least number of tensors of such a model, known without making it
    """
    entries = read_tensors(handle)
    if not least <= len(entries) <= MAX_TENSORS:
        raise ValueError(f"the file has {len(entries)} tensors, {kind} at least {least} and at most {MAX_TENSORS}")
    try:
        with torch.device("meta"):
            expected = dict(make().named_parameters())
    except Exception as error:  # whatever TransformerLens does with an architecture that it does not know
        raise ValueError(f"{kind} cannot be made of this config ({one_line(error)})") from error
    _compare(entries, expected, kind=kind)
    try:
        model = make()
    except (MemoryError, RuntimeError) as error:
        raise ValueError(f"{kind} does not fit into memory ({one_line(error)})") from error
    for name, parameter in model.named_parameters():
        stored = torch.empty(parameter.shape, dtype=DTYPES[entries[name].kind])
        numbers = stored.reshape(-1).view(torch.uint8).numpy()
        handle.seek(entries[name].start)
        if handle.readinto(numbers) != len(numbers):  # type: ignore[attr-defined]
            raise ValueError("the file became shorter while it was read")
        parameter.data.copy_(stored)
        if not torch.isfinite(parameter.data).all():
            raise ValueError(f"tensor {name} holds NaN or infinity")
    return model


def _compare(entries: dict[str, TensorEntry], expected: dict[str, torch.nn.Parameter], *, kind: str) -> None:
    """Refuse a file whose tensors are not exactly the model's."""
    if missing := sorted(set(expected) - set(entries)):
        raise ValueError(f"tensor {missing[0]} is missing")
    if unknown := sorted(set(entries) - set(expected)):
        raise ValueError(f"tensor {shown(unknown[0])} does not belong to {kind}")
    for name, parameter in expected.items():
        found, wanted = entries[name], tuple(parameter.shape)
        if found.shape != wanted:
            raise ValueError(f"tensor {name} has shape {list(found.shape)}, the config needs {list(wanted)}")
        stored = DTYPES.get(found.kind)
        if stored != parameter.dtype and (stored, parameter.dtype) != SHORTER:
            raise ValueError(f"tensor {name} is of type {found.kind}, the config needs {parameter.dtype}")
