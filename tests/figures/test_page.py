"""`python -m figures reproduce` on a tiny zoo: all figures are drawn, and the page opens in a real browser."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

from analyses import kl_curves, plan, regret
from analyses.command import read_entries
from figures import claims, cli, drawing, first_screen, page
from figures.explorer import page as explorer
from figures.verdict import FAILED, WORDS, Check, Verdict, judged
from tests import tiny_zoo
from tests.figures.chromium import WIDTHS

ENTRIES = read_entries(cli.FOLDER, marker="LABEL")


def coarse_picture(figure, suffix, drawn=drawing.picture_bytes):
    """A picture with a third of the pixels in each direction, and in PDFs the letters that it shows as drawings.

    To embed the fonts takes longer than to draw. `test_figures_cli.py` writes pictures as the command does.
    """
    with plt.rc_context({"savefig.dpi": 100, "pdf.fonttype": 3}):
        return drawn(figure, suffix)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The whole of `make reproduce`, small."""
    folder = tmp_path_factory.mktemp("reproduce")
    zoo = tiny_zoo.plant(folder / "zoo", seeds=2)
    out = folder / "results"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "shipped_asks", tiny_zoo.tiny_asks)
        patch.setattr(drawing, "picture_bytes", coarse_picture)
        for study in (kl_curves, regret):
            patch.setattr(study, "TUNING_DRAWS", 400)
        arguments = ["reproduce", "--checkpoints", str(zoo), "--out", str(out), "--cache", str(folder / "cache")]
        code = cli.main([*arguments, "--jobs", "1"])
        before = {file: file.stat().st_mtime_ns for file in (out / "figures").iterdir()}
        patch.setattr(plan, "perform", lambda job: pytest.fail(f"{job.words} ran again"))
        patch.setattr(drawing, "draw", lambda one: pytest.fail(f"{one.figure} was drawn again"))
        again = cli.main([*arguments, "--jobs", "1"])
        after = {file: file.stat().st_mtime_ns for file in (out / "figures").iterdir()}
    return {"code": code, "again": again, "out": out, "redrawn": before != after}


def test_everything_is_written_and_the_second_run_computes_and_draws_nothing(made):
    assert made["code"] == made["again"] == 0
    assert not made["redrawn"]
    for name in ENTRIES:
        for suffix in ("pdf", "png", "json"):
            assert (made["out"] / "figures" / f"{name}.{suffix}").stat().st_size > 500
    for name in tiny_zoo.tiny_asks():
        assert (made["out"] / f"{name}.csv").is_file()


@pytest.mark.parametrize("name", ENTRIES)
def test_sidecars_say_what_was_drawn_and_judge_it(made, name):
    record = json.loads((made["out"] / "figures" / f"{name}.json").read_text())
    assert record["figure"] == name
    assert re.match(r"(fig|beyond):\w+", record["label"])
    assert len(record["caption"]) > 80
    assert len(record["claim"]) > 30
    assert record["verdict"]["word"] in WORDS
    assert record["verdict"]["measured"]
    assert record["numbers"]
    assert record["provenance"]


def test_page_is_self_contained_and_shows_every_figure(made):
    text = (made["out"] / page.FILE).read_text()
    for name in ENTRIES:
        assert f'id="{name}"' in text
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", text)
    for target in re.findall(r'href="([^"#][^"]*)"', text):
        if not target.startswith("data:"):
            assert (made["out"] / target).is_file(), target


def test_figures_of_a_shipped_table_say_that_it_is_not_of_the_checkpoints_given(made):
    """The tiny zoo was given; the conditions are those of the repository all the same."""
    sections = (made["out"] / page.FILE).read_text().split('<article class="figure"')[1:]
    said = 0
    for section in sections:
        name = re.search(r'id="(\w+)"', section)[1]
        record = json.loads((made["out"] / "figures" / f"{name}.json").read_text())
        for analysis, variable in (("conditions", "CONDITIONS"), ("language_model", "LANGUAGE")):
            words = f"(analyses/shipped/{analysis}.json), whatever --checkpoints says; {variable}=1 make reproduce"
            assert (words in section) == (analysis in record["provenance"]), name
            said += words in section
    assert said > 2


def test_what_is_computed_is_not_called_shipped(monkeypatch):
    documents = {"conditions": None, "theory": None}
    assert list(page.shipped_among(documents)) == ["conditions"]
    monkeypatch.setenv("CONDITIONS", "1")
    assert page.shipped_among(documents) == {}


def test_claims_open_the_page_and_the_sections_have_every_number(made):
    records = [json.loads((made["out"] / "figures" / f"{name}.json").read_text()) for name in ENTRIES]
    text = (made["out"] / page.FILE).read_text()
    head, sections = text.split('<h2 id="figures">')
    terminal = " ".join(page.verdict_table(records).split())
    assert page.REASON in terminal
    for record in records:
        verdict, sentence = record["verdict"], html.escape(claims.claim_of(record).sentence)
        assert f'<a href="#{record["figure"]}">{sentence}</a></h' in head
        assert f"<h3>{sentence}</h3>" in sections
        assert html.escape((verdict.get("number") or verdict["headline"])[1:]) in head
        assert html.escape(verdict["measured"][1:]) in sections
        assert f"python -m figures {record['figure']}" in sections
        assert verdict["why"] in page.reason(verdict)
        assert html.escape(verdict["says"].removeprefix("holds").removeprefix("does not hold")) in head
        for check in verdict["checks"]:  # met or not
            for part in ("required", "found", "where", "evidence"):
                assert html.escape(check[part]) in head
                assert html.escape(check[part]) in sections
    assert any(not check["met"] for record in records for check in record["verdict"]["checks"])


def test_the_first_screen_counts_the_claims_and_names_each_of_them_with_its_condition(made):
    records = [json.loads((made["out"] / "figures" / f"{name}.json").read_text()) for name in ENTRIES]
    mine = [record for record in records if not claims.claim_of(record).ours]
    text = (made["out"] / page.FILE).read_text()
    board = text.partition('<div class="board">')[2].partition("<details>")[0]
    assert html.escape(first_screen.RULE) in board  # what makes a claim amber, and what red
    assert first_screen.answer(mine) in text
    assert sum(map(int, re.findall(r"\d+", re.sub(r"\(.*?\)", "", first_screen.answer(mine))))) == 2 * len(
        mine
    )  # all, and those with each verdict
    assert sorted(re.findall(r'href="#(\w+)"', board)) == sorted(record["figure"] for record in mine)
    for record in mine:
        assert html.escape(claims.claim_of(record).title) in board
        assert html.escape(first_screen.aside(record["verdict"])) in board
    assert all(record["label"].startswith("beyond:") for record in records if record not in mine)


def test_the_answer_says_how_many_claims_fail():
    def of(*words):
        return first_screen.answer([{"figure": "causal", "verdict": {"word": word}} for word in words])

    assert of("holds", "holds", "holds where") == "Of 3 claims, 2 hold; 1 holds under a condition."
    assert of("holds where", "holds where") == "Of 2 claims, 2 hold under a condition."
    given = {"figure": "task_priors", "verdict": {"word": "holds"}}
    told = first_screen.answer([given, {**given, "figure": "causal"}])
    assert told == "Of 2 claims, 2 hold (1 about hand-written weights or the sampler, 1 about trained models)."
    assert of("holds", "does not hold") == "Of 2 claims, 1 holds; 1 does not hold, at least in one part."


def test_a_claim_is_listed_with_what_its_verdict_says():
    def words(**checks):
        return first_screen.aside(vars(judged(checks, measured="0.5")))

    sharp, equal = Check(passed=False, where="T < 64"), Check(passed=False, where="k = 1")
    assert words(sharp=sharp, small=True) == "where T < 64"
    assert words(sharp=sharp, equal=equal, small=True) == "where T < 64 and k = 1"
    assert words(sharp=sharp, equal=False, small=True) == ""
    assert words(small=True) == ""
    scores, blocks = Check(passed=True, part="in the scores"), replace(sharp, part="in the blocks")
    assert words(a=scores, b=blocks) == "holds in the scores; in the blocks where T < 64"
    assert words(a=scores, b=Check(passed=False, part="in the blocks")) == "not in the blocks; holds in the scores"
    missing = vars(Verdict(word="cannot tell", measured="0.5", says="cannot tell: no results for b; the rest holds"))
    assert first_screen.aside(missing) == "no results for b; the rest holds"


def test_claims_are_of_figures_and_a_figure_without_one_is_listed_with_the_beginning_of_its_own():
    assert set(claims.CLAIMS) <= set(ENTRIES)
    assert {claim.topic for claim in claims.CLAIMS.values()} <= set(claims.TOPICS)
    record = {"figure": "new", "claim": "Keys vote. They do.", "verdict": {"word": "beyond the paper"}}
    assert claims.claim_of(record) == claims.Claim(sentence="Keys vote.", title="new", topic="other", ours=True)


def test_time_is_stated_by_analysis_and_by_question(made):
    timing = json.loads((made["out"] / "timing.json").read_text())
    assert timing["made"] == 0  # the second run knew all
    assert timing["kept"] == len(timing["questions"]) > len(tiny_zoo.tiny_asks())
    read = {"language_model", "conditions"}  # their shipped results are read, which takes no time
    assert set(timing["by_analysis"]) == set(tiny_zoo.tiny_asks()) - read
    assert sum(timing["by_analysis"].values()) == pytest.approx(
        sum(one["seconds"] for one in timing["questions"]), abs=0.01 * len(timing["questions"])
    )
    seconds = [one["seconds"] for one in timing["questions"]]
    assert seconds == sorted(seconds, reverse=True)
    assert html.escape(page.time_words(timing)) in (made["out"] / page.FILE).read_text()


def test_long_numbers_are_cut_only_where_no_reason_is_given():
    words = "0.123, " * 60
    assert page.reason(vars(Verdict(word="holds", measured=words))).endswith("…")
    assert page.reason(vars(Verdict(word="holds", measured=words, why=words))) == words
    assert page.reason(vars(Verdict(word="holds", measured="0.5 of 1; 0.3"))) == "0.5 of 1"


def test_what_was_required_and_what_was_found_are_said():
    checks = {"sharp": Check(passed=False, found="0.5", where="T < 64"), "equal": True}
    verdict = vars(judged(checks, measured="0.5; 1.0", why="BOS takes it"))
    assert page.reason(verdict) == "required: sharp. found: 0.5. BOS takes it"
    assert page.sentence(verdict) == "holds where T < 64"
    assert verdict["headline"] == "0.5"


def test_the_terminal_says_of_each_requirement_what_was_found(monkeypatch):
    """Verdicts first, one number each; then only what was not met, requirement by requirement, over the whole width."""
    checks = {
        "sharp " * 20: Check(passed=False, found="0.5", where="T < 64"),
        "equal": Check(passed=False, found="0.3"),
        "small": True,
    }
    failed = {"figure": "a_figure", "label": "fig:a", "verdict": vars(judged(checks, measured="0.5; 1.0", why="BOS"))}
    holds = {"figure": "b", "label": "fig:b", "verdict": vars(judged({"small": True}, measured="0.25; 1.0"))}
    assert page.shortfalls(failed["verdict"]) == [
        ("required", "sharp " * 20), ("found", "0.5"), ("holds", "where T < 64"),
        ("required", "equal"), ("found", "0.3"), ("why", "BOS"),
    ]  # fmt: skip
    monkeypatch.setenv("COLUMNS", "80")
    lines = page.verdict_table([failed, holds]).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines.index(f"{page.REASON}:") > max(lines.index("  b         holds"), lines.index("            0.25"))
    below = lines[lines.index(f"{page.REASON}:") :]
    assert "  found     0.5" in below
    assert "b" not in below
    assert max(map(len, below)) > 70
    assert page.REASON not in page.verdict_table([holds])
    older = {key: value for key, value in failed["verdict"].items() if key != "checks"}
    assert page.shortfalls(older) == [("", page.reason(older))]


def test_foreign_page_is_kept(tmp_path):
    file = tmp_path / page.FILE
    file.write_text("<p>mine</p>")
    with pytest.raises(Exception, match="--overwrite"):
        page.check_target(file, overwrite=False)
    page.check_target(file, overwrite=True)


@pytest.mark.parametrize("width", WIDTHS)
def test_page_opens_in_a_browser(chromium, made, width):
    address = (made["out"] / page.FILE).resolve().as_uri()
    with chromium.opened(address, width=width) as tab:
        images = tab.view.eval_on_selector_all(
            ".figure img",
            "all => all.map(one => [one.complete, one.naturalWidth, one.alt, one.getBoundingClientRect().width])",
        )
        titles = tab.view.eval_on_selector_all("article.figure", "all => all.map(one => one.id)")
        tab.view.eval_on_selector_all("main details", "all => all.forEach(one => { one.open = true; })")
        for scheme in tab.in_each_scheme():
            assert tab.overflow() == 0, scheme
            assert tab.overlaps() == [], scheme
            assert tab.violations() == [], scheme
        assert tab.fetched() == []
        assert tab.complaints == []
    assert sorted(titles) == sorted(ENTRIES)
    assert len(images) == len(ENTRIES)
    assert all(complete and natural > 300 and shown > 100 for complete, natural, _, shown in images)
    assert len({alt for _, _, alt, _ in images}) == len(ENTRIES)  # each states its own finding


def test_claims_are_filtered_and_tables_are_sorted(chromium, made):
    count = "all => all.filter(one => !one.hidden).length"
    with chromium.opened((made["out"] / page.FILE).resolve().as_uri()) as tab:
        view = tab.view
        words = view.eval_on_selector_all(".row", "all => all.map(one => one.dataset.verdict)")
        for word in sorted(set(words)):
            view.select_option("#by-verdict", word)
            assert view.eval_on_selector_all(".row", count) == words.count(word)
            assert view.inner_text("#shown") == f"{words.count(word)} of {len(ENTRIES)} claims and findings shown"
        view.select_option("#by-verdict", "")
        assert view.eval_on_selector_all(".row", count) == len(ENTRIES)
        column = "all => all.map(one => Number(one.cells[1].textContent))"
        rows = "section[aria-labelledby=tables] tbody tr"
        before = view.eval_on_selector_all(rows, column)
        view.click("section[aria-labelledby=tables] th:nth-child(2) button")
        assert view.eval_on_selector_all(rows, column) == sorted(before)
        view.click("section[aria-labelledby=tables] th:nth-child(2) button")
        assert view.eval_on_selector_all(rows, column) == sorted(before, reverse=True)


def test_explorer_is_written_beside_the_page_and_leads_back_to_it(made):
    text = (made["out"] / explorer.FILE).read_text()
    assert f'href="{page.FILE}"' in text
    assert len(text.encode()) < explorer.MOST_BYTES


@pytest.mark.parametrize("name", ["mech_main", "lag_pairs"])
def test_missing_checkpoints_leave_notes_and_the_rest_is_drawn(tmp_path, monkeypatch, capsys, name):
    """Only constructions: panels of trained models are notes, and warned of. Each figure's own tests go further."""
    monkeypatch.setattr(plan, "shipped_asks", tiny_zoo.tiny_asks)
    zoo = tiny_zoo.plant(tmp_path / "zoo", seeds=1, families=("construction",))
    arguments = [name, "--checkpoints", str(zoo), "--out", str(tmp_path / "out"), "--cache", str(tmp_path / "cache")]
    assert cli.main([*arguments, "--jobs", "1", "--format", "png"]) == 0
    captured = capsys.readouterr()
    assert captured.out.split() == [str(tmp_path / "out" / f"{name}.{suffix}") for suffix in ("png", "json")]
    assert f"warning: {name}: panel left out" in captured.err
    record = json.loads(Path(tmp_path / "out" / f"{name}.json").read_text())
    assert record["missing"]
    assert record["verdict"]["word"] in ("cannot tell", *FAILED)
