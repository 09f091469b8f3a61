"""The processor time of a sweep of short runs: on Ray's workers, over that of a process for each run.

    python -m benchmarks.engines                 20 runs on two workers
    python -m benchmarks.engines --runs 4        fewer

Both engines train the same runs (disentangled, T = 16, 300 steps, one seed each), each into a directory of its own. A
first run of each engine is not counted: it compiles what is not compiled yet. Ray's own processes count as its
workers do. All processes that a sweep starts are found by a word in their environment, every 50 ms.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path

from benchmarks.measure import options_of, show

ROOT = Path(__file__).parent.parent
MARK = "INTERP_BENCHMARK"
INTERVAL = 0.05
TICKS = os.sysconf("SC_CLK_TCK")
STUDY = """
summary = "short runs"

[[runs]]
family = "disentangled"
prior = "hierarchical:5,5"
bos = true
length = 16
steps = 300
seed = [{seeds}]
"""


class Watch(threading.Thread):
    """Adds up the processor time of all processes whose environment has the mark."""

    def __init__(self, mark: str) -> None:
        super().__init__(daemon=True)
        self.mark = f"{MARK}={mark}".encode()
        self.seconds: dict[int, float] = {}
        self.others: set[int] = set()
        self.finished = threading.Event()

    def run(self) -> None:
        while not self.finished.wait(INTERVAL):
            self.look()

    def look(self) -> None:
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit() and int(folder.name) not in self.others:
                try:
                    self._add(folder)
                except (OSError, ValueError, IndexError):  # it has just ended
                    continue

    def _add(self, folder: Path) -> None:
        pid = int(folder.name)
        if pid not in self.seconds and self.mark not in (folder / "environ").read_bytes().split(b"\0"):
            self.others.add(pid)
            return
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
        self.seconds[pid] = (int(fields[11]) + int(fields[12])) / TICKS


def sweep(engine: str, *, runs: int, workers: int) -> dict[str, float]:
    """Seconds of processor time and by the clock."""
    mark = uuid.uuid4().hex
    with tempfile.TemporaryDirectory() as folder:
        study = Path(folder) / "study.toml"
        study.write_text(STUDY.format(seeds=", ".join(map(str, range(runs)))))
        command = [sys.executable, "-m", "models", "sweep", str(study), "--out", f"{folder}/out", "--engine", engine]
        command += ["--jobs", str(workers)] + (["--address", "local"] if engine == "ray" else [])
        # Ray gives its workers a low priority; on a busy machine they would hardly run.
        environment = {**os.environ, MARK: mark, "OMP_NUM_THREADS": "1", "RAY_worker_niceness": "0"}
        watch = Watch(mark)
        start = time.monotonic()
        watch.start()
        subprocess.run(command, cwd=ROOT, env=environment, check=True, stderr=subprocess.DEVNULL)
        watch.finished.set()
        watch.join()
        done = len(list(Path(folder).glob("out/*/*/*/*/config.json")))
        assert done == runs, f"{done} of {runs} runs finished"
        return {"cpu": sum(watch.seconds.values()), "wall": time.monotonic() - start}


def main() -> None:
    options = options_of(__doc__, runs=20, workers=2)
    rows = []
    for engine in ("local", "ray"):
        sweep(engine, runs=1, workers=options.workers)
        rows.append({"engine": engine, **sweep(engine, runs=options.runs, workers=options.workers)})
        rows[-1]["ratio"] = rows[-1]["cpu"] / rows[0]["cpu"]
    show("engines", rows, as_json=options.json)


if __name__ == "__main__":
    main()
