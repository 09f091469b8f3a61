"""What `make test` and `make reproduce` take, part by part: seconds of processor time, and by the clock.

    python -m benchmarks.everyday                        both, in a fresh clone
    python -m benchmarks.everyday --only reproduce       one of the two; or the name of a part
    python -m benchmarks.everyday --here                 in this checkout, with what it has cached
    python -m benchmarks.everyday --json                 {"test": {"mypy": {"cpu": ..., "wall": ...}, ...}, ...}

The clone has no compiled functions, no bytecode, no results and no cache of a linter. It is made of the last commit. On
two free cores a command takes about half of its processor time by the clock, which is what the README states. The time
of the tests is also given by file, and that of `make reproduce` by analysis, the longest first.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
SHOWN = 12  # files and analyses
LINT_IMPORTS = str(Path(sys.executable).parent / "lint-imports")
Seconds = dict[str, float]


def measured(command: list[str], folder: Path) -> Seconds:
    """Run a command there; what it prints is shown only if it fails."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    environment |= {"MPLBACKEND": "Agg", "NO_MKDOCS_2_WARNING": "1", "PYTHONDONTWRITEBYTECODE": ""}
    before, start = os.times(), time.monotonic()
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    after = os.times()
    if done.returncode:
        print(f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}\n{' '.join(command)}: exit code {done.returncode}")
        raise SystemExit(1)
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return {"cpu": spent, "wall": time.monotonic() - start}


def linters(folder: Path) -> Seconds:
    """Ruff and import-linter, added up."""
    python = [sys.executable, "-m", "ruff"]
    commands = [[*python, "check", "--quiet"], [*python, "format", "--check", "--quiet"], [LINT_IMPORTS, "--no-logo"]]
    found = [measured(command, folder) for command in commands]
    return {kind: sum(one[kind] for one in found) for kind in ("cpu", "wall")}


def types(folder: Path) -> Seconds:
    """Mypy."""
    return measured([sys.executable, "-m", "mypy"], folder)


def tests(folder: Path, jobs: int) -> tuple[Seconds, Seconds]:
    """Pytest; and the processor time of each file's tests."""
    file = folder / "build" / "processor_time.txt"
    file.parent.mkdir(exist_ok=True)
    plugin = ["-p", "tests.processor_time", f"--processor-time-file={file}"]
    spread = ["-n", str(jobs), "--dist", "loadfile", "--no-loadscope-reorder"]  # as the Makefile has it
    whole = measured([sys.executable, "-m", "pytest", "-q", *spread, *plugin], folder)
    parts: Counter[str] = Counter()
    for line in file.read_text(encoding="utf-8").splitlines():
        seconds, _, name = line.partition(" ")
        parts[name.partition("::")[0]] += float(seconds)  # type: ignore[assignment]
    return whole, dict(parts.most_common())


def reproduce(folder: Path, jobs: int) -> tuple[Seconds, Seconds]:
    """`make reproduce` without set-up; and the processor time by analysis, as it states it itself."""
    out = folder / "build" / "results"
    whole = measured([sys.executable, "-m", "figures", "reproduce", "--out", str(out), "--jobs", str(jobs)], folder)
    return whole, json.loads((out / "timing.json").read_text())["by_analysis"]


def measure(folder: Path, *, jobs: int, wanted: Callable[[str, str], bool], report: Callable[[str], None]) -> Any:
    """Every part that is wanted, as it ends."""
    found: dict[str, dict[str, Seconds]] = {}
    details: dict[str, Seconds] = {}

    def keep(command: str, part: str, seconds: Seconds, parts: Seconds | None = None) -> None:
        found.setdefault(command, {})[part] = seconds
        report(
            f"{command:10} {part:10} {seconds['cpu']:8.1f} s of processor time {seconds['wall']:8.1f} s by the clock"
        )
        for name, value in list((parts or {}).items())[:SHOWN]:
            report(f"{value:29.1f} s   {name}")
        if parts:
            details[command] = parts

    if wanted("test", "linters"):
        keep("test", "linters", linters(folder))
    if wanted("test", "mypy"):
        keep("test", "mypy", types(folder))
    if wanted("test", "pytest"):
        keep("test", "pytest", *tests(folder, jobs))
    if wanted("reproduce", "reproduce"):
        keep("reproduce", "all", *reproduce(folder, jobs))
    for command, parts in found.items():
        whole = {kind: sum(one[kind] for one in parts.values()) for kind in ("cpu", "wall")}
        report(f"make {command}: {whole['cpu']:.0f} s of processor time, {whole['wall']:.0f} s by the clock here")
    return {**found, "details": details}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["test", "reproduce", "linters", "mypy", "pytest"])
    parser.add_argument("--jobs", type=int, default=2, help="processes of pytest and of the analyses (default 2)")
    parser.add_argument("--here", action="store_true", help="in this checkout, with what it has cached")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    machine = (
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    )

    def wanted(command: str, part: str) -> bool:
        return options.only in (None, command, part)

    def report(line: str) -> None:
        print(line, file=sys.stderr if options.json else sys.stdout, flush=True)

    report(machine)
    with tempfile.TemporaryDirectory() as place:
        folder = ROOT
        if not options.here:
            folder = Path(place) / "clone"
            subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)
        found = measure(folder, jobs=options.jobs, wanted=wanted, report=report)
    if options.json:
        print(json.dumps({"machine": machine, **found}))


if __name__ == "__main__":
    main()
