"""Studies: many runs from one small file, on this machine's cores, in one process, or on a Ray cluster.

A study is a TOML file. Each [[runs]] entry gives a run's settings, as `models.training.spec.make_spec` takes them;
where a setting is a list, the entry stands for all combinations. `each` is a list of tables: the entry stands for its
other settings with those of each table in turn. Runs are independent, resumable and skipped once finished.
They go to TASK/FAMILY/START/ (`models.families.registry.start_name`), or to CELL/TASK/FAMILY/ where the entry names a
`cell`.

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
import difflib
import itertools
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from interp.outside import one_line, read_toml, shown
from interp.staging import new_directory
from models.families.registry import find_family, start_name
from models.running.command_line import FAILED, OK, ONE_THREAD
from models.running.interrupt import end_with_parent
from models.running.terminal import say
from models.training.spec import SAVE_SECONDS, RunSpec, make_spec

PROJECT = Path(__file__).parents[2]
RETRIES = 3
# Files of the checkout that workers of a cluster do not need; of the caches they need only compiled functions.
NOT_SENT = ["models/checkpoints", "models/conditions", "*.run", "*.pyc", ".git", ".venv", ".hypothesis", ".*_cache"]
NOT_SENT += ["build", "dist", "docs", "notebooks", "results", "runs", "tests"]
CELL = re.compile("[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """One run of a study: its name under the output directory, its spec and its place."""

    name: str
    spec: RunSpec
    out: Path


Outcomes: TypeAlias = Generator[tuple[PlannedRun, str], None, None]  # why each run failed; empty where it did not


def study_summaries(studies: Path) -> dict[str, str]:
    """Name and one-line summary of every shipped study."""
    return {file.stem: str(read_toml(file).get("summary", "")) for file in sorted(studies.glob("*.toml"))}


def load_study(study: str, *, studies: Path, out: Path) -> list[PlannedRun]:
    """The runs of a shipped study, by name, or of a file of your own, by path."""
    file = Path(study) if Path(study).suffix else studies / f"{study}.toml"
    if not file.is_file():
        known = study_summaries(studies)
        near = difflib.get_close_matches(study, known, n=1) or known
        raise ValueError(f"no study {shown(study)}; there is {', '.join(near)} (or give the path of a .toml file)")
    runs: dict[str, PlannedRun] = {}
    for number, entry in enumerate(_entries(file), start=1):
        for values in _combinations(entry):
            try:
                cell = _cell(values.pop("cell", ""))
                spec = make_spec(**values)
            except (TypeError, ValueError) as error:
                raise ValueError(f"{file}: run {number}: {error}") from None
            name = run_name(spec, cell=cell)
            if name in runs:
                raise ValueError(f"{file}: two runs would be written to {name}")
            runs[name] = PlannedRun(name=name, spec=spec, out=out / name)
    if not runs:
        raise ValueError(f"{file}: the study has no [[runs]]")
    return list(runs.values())


def _entries(file: Path) -> list[dict[str, Any]]:
    """The [[runs]] of a study, one for each table in `each`."""
    document = read_toml(file)
    if others := sorted(set(document) - {"summary", "runs"}):
        raise ValueError(f"{file}: unknown key {others[0]}; a study has summary and [[runs]]")
    return [
        {**entry, **part}
        for entry in _tables(document.get("runs", []), what=f"{file}: runs must be [[runs]] tables")
        for part in _tables(entry.pop("each", [{}]), what=f"{file}: each must be a list of tables")
    ]


def _tables(given: Any, *, what: str) -> list[dict[str, Any]]:
    """A list of tables, as it was given."""
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
        raise ValueError(f"{what}, got {shown(given)}")
    return given


def _combinations(entry: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """All ways to pick one value from each list-valued setting (the prior, a table, is one value)."""
    choices = [value if isinstance(value, list) else [value] for value in entry.values()]
    for values in itertools.product(*choices):
        yield dict(zip(entry, values, strict=True))


def _cell(text: Any) -> str:
    """The folder of an entry's runs: a plain name, or several with slashes between them, below the output directory."""
    if text and not (isinstance(text, str) and CELL.fullmatch(text)):
        raise ValueError(f"cell must be letters, digits, dots, dashes, underscores and slashes, got {shown(text)}")
    return text or ""


def check_sweep_target(out: Path, runs: list[PlannedRun]) -> None:
    """Refuse an output directory that holds anything but checkpoints, before anything is created in it."""
    from models.running.zoo import CACHE_FILE, TABLE_FILE, find_checkpoints, find_zoos

    if not out.exists():
        return
    if not out.is_dir():
        raise ValueError(f"--out {out}: a file is in the way, expected a directory")
    known = {CACHE_FILE, TABLE_FILE, *(run.out.relative_to(out).parts[0] for run in runs)}
    for one in sorted(out.iterdir()):
        if one.name in known or one.name.startswith("."):
            continue
        if not one.is_dir() or not (find_checkpoints(one) or find_zoos(one)):
            raise ValueError(f"--out {out}: also holds {one.name!r}; give a fresh directory, or --overwrite to use it")


def run_name(spec: RunSpec, *, cell: str = "") -> str:
    """The path of a run below the output directory; what it does not say is in the run's config.json.

    task / family / start / length and seed; in a study's cell, which names the start and more, cell / task / family.
    """
    task = f"{spec.prior['kind']}_{'bos' if spec.bos else 'nobos'}"
    family = find_family(spec.family)
    usual = ((spec.readout, family.readouts[0]), (spec.bos_vector, family.bos_vectors[0]), (spec.protocol, "annealed"))
    suffix = "".join(f"_{given}" for given, own in usual if given != own)
    start = start_name(spec.family, init=spec.init, kappa=spec.kappa)
    folder = f"{cell}/{task}/{spec.family}" if cell else f"{task}/{spec.family}/{start}"
    return f"{folder}/T{spec.length}_seed{spec.seed}{suffix}"


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
    from interp.hooked.checkpoint import clear_leftovers
    from models.training.run import is_finished

    finished = [run for run in runs if is_finished(run.out)]
    todo = [run for run in runs if run not in finished]
    if dry_run:
        for run in runs:
            print(f"{'done' if run in finished else 'to do':6} {run.name}", file=sys.stderr if as_json else sys.stdout)
        if as_json:
            print(json.dumps({"done": [run.name for run in finished], "todo": [run.name for run in todo]}))
        return OK
    print(f"{len(runs)} runs, {len(finished)} finished, {len(todo)} to do", file=sys.stderr)
    for run in finished:
        clear_leftovers(run.out)
    if engine == "here":  # for short runs, starting a process would take longer than the run
        outcomes = ((run, _trained(run.spec, run.out, save_seconds)) for run in todo)
    else:
        outcomes = _local(todo, jobs, save_seconds) if engine == "local" else _ray(todo, address, jobs, save_seconds)
    failures = {}
    with contextlib.closing(outcomes):  # also if an error keeps this frame alive
        for count, (run, failure) in enumerate(outcomes, start=1):
            say(f"[{count}/{len(todo)}] {run.name}: {failure or 'finished'}")
            if failure:
                failures[run.name] = failure
    if as_json:
        print(json.dumps({"runs": len(runs), "skipped": len(finished), "failed": failures}))
    return FAILED if failures else OK


def _trained(spec: RunSpec, out: Path, save_seconds: float) -> str:
    """Train, or go on; returns in one line why the run failed, empty where it did not."""
    from models.training.run import AlreadyFinished, RunError, run

    try:
        return one_line(run(spec, out, resume=True, progress=False, save_seconds=save_seconds).failure)
    except AlreadyFinished:
        return ""
    except (RunError, ValueError, OSError, MemoryError) as error:
        return one_line(error) or type(error).__name__


def _local(runs: list[PlannedRun], jobs: int | None, save_seconds: float) -> Outcomes:
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


def _run_in_process(run: PlannedRun, save_seconds: float, running: set[subprocess.Popen[str]]) -> str:
    """The run in a process of its own, which gets its task from stdin and answers on stdout."""
    task = {"parent": os.getpid(), "spec": run.spec.to_dict(), "out": str(run.out.resolve()), "save": save_seconds}
    with subprocess.Popen(
        [sys.executable, "-c", "from models.training.sweep import work; work()"],
        cwd=PROJECT,
        env={**os.environ, **ONE_THREAD},
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        running.add(process)
        answer, said = process.communicate(json.dumps(task))
        running.discard(process)
    if process.returncode == 0:
        return str(json.loads(answer))
    if process.returncode < 0:
        words = f"signal {-process.returncode} ({signal.strsignal(-process.returncode)})"
        return f"its process was ended by {words}; the same command goes on from the last save"
    return (said.strip().splitlines() or [f"exit code {process.returncode}"])[-1]


def work() -> None:
    """What a process of a sweep does: it trains the task on stdin, and prints why the run failed, "" if it did not."""
    task = json.load(sys.stdin)
    end_with_parent(task["parent"])
    with contextlib.redirect_stdout(sys.stderr):
        failure = _trained(RunSpec.from_dict(task["spec"]), Path(task["out"]), task["save"])
    print(json.dumps(failure))


def _ray(runs: list[PlannedRun], address: str | None, jobs: int | None, save_seconds: float) -> Outcomes:
    """One Ray task per run, retried when its worker dies.

    A run writes its files on the worker, so that on a shared file system a retry resumes from the last save. The
    checkpoint is also sent to the driver, which writes it where it is missing.
    """
    ray = connected(address, jobs)
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
        yield run, failure


def connected(address: str | None, jobs: int | None) -> Any:
    """Ray, connected to a cluster or started; a `ValueError` says why it cannot be."""
    try:
        import ray
    except ImportError:
        raise ValueError("the ray engine needs Ray: pip install 'interp[cluster]'") from None
    if not ray.is_initialized():
        try:
            _connect(ray, address, jobs)
        except Exception as error:  # Ray raises what it likes, e.g. a bare Exception on a machine that is too busy
            raise ValueError(f"Ray could not be started or reached: {one_line(error)}") from error
    return ray


def _connect(ray: Any, address: str | None, jobs: int | None) -> None:
    """Connect to the cluster at `address`, or to that of RAY_ADDRESS; without either, start one.

    A cluster that happens to run here is not looked for: it may be that of a sweep which was killed a moment ago.
    Workers of a cluster that is started here import this checkout, and share its compiled functions. To another cluster
    the checkout is sent, with its compiled functions; a worker compiles again what its processor needs.
    """
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    if address == "local":
        # Its processes that start while this one is killed would look for the dead node for up to a minute.
        os.environ.setdefault("RAY_raylet_client_num_connect_attempts", "4")
        os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", "5")
        environment: dict[str, Any] = {"env_vars": {**ONE_THREAD, "PYTHONPATH": str(PROJECT)}}
        ray.init(address, runtime_env=environment, num_cpus=jobs, include_dashboard=False, log_to_driver=False)
        return
    environment = {"env_vars": ONE_THREAD, "working_dir": str(PROJECT), "excludes": NOT_SENT}
    os.environ["RAY_RUNTIME_ENV_IGNORE_GITIGNORE"] = "1"  # else Ray leaves out __pycache__, as git does
    ray.init(address, runtime_env=environment, log_to_driver=False)


def _run_on_worker(spec: dict[str, Any], out: str, save_seconds: float) -> tuple[dict[str, bytes], str]:
    """The files of the checkpoint, and why the run failed; empty where it did not."""
    failure, place = _trained(RunSpec.from_dict(spec), Path(out), save_seconds), Path(out)
    kept = [file for file in place.iterdir() if file.is_file()] if place.is_dir() else []
    return {file.name: file.read_bytes() for file in kept}, failure


def _write_missing(out: Path, files: dict[str, bytes]) -> None:
    if out.is_dir() or not files:
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    staging = new_directory(out)
    for name, content in files.items():
        (staging / name).write_bytes(content)
    staging.chmod(0o755)  # a temporary directory is private
    os.rename(staging, out)
