"""What `make test` and `make reproduce` take in a fresh clone of the last commit, part by part: CPU time and wall time.

python -m benchmarks.everyday                                     ruff, imports, mypy, pytest, reproduce
python -m benchmarks.everyday --only reproduce --jobs 4 --json    some of the parts
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.measure import options_of, show

ROOT = Path(__file__).parent.parent
TIMES = Path("build/processor_time.txt")
RESULTS = Path("build/results")


def commands(jobs: int) -> dict[str, list[str]]:
    """The arguments of Python for each part, as the Makefile has them."""
    spread = ["-n", str(jobs), "--dist", "loadfile", "--no-loadscope-reorder"]
    return {
        "ruff": ["-m", "ruff", "check", "--quiet"],
        "imports": [str(Path(sys.executable).parent / "lint-imports"), "--no-logo"],
        "mypy": ["-m", "mypy"],
        "pytest": ["-m", "pytest", "-q", *spread, "-p", "tests.processor_time", f"--processor-time-file={TIMES}"],
        "reproduce": ["-m", "figures", "reproduce", "--out", str(RESULTS), "--jobs", str(jobs)],
    }


def within(part: str, folder: Path) -> list[tuple[str, float]]:
    """Seconds of processor time by file of tests, or by analysis."""
    seconds: Counter[str] = Counter()
    if part == "pytest":
        for line in (folder / TIMES).read_text(encoding="utf-8").splitlines():
            seconds[line.split(" ", 1)[1].partition("::")[0]] += float(line.split(" ", 1)[0])  # type: ignore[assignment]
    elif part == "reproduce":
        seconds.update(json.loads((folder / RESULTS / "timing.json").read_text())["by_analysis"])
    return seconds.most_common(12)


def main() -> None:
    options = options_of(__doc__, only=("ruff", "imports", "mypy", "pytest", "reproduce"), jobs=2)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "clone"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)
        (folder / TIMES).parent.mkdir()
        environment = {**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"}
        for part in options.only:
            before, start = os.times(), time.monotonic()
            command = [sys.executable, *commands(options.jobs)[part]]
            subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
            after, wall = os.times(), time.monotonic() - start
            cpu = after.children_user + after.children_system - before.children_user - before.children_system
            rows.append({"part": part, "cpu": cpu, "wall": wall})
            rows += [{"part": f"{part}: {name}", "cpu": value} for name, value in within(part, folder)]
            print(f"{part}: {cpu:.0f} s of processor time", file=sys.stderr, flush=True)
    show("everyday", rows, as_json=options.json)


if __name__ == "__main__":
    main()
