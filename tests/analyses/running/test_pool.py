"""Jobs on several processes, and the bar that shows how far the work is."""

from __future__ import annotations

import io
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from analyses.running.pool import Job, in_order, run_jobs, watched
from models.training import sweep


def timed(cost: float, kind: str = "one") -> Job:
    return Job(task=cost, words=f"job of {cost:g}", cost=cost, kind=kind)


def test_the_longest_jobs_start_first_and_each_is_reported(capsys):
    jobs = [timed(1.0), timed(5.0), timed(3.0)]
    assert list(run_jobs(lambda cost: 2 * cost, jobs, workers=1, what="x")) == [(5.0, 10.0), (3.0, 6.0), (1.0, 2.0)]
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("; ")[1] for line in lines] == ["job of 5", "job of 3", "job of 1"]
    assert lines[-1].startswith("  3/3, 0 s left")


def test_processes_begin_with_different_kinds_of_jobs():
    """So that they do not compile the same functions at the same time."""
    jobs = [timed(9.0), timed(8.0), timed(7.0, "other"), timed(6.0, "third"), timed(1.0)]

    def order(workers: int, given: list[Job]) -> list[float]:
        return [job.cost for job in in_order(given, workers)]

    assert order(1, jobs) == [9.0, 8.0, 7.0, 6.0, 1.0]
    assert order(2, jobs) == [9.0, 7.0, 8.0, 6.0, 1.0]
    assert order(4, jobs) == [9.0, 7.0, 6.0, 8.0, 1.0]


def first_is_short(number: int) -> int:
    if number:
        time.sleep(100)
    return number


def test_ctrl_c_does_not_wait_for_the_workers() -> None:
    """Compiled code does not hear of it: the workers are ended, and no job is begun any more."""
    jobs = [Job(task=number, words="", cost=2.0 - bool(number)) for number in range(5)]
    start = time.monotonic()
    running = run_jobs(first_is_short, jobs, workers=2, what="jobs")
    assert next(running)[1] == 0
    with pytest.raises(KeyboardInterrupt):
        running.throw(KeyboardInterrupt)  # type: ignore[attr-defined]
    assert time.monotonic() - start < 90
    # Two threads wait for a process that has ended; the one that comes second still lists it.
    assert not [child.pid for child in multiprocessing.active_children() if Path(f"/proc/{child.pid}").exists()]


class Cluster:
    """What is used of Ray, without processes: a reference is what it will be asked for."""

    class exceptions:
        class RayError(Exception):
            cause: Exception | None = None

    def remote(self, **_: Any) -> Callable[..., Any]:
        return lambda perform: SimpleNamespace(remote=lambda *given: (perform, *given))

    def wait(self, waiting: list[Any], *, num_returns: int) -> tuple[list[Any], list[Any]]:
        return waiting[-num_returns:], waiting[:-num_returns]

    def get(self, reference: Any) -> Any:
        perform, *given = reference
        try:
            return perform(*given)
        except ArithmeticError as error:
            failed = self.exceptions.RayError("died")
            failed.cause = error if isinstance(error, ZeroDivisionError) else None
            raise failed from None


def inverse(number: float) -> float:
    if number < 0:
        raise OverflowError
    return 1 / number


def test_jobs_go_to_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "connected", lambda address, jobs: Cluster())

    def run(*numbers: float) -> dict[float, float]:
        return dict(run_jobs(inverse, [timed(number) for number in numbers], workers=2, what="x", cluster=""))

    assert run(1.0, 2.0, 4.0) == {1.0: 1.0, 2.0: 0.5, 4.0: 0.25}
    with pytest.raises(ZeroDivisionError):  # as in this process
        run(0.0)
    with pytest.raises(ChildProcessError, match="a worker of the cluster failed"):
        run(-1.0)


# On a terminal.


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_bar_names_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    for item in watched(["one", "two"], "study", words=lambda item: f"piece {item}"):
        assert re.search(rf"study \d/2, 00:0\d, piece {item}", screen.getvalue())
    assert screen.getvalue().endswith("\r")  # and is gone at the end


def test_nothing_is_written_where_nobody_watches(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(watched([1, 2], "study", words=str)) == [1, 2]
    assert capsys.readouterr() == ("", "")


# Workers and their parent.

POOL = """
from analyses.running.pool import Job, run_jobs
from tests.analyses.running.test_pool import started

jobs = [Job(task=f"{folder}/{number}", words="") for number in range(2)]
list(run_jobs(started, jobs, workers=2, what="jobs"))
"""


def started(file):
    """A task that does not end; its process names itself in a file."""
    Path(file).write_text(str(os.getpid()))
    time.sleep(300)


def killed(job):
    os.kill(os.getpid(), signal.SIGKILL)


def until(condition, *, seconds):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_killed_parent_takes_its_workers_with_it(tmp_path):
    parent = subprocess.Popen([sys.executable, "-c", POOL.replace("{folder}", str(tmp_path))])
    until(lambda: all((tmp_path / name).is_file() and (tmp_path / name).read_text() for name in "01"), seconds=120)
    parent.kill()
    parent.wait()
    workers = [Path("/proc", (tmp_path / name).read_text()) for name in "01"]
    until(lambda: not any(one.exists() for one in workers), seconds=10)


def test_a_killed_worker_is_one_line():
    jobs = [Job(task=None, words="") for _ in range(2)]
    with pytest.raises(ChildProcessError, match="a process of jobs was killed, perhaps for lack of memory"):
        list(run_jobs(killed, jobs, workers=2, what="jobs"))
