"""One training run: resumable, logged, and safe against a kill at any moment.

    NAME/                    the checkpoint (config.json, model.safetensors), refreshed whenever the state is saved
    .NAME.run/state/         arrays and generator of the trainer, replaced as a whole
    .NAME.run/log.jsonl      one line per logging interval
    .NAME.run/snapshots/     intermediate checkpoints at log-spaced steps, with --snapshots

The trainer's state is a function of the spec and the step alone. So a run that is killed and resumed loses at most
the work since its last save, and ends in the same weights as one that was never disturbed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from interp.arguments import MAX_BYTES, whole_number
from interp.chains.batch import ChainBatch, Method
from interp.divergence import Divergence, kl_divergence
from interp.hooked.checkpoint import (
    check_replaceable,
    load,
    one_kind_of_error,
    read_info,
    replace_directory,
    save,
)
from interp.hooked.tensors import DTYPES
from interp.outside import one_line, open_file, read_object, read_tensors
from interp.results import is_clear, jsonable, mean_stderr
from interp.staging import new_directory, replace_file
from models.families.registry import find_family
from models.running.progress import progress_bar
from models.running.terminal import say
from models.running.zoo import work_directory
from models.training.spec import SAVE_SECONDS, RunSpec
from models.training.trainers import Arrays, Trainer, make_trainer

HELD_OUT_SEQUENCES = 4096
HELD_OUT_SEED = 1_000_003
LOG_POINTS = 100
PIECE = 20  # steps between two movements of the progress bar
LEAST_NATS = 1e-4  # difference of two divergences; a smaller one is not visible in any table
SNAPSHOTS_PER_DECADE = 6
LOCK_SECONDS = 10.0  # to wait for a process that is ending, e.g. the worker of a sweep that was killed
BAR = "{desc} {n_fmt}/{total_fmt}, {remaining} left{postfix}"  # no bar: 80 columns are narrow
OURS = {"state": Path.is_dir, "snapshots": Path.is_dir, "lock": Path.is_file, "log.jsonl": Path.is_file}
READINGS = {"parameters": "beta", "weights": "blocks of W_A", "scores": "beta of the scores"}


class RunError(RuntimeError):
    """A run that cannot start or go on; its message is one line for the user."""


class Diverged(RunError):
    """A run whose loss or predictions stopped being finite; the last good weights are kept."""


class AlreadyFinished(RunError):
    """Nothing to do: the run is already finished."""


@dataclass(frozen=True, kw_only=True)
class Finished:
    """How a run ended.

    learnt   whether it predicts better than the uniform law, by more than the error of the difference
    failure  one line that says why the run failed, see `_failure`; else empty
    """

    path: Path
    held_out: Divergence
    learnt: bool
    failure: str
    beta: list[float]
    kappa: float | None
    seconds: float


def run(
    spec: RunSpec, out: Path, *, resume: bool = False, progress: bool = True, save_seconds: float = SAVE_SECONDS
) -> Finished:
    """Train to the end, or go on from where an earlier call stopped; the checkpoint is left in `out`."""
    work = work_directory(out)
    _check_start(spec, out, work, resume=resume)
    with _locked(work):
        training = Training(spec, out, work)
        if not training.known:  # from the first moment on --resume finds the settings
            training.save("running")
        if resume and progress:
            begins = "resumed" if training.known else "no saved state: begins"
            say(f"{out}: {begins} at step {training.trainer.step:,} of {spec.steps:,}")
        return training.complete(progress=progress, save_seconds=save_seconds)


# ---- what a run left


def is_finished(out: Path) -> bool:
    """Whether `out` holds the checkpoint of a run that came to its end."""
    try:
        info = read_info(out)
    except ValueError:
        return False
    return (info.training or {}).get("status") == "finished"


def recorded_spec(out: Path) -> RunSpec:
    """The spec of the run that left the checkpoint `out`; factors that it does not mention had their defaults."""
    training = read_info(out).training or {}
    return RunSpec.from_dict({field.name: training[field.name] for field in fields(RunSpec) if field.name in training})


def started_spec(out: Path) -> RunSpec | None:
    """The spec that the run in `out` was started with, as its state or its checkpoint recorded it; None without either.

    What is there but cannot be read is a `RunError`.
    """
    if (document := _saved_state(work_directory(out))) is not None:
        spec: RunSpec = document["spec"]
        return spec
    try:
        read_info(out)
    except ValueError:
        return None
    try:
        return recorded_spec(out)
    except (TypeError, ValueError) as error:
        raise RunError(f"{out}: no checkpoint of a run: {error}") from None


def snapshot_steps(steps: int) -> list[int]:
    """Log-spaced steps 1..steps at which a snapshot is kept.

    >>> snapshot_steps(10)
    [1, 2, 3, 5, 7, 10]
    """
    count = max(2, round(SNAPSHOTS_PER_DECADE * np.log10(steps)) + 1)
    return sorted({int(step) for step in np.round(np.geomspace(1, steps, count))})


def reading_source(spec: RunSpec) -> str:
    """Where the numbers of a run's progress line are read: parameters of a construction, weights, or scores."""
    family = find_family(spec.family)
    return "parameters" if family.analytic else "weights" if family.blocks else "scores"


# ---- training


class Training:
    """A run under way: its trainer, at the step of the saved state if there is one (`known`)."""

    def __init__(self, spec: RunSpec, out: Path, work: Path) -> None:
        self.spec, self.out, self.work = spec, out, work
        self.trainer = make_trainer(spec)
        self.known = _state_place(work) is not None
        self.started = time.monotonic() - _restore(self.trainer, spec, work)
        self.saved = time.monotonic()

    @property
    def seconds(self) -> float:
        """How long it has trained, earlier calls included."""
        return time.monotonic() - self.started

    def complete(self, *, progress: bool, save_seconds: float) -> Finished:
        """Train to the end."""
        spec, trainer = self.spec, self.trainer
        held_out = _held_out(spec)
        snapshots = snapshot_steps(spec.steps) if spec.snapshots else []
        stops = {*np.linspace(0, spec.steps, LOG_POINTS + 1).astype(int).tolist(), *snapshots} - {0}
        _trim_log(self.work, trainer.step)
        if spec.snapshots and trainer.step == 0:
            self.keep_snapshot(None)
        name = one_line(self.out.name)
        with progress_bar(
            in_log=True, shown=progress, total=spec.steps, initial=trainer.step, desc=name, bar_format=BAR
        ) as bar:
            reading = ""
            for stop in sorted(stop for stop in stops if stop > trainer.step):
                divergence, beta, kappa = self.advance_to(stop, held_out, bar, reading)
                reading = f", {_reading_line(divergence.mean, beta, kappa, spec)}"
                if stop in snapshots:
                    self.keep_snapshot(divergence)
                if time.monotonic() - self.saved > save_seconds and stop < spec.steps:
                    self.save("running", divergence)
        ended = _evaluate(trainer, held_out)
        if ended is None:  # training is complete, but the predictions are not finite
            raise Diverged(f"{self.out}: the predictions are not finite")
        seconds = self.seconds
        self.save("finished", ended)
        beta, kappa = trainer.reading()
        return Finished(
            path=self.out,
            held_out=ended,
            learnt=_clearly_above(_uniform(held_out), ended),
            failure=_failure(spec, self.out, ended, held_out),
            beta=beta,
            kappa=kappa,
            seconds=seconds,
        )

    def advance_to(
        self, stop: int, held_out: ChainBatch, bar: Any, reading: str
    ) -> tuple[Divergence, list[float], float | None]:
        """Train to the next stop and log it; if this part diverges, the state before it is kept."""
        trainer = self.trainer
        before, start = trainer.dump(), trainer.step
        pieces, rates = [], self.spec.schedule.learning_rates(start, stop)
        for first in range(0, stop - start, PIECE):
            pieces.append(trainer.advance(rates[first : first + PIECE]))
            bar.set_postfix_str(f"loss {pieces[-1][-1]:.4f}{reading}", refresh=False)
            bar.update(len(pieces[-1]))
            if not np.isfinite(pieces[-1]).all():
                break
        losses = np.concatenate(pieces)
        divergence = _evaluate(trainer, held_out) if np.isfinite(losses).all() else None
        if divergence is None:
            bad = start + int(np.append(~np.isfinite(losses), True).argmax())  # at the latest after this part
            trainer.restore(*before)
            self.save("diverged")
            raise Diverged(
                f"{self.out}: the loss stopped being finite at step {bad}; the weights of step {start} are kept "
                f"(a smaller --learning-rate than {self.spec.learning_rate:g} may help)"
            )
        beta, kappa = trainer.reading()
        _log(
            self.work,
            step=trainer.step,
            loss=float(losses.mean()),
            kl=divergence.mean,
            kl_stderr=divergence.stderr,
            beta=beta,
            kappa=kappa,
            seconds=round(self.seconds, 2),
        )
        return divergence, beta, kappa

    def keep_snapshot(self, divergence: Divergence | None) -> None:
        """An intermediate checkpoint."""
        path = self.work / "snapshots" / f"step_{self.trainer.step:08d}"
        save(self.trainer.hooked(), path, training=self.record("running", divergence))

    def save(self, status: str, divergence: Divergence | None = None) -> None:
        """Replace the saved state and the checkpoint."""
        seconds = self.seconds
        arrays, rest = self.trainer.dump()
        staging = new_directory(self.work / "state")
        try:
            with one_kind_of_error(self.work):
                save_file(arrays, staging / "arrays.safetensors")
            document = {"spec": self.spec.to_dict(), "trainer": rest, "seconds": seconds, "status": status}
            (staging / "state.json").write_text(json.dumps(document))
            replace_directory(staging, self.work / "state")
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        save(self.trainer.hooked(), self.out, training=self.record(status, divergence))
        self.saved = time.monotonic()

    def record(self, status: str, divergence: Divergence | None) -> dict[str, Any]:
        """The training record of the checkpoint: the spec, how far it got, and how well it predicts."""
        held_out = None if divergence is None else {**divergence.record(), "seed": HELD_OUT_SEED}
        how_far = {"step": self.trainer.step, "status": status, "seconds": round(self.seconds, 1)}
        return jsonable({**self.spec.to_dict(), **how_far, "held_out": held_out})


def _log(work: Path, **entry: Any) -> None:
    with open(work / "log.jsonl", "a") as handle:
        handle.write(json.dumps(jsonable(entry)) + "\n")


def _trim_log(work: Path, step: int) -> None:
    """Remove the lines logged after the state that the run resumes from, and an incomplete last line."""
    file = work / "log.jsonl"
    kept = []
    for line in file.read_text(errors="replace").splitlines() if file.exists() else []:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            kept += [f"{line}\n"] if json.loads(line)["step"] <= step else []
    if file.exists():
        replace_file(file, "".join(kept))


def _reading_line(kl: float, beta: list[float], kappa: float | None, spec: RunSpec) -> str:
    """The text of the progress line. Blocks of W_A are not called beta: beta of the scores may differ from them."""
    line = f"KL {kl:.4f}, {READINGS[reading_source(spec)]} {', '.join(f'{value:.2f}' for value in beta)}"
    return line if kappa is None else f"{line}, kappa {kappa:.2f}"


# ---- how well it predicts


def _held_out(spec: RunSpec) -> ChainBatch:
    """Sequences that no run is trained on. Where the table of all contexts does not fit, the urn draws them."""
    prior = spec.build_prior()
    kernels = 8 * HELD_OUT_SEQUENCES * prior.vocab ** (prior.order + 1)
    method: Method = "explicit" if kernels <= MAX_BYTES else "collapsed"
    return prior.sample(batch=HELD_OUT_SEQUENCES, length=spec.length, seed=HELD_OUT_SEED, method=method)


def _evaluate(trainer: Trainer, held_out: ChainBatch) -> Divergence | None:
    """The held-out divergence; None where a prediction is not finite, which the last step may have caused."""
    predicted = torch.from_numpy(trainer.predict(held_out.tokens.numpy())).double()
    return kl_divergence(held_out.next_law, predicted) if bool(torch.isfinite(predicted).all()) else None


def _uniform(held_out: ChainBatch) -> Divergence:
    """Of the uniform law."""
    return kl_divergence(held_out.next_law, torch.full_like(held_out.next_law, 1 / held_out.next_law.shape[-1]))


def _clearly_above(one: Divergence, other: Divergence) -> bool:
    """Whether a mean is above another by more than the error of the difference and by more than LEAST_NATS."""
    mean, stderr = mean_stderr(one.values - other.values)
    return mean > LEAST_NATS and is_clear(mean, stderr)


def _failure(spec: RunSpec, out: Path, ended: Divergence, held_out: ChainBatch) -> str:
    """Why a finished run has failed; empty where it has not.

    A run has failed if it ends worse than the uniform law, or no better than that and worse than it started. A run that
    stays on the plateau where it started has not failed.
    """
    uniform = _uniform(held_out)
    if _clearly_above(uniform, ended):
        return ""
    words = "worse than the uniform law"
    if not _clearly_above(ended, uniform):
        start = _evaluate(make_trainer(spec), held_out)
        if start is None or not _clearly_above(ended, start):
            return ""
        words = "no better than the uniform law, and worse than it started"
    return (
        f"{out}: the run ended {words}: held-out KL {ended.mean:.4f} ± {ended.stderr:.4f} against {uniform.mean:.4f} "
        f"of the uniform law (a smaller --learning-rate than {spec.learning_rate:g}, or more --steps than "
        f"{spec.steps}, may help)"
    )


# ---- the saved state


def _state_place(work: Path) -> Path | None:
    """Where the saved state is: under its own name or, after a kill between two renames, under the earlier one's."""
    return next((place for place in (work / "state", work / ".state.previous") if place.is_dir()), None)


def _saved_state(work: Path) -> dict[str, Any] | None:
    """What the saved state of a run says of it; None where none was saved."""
    if (state := _state_place(work)) is None:
        return None
    try:
        document = read_object(state / "state.json", any_size=True)
        return {**document, "spec": RunSpec.from_dict(document["spec"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{state}: cannot be read ({error}); remove {work} to start anew") from error


def _restore(trainer: Trainer, spec: RunSpec, work: Path) -> float:
    """Load the saved state into the trainer, if there is one; returns the seconds already spent."""
    if (document := _saved_state(work)) is None:
        return 0.0
    if different := [name for name, value in vars(spec).items() if getattr(document["spec"], name) != value]:
        raise RunError(f"{work}: was started with other settings ({', '.join(different)}); use another --out")
    state = _state_place(work) or work / "state"
    try:
        if document["status"] == "diverged":
            raise RunError(f"{work}: this run diverged; use another --out and other settings")
        whole_number(document["trainer"]["step"], name="step", most=spec.steps)
        trainer.restore(_fitting(state / "arrays.safetensors", trainer.dump()[0]), document["trainer"])
        return float(document["seconds"])
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, OSError, SafetensorError) as error:
        raise RunError(f"{state}: does not fit this run ({one_line(error)}); remove {work} to start anew") from error


def _fitting(file: Path, wanted: Arrays) -> Arrays:
    """The arrays of a saved state, which are like those wanted: compiled loops do not look where an array ends."""
    with open_file(file) as handle:
        held = {name: (str(DTYPES.get(entry.kind)), entry.shape) for name, entry in read_tensors(handle).items()}
    if held != {name: (f"torch.{array.dtype}", array.shape) for name, array in wanted.items()}:
        raise ValueError("its arrays are of other sizes")
    found: Arrays = load_file(file)
    if not all(np.isfinite(array).all() for array in found.values()):
        raise ValueError("its arrays hold NaN or infinity")
    return found


# ---- before it starts


def _check_start(spec: RunSpec, out: Path, work: Path, *, resume: bool) -> None:
    """Refuse, before anything is created, a place where a run cannot go."""
    if not resume and (out.exists() or work.exists()):
        raise RunError(f"{out}: a run is already there; --resume continues it, another --out starts a new one")
    if resume and is_finished(out):
        if recorded_spec(out) == spec and load(out):
            raise AlreadyFinished(f"{out}: already finished")
        raise RunError(f"{out}: holds a finished run with other settings; use another --out")
    try:
        check_replaceable(out.resolve())
    except ValueError as error:
        raise RunError(str(error)) from None
    _check_work(work)
    try:
        work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{out}: cannot be written ({error.strerror or error})") from error


def _check_work(work: Path) -> None:
    """Refuse a work directory that no run has made, before anything is written to it, or through a link in it."""
    if work.exists() and not work.is_dir():
        raise RunError(f"{work}: a file is in the way of the run's work directory; use another --out")
    for one in sorted(work.iterdir()) if work.is_dir() else ():
        ours = OURS[one.name](one) if one.name in OURS else one.name[0] == "."
        if one.is_symlink() or not ours:
            raise RunError(f"{work}: also holds {one.name!r}, which no run has made; use another --out")


@contextlib.contextmanager
def _locked(work: Path) -> Iterator[None]:
    """Prevents two processes from writing one run. The lock is released when the process ends, for any reason."""
    with open(work / "lock", "a+") as handle:
        end = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() > end:
                    handle.seek(0)
                    who = handle.read().strip()
                    raise RunError(f"{work}: another process ({who}) is training here") from None
            time.sleep(0.1)
        handle.truncate(0)
        handle.write(f"{os.getpid()}\n")
        handle.flush()
        yield
