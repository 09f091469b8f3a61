"""The questions that need more than one set of weights: dynamics over snapshots, asymmetry of lags over a zoo."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import interp as ip
from analyses.checkpoint.dynamics import settling_step
from analyses.running.cli import main
from interp.hooked.config import InductionConfig
from interp.hooked.construction import write_construction
from models.training.run import run
from models.training.spec import make_spec

PRIOR = ip.HierarchicalDirichlet(order=2, vocab=3, eta=(5.0, 5.0)).to_dict()


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "a"
    spec = make_spec(family="construction", prior=PRIOR, length=16, bos=True, steps=2000, snapshots=True)
    run(spec, out, progress=False)
    return out


def answer(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, dict]:
    status = main([*arguments, "--json"])
    return status, json.loads(capsys.readouterr().out)


def test_dynamics_follow_the_weights(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, document = answer(["dynamics", str(history), "--batch", "64"], capsys)
    assert status == 0
    (row,) = document["rows"]
    snapshots = sorted((history.parent / ".a.run" / "snapshots").iterdir())
    assert [entry["step"] for entry in row["rows"]] == [int(path.name.removeprefix("step_")) for path in snapshots]
    for entry, path in zip(row["rows"], snapshots, strict=True):
        # A construction's weights say its beta exactly: block (0, 1) is beta_1 I.
        weight = ip.load(path).match_attention.W_Q[0, 0, 3].item()
        assert entry["beta"][0] == pytest.approx(weight, abs=1e-6)
        assert sum(entry["mass"]) + entry["bos"] + entry["early"] == pytest.approx(1, abs=1e-6)
    assert row["rows"][-1]["kl"] < row["rows"][0]["kl"]
    assert 0 < row["formed"]["beta_1"] <= 2000


def test_a_run_without_snapshots_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ip.save(ip.construct(order=2, vocab=3, length=8, beta=(1.0, 2.0)), tmp_path / "a")
    assert main(["dynamics", str(tmp_path / "a")]) == 2
    assert "no snapshots" in capsys.readouterr().err


def test_settling_is_judged_from_the_end() -> None:
    assert settling_step([0, 10, 20, 30], [0.0, 10.0, 0.0, 10.0]) == 30
    assert settling_step([0, 10, 20], [3.0, 3.0, 3.0]) == 0
    assert settling_step([0, 10, 20], [None, 9.9, 10.0]) == 20
    assert settling_step([0, 10], [1.0, None]) is None


def test_asymmetry_is_told_both_ways_and_not_where_there_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    planted = {"first": (3.0, 1.0), "second": (1.0, 3.0), "equal": (2.0, 2.0)}
    for name, beta in planted.items():
        ip.save(ip.construct(order=2, vocab=4, length=24, beta=beta, kappa=1.0), tmp_path / name)
    paths = [str(tmp_path / name) for name in planted]
    status, document = answer(["lag_asymmetry", *paths, "--batch", "64"], capsys)
    assert status == 0
    assert [row["asymmetric"] for row in document["rows"]] == ["beta_1", "beta_2", None]
    for row, beta in zip(document["rows"], planted.values(), strict=True):
        np.testing.assert_allclose([row["beta_1"], row["beta_2"]], beta, atol=1e-6)
        np.testing.assert_allclose([row["raw_1"], row["raw_2"]], beta, atol=1e-6)


def test_raw_blocks_overstate_an_impure_lag(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = ip.InductionTransformer(
        InductionConfig(family="disentangled", order=2, vocab=4, length=24, bos=False, readout="probability")
    )
    write_construction(model, beta=(3.0, 3.0), kappa=None)
    # Head 1 puts about half of its attention on lag 2 and the rest everywhere: its block counts for half.
    model.copy_attention.rel_bias.data[1] = 0.0
    model.copy_attention.rel_bias.data[1, 2] = 2.5
    ip.save(model, tmp_path / "impure")
    _, document = answer(["lag_asymmetry", str(tmp_path / "impure"), "--batch", "128"], capsys)
    (row,) = document["rows"]
    assert row["raw_1"] == pytest.approx(3.0) == row["raw_2"]
    assert row["fit"]
    assert row["beta_2"] < 0.8 * row["raw_2"]
    assert row["asymmetric"] == "beta_1"
