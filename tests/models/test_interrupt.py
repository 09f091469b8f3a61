"""Ctrl-C while a command is imported, and what the commands then say."""

import signal
import subprocess
import sys

import pytest

from models.running import cli as models_cli
from models.running.interrupt import INTERRUPTED, enter

IMPORTED = """
import os, runpy, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except BaseException:  # a module that swallows every exception
                pass

sys.meta_path.insert(0, Interrupting())
sys.argv = [{package!r}]
runpy.run_module({package!r}, run_name="__main__")
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("package", ["models", "analyses", "figures"])
def test_an_interrupted_import_is_one_line(package):
    for module in (f"{package}.running.cli", "interp.outside"):
        ended = run(IMPORTED.format(module=module, package=package))
        assert (ended.returncode, ended.stderr, ended.stdout) == (INTERRUPTED, "interrupted\n", ""), module


def test_after_the_import_it_is_what_it_was(monkeypatch):
    seen = []
    monkeypatch.setattr(models_cli, "main", lambda: seen.append(signal.getsignal(signal.SIGINT)) or 3)
    before = signal.getsignal(signal.SIGINT)
    assert enter("models.running.cli") == 3
    monkeypatch.setattr(signal, "getsignal", lambda number: signal.SIG_IGN)  # a process that ignores it still does
    assert enter("models.running.cli") == 3
    assert seen[0] == before


@pytest.mark.parametrize(
    ("words", "called", "said"),
    [
        (["train", "--out", "x"], "models.training.run.run", "interrupted; --resume goes on from the last save"),
        (["sweep", "smoke"], "models.training.sweep.sweep", "interrupted; the same command goes on from the last save"),
        (["zoo"], "models.running.zoo.zoo_command", "interrupted"),
    ],
)
def test_only_what_can_be_resumed_says_so(words, called, said, monkeypatch, capsys):
    def interrupted(*_: object, **__: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(called, interrupted)
    assert models_cli.main(words) == INTERRUPTED
    assert capsys.readouterr().err == f"{said}\n"
