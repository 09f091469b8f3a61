"""Runs and sweeps: resumable bit for bit, whatever kills them; one-line errors before training rather than after."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from glob import glob
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

import interp as ip
from models.families.disentangled import weights as disentangled
from models.running.cli import main
from models.running.zoo import find_checkpoints, work_directory
from models.training import run as runs
from models.training.protocols import PROTOCOLS
from models.training.run import AlreadyFinished, RunError, is_finished, recorded_spec, run, snapshot_steps
from models.training.spec import RunSpec, make_spec
from models.training.sweep import load_study
from models.training.trainers import make_trainer
from tests import kills

pytestmark = pytest.mark.usefixtures("few_held_out")

ROOT = Path(__file__).parents[2]
HIERARCHICAL = ip.HierarchicalDirichlet(order=2, vocab=3, eta=(5.0, 5.0)).to_dict()


def tiny(**changes: object) -> RunSpec:
    settings: dict[str, object] = {
        "family": "disentangled",
        "prior": HIERARCHICAL,
        "length": 10,
        "bos": True,
        "steps": 300,
    }
    return make_spec(**{**settings, **changes})  # type: ignore[arg-type]


def weights(path: Path) -> dict[str, np.ndarray]:
    return load_file(path / "model.safetensors")


@pytest.mark.parametrize("family", ["construction", "disentangled", "standard"])
def test_a_run_leaves_a_loadable_checkpoint_that_predicts_as_the_trainer_does(tmp_path: Path, family: str) -> None:
    spec = tiny(family=family, steps=40)
    finished = run(spec, tmp_path / "a", progress=False)
    assert is_finished(tmp_path / "a")
    info = ip.read_info(tmp_path / "a")
    assert info.training is not None
    assert {name: info.training[name] for name in spec.to_dict()} == spec.to_dict()
    tokens = spec.build_prior().sample(batch=16, length=10, seed=5).tokens
    trainer = make_trainer(spec)
    trainer.advance(spec.schedule.learning_rates(0, 40))
    # In float32 a barely trained standard model with BOS magnifies rounding (models/families/standard/trainer.py).
    atol = 1e-4 if family == "standard" else 2e-6
    np.testing.assert_allclose(ip.predict(ip.load(finished.path), tokens), trainer.predict(tokens.numpy()), atol=atol)
    log = [json.loads(line) for line in (work_directory(tmp_path / "a") / "log.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in log] == sorted(entry["step"] for entry in log)
    assert log[-1]["step"] == 40
    assert log[-1]["kl"] == pytest.approx(finished.held_out.mean)
    assert log[-1]["kl"] < log[0]["kl"]


def test_snapshots_are_checkpoints_and_do_not_change_the_run(tmp_path: Path) -> None:
    run(tiny(steps=100, snapshots=True), tmp_path / "with", progress=False)
    run(tiny(steps=100), tmp_path / "without", progress=False)
    found = kills.weights(tmp_path)
    assert found["with"] == found["without"]
    found = sorted((tmp_path / ".with.run" / "snapshots").iterdir())
    assert [int(path.name.removeprefix("step_")) for path in found] == [0, *snapshot_steps(100)]
    assert all(ip.load(path).config.length == 10 for path in found)
    assert find_checkpoints(tmp_path) == [tmp_path / "with", tmp_path / "without"]
    assert sorted(glob(f"{tmp_path}/*")) == [str(tmp_path / "with"), str(tmp_path / "without")]  # as in a shell


def test_divergence_stops_the_run_and_keeps_the_last_good_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = tiny(steps=100)
    trainer = make_trainer(spec)
    advance = type(trainer).advance

    def explode(self: object, rates: np.ndarray) -> np.ndarray:
        losses = advance(self, rates)  # type: ignore[arg-type]
        if self.step > 50:  # type: ignore[attr-defined]
            losses[-1] = np.nan
        return losses

    monkeypatch.setattr(type(trainer), "advance", explode)
    with pytest.raises(RunError, match="stopped being finite at step 50"):
        run(spec, tmp_path / "a", progress=False)
    info = ip.read_info(tmp_path / "a")
    assert info.training is not None
    assert (info.training["status"], info.training["step"]) == ("diverged", 50)
    monkeypatch.undo()
    good = make_trainer(spec)
    good.advance(spec.schedule.learning_rates(0, 50))
    np.testing.assert_array_equal(
        weights(tmp_path / "a")["blocks.1.attn.W_Q"], good.hooked().match_attention.W_Q.detach().numpy()
    )
    with pytest.raises(RunError, match="diverged"):
        run(spec, tmp_path / "a", resume=True, progress=False)


@pytest.mark.parametrize(("family", "rate"), [("disentangled", "1e9"), ("standard", "10"), ("construction", "1e9")])
def test_a_run_that_ends_worse_than_the_uniform_law_fails(
    family: str, rate: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["train", "--family", family, "--length", "10", "--steps", "4", "--learning-rate", rate]
    assert main([*arguments, "--out", str(tmp_path / "a")]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert re.fullmatch(r"failed: .*/a: the run ended (worse|no better) than the uniform law.* may help\)", lines[0])
    assert is_finished(tmp_path / "a")
    assert main([*arguments, "--out", str(tmp_path / "b"), "--json"]) == 1
    assert "than the uniform law" in json.loads(capsys.readouterr().out)["failure"]


def test_predictions_that_are_not_finite_are_a_divergence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The loss is that of the weights before each step, so that it can be the last to know."""
    arguments = ["train", "--family", "standard", "--length", "10", "--learning-rate", "1e9", "--steps"]
    assert main([*arguments, "1", "--out", str(tmp_path / "a")]) == 1
    captured = capsys.readouterr()
    assert "the loss stopped being finite at step 1; the weights of step 0 are kept" in captured.err
    assert (captured.out, len(captured.err.splitlines())) == ("", 1)
    with pytest.warns(UserWarning, match="diverged at step 0 of 1"):
        assert ip.load(tmp_path / "a").config.length == 10
    assert main([*arguments, "4", "--out", str(tmp_path / "json"), "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {"path": str(tmp_path / "json"), "status": "diverged"}


def test_a_run_that_stays_at_the_uniform_law_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With no readout to begin with, a rate that moves nothing leaves the uniform law: a plateau, and no failure."""
    arguments = ["train", "--length", "10", "--steps", "2", "--learning-rate", "1e-12"]
    still = [*arguments, "--readout", "logit", "--init", "zero", "--out", str(tmp_path / "still")]
    moved = [*arguments, "--family", "construction", "--out", str(tmp_path / "moved")]  # starts better than uniform
    for argv, said in ((still, True), (moved, False)):
        assert main(argv) == 0
        assert ("no better than the uniform law" in capsys.readouterr().out) == said


def test_nothing_is_overwritten_without_being_asked(tmp_path: Path) -> None:
    run(tiny(steps=10), tmp_path / "a", progress=False)
    before = (tmp_path / "a" / "model.safetensors").read_bytes()
    with pytest.raises(RunError, match="already there"):
        run(tiny(steps=10), tmp_path / "a", progress=False)
    with pytest.raises(AlreadyFinished):
        run(tiny(steps=10), tmp_path / "a", resume=True, progress=False)
    with pytest.raises(RunError, match="other settings"):
        run(tiny(steps=11), tmp_path / "a", resume=True, progress=False)
    assert (tmp_path / "a" / "model.safetensors").read_bytes() == before


def test_an_unwritable_place_is_an_error_before_training(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be written"):
        run(tiny(), tmp_path / "file" / "a", progress=False)


def test_two_processes_do_not_train_one_run(tmp_path: Path) -> None:
    work = work_directory(tmp_path / "a")
    work.mkdir()
    with runs._locked(work), pytest.raises(RunError, match="another process"):
        run(tiny(), tmp_path / "a", resume=True, progress=False)


def test_learning_rates_depend_on_the_step_alone() -> None:
    for name, protocol in PROTOCOLS.items():
        whole = protocol.learning_rates(0, 1000)
        parts = np.concatenate([protocol.learning_rates(0, 300), protocol.learning_rates(300, 1000)])
        np.testing.assert_array_equal(whole, parts, err_msg=name)
    assert PROTOCOLS["paper"].learning_rates(0, 5).tolist() == [1e-3] * 5
    annealed = PROTOCOLS["annealed"]
    assert annealed.learning_rates(annealed.steps - 1, annealed.steps)[0] < 1e-3 * annealed.learning_rate


def test_disentangled_parameters_survive_the_hooked_transformer() -> None:
    config = disentangled.config(order=2, vocab=3, length=9, bos=True)
    flat = disentangled.initial(config, init="random(0.7)", seed=4)
    np.testing.assert_array_equal(disentangled.from_hooked(disentangled.to_hooked(config, flat)), flat)


def test_weights_of_a_construction_read_as_its_beta_and_kappa() -> None:
    model = ip.construct(order=2, vocab=5, length=20, beta=(2.7, 1.2), kappa=3.3)
    beta, kappa = disentangled.read_weights(model.config, disentangled.from_hooked(model))
    np.testing.assert_allclose(beta, (2.7, 1.2), atol=1e-12)
    assert kappa == pytest.approx(3.3)


def test_a_study_is_the_product_of_its_lists_for_each_of_its_tables(tmp_path: Path) -> None:
    text = """
        summary = "two ways to say several runs"
        [[runs]]
        family = "disentangled"
        prior = "independent:1"
        bos = [true, false]
        length = 8
        each = [{ seed = [0, 1] }, { length = 9, init = "copy(40)" }, { cell = "mine", init = "copy(40)" }]
    """
    (tmp_path / "mine.toml").write_text(text)
    planned = load_study(str(tmp_path / "mine.toml"), studies=tmp_path, out=tmp_path)
    assert [plan.name for plan in planned] == [
        "independent_bos/disentangled/soft/T8_seed0",
        "independent_bos/disentangled/soft/T8_seed1",
        "independent_nobos/disentangled/soft/T8_seed0",
        "independent_nobos/disentangled/soft/T8_seed1",
        "independent_bos/disentangled/hard/T9_seed0",
        "independent_nobos/disentangled/hard/T9_seed0",
        "mine/independent_bos/disentangled/T8_seed0",
        "mine/independent_nobos/disentangled/T8_seed0",
    ]
    assert all(plan.out == tmp_path / plan.name for plan in planned)


def test_the_zoo_is_what_its_study_says() -> None:
    """Every shipped checkpoint is a run of the study, under its name and with its settings."""
    checkpoints = ROOT / "models/checkpoints"
    planned = {one.out: one.spec for one in load_study("zoo", studies=ROOT / "models/studies", out=checkpoints)}
    found = {path: recorded_spec(path) for path in find_checkpoints(checkpoints)}
    assert len(found) > 120
    assert found.items() <= planned.items()


@pytest.mark.parametrize("engine", ["local", "here"])
def test_a_sweep_trains_every_run_and_skips_what_is_done(
    engine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = "[[runs]]\nfamily = 'construction'\nprior = 'hierarchical:5,5'\nbos = true\nlength = 10\n"
    (tmp_path / "s.toml").write_text(
        f"{entry}each = [{{ steps = 4, learning_rate = 1e9 }}, {{ steps = 20, seed = 1 }}]"
    )
    arguments = ["sweep", str(tmp_path / "s.toml"), "--out", str(tmp_path / "out"), "--engine", engine, "--json"]
    assert main(arguments) == 1
    outcome = json.loads(capsys.readouterr().out)
    assert (outcome["runs"], outcome["skipped"], len(outcome["failed"])) == (2, 0, 1)
    why = outcome["failed"]["hierarchical_bos/construction/free/T10_seed0"]
    assert "than the uniform law, and worse than it started" in why
    assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out) == {"runs": 2, "skipped": 2, "failed": {}}
    assert main([*arguments, "--without", "seed0", "--only", "T10", "--dry-run"]) == 0
    assert json.loads(capsys.readouterr().out)["done"] == ["hierarchical_bos/construction/free/T10_seed1"]


EARLY = {
    "train --length many --out x": "Invalid value for '--length': 'many' is not a valid",
    "train --learning-rate 1e999 --out x": "Invalid value for '--learning-rate': 1e999 is no finite",
    "train --learning-rate 0 --out x": "Invalid value for '--learning-rate': 0.0 is not in the range",
    f"train --out {'a' * 300}": "Invalid value for '--out': a name in a path may have 200 bytes",
    "train": "Missing option '--out'",
    "train --lenght 8 --out x": "No such option '--lenght'. (Did you mean one of: '--learning-rate'",
    "trian": "No such command 'trian'. Did you mean 'train'?",
    "train --init magic(3) --out x": "init must be",
    "train --family standard --freeze copies --out x": "freeze of the standard family must be nothing",
    "sweep nonesuch": "no study",
}
LATE = {
    "train --prior hierarchical:5,5,5 --out x": "bad prior 'hierarchical:5,5,5': eta must list",
    "train --prior uniform --out x": "bad prior 'uniform': expected independent",
    "train --length 2 --out x": "length must exceed",
    "construct --beta 1,2,3 --out x": "expected 2, got 3",
}


def test_bad_input_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments, message in (EARLY | LATE).items():
        assert main(arguments.split()) == 2
        captured = capsys.readouterr()
        (line,) = captured.err.splitlines()
        assert line.startswith("error: "), line
        assert message in line
        assert captured.out == ""
        assert list(tmp_path.iterdir()) == []


def test_bad_options_are_refused_before_torch_loads() -> None:
    code = "import sys; from models.running.cli import main; main([])\n"
    code += f"assert all(main(one.split()) == 2 for one in {list(EARLY)})\nassert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "disentangled" in done.stdout  # and so is the listing


def test_a_list_may_begin_with_a_negative_number(tmp_path: Path) -> None:
    assert main(["construct", "--beta", "-1,2", "--out", str(tmp_path / "x"), "--length", "8"]) == 0
    expected = ip.construct(order=2, vocab=5, length=8, beta=(-1.0, 2.0))
    torch.testing.assert_close(ip.load(tmp_path / "x").state_dict(), expected.state_dict())


def test_ctrl_c_ends_a_sweep_and_no_further_run_begins(tmp_path: Path) -> None:
    """As in a terminal, where the whole group hears of it; what was begun can go on."""
    entry = "[[runs]]\nfamily = 'construction'\nprior = 'hierarchical:5,5'\nbos = true\nlength = 200\n"
    (tmp_path / "s.toml").write_text(f"{entry}steps = 500000\nseed = [0, 1, 2, 3]\n")  # logs begin at a hundredth
    command = [sys.executable, "-m", "models", "sweep", str(tmp_path / "s.toml"), "--out", str(tmp_path / "out")]
    ended = interrupted([*command, "--jobs", "1"], when=lambda: [*tmp_path.glob("out/*/*/*/.*.run/log.jsonl")])
    assert ended.returncode == 130
    assert ended.stderr.splitlines() == [
        "4 runs, 0 finished, 4 to do",
        "interrupted; the same command goes on from the last save",
    ]
    assert len([*tmp_path.glob("out/*/*/*/.*.run")]) == 1


def interrupted(command: list[str], *, when: Callable[[], object]) -> subprocess.CompletedProcess[str]:
    """A command in a group of its own, to which Ctrl-C is sent as soon as `when` says so."""
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        end = time.monotonic() + 300
        while not when() and process.poll() is None and time.monotonic() < end:
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=120)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def test_the_bar_calls_beta_only_what_is_beta():
    from models.training.run import _reading_line

    said = {
        family: _reading_line(
            0.2126, [1.97, 0.13], 1.2, make_spec(family=family, prior="hierarchical:5,5", bos=True, length=64)
        )
        for family in ("construction", "disentangled", "standard")
    }
    assert said["construction"] == "KL 0.2126, beta 1.97, 0.13, kappa 1.20"
    assert said["disentangled"] == "KL 0.2126, blocks of W_A 1.97, 0.13, kappa 1.20"
    assert said["standard"] == "KL 0.2126, beta of the scores 1.97, 0.13, kappa 1.20"
