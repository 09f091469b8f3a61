"""The analyses' command line: listings without torch, one-line errors, JSON alone on stdout, and careful writing."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from tqdm import tqdm

import interp as ip
from analyses.running import answers, cli, documents, files, report
from analyses.running.cache import Cache
from analyses.running.command import BadInput, Entry, listed, read_entries, say, say_loading
from analyses.running.documents import Request
from analyses.running.options import CheckpointOptions, Options, option
from analyses.running.subject import Study, Subject, flat_rows, prior_text
from figures.running import cli as figures_cli
from interp.chains.descriptions import parse_prior
from interp.results import Result
from models.running import cli as models_cli
from models.running.zoo import work_directory

ROOT = Path(cli.__file__).parents[2]


@dataclass(frozen=True, kw_only=True)
class Probed(Result):
    """A result as an instrument makes it."""

    beta: tuple[float, ...]
    matrix: tuple[tuple[float, ...], ...]
    n: int

    def table(self) -> pd.DataFrame:
        return pd.DataFrame({"lag": range(1, len(self.beta) + 1), "beta": self.beta})

    def __str__(self) -> str:
        return f"Probed on {self.n} sequences"


@dataclass(frozen=True, kw_only=True)
class ProbeOptions(CheckpointOptions):
    scale: float = option(1.0, "how much (default: %(default)s)")
    lags: tuple[int, ...] | None = option(None, "which ones", metavar="R", least=1)


def analyse(subject: Subject, options: ProbeOptions) -> Probed:
    print("a library talks")  # must not reach stdout
    if subject.info.model["length"] == 7:
        raise ValueError("seven is\nnot for us")
    beta = options.scale * float(subject.model.blocks[1].attn.W_Q[0, 0, subject.prior.vocab])
    return Probed(beta=(beta, beta), matrix=((1.0, float("nan")),), n=subject.chains.tokens.shape[0])


def row(subject: Subject, options: CheckpointOptions) -> dict[str, Any]:
    return {"name": subject.name, "length": subject.model.config.length}


def survey(rows: list[dict[str, Any]], options: CheckpointOptions) -> Study:
    return Study(rows=rows, provenance={}, notes=[f"{len(rows)} of them"])


def study(options: Options, cache: Cache) -> Study:
    if options.batch == 13:
        raise ValueError("13 is unlucky")
    failures = ["it is wrong"] if options.batch == 14 else []
    return Study(rows=[{"claim": "x", "error": 1e-12, "holds": not failures}], provenance={}, failures=failures)


@dataclass(frozen=True, kw_only=True)
class Half:
    which: int


def join(options: Options, studies: list[Study]) -> Study:
    rows = [row for study in studies for row in study.rows]
    return Study(rows=rows, provenance=studies[0].provenance, notes=[f"{len(rows)} halves"])


def applies(info: Any) -> str | None:
    return None if info.model["bos"] else "it has no BOS"


FAKES = {
    "probe": (
        Entry(name="probe", marker="checkpoint", document="Probes. Really.\n\nMore."),
        SimpleNamespace(KIND="checkpoint", analyse=analyse, Options=ProbeOptions, COLUMNS=("beta_1", "n")),
    ),
    "picky": (
        Entry(name="picky", marker="checkpoint", document="Needs BOS."),
        SimpleNamespace(KIND="checkpoint", analyse=analyse, Options=ProbeOptions, applies=applies),
    ),
    "zoo": (
        Entry(name="zoo", marker="zoo", document="All of them."),
        SimpleNamespace(KIND="zoo", row=row, survey=survey),
    ),
    "own": (Entry(name="own", marker="study", document="By itself."), SimpleNamespace(KIND="study", study=study)),
    "halves": (
        Entry(name="halves", marker="study", document="In pieces."),
        SimpleNamespace(
            KIND="study",
            pieces=lambda options: [Half(which=1), Half(which=2)],
            study_piece=lambda options, piece, cache: Study(
                rows=[{"half": piece.which, "seed": options.seed}], provenance={"seed": options.seed}
            ),
            join=join,
        ),
    ),
}


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs the command line over the fake analyses: (exit code, stdout, stderr)."""
    monkeypatch.setattr(cli, "read_entries", lambda *_, **__: {name: fake[0] for name, fake in FAKES.items()})
    monkeypatch.setattr(answers, "load_module", lambda name: FAKES[name][1])

    def call(*arguments: object) -> tuple[int, str, str]:
        try:
            code = cli.main([str(argument) for argument in arguments])
        except SystemExit as stop:
            code = int(stop.code or 0)
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
        "from analyses.running.command import read_entries\n"
        "cli.main([])\n"
        "cli.main(['--help'])\n"
        "entries = read_entries(cli.FOLDER, marker='KIND')\n"
        "for entry in entries.values():\n"
        "    cli.make_parser(entry, cli.load_module(entry)).format_help()\n"
        "    heavy = {'torch', 'transformer_lens', 'matplotlib', 'numba'} & set(sys.modules)\n"
        "    assert not heavy, (entry.name, heavy)\n"
    )
    result = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert "theory" in result.stdout


def test_every_analysis_keeps_the_convention():
    entries = read_entries(cli.FOLDER, marker="KIND")
    assert "theory" in entries
    for entry in entries.values():
        assert entry.marker in cli.TITLES
        assert 10 < len(entry.summary) < 110, entry.name
        module = cli.load_module(entry)
        ways = {
            "checkpoint": [{"analyse"}],
            "zoo": [{"row", "survey"}],
            "study": [{"study"}, {"pieces", "study_piece", "join"}],
        }[entry.marker]
        assert any(way <= set(vars(module)) for way in ways), entry.name
        assert issubclass(answers.options_of(module), Options)
        common = {"json": False, "csv": None, "seed": 0, "out": None, "overwrite": False}
        arguments = [] if entry.marker == "study" else ["somewhere"]
        options = vars(cli.make_parser(entry, module).parse_args(arguments))
        assert {key: options[key] for key in common} == common
        assert options["batch"] >= 1


def test_listing_names_every_analysis_once(run):
    code, out, err = run()
    assert code == 0
    assert not err
    assert "probe   Probes. Really" in out
    assert all(len(line) <= report.WIDTH for line in out.splitlines())


def test_help_of_one_analysis_has_examples_and_its_own_options(run):
    code, out, _ = run("probe", "--help")
    assert code == 0
    for word in ("examples:", "--scale", "--json", "--csv", "--batch", "--seed", "--out", "--prior"):
        assert word in out


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
        (["nothing"], "no analysis 'nothing'"),
        (["probe"], "CKPT"),
        (["own", "--batch", "0"], "expected a whole number >= 1, got '0'"),
        (["own", "--batch", "many"], "expected a whole number >= 1, got 'many'"),
        (["own", "--seed", "-1"], "expected a whole number >= 0"),
        (["own", "--nonsense"], "--nonsense"),
        (["own", "--batch", "13"], "13 is unlucky"),
        (["probe", "/nowhere/at/all"], "/nowhere/at/all: no such checkpoint"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(run, arguments, words):
    code, out, err = run(*arguments)
    assert code == 2
    assert not out
    assert len(err.splitlines()) == 1
    assert err.startswith("error: ")
    assert words in err


def test_a_bug_keeps_its_traceback(run, monkeypatch):
    def fails(options: Options, cache: Cache) -> Study:
        raise RuntimeError("a bug")

    monkeypatch.setattr(FAKES["own"][1], "study", fails)
    with pytest.raises(RuntimeError, match="a bug"):
        run("own")


def test_a_failed_verdict_is_exit_code_1(run):
    code, out, err = run("own", "--batch", 14)
    assert code == 1
    assert "NO" in out
    assert err == "failed: it is wrong\n"
    assert run("own")[0] == 0


def test_a_result_without_success_is_exit_code_1(run, checkpoints, monkeypatch):
    def fails(subject: Subject, options: ProbeOptions) -> Probed:
        found = analyse(subject, options)
        if not subject.info.model["bos"]:
            return found
        return Probed(beta=found.beta, matrix=found.matrix, n=found.n, success=False, message="too\nlittle")

    monkeypatch.setattr(FAKES["probe"][1], "analyse", fails)
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
    request = Request(analysis="probe", options=ProbeOptions(batch=2), checkpoints=(str(checkpoints["bos"]),))
    assert not cli.run_request(request).failures


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
    assert [row["analysis"] for row in document["rows"]] == ["probe", "picky"]
    code, out, err = run("all", checkpoints["seven"], "--batch", 2)
    assert code == 2
    assert "error: probe: " in err


def test_zoo_leaves_out_what_cannot_be_read(run, checkpoints):
    code, out, err = run("zoo", checkpoints["plain"], checkpoints["broken"], checkpoints["bos"], "--json")
    assert code == 2
    assert [row["name"] for row in json.loads(out)["rows"]] == ["plain", "bos"]
    assert "broken" in err
    assert "2 of them" in run("zoo", checkpoints["plain"], checkpoints["bos"])[1]


def test_a_study_in_pieces_is_put_together(run):
    code, out, _ = run("halves", "--seed", 3, "--json")
    assert code == 0
    document = json.loads(out)
    assert document["rows"] == [{"half": 1, "seed": 3}, {"half": 2, "seed": 3}]
    assert document["provenance"] == {"seed": 3, "options": {"batch": 512, "seed": 3}}
    assert "2 halves" in run("halves")[1]


def test_options_are_read_by_their_annotations(run, checkpoints):
    _, out, _ = run("probe", checkpoints["plain"], "--scale", "0.5", "--lags", 2, 1, "--batch", 2, "--json")
    document = json.loads(out)
    assert document["rows"][0]["beta"] == [1.0, 1.0]
    options = document["provenance"]["options"]
    assert {name: value for name, value in options.items() if value is not None} == {
        "batch": 2,
        "seed": 0,
        "unfinished": False,
        "scale": 0.5,
        "lags": [2, 1],
    }
    assert {name for name, value in options.items() if value is None} == {"prior", "order", "vocab", "bos", "length"}
    code, _, err = run("probe", checkpoints["plain"], "--lags", 0)
    assert code == 2
    assert "expected a whole number >= 1, got '0'" in err


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


def test_a_folder_stands_for_the_finished_checkpoints_below_it(run, checkpoints, tmp_path):
    zoo = tmp_path / "zoo"
    for name, status in (("a/T6", "finished"), ("a/T7", "running"), ("T5", None)):
        training = None if status is None else {"status": status}
        ip.save(ip.load(checkpoints["plain"]), zoo / name, training=training)
        ip.save(ip.load(checkpoints["plain"]), work_directory(zoo / name) / "snapshots/step_1")
    named = ("probe", zoo, zoo / "T5", "--batch", 2, "--json")
    assert [row["checkpoint"] for row in json.loads(run(*named)[1])["rows"]] == [str(zoo / "T5"), str(zoo / "a/T6")]
    assert len(json.loads(run("probe", zoo / "a/T7", "--batch", 2, "--json", "--unfinished")[1])["rows"]) == 1
    (zoo / "a/T6" / "config.json").write_text("{")
    code, out, err = run(*named)
    assert (code, len(json.loads(out)["rows"])) == (2, 1)
    assert "T6" in err
    shutil.rmtree(zoo / "a/T6")
    code, _, err = run("probe", zoo / "a", "--batch", 2)
    assert (code, len(err.splitlines())) == (2, 1)
    assert "none of the 1 checkpoints below it is finished" in err


def test_out_writes_both_files_and_refreshes_only_its_own(run, checkpoints, tmp_path):
    arguments = ("probe", checkpoints["plain"], "--out", tmp_path, "--batch", 2)
    assert run(*arguments)[0] == 0
    assert json.loads((tmp_path / "probe.json").read_text())["analysis"] == "probe"
    assert len(pd.read_csv(tmp_path / "probe.csv")) == 1
    assert pd.read_csv(tmp_path / "probe_tidy.csv")["lag"].tolist() == [1, 2]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["probe.csv", "probe.json", "probe_tidy.csv"]
    assert run(*arguments)[0] == 0  # an earlier result may be refreshed
    for name, content in (("probe.json", '{"analysis": "other"}'), ("probe.csv", "a,b\n1,2\n")):
        kept = (tmp_path / name).read_text()
        (tmp_path / name).write_text(content)
        code, out, err = run(*arguments)
        assert code == 2
        assert not out  # refused before any work
        assert name in err
        assert (tmp_path / name).read_text() == content
        assert run(*arguments, "--overwrite")[0] == 0
        assert (tmp_path / name).read_text() == kept


def test_a_crash_while_writing_leaves_the_old_file(tmp_path, monkeypatch):
    file = tmp_path / "result.json"
    files.write_file(file, "old")

    def crash(*_: object) -> None:
        raise OSError("disk on fire")

    monkeypatch.setattr(files.os, "replace", crash)
    with pytest.raises(BadInput, match=r"cannot write .*: disk on fire"):
        files.write_file(file, "new")
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_out_must_be_a_directory(run, tmp_path):
    (tmp_path / "file").write_text("")
    code, _, err = run("own", "--out", tmp_path / "file")
    assert code == 2
    assert "a file is in the way" in err


def test_rendered_tables_fit_and_align():
    rows = [{"name": "a", "value": 0.123456, "text": "word " * 40}, {"name": "bb", "value": 2e-9, "text": ""}]
    lines = report.render_table(rows, width=60).splitlines()
    assert max(map(len, lines)) <= 60
    assert lines[2].startswith("a      0.1235  word")
    assert "2.0e-09" in lines[-1]
    narrow = report.render_table([{f"column{number}": number for number in range(30)}], width=60)
    assert "also in --json and --csv" in narrow
    assert max(map(len, narrow.splitlines())) <= 60


def test_long_paths_break_after_a_slash():
    path = "models/checkpoints/hierarchical_bos/disentangled/soft/T64_seed0"
    assert report.cell_lines(path, 30) == ["models/checkpoints/", "hierarchical_bos/disentangled/", "soft/T64_seed0"]
    assert report.cell_lines(f"in {path} too", 30)[-1] == "soft/T64_seed0 too"
    assert report.cell_lines("a/" + "b" * 12 + "/c", 5) == ["a/", "bbbbb", "bbbbb", "bb/c"]
    assert report.cell_lines("a and/or b", 6) == ["a", "and/or", "b"]
    assert report.cell_lines("", 5) == [""]
    table = report.render_table([{"checkpoint": path, "n": 1}], width=40)
    assert "hierarchical_bos/" in table
    assert max(map(len, table.splitlines())) <= 40


def test_flat_rows_keep_scalars_and_short_vectors():
    row = {"a": 1, "b": [1.0, 2.0], "c": {"d": True}, "e": [[1]], "f": list(range(99)), "provenance": {"seed": 0}}
    assert flat_rows([row]) == [{"a": 1, "b_1": 1.0, "b_2": 2.0, "c.d": True}]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("independent", {"kind": "independent", "alpha": 1.0}),
        ("independent:0.5", {"kind": "independent", "alpha": 0.5}),
        ("hierarchical", {"kind": "hierarchical", "eta": [5.0, 5.0], "eta0": 1.0}),
        ("hierarchical:3,4:2", {"kind": "hierarchical", "eta": [3.0, 4.0], "eta0": 2.0}),
    ],
)
def test_priors_by_name(text, expected):
    described = parse_prior(text, order=2, vocab=3).to_dict()
    assert described == {**expected, "order": 2, "vocab": 3}


@pytest.mark.parametrize("text", ["independent:1", "independent:0.25", "hierarchical:5", "hierarchical:3,4:2"])
def test_priors_are_written_as_they_are_read(text):
    assert prior_text(parse_prior(text, order=2, vocab=3).to_dict()) == text


@pytest.mark.parametrize("text", ["", "uniform", "independent:x", "independent:1,2", "hierarchical:1:2:3"])
def test_bad_priors_are_refused(text):
    with pytest.raises(ValueError, match="bad prior"):
        parse_prior(text, order=2, vocab=3)


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
    from interp.circuit import capture as capturing

    ip.save(ip.construct(order=2, vocab=3, length=12, beta=(2.0, 1.0)), tmp_path / "model")
    taken = []
    real = capturing.capture
    monkeypatch.setattr(capturing, "capture", lambda *given, **words: taken.append(words) or real(*given, **words))
    opened: answers.Opened = {}
    for name in ("beta_kappa", "overlap_mass", "lag_pairs"):
        options = answers.options_of(answers.load_module(name))(batch=8)
        question = answers.Question(analysis=name, options=options, checkpoint=str(tmp_path / "model"))
        assert answers.answer(question, cache=Cache(None), opened=opened).error is None
    assert len(taken) == 1
    other = answers.Question(analysis="lag_pairs", options=CheckpointOptions(batch=9), checkpoint=question.checkpoint)
    answers.answer(other, cache=Cache(None), opened=opened)
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


def test_tables_fit_the_terminal_say_a_shared_folder_once_and_join_values_with_their_errors(run, tmp_path, monkeypatch):
    rows = [
        {
            "checkpoint": f"models/checkpoints/{name}",
            "beta_1": 3.43412,
            "stderr_1": 0.0081,
            "kappa": None,
            "note": "word " * 30,
        }
        for name in ("hierarchical_bos/disentangled/soft/T64_seed0", "hierarchical_bos/standard/soft/T64_seed0")
    ]
    monkeypatch.setenv("COLUMNS", "80")
    lines = documents.compared_text(rows, columns=("beta_1", "stderr_1", "kappa", "note")).splitlines()
    assert lines[0] == "checkpoints below models/checkpoints/hierarchical_bos/"
    assert max(map(len, lines)) <= 80
    assert any("3.434 ± 0.008" in line for line in lines)
    assert not any("stderr" in line or "models/" in line for line in lines[1:])
    monkeypatch.setenv("COLUMNS", "300")
    assert max(map(len, documents.compared_text(rows, columns=("beta_1", "note")).splitlines())) <= report.WIDTH
    mixed = [{**rows[0], "checkpoint": "/a/b"}, {**rows[1], "checkpoint": "c/d"}]
    assert documents.compared_text(mixed, columns=("beta_1",)).startswith("checkpoint ")


def test_warnings_stand_below_the_table_and_numbers_keep_their_place(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    rows = [
        {"checkpoint": f"zoo/{name}", "beta_1": 3.4, "stderr_1": 0.1, "kappa": 4.0, "warning": warning}
        for name, warning in (("a", ""), ("b", "matches explain 86.4% of the scores, below 90%"))
    ]
    head, *lines = documents.compared_text(rows, columns=("beta_1", "stderr_1", "kappa")).splitlines()[2:]
    assert head.split() == ["checkpoint", "beta_1", "kappa"]
    assert lines[-1] == "warning: b: matches explain 86.4% of the scores, below 90%"
    assert "warning" not in documents.compared_text(rows[:1], columns=())


def test_a_plain_stderr_belongs_to_the_column_before_it():
    row = {"difference": 1.65789, "stderr": 0.0112, "votes.0.vote": 2.0, "votes.0.stderr": 0.5, "n": 3}
    columns = ("difference", "stderr", "votes.0.vote", "votes.0.stderr", "n")
    table = report.render_table([row], columns=columns)
    assert "1.658 ± 0.011" in table
    assert "2.0 ± 0.5" in table
    assert "stderr" not in table
    assert "stderr" in report.render_table([row], columns=("n", "votes.0.stderr"))


def test_studies_of_checkpoints_say_a_shared_folder_once():
    rows = [{"checkpoint": f"models/zoo/{name}", "beta_1": 1.0} for name in "ab"]
    study = answers.Answer(rows=rows, shown=("checkpoint", "beta_1"), notes=("a note",))
    text = documents._study_text(study)
    assert text.startswith("checkpoints below models/zoo/\n")
    assert text.endswith("\n\na note")
    assert "checkpoints below" not in documents._study_text(answers.Answer(rows=[{"n": 1}]))


def test_numbers_are_defined_term_by_term_below_the_result():
    """One meaning for each name, whichever analysis prints it: which queries, and means over what."""
    for entry in cli.read_entries(cli.FOLDER, marker="KIND").values():
        if entry.marker == "checkpoint":
            module = cli.load_module(entry)
            assert module.LEGEND
            text = documents._compared([answers.Answer(rows=[{"checkpoint": "a"}])], module).text
            assert "\n\nwhat the numbers are:\n  " in text
            for term in module.LEGEND:
                assert f"\n  {term} " in text


def test_what_is_said_stands_above_a_progress_bar(monkeypatch):
    stream = io.StringIO()
    stream.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", stream)
    with tqdm(total=2, file=stream, leave=False, bar_format="{desc} {n}/{total}", desc="analyses") as bar:
        bar.refresh()
        say("error: no such checkpoint")
    parts = re.split(r"[\r]", stream.getvalue())
    assert "error: no such checkpoint\n" in parts
    assert parts[parts.index("error: no such checkpoint\n") - 1].strip() == ""


def test_every_option_has_a_help_text():
    def without_help(parser):
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for command in action.choices.values():
                    yield from without_help(command)
            elif not action.help:
                yield f"{parser.prog} {action.dest}"

    entries = [*cli.read_entries(cli.FOLDER, marker="KIND").values(), cli.ALL]
    parsers = [cli.make_parser(entry, None if entry is cli.ALL else cli.load_module(entry)) for entry in entries]
    parsers += [figures_cli.make_parser(entry) for entry in (figures_cli.ALL, *figures_cli.PAGES)]
    assert [name for parser in (models_cli.parser(), *parsers) for name in without_help(parser)] == []
    for parser in parsers:
        assert all(line == line.rstrip() for line in (parser.epilog or "").splitlines())


def test_tables_leave_out_empty_texts_and_break_long_names(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    numbers = {"last_mass_1": 0.25, "position_share": 0.5, "beta_1": 1.5, "kappa_2": 2.0}
    rows = [{"checkpoint": "a" * 20, "warning": "", **numbers}]
    table = report.render_table(rows)
    assert "warning" not in table
    assert max(map(len, table.splitlines())) <= 80
    narrow = report.render_table(rows, width=60)
    assert "mass_1" in narrow
    assert "last_mass_1" not in narrow
    assert "kappa_2" in narrow
    rows[0]["warning"] = "look"
    assert "warning" in report.render_table(rows)


def test_long_lines_go_on_below_themselves_with_every_word(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = "head\n  partial  " + "off alone " * 12 + "end"
    fitted = report.fitted(text)
    assert max(map(len, fitted.splitlines())) <= 80
    assert fitted.split() == text.split()
    assert fitted.splitlines()[2].startswith("      ")
    entry = listed("name", "word " * 40, names=10)
    assert {len(line) - len(line.lstrip()) for line in entry.splitlines()[1:]} == {14}
    assert max(map(len, entry.splitlines())) <= 80


def test_what_is_loaded_is_said_on_a_terminal_alone(monkeypatch):
    for watched in (True, False):
        stream = io.StringIO()
        stream.isatty = lambda watched=watched: watched
        monkeypatch.setattr(sys, "stderr", stream)
        say_loading("torch " * 40)
        assert stream.getvalue().startswith("loading torch") == watched
        assert len(stream.getvalue()) <= report.WIDTH


def test_a_name_that_is_nearly_right_is_suggested(run):
    code, _, err = run("prob", "x")
    assert code == 2
    assert "did you mean probe?" in err


@pytest.mark.parametrize(
    "words",
    [
        ("models",), ("models", "train"), ("analyses",), ("analyses", "conditions"), ("analyses", "scan"),
        ("figures",), ("figures", "mech_main"), ("figures", "reproduce"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_help_fits_eighty_columns_and_keeps_its_lists(words, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    main = {"models": models_cli.main, "analyses": cli.main, "figures": figures_cli.main}[words[0]]
    with contextlib.suppress(SystemExit):
        main([*words[1:], "--help"])
    out = capsys.readouterr().out
    assert len(out.splitlines()) > 20
    assert max(map(len, out.splitlines())) <= 80
    assert re.search(r"^ *python -m ", out, re.MULTILINE)


def test_the_bar_of_a_run_calls_beta_only_what_is_beta():
    from models.training.run import _reading_line
    from models.training.spec import make_spec

    said = {
        family: _reading_line(
            0.2126, [1.97, 0.13], 1.2, make_spec(family=family, prior="hierarchical:5,5", length=64, bos=True)
        )
        for family in ("construction", "disentangled", "standard")
    }
    assert said["construction"] == "KL 0.2126, beta 1.97, 0.13, kappa 1.20"
    assert said["disentangled"] == "KL 0.2126, blocks of W_A 1.97, 0.13, kappa 1.20"
    assert said["standard"] == "KL 0.2126, beta of the scores 1.97, 0.13, kappa 1.20"


def test_the_model_of_a_study_is_one_path(tmp_path, capsys):
    """Not a path for each of its letters, the first of which is the whole disk."""
    with pytest.raises(SystemExit, match="2"):
        cli.main(["language_model", str(tmp_path)])
    assert capsys.readouterr().err.startswith(f"error: {tmp_path} has no config.json")
