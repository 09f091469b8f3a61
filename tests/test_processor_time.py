"""The plugin that measures tests: what it writes, and that it refuses to measure without the project's settings."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import processor_time


def configured(file: Path | None, **more: Any) -> processor_time.ProcessorTime:
    """What the plugin registers."""
    found: list[processor_time.ProcessorTime] = []
    manager = SimpleNamespace(register=lambda plugin, name: found.append(plugin))
    settings = {"inipath": processor_time.SETTINGS, "getoption": lambda name: None if file is None else str(file)}
    processor_time.pytest_configure(SimpleNamespace(pluginmanager=manager, **{**settings, **more}))  # type: ignore[arg-type]
    return found[0]


def test_seconds_of_every_test_are_written_as_it_ends(tmp_path: Path) -> None:
    plugin = configured(tmp_path / "seconds.txt")
    for when in ("setup", "call", "teardown"):
        properties = [(processor_time.WORD, 1.5)]
        report = SimpleNamespace(when=when, nodeid="a.py::test_a", user_properties=properties)
        plugin.pytest_runtest_logreport(report)  # type: ignore[arg-type]
    assert (tmp_path / "seconds.txt").read_text() == "1.500 a.py::test_a\n"


@pytest.mark.parametrize("read", [None, Path("/somewhere/pytest.ini")])
def test_without_the_settings_of_the_project_nothing_is_measured(tmp_path: Path, read: Path | None) -> None:
    """`--processor-time-file FILE`, without an equals sign, would lose them: no doctests, warnings that pass."""
    with pytest.raises(pytest.UsageError, match="--processor-time-file=FILE"):
        configured(tmp_path / "seconds.txt", inipath=read)
    assert not (tmp_path / "seconds.txt").exists()


def test_workers_write_nothing(tmp_path: Path) -> None:
    assert configured(tmp_path / "seconds.txt", inipath=None, workerinput={}).file is None
    assert not (tmp_path / "seconds.txt").exists()
