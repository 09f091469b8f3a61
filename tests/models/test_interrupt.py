"""Ctrl-C while a command is imported, and what the commands then say; and workers whose parent is killed."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from analyses.running.pool import run_jobs
from models.running import cli as models_cli
from models.running.interrupt import INTERRUPTED, one_line_on_interrupt

IMPORTED = """
import os, runpy, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
sys.argv = [{package!r}]
runpy.run_module({package!r}, run_name="__main__")
"""
SWALLOWED = """
import os, signal
from models.running.interrupt import one_line_on_interrupt
with one_line_on_interrupt():
    try:
        os.kill(os.getpid(), signal.SIGINT)
        signal.pause()
    except BaseException:
        pass
print("went on")
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("package", ["models", "analyses", "figures"])
def test_an_interrupted_import_is_one_line(package):
    for module in (f"{package}.running.cli", "models.running.suggest"):
        ended = run(IMPORTED.format(module=module, package=package))
        assert (ended.returncode, ended.stderr, ended.stdout) == (INTERRUPTED, "interrupted\n", ""), module


def test_modules_that_swallow_exceptions_cannot_swallow_it():
    ended = run(SWALLOWED)
    assert (ended.returncode, ended.stderr, ended.stdout) == (INTERRUPTED, "interrupted\n", "")


def test_outside_of_the_blocks_it_is_an_exception_again():
    with one_line_on_interrupt():
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_process_that_ignores_it_still_does_and_so_do_other_threads():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with one_line_on_interrupt():
            signal.raise_signal(signal.SIGINT)
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    done = []

    def elsewhere() -> None:
        with one_line_on_interrupt():
            done.append(signal.getsignal(signal.SIGINT) is signal.default_int_handler)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert done == [True]


@pytest.mark.parametrize(
    ("words", "command", "said"),
    [
        (["train", "--out", "x"], "train_one", "interrupted; --resume goes on from the last save"),
        (["sweep", "smoke"], "sweep_study", "interrupted; the same command goes on from the last save"),
        (["zoo"], "show_zoo", "interrupted"),
    ],
)
def test_only_what_can_be_resumed_says_so(words, command, said, monkeypatch, capsys):
    def interrupted(options: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(models_cli, command, interrupted)
    assert models_cli.main(words) == INTERRUPTED
    assert capsys.readouterr().err == f"{said}\n"


POOL = """
from types import SimpleNamespace
from analyses.running.pool import run_jobs
from tests.models.test_interrupt import started

jobs = [SimpleNamespace(words="", kind="", cost=1.0, file=f"{folder}/{number}") for number in range(2)]
list(run_jobs(started, jobs, workers=2, what="jobs"))
"""


def started(job):
    """A job that does not end; its process names itself in a file."""
    Path(job.file).write_text(str(os.getpid()))
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
    jobs = [SimpleNamespace(words="", kind="", cost=1.0) for _ in range(2)]
    with pytest.raises(ChildProcessError, match="a process of the jobs was killed, perhaps for lack of memory"):
        list(run_jobs(killed, jobs, workers=2, what="jobs"))
