"""Reads files from outside, or raises a `ValueError` of one line.

    read_json(file)      any JSON value
    read_object(file)    a JSON object, as a dict
    read_toml(file)      a TOML document, as a dict
    read_tensors(stream) the tensors that an open safetensors file says that it holds

Files come from users, from other programs and from runs that were killed. So a file is read only up to a stated size
and depth; NaN, numbers past 64 bits and keys that occur twice are refused, and the error names the file.
"""

from __future__ import annotations

import json
import math
import os
import stat
import tomllib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

MAX_FILE_BYTES = 256 << 20  # the largest results have a few megabytes
MAX_DESCRIPTION_BYTES = 4 << 20  # of a checkpoint's config.json or of the header of its tensors: they have kilobytes
MAX_TEXT = 200  # characters of a field that names something, such as a protocol or a start
MAX_MESSAGE = 1000  # characters of an error about a file: it may repeat what stands there
MAX_NAME_BYTES = 200  # of one name in a path: file systems take 255, and a temporary file's name is longer
MAX_PATH_BYTES = 4000
MAX_WHOLE = (1 << 63) - 1  # of integers in files
MAX_ANY_WHOLE = 10**100  # where integers past 64 bits are allowed
MAX_DEPTH = 100  # of objects in objects
MAX_FOLDERS = 20_000  # below a directory that is searched


def printable(text: str) -> str:
    """The text, its lines as they are; characters that move a terminal's cursor or turn its writing are escaped.

    >>> print(printable("T32\\x1b[2J\\u202e\\nT64"))
    T32\\x1b[2J\\u202e
    T64
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in "\n\xa0" else ascii(one)[1:-1] for one in text)


def one_line(message: object) -> str:
    """The message on one line, `printable`."""
    return printable(" ".join(str(message).split()))


def shown(value: Any, *, most: int = 60) -> str:
    """A value as an error message shows it: on one line, and shortened where it is long."""
    try:
        text = one_line(repr(value))
    except Exception as error:  # an integer of more digits than Python prints, an object that cannot be shown
        text = f"{type(value).__name__} ({type(error).__name__})"
    return text if len(text) <= most else f"{text[: most - 1]}…"


def as_path(text: str | os.PathLike[str]) -> Path:
    """A path that a file system can hold: no NUL in it, and no part that is too long."""
    name = os.fspath(text)
    if not isinstance(name, str) or not name:
        raise ValueError(f"expected a path, got {shown(text)}")
    if "\0" in name:
        raise ValueError(f"a path cannot hold a NUL character, got {shown(name)}")
    try:
        parts = [os.fsencode(part) for part in Path(name).parts]
    except UnicodeEncodeError:
        raise ValueError(f"a path must be text that can be encoded, got {shown(name)}") from None
    if any(len(part) > MAX_NAME_BYTES for part in parts) or len(os.fsencode(name)) > MAX_PATH_BYTES:
        raise ValueError(
            f"a name in a path may have {MAX_NAME_BYTES} bytes, a path {MAX_PATH_BYTES}, got {shown(name)}"
        )
    return Path(name)


def open_file(name: str | os.PathLike[str], *, folder: int | None = None) -> BinaryIO:
    """An open file; a pipe or a device, from which reading might never end, is refused. `folder` is a descriptor."""
    descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError("not a file")
    return os.fdopen(descriptor, "rb")


def text_of(handle: BinaryIO, *, most: int, form: str) -> str:
    """The text of an open file of at most `most` bytes; `form` is what it should be, for the message."""
    if (size := os.fstat(handle.fileno()).st_size) > most:
        raise ValueError(f"{size >> 20} MiB, more than the {most >> 20} MiB that are read")
    try:
        return handle.read(most).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"not valid {form} in UTF-8 ({one_line(error)})") from None


def read_text(file: str | os.PathLike[str], *, most: int = MAX_FILE_BYTES, form: str = "text") -> str:
    """The text of a file of at most `most` bytes; `form` is what it should be, for the message."""
    place = as_path(file)
    try:
        with open_file(place) as handle:
            return text_of(handle, most=most, form=form)
    except FileNotFoundError:
        raise ValueError(f"{place}: no such file") from None
    except OSError as error:
        raise ValueError(f"{place}: {error.strerror or one_line(error)}") from None
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None


def as_json(text: str, *, any_size: bool = False) -> Any:
    """The JSON value of a text. `any_size` lets integers past 64 bits pass: generators of random numbers have them."""
    try:
        value = json.loads(text, object_pairs_hook=every_key_once)
        _check(value, whole=MAX_ANY_WHOLE if any_size else MAX_WHOLE)
    except RecursionError:
        raise ValueError("not valid JSON (nested too deeply)") from None
    except ValueError as error:
        raise ValueError(f"not valid JSON ({one_line(error)})") from None
    return value


def read_json(file: str | os.PathLike[str], *, most: int = MAX_FILE_BYTES, any_size: bool = False) -> Any:
    """The JSON value in a file; `any_size` as for `as_json`."""
    text = read_text(file, most=most, form="JSON")
    try:
        return as_json(text, any_size=any_size)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None


def read_object(file: str | os.PathLike[str], *, most: int = MAX_FILE_BYTES, any_size: bool = False) -> dict[str, Any]:
    """The JSON object in a file."""
    value = read_json(file, most=most, any_size=any_size)
    if not isinstance(value, dict):
        raise ValueError(f"{file}: expected a JSON object, got {type(value).__name__}")
    return value


def check_keys(values: Any, needed: Collection[str], *, optional: Collection[str] = (), place: str) -> None:
    """Refuse what is no JSON object, has another key, or lacks one; `place` is the object in an error's words."""
    if not isinstance(values, dict):
        raise ValueError(f"{place} must be a JSON object, got {shown(values)}")
    if unknown := sorted(set(values) - {*needed, *optional}):
        raise ValueError(f"unknown key {shown(unknown[0])} in {place}")
    if missing := sorted(set(needed) - set(values)):
        raise ValueError(f"missing key {missing[0]} in {place}")


def read_toml(file: str | os.PathLike[str], *, most: int = MAX_FILE_BYTES) -> dict[str, Any]:
    """The TOML document in a file."""
    text = read_text(file, most=most, form="TOML")
    try:
        document = tomllib.loads(text)
        _check(document, whole=MAX_WHOLE)
    except RecursionError:
        raise ValueError(f"{file}: not valid TOML (nested too deeply)") from None
    except (ValueError, TypeError, OverflowError, IndexError) as error:
        raise ValueError(f"{file}: not valid TOML ({one_line(error)})") from None
    return document


def every_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; other readers take the first or the last of two equal keys, so that two would see two files."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {shown(twice)} comes twice")
    return found


def _check(value: Any, depth: int = 0, *, whole: int) -> None:
    """Refuse what is nested too deeply, and numbers that no field holds."""
    if depth > MAX_DEPTH:
        raise ValueError("nested too deeply")
    if isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            _check(item, depth + 1, whole=whole)
    elif isinstance(value, int) and abs(value) > whole:
        raise ValueError(f"the number {shown(value)} is past 64 bits")
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError("NaN, infinities and numbers that are too large are not taken")


# ---- safetensors: a length in 8 bytes, a JSON header of names, types, shapes and places, and the numbers

LENGTH_BYTES = 8
WIDTHS = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}


@dataclass(frozen=True)
class TensorEntry:
    """One tensor of a file: its type and shape, and where its bytes begin and end in the file."""

    kind: str
    shape: tuple[int, ...]
    start: int
    stop: int


def read_tensors(stream: BinaryIO, *, most: int = MAX_DESCRIPTION_BYTES) -> dict[str, TensorEntry]:
    """The tensors of a safetensors file by name; they fill the file, each byte belongs to one of them.

    A header of more than `most` bytes, or of more than the file has, is refused before it is read.
    """
    total = os.fstat(stream.fileno()).st_size
    stream.seek(0)
    size = int.from_bytes(stream.read(LENGTH_BYTES), "little")
    first = LENGTH_BYTES + size
    try:
        if total < LENGTH_BYTES or first > total or size > most:
            raise ValueError(f"a header of {size} bytes in a file of {total}")
        header = as_json(stream.read(size).decode("utf-8"))
        if not isinstance(header, dict):
            raise ValueError("its header is no JSON object")
        header.pop("__metadata__", None)  # says nothing about a tensor
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


def _entry(name: str, value: Any, first: int) -> TensorEntry:
    """One entry of the header; `first` is where the numbers begin in the file."""
    if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"tensor {shown(name)} is described by {shown(value)}")
    kind, shape, places = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(kind, str) or kind not in WIDTHS:
        raise ValueError(f"tensor {shown(name)} is of type {shown(kind)}, not one of {', '.join(WIDTHS)}")
    whole = all(isinstance(part, list) and all(type(at) is int and at >= 0 for at in part) for part in (shape, places))
    if not whole or len(places) != 2 or places[1] - places[0] != math.prod(shape) * WIDTHS[kind]:
        raise ValueError(f"tensor {shown(name)} of shape {shown(shape)} does not take the bytes {shown(places)}")
    return TensorEntry(kind, tuple(shape), first + places[0], first + places[1])
