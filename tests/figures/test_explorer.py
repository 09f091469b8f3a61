"""The explorer in a real browser: its laws are those of `interp`, its models the checkpoints; links restore it."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from PIL import Image

import interp as ip
from analyses.checkpoint import explorer as analysis
from analyses.running.subject import Subject
from analyses.running.table import Table
from figures.page.explorer import page
from figures.running import cli
from interp.divergence import KL_FLOOR
from models.running.command_line import BadInput
from tests import tiny_zoo
from tests.figures.chromium import HEIGHT, WIDTHS

pytestmark = pytest.mark.xdist_group("explorer")

STATES = 50
TOLERANCE = 1e-6
COPY_WORDS = re.compile(r"puts ([\d.]+) on its lag (\d+) and ([\d.]+) on BOS")
LONG, MANY = 64, 5  # tokens and symbols of the largest pictures of the zoo
PHONE_HEIGHT = 844
BOXES = "all => all.map(one => { const b = one.getBoundingClientRect(); return [b.left, b.top, b.right, b.bottom]; })"
VOCAB, ORDER, LENGTH = tiny_zoo.VOCAB, tiny_zoo.ORDER, tiny_zoo.LENGTH
SHAPE = {"order": ORDER, "vocab": VOCAB}


@pytest.fixture(scope="module")
def zoo(tmp_path_factory):
    return tiny_zoo.plant(tmp_path_factory.mktemp("explorer") / "zoo", seeds=1)


def row_of(path):
    options = analysis.Options(batch=64, sequences=3, draws=64)
    subject = Subject.open(path, options)
    record = json.loads(json.dumps(analysis.analyse(subject, options).plain().rows[0]))
    return {"checkpoint": str(path), "subject": subject.summary(), **record}


@pytest.fixture(scope="module")
def rows(zoo):
    return [row_of(config.parent) for config in sorted(zoo.glob("*/*/*/T*_seed0/config.json"))]


@pytest.fixture(scope="module")
def long_row(tmp_path_factory):
    path = tmp_path_factory.mktemp("long") / f"hierarchical_bos/construction/free/T{LONG}_seed0"
    model = ip.construct(order=ORDER, vocab=MANY, length=LONG, beta=tiny_zoo.BETA, kappa=tiny_zoo.KAPPA)
    prior = {**tiny_zoo.HIERARCHICAL, "vocab": MANY}
    ip.save(model, path, training=tiny_zoo.training(prior, seed=0))
    return row_of(path)


@pytest.fixture(scope="module")
def file_with_long(rows, long_row, tmp_path_factory):
    return page_of([*rows, long_row], tmp_path_factory.mktemp("page_with_long"))


@pytest.fixture(scope="module")
def file(rows, tmp_path_factory):
    return page_of(rows, tmp_path_factory.mktemp("page"))


def page_of(rows, folder):
    return page.write(folder, Table(analysis=page.ANALYSIS, rows=rows, provenance={}), back="index.html")


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


def name_of(row):
    return "/".join(row["checkpoint"].split("/")[-4:])


def address(file, row):
    """A model on its first sequence."""
    return f"{file.resolve().as_uri()}#m={name_of(row)}&s=0"


def test_distributions_of_the_page_are_those_of_the_library_on_random_states(chromium, file, rows):
    """After typing a sequence or single letters, clicking tokens and sliding; the query that is kept stays."""
    rng = np.random.default_rng(0)
    row = next(row for row in rows if row["subject"]["family"] == "disentangled" and row["config"]["bos"])
    worst, moved = 0.0, 0.0
    with chromium.opened(address(file, row)) as tab:
        for state in range(STATES):
            beta, kappa, alpha = rng.uniform(-2, 12, size=ORDER), rng.uniform(-4, 14), rng.uniform(0.05, 5)
            tokens = rng.integers(VOCAB, size=LENGTH)
            query, clicked = int(rng.integers(LENGTH)), int(rng.integers(LENGTH))
            slide(tab, "query", query + 1)
            if state % 2:
                write_tokens(tab, tokens)
            else:
                tab.view.fill("#text", "".join(chr(97 + token) for token in tokens))
            tab.view.click(f'#strip button[data-place="{clicked}"]')
            tokens[clicked] = (tokens[clicked] + 1) % VOCAB
            before = laws_of(tab)["law"]
            for lag, value in enumerate(beta, start=1):
                slide(tab, f"beta-{lag}", value)
            slide(tab, "kappa", kappa)
            slide(tab, "alpha", alpha)
            assert tab.view.inner_text("#query-value") == str(query + 1)
            expected = library_laws(tokens[None], query, beta=beta, kappa=kappa, alpha=alpha)
            found = laws_of(tab)
            for name, law in expected.items():
                worst = max(worst, float(np.abs(found[name] - law).max()))
            moved = max(moved, float(np.abs(before - expected["law"]).max()))
        assert not tab.complaints
    assert worst < TOLERANCE
    assert moved > 0.1  # what the page said before the sliders moved is not what it says after


def test_means_are_over_the_stored_sequences(chromium, file, rows):
    for row in rows[:2]:
        tokens = torch.tensor([one["tokens"] for one in row["sequences"]])
        truth = torch.tensor([one["laws"][-1] for one in row["sequences"]])
        model = ip.load(row["checkpoint"]).double()
        ways = {"model": ip.predict(model, tokens), "maximum_likelihood": ip.maximum_likelihood(tokens, **SHAPE)}
        with chromium.opened(address(file, row)) as tab:
            for name, found in ways.items():
                said = float(tab.view.inner_text(f'tr[data-law="{name}"] .mean'))
                assert said == pytest.approx(ip.kl_divergence(truth, found.double()).mean, abs=1e-4)


def test_a_sequence_is_typed_as_text(chromium, file, rows):
    with chromium.opened(address(file, rows[0])) as tab:
        before = tab.view.evaluate("state.tokens")
        for text, said in (("abc", f"3 of {LENGTH} letters"), ("z" * LENGTH, "letters a to c only")):
            tab.view.fill("#text", text)
            assert tab.view.inner_text("#text-said") == said
            assert tab.view.evaluate("state.tokens") == before
        tab.view.fill("#text", " ".join("abc"[place % 3] for place in range(LENGTH)))
        tab.view.keyboard.press("Tab")
        assert tab.view.evaluate("state.tokens") == [place % 3 for place in range(LENGTH)]
        assert tab.view.input_value("#text") == ("abc" * LENGTH)[:LENGTH]


@pytest.mark.parametrize("kind", ["svg", "png"])
def test_pictures_are_saved(chromium, file, rows, kind, tmp_path):
    with chromium.opened(address(file, rows[0])) as tab:
        with tab.view.expect_download() as told:
            tab.view.click(f"#save-{kind}")
        told.value.save_as(tmp_path / f"both.{kind}")
        shown = tab.view.eval_on_selector_all("#model-picture text", "all => all.map(one => one.textContent)")
        assert not tab.complaints
    if kind == "png":
        with Image.open(tmp_path / "both.png") as picture:
            assert picture.width > 1500
            assert len(picture.convert("RGB").getcolors(1 << 20)) > 50
    else:
        saved = ElementTree.parse(tmp_path / "both.svg").getroot()
        texts = [one.text for one in saved.iter("{http://www.w3.org/2000/svg}text")]
        assert {"the model", "soft matching", *shown} <= set(texts)
        assert "var(" not in (tmp_path / "both.svg").read_text()


def library_laws(tokens, query, *, beta, kappa, alpha):
    """What `interp` says after this query; there each law is of all positions."""
    shape = {"order": ORDER, "vocab": VOCAB, "every_position": True}
    laws = {
        "law": ip.soft_matching(tokens, vocab=VOCAB, beta=beta, kappa=kappa, every_position=True),
        "unigram": ip.soft_matching(tokens, vocab=VOCAB, beta=(0.0,) * ORDER, every_position=True),
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
        assert ("arrows to BOS" in said) == any(bos > own and bos >= 0.02 for _, own, bos in numbers)
        if row["subject"]["family"] == "construction":
            assert [lag for lag, _, _ in numbers] == list(range(1, ORDER + 1))
            assert "arrows to BOS" not in said


def test_a_link_restores_the_state(chromium, file, rows):
    row = next(row for row in rows if row["subject"]["family"] == "construction")
    with chromium.opened(address(file, row)) as tab:
        slide(tab, "beta-1", 1.2345678901234)
        slide(tab, "kappa", -1 / 3)
        slide(tab, "query", 11)
        tab.view.select_option("#symbol", value="1")
        tab.view.click('#strip button[data-place="3"]')
        tab.view.mouse.move(0, 0)
        tab.until("location.hash === toHash(state)")
        link, law, model = tab.view.url, laws_of(tab)["law"], laws_of(tab)["model"]
        strip, formula = tab.view.inner_text("#strip"), tab.view.inner_text("#formula")
    with chromium.opened(link) as tab:
        assert tab.view.inner_text("#strip") == strip
        assert tab.view.inner_text("#formula") == formula
        np.testing.assert_allclose(laws_of(tab)["law"], law, atol=1e-12)
        np.testing.assert_allclose(laws_of(tab)["model"], model, atol=1e-12)
        assert tab.view.inner_text("#query-value") == "11"
    with chromium.opened(
        f"{file.resolve().as_uri()}#m=nothing&s=&q=99&b=x&k=1e9&n=z&x=zzz"
    ) as tab:  # nonsense is left at its start
        assert not tab.complaints
        assert len(laws_of(tab)["law"]) == VOCAB
        nonsense = tab.view.evaluate("state")
    with chromium.opened(file.resolve().as_uri()) as tab:
        assert tab.view.evaluate("state") == nonsense


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
    file = page_of(unfit, tmp_path)
    seen = set()
    for row in unfit:
        with chromium.opened(address(file, row)) as tab:
            about = tab.view.inner_text("#about")
            said = dict(re.findall(r"(beta_\d|kappa) = ([\d.]+)", about))
            sliders = {
                one["id"].replace("-", "_"): one["value"]
                for one in tab.view.eval_on_selector_all(
                    "#sliders input[type=range]", "all => all.map(one => ({id: one.id, value: Number(one.value)}))"
                )
            }
            spoken = tab.view.get_attribute("#beta-1", "aria-valuetext")
        assert {name: float(value) for name, value in said.items()} == pytest.approx(sliders)
        assert ("kappa" in said) == row["config"]["bos"]
        assert float(spoken) == sliders["beta_1"]
        seen.add(row["config"]["bos"])
    assert seen == {True, False}


@pytest.mark.parametrize("width", WIDTHS)
def test_ribbons_stay_in_the_panel_where_bos_has_all_attention(chromium, file, rows, width):
    row = next(row for row in rows if row["subject"]["family"] == "construction")
    with chromium.opened(address(file, row), width=width) as tab:
        settle(tab)
        slide(tab, "kappa", 18)
        ribbons = tab.view.eval_on_selector_all(
            "#law-picture .ribbon", "all => all.map(({dataset}) => [+dataset.from, +dataset.to, +dataset.wide])"
        )
        left, margin, right = tab.view.evaluate(
            "[LEFT, MARGIN, document.getElementById('law-picture').viewBox.baseVal.width]"
        )
    assert sum(wide for _, _, wide in ribbons) == pytest.approx(120, abs=1)  # all votes, nearly all of them from BOS
    assert max(wide for _, _, wide in ribbons) > 30
    for start, end, wide in ribbons:
        assert min(start, end) >= left - 0.1
        assert max(start, end) + wide <= right - margin + 0.1


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
                strokes = {stroke for stroke, words in drawn if f"of lag {lag}:" in words}
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
    """As it opens, and with every kind of token in the strip: early, query, later, changed."""
    with chromium.opened(file.resolve().as_uri(), width=width) as tab:
        tab.view.click("summary")
        for change in ("", f"change({{query: {LENGTH // 2}}}); setToken(3, 1 - state.tokens[3] % 2)"):
            tab.view.evaluate(change)
            for scheme in tab.in_each_scheme():
                assert tab.overflow() == 0, scheme
                assert tab.overlaps() == [], scheme
                assert tab.violations() == [], scheme
        assert tab.fetched() == []
        assert tab.complaints == []


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_overflows_or_overlaps_in_any_kind_of_state(chromium, file_with_long, rows, long_row, width):
    """Every model, the longest sequence, limits of the sliders, early queries, changed sequences."""
    states = ["", "&b=0,0&k=-6", "&b=14,14&k=32", "&b=50,-50&k=-50", "&q=0", f"&q={ORDER}&b=12,12"]
    with chromium.opened(file_with_long.resolve().as_uri(), width=width) as tab:
        settle(tab)
        for row in (*rows, long_row):
            length = row["config"]["length"]
            for state in (*states, f"&x={'ab' * (length // 2)}"):
                tab.view.evaluate("text => restart(fromHash(text))", f"#m={name_of(row)}&s=0{state}")
                assert tab.overflow() == 0, (row["checkpoint"], state)
                assert tab.overlaps() == [], (row["checkpoint"], state)
                assert picture_overlaps(tab) == [], (row["checkpoint"], state)
                assert not re.search("NaN|undefined|Infinity", tab.view.inner_text("body"))
        assert tab.complaints == []


def settle(tab):
    """Wait until the pictures have the width of their places."""
    tab.until("Math.abs(panelWidth - document.querySelector('.picture').clientWidth) < 1")


def picture_overlaps(tab):
    """Texts of a picture that lie on each other or outside it."""
    found = []
    for picture in ("#model-picture", "#law-picture"):
        outer = tab.view.eval_on_selector_all(picture, BOXES)[0]
        boxes = tab.view.eval_on_selector_all(f"{picture} text", BOXES)
        found += [box for box in boxes if box[0] < outer[0] - 1 or box[2] > outer[2] + 1 or box[3] > outer[3] + 1]
        for place, one in enumerate(boxes):
            for other in boxes[place + 1 :]:
                wide = min(one[2], other[2]) - max(one[0], other[0])
                tall = min(one[3], other[3]) - max(one[1], other[1])
                if wide > 1 and tall > 4:
                    found.append((one, other))
    return found


def test_pictures_are_on_the_first_screen_below_the_sliders(chromium, file_with_long, rows, long_row):
    """Whole in a wide window, side by side; their beginning on a phone."""
    for row in (rows[0], long_row):
        with chromium.opened(address(file_with_long, row)) as tab:
            settle(tab)
            model, law = tab.view.eval_on_selector_all(".picture svg", BOXES)
            sliders = tab.view.eval_on_selector_all("#sliders input, #strip", BOXES)
            assert max(bottom for *_, bottom in sliders) <= model[1]
            assert max(model[3], law[3]) <= HEIGHT
            assert model[1] == law[1]
            assert model[2] <= law[0]
            tab.resize(800)
            assert max(top for _, top, *_ in tab.view.eval_on_selector_all(".picture svg", BOXES)) < 0.7 * HEIGHT
            tab.view.set_viewport_size({"width": 390, "height": PHONE_HEIGHT})
            assert tab.view.eval_on_selector_all("#model-picture", BOXES)[0][1] < PHONE_HEIGHT


def test_it_opens_on_a_trained_model_where_soft_matching_leads(chromium, rows, tmp_path):
    """On the sequence with the largest lead over unigram and hard counter; of such models the sharpest copy heads."""
    fitted = {"beta": list(tiny_zoo.BETA), "kappa": tiny_zoo.KAPPA, "fit_success": True}
    for chosen, row in enumerate(rows):
        changed = [{**one, **fitted, "copy_mass": [0.9, 0.4]} for one in rows]
        changed[chosen]["copy_mass"] = [0.6, 0.5]
        with chromium.opened(page_of(changed, tmp_path).resolve().as_uri()) as tab:
            state = tab.view.evaluate("state")
        opened = next(one for one in rows if name_of(one) == state["model"])
        leads = {
            name_of(one): [lead_of(sequence, one["config"]["bos"]) for sequence in one["sequences"]] for one in rows
        }
        able = {name_of(one) for one in rows if one["subject"]["family"] != "construction" and one["config"]["bos"]
                and max(leads[name_of(one)]) > 0}  # fmt: skip
        assert able
        assert name_of(opened) in able
        assert (opened is row) == (name_of(row) in able)
        assert state["query"] == LENGTH - 1
        assert state["sequence"] == int(np.argmax(np.round(leads[name_of(opened)], 3)))


def lead_of(sequence, bos):
    """By how many nats soft matching is nearer to the truth than the unigram and the hard counter."""
    truth, tokens = torch.tensor([sequence["laws"][-1]]), [sequence["tokens"]]
    kappa = tiny_zoo.KAPPA if bos else None
    ways = ((tiny_zoo.BETA, kappa), ((0.0,) * ORDER, None), ((500.0,) * ORDER, None))
    laws = [ip.soft_matching(tokens, vocab=VOCAB, beta=beta, kappa=given) for beta, given in ways]
    soft, unigram, hard = (ip.kl_divergence(truth, law.double()).mean for law in laws)
    return min(unigram, hard) - soft


def law_attention(tokens, *, beta, kappa):
    """The masks of the keys, and the law's attention on BOS and on each of them."""
    masks = ip.match_masks([tokens], order=ORDER)[0].numpy()
    scores = np.where(masks < 0, -np.inf, sum((masks >> place & 1) * value for place, value in enumerate(beta)))
    weights = np.exp(np.concatenate([[kappa], scores]))
    return masks, weights / weights.sum()


def test_the_gap_between_model_and_law_is_their_total_variation(chromium, file, rows):
    beta, kappa = (1.0, 3.0), 0.5
    for row in (row for row in rows if row["config"]["bos"]):
        tokens = row["sequences"][0]["tokens"]
        model = ip.load(row["checkpoint"]).double()
        attention = ip.capture(model, torch.tensor([tokens])).match_pattern[0, 0, -1].numpy()
        prediction = ip.predict(model, torch.tensor([tokens]))[0].numpy()
        law = ip.soft_matching([tokens], vocab=VOCAB, beta=beta, kappa=kappa)[0].numpy()
        weights = law_attention(tokens, beta=beta, kappa=kappa)[1]
        with chromium.opened(f"{address(file, row)}&b=1,3&k=0.5") as tab:
            said = [float(one) for one in re.findall(r"\d\.\d+", tab.view.inner_text("#gap"))]
            ticks = tab.view.locator("#model-picture line.other").count()
            scale = tab.view.evaluate("panels()[0].scale")
        expected = [np.abs(attention - weights).sum() / 2, np.abs(prediction - law).sum() / 2]
        assert said == pytest.approx(expected, abs=6e-4)
        assert ticks == int((np.abs(attention - weights) / scale * 64 >= 1).sum())  # a pixel of 64


def test_formula_has_the_numbers_of_the_law_and_counts_are_those_of_the_library(chromium, file, rows):
    rng = np.random.default_rng(3)
    for row in (next(row for row in rows if row["config"]["bos"] is bos) for bos in (True, False)):
        with chromium.opened(address(file, row)) as tab:
            for _ in range(8):
                tokens, query = rng.integers(VOCAB, size=LENGTH), int(rng.integers(ORDER, LENGTH))
                beta, kappa = rng.uniform(-2, 14, size=ORDER), rng.uniform(-6, 32)
                symbol = int(rng.integers(VOCAB))
                write_tokens(tab, tokens)
                slide(tab, "query", query + 1)
                for lag, value in enumerate(beta, start=1):
                    slide(tab, f"beta-{lag}", value)
                if row["config"]["bos"]:
                    slide(tab, "kappa", kappa)
                tab.view.select_option("#symbol", value=str(symbol))
                name, over, under, shown = re.fullmatch(
                    r"T\(x\)\((.)\) = \((.+)\) / \((.+)\) = ([\d.]+)", tab.view.inner_text("#formula")
                ).groups()
                law = laws_of(tab)["law"]
                assert name == "abc"[symbol]
                assert float(shown) == pytest.approx(law[symbol], abs=6e-5)
                assert value_of(over) / value_of(under) == pytest.approx(law[symbol], rel=2e-3)
                counts = ip.mask_counts(tokens[None], order=ORDER, vocab=VOCAB, every_position=True)[0, query]
                for mask in range(2**ORDER):
                    cells = tab.view.locator(f'tr[data-mask="{mask}"] td').all_inner_texts()
                    assert [int(cell) for cell in cells[1:-1]] == [*counts[mask].tolist(), int(counts[mask].sum())]
                attention = tab.view.locator("tr[data-mask] td:last-child").all_inner_texts()
                assert sum(map(float, attention)) == pytest.approx(1, abs=3e-4)
            assert ("kappa" in tab.view.inner_text("#general")) == row["config"]["bos"]
            assert not tab.complaints


def value_of(terms):
    """A sum of products and quotients, as the page writes it."""
    total = 0.0
    for term in terms.split(" + "):
        first, times, over = re.fullmatch("([^ ]+)(?: \u00d7 ([^ ]+))?(?: / ([^ ]+))?", term).groups(default="1")
        total += float(first) * float(times) / float(over)
    return total


def test_buttons_set_the_sliders_next_to_the_limits(chromium, file, rows):
    limits = {"unigram": "unigram", "hard": "hard", "add-alpha": "add_alpha", "even": "uniform"}
    for row in rows:
        with chromium.opened(f"{address(file, row)}&a=0.7") as tab:
            fitted = tab.view.evaluate("[state.beta, state.kappa]")
            for button, limit in limits.items():
                shown = tab.view.is_visible(f"#{button}")
                assert shown == (row["config"]["bos"] or button in ("unigram", "hard"))
                if shown:
                    tab.view.click(f"#{button}")
                    laws = laws_of(tab)
                    assert np.abs(laws["law"] - laws[limit]).max() < 1e-3, button
                    distance = tab.view.inner_text(f'tr[data-law="{limit}"] .tv')
                    assert float(distance) == pytest.approx(np.abs(laws["law"] - laws[limit]).sum() / 2, abs=6e-5)
            tab.view.click("#fitted")
            assert tab.view.evaluate("[state.beta, state.kappa]") == fitted
            assert not tab.complaints


def test_a_number_can_be_typed_and_nonsense_changes_nothing(chromium, file, rows):
    row = next(row for row in rows if row["config"]["bos"])
    with chromium.opened(address(file, row)) as tab:
        tab.view.fill("#kappa-value", "-1.234")
        assert tab.view.input_value("#kappa-value") == "-1.234"  # left alone while someone types
        assert tab.view.evaluate("state.kappa") == -1.234
        assert float(tab.view.input_value("#kappa")) == pytest.approx(-1.234)
        tab.view.fill("#beta-1-value", "31.5")  # beyond the slider's own scale
        assert float(tab.view.input_value("#beta-1")) == 31.5
        for nonsense in ("", "1e9"):
            tab.view.fill("#kappa-value", nonsense)
            tab.view.keyboard.press("Tab")
            assert tab.view.evaluate("state.kappa") == -1.234
            assert tab.view.input_value("#kappa-value") == "-1.23"


def test_arrow_keys_in_a_picture_follow_a_key(chromium, file, rows):
    row = next(row for row in rows if row["config"]["bos"])
    with chromium.opened(address(file, row)) as tab:
        tab.view.focus("#law-picture >> xpath=..")
        tab.view.keyboard.press("Home")
        assert tab.view.inner_text("#key-words").startswith("BOS: attention")
        tab.view.keyboard.press("ArrowRight")
        assert tab.view.inner_text("#key-words").startswith("position 1, token")
        assert tab.view.locator("#law-picture g.dim").count() == LENGTH
        tab.view.keyboard.press("Escape")
        assert tab.view.locator("svg .dim").count() == 0


def test_another_model_keeps_the_sequence_with_its_changes_where_it_has_it(chromium, file, rows):
    one, other = (row for row in rows if row["config"]["bos"] and row["subject"]["family"] != "standard"
                  and row["subject"]["prior"] == "hierarchical")  # fmt: skip
    elsewhere = next(row for row in rows if row["subject"]["prior"] == "independent")
    with chromium.opened(f"{file.resolve().as_uri()}#m={name_of(one)}&s=2&q=9") as tab:
        tab.view.click('#strip button[data-place="3"]')
        tokens = tab.view.evaluate("state.tokens")
        tab.view.select_option("#model", value=name_of(other))
        state = tab.view.evaluate("state")
        assert (state["sequence"], state["query"], state["tokens"]) == (2, 9, tokens)
        assert state["beta"] == other["beta"]
        tab.view.select_option("#model", value=name_of(elsewhere))
        assert not tab.view.evaluate("edited()")
        assert tab.view.evaluate("state.query") == LENGTH - 1


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
    older = {key: value for key, value in rows[0].items() if key != "copy_lag"}
    with pytest.raises(BadInput, match="no copy_lag"):
        page.explorer([older], {})


def test_command_writes_the_page_from_results_and_refuses_results_that_are_not_there(rows, tmp_path, capsys):
    made = {"analysis": page.ANALYSIS, "rows": rows, "provenance": {}}
    (tmp_path / f"{page.ANALYSIS}.json").write_text(json.dumps(made))
    assert cli.main(["explorer", "--results", str(tmp_path), "--out", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.split() == [str(tmp_path / "out" / page.FILE)]
    assert cli.main(["explorer", "--results", str(tmp_path / "none"), "--out", str(tmp_path / "out")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_kl_of_the_page_is_the_librarys_also_where_a_law_has_zeros(chromium, file, rows):
    rng = np.random.default_rng(1)
    truths = rng.dirichlet(np.ones(4), size=20)
    truths[:5, 0] = 0.0
    truths /= truths.sum(-1, keepdims=True)
    laws = rng.dirichlet(np.ones(4), size=20)
    laws[::2, 1] = 0.0
    laws /= laws.sum(-1, keepdims=True)
    expected = ip.kl_divergence(torch.tensor(truths), torch.tensor(laws)).values.numpy()
    with chromium.opened(address(file, rows[0])) as tab:
        found = tab.view.evaluate(
            "([truths, laws]) => truths.map((truth, place) => klDivergence(truth, laws[place]))",
            [truths.tolist(), laws.tolist()],
        )
        said = tab.view.inner_text("#laws caption")
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert f"a floor of {KL_FLOOR:.6f}".rstrip("0") in said
