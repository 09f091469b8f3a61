"""A sweep on a real Ray, started here: a worker killed in mid-run costs nothing but time."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from safetensors.numpy import load_file

import models.training.sweep
from models.running.cli import main
from models.training.run import is_finished, run
from models.training.spec import make_spec
from models.training.sweep import PROJECT, PlannedRun, _connect, sweep

PRIOR = {"kind": "hierarchical", "order": 2, "vocab": 3, "eta": [5.0, 5.0], "eta0": 1.0}
STEPS = 100_000


@pytest.fixture
def no_ray_left() -> Iterator[None]:
    yield
    ray.shutdown()


@pytest.mark.filterwarnings("ignore")  # Ray's own: it leaves sockets and files to the garbage collector
def test_a_killed_worker_does_not_change_the_weights(tmp_path: Path, no_ray_left: None) -> None:
    planned = [
        PlannedRun(
            name=f"seed{seed}",
            spec=make_spec(family="disentangled", prior=PRIOR, length=12, bos=True, seed=seed, steps=steps),
            out=tmp_path / f"seed{seed}",
        )
        for seed, steps in ((0, STEPS), (1, 50))
    ]
    killed: list[int] = []
    finished = threading.Event()

    def kill_when_under_way() -> None:
        """Kill the first run's worker as soon as it has saved something to resume from."""
        work = tmp_path / ".seed0.run"
        deadline = time.monotonic() + 600  # the worker compiles its kernels first
        while time.monotonic() < deadline and not finished.is_set():
            if (work / "state" / "state.json").is_file():
                pid = int((work / "lock").read_text())
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
                return
            time.sleep(0.02)

    killer = threading.Thread(target=kill_when_under_way)
    killer.start()
    status = sweep(planned, engine="ray", address="local", save_seconds=0.2)
    finished.set()
    killer.join()
    assert status == 0
    assert killed, "the run ended before its worker could be killed"
    log = (tmp_path / ".seed0.run" / "log.jsonl").read_text().splitlines()
    assert json.loads(log[-1])["step"] == STEPS
    assert all(is_finished(plan.out) for plan in planned)
    run(planned[0].spec, tmp_path / "undisturbed", progress=False)
    ours = load_file(tmp_path / "seed0" / "model.safetensors")
    theirs = load_file(tmp_path / "undisturbed" / "model.safetensors")
    for name, value in theirs.items():
        np.testing.assert_array_equal(ours[name], value, err_msg=name)


class Recorder:
    """In place of Ray: keeps what it is asked for."""

    def init(self, address: str, **options: Any) -> None:
        self.asked = {"address": address, **options}


@pytest.mark.parametrize(
    ("address", "variable", "found"),
    [
        ("local", "10.0.0.1:6379", "local"),
        (None, "", "local"),  # a cluster that runs here may be that of a sweep that was killed
        (None, "10.0.0.1:6379", "10.0.0.1:6379"),
        ("auto", "", "auto"),
    ],
)
def test_workers_find_compiled_functions(
    address: str | None, variable: str, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those started here import this checkout; to others it is sent with its compiled functions."""
    monkeypatch.setenv("RAY_RUNTIME_ENV_IGNORE_GITIGNORE", "0")
    monkeypatch.setenv("RAY_ADDRESS", variable)
    fake = Recorder()
    _connect(fake, address, jobs=2)
    asked, environment = fake.asked, fake.asked["runtime_env"]
    assert asked["address"] == found
    assert environment["env_vars"]["OMP_NUM_THREADS"] == "1"
    if found == "local":
        assert asked["num_cpus"] == 2
        assert environment["env_vars"]["PYTHONPATH"] == str(PROJECT)
        assert "working_dir" not in environment
    else:
        assert environment["working_dir"] == str(PROJECT)
        assert os.environ["RAY_RUNTIME_ENV_IGNORE_GITIGNORE"] == "1"
        left_out = environment["excludes"]
        assert {".venv", "models/checkpoints", "*.pyc"} <= set(left_out)
        assert not any("__pycache__" in word or word.endswith((".nbi", ".nbc")) for word in left_out)


def test_ray_that_does_not_start_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a busy machine Ray gives up after 30 s, with a bare Exception."""

    def late(*_: Any) -> None:
        raise Exception("The current node timed out\nduring startup.")

    monkeypatch.setattr(models.training.sweep, "_connect", late)
    assert main(["sweep", "smoke", "--engine", "ray", "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == "error: Ray could not be started or reached: The current node timed out during startup."
