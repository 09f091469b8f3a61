"""Studies: many runs from one small file, on this machine's cores, in one process, or on a Ray cluster.

A study is a TOML file. Each [[runs]] entry gives a run's settings, as `models.spec.make_spec` takes them; where a
setting is a list, the entry stands for all combinations. `cell` names the folder that the entry's runs go to. Runs are
independent, resumable and skipped once finished.

    summary = "what the study is for"

    [[runs]]
    cell = "frozen_copies"
    family = "disentangled"
    prior = "hierarchical:5,5"
    bos = true
    freeze = "copies"
    init = "hard"
    length = [32, 64]
    seed = [0, 1, 2]
    protocol = "annealed"
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interp.outside import read_toml, shown
from models.families import find_family
from models.spec import SAVE_SECONDS, RunSpec, make_spec
from models.suggest import unknown

PROJECT = Path(__file__).parent.parent
RETRIES = 3
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
# Files of the checkout that workers of a cluster do not need; of the caches they need only compiled functions.
NOT_SENT = [
    ".git",
    ".venv",
    ".hypothesis",
    ".*_cache",
    "build",
    "dist",
    "docs",
    "notebooks",
    "results",
    "runs",
    "tests",
    "models/checkpoints",
    "models/conditions",
    "*.run",
    "*.pyc",
]
MAX_RUNS = 10_000  # of a study
MAX_CELL = 100
CELL = re.compile("[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """One run of a study: its name under the output directory, its spec and its place."""

    name: str
    spec: RunSpec
    out: Path


def study_summaries(studies: Path) -> dict[str, str]:
    """Name and one-line summary of every shipped study."""
    return {file.stem: str(read_toml(file).get("summary", "")) for file in sorted(studies.glob("*.toml"))}


def load_study(study: str, *, studies: Path, out: Path) -> list[PlannedRun]:
    """The runs of a shipped study, by name, or of a file of your own, by path."""
    file = Path(study)
    if not file.suffix:
        file = studies / f"{study}.toml"
    if not file.is_file():
        study = shown(study)[1:-1]
        raise ValueError(f"{unknown('study', study, study_summaries(studies))} (or give the path of a .toml file)")
    document = read_toml(file)
    if others := sorted(set(document) - {"summary", "runs"}):
        raise ValueError(f"{file}: unknown key {others[0]}; a study has summary and [[runs]]")
    runs: list[PlannedRun] = []
    entries = document.get("runs", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ValueError(f"{file}: runs must be [[runs]] tables, got {shown(entries)}")
    for number, entry in enumerate(entries, start=1):
        wanted = math.prod(len(value) for value in entry.values() if isinstance(value, list))
        if len(runs) + wanted > MAX_RUNS:
            raise ValueError(f"{file}: run {number} stands for {wanted} runs; a study may have {MAX_RUNS}")
        for values in _combinations(entry):
            try:
                cell = _cell(values.pop("cell", ""))
                spec = make_spec(**values)
            except (TypeError, ValueError) as error:
                raise ValueError(f"{file}: run {number}: {error}") from None
            name = f"{cell}/{run_name(spec)}" if cell else run_name(spec)
            runs.append(PlannedRun(name=name, spec=spec, out=out / name))
    if not runs:
        raise ValueError(f"{file}: the study has no [[runs]]")
    counted = Counter(run.name for run in runs)
    if twice := sorted(name for name, times in counted.items() if times > 1):
        raise ValueError(f"{file}: two runs would be written to {twice[0]}")
    return runs


def check_sweep_target(out: Path, runs: list[PlannedRun]) -> None:
    """Refuse an output directory that holds anything but checkpoints, before anything is created in it."""
    from models.zoo import CACHE_FILE, TABLE_FILE, find_checkpoints, find_zoos

    if not out.exists():
        return
    if not out.is_dir():
        raise ValueError(f"--out {out}: a file is in the way, expected a directory")
    known = {CACHE_FILE, TABLE_FILE, *(run.out.relative_to(out).parts[0] for run in runs)}
    for one in sorted(out.iterdir()):
        if one.name in known or one.name.startswith("."):
            continue
        if not one.is_dir() or not (one.suffix == ".run" or find_checkpoints(one) or find_zoos(one)):
            raise ValueError(f"--out {out}: also holds {one.name!r}; give a fresh directory, or --overwrite to use it")


def run_name(spec: RunSpec) -> str:
    """The path of a run below the output directory: task / family / length and seed. The rest is in its config.json."""
    task = f"{spec.prior['kind']}_{'bos' if spec.bos else 'nobos'}"
    suffix = "" if spec.readout == find_family(spec.family).readouts[0] else f"_{spec.readout}"
    suffix += "" if spec.bos_vector == find_family(spec.family).bos_vectors[0] else f"_{spec.bos_vector}"
    suffix += "" if spec.protocol == "annealed" else f"_{spec.protocol}"
    return f"{task}/{spec.family}/T{spec.length}_seed{spec.seed}{suffix}"


def sweep(
    runs: list[PlannedRun],
    *,
    engine: str = "local",
    address: str | None = None,
    jobs: int | None = None,
    save_seconds: float = SAVE_SECONDS,
    dry_run: bool = False,
    as_json: bool = False,
) -> int:
    """Train the unfinished runs; returns 0 if all succeed, 1 if some failed."""
    from models.run import is_finished

    finished = [run for run in runs if is_finished(run.out)]
    todo = [run for run in runs if run not in finished]
    if dry_run:
        for run in runs:
            print(f"{'done' if run in finished else 'to do':6} {run.name}", file=sys.stderr if as_json else sys.stdout)
        if as_json:
            print(json.dumps({"done": [run.name for run in finished], "todo": [run.name for run in todo]}))
        return 0
    print(f"{len(runs)} runs, {len(finished)} finished, {len(todo)} to do", file=sys.stderr)
    if engine == "here":
        outcomes = _here(todo, save_seconds)
    else:
        outcomes = _local(todo, jobs, save_seconds) if engine == "local" else _ray(todo, address, jobs, save_seconds)
    failures = {}
    with contextlib.closing(outcomes):  # also if an error keeps this frame alive
        for count, (run, error) in enumerate(outcomes, start=1):
            print(f"[{count}/{len(todo)}] {run.name}: {error or 'finished'}", file=sys.stderr, flush=True)
            if error:
                failures[run.name] = error
    if as_json:
        print(json.dumps({"runs": len(runs), "skipped": len(finished), "failed": failures}))
    return 1 if failures else 0


def _here(runs: list[PlannedRun], save_seconds: float) -> Generator[tuple[PlannedRun, str | None], None, None]:
    """One run after the other in this process: for short runs, starting a process would take longer than the run."""
    from models.run import AlreadyFinished, RunError, run

    for planned in runs:
        failure = ""
        try:
            with contextlib.suppress(AlreadyFinished):
                ended = run(planned.spec, planned.out, resume=True, progress=False, save_seconds=save_seconds)
                failure = ended.failure
        except (RunError, ValueError, OSError) as error:
            failure = str(error)
        yield planned, " ".join(failure.split()) or None


def _local(
    runs: list[PlannedRun], jobs: int | None, save_seconds: float
) -> Generator[tuple[PlannedRun, str | None], None, None]:
    """One single-threaded process per run, as many at once as there are cores."""
    workers = jobs or os.cpu_count() or 1
    running: set[subprocess.Popen[str]] = set()
    with ThreadPoolExecutor(max_workers=workers) as pool:
        futures = {pool.submit(_run_in_process, run, save_seconds, running): run for run in runs}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BaseException:  # Ctrl-C: no further run is started; those in training receive it too, and can be resumed
            pool.shutdown(wait=False, cancel_futures=True)
            for process in list(running):
                process.send_signal(signal.SIGINT)
            raise


def _run_in_process(run: PlannedRun, save_seconds: float, running: set[subprocess.Popen[str]]) -> str | None:
    environment = {**os.environ, **ONE_THREAD}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(run.spec.to_dict(), file)
        file.flush()
        command = [
            sys.executable,
            "-m",
            "models",
            "train",
            "--spec",
            file.name,
            "--out",
            str(run.out.resolve()),
            "--resume",
            "--save-seconds",
            str(save_seconds),
        ]
        with subprocess.Popen(
            command, cwd=PROJECT, env=environment, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        ) as process:
            running.add(process)
            _, said = process.communicate()
            running.discard(process)
    lines = said.strip().splitlines()
    return None if process.returncode == 0 else lines[-1] if lines else f"exit code {process.returncode}"


def _ray(
    runs: list[PlannedRun], address: str | None, jobs: int | None, save_seconds: float
) -> Generator[tuple[PlannedRun, str | None], None, None]:
    """One Ray task per run, retried when its worker dies.

    A run writes its files on the worker, so that on a shared file system a retry resumes from the last save. The
    checkpoint is also sent to the driver, which writes it where it is missing.
    """
    try:
        import ray
    except ImportError:
        raise ValueError("the ray engine needs Ray: pip install 'interp[cluster]'") from None
    if not ray.is_initialized():
        _connect(ray, address, jobs)
    task = ray.remote(num_cpus=1, max_retries=RETRIES)(_run_on_worker)
    pending = {task.remote(run.spec.to_dict(), str(run.out.resolve()), save_seconds): run for run in runs}
    while pending:
        ready, _ = ray.wait(list(pending), num_returns=1)
        run = pending.pop(ready[0])
        try:
            files, failure = ray.get(ready[0])
        except ray.exceptions.RayError as error:
            yield run, str(error).strip().splitlines()[-1]
            continue
        _write_missing(run.out, files)
        yield run, failure or None


def _connect(ray: Any, address: str | None, jobs: int | None) -> None:
    """Connect to the cluster at `address`; by default to one that runs here, or start one.

    Workers of a cluster that is started here import this checkout, and share its compiled functions. To another cluster
    the checkout is sent, with its compiled functions; a worker compiles again what its processor needs.
    """
    if address is None:
        try:
            return _connect(ray, "auto", jobs)
        except ConnectionError:
            address = "local"
    if address == "local":
        environment: dict[str, Any] = {"env_vars": {**ONE_THREAD, "PYTHONPATH": str(PROJECT)}}
        ray.init(address, runtime_env=environment, num_cpus=jobs, include_dashboard=False, log_to_driver=False)
        return
    environment = {"env_vars": ONE_THREAD, "working_dir": str(PROJECT), "excludes": NOT_SENT}
    os.environ["RAY_RUNTIME_ENV_IGNORE_GITIGNORE"] = "1"  # else Ray leaves out __pycache__, as git does
    ray.init(address, runtime_env=environment, log_to_driver=False)


def _run_on_worker(spec: dict[str, Any], out: str, save_seconds: float) -> tuple[dict[str, bytes], str]:
    """The files of the checkpoint, and why the run failed; empty where it did not."""
    from models.run import AlreadyFinished, run

    failure = ""
    with contextlib.suppress(AlreadyFinished):
        ended = run(RunSpec.from_dict(spec), Path(out), resume=True, progress=False, save_seconds=save_seconds)
        failure = ended.failure
    return {file.name: file.read_bytes() for file in Path(out).iterdir() if file.is_file()}, failure


def _write_missing(out: Path, files: dict[str, bytes]) -> None:
    if out.is_dir():
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent) as staging:
        whole = Path(staging) / out.name
        whole.mkdir()
        for name, content in files.items():
            (whole / name).write_bytes(content)
        os.rename(whole, out)


def _combinations(entry: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """All ways to pick one value from each list-valued setting (the prior, a table, is one value)."""
    names = list(entry)
    choices = [value if isinstance(value, list) else [value] for value in entry.values()]
    for values in itertools.product(*choices):
        yield dict(zip(names, values, strict=True))


def _cell(text: Any) -> str:
    """The folder of an entry's runs: a plain name, or several with slashes between them, below the output directory."""
    if text == "":
        return ""
    if not isinstance(text, str) or not CELL.fullmatch(text) or len(text) > MAX_CELL:
        raise ValueError(
            f"cell must be at most {MAX_CELL} letters, digits, dots, dashes, underscores and slashes, got {shown(text)}"
        )
    return text
