"""The figures' command line: exit codes, files that are not ours, and pictures that are the same when drawn again."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from PIL import Image

from analyses.running import plan
from analyses.running.table import Table
from figures.parts.rows import matching, of_one_start, protocol_note, with_main
from figures.running import cli, drawing, reproduce, sources
from figures.running.order import Order
from models.running.command_line import BadInput, read_entries
from tests import tiny_zoo

NAME = "nobos_construction_fixed"  # it needs no checkpoint
SUFFIXES = ("pdf", "png", "json")


@pytest.fixture(autouse=True)
def small_study(monkeypatch):
    monkeypatch.setattr(plan, "shipped_asks", tiny_zoo.tiny_asks)


@pytest.fixture(scope="module")
def draw(tmp_path_factory):
    """Runs the command with a cache for this file, and an empty zoo unless told otherwise."""
    cache, empty = tmp_path_factory.mktemp("cache"), tmp_path_factory.mktemp("zoo")

    def run(*arguments: object) -> int:
        given = [str(argument) for argument in arguments]
        zoo = [] if "--checkpoints" in given or "--results" in given else ["--checkpoints", str(empty)]
        return cli.main([*given, "--cache", str(cache), "--jobs", "1", *zoo])

    return run


def test_command_writes_pictures_and_sidecar(draw, tmp_path, capsys):
    assert draw(NAME, "--out", tmp_path) == 0
    files = {file.name: file for file in tmp_path.iterdir()}
    assert set(files) == {f"{NAME}.{suffix}" for suffix in SUFFIXES}
    assert capsys.readouterr().out.split() == [str(tmp_path / f"{NAME}.{suffix}") for suffix in SUFFIXES]
    sidecar = json.loads(files[f"{NAME}.json"].read_text())
    assert sidecar["figure"] == NAME
    assert sidecar["label"] == "fig:app2_nobos_con_fixed_attn"
    assert sidecar["missing"] == []
    assert sidecar["caption"]
    assert sidecar["claims"]
    assert sidecar["provenance"]["construction_attention"]["seed"] == 0
    (row,) = sidecar["numbers"]["construction_attention"]
    assert row["construction"] == "hard"


def test_the_same_results_give_the_same_files(draw, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    every = ("--format", "pdf,png,svg")
    assert draw(NAME, "--out", first, *every) == 0
    numbers = json.loads((first / f"{NAME}.json").read_text())["numbers"]
    # Drawn from the numbers of the sidecar alone, elsewhere.
    results = tmp_path / "results"
    results.mkdir()
    document = {"analysis": "construction_attention", "rows": numbers["construction_attention"], "provenance": {}}
    (results / "construction_attention.json").write_text(json.dumps(document))
    assert draw(NAME, "--out", second, "--results", results, *every) == 0
    for suffix in ("pdf", "png", "svg"):
        assert (first / f"{NAME}.{suffix}").read_bytes() == (second / f"{NAME}.{suffix}").read_bytes()


def test_size_resolution_and_style_are_as_asked(draw, tmp_path):
    style = tmp_path / "mine.mplstyle"
    style.write_text("axes.facecolor: ff0000\n")
    given = ("--out", tmp_path / "out", "--format", "png")
    assert draw(NAME, *given, "--size", "12.7x10.16cm", "--dpi", 60, "--style", style) == 0
    with Image.open(tmp_path / "out" / f"{NAME}.png") as picture:
        assert picture.size == (300, 240)
        assert (255, 0, 0) in {colour for _, colour in picture.convert("RGB").getcolors(1 << 20)}
    assert draw(NAME, *given, "--style", tmp_path / "none") == 2


def test_what_is_drawn_already_is_left_alone(draw, tmp_path, monkeypatch):
    assert draw(NAME, "--out", tmp_path, "--format", "png") == 0
    picture = tmp_path / f"{NAME}.png"
    before = picture.stat().st_mtime_ns
    assert draw(NAME, "--out", tmp_path, "--format", "png") == 0
    assert picture.stat().st_mtime_ns == before
    ask = tiny_zoo.tiny_asks()["construction_attention"]
    other = replace(ask, options=replace(ask.options, seed=1))
    monkeypatch.setattr(plan, "shipped_asks", lambda names=None: {"construction_attention": other})
    assert draw(NAME, "--out", tmp_path, "--format", "png") == 0
    assert picture.stat().st_mtime_ns > before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing"], "No such command 'nothing'"),
        ([NAME, "--format", "bmp"], "'bmp' is not one of 'pdf', 'png', 'svg'"),
        ([NAME, "--results", "/nowhere"], "/nowhere/construction_attention.json"),
        ([NAME, "--checkpoints", "/nowhere"], "/nowhere: no such directory"),
        ([NAME, "--out", __file__], "a file is in the way"),
        ([NAME, "--size", "8"], "expected width and height"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments, words, capsys):
    assert cli.main(arguments) == 2
    captured = capsys.readouterr()
    assert not captured.out
    assert len(captured.err.splitlines()) == 1
    assert words in captured.err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not valid JSON"),
        ('{"analysis": "theory", "rows": []}', "is not a result of the analysis"),
        (
            '{"analysis": "construction_attention", "rows": [{"subject": 0}], "provenance": {}}',
            "subject of a row must be an object",
        ),
    ],
)
def test_results_of_something_else_are_refused(text, words, draw, tmp_path, capsys):
    (tmp_path / "construction_attention.json").write_text(text)
    assert draw(NAME, "--results", tmp_path, "--out", tmp_path / "out") == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("suffix", ["png", "json"])
def test_foreign_files_are_kept(suffix, draw, tmp_path, capsys):
    file = tmp_path / f"{NAME}.{suffix}"
    file.write_text('{"mine": true}')
    assert draw(NAME, "--out", tmp_path) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert file.read_text() == '{"mine": true}'
    assert draw(NAME, "--out", tmp_path, "--overwrite", "--format", "png") == 0
    assert file.read_bytes() != b'{"mine": true}'


def test_a_figure_of_no_model_is_not_written(draw, tmp_path, capsys):
    zoo = tiny_zoo.plant(tmp_path / "zoo", seeds=1, families=("construction",))
    out = tmp_path / "out"
    assert draw("nobos_trained", "--out", out, "--format", "png", "--checkpoints", zoo) == 2
    assert "nobos_trained: no model that it draws is among the results of attention" in capsys.readouterr().err
    assert not out.exists() or not list(out.iterdir())


@pytest.mark.parametrize("name", ["all", "nobos_trained", "mech_indep", "lag_asymmetry", "reproduce"])
def test_no_checkpoint_is_told_before_any_work(name, draw, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(plan, "perform", lambda task: pytest.fail(f"{next(iter(task[0])).words} ran"))
    (tmp_path / "zoo").mkdir()
    assert draw(name, "--checkpoints", tmp_path / "zoo", "--out", tmp_path / "out") == 2
    words = f"error: no finished checkpoint below {tmp_path / 'zoo'}; python -m models train makes one\n"
    assert capsys.readouterr().err == words
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["all", "reproduce", NAME])
def test_examples_in_the_help_are_understood(name, capsys):
    assert cli.main([name, "--help"]) == 0
    examples = capsys.readouterr().out.partition("examples:\n")[2].splitlines()
    assert len(examples) == 2
    for example in examples:
        words = example.split()
        assert words[:4] == ["python", "-m", "figures", name]
        cli.door().get_command(None, name).make_context(name, words[4:])


@pytest.mark.parametrize(
    ("figure", "analysis", "row"),
    [
        ("mech_main", "attention", {"subject": {"order": 10**7}}),
        ("language_heads", "language_model", {"layer": 10**7}),
        ("language_heads", "language_model", {"head": 10**7}),
        ("leaving_the_law", "vote_weight", {"weights": [{"matches": 10**7}]}),
    ],
)
def test_results_that_ask_for_millions_of_panels_are_refused(figure, analysis, row, draw, tmp_path, capsys):
    for name in ("dynamics", "beta_kappa", analysis):
        document = {"analysis": name, "rows": [row] if name == analysis else [], "provenance": {}}
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    assert draw(figure, "--results", tmp_path, "--out", tmp_path / "out") == 2
    assert "10000000, more than the" in capsys.readouterr().err


def test_results_are_kept_beside_the_page_unless_told_otherwise(tmp_path, monkeypatch):
    """`reproduce` keeps all it makes below --out; figures share one cache."""
    seen = []
    monkeypatch.setattr(reproduce, "reproduce", lambda entries, order: seen.append(order.kept) or 0)
    assert cli.main(["reproduce", "--out", str(tmp_path / "out")]) == 0
    assert cli.main(["reproduce", "--out", str(tmp_path / "out"), "--cache", str(tmp_path / "mine")]) == 0
    assert seen == [tmp_path / "out" / "cache", tmp_path / "mine"]
    assert str(Order().kept) == "results/cache"


def test_listing_shows_every_summary_in_full_and_labels_that_differ(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "110")
    assert cli.main([]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.startswith("  ")}
    entries = read_entries(cli.FOLDER, marker="LABEL")
    assert set(lines) == set(entries)
    for name, entry in entries.items():
        assert len(lines[name]) <= 110
        assert entry.summary in lines[name]
        assert entry.marker.startswith(("fig:", "beyond:"))
        other = entry.marker.partition(":")[2] != name
        assert lines[name].endswith(f" [{entry.marker}]") == other
    assert lines["bos_trained"].endswith("[fig:app2_bos_tr_attn]")


def test_figures_drawn_by_two_processes_are_those_of_one(draw, tmp_path):
    names = [NAME, "nobos_construction_adaptive"]
    entries = read_entries(cli.FOLDER, marker="LABEL")
    for name in names:
        assert draw(name, "--out", tmp_path / "one", "--format", "png") == 0
    order = Order(out=tmp_path / "two", format=("png",), jobs=2, checkpoints=tmp_path, cache=tmp_path / "cache")
    documents = sources.documents_of(["construction_attention"], replace(order, jobs=1))
    drawn, errors = drawing.draw_all([entries[name] for name in names], documents, order)
    assert errors == []
    assert [one.record["figure"] for one in drawn] == names
    for one in drawn:
        file = f"{one.record['figure']}.png"
        assert one.png == (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def row_of(name: str, **subject: object) -> dict[str, object]:
    return {"checkpoint": name, "subject": {"prior": "hierarchical", "bos": True, "length": 32, "seed": 0, **subject}}


CONSTRUCTION = row_of("construction", family="construction", protocol="annealed")
MAIN, PAPER = (row_of(protocol, family="disentangled", protocol=protocol) for protocol in ("annealed", "paper"))
ESTIMATOR = {"checkpoint": None, "subject": None}
EVERY = [CONSTRUCTION, MAIN, PAPER, ESTIMATOR]


def test_a_protocol_without_runs_is_refused_in_one_line() -> None:
    """An analysis of constructions or estimators has no runs to ask for, and a missing result has its own error."""
    without = Table(analysis="b", rows=[CONSTRUCTION, ESTIMATOR])
    documents = {"a": Table(analysis="a", rows=EVERY), "b": without, "c": BadInput("missing")}
    sources.check_protocol("mech_main", documents, "paper")
    words = "^mech_main --protocol long: the analysis a has no run of it, only of: annealed, paper$"
    with pytest.raises(BadInput, match=words):
        sources.check_protocol("mech_main", documents, "long")


def test_a_protocol_takes_the_place_of_the_main_runs() -> None:
    assert matching(EVERY) == [MAIN, CONSTRUCTION]
    changed = with_main(EVERY, "paper")
    assert [row["checkpoint"] for row in matching(changed)] == ["construction", "paper"]
    assert matching(changed, protocol="paper") == []
    assert ESTIMATOR in changed
    assert protocol_note({"a": changed}) == "Trained models are runs of the `paper` protocol."
    assert protocol_note({"a": EVERY}) == ""


def test_where_there_are_no_main_runs_what_is_there_is_drawn(capsys) -> None:
    documents = {"a": Table(analysis="a", rows=EVERY), "b": BadInput("not there")}
    assert sources.of_protocol(documents, None) == documents
    changed = sources.of_protocol({"a": Table(analysis="a", rows=[CONSTRUCTION, PAPER])}, None)["a"]
    assert isinstance(changed, Table)
    assert [row["checkpoint"] for row in matching(changed.rows)] == ["construction", "paper"]
    assert "all trained models are of the paper protocol" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("there", "drawn"),
    [
        (("soft", "hard", "copy8", "free", "kappa_tied", None), ["hard", "free", None]),
        (("copy8", "soft", "kappa_tied"), ["soft", "kappa_tied"]),
        ((None,), [None]),
        (("hard", "soft", "soft 64"), ["soft", "soft 64"]),  # the start with most lengths
    ],
)
def test_a_curve_has_runs_of_one_start(there, drawn) -> None:
    rows = []
    for name in there:
        start, _, length = (name or "").partition(" ")
        family = "construction" if start in ("free", "kappa_tied") else "standard"
        rows.append(row_of(name, family=family, start=start or None, length=int(length or 32)))
    assert [row["checkpoint"] for row in of_one_start(rows)] == drawn
