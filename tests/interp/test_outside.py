"""Files and paths from outside: what cannot be read is refused in one line that names the file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import interp as ip
from interp.hooked.checkpoint import CheckpointError
from interp.outside import as_path, read_json, read_object, read_toml


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "not valid JSON"),
        ("[" * 100_000, "nested too deeply"),
        ("[" * 200 + "]" * 200, "nested too deeply"),
        ('{"a": NaN}', "NaN"),
        ('{"a": 1e999}', "too large"),
        ('{"a": 9223372036854775808}', "past 64 bits"),
        ("\xff", "not valid JSON"),
        ("[1]", "expected a JSON object, got list"),
    ],
)
def test_json_of_wrong_shapes_is_refused(tmp_path: Path, content: str, message: str) -> None:
    (file := tmp_path / "x.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(ValueError, match=message) as caught:
        read_object(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert "\n" not in str(caught.value)


def test_what_is_no_file_or_too_large_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(ValueError, match=r"is a directory|not a file"):
            read_json(place)
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(ValueError, match="more than the 0 MiB"):
        read_json(tmp_path / "x.json", most=0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a = ", "not valid TOML"),
        ("a = " + "[" * 5000, "nested too deeply|not valid TOML"),
        ("a = 99999999999999999999", "past 64 bits"),
        ("a = nan", "NaN"),
    ],
)
def test_toml_of_wrong_shapes_is_refused(tmp_path: Path, content: str, message: str) -> None:
    (file := tmp_path / "x.toml").write_text(content)
    with pytest.raises(ValueError, match=message):
        read_toml(file)


@pytest.mark.parametrize("text", ["", "a\0b", "x" * 201, "a/" * 3000, "\ud800"])
def test_paths_that_no_file_system_holds_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="path"):
        as_path(text)
    with pytest.raises(CheckpointError, match="path"):
        ip.load(text)
