"""A stranger's names on pages and terminals: they are shown, and none of them runs, moves a cursor or breaks a page."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import pytest

import interp as ip
from analyses.running import cli as analyses_cli
from analyses.running import plan
from analyses.running.table import Table
from figures.page import results as page
from figures.page.explorer import page as explorer
from figures.running import cli as figures_cli
from figures.running.claims_table import BEGIN, END
from figures.running.drawing import Drawn
from interp.outside import one_line, printable
from models.running import cli as models_cli
from tests import tiny_zoo
from tests.hostile import NAMES, RAN, controls

SEVERAL = "hierarchical_bos/construction"  # the folder in which the names lie
OWN = re.compile(r"\r|\x1b\[A")  # what a progress bar writes to come back to its line


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("zoo")
    model = tiny_zoo.model_of("construction", kappa=tiny_zoo.KAPPA, seed=0)
    for seed, name in enumerate(NAMES.values()):
        ip.save(model, folder / SEVERAL / name, training=tiny_zoo.training(tiny_zoo.HIERARCHICAL, seed=seed))
    return folder


@pytest.fixture(scope="module")
def explored(zoo: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The explorer of these models, and what the command wrote to a terminal."""
    out, screen = tmp_path_factory.mktemp("explorer"), Terminal()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "shipped_asks", tiny_zoo.tiny_asks)
        patch.setattr(sys, "stderr", screen)
        arguments = ["explorer", "--checkpoints", str(zoo), "--out", str(out), "--cache", str(out / "cache")]
        assert figures_cli.main([*arguments, "--jobs", "1"]) == 0
    return out / explorer.FILE, screen.getvalue()


def shown_name(name: str) -> str:
    """As the explorer calls a model: the last three parts of its path."""
    return one_line("/".join(Path(SEVERAL, name).parts[-4:]))


WRONG = {
    "no row": {},
    "name": {"checkpoint": 5},
    "prior": {"subject": {"prior": NAMES["image"], "bos": True}},
    "order": {"config": {"order": NAMES["image"]}},
    "vocab": {"config": {"vocab": 10**9}},
    "length": {"config": {"length": 10**9}},
    "sequences": {"sequences": NAMES["image"]},
    "beta": {"beta": [NAMES["image"]]},
}


@pytest.mark.parametrize("wrong", WRONG)
def test_rows_that_no_analysis_wrote_are_refused_in_a_line(explored, tmp_path: Path, capsys, wrong: str) -> None:
    file, _ = explored
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*)</script>', file.read_text())[1])
    subject = {"prior": "hierarchical", "bos": True, "protocol": "annealed", "seed": 0, "family": "construction"}
    good = {**data["models"][0], "checkpoint": "a/b/c", "subject": {**subject, "length": tiny_zoo.LENGTH}}
    bad = {key: {**good[key], **value} if isinstance(value, dict) else value for key, value in WRONG[wrong].items()}
    for row, code in ((good, 0), ({**good, **bad} if bad else {}, 2)):
        (tmp_path / "explorer.json").write_text(json.dumps({"analysis": "explorer", "rows": [row], "provenance": {}}))
        try:
            ended = figures_cli.main(["explorer", "--results", str(tmp_path), "--out", str(tmp_path / "out")])
        except SystemExit as error:
            ended = error.code
        assert ended == code
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_the_names_would_run(chromium, tmp_path: Path) -> None:
    """The control of all tests below: on a page that does not escape them, they do."""
    for name in ("image", "end_of_script"):
        file = tmp_path / f"{name}.html"
        file.write_text(f"<!DOCTYPE html><title>before</title><script>const x = '{NAMES[name]}';</script>{NAMES[name]}")
        with chromium.opened(file.as_uri()) as tab:
            tab.until(f"document.title === '{RAN}'")


def test_the_explorer_shows_names_and_runs_none(chromium, explored: tuple[Path, str]) -> None:
    file, _ = explored
    with chromium.opened(file.as_uri(), width=390) as tab:
        options = tab.view.eval_on_selector_all("#model option", "all => all.map(one => one.value)")
        named = [re.sub(r"^zoo\d+/", "", one) for one in options]  # the folder that the names lie in
        assert sorted(named) == sorted(map(shown_name, NAMES.values()))
        for value in options:
            tab.view.select_option("#model", value=value)
            assert tab.view.text_content("#about").startswith(f"{value}: k = 2")
            tab.until("location.hash === toHash(state)")
            assert tab.view.evaluate("fromHash(location.hash).model") == value
            assert tab.view.locator("#laws tbody tr").count() > 5
            assert (tab.overflow(), tab.overlaps()) == (0, []), value
        assert tab.view.title() == "interp: the explorer"
        assert tab.complaints == []
        assert tab.fetched() == []


def hostile_record(claim: str, text: str) -> dict:
    """What a figure's file says, with the text wherever text is."""
    record = dict.fromkeys(("figure", "label", "caption"), text)
    return {**record, "claims": [claim], "missing": [text], "provenance": {text: {}}, "numbers": {}}


def hostile_claim(claim: str, text: str) -> dict:
    """A claim whose verdict repeats words of a table from elsewhere."""
    group = dict.fromkeys(("family", "start", "value", "why", "evidence"), text)
    group |= {"word": "does not hold", "runs": 1, "met": 0}
    need = dict.fromkeys(("table", "quantity", "required", "reason", "of", "part", "where", "evidence"), text)
    row = dict.fromkeys(("label", "sentence", "says", "start", "runs", "others", "found", "note"), text)
    return {
        **row,
        "claim": claim,
        "number": 1,
        "topic": "matching",
        "ours": False,
        "verdict": "does not hold",
        "needs": [{**need, "after_data": True, "of": "most", "of_after_data": True, "groups": [group]}],
    }


@pytest.fixture(scope="module")
def results_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results page in which every text is a stranger's."""
    out = tmp_path_factory.mktemp("page")
    texts = {f"claim{place}": name for place, name in enumerate(NAMES.values())}
    drawn = [Drawn(files=(), record=hostile_record(*one), png=None, new=True) for one in texts.items()]
    theory = [
        {"label": one, "claim": one, "cases": 1, "error": None, "holds": True, "note": one} for one in NAMES.values()
    ]
    origin = {"commit": NAMES["image"], "versions": {NAMES["quotes"]: NAMES["end_of_script"]}}
    documents = {name: Table(analysis=name, rows=[], provenance=origin) for name in NAMES.values()}
    judged = [hostile_claim(*one) for one in texts.items()]
    documents["claims"] = Table(analysis="claims", rows=judged, provenance=origin)
    documents["theory"] = Table(analysis="theory", rows=theory, provenance=origin)
    timing = {"seconds": {"analyses": 1, "figures": 1}, "by_analysis": {}, "jobs": 1, "made": 0, "kept": 0}
    return page.write(out, drawn, documents, {**timing, "by_analysis": dict.fromkeys(NAMES.values(), 1.0)})


def test_the_results_page_shows_names_and_runs_none(chromium, results_page: Path) -> None:
    with chromium.opened(results_page.as_uri(), width=390) as tab:
        assert (tab.overflow(), tab.overlaps()) == (0, [])
        text = tab.view.text_content("main")
        for name in NAMES.values():
            assert text.count(printable(name)) >= 8, name
        assert not {one for one in text if one in "\x1b\x9b\u202e\u2028"}
        tab.view.select_option("#by-verdict", "does not hold")
        assert tab.view.inner_text("#shown") == f"{len(NAMES)} of {len(NAMES)} claims shown"
        assert tab.view.locator("main img:not([alt])").count() == 0  # pictures are ours
        assert tab.view.title() == "interp: results"
        assert tab.fetched() == []
        assert tab.complaints == []


@pytest.mark.parametrize("name", ["results_page", "explored"])
def test_a_policy_stops_what_is_not_the_pages_own(chromium, request, tmp_path: Path, name: str) -> None:
    """Scripts, handlers, styles and frames that came into the file; without the policy they run."""
    made = request.getfixturevalue(name)
    text = (made if name == "results_page" else made[0]).read_text()
    (policy,) = re.findall('<meta http-equiv="Content-Security-Policy" content="(.*)">', text)
    assert "unsafe" not in policy
    assert re.findall(r"script-src &#39;sha256-[\w+/=]+&#39;;", policy)
    for added in (f"<script>document.title = {RAN}</script>", f"<img src=data:x onerror='document.title={RAN}'>"):
        for kept in (True, False):
            file = tmp_path / "changed.html"
            changed = text.replace("</main>", f"{added}</main>")
            file.write_text(changed if kept else changed.replace(policy, "img-src data:"))
            with chromium.opened(file.as_uri()) as tab:
                assert (tab.view.title() == RAN) != kept, added
                assert any("Content Security Policy" in one for one in tab.complaints) == kept


def test_a_script_of_the_page_cannot_read_text_as_markup(chromium, results_page: Path) -> None:
    with chromium.opened(results_page.as_uri()) as tab, pytest.raises(Exception, match="TrustedHTML"):
        tab.view.evaluate("document.body.insertAdjacentHTML('beforeend', '<b>x</b>')")


def test_no_name_moves_the_cursor_of_a_terminal(explored: tuple[Path, str]) -> None:
    _, screen = explored
    assert "left; explorer" in screen  # the bar was there
    assert controls(OWN.sub("", screen)) == set()


def test_analyses_print_names_escaped(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A page, a table of many with what is wrong below it; as text and as JSON."""
    paths = [str(zoo / SEVERAL / name) for name in NAMES.values()]
    for arguments in ([paths[8]], [*paths, f"{paths[8]}/none"], [*paths, "--json"]):
        analyses_cli.main(["lag_asymmetry", *arguments, "--batch", "16"])
        said = capsys.readouterr()
        assert controls(said.out + said.err) == set()
    assert len(json.loads(said.out)["rows"]) >= len(paths)


def test_models_print_names_escaped(zoo: Path, monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert models_cli.main(["zoo", "--checkpoints", str(zoo)]) == 2  # their records are no trainer's: a line each
    assert len(capsys.readouterr().err.splitlines()) == len(NAMES) + 1
    monkeypatch.setattr(models_cli, "CHECKPOINTS", zoo)
    assert models_cli.main([]) == 0
    said = capsys.readouterr().out
    assert controls(said) == set()
    assert "\\x1b[2J" in said


def test_claims_of_a_strangers_results_are_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the terminal's list, and in a README, where markup would act and a mark would end the table."""
    rows = []
    for place, text in enumerate([*NAMES.values(), END]):
        subject = {"family": "disentangled", "prior": "hierarchical", "bos": True, "length": 32, "start": text}
        subject |= {"seed": place, "protocol": "annealed", "order": 2, "vocab": 5, "init": text}
        numbers = {"lag": [1, 2], "mass": [0.9, 0.5], "last_mass": [0.9, 0.5], "stderr": [0.01, 0.01]}
        rows.append({"checkpoint": text, "subject": subject, "success": True, "verdict": text, **numbers})
    (tmp_path / "copy_heads.json").write_text(json.dumps({"analysis": "copy_heads", "rows": rows, "provenance": {}}))
    (tmp_path / "README.md").write_text(f"{BEGIN}\n{END}\n")
    for more in ([], ["--write", str(tmp_path / "README.md")], ["--write", str(tmp_path / "README.md")]):
        assert figures_cli.main(["claims", "--results", str(tmp_path), *more]) == 0
    said = capsys.readouterr().out
    assert controls(said) == set()
    assert len(re.findall(r"<\S", (tmp_path / "README.md").read_text())) == 2
