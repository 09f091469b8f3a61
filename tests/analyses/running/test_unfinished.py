"""Checkpoints of runs that are not finished: every door says how far the run came, and reads them only when told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import interp as ip
from analyses.checkpoint.label_symmetry import siblings_of
from analyses.running import cli, plan
from analyses.running.ask import Ask
from figures.running import cli as figures_cli
from interp.hooked.checkpoint import CheckpointInfo, unfinished_at
from models.running import cli as models_cli
from models.running import zoo as models_zoo
from models.running.zoo import find_checkpoints
from tests.tiny_zoo import HIERARCHICAL, LENGTH, ORDER, VOCAB, training

RUNNING = {"status": "running", "step": 7200, "steps": 40_000}
WORDS = "step 7,200 of 40,000; --unfinished to read it all the same"


def keep(path: Path, **record: Any) -> Path:
    model = ip.construct(order=ORDER, vocab=VOCAB, length=LENGTH, beta=(2.5, 1.5), kappa=2.0)
    ip.save(model, path, training={**training(HIERARCHICAL, seed=0), **record})
    return path


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    """Three runs: one finished, one under way, one diverged."""
    keep(tmp_path / "zoo/done")
    keep(tmp_path / "zoo/early", **RUNNING)
    keep(tmp_path / "zoo/lost", status="diverged", step=50)
    return tmp_path / "zoo"


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (None, ""),
        ({}, ""),
        ({"status": "finished", "step": 1, "steps": 2}, ""),
        (RUNNING, "step 7,200 of 40,000"),
        ({"status": "diverged", "step": 50, "steps": 100}, "diverged at step 50 of 100"),
        ({"status": "running", "step": 5}, "step 5"),
        ({"status": "running", "steps": 100}, "unfinished"),
        ({"status": "paused", "step": 5, "steps": None}, "status 'paused' at step 5"),
    ],
)
def test_a_record_says_how_far_its_run_came(record: dict[str, Any] | None, words: str, tmp_path: Path) -> None:
    info = CheckpointInfo(path=tmp_path / "a", model={}, training=record)
    found = unfinished_at(info)
    assert found == words
    for place in ("a.run/snapshots/step_1", ".a.run/snapshots/step_1"):  # the middle of a run, on purpose
        assert unfinished_at(replace(info, path=tmp_path / place)) == ""
    assert unfinished_at(replace(info, path=tmp_path / "snapshots/step_1")) == found


def test_load_warns_once_with_the_step(zoo: Path) -> None:
    with pytest.warns(UserWarning, match=r"early: of a run that is not finished \(step 7,200 of 40,000\)") as seen:
        ip.load(zoo / "early")
    assert len(seen) == 1
    ip.load(zoo / "done")  # a warning would be an error here
    ip.load(keep(zoo / "done.run/snapshots/step_00000010", **RUNNING))


@pytest.mark.parametrize("name", ["beta_kappa", "scan", "all", "lag_asymmetry"])
def test_an_analysis_refuses_with_exit_code_1(name: str, zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([name, str(zoo / "early")]) == 1
    said = capsys.readouterr()
    assert said.err == f"failed: {zoo}/early: {WORDS}\n"
    assert cli.main([name, str(zoo / "lost"), "--json"]) == 1
    said = capsys.readouterr()
    assert "diverged at step 50 of 100" in said.err
    found = json.loads(said.out)
    assert [found["rows"], len(found["errors"]), found["errors"][0]["unfinished"]] == [[], 1, True]


def test_finished_runs_beside_it_are_analysed(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [str(zoo / name) for name in ("early", "done")]
    assert cli.main(["copy_heads", *paths, "--batch", "32", "--json"]) == 1
    assert [row["checkpoint"] for row in json.loads(capsys.readouterr().out)["rows"]] == [paths[1]]
    assert cli.main(["copy_heads", *paths, str(zoo / "none"), "--batch", "32"]) == 2  # bad input weighs more


def test_unfinished_reads_it_and_the_result_says_so(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["beta_kappa", str(zoo / "early"), "--unfinished", "--batch", "64"]
    assert cli.main(asked) == 0
    said = capsys.readouterr()
    assert "not finished: step 7,200 of 40,000" in " ".join(said.out.split())
    assert said.err == ""
    assert cli.main([*asked, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["subject"]["unfinished"] == "step 7,200 of 40,000"


def test_a_snapshot_that_is_named_is_analysed(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    snapshot = keep(zoo / "done.run/snapshots/step_00000010", **RUNNING)
    assert cli.main(["beta_kappa", str(snapshot), "--batch", "64"]) == 0
    assert "not finished" not in capsys.readouterr().out


def test_other_seeds_are_taken_only_if_finished(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed, record in ((0, {}), (1, {}), (2, RUNNING)):
        keep(zoo / f"T16_seed{seed}", **record)
    asked = ["label_symmetry", str(zoo / "T16_seed0"), "--batch", "16", "--json"]
    for more, models in ((["--siblings"], 1), (["--siblings", "--unfinished"], 2)):
        assert cli.main([*asked, *more]) == 0
        assert json.loads(capsys.readouterr().out)["rows"][0]["other_models"] == models
    assert cli.main([*asked, "--against", str(zoo / "T16_seed2")]) == 1
    assert WORDS in capsys.readouterr().err


def test_a_study_of_a_zoo_names_what_it_leaves_out(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["kl_curves", "--priors", "hierarchical:5,5:1", "--lengths", str(LENGTH), "--vocab", str(VOCAB), "--json"]
    asked += ["--batch", "50", "--draws", "80", "--no-cache", "--zoo", str(zoo)]
    for more, code, names in (([], 1, {"done"}), (["--unfinished"], 0, {"done", "early", "lost"})):
        assert cli.main([*asked, *more]) == code
        said = capsys.readouterr()
        rows = json.loads(said.out)["rows"]
        assert {row["predictor"] for row in rows if row["group"] == "trained"} == names
        assert (f"failed: {zoo}/early: {WORDS}" in said.err) == (not more)


def test_figures_name_what_they_leave_out(
    zoo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ["explorer", "--checkpoints", str(zoo), "--out", str(tmp_path / "out"), "--jobs", "1"]
    options = replace(plan.shipped_asks()["explorer"].options, sequences=1, draws=64, batch=64)
    monkeypatch.setattr(plan, "asks_for", lambda names: {"explorer": Ask(options=options)})
    for more, code, count in (([], 1, 1), (["--unfinished"], 0, 3)):
        assert figures_cli.main([*asked, *more]) == code
        said = capsys.readouterr()
        assert (f"failed: {zoo}/early: {WORDS}" in said.err) == (not more)
        page = (tmp_path / "out/explorer.html").read_text()
        assert page.count('"bayes_error":') == count
        assert page.count("Its run is not finished: step 7,200 of 40,000.") == bool(more)
    for name in ("done", "lost"):
        (zoo / name / "config.json").unlink()
    with pytest.raises(SystemExit) as ended:
        figures_cli.main(asked)
    assert ended.value.code == 1
    assert capsys.readouterr().err == f"failed: {zoo}/early: {WORDS}\n"


def test_listings_name_it(zoo: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models_cli, "CHECKPOINTS", zoo)
    assert models_cli.main([]) == 0
    listed = capsys.readouterr().out
    assert "early (not finished: step 7,200 of 40,000)" in listed
    assert "lost (not finished: diverged at step 50 of 100)" in listed
    keep(zoo / "T8_seed0", **RUNNING)
    assert models_cli.alike_together(["T8_seed1", "T8_seed0 (not finished: step 5)"]) == [
        "T8: _seed1", "T8_seed0 (not finished: step 5)",
    ]  # fmt: skip
    monkeypatch.setattr(models_zoo, "measure", lambda path, name: pytest.fail("it was measured"))
    (zoo / "done/config.json").unlink()
    assert models_cli.main(["zoo", "--checkpoints", str(zoo)]) == 2
    assert f"warning: {zoo}/early is left out: step 7,200 of 40,000\n" in capsys.readouterr().err
    assert len(find_checkpoints(zoo)) == 3


def test_siblings_differ_in_the_seed_alone(tmp_path: Path) -> None:
    for name in ("T32_seed0", "T32_seed1", "T32_seed12", "T32_seed1_long", "T32_seed0_long", "T64_seed1", "T32_seed2"):
        keep(tmp_path / name)
    (tmp_path / "T32_seed2" / "config.json").unlink()  # no checkpoint
    assert [path.name for path in siblings_of(tmp_path / "T32_seed0")] == ["T32_seed1", "T32_seed12"]
    assert [path.name for path in siblings_of(tmp_path / "T32_seed0_long")] == ["T32_seed1_long"]
    assert siblings_of(tmp_path / "T64_seed1") == []
