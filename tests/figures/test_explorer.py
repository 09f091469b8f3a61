"""The explorer in a real browser: its laws are those of `interp`, its models the checkpoints; links restore it."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import torch

import interp as ip
from analyses import explorer as analysis
from analyses.command import BadInput
from analyses.documents import Document
from analyses.subject import Subject
from figures import cli
from figures.explorer import page
from tests import tiny_zoo
from tests.figures.chromium import WIDTHS

pytestmark = pytest.mark.xdist_group("explorer")

STATES = 50
TOLERANCE = 1e-6
COPY_WORDS = re.compile(r"puts ([\d.]+) on its lag (\d+) and ([\d.]+) on BOS")
VOCAB, ORDER, LENGTH = tiny_zoo.VOCAB, tiny_zoo.ORDER, tiny_zoo.LENGTH


@pytest.fixture(scope="module")
def zoo(tmp_path_factory):
    return tiny_zoo.plant(tmp_path_factory.mktemp("explorer") / "zoo", seeds=1)


@pytest.fixture(scope="module")
def rows(zoo):
    options = analysis.Options(batch=64, sequences=3, draws=64)
    found = []
    for config in sorted(zoo.glob("*/*/T*_seed0/config.json")):
        subject = Subject.open(config.parent, options)
        record = json.loads(json.dumps(analysis.analyse(subject, options).record()))
        found.append({"checkpoint": str(config.parent), "subject": subject.summary(), **record})
    return found


@pytest.fixture(scope="module")
def file(rows, tmp_path_factory):
    document = Document(analysis=page.ANALYSIS, rows=rows, provenance={})
    return page.write(tmp_path_factory.mktemp("page"), document)


def laws_of(tab):
    """What the table says, with all its digits; a law that is not known has none."""
    rows = tab.view.eval_on_selector_all(
        "tr[data-law]",
        "all => all.map(tr => [tr.dataset.law, [...tr.querySelectorAll('[data-value]')].map(td => td.dataset.value)])",
    )
    return {name: np.array([float(cell) for cell in cells]) for name, cells in rows}


def slide(tab, name, value):
    """Move a slider, as a hand would."""
    tab.view.eval_on_selector(
        f"#{name}",
        "(one, value) => { one.value = value; one.dispatchEvent(new Event('input', {bubbles: true})); }",
        value,
    )


def write_tokens(tab, tokens):
    """Type the sequence into the strip, letter by letter."""
    tab.view.evaluate(
        """tokens => tokens.forEach((token, place) => document.querySelectorAll('#strip button')[place].dispatchEvent(
             new KeyboardEvent('keydown', {key: String.fromCharCode(97 + token), bubbles: true})))""",
        [int(token) for token in tokens],
    )


def address(file, row):
    name = "/".join(row["checkpoint"].split("/")[-3:])
    return f"{file.resolve().as_uri()}#m={name}"


def test_laws_of_the_page_are_those_of_the_library_on_random_states(chromium, file, rows):
    rng = np.random.default_rng(0)
    row = next(row for row in rows if row["subject"]["family"] == "disentangled" and row["config"]["bos"])
    worst, moved = 0.0, 0.0
    with chromium.opened(address(file, row)) as tab:
        for _ in range(STATES):
            beta, kappa, alpha = rng.uniform(-2, 12, size=ORDER), rng.uniform(-4, 14), rng.uniform(0.05, 5)
            tokens = rng.integers(VOCAB, size=LENGTH)
            query = int(rng.integers(LENGTH))
            write_tokens(tab, tokens)
            before = laws_of(tab)["law"]
            slide(tab, "query", query + 1)
            for lag, value in enumerate(beta, start=1):
                slide(tab, f"beta-{lag}", value)
            slide(tab, "kappa", kappa)
            slide(tab, "alpha", alpha)
            expected = library_laws(tokens[None], query, beta=beta, kappa=kappa, alpha=alpha)
            found = laws_of(tab)
            for name, law in expected.items():
                worst = max(worst, float(np.abs(found[name] - law).max()))
            moved = max(moved, float(np.abs(before - expected["law"]).max()))
        assert not tab.complaints
    assert worst < TOLERANCE
    assert moved > 0.1  # what the page said before the sliders moved is not what it says after


def library_laws(tokens, query, *, beta, kappa, alpha):
    """What `interp` says after this query; there each law is of all positions."""
    shape = {"order": ORDER, "vocab": VOCAB, "every_position": True}
    laws = {
        "law": ip.soft_matching(tokens, vocab=VOCAB, beta=beta, kappa=kappa, every_position=True),
        "hard": ip.soft_matching(tokens, vocab=VOCAB, beta=(500.0,) * ORDER, every_position=True),
        "maximum_likelihood": ip.maximum_likelihood(tokens, **shape),
        "add_alpha": ip.add_alpha(tokens, alpha=alpha, **shape),
        "katz": ip.katz(tokens, **shape),
    }
    return {name: law[0, query].numpy() for name, law in laws.items()}


def test_models_run_in_the_page_as_they_do_here_on_changed_sequences(chromium, file, rows, zoo):
    tokens = np.random.default_rng(1).integers(VOCAB, size=LENGTH)
    seen = []
    for row in rows:
        # In float64, as the page computes: LayerNorm makes much of the rounding of BOS's constant row, where untrained
        # models have nothing else.
        model = ip.load(row["checkpoint"]).double()
        law = ip.predict(model, torch.from_numpy(tokens)[None])[0].numpy()
        with chromium.opened(address(file, row)) as tab:
            drawn = laws_of(tab)["model"]
            stored = ip.predict(model, torch.tensor([row["sequences"][0]["tokens"]]))[0].numpy()
            write_tokens(tab, tokens)
            changed = laws_of(tab)["model"]
            truth = tab.view.inner_text('tr[data-law="truth"]')
            assert not tab.complaints
        assert np.abs(drawn - stored).max() < 1e-5, row["checkpoint"]
        assert np.abs(changed - law).max() < 1e-5
        assert "not known" in truth  # a sequence that was changed is no draw from the chain
        seen.append((row["subject"]["family"], row["config"]["bos"]))
    assert len(set(seen)) == 4


def test_copy_heads_that_attend_to_bos_are_said_to(chromium, file, rows):
    """What the page says of them is what the model does; of a construction, whose copies are exact, it says no more."""
    for row in (row for row in rows if row["config"]["bos"]):
        model = ip.load(row["checkpoint"]).double()
        copies = ip.capture(model, torch.tensor([row["sequences"][0]["tokens"]]), copies=True).copy_pattern[0, :, -1]
        with chromium.opened(address(file, row)) as tab:
            said = tab.view.inner_text("#copy-words")
        numbers = [(int(lag), float(own), float(bos)) for own, lag, bos in COPY_WORDS.findall(said)]
        assert len(numbers) == ORDER
        for head, (lag, own, bos) in enumerate(numbers):
            assert own == pytest.approx(copies[head, LENGTH - lag].item(), abs=0.006)
            assert bos == pytest.approx(copies[head, 0].item(), abs=0.006)
        assert ("arrows to BOS" in said) == any(bos > own for _, own, bos in numbers)
        if row["subject"]["family"] == "construction":
            assert [lag for lag, _, _ in numbers] == list(range(1, ORDER + 1))
            assert "arrows to BOS" not in said


def test_a_link_restores_the_state(chromium, file, rows):
    row = next(row for row in rows if row["subject"]["family"] == "construction")
    with chromium.opened(address(file, row)) as tab:
        slide(tab, "beta-1", 1.25)
        slide(tab, "kappa", -0.5)
        slide(tab, "query", 11)
        tab.view.click('#strip button[data-place="3"]')
        tab.view.mouse.move(0, 0)
        link, law, model = tab.view.url, laws_of(tab)["law"], laws_of(tab)["model"]
        strip = tab.view.inner_text("#strip")
    with chromium.opened(link) as tab:
        assert tab.view.inner_text("#strip") == strip
        np.testing.assert_allclose(laws_of(tab)["law"], law, atol=1e-12)
        np.testing.assert_allclose(laws_of(tab)["model"], model, atol=1e-12)
        assert tab.view.inner_text("#query-value") == "11"
    with chromium.opened(f"{file.resolve().as_uri()}#m=nothing&q=99&b=x&x=zzz") as tab:  # nonsense is left at its start
        assert not tab.complaints
        assert len(laws_of(tab)["law"]) == VOCAB


def test_pointing_at_a_token_makes_it_the_query_and_leaving_it_goes_back(chromium, file, rows):
    with chromium.opened(address(file, rows[0])) as tab:
        tab.view.hover('#strip button[data-place="8"]')
        assert tab.view.inner_text("#query-value") == "9"
        assert "position 9:" in tab.view.get_attribute("#law-picture", "aria-label")
        tab.view.mouse.move(0, 0)
        assert tab.view.inner_text("#query-value") == str(LENGTH)
        tab.view.focus(f'#strip button[data-place="{LENGTH - 1}"]')
        tab.view.keyboard.press("ArrowLeft")
        assert tab.view.inner_text("#query-value") == str(LENGTH - 1)


def test_sliders_start_where_the_page_says_with_and_without_bos(chromium, rows, tmp_path):
    unfit = [{**row, "beta": None, "kappa": None, "fit_success": False, "fit_message": "no law"} for row in rows]
    file = page.write(tmp_path, Document(analysis=page.ANALYSIS, rows=unfit, provenance={}))
    seen = set()
    for row in unfit:
        with chromium.opened(address(file, row)) as tab:
            about = tab.view.inner_text("#about")
            said = dict(re.findall(r"(beta_\d|kappa) = ([\d.]+)", about))
            sliders = {
                one["id"].replace("-", "_"): one["value"]
                for one in tab.view.eval_on_selector_all(
                    "#sliders input:not(#alpha)", "all => all.map(one => ({id: one.id, value: Number(one.value)}))"
                )
            }
            spoken = tab.view.get_attribute("#beta-1", "aria-valuetext")
        assert {name: float(value) for name, value in said.items()} == pytest.approx(sliders)
        assert ("kappa" in said) == row["config"]["bos"]
        assert float(spoken) == sliders["beta_1"]
        seen.add(row["config"]["bos"])
    assert seen == {True, False}


def test_a_closed_list_of_models_names_the_prior(chromium, file, rows):
    for row in rows:
        with chromium.opened(address(file, row)) as tab:
            shown = tab.view.eval_on_selector("#model", "one => one.selectedOptions[0].textContent")
            about = tab.view.inner_text("#about")
        assert f"{row['subject']['prior']} prior, {'BOS' if row['subject']['bos'] else 'no BOS'}" in shown
        assert f"{row['subject']['prior']} prior, {'eta' if 'eta' in row['prior'] else 'alpha'} = " in about


def test_ribbons_stay_in_the_panel_where_bos_has_all_attention(chromium, file, rows):
    row = next(row for row in rows if row["subject"]["family"] == "construction")
    with chromium.opened(address(file, row)) as tab:
        slide(tab, "kappa", 18)
        ribbons = tab.view.eval_on_selector_all(
            "#law-picture path[stroke-opacity]",
            "all => all.map(one => [parseFloat(one.getAttribute('d').slice(1)), +one.getAttribute('stroke-width')])",
        )
        left, right = tab.view.evaluate("[LEFT, RIGHT]")
    assert sum(wide for _, wide in ribbons) == pytest.approx(120, abs=1)  # all votes, nearly all of them from BOS
    assert max(wide for _, wide in ribbons) > 30
    assert min(start - wide / 2 for start, wide in ribbons) >= left - 0.1
    assert max(start + wide / 2 for start, wide in ribbons) <= right + 0.1


def test_copy_heads_are_named_as_in_the_results_and_coloured_by_their_lag(chromium, file, rows):
    row = next(row for row in rows if row["subject"]["family"] == "construction")
    for model in rows:
        with chromium.opened(address(file, model)) as tab:
            assert "head (0, 0) puts" in tab.view.inner_text("#copy-words")
            assert "copies of lag 1" in tab.view.inner_text("#legend")
    with chromium.opened(address(file, row)) as tab:
        for picture in ("model-picture", "law-picture"):
            drawn = tab.view.eval_on_selector_all(
                f"#{picture} path:has(title)",
                "all => all.map(one => [one.getAttribute('stroke'), one.querySelector('title').textContent])",
            )
            for lag in range(1, ORDER + 1):
                strokes = {stroke for stroke, words in drawn if f"copies lag {lag}," in words}
                assert strokes == {f"var(--head-{lag})"}


def test_a_token_is_kept_as_the_query_by_shift_or_a_first_tap_and_changed_by_the_next(chromium, file, rows):
    tap = """(one, kind) => { one.dispatchEvent(new PointerEvent('pointerdown', {bubbles: true, pointerType: kind}));
             one.dispatchEvent(new MouseEvent('click', {bubbles: true})); }"""
    fifth = '#strip button[data-place="5"]'
    with chromium.opened(address(file, rows[0])) as tab:
        before = tab.view.inner_text("#strip")
        tab.view.eval_on_selector(fifth, tap, "touch")
        assert tab.view.input_value("#query") == "6"
        assert tab.view.inner_text("#strip") == before
        tab.view.eval_on_selector(fifth, tap, "touch")
        assert tab.view.inner_text("#strip") != before
        tab.view.click('#strip button[data-place="7"]', modifiers=["Shift"])
        assert tab.view.input_value("#query") == "8"
        changed = tab.view.inner_text("#strip")
        tab.view.eval_on_selector('#strip button[data-place="9"]', tap, "mouse")
        assert tab.view.inner_text("#strip") != changed
        assert not tab.complaints


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_fetched_or_overflows_and_axe_finds_no_violation(chromium, file, width):
    with chromium.opened(file.resolve().as_uri(), width=width) as tab:
        for scheme in tab.in_each_scheme():
            assert tab.overflow() == 0, scheme
            assert tab.overlaps() == [], scheme
            assert tab.violations() == [], scheme
        assert tab.fetched() == []
        assert tab.complaints == []


def test_axe_would_find_a_violation(chromium, tmp_path):
    bad = tmp_path / "bad.html"
    bad.write_text(
        '<!DOCTYPE html><html lang="en"><title>bad</title><main><h1>bad</h1><img src="data:,"></main></html>'
    )
    with chromium.opened(bad.as_uri()) as tab:
        assert any(one.startswith("image-alt") for one in tab.violations())


def test_axe_sees_each_scheme(chromium, tmp_path):
    grey = tmp_path / "grey.html"
    style = "<style>@media (prefers-color-scheme: dark) { h1 { color: #eee } }</style>"
    grey.write_text(f'<!DOCTYPE html><html lang="en"><title>grey</title>{style}<main><h1>grey</h1></main></html>')
    with chromium.opened(grey.as_uri()) as tab:
        found = {scheme: [one.split(":")[0] for one in tab.violations()] for scheme in tab.in_each_scheme()}
    assert found == {"light": [], "dark": ["color-contrast"]}


def test_a_file_that_would_be_too_large_leaves_out_its_largest_models(rows, monkeypatch):
    whole, nothing = page.explorer(rows, {})
    assert nothing == []
    assert len(whole.encode()) < page.MOST_BYTES
    monkeypatch.setattr(page, "MOST_BYTES", len(whole.encode()) - 1)
    smaller, left_out = page.explorer(rows, {})
    assert len(left_out) == 1
    assert left_out[0] not in smaller
    with pytest.raises(BadInput, match="no checkpoint"):
        page.explorer([], {})


def test_foreign_page_is_kept(tmp_path):
    file = tmp_path / page.FILE
    file.write_text("<p>mine</p>")
    with pytest.raises(BadInput, match="--overwrite"):
        page.check_target(file, overwrite=False)
    page.check_target(file, overwrite=True)


def test_command_writes_the_page_from_results_and_refuses_results_that_are_not_there(rows, tmp_path, capsys):
    made = {"analysis": page.ANALYSIS, "rows": rows, "provenance": {}}
    (tmp_path / f"{page.ANALYSIS}.json").write_text(json.dumps(made))
    assert cli.main(["explorer", "--results", str(tmp_path), "--out", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.split() == [str(tmp_path / "out" / page.FILE)]
    with pytest.raises(SystemExit, match="2"):
        cli.main(["explorer", "--results", str(tmp_path / "none"), "--out", str(tmp_path / "out")])
    assert len(capsys.readouterr().err.splitlines()) == 1
