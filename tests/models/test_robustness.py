"""Killed runs, full disks, read-only places and readers that leave: one line is said, and what was there stays."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import interp as ip
from analyses.running import cli, files
from analyses.running.report import cell, heading
from analyses.running.table import csv_text
from figures.running import cli as figures_cli
from interp import staging
from interp.hooked import checkpoint
from interp.outside import MAX_FOLDERS, as_path, read_json, read_object, read_toml
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


def test_files_that_a_killed_writer_left_are_swept(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    (tmp_path / f".x.json.{staging.host()}-999999999.abc.new").write_text("half")
    (tmp_path / "mine.new").write_text("mine")
    files.write_file(file, "whole")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["mine.new", "x.json"]


# ---- targets


def test_nothing_is_created_beside_a_refused_target(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runs, "make_trainer", lambda spec: pytest.fail("it started"))
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/notes.md").write_text("mine")
    (tmp_path / ".c.run").mkdir()
    (tmp_path / ".c.run/notes.md").write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    small = ["--family", "construction", "--length", "8", "--steps", "2"]
    for arguments, words in (
        (["train", *small, "--resume", "--out", "file"], "a file is in the way"),
        (["train", *small, "--resume", "--out", "folder"], "also holds 'notes.md'"),
        (["train", *small, "--resume", "--out", "c"], "also holds 'notes.md'"),
        (["train", *small, "--out", "file/below"], "error"),
        (["construct", "--length", "8", "--beta", "1,2", "--out", "file"], "already there"),
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
    (tmp_path / "ours/a.json").write_text('{\n "analysis": "a",\n "rows": []}')
    (tmp_path / "ours/a.csv").write_text("analysis,x\n")
    (tmp_path / "ours/f.json").write_text('{"figure": "f"}')
    (tmp_path / "ours/f.png").write_bytes(b"")
    (tmp_path / "ours/cache").mkdir()
    files.check_directory(tmp_path / "ours", ours=files.is_result, overwrite=False)
    files.check_directory(tmp_path / "folder", ours=files.is_result, overwrite=True)
    (tmp_path / "ours/data.json").write_text('{"rows": []}')
    with pytest.raises(BadInput, match=r"also holds 'data\.json'"):
        files.check_directory(tmp_path / "ours", ours=files.is_result, overwrite=False)


def test_devices_are_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path / "pipe", tmp_path):
        with pytest.raises(BadInput, match=r"regular file|a directory"):
            files.write_file(place, "x")
    with pytest.raises(ValueError, match="not a file"):
        read_json(tmp_path / "pipe")


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
def failing_writes(number: int) -> Any:
    """Every file that is opened to be written fails with this error at its first byte."""
    import builtins
    import io

    class Full(io.BytesIO):
        def write(self, data: Any) -> int:
            raise OSError(number, os.strerror(number))

    real = io.open

    def opened(file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        if "w" in mode and str(file).endswith(".new"):
            return Full()
        return real(file, mode, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(builtins, "open", opened)
        patch.setattr(io, "open", opened)
        yield


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EDQUOT])
def test_a_full_disk_leaves_the_old_results(tmp_path: Path, capsys, number: int) -> None:
    arguments = ["theory", "--only", "corollary:mixture", "--batch", "2", "--out", tmp_path / "out"]
    assert cli.main([str(one) for one in arguments]) == 0
    before = {one: one.read_bytes() for one in (tmp_path / "out").iterdir()}
    capsys.readouterr()
    with failing_writes(number):
        try:
            code = cli.main([str(one) for one in [*arguments, "--seed", "1"]])
        except SystemExit as stop:
            code = int(stop.code or 0)
    assert code == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1].startswith("error: cannot write ")
    assert lines[-1].endswith(os.strerror(number))
    assert {one: one.read_bytes() for one in (tmp_path / "out").iterdir()} == before
    assert read_object(tmp_path / "out/theory.json")["analysis"] == "theory"


def test_a_save_on_a_full_disk_leaves_the_old_checkpoint(tmp_path: Path, model: Any, monkeypatch) -> None:
    ip.save(model, tmp_path / "a")

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("safetensors.torch.save_file", full)
    with pytest.raises(OSError, match="No space left"):
        ip.save(ip.construct(order=1, vocab=2, length=4, beta=(3.0,), kappa=0.5), tmp_path / "a")
    assert [one.name for one in tmp_path.iterdir()] == ["a"]
    assert ip.load(tmp_path / "a").config == model.config


@contextlib.contextmanager
def files_of_at_most(size: int) -> Any:
    """The system itself refuses to let a file grow further, as a full disk does."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_weights_that_do_not_fit_on_the_disk_are_one_line(tmp_path: Path, capsys, model: Any) -> None:
    with files_of_at_most(2000), pytest.raises(OSError, match=r"cannot be written \(Error while serializing"):
        ip.save(model, tmp_path / "a")
    assert list(tmp_path.iterdir()) == []
    with files_of_at_most(2000):
        line = refused(capsys, ["construct", "--length", "64", "--beta", "1,2", "--out", tmp_path / "b"])
    assert "cannot be written" in line
    assert list(tmp_path.iterdir()) == []


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


# ---- files of wrong shapes


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "not valid JSON"),
        ("[" * 100_000, "nested too deeply"),
        ("[" * 200 + "]" * 200, "nested too deeply"),
        ('{"a": NaN}', "NaN"),
        ('{"a": 1e999}', "too large"),
        ('{"a": ' + "9" * 30 + "}", "past 64 bits"),
        ('{"a": 9223372036854775808}', "past 64 bits"),
        ("\xff", "not valid JSON"),
        ("[1]", "expected a JSON object, got list"),
    ],
)
def test_json_of_wrong_shapes_is_refused_in_one_line(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "x.json"
    file.write_bytes(content.encode("latin-1"))
    with pytest.raises(ValueError, match=message) as caught:
        read_object(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match=r"is a directory|not a file"):
        read_json(tmp_path)
    if content:
        with pytest.raises(ValueError, match="more than the 0 MiB"):
            read_json(file, most=0)


def test_toml_of_wrong_shapes_is_refused_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    for content, message in (
        ("a = ", "not valid TOML"),
        ("a = " + "[" * 5000, "nested too deeply|not valid TOML"),
        ("a = 99999999999999999999", "past 64 bits"),
        ("a = nan", "NaN"),
    ):
        file.write_text(content)
        with pytest.raises(ValueError, match=message):
            read_toml(file)


@pytest.mark.parametrize("text", ["", "a\0b", "x" * 201, "a/" * 3000, "\ud800"])
def test_paths_that_no_file_system_holds_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="path"):
        as_path(text)
    with pytest.raises(checkpoint.CheckpointError, match="path"):
        ip.load(text)


GOOD = make_spec(family="construction", prior="independent:1", length=8, bos=True).to_dict()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("seed", 1.0, "seed must be an integer >= 0, got 1.0"),
        ("seed", -1, "seed must be an integer >= 0, got -1"),
        ("bos", "yes", "bos must be true or false, got 'yes'"),
        ("steps", "9", "steps must be an integer >= 1, got '9'"),
        ("steps", 10**12, "steps must be at most"),
        ("length", 10**8, "would need"),
        ("batch", 10**9, "would need"),
        ("learning_rate", float("nan"), "learning_rate must be a finite number > 0"),
        ("family", ["construction"], "family must be a text"),
        ("init", None, "init must be a text"),
        ("protocol", "x" * 10**5, "protocol must be a text of at most 200 characters, got 'x+…$"),
        ("family", "x" * 10**5, "family must be one of .*, got 'x+…$"),
        ("prior", "independent:1", "a prior's description must be a dict"),
        ("prior", {"kind": ["x"]}, "prior kind must be one of"),
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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("runs = 3", "runs must be"),
        ('[[runs]]\nfamily = "construction"\nprior = 3\nbos = true\nlength = 8', "description must be a dict"),
        ('[[runs]]\nfamily = "construction"\nprior = "independent:1"\nbos = "yes"\nlength = 8', "bos must be true"),
        (
            '[[runs]]\nfamily = "construction"\nprior = "independent:1"\nbos = true\nlength = 8\nseed = 0.5',
            "seed must be",
        ),
        (
            '[[runs]]\ncell = "../up"\nfamily = "construction"\nprior = "independent:1"\nbos = true\nlength = 8',
            "cell must be",
        ),
        ('[[runs]]\ncell = "/abs"\nfamily = "construction"', "cell must be"),
        ("[[runs]]\nseed = [" + "0," * 200 + "]\nlength = [" + "8," * 200 + "]", "stands for 40000 runs"),
    ],
)
def test_studies_of_wrong_shapes_are_refused(tmp_path: Path, capsys, text: str, message: str) -> None:
    (tmp_path / "s.toml").write_text(text)
    line = refused(capsys, ["sweep", tmp_path / "s.toml", "--out", tmp_path / "out"])
    assert message in line
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "content",
    [
        '{"analysis": "beta_kappa"',
        '{"analysis": "beta_kappa"}',
        '{"analysis": "beta_kappa", "rows": 3, "provenance": {}}',
        "[]",
        "\0",
    ],
)
def test_broken_results_are_one_line_for_figures(tmp_path: Path, capsys, content: str) -> None:
    from figures.running import drawing

    names = drawing.load_module("lag_asymmetry").ANALYSES
    for name in names:
        (tmp_path / f"{name}.json").write_text(content.replace("beta_kappa", name))
    refused(capsys, ["lag_asymmetry", "--results", tmp_path, "--out", tmp_path / "out"], figures_cli.main)


# ---- names that are markup or formulas


@pytest.mark.parametrize("name", ["=1+1", "+x", "-x", "@x", "\tx"])
def test_formulas_are_escaped_in_tables(name: str) -> None:
    import io

    import pandas as pd

    text = csv_text("a", [{"checkpoint": name, "kl": -0.5}])
    table = pd.read_csv(io.StringIO(text))
    assert table["checkpoint"][0] == f"'{name}"
    assert table["kl"][0] == -0.5


def test_markup_is_escaped_in_tables() -> None:
    assert _cell("a|b`<i>") == "a&#124;b&#96;&#60;i&#62;"
    assert _cell("plain/T64_seed0") == "`plain/T64_seed0`"
    assert cell("red\x1b[31m\n") == "red\\x1b[31m"
    assert heading("a\nb").splitlines()[0] == "a b"
