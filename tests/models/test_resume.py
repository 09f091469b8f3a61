"""Runs that go on by themselves: settings from the record, progress that is seen, and sweeps that are killed."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import pty
import re
import select
import signal
import struct
import termios
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import interp as ip
from models.running import progress
from models.running.cli import main
from models.running.progress import progress_bar
from models.training import run as runs
from models.training.run import run, work_directory
from models.training.spec import RunSpec, make_spec
from tests import kills

pytestmark = pytest.mark.usefixtures("few_held_out")

SETTINGS = ["--family", "construction", "--prior", "hierarchical:4", "--vocab", "3", "--length", "9", "--steps", "60"]


@pytest.fixture
def interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that Ctrl-C ended in the middle, with a state of step 22."""
    log = runs._log

    def until(work: Path, **entry: Any) -> None:
        if entry["step"] > 22:
            raise KeyboardInterrupt
        log(work, **entry)

    with monkeypatch.context() as patch:
        patch.setattr(runs, "_log", until)
        assert main(["train", *SETTINGS, "--save-seconds", "1e-9", "--out", str(tmp_path / "a")]) == 130
    return tmp_path / "a"


def test_resume_needs_nothing_else(interrupted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["train", "--resume", "--out", str(interrupted)]) == 0
    assert capsys.readouterr().err == f"{interrupted}: resumed at step 22 of 60\n"
    assert main(["train", *SETTINGS, "--out", str(interrupted.with_name("whole"))]) == 0
    assert kills.weights(interrupted.parent)["a"] == kills.weights(interrupted.parent)["whole"]
    assert main(["train", "--resume", "--out", str(interrupted)]) == 0
    assert "already finished" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ([*SETTINGS, "--bos", "--seed", "0", "--protocol", "annealed", "--freeze", "", "--order", "2"], ""),
        (["--length", "64"], "--length"),  # which is what a new run would have
        (["--no-bos"], "--bos"),
        (["--prior", "hierarchical:5", "--seed", "1"], "--prior, --seed"),
        (["--vocab", "5", "--snapshots"], "--snapshots, --vocab"),
        (["--init", "beta(2)", "--kappa", "tied(1)"], "--init, --kappa"),
    ],
)
def test_settings_beside_resume_must_agree(
    given: list[str], named: str, interrupted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["train", *given, "--resume", "--out", str(interrupted)]) == (2 if named else 0)
    said = capsys.readouterr().err
    if named:
        assert said == f"error: {interrupted}: was started with another {named}; leave it out, or use another --out\n"


def test_the_settings_are_kept_from_the_first_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(runs.Training, "complete", killed)
        assert main(["train", *SETTINGS, "--out", str(tmp_path / "a")]) == 130
    with pytest.warns(UserWarning, match="step 0 of 60"):
        ip.load(tmp_path / "a")
    (tmp_path / ".a.run" / "state").rename(tmp_path / ".a.run" / ".state.previous")  # killed between two renames
    assert runs.started_spec(tmp_path / "a") == make_spec(
        family="construction", prior="hierarchical:4", vocab=3, length=9, bos=True, steps=60
    )
    assert main(["train", "--resume", "--out", str(tmp_path / "a")]) == 0
    assert not (tmp_path / ".a.run" / ".state.previous").exists()


def test_there_must_be_a_run_to_resume(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--resume", "--out", str(tmp_path / "a")]) == 2
    assert "no run there to resume; give the settings of a new one" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    ip.save(ip.construct(order=2, vocab=3, length=9, beta=(1, 1)), tmp_path / "b")
    assert main(["train", "--resume", "--out", str(tmp_path / "b")]) == 2
    assert "b: no checkpoint of a run" in capsys.readouterr().err
    (tmp_path / "spec.json").write_text("{}")
    assert main(["train", "--spec", str(tmp_path / "spec.json"), "--seed", "1", "--out", str(tmp_path / "c")]) == 2
    assert "--spec describes the whole run: leave out --seed" in capsys.readouterr().err


# ---- the files of a run from a stranger


def saved(work: Path, **rest: Any) -> None:
    """Other values in the trainer's part of the saved state."""
    file = work / "state" / "state.json"
    document = json.loads(file.read_text())
    document["trainer"] |= rest
    file.write_text(json.dumps(document))


def arrays(work: Path, change: Callable[[np.ndarray], np.ndarray]) -> None:
    """Other numbers in the saved state."""
    file = work / "state" / "arrays.safetensors"
    save_file({name: change(value) for name, value in load_file(file).items()}, file)


def replaced(place: Path, make: Callable[[Path], object]) -> None:
    """Something else in the place of a file or a directory."""
    if place.exists():
        place.rename(place.parent.parent / "away")
    make(place)


HOSTILE: dict[str, Callable[[Path], object]] = {
    "a generator that is another function": lambda work: saved(work, generator={"bit_generator": "canary"}),
    "a generator past 128 bits": lambda work: saved(
        work,
        generator={"bit_generator": "PCG64", "state": {"state": 1 << 200, "inc": 1}, "has_uint32": 0, "uinteger": 0},
    ),
    "a step past the end": lambda work: saved(work, step=61),
    "a step before the start": lambda work: saved(work, step=-1),
    "a step that is a text": lambda work: saved(work, step="22"),
    "fewer parameters": lambda work: arrays(work, lambda value: value[:1]),
    "more parameters": lambda work: arrays(work, lambda value: np.repeat(value, 1000)),
    "parameters of another type": lambda work: arrays(work, lambda value: value.astype(np.float32)),
    "no numbers": lambda work: arrays(work, lambda value: np.nan * value),
    "arrays in a pipe": lambda work: replaced(work / "state" / "arrays.safetensors", os.mkfifo),
    "a log in a pipe": lambda work: replaced(work / "log.jsonl", os.mkfifo),
    "a log elsewhere": lambda work: replaced(work / "log.jsonl", lambda file: file.symlink_to("../victim")),
    "a lock elsewhere": lambda work: replaced(work / "lock", lambda file: file.symlink_to("../victim")),
    "a lock that is a directory": lambda work: replaced(work / "lock", Path.mkdir),
    "snapshots elsewhere": lambda work: (work / "snapshots").symlink_to(".."),
    "half of a description": lambda work: (work / "state" / "state.json").write_text('{"spec": '),
    "a state elsewhere": lambda work: replaced(work / "state", lambda place: place.symlink_to("../away")),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_strangers_run_is_refused_in_one_line(
    name: str, interrupted: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is data alone: it names no function, leads nowhere else, and fits the compiled loops, which check nothing."""
    monkeypatch.setattr(np.random, "canary", lambda: pytest.fail("it was called"), raising=False)
    (victim := interrupted.with_name("victim")).write_text("precious")
    HOSTILE[name](work_directory(interrupted))
    before = sorted(interrupted.parent.iterdir())
    capsys.readouterr()
    assert main(["train", "--resume", "--out", str(interrupted)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert (victim.read_text(), sorted(interrupted.parent.iterdir())) == ("precious", before)


# ---- progress


@contextlib.contextmanager
def terminal(rows: int, columns: int) -> Iterator[Callable[[], str]]:
    """stderr is a terminal of this size; what it gives reads what was written."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def seen() -> str:
        text = b""
        while select.select([ours], [], [], 0.1)[0]:
            text += os.read(ours, 4096)
        return text.decode()

    with open(theirs, "w") as stderr, contextlib.redirect_stderr(stderr):
        yield seen
    os.close(ours)


@pytest.mark.parametrize("size", [(24, 80), (0, 0)])
def test_training_moves_on_a_terminal(size: tuple[int, int], tmp_path: Path) -> None:
    """A terminal that does not tell its size, as in many containers, has 0 columns: tqdm would write nothing."""
    with terminal(*size) as seen:
        assert main(["train", *SETTINGS, "--out", str(tmp_path / "a")]) == 0
        assert re.search(r"\ra 60/60, 00:00 left, loss \d\.\d{4}, KL \d\.\d{4}, beta", seen())


def test_a_log_gets_a_line_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *SETTINGS, "--out", str(tmp_path / "short")]) == 0
    assert capsys.readouterr().err == ""  # it takes less than half a minute
    monkeypatch.setattr(progress, "LOG_SECONDS", 1e-9)
    assert main(["train", *SETTINGS, "--out", str(tmp_path / "a")]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) > 30
    assert all(re.fullmatch(r"a \d+/60, (\?|\d\d:\d\d) left(, loss .*)?", line) for line in lines), lines[:3]


def test_a_bar_without_a_log_or_hidden_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LOG_SECONDS", 1e-9)
    with contextlib.redirect_stderr(io.StringIO()) as log:
        for settings in ({}, {"in_log": True, "shown": False}):
            assert list(progress_bar(iterable=range(3), **settings)) == [0, 1, 2]
    assert log.getvalue() == ""
    with terminal(24, 80) as seen:
        assert list(progress_bar(iterable=range(3), shown=False)) == [0, 1, 2]
        assert seen() == ""


# ---- kills


def tiny(**changes: Any) -> RunSpec:
    return make_spec(**{"family": "construction", "prior": "hierarchical:4", "length": 9, "bos": True, **changes})


def test_a_lock_is_waited_for(tmp_path: Path) -> None:
    """The worker of a sweep that was killed ends a moment later."""
    work = work_directory(tmp_path / "a")
    work.mkdir()
    with runs._locked(work):
        waiting = threading.Thread(target=run, args=(tiny(steps=3), tmp_path / "a"), kwargs={"resume": True})
        waiting.start()
        waiting.join(0.5)
        assert waiting.is_alive()
    waiting.join()
    assert runs.is_finished(tmp_path / "a")


def test_a_sweep_clears_what_a_kill_at_the_last_moment_left(tmp_path: Path) -> None:
    """Between the arrival of the finished checkpoint and the removal of the one before it."""
    (tmp_path / "s.toml").write_text(kills.STUDY.format(steps=3, seeds=0))
    asked = ["sweep", str(tmp_path / "s.toml"), "--engine", "here", "--out", str(tmp_path / "out")]
    assert main(asked) == 0
    place = tmp_path / "out" / "hierarchical_bos" / "disentangled" / "soft"
    ip.save(ip.construct(order=2, vocab=3, length=9, beta=(1, 1)), place / ".T12_seed0.previous")
    (place / ".T12_seed0.elsewhere-1.x.new").mkdir()
    os.utime(place / ".T12_seed0.elsewhere-1.x.new", (0, 0))  # of another machine, long ago
    assert main(asked) == 0
    (tmp_path / "t").mkdir()
    assert kills.leftovers(tmp_path / "out", tmp_path / "t") == []


def test_a_killed_sweep_leaves_no_orphan_and_the_next_ends_well(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """SIGKILL of the parent in mid-training, then of the next sweep's worker; `tests.kills` does it twenty times."""
    (tmp_path / "study.toml").write_text(kills.STUDY.format(steps=STEPS, seeds=0))
    out = tmp_path / "out"
    with kills.sweeping(tmp_path, engine="local", out="out", temporary=tmp_path / "t") as first:
        until(lambda: kills.saved_step(out) > 0)
        first.process.kill()
        first.process.wait()
        until(lambda: not first.alive(), seconds=kills.ORPHAN_SECONDS)
    assert 0 < kills.saved_step(out) < STEPS
    (lock,) = out.rglob("lock")
    orphan = lock.read_text()
    killer = threading.Thread(target=until, args=(lambda: lock.read_text() not in ("", orphan) and kill(lock),))
    killer.start()
    sweep = ["sweep", str(tmp_path / "study.toml"), "--out", str(out)]
    assert main(sweep) == 1
    killer.join()
    assert "ended by signal 9 (Killed); the same command goes on from the last save" in capfd.readouterr().err
    assert kills.saved_step(out) < STEPS
    here = ["--engine", "here"]
    assert main([*sweep, *here]) == 0
    assert main([*sweep[:-1], str(tmp_path / "whole"), *here]) == 0
    assert kills.weights(out) == kills.weights(tmp_path / "whole")
    assert kills.leftovers(out, tmp_path / "t") == []


def kill(lock: Path) -> bool:
    """Kill the worker that holds the lock."""
    os.kill(int(lock.read_text()), signal.SIGKILL)
    return True


STEPS = 20_000


def until(condition: Any, *, seconds: float = 300.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)
