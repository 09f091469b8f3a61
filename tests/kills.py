"""Sweeps that are killed: what is left behind, and whether the next sweep ends in the weights of an undisturbed one.

    python -m tests.kills --engine local --kills 20
    python -m tests.kills --engine ray --kills 20

Every trial begins a sweep of two runs in an empty directory, sends SIGKILL to its parent or to one of its workers at a
random moment, and at once starts the same sweep again. It is reported whether a process of the first sweep is alive ten
seconds after its parent was killed, how the second ended, whether the weights are bit-identical to those of a sweep
that nobody disturbed, and what lies around that is no part of a run. Processes are found by a mark in their
environment (Linux).

Two idle helpers of Ray itself are not counted: when Ray's server has been killed they try for 60 s, a constant in Ray,
to report that to it, and then end.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
MARK = "SWEEP_OF_A_TRIAL"
ORPHAN_SECONDS = 10.0
TOO_BUSY = "Ray could not be started"  # it waits 30 s for itself; such a sweep is begun again
HELPERS = ("ray::DashboardAgent", "ray::RuntimeEnvAgent", "ray/dashboard/agent.py", "runtime_env/agent/main.py")
SLOWEST = 600  # seconds for a sweep on a busy machine
STUDY = """
[[runs]]
family = "disentangled"
prior = "hierarchical:5"
vocab = 3
bos = true
length = 12
seed = {seeds}
steps = {steps}
"""
OF_A_RUN = {"config.json", "model.safetensors", "state", "arrays.safetensors", "state.json", "lock", "log.jsonl"}


@dataclass(kw_only=True)
class Trial:
    """One kill.

    step     the largest saved step at that moment
    killed   whether it was alive when it was killed
    gone     seconds from the kill of the parent to the end of its last process
    harm     what is wrong after it, or after the sweep that followed
    """

    target: str
    after: float
    step: int = -1
    killed: bool = True
    gone: float = 0.0
    harm: list[str] = field(default_factory=list)


class Sweep:
    """A running `python -m models sweep`, whose processes all carry a mark, with temporary files of its own."""

    def __init__(self, folder: Path, *, engine: str, out: str, temporary: Path) -> None:
        self.mark = f"{MARK}={random.getrandbits(64):016x}"
        temporary.mkdir(exist_ok=True)
        environment = {**os.environ, "TMPDIR": str(temporary), "RAY_TMPDIR": str(temporary), "OMP_NUM_THREADS": "1"}
        environment[MARK] = self.mark.partition("=")[2]
        command = [sys.executable, "-m", "models", "sweep", str(folder / "study.toml"), "--out", str(folder / out)]
        self.process = subprocess.Popen(
            [*command, "--engine", engine, "--jobs", "2", "--save-seconds", "0.2"],
            cwd=ROOT,
            env=environment,
            text=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def alive(self) -> dict[int, str]:
        """The processes of this sweep, its parent too, with their command lines."""
        found = {}
        for place in Path("/proc").iterdir():
            try:
                if place.name.isdigit() and self.mark.encode() in (place / "environ").read_bytes().split(b"\0"):
                    found[int(place.name)] = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:  # it has ended, or is another user's
                continue
        return {pid: line for pid, line in found.items() if not any(name in line for name in HELPERS)}

    def ended(self) -> tuple[int, str]:
        """How it ended, and what it said."""
        _, said = self.process.communicate(timeout=SLOWEST)
        return self.process.returncode, said


@contextmanager
def sweeping(folder: Path, *, engine: str, out: str, temporary: Path) -> Iterator[Sweep]:
    """A sweep, no process of which outlives the block."""
    sweep = Sweep(folder, engine=engine, out=out, temporary=temporary)
    try:
        yield sweep
    finally:
        for pid in sweep.alive():  # Ray's helpers end by themselves
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        sweep.process.communicate()


def weights(out: Path) -> dict[str, bytes]:
    """The bytes of every checkpoint's weights, by name."""
    found = sorted(out.rglob("model.safetensors"))
    return {str(file.parent.relative_to(out)): file.read_bytes() for file in found if ".run" not in str(file)}


def leftovers(out: Path, temporary: Path) -> list[str]:
    """Files that are no part of a run, and temporary ones. Ray keeps the logs of its sessions."""
    inside = [file for file in out.rglob("*") if not file.is_dir() or file.name.startswith(".")]
    odd = [file for file in inside if file.name not in OF_A_RUN and not (file.is_dir() and file.suffix == ".run")]
    return [str(file.relative_to(out)) for file in odd] + [
        f"temporary {one.name}" for one in temporary.iterdir() if one.name != "ray"
    ]


def below(folder: Path, name: str) -> list[Path]:
    """The files of this name below a folder, in which others come and go."""
    return [Path(place, name) for place, _, files in os.walk(folder) if name in files]


def saved_step(out: Path) -> int:
    """The largest step that a run below `out` has saved; -1 without any."""
    steps = [-1]
    for file in below(out, "state.json"):
        try:
            steps.append(json.loads(file.read_text())["trainer"]["step"])
        except (OSError, ValueError):
            continue
    return max(steps)


def workers(out: Path, alive: dict[int, str]) -> list[int]:
    """The processes that are training, as the locks of the runs name them."""
    written = [file.read_text().strip() for file in below(out, "lock")]
    return [int(pid) for pid in written if pid.isdigit() and int(pid) in alive]


def undisturbed_sweep(folder: Path, *, engine: str, out: str) -> tuple[int, str, float]:
    """How a sweep ends that nobody kills, what it says, and its seconds."""
    for _ in range(20):
        begun = time.monotonic()
        with sweeping(folder, engine=engine, out=out, temporary=folder / "t") as sweep:
            code, said = sweep.ended()
        if TOO_BUSY not in said:
            break
    return code, said, time.monotonic() - begun


def trial(folder: Path, *, engine: str, target: str, after: float, undisturbed: dict[str, bytes]) -> Trial:
    """Kill a sweep `after` seconds, sweep again, and look."""
    shutil.rmtree(folder / "out", ignore_errors=True)
    done = Trial(target=target, after=round(after, 2))
    temporary = folder / "t"
    with sweeping(folder, engine=engine, out="out", temporary=temporary) as first:
        begun = time.monotonic()
        victim = first.process.pid
        if target == "worker":  # the time runs from the moment at which one trains
            while not (found := workers(folder / "out", first.alive())) and first.process.poll() is None:
                time.sleep(0.02)
            begun = time.monotonic()
            victim = random.choice(found) if found else victim
        while time.monotonic() - begun < after and first.process.poll() is None:
            time.sleep(0.01)
        done.step = saved_step(folder / "out")
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            done.killed = False
        killed = time.monotonic()
        if target == "worker":
            first.ended()
        with sweeping(folder, engine=engine, out="out", temporary=temporary) as second:  # at once
            if target == "parent":
                first.process.wait()
                while (left := first.alive()) and time.monotonic() - killed < ORPHAN_SECONDS:
                    done.gone = round(time.monotonic() - killed, 1)
                    time.sleep(0.1)
                done.harm += [f"orphan {line}" for line in left.values()]
            code, said = second.ended()
    if TOO_BUSY in said:
        code, said, _ = undisturbed_sweep(folder, engine=engine, out="out")
    done.harm += [f"the next sweep ended with {code}: {said}"] if code else []
    done.harm += ["other weights"] if weights(folder / "out") != undisturbed else []
    done.harm += [f"left {name}" for name in leftovers(folder / "out", temporary)]
    return done


def trials(folder: Path, *, engine: str, kills: int, steps: int, seed: int) -> Iterator[Trial]:
    """Kills of parent and worker in turn, at moments that are uniform over the time a sweep takes."""
    moments = random.Random(seed)
    (folder / "study.toml").write_text(STUDY.format(steps=steps, seeds=[0, 1]))
    undisturbed_sweep(folder, engine=engine, out="first")  # compiles, so that the next one takes what a sweep takes
    code, said, took = undisturbed_sweep(folder, engine=engine, out="whole")
    assert code == 0, said
    done = 0
    while done < kills:
        target = ("parent", "worker")[done % 2]
        after = moments.uniform(0, took if target == "parent" else took / 2)
        one = trial(folder, engine=engine, target=target, after=after, undisturbed=weights(folder / "whole"))
        done += one.killed  # a sweep that had ended before does not count
        yield one


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=("local", "ray"), default="local")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--steps", type=int, default=30_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory(prefix="k") as name:  # a short one: Ray puts sockets below it
        for one in trials(Path(name), engine=given.engine, kills=given.kills, steps=given.steps, seed=given.seed):
            print(json.dumps(asdict(one)), flush=True)
            found.append(one)
    good = sum(not one.harm for one in found if one.killed)
    gone = max(one.gone for one in found)
    print(f"{given.engine}: {good} of {given.kills} kills without harm; all gone after {gone} s")
    return 1 if any(one.harm for one in found) else 0


if __name__ == "__main__":
    sys.exit(main())
