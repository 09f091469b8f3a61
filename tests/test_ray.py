"""A sweep on a real Ray, started here: a worker killed in mid-run costs nothing but time."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import ray
from safetensors.numpy import load_file

from models.run import is_finished, run
from models.spec import make_spec
from models.sweep import PlannedRun, sweep

PRIOR = {"kind": "hierarchical", "order": 2, "vocab": 3, "eta": [5.0, 5.0], "eta0": 1.0}
STEPS = 200_000


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
        work = tmp_path / "seed0.run"
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
    log = (tmp_path / "seed0.run" / "log.jsonl").read_text().splitlines()
    assert json.loads(log[-1])["step"] == STEPS
    assert all(is_finished(plan.out) for plan in planned)
    run(planned[0].spec, tmp_path / "undisturbed", progress=False)
    ours = load_file(tmp_path / "seed0" / "model.safetensors")
    theirs = load_file(tmp_path / "undisturbed" / "model.safetensors")
    for name, value in theirs.items():
        np.testing.assert_array_equal(ours[name], value, err_msg=name)
