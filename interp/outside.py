"""Reads files from outside (text, JSON and TOML), or raises a `ValueError` of one line.

    read_json(file)      any JSON value
    read_object(file)    a JSON object, as a dict
    read_toml(file)      a TOML document, as a dict

Files come from users, from other programs and from runs that were killed. So a file is read only up to a stated size
and depth; NaN, numbers past 64 bits and keys that occur twice are refused, and the error names the file.
"""

from __future__ import annotations

import json
import math
import os
import stat
import tomllib
from pathlib import Path
from typing import Any, BinaryIO

MAX_FILE_BYTES = 256 << 20  # the largest results have a few megabytes
MAX_DESCRIPTION_BYTES = 4 << 20  # of a checkpoint's config.json or of the header of its tensors: they have kilobytes
MAX_TEXT = 200  # characters of a field that names something, such as a protocol or a start
MAX_MESSAGE = 1000  # characters of an error about a file: it may repeat what stands there
MAX_NAME_BYTES = 200  # of one name in a path: file systems take 255, and a temporary file's name is longer
MAX_PATH_BYTES = 4000
MAX_WHOLE = (1 << 63) - 1  # of integers in files
MAX_DIGITS = 100  # of an integer, where integers past 64 bits are allowed
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
        value = json.loads(
            text,
            parse_constant=_refuse,
            parse_float=_finite,
            parse_int=_any_whole if any_size else _whole,
            object_pairs_hook=_once,
        )
        _check(value)
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


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; other readers take the first or the last of two equal keys, so that two would see two files."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the key {shown(name)} occurs twice")
        found[name] = value
    return found


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {shown(text)} is too large")
    return number


def _whole(text: str) -> int:
    if len(text) > 20 or abs(int(text)) > MAX_WHOLE:
        raise ValueError(f"the number {text[:20]}… is past 64 bits" if len(text) > 20 else f"{text} is past 64 bits")
    return int(text)


def _any_whole(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"the number {text[:20]}… is too large")
    return int(text)


def _check(value: Any, depth: int = 0, *, whole: int | None = None) -> None:
    """Refuse what is nested too deeply, and numbers that no field holds."""
    if depth > MAX_DEPTH:
        raise ValueError("nested too deeply")
    if isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            _check(item, depth + 1, whole=whole)
    elif whole is not None and isinstance(value, int) and abs(value) > whole:
        raise ValueError("a number is past 64 bits")
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError("NaN and infinities are not taken")
