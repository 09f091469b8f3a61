"""Reads `model.safetensors` into a model: the header first, compared whole, before anything is allocated.

    filled             a model with the file's numbers in its parameters
    read_header        the file's tensors by name

The format is a length in 8 bytes, a JSON header of names, types, shapes and places, and the numbers. What the model
needs is found by making it on torch's `meta` device, which takes no memory. An error is a `ValueError` of one line.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeVar

import torch

from interp.arguments import is_whole
from interp.outside import MAX_DESCRIPTION_BYTES, as_json, one_line, shown

Model = TypeVar("Model", bound=torch.nn.Module)

MAX_TENSORS = 4096  # a hundred layers have about a tenth of that; TransformerLens makes as many in a second
LENGTH_BYTES = 8
DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


@dataclass(frozen=True)
class Entry:
    """One tensor of the file: its type and shape, and where its bytes begin and end in the file."""

    dtype: torch.dtype
    shape: list[int]
    start: int
    stop: int


def filled(make: Callable[[], Model], handle: BinaryIO, *, kind: str, least: int = 0) -> Model:
    """The model with the file's numbers in its parameters; a `ValueError` names the first tensor that does not fit.

    make    makes the model; whatever its parameters hold is replaced
    handle  the open file
    kind    the model in an error's words
    least   the least number of tensors of such a model, known without making it
    """
    entries = read_header(handle)
    if len(entries) < least:
        raise ValueError(f"the file has {len(entries)} tensors, {kind} needs at least {least}")
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
        _read_into(parameter.data, handle, entries[name].start)
        if not torch.isfinite(parameter.data).all():
            raise ValueError(f"tensor {name} holds NaN or infinity")
    return model


def read_header(handle: BinaryIO) -> dict[str, Entry]:
    """The file's tensors by name; they fill the file, each byte belongs to one of them."""
    total = os.fstat(handle.fileno()).st_size
    handle.seek(0)
    size = int.from_bytes(handle.read(LENGTH_BYTES), "little")
    first = LENGTH_BYTES + size
    try:
        if total < LENGTH_BYTES or first > total or size > MAX_DESCRIPTION_BYTES:
            raise ValueError(f"a header of {size} bytes in a file of {total}")
        header = as_json(handle.read(size).decode("utf-8"))
        if not isinstance(header, dict):
            raise ValueError("its header is no JSON object")
        header.pop("__metadata__", None)  # says nothing about a tensor
        if len(header) > MAX_TENSORS:
            raise ValueError(f"{len(header)} tensors, more than {MAX_TENSORS}")
        entries = {name: _entry(name, value, first) for name, value in header.items()}
        end = first
        for name, entry in sorted(entries.items(), key=lambda item: (item[1].start, item[1].stop)):
            if entry.start != end:
                raise ValueError(f"tensor {shown(name)} does not begin where the one before it ends")
            end = entry.stop
        if end != total:
            raise ValueError(f"its tensors end at byte {end}, the file at {total}")
    except ValueError as error:
        raise ValueError(f"not a readable safetensors file ({error})") from None
    return entries


def _entry(name: str, value: Any, first: int) -> Entry:
    """One entry of the header; `first` is where the numbers begin in the file."""
    if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"tensor {shown(name)} is described by {shown(value)}")
    dtype, shape, places = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ValueError(f"tensor {shown(name)} has the type {shown(dtype)}, not one of {', '.join(DTYPES)}")
    for numbers in (shape, places):
        if not isinstance(numbers, list) or not all(is_whole(number) and number >= 0 for number in numbers):
            raise ValueError(f"tensor {shown(name)} has a shape or a place that is no list of whole numbers")
    if len(places) != 2 or places[1] - places[0] != math.prod(shape) * DTYPES[dtype].itemsize:
        raise ValueError(f"tensor {shown(name)} of shape {shown(shape)} does not take the bytes {shown(places)}")
    return Entry(DTYPES[dtype], shape, first + places[0], first + places[1])


def _compare(entries: dict[str, Entry], expected: dict[str, torch.nn.Parameter], *, kind: str) -> None:
    """Refuse a file whose tensors are not exactly the model's."""
    if missing := sorted(set(expected) - set(entries)):
        raise ValueError(f"tensor {missing[0]} is missing")
    if unknown := sorted(set(entries) - set(expected)):
        raise ValueError(f"tensor {shown(unknown[0])} does not belong to {kind}")
    for name, parameter in expected.items():
        entry, shape = entries[name], list(parameter.shape)
        if entry.shape != shape:
            raise ValueError(f"tensor {name} has shape {entry.shape}, the config needs {shape}")
        if entry.dtype != parameter.dtype:
            raise ValueError(f"tensor {name} is {entry.dtype}, the config needs {parameter.dtype}")


def _read_into(tensor: torch.Tensor, handle: BinaryIO, start: int) -> None:
    """Replace the tensor's numbers by those that begin at `start` in the file."""
    numbers = tensor.reshape(-1).view(torch.uint8).numpy()
    handle.seek(start)
    if handle.readinto(numbers) != len(numbers):  # type: ignore[attr-defined]
        raise ValueError("the file became shorter while it was read")
