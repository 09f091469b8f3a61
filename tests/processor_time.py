"""A pytest plugin, off by default: the processor time of every test, its processes included, slowest first.

    make pytest PYTEST_ARGS="-p tests.processor_time"

Processor time says what a test costs on any machine, however busy it is. A fixture's time counts for the test that
asked first. `--processor-time-file=FILE` also writes one line per test to a file, seconds and name, as the tests end.
It takes an equals sign: pytest looks for its settings before it knows the option, and would look beside FILE.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

SHOWN = 20
SETTINGS = Path(__file__).parent.parent / "pyproject.toml"
WORD = "processor seconds"


def spent() -> float:
    """Seconds of processor time of this process and of those that it started and waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


class ProcessorTime:
    """Adds the seconds to each test's reports, where the process that shows them finds them, and shows them."""

    def __init__(self, file: Path | None) -> None:
        self.seconds: dict[str, float] = {}
        self.file = file
        if file is not None:
            file.write_text("", encoding="utf-8")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Iterator[None]:
        report = yield
        if report.when == "teardown":
            report.user_properties.append((WORD, spent() - self._start))
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Iterator[None]:
        self._start = spent()
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for word, value in report.user_properties:
            if report.when == "teardown" and word == WORD:
                self.seconds[report.nodeid] = float(str(value))
                if self.file is not None:
                    with self.file.open("a", encoding="utf-8") as lines:
                        lines.write(f"{float(str(value)):.3f} {report.nodeid}\n")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        ranked = dict(sorted(self.seconds.items(), key=lambda one: -one[1]))
        whole = sum(ranked.values())
        terminalreporter.section(f"processor time: {whole:.0f} s in {len(ranked)} tests")
        for name, seconds in list(ranked.items())[:SHOWN]:
            terminalreporter.write_line(f"{seconds:7.1f} s  {name}")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--processor-time-file", metavar="FILE", help="write every test's processor time to FILE")


def pytest_configure(config: pytest.Config) -> None:
    worker = hasattr(config, "workerinput")  # of xdist, which is told what the settings are, and writes nothing
    if not worker and config.inipath != SETTINGS:
        read = config.inipath or "none"
        raise pytest.UsageError(f"settings read: {read}, not {SETTINGS}; write --processor-time-file=FILE, with '='")
    file = config.getoption("--processor-time-file")
    config.pluginmanager.register(ProcessorTime(Path(str(file)) if file and not worker else None), "processor-time")
