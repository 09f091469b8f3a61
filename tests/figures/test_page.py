"""`python -m figures reproduce` on a tiny zoo: all figures are drawn, and the page opens in a real browser."""

from __future__ import annotations

import json
import re

import matplotlib.pyplot as plt
import pytest
from markupsafe import escape

from analyses.running import plan
from analyses.running.table import Table
from analyses.studies import kl_curves
from figures.page import results as page
from figures.page.explorer import page as explorer
from figures.parts.figure import load_figure
from figures.running import cli, drawing
from models.running.command_line import BadInput, read_entries
from tests import tiny_zoo
from tests.figures.chromium import WIDTHS

ENTRIES = read_entries(cli.FOLDER, marker="LABEL")
MOST_WORDS, MOST_PIXELS, MOST_BYTES = 6000, 15_000, 3_000_000


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
        patch.setattr(kl_curves, "TUNING_DRAWS", 400)
        arguments = ["reproduce", "--checkpoints", str(zoo), "--out", str(out), "--cache", str(folder / "cache")]
        code = cli.main([*arguments, "--jobs", "1"])
        before = {file: file.stat().st_mtime_ns for file in (out / "figures").iterdir()}
        patch.setattr(plan, "perform", lambda task: pytest.fail(f"{next(iter(task[0])).words} ran again"))
        patch.setattr(drawing, "draw", lambda one: pytest.fail(f"{one.figure} was drawn again"))
        again = cli.main([*arguments, "--jobs", "1"])
        after = {file: file.stat().st_mtime_ns for file in (out / "figures").iterdir()}
    return {"code": code, "again": again, "out": out, "redrawn": before != after}


def judged_rows(made):
    """The claims' document."""
    return json.loads((made["out"] / "claims.json").read_text())["rows"]


def test_everything_is_written_and_the_second_run_computes_and_draws_nothing(made):
    assert made["code"] == made["again"] == 0
    assert not made["redrawn"]
    for name in ENTRIES:
        for suffix in ("pdf", "png", "json"):
            assert (made["out"] / "figures" / f"{name}.{suffix}").stat().st_size > 500
    for name in tiny_zoo.tiny_asks():
        assert (made["out"] / f"{name}.csv").is_file()


def test_sidecars_say_what_was_drawn(made):
    for name in ENTRIES:
        record = json.loads((made["out"] / "figures" / f"{name}.json").read_text())
        assert record["figure"] == name
        assert re.match(r"(fig|beyond):\w+", record["label"])
        assert len(record["caption"]) > 80
        assert set(record["claims"]) <= {row["claim"] for row in judged_rows(made)}
        assert record["numbers"]
        assert record["provenance"]
        assert load_figure(name).chosen(record["numbers"]) == record["numbers"]  # it can be drawn again from them


def test_page_fetches_nothing_and_shows_every_figure_once(made):
    text = (made["out"] / page.FILE).read_text()
    for name in ENTRIES:
        assert text.count(f'id="{name}"') == 1
        assert (made["out"] / "figures" / f"{name}.webp").stat().st_size > 500
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", text)
    for target in re.findall(r'href="([^"#][^"]*)"', text):
        if not target.startswith("data:"):
            assert (made["out"] / target).is_file(), target


def test_figures_of_a_shipped_table_say_that_it_is_not_of_the_checkpoints_given(made):
    """The tiny zoo was given; the conditions are those of the repository all the same."""
    sections = (made["out"] / page.FILE).read_text().split("<figure ")[1:]
    said = 0
    for section in sections:
        name = re.search(r'id="(\w+)"', section)[1]
        record = json.loads((made["out"] / "figures" / f"{name}.json").read_text())
        caption = section.partition("</figcaption>")[0]
        for analysis in ("conditions", "language_model"):
            assert (f"{analysis}: shipped table" in caption) == (analysis in record["provenance"]), name
            said += analysis in record["provenance"]
    assert said > 2


def test_what_is_computed_is_not_called_shipped(monkeypatch):
    documents = {"conditions": None, "theory": None}
    assert list(page.shipped_among(documents)) == ["conditions"]
    monkeypatch.setenv("CONDITIONS", "1")
    assert page.shipped_among(documents) == {}


def test_each_claim_has_one_card_with_its_number_and_needs(made):
    text = (made["out"] / page.FILE).read_text()
    for row in judged_rows(made):
        assert text.count(f'id="claim-{row["claim"]}"') == 1
        card = text.partition(f'id="claim-{row["claim"]}"')[2].partition("</details>")[0]
        assert escape(row["sentence"]) in card
        assert escape(row["found"]) in card
        assert (f'class="word {page.WORD_CLASSES[row["verdict"]]}"' in card) != row["ours"]
        for need in row["needs"]:
            assert escape(need["reason"]) in card
            for group in need["groups"]:
                assert escape(group["value"] or group["why"]) in card


def test_the_first_screen_counts_the_papers_claims(made):
    text = (made["out"] / page.FILE).read_text()
    theirs = page.of_the_paper(judged_rows(made))
    board = text.partition('<ul class="board">')[2].partition("</ul>")[0]
    assert escape(page.answer(theirs)) in text
    assert sorted(re.findall(r'href="#claim-(\w+)"', board)) == sorted(row["claim"] for row in theirs)
    assert not any(row["ours"] for row in theirs)


def test_starts_are_counted_from_what_verdicts_say():
    said = ("random or soft starts: too; kappa tied: not", "random or soft starts: not for standard models", "")
    words = page.by_start([{"others": one} for one in said])
    assert words == "2 rest on models trained from hard copies: 1 hold from random or soft starts too."
    assert page.by_start([{"others": ""}]) == ""


def test_claims_name_their_figures(made):
    known = {row["claim"] for row in judged_rows(made)}
    shown = {claim for name in ENTRIES for claim in load_figure(name).CLAIMS}
    assert shown <= known
    pictured = {row["claim"] for row in judged_rows(made) if row["label"].startswith("fig:")}
    assert pictured <= shown


def test_time_is_stated_by_analysis_and_by_question(made):
    timing = json.loads((made["out"] / "timing.json").read_text())
    assert timing["made"] == 0  # the second run knew all
    assert timing["kept"] == len(timing["questions"]) > len(tiny_zoo.tiny_asks())
    read = {"language_model", "conditions"}  # their shipped results are read, which takes no time
    without = {"flat_direction"}  # the records of the tiny zoo name no start
    assert set(timing["by_analysis"]) == set(tiny_zoo.tiny_asks()) - read - without
    assert sum(timing["by_analysis"].values()) == pytest.approx(
        sum(one["seconds"] for one in timing["questions"]), abs=0.01 * len(timing["questions"])
    )
    seconds = [one["seconds"] for one in timing["questions"]]
    assert seconds == sorted(seconds, reverse=True)
    assert escape(page.time_words(timing)) in (made["out"] / page.FILE).read_text()


@pytest.mark.parametrize("module", [page, explorer])
def test_foreign_page_is_kept(tmp_path, module):
    file = tmp_path / module.FILE
    file.write_text("<p>mine</p>")
    with pytest.raises(BadInput, match="--overwrite"):
        module.check_target(file, overwrite=False)
    module.check_target(file, overwrite=True)


@pytest.mark.parametrize("width", WIDTHS)
def test_page_opens_in_a_browser(chromium, made, width):
    address = (made["out"] / page.FILE).resolve().as_uri()
    with chromium.opened(address, width=width) as tab:
        words, height = tab.view.evaluate(
            "[document.querySelector('main').textContent.split(/\\s+/).length, document.documentElement.scrollHeight]"
        )
        tab.view.eval_on_selector_all("main details", "all => all.forEach(one => { one.open = true; })")
        tab.view.eval_on_selector_all("figure img", "all => all.forEach(one => { one.loading = 'eager'; })")
        tab.until("[...document.querySelectorAll('figure img')].every(one => one.complete)")
        images = tab.view.eval_on_selector_all(
            "figure img", "all => all.map(one => [one.naturalWidth, one.alt, one.getBoundingClientRect().width])"
        )
        for scheme in tab.in_each_scheme():
            assert tab.overflow() == 0, scheme
            assert tab.overlaps() == [], scheme
            assert tab.violations() == [], scheme
        assert tab.fetched() == []
        assert tab.complaints == []
    assert len(images) == len(ENTRIES)
    assert all(natural > 300 and shown > 100 for natural, _, shown in images)
    assert len({alt for _, alt, _ in images}) == len(ENTRIES)  # each states its own finding
    assert words <= MOST_WORDS
    assert width < 1400 or height <= MOST_PIXELS
    size = sum(file.stat().st_size for file in [made["out"] / page.FILE, *(made["out"] / "figures").glob("*.webp")])
    assert size <= MOST_BYTES


def test_a_standalone_page_needs_no_file_beside_it(made, tmp_path):
    from figures.running.drawing import Drawn

    pictures = made["out"] / "figures"
    record = json.loads((pictures / "mech_main.json").read_text())
    drawn = Drawn(files=(), record=record, png=(pictures / "mech_main.png").read_bytes(), new=False)
    documents = {"claims": Table(analysis="claims", rows=judged_rows(made))}
    timing = json.loads((made["out"] / "timing.json").read_text())
    text = page.write(tmp_path, [drawn], documents, timing, standalone=True).read_text()
    assert len(re.findall('src="data:image/webp', text)) == 1 + len(record["claims"])
    assert not (tmp_path / "figures").exists()


def test_claims_are_filtered_and_links_open_their_card(chromium, made):
    count = "all => all.filter(one => !one.hidden).length"
    with chromium.opened((made["out"] / page.FILE).resolve().as_uri()) as tab:
        view, cards = tab.view, "section[aria-labelledby=claims] .card"
        words = view.eval_on_selector_all(cards, "all => all.map(one => one.dataset.verdict)")
        for word in sorted(set(words)):
            view.select_option("#by-verdict", word)
            assert view.eval_on_selector_all(cards, count) == words.count(word)
            assert view.inner_text("#shown") == f"{words.count(word)} of {len(words)} claims shown"
        view.click(".board a >> nth=-1")
        tab.until("document.querySelector(location.hash).open")
        assert view.eval_on_selector_all("nav a[aria-current]", "all => all.map(one => one.hash)") == ["#claims"]
        view.evaluate("location.hash = '#mech_main'")
        tab.until("document.getElementById('mech_main').closest('.card').open")


def test_explorer_is_written_beside_the_page_and_leads_back_to_it(made):
    text = (made["out"] / explorer.FILE).read_text()
    assert f'href="{page.FILE}"' in text
    assert len(text.encode()) < explorer.MOST_BYTES
