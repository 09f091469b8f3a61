"""The analyses' command line: listings without torch, one-line errors, JSON alone on stdout, and careful writing."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tqdm import tqdm

import interp as ip
from analyses.running import cli, files, questions, report
from analyses.running.cache import Cache
from analyses.running.command import BadInput, listed, say, say_loading
from analyses.running.options import CheckpointOptions, Options
from analyses.running.subject import Subject, prior_text
from analyses.running.table import Table, flat_rows
from figures.running import cli as figures_cli
from interp.chains.descriptions import parse_prior
from models.running import cli as models_cli
from models.running.zoo import work_directory

ROOT = Path(cli.__file__).parents[2]


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs the command line over the fake analyses: (exit code, stdout, stderr)."""
    monkeypatch.setattr(questions, "FOLDER", Path(__file__).parent / "fakes")
    monkeypatch.setattr(questions, "PACKAGE", "tests.analyses.fakes")

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
        "cli.main([])\n"
        "cli.main(['--help'])\n"
        "for entry in cli.entries().values():\n"
        "    cli.make_parser(entry).format_help()\n"
        "    heavy = {'torch', 'transformer_lens', 'matplotlib', 'numba'} & set(sys.modules)\n"
        "    assert not heavy, (entry.name, heavy)\n"
    )
    result = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert "theory" in result.stdout


def test_every_analysis_keeps_the_convention():
    ways = {
        "checkpoint": [{"analyse", "LEGEND"}, {"row", "survey"}],
        "studies": [{"study"}, {"pieces", "study_piece", "join"}],
    }
    for entry in cli.entries().values():
        assert 10 < len(entry.summary) < 110, entry.name
        assert any(way <= set(vars(questions.load_module(entry.name))) for way in ways[entry.marker]), entry.name
        common = {"json": False, "csv": None, "seed": 0, "out": None, "overwrite": False}
        options = vars(cli.make_parser(entry).parse_args([]))
        assert {key: options[key] for key in common} == common
        assert options["batch"] >= 1


def test_listing_names_every_analysis_once(run):
    code, out, err = run()
    assert code == 0
    assert not err
    assert "probe     Probes. Really" in out
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
    lines = report.rows_text(rows, columns=("beta_1", "stderr_1", "kappa", "note")).splitlines()
    assert lines[0] == "checkpoints below models/checkpoints/hierarchical_bos/"
    assert max(map(len, lines)) <= 80
    assert any("3.434 ± 0.008" in line for line in lines)
    assert not any("stderr" in line or "models/" in line for line in lines[1:])
    monkeypatch.setenv("COLUMNS", "300")
    assert max(map(len, report.rows_text(rows, columns=("beta_1", "note")).splitlines())) <= report.WIDTH
    mixed = [{**rows[0], "checkpoint": "/a/b"}, {**rows[1], "checkpoint": "c/d"}]
    assert report.rows_text(mixed, columns=("beta_1",)).startswith("checkpoint ")


def test_warnings_stand_below_the_table_and_numbers_keep_their_place(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    rows = [
        {"checkpoint": f"zoo/{name}", "beta_1": 3.4, "stderr_1": 0.1, "kappa": 4.0, "warning": warning}
        for name, warning in (("a", ""), ("b", "matches explain 86.4% of the scores, below 90%"))
    ]
    head, *lines = report.rows_text(rows, columns=("beta_1", "stderr_1", "kappa")).splitlines()[2:]
    assert head.split() == ["checkpoint", "beta_1", "kappa"]
    assert lines[-1] == "warning: b: matches explain 86.4% of the scores, below 90%"
    assert "warning" not in report.rows_text(rows[:1], columns=())


def test_a_plain_stderr_belongs_to_the_column_before_it():
    row = {"difference": 1.65789, "stderr": 0.0112, "votes.0.vote": 2.0, "votes.0.stderr": 0.5, "n": 3}
    columns = ("difference", "stderr", "votes.0.vote", "votes.0.stderr", "n")
    table = report.render_table([row], columns=columns)
    assert "1.658 ± 0.011" in table
    assert "2.0 ± 0.5" in table
    assert "stderr" not in table
    assert "stderr" in report.render_table([row], columns=("n", "votes.0.stderr"))


def test_notes_stand_below_the_table():
    rows = [{"checkpoint": f"models/zoo/{name}", "beta_1": 1.0} for name in "ab"]
    text = cli.screen(Table(analysis="theory", rows=rows, shown=("checkpoint", "beta_1"), notes=("a note",)))
    assert text.startswith("checkpoints below models/zoo/\n")
    assert text.endswith("\n\na note")
    assert "checkpoints below" not in cli.screen(Table(analysis="theory", rows=[{"n": 1}]))


def test_numbers_are_defined_term_by_term_below_the_result():
    """One meaning for each name, whichever analysis prints it: which queries, and means over what."""
    for name in questions.analyses():
        if terms := getattr(questions.load_module(name), "LEGEND", {}):
            text = cli.screen(Table(analysis=name, rows=[{"checkpoint": "a"}], about="it", text="result"))
            assert "\n\nwhat the numbers are:\n  " in text
            assert all(f"\n  {term} " in text for term in terms)


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
    parsers = [cli.make_parser(entry) for entry in (*cli.entries().values(), cli.ALL)]
    missing = [f"{parser.prog} {one.dest}" for parser in parsers for one in parser._actions if not one.help]
    assert missing == []


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
    [("models", "train"), ("analyses",), ("analyses", "conditions"), ("analyses", "scan"), ("figures", "mech_main")],
    ids=" ".join,
)
def test_help_fits_eighty_columns_and_keeps_its_lists(words, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    main = {"models": models_cli.main, "analyses": cli.main, "figures": figures_cli.main}[words[0]]
    with contextlib.suppress(SystemExit):
        main([*words[1:], "--help"])
    out = capsys.readouterr().out
    assert len(out.splitlines()) > 15
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
