"""The analyses' command line: listings without torch, one-line errors, JSON alone on stdout, and careful writing."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pandas as pd
import pytest

import interp as ip
from analyses.running import cli, files, questions
from analyses.running.cache import Cache
from analyses.running.options import CheckpointOptions, Options
from analyses.running.subject import Subject, prior_text
from analyses.running.table import Table
from figures.running import cli as figures_cli
from models.running import cli as models_cli
from models.running.command_line import BadInput
from models.running.zoo import work_directory

ROOT = Path(cli.__file__).parents[2]


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs the command line over the fake analyses: (exit code, stdout, stderr)."""
    monkeypatch.setattr(questions, "FOLDER", Path(__file__).parents[1] / "fakes")
    monkeypatch.setattr(questions, "PACKAGE", "tests.analyses.fakes")

    def call(*arguments: object) -> tuple[int, str, str]:
        code = cli.main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("checkpoints")
    models = {
        "plain": ip.construct(order=2, vocab=3, length=12, beta=(2.0, 1.0)),
        "bos": ip.construct(order=2, vocab=3, length=12, beta=(1.5, 1.0), kappa=0.5),
        "seven": ip.construct(order=2, vocab=3, length=7, beta=(1.5, 1.0)),
    }
    for name, model in models.items():
        ip.save(model, folder / name)
    broken = folder / "broken"
    ip.save(models["plain"], broken)
    (broken / "model.safetensors").write_bytes(b"no tensors")
    return {name: folder / name for name in [*models, "broken", "absent"]}


def test_listing_and_help_do_not_load_torch():
    script = (
        "import sys, importlib\n"
        "from analyses.running import cli\n"
        "cli.main([])\n"
        "cli.main(['--help'])\n"
        "for entry in cli.entries().values():\n"
        "    cli.main([entry.name, '--help'])\n"
        "    heavy = {'torch', 'transformer_lens', 'matplotlib', 'numba'} & set(sys.modules)\n"
        "    assert not heavy, (entry.name, heavy)\n"
    )
    result = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert "theory" in result.stdout


def test_every_analysis_keeps_the_convention():
    ways = {
        "checkpoint": [{"analyse", "LEGEND"}, {"analyse", "survey"}],
        "studies": [{"study"}, {"pieces", "study_piece", "join"}],
    }
    for entry in cli.entries().values():
        assert 10 < len(entry.summary) < 120, entry.name
        assert any(way <= set(vars(questions.load_module(entry.name))) for way in ways[entry.marker]), entry.name
        options = [one for one in cli.make_command(entry).params if isinstance(one, click.Option)]
        assert {"json", "latex", "csv", "out", "overwrite", "seed", "batch"} <= {one.name for one in options}
        assert all(one.help for one in options), entry.name


def test_json_is_alone_on_stdout(run, checkpoints):
    code, out, err = run("probe", checkpoints["plain"], checkpoints["bos"], "--json", "--batch", 5)
    assert code == 0
    document = json.loads(out)
    assert set(document) == {"analysis", "rows", "provenance"}
    assert document["analysis"] == "probe"
    assert [row["checkpoint"] for row in document["rows"]] == [str(checkpoints["plain"]), str(checkpoints["bos"])]
    assert document["rows"][0]["beta"] == [2.0, 2.0]
    assert document["rows"][0]["matrix"] == [[1.0, None]]
    assert document["rows"][0]["n"] == 5
    assert document["provenance"]["options"]["batch"] == 5
    assert document["provenance"]["priors"][str(checkpoints["plain"])]["kind"] == "hierarchical"
    assert "a library talks" in err


def test_terminal_shows_one_page_or_one_row_each(run, checkpoints):
    _, out, _ = run("probe", checkpoints["plain"])
    assert "Probed on 512 sequences" in out
    assert "construction, k = 2, |V| = 3, T = 12, no BOS, on hierarchical chains" in out
    _, out, _ = run("probe", checkpoints["plain"], checkpoints["bos"], "--batch", 4)
    shared, header, _, first, second = (line.split() for line in out.splitlines() if line[:1].strip())
    assert shared == ["checkpoints", "below", f"{checkpoints['plain'].parent}/"]
    assert header == ["checkpoint", "beta_1", "n"]
    assert first[-2:] == ["2", "4"]
    assert second[-2:] == ["1.5", "4"]


def test_one_bad_checkpoint_leaves_the_others_alone(run, checkpoints):
    paths = [checkpoints[name] for name in ("absent", "plain", "seven", "broken")]
    code, out, err = run("probe", *paths, "--json", "--batch", 2)
    assert code == 2
    document = json.loads(out)
    assert [row["checkpoint"] for row in document["rows"]] == [str(checkpoints["plain"])]
    assert len(document["errors"]) == 3
    lines = [line for line in err.splitlines() if line.startswith("error:")]
    assert len(lines) == 3
    assert f"{checkpoints['absent']}: no such checkpoint" in lines[0]
    assert f"{checkpoints['seven']}: seven is not for us" in err
    assert "not a readable safetensors file" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing"], "No such command 'nothing'"),
        (["prob"], "Did you mean 'probe'?"),
        (["probe"], "Missing argument 'CKPT ...'"),
        (["own", "--batch", "0"], "0 is not in the range x>=1"),
        (["own", "--batch", "many"], "'many' is not a valid"),
        (["own", "--seed", "-1"], "-1 is not in the range x>=0"),
        (["probe", "x", "--lags", "0"], "0 is not in the range x>=1"),
        (["own", "--nonsense"], "--nonsense"),
        (["own", "--batch", "13"], "13 is unlucky"),
        (["probe", "/nowhere/at/all"], "/nowhere/at/all: no such checkpoint"),
    ],
)
def test_bad_input_is_one_line(run, arguments, words):
    code, out, err = run(*arguments)
    assert code == 2
    assert not out
    assert len(err.splitlines()) == 1
    assert err.startswith("error: ")
    assert words in err


def test_a_bug_keeps_its_traceback(run, monkeypatch):
    def fails(options: Options, cache: Cache) -> Table:
        raise RuntimeError("a bug")

    monkeypatch.setattr(questions.load_module("own"), "study", fails)
    with pytest.raises(RuntimeError, match="a bug"):
        run("own")


def test_a_failed_verdict_is_exit_code_1(run):
    code, out, err = run("own", "--batch", 14)
    assert code == 1
    assert "NO" in out
    assert err == "failed: it is wrong\n"
    assert run("own")[0] == 0


def test_a_result_without_success_is_exit_code_1(run, checkpoints, monkeypatch):
    probe = questions.load_module("probe")
    analyse = probe.analyse

    def fails(subject: Subject, options: Any) -> Any:
        found = analyse(subject, options)
        if not subject.info.model["bos"]:
            return found
        return replace(found, success=False, message="too\nlittle")

    monkeypatch.setattr(probe, "analyse", fails)
    assert run("probe", checkpoints["plain"], "--batch", 2)[0] == 0
    code, out, err = run("probe", checkpoints["plain"], checkpoints["bos"], "--batch", 2, "--json")
    assert code == 1
    assert [row["success"] for row in json.loads(out)["rows"]] == [True, False]
    said = [line for line in err.splitlines() if line.startswith("failed:")]
    assert said == [f"failed: {checkpoints['bos']}: too little"]
    code, _, err = run("all", checkpoints["bos"], "--batch", 2)
    assert code == 1
    assert f"failed: {checkpoints['bos']}: probe: too little" in err
    assert run("probe", checkpoints["bos"], checkpoints["absent"], "--batch", 2)[0] == 2
    # What `make reproduce` reads: there a failed seed is a finding.
    assert not cli.run_one("probe", probe.Options(batch=2), [str(checkpoints["bos"])]).failures


def test_applies_is_respected(run, checkpoints):
    code, _, err = run("picky", checkpoints["plain"])
    assert code == 2
    assert err == f"error: {checkpoints['plain']}: picky does not apply: it has no BOS\n"
    assert run("picky", checkpoints["bos"], "--batch", 2)[0] == 0


def test_all_runs_what_applies(run, checkpoints):
    code, out, _ = run("all", checkpoints["plain"], "--batch", 2)
    assert code == 0
    assert "probe: Probes. Really\n  Probed on 2 sequences" in out
    assert "not applicable\n  picky: it has no BOS" in out
    code, out, _ = run("all", checkpoints["bos"], "--batch", 2, "--json")
    document = json.loads(out)
    assert code == 0
    assert [row["analysis"] for row in document["rows"]] == ["picky", "probe"]
    code, out, err = run("all", checkpoints["seven"], "--batch", 2)
    assert code == 2
    assert "error: probe: " in err


def test_a_survey_leaves_out_what_cannot_be_read(run, checkpoints):
    code, out, err = run("together", checkpoints["plain"], checkpoints["broken"], checkpoints["bos"], "--json")
    assert code == 2
    assert [row["name"] for row in json.loads(out)["rows"]] == ["plain", "bos"]
    assert "broken" in err
    assert "2 of them" in run("together", checkpoints["plain"], checkpoints["bos"])[1]


def test_a_study_in_pieces_is_put_together(run):
    code, out, _ = run("halves", "--seed", 3, "--json")
    assert code == 0
    document = json.loads(out)
    assert document["rows"] == [{"half": 1, "seed": 3}, {"half": 2, "seed": 3}]
    assert document["provenance"]["seed"] == 3
    assert document["provenance"]["options"] == {"batch": 512, "seed": 3}
    assert "2 halves" in run("halves")[1]


def test_options_are_read_by_their_annotations(run, checkpoints):
    _, out, _ = run("probe", checkpoints["plain"], "--scale", "0.5", "--lags", 2, 1, "--batch", 2, "--json")
    document = json.loads(out)
    assert document["rows"][0]["beta"] == [1.0, 1.0]
    options = document["provenance"]["options"]
    assert {name: value for name, value in options.items() if value is not None} == {
        "batch": 2,
        "seed": 0,
        "scale": 0.5,
        "lags": [2, 1],
    }
    assert {name for name, value in options.items() if value is None} == {"prior", "order", "vocab", "bos", "length"}


def test_tables_have_one_line_per_checkpoint(run, checkpoints, tmp_path):
    file = tmp_path / "new" / "table.csv"
    _, _, err = run("probe", checkpoints["plain"], checkpoints["bos"], "--csv", file, "--batch", 2)
    assert f"wrote {file}" in err.splitlines()  # the directory is made, and that is said
    table = pd.read_csv(file)
    described = ("family", "prior", "bos", "length", "order", "vocab", "seed", "protocol", "init", "start")
    assert list(table.columns) == [
        "analysis", "checkpoint", *(f"subject.{word}" for word in described),
        "beta_1", "beta_2", "n", "success", "message",
    ]  # fmt: skip
    assert table["beta_1"].tolist() == [2.0, 1.5]


def test_a_folder_stands_for_its_finished_checkpoints(run, checkpoints, tmp_path):
    zoo = tmp_path / "zoo"
    for name, status in (("a/T6", "finished"), ("a/T7", "running"), ("T5", None)):
        training = None if status is None else {"status": status}
        ip.save(ip.load(checkpoints["plain"]), zoo / name, training=training)
        ip.save(ip.load(checkpoints["plain"]), work_directory(zoo / name) / "snapshots/step_1")
    named = ("probe", zoo, zoo / "T5", "--batch", 2, "--json")
    assert [row["checkpoint"] for row in json.loads(run(*named)[1])["rows"]] == [str(zoo / "T5"), str(zoo / "a/T6")]
    assert len(json.loads(run("probe", zoo / "a/T7", "--batch", 2, "--json", "--unfinished")[1])["rows"]) == 1
    (zoo / "README.md").write_text("notes")
    shell = [file for file in sorted(zoo.iterdir()) if not file.name.startswith(".")]
    code, out, err = run("probe", *shell, "--batch", 2, "--json")
    assert (code, len(json.loads(out)["rows"])) == (0, 2)
    assert f"note: {zoo}/README.md is left out: no checkpoint\n" in err
    (zoo / "a/T6" / "config.json").write_text("{")
    code, out, err = run(*named)
    assert (code, len(json.loads(out)["rows"])) == (2, 1)
    assert "T6" in err
    shutil.rmtree(zoo / "a/T6")
    code, _, err = run("probe", zoo / "a", "--batch", 2)
    assert (code, len(err.splitlines())) == (2, 1)
    assert "none of the 1 checkpoints below it is finished" in err


def test_out_refreshes_only_its_own_files(run, checkpoints, tmp_path):
    arguments = ("probe", checkpoints["plain"], "--out", tmp_path, "--batch", 2)
    assert run(*arguments)[0] == 0
    assert json.loads((tmp_path / "probe.json").read_text())["analysis"] == "probe"
    assert len(pd.read_csv(tmp_path / "probe.csv")) == 1
    assert pd.read_csv(tmp_path / "probe_tidy.csv")["lag"].tolist() == [1, 2]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["probe.csv", "probe.json", "probe_tidy.csv"]
    assert run(*arguments)[0] == 0  # an earlier result may be refreshed
    for name, content in (("probe.json", '{"name": "other"}'), ("probe.csv", "a,b\n1,2\n")):
        kept = (tmp_path / name).read_text()
        (tmp_path / name).write_text(content)
        code, out, err = run(*arguments)
        assert code == 2
        assert not out  # refused before any work
        assert name in err
        assert (tmp_path / name).read_text() == content
        assert run(*arguments, "--overwrite")[0] == 0
        assert (tmp_path / name).read_text() == kept


def test_a_crash_leaves_the_old_file(tmp_path, monkeypatch):
    file = tmp_path / "result.json"
    files.write_file(file, "old")

    def crash(*_: object) -> None:
        raise OSError("disk on fire")

    monkeypatch.setattr(files.os, "replace", crash)
    with pytest.raises(BadInput, match=r"cannot write .*: disk on fire"):
        files.write_file(file, "new")
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("text", ["independent:1", "independent:0.25", "hierarchical:5", "hierarchical:3,4:2"])
def test_priors_are_written_as_they_are_read(text):
    assert prior_text(ip.parse_prior(text, order=2, vocab=3).to_dict()) == text


def test_a_subject_takes_its_prior_from_the_training_record(tmp_path):
    model = ip.construct(order=2, vocab=3, length=12, beta=(2.0, 1.0))
    prior = ip.IndependentDirichlet(order=2, vocab=3, alpha=0.7)
    options = CheckpointOptions(batch=3, seed=1)
    ip.save(model, tmp_path / "good", training={"prior": prior.to_dict()})
    subject = Subject.open(tmp_path / "good", options)
    assert subject.prior == prior
    assert subject.chains.tokens.shape == (3, 12)
    assert subject.chains.laws().shape == (3, 12, 3)
    other = ip.IndependentDirichlet(order=2, vocab=4, alpha=0.7)
    ip.save(model, tmp_path / "bad", training={"prior": other.to_dict()})
    with pytest.raises(ValueError, match=r"vocabulary 3, its data order 2 and vocabulary 4"):
        _ = Subject.open(tmp_path / "bad", options).prior
    config = json.loads((tmp_path / "good" / "config.json").read_text())
    config["model"]["order"] = "two"
    (tmp_path / "good" / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="order must be an integer >= 1, got 'two'"):
        Subject.open(tmp_path / "good", options)


def test_captures_are_taken_once_for_all_who_ask(tmp_path, monkeypatch):
    ip.save(ip.construct(order=2, vocab=3, length=12, beta=(2.0, 1.0)), tmp_path / "model")
    taken = []
    real = ip.capture
    monkeypatch.setattr(ip, "capture", lambda *given, **words: taken.append(words) or real(*given, **words))
    opened: questions.Opened = {}
    for name in ("beta_kappa", "overlap_mass", "lag_pairs"):
        options = questions.options_of(name)(batch=8)
        question = questions.Question(analysis=name, options=options, checkpoint=str(tmp_path / "model"))
        assert questions.answer(question, cache=Cache(None), opened=opened).errors == ()
    assert len(taken) == 1
    other = questions.Question(analysis="lag_pairs", options=CheckpointOptions(batch=9), checkpoint=question.checkpoint)
    questions.answer(other, cache=Cache(None), opened=opened)
    assert len(taken) == 2  # other sequences


def test_examples_in_docstrings_run():
    """Those of `interp` are run by pytest itself; these packages are not among its paths."""
    import doctest
    import importlib

    run = 0
    for file in [*(ROOT / "analyses").rglob("*.py"), *(ROOT / "figures").rglob("*.py")]:
        if ">>> " in file.read_text() and file.stem != "__main__":
            found = doctest.testmod(importlib.import_module(".".join(file.relative_to(ROOT).with_suffix("").parts)))
            assert found.failed == 0, file.name
            run += found.attempted
    assert run > 5


@pytest.mark.parametrize(
    "words",
    [("models", "train"), ("analyses",), ("analyses", "conditions"), ("analyses", "scan"), ("figures", "mech_main")],
    ids=" ".join,
)
def test_help_fits_eighty_columns_and_keeps_its_lists(words, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    main = {"models": models_cli.main, "analyses": cli.main, "figures": figures_cli.main}[words[0]]
    main([*words[1:], "--help"])
    out = capsys.readouterr().out
    assert len(out.splitlines()) > 15
    assert max(map(len, out.splitlines())) <= 80
    assert re.search(r"^ *python -m ", out, re.MULTILINE)
