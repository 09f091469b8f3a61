"""Checkpoints: exact round trips, strict reading, no pickle, and saves that a crash cannot break."""

from __future__ import annotations

import os
import pathlib
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

from analyses.running.subject import Subject
from interp.circuit.runner import predict
from interp.hooked import checkpoint as module
from interp.hooked.checkpoint import CheckpointError, load, read_info, save
from interp.hooked.construction import construct
from interp.hooked.transformer import InductionConfig, InductionTransformer


@pytest.fixture(scope="module")
def old() -> InductionTransformer:
    return construct(order=1, vocab=2, length=4, beta=(1.5,), kappa=0.25)


@pytest.fixture(scope="module")
def new() -> InductionTransformer:
    return construct(order=1, vocab=2, length=4, beta=(-0.75,), kappa=2.0)


@pytest.fixture
def saved(tmp_path: Path, old: InductionTransformer) -> Path:
    save(old, tmp_path / "model")
    return tmp_path / "model"


def same(first: InductionTransformer, second: InductionTransformer) -> bool:
    """Bit for bit, in weights and config."""
    weights = dict(second.named_parameters())
    return (
        first.config == second.config
        and set(dict(first.named_parameters())) == set(weights)
        and all(torch.equal(value, weights[name]) for name, value in first.named_parameters())
    )


# ---- round trips


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("family", ["construction", "disentangled", "standard"])
def test_a_round_trip_is_bit_exact(tmp_path: Path, family: str, dtype: str) -> None:
    widths = {"d_model": 6, "d_mlp": 8} if family == "standard" else {}
    config = InductionConfig(
        family=family, order=2, vocab=3, length=7, bos=True, readout="probability", dtype=dtype, **widths
    )
    model = InductionTransformer(config)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert same(loaded, model)
    tokens = np.random.default_rng(0).integers(3, size=(4, 7))
    if family != "construction":
        assert torch.equal(predict(loaded, tokens), predict(model, tokens))
    for name, parameter in model.named_parameters():
        assert loaded.get_parameter(name).requires_grad == parameter.requires_grad


def test_a_checkpoint_is_two_readable_files(saved: Path) -> None:
    assert sorted(entry.name for entry in saved.iterdir()) == ["config.json", "model.safetensors"]
    assert sorted(saved.parent.iterdir()) == [saved]
    assert all(entry.stat().st_mode & 0o444 == 0o444 for entry in saved.iterdir())


def test_the_training_record_is_kept(tmp_path: Path, old: InductionTransformer) -> None:
    prior = {"kind": "independent", "order": 1, "vocab": 2}
    record = {"seed": 3, "steps": 100, "prior": prior, "status": "finished", "by": "someone"}
    save(old, tmp_path / "model", training=record)
    info = read_info(tmp_path / "model")
    assert info.training == record
    assert info.model == old.config.to_dict()
    assert info.path == tmp_path / "model"


@pytest.mark.parametrize(
    ("training", "message"),
    [
        (None, "its training record names no prior"),
        ({"prior": {"kind": "flat", "order": 1, "vocab": 2}}, "config.json: prior kind must be one of"),
    ],
)
def test_a_record_without_a_known_prior_is_refused(training, message, tmp_path, old) -> None:
    save(old, tmp_path / "model", training=training)
    with pytest.raises(CheckpointError, match=message):
        _ = read_info(tmp_path / "model").prior


def test_saving_again_replaces(saved: Path, new: InductionTransformer) -> None:
    save(new, saved, training={"n": 1})
    assert same(load(saved), new)
    assert sorted(saved.parent.iterdir()) == [saved]


def test_saving_and_loading_touch_no_global_generator(saved: Path) -> None:
    state = torch.get_rng_state()
    load(saved)
    assert torch.equal(torch.get_rng_state(), state)


# ---- a directory that is not ours is left alone


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("results/notes.txt", r"will not replace a directory that also holds 'notes\.txt'"),
        ("model/notes.txt", r"notes\.txt"),
        ("file", "a file is in the way"),
    ],
)
def test_what_is_not_a_checkpoint_is_not_replaced(
    saved: Path, new: InductionTransformer, place: str, message: str
) -> None:
    precious = saved.parent / place
    precious.parent.mkdir(exist_ok=True)
    precious.write_text("precious")
    with pytest.raises(CheckpointError, match=message):
        save(new, precious if place == "file" else precious.parent)
    assert precious.read_text() == "precious"
    assert not list(saved.parent.glob(".*"))


def test_an_empty_directory_may_be_filled(tmp_path: Path, old: InductionTransformer) -> None:
    (tmp_path / "a" / "model").mkdir(parents=True)
    for place in (tmp_path / "a" / "model", tmp_path / "b" / "c"):
        save(old, str(place))
        assert same(load(str(place)), old)


# ---- crashes


class Killed(BaseException):
    """The process is gone: nothing after it runs, not even clean-up."""


STEPS = (
    (module, "replace_directory"),
    (os, "rename"),
    (os, "fsync"),
    (pathlib.Path, "chmod"),
    (pathlib.Path, "write_text"),
    (pathlib.Path, "mkdir"),
    (shutil, "rmtree"),
    (safetensors.torch, "save_file"),
)


def kill_at(step: int, patch: pytest.MonkeyPatch, *, after: bool) -> list[str]:
    """Let `save` die before or after its n-th step on the disk. Once dead, no step has any effect."""
    taken: list[str] = []

    def dying(name: str, real: Callable[..., object]) -> Callable[..., object]:
        def take(*args: object, **keywords: object) -> object:
            taken.append(name)
            if len(taken) < step:
                return real(*args, **keywords)
            if len(taken) == step and after:
                real(*args, **keywords)
            raise Killed

        return take

    for owner, name in STEPS:
        patch.setattr(owner, name, dying(name, getattr(owner, name)))
    return taken


def steps_of_a_save(tmp_path: Path, model: InductionTransformer) -> int:
    with pytest.MonkeyPatch.context() as patch:
        taken = kill_at(10**6, patch, after=False)
        save(model, tmp_path / "model")
    return len(taken)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_crash_at_any_step_leaves_the_old_or_the_new(
    tmp_path: Path, old: InductionTransformer, new: InductionTransformer, after: bool
) -> None:
    save(old, tmp_path / "count" / "model")
    steps = steps_of_a_save(tmp_path / "count", new)
    assert steps >= 10
    outcomes = []
    for step in range(1, steps + 1):
        home = tmp_path / str(step)
        save(old, home / "model")
        with pytest.MonkeyPatch.context() as patch:
            kill_at(step, patch, after=after)
            with pytest.raises(Killed):
                save(new, home / "model")
        found = load(home / "model")
        assert same(found, old) or same(found, new)
        outcomes.append("new" if same(found, new) else "old")
        assert read_info(home / "model").model == found.config.to_dict()
        save(new, home / "model")  # what a restarted job does: it must not stumble over the remains
        assert same(load(home / "model"), new)
        assert not module._previous(home / "model").exists()
    assert outcomes == sorted(outcomes, reverse=True)  # the old one up to some step, the new one from there on
    assert set(outcomes) == {"old", "new"}


def test_a_first_save_that_crashes_leaves_nothing_that_loads(tmp_path: Path, old: InductionTransformer) -> None:
    steps = steps_of_a_save(tmp_path / "count", old)
    outcomes = set()
    for step in range(1, steps + 1):
        home = tmp_path / str(step)
        home.mkdir()
        with pytest.MonkeyPatch.context() as patch:
            kill_at(step, patch, after=False)
            with pytest.raises(Killed):
                save(old, home / "model")
        if (home / "model").exists():
            outcomes.add("complete")
            assert same(load(home / "model"), old)  # never a damaged one
        else:
            outcomes.add("absent")
            with pytest.raises(CheckpointError, match="no such checkpoint"):
                load(home / "model")
    assert outcomes == {"absent", "complete"}


@pytest.mark.parametrize("failing", ["save_file", "write_text", "rename"])
def test_an_error_while_saving_cleans_up(
    saved: Path, old: InductionTransformer, new: InductionTransformer, failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk is no crash: the error is passed on, the old checkpoint loads, and no debris stays."""
    owner = next(owner for owner, name in STEPS if name == failing)

    def full(*args: object, **keywords: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(owner, failing, full)
    with pytest.raises(OSError, match="no space left"):
        save(new, saved)
    monkeypatch.undo()
    assert same(load(saved), old)
    assert [entry.name for entry in saved.parent.iterdir() if entry.name.endswith(".new")] == []


# ---- strict reading; what a file may hold is a table of tests/interp/hooked/test_hostile_checkpoints.py


def test_missing_files_are_named(saved: Path, tmp_path: Path) -> None:
    for read in (load, read_info):
        with pytest.raises(CheckpointError, match="absent: no such checkpoint"):
            read(tmp_path / "absent")
        with pytest.raises(CheckpointError, match="a checkpoint is a directory, this is a file"):
            read(saved / "config.json")
        with pytest.raises(CheckpointError, match=r"not a checkpoint, it has no config\.json"):
            read(tmp_path)
    (saved / "model.safetensors").unlink()
    read_info(saved)
    with pytest.raises(CheckpointError, match=r"no model\.safetensors in the checkpoint"):
        load(saved)


# ---- replaced while it is read


def write_over(path: Path, other: InductionTransformer) -> None:
    """What a copy of another checkpoint's files does."""
    save(other, path.parent / "other")
    for name in ("config.json", "model.safetensors"):
        (path / name).write_bytes((path.parent / "other" / name).read_bytes())


def move_over(path: Path, other: InductionTransformer) -> None:
    """What a move of another checkpoint's files does."""
    save(other, path.parent / "other")
    for name in ("config.json", "model.safetensors"):
        os.replace(path.parent / "other" / name, path / name)


REPLACE = {"saved": lambda path, other: save(other, path), "copied": write_over, "moved": move_over}


def at_reading(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[], object], *, file: str, times: int | None = 1
) -> list[str]:
    """Call `change` when `load` is about to open `file`, the first few times."""
    opened: list[str] = []
    real = module.Version._opened

    def opening(self: module.Version, name: str) -> object:
        opened.append(name)
        if name == file and (times is None or opened.count(file) <= times):
            change()
        return real(self, name)

    monkeypatch.setattr(module.Version, "_opened", opening)
    return opened


@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
@pytest.mark.parametrize("how", REPLACE)
@pytest.mark.parametrize("length", [4, 5])
def test_a_checkpoint_replaced_while_it_is_read_is_whole(
    saved: Path, old: InductionTransformer, how: str, file: str, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`length` 5: the other config does not fit the tensors; 4: it does, and nothing but the swap would show."""
    other = construct(order=1, vocab=2, length=length, beta=(-0.75,), kappa=2.0)
    opened = at_reading(monkeypatch, lambda: REPLACE[how](saved, other), file=file)
    found = load(saved)
    assert same(found, old) or same(found, other)
    assert len(opened) > 2  # it was read again


def test_config_and_weights_of_two_models_are_never_mixed(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The readout of one model on the weights of the other is a model that nobody trained."""
    votes = InductionConfig(family="disentangled", order=1, vocab=2, length=4, bos=True, readout="probability")
    one = InductionTransformer(votes)
    other = InductionTransformer(replace(votes, readout="logit"))
    with torch.no_grad():
        other.unembed.W_U.fill_(3.0)
    save(one, saved)
    at_reading(monkeypatch, lambda: move_over(saved, other), file="model.safetensors")
    assert same(load(saved), other)


def test_a_checkpoint_that_keeps_being_replaced_is_refused(
    saved: Path, old: InductionTransformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_reading(monkeypatch, lambda: save(old, saved), file="model.safetensors", times=None)
    with pytest.raises(CheckpointError, match="replaced again and again while it is read"):
        load(saved)


@pytest.mark.parametrize("use", [lambda subject: subject.model, lambda subject: subject.digest])
def test_an_analysis_of_a_replaced_checkpoint_is_refused(
    saved: Path, new: InductionTransformer, use: Callable[[Subject], object]
) -> None:
    """Its prior and its length are those of the checkpoint that was there before."""
    subject, before = Subject.open(saved), Subject.open(saved)
    use(before)
    save(new, saved)
    with pytest.raises(CheckpointError, match="was replaced while it was analysed"):
        use(subject)
    use(Subject.open(saved))


def test_a_record_that_is_not_json_is_refused_before_anything_changes(
    saved: Path, old: InductionTransformer, new: InductionTransformer
) -> None:
    with pytest.raises(ValueError, match="JSON"):
        save(new, saved, training={"loss": float("nan")})
    assert same(load(saved), old)
    assert sorted(saved.parent.iterdir()) == [saved]


def test_a_checkpoint_that_is_nearly_named_is_suggested(tmp_path):
    save(construct(order=1, vocab=2, length=4, beta=(1.0,)), tmp_path / "T64_seed0")
    with pytest.raises(CheckpointError, match=r"no such checkpoint; did you mean T64_seed0\?$"):
        load(tmp_path / "T64_sed0")
    for other in (tmp_path / "else", tmp_path / "T64_sed0" / "deeper"):
        with pytest.raises(CheckpointError, match=r"no such checkpoint$"):
            load(other)
