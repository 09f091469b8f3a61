"""Killed runs, full disks, read-only places and readers that leave: one line is said, and what was there stays."""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import interp as ip
from analyses.running import cli, files
from analyses.running.report import cell, heading
from analyses.running.table import csv_text
from figures.running import cli as figures_cli
from interp import staging
from interp.outside import MAX_FOLDERS
from models.running.cli import main
from models.running.command_line import BadInput
from models.running.zoo import _cell, find_checkpoints
from models.training import run as runs
from models.training.spec import RunSpec, make_spec
from models.training.sweep import check_sweep_target, load_study

ROOT = Path(cli.__file__).parents[2]


@pytest.fixture(scope="module")
def model() -> Any:
    return ip.construct(order=1, vocab=2, length=4, beta=(1.0,), kappa=0.5)


def refused(capsys: pytest.CaptureFixture[str], arguments: list[Any], command: Any = main) -> str:
    """The one line that a refused command says."""
    try:
        code = command([str(one) for one in arguments])
    except SystemExit as stop:
        code = int(stop.code or 0)
    captured = capsys.readouterr()
    assert code == 2, captured
    (line,) = captured.err.splitlines()
    assert line.startswith("error: ")
    return line


# ---- leftovers


def test_temporaries_are_no_checkpoints_and_are_swept(tmp_path: Path, model: Any, monkeypatch) -> None:
    ip.save(model, tmp_path / "a")
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    dead = f".a.{staging.host()}-{gone.stdout.strip()}.abcd1234.new"
    living = f".a.{staging.host()}-{os.getppid()}.abcd1234.new"
    elsewhere, other = ".a.otherhost-1.abcd1234.new", f".b.{staging.host()}-1.x.new"
    for name in (dead, living, elsewhere, other):
        ip.save(model, tmp_path / name)
    assert find_checkpoints(tmp_path) == [tmp_path / "a"]
    ip.save(model, tmp_path / "a")
    left = {one.name for one in tmp_path.iterdir()}
    assert left == {"a", living, elsewhere, other}  # only that of a process of this machine that is gone
    monkeypatch.setattr(staging, "SECONDS_ELSEWHERE", -1.0)
    ip.save(model, tmp_path / "a")
    assert {one.name for one in tmp_path.iterdir()} == {"a", living, other}


def test_a_save_killed_between_its_renames_is_found_under_its_name(tmp_path: Path, model: Any) -> None:
    ip.save(model, tmp_path / "a")
    (tmp_path / "a").rename(tmp_path / ".a.previous")
    assert find_checkpoints(tmp_path) == [tmp_path / "a"]
    assert ip.load(tmp_path / "a").config == model.config


# ---- targets


def test_nothing_is_created_beside_a_refused_target(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runs, "make_trainer", lambda spec: pytest.fail("it started"))
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/notes.md").write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    small = ["--family", "construction", "--length", "8", "--steps", "2"]
    for arguments, words in (
        (["train", *small, "--resume", "--out", "file"], "a file is in the way"),
        (["train", *small, "--resume", "--out", "folder"], "also holds 'notes.md'"),
        (["construct", "--length", "8", "--beta", "1,2", "--out", "folder"], "already there"),
        (["sweep", "smoke", "--out", "folder"], "also holds 'notes.md'; give a fresh directory, or --overwrite"),
        (["sweep", "smoke", "--out", "file"], "a file is in the way"),
        (["zoo", "--checkpoints", "absent"], "no such directory"),
    ):
        assert words in refused(capsys, arguments), arguments
        assert sorted(tmp_path.rglob("*")) == before


def test_a_sweep_may_use_a_directory_of_checkpoints(tmp_path: Path, model: Any) -> None:
    planned = load_study("smoke", studies=ROOT / "models/studies", out=tmp_path)
    check_sweep_target(tmp_path, planned)
    ip.save(model, tmp_path / "mine/a")
    (tmp_path / "README.md").write_text("x")
    (tmp_path / ".hidden").write_text("x")
    check_sweep_target(tmp_path, planned)


def test_analyses_and_figures_ask_before_they_share_a_directory(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/notes.md").write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    words = "also holds 'notes.md'; give a fresh directory, or --overwrite to use this one"
    assert words in refused(capsys, ["theory", "--out", "folder"], cli.main)
    for name in ("mech_main", "all", "reproduce"):
        assert words in refused(capsys, [name, "--out", "folder"], figures_cli.main)
        assert "--cache folder: also holds" in refused(
            capsys, [name, "--out", "out", "--cache", "folder"], figures_cli.main
        )
    assert "--cache folder: also holds" in refused(capsys, ["kl_curves", "--cache", "folder"], cli.main)
    assert sorted(tmp_path.rglob("*")) == before
    # Our own files, in any mixture, are no reason to ask; --overwrite is.
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours/a.json").write_text('{"analysis": "a", "rows": []}')
    (tmp_path / "ours/f.json").write_text('{"figure": "f"}')
    (tmp_path / "ours/f.png").write_bytes(b"")
    files.check_directory(tmp_path / "ours", ours=files.is_result, overwrite=False)
    files.check_directory(tmp_path / "folder", ours=files.is_result, overwrite=True)
    (tmp_path / "ours/data.json").write_text('{"rows": []}')
    with pytest.raises(BadInput, match=r"also holds 'data\.json'"):
        files.check_directory(tmp_path / "ours", ours=files.is_result, overwrite=False)


def test_a_page_that_is_not_ours_is_not_replaced_by_the_zoo(tmp_path: Path, capsys, model: Any) -> None:
    ip.save(model, tmp_path / "a")
    (tmp_path / "README.md").write_text("my notes\n")
    assert "README.md: not a page of this command; --overwrite" in refused(
        capsys, ["zoo", "--checkpoints", tmp_path, "--write"]
    )
    assert (tmp_path / "README.md").read_text() == "my notes\n"


def test_a_search_for_checkpoints_is_bounded(tmp_path: Path, capsys, monkeypatch) -> None:
    from models.running import zoo

    monkeypatch.setattr(zoo, "MAX_FOLDERS", 3)
    for number in range(4):
        (tmp_path / str(number)).mkdir()
    assert "more than 3 folders below it" in refused(capsys, ["zoo", "--checkpoints", tmp_path])
    assert MAX_FOLDERS == 20_000


# ---- full disks, read-only places, readers that leave


@contextlib.contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """The system itself refuses to let a file grow further, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_leaves_the_old_results(tmp_path: Path, capsys) -> None:
    arguments = ["theory", "--only", "corollary:mixture", "--batch", "2", "--out", str(tmp_path / "out")]
    assert cli.main(arguments) == 0
    before = {one: one.read_bytes() for one in (tmp_path / "out").iterdir()}
    capsys.readouterr()
    with files_of_at_most(10):
        line = refused(capsys, [*arguments, "--seed", "1"], cli.main)
    assert line.startswith("error: cannot write ")
    assert {one: one.read_bytes() for one in (tmp_path / "out").iterdir()} == before


def test_a_full_disk_leaves_the_old_checkpoint(tmp_path: Path, capsys, model: Any) -> None:
    ip.save(model, tmp_path / "a")
    with files_of_at_most(2000):
        with pytest.raises(OSError, match=r"cannot be written \(Error while serializing"):
            ip.save(ip.construct(order=2, vocab=5, length=64, beta=(3.0, 1.0)), tmp_path / "a")
        line = refused(capsys, ["construct", "--length", "64", "--beta", "1,2", "--out", tmp_path / "b"])
    assert "cannot be written" in line
    assert [one.name for one in tmp_path.iterdir()] == ["a"]
    assert ip.load(tmp_path / "a").config == model.config


def run_in_shell(command: str) -> subprocess.CompletedProcess[str]:
    """A command line in bash, where pipes and full devices are at hand."""
    whole = command.replace("python", sys.executable)
    return subprocess.run(["bash", "-c", whole], cwd=ROOT, capture_output=True, text=True, timeout=300)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_cannot_be_written_is_one_line() -> None:
    for package in ("models", "analyses", "figures"):
        done = run_in_shell(f"python -m {package} > /dev/full")
        assert done.returncode == 2
        assert done.stderr.splitlines() == ["error: No space left on device"]


def test_a_reader_that_leaves_ends_it_quietly_in_every_command() -> None:
    for package in ("models", "analyses", "figures"):
        done = run_in_shell(f"set -o pipefail; python -m {package} | true; exit ${{PIPESTATUS[0]}}")
        assert done.returncode in (0, 141)  # 0 where all was sent before the reader left
        assert done.stderr == ""


def test_a_place_that_cannot_be_written_is_one_line(capsys) -> None:
    line = refused(capsys, ["theory", "--only", "corollary:mixture", "--batch", "2", "--out", "/proc/no/out"], cli.main)
    assert line.startswith("error: cannot write /proc/no/out/theory.json: ")
    assert "/proc/no" in refused(capsys, ["construct", "--length", "8", "--beta", "1,2", "--out", "/proc/no/x"])
    small = ["--family", "construction", "--length", "8", "--steps", "2"]
    assert "/proc/no" in refused(capsys, ["train", *small, "--out", "/proc/no/x"])


def test_a_read_only_place_is_refused_before_the_work(tmp_path: Path, capsys, monkeypatch) -> None:
    """`os.access` stands in for the file system: tests may run as root, who may write everywhere."""
    from analyses.running import cli as analyses_cli

    can = os.access
    monkeypatch.setattr(os, "access", lambda place, mode: Path(place) != tmp_path and can(place, mode))
    monkeypatch.setattr(analyses_cli, "run_one", lambda *_: pytest.fail("the work was begun"))
    for target in (["--out", tmp_path / "new/out"], ["--csv", tmp_path / "new/a.csv"], ["--out", tmp_path]):
        line = refused(capsys, ["theory", *target], cli.main)
        assert line.endswith(f": {tmp_path} cannot be written")
    assert "cannot be written" in refused(capsys, ["mech_main", "--out", tmp_path], figures_cli.main)
    assert list(tmp_path.iterdir()) == []


# ---- descriptions of wrong shapes


GOOD = make_spec(family="construction", prior="independent:1", length=8, bos=True).to_dict()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("seed", 1.0, "seed must be an integer >= 0, got 1.0"),
        ("steps", "9", "steps must be an integer >= 1, got '9'"),
        ("steps", 10**12, "steps must be at most"),
        ("length", 10**8, "would need"),
        ("learning_rate", float("nan"), "learning_rate must be a finite number > 0"),
        ("family", ["construction"], "family must be a text"),
        ("protocol", "x" * 10**5, "protocol must be a text of at most 200 characters, got 'x+…$"),
        ("prior", "independent:1", "a prior's description must be a dict"),
        ("prior", {"kind": "independent", "order": 1.5, "vocab": 3, "alpha": 1}, "order must be an integer"),
    ],
)
def test_descriptions_of_runs_are_strict(tmp_path: Path, capsys, name: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RunSpec.from_dict({**GOOD, name: value})
    if value == value:  # JSON has no NaN
        (tmp_path / "spec.json").write_text(json.dumps({**GOOD, name: value}))
        line = refused(capsys, ["train", "--spec", tmp_path / "spec.json", "--out", tmp_path / "x"])
        assert str(tmp_path / "spec.json") in line
        assert not (tmp_path / "x").exists()
    assert RunSpec.from_dict(GOOD).to_dict() == GOOD


RUN = '[[runs]]\nfamily = "construction"\nprior = "independent:1"\nbos = true\nlength = 8\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[runs]\n", "not valid TOML"),
        ("summary = 'x'", "no [[runs]]"),
        ("typo = 1", "unknown key typo"),
        ("runs = 3", "runs must be"),
        ("[[runs]]\neach = [3]", "each must be a list of tables"),
        (f"{RUN}lenght = 3", "a run has no setting 'lenght'"),
        (f"{RUN}seed = 0.5", "seed must be"),
        (f'{RUN}cell = "../up"', "cell must be"),
        (f'{RUN}cell = "/abs"', "cell must be"),
    ],
)
def test_studies_of_wrong_shapes_are_refused(tmp_path: Path, capsys, text: str, message: str) -> None:
    (tmp_path / "s.toml").write_text(text)
    assert message in refused(capsys, ["sweep", tmp_path / "s.toml", "--out", tmp_path / "out"])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("content", ['{"analysis": "lag_asymmetry"', '{"analysis": "lag_asymmetry"}', "[]", "\0"])
def test_broken_results_are_one_line_for_figures(tmp_path: Path, capsys, content: str) -> None:
    (tmp_path / "lag_asymmetry.json").write_text(content)
    refused(capsys, ["lag_asymmetry", "--results", tmp_path, "--out", tmp_path / "out"], figures_cli.main)


# ---- names that are markup or formulas


@pytest.mark.parametrize("name", ["=1+1", "+x", "-x", "@x", "\tx"])
def test_formulas_are_escaped_in_tables(name: str) -> None:
    table = pd.read_csv(io.StringIO(csv_text("a", [{"checkpoint": name, "kl": -0.5}])))
    assert (table["checkpoint"][0], table["kl"][0]) == (f"'{name}", -0.5)


def test_markup_is_escaped_in_tables() -> None:
    assert _cell("a|b`<i>") == "a&#124;b&#96;&#60;i&#62;"
    assert _cell("plain/T64_seed0") == "`plain/T64_seed0`"
    assert cell("red\x1b[31m\n") == "red\\x1b[31m"
    assert heading("a\nb").splitlines()[0] == "a b"
