"""The figures of attention: what is drawn is what was measured."""

from __future__ import annotations

import copy
import json
import math

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex

import interp as ip
from analyses.checkpoint.attention import readings
from analyses.running import plan
from figures.paper import mech_indep
from figures.parts import attention as panels
from figures.parts.figure import load_figure
from figures.parts.panels import MissingPanel
from interp.plotting import OVERLAP_COLOURS, attention
from models.families.registry import PAPER
from tests import tiny_zoo
from tests.figures.artists import assert_readable, drawn

ANALYSES = ("attention", "construction_attention")
PAGES = {
    "nobos_construction_fixed": False,
    "nobos_construction_adaptive": False,
    "nobos_trained": True,
    "bos_construction": True,
    "bos_trained": True,
}
FIGURES = (
    "mech_main",
    "mech_indep",
    *PAGES,
    "hier_layer2_wa",
    "hier_layer2_attn",
    "hier_layer1_attn",
    "hier_induction",
)
FIELDS = ("copy_bias", "match_bias", "match_weight", "copy_pattern", "match_scores", "match_pattern")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    zoo = tiny_zoo.plant(tmp_path_factory.mktemp("zoo"), seeds=1)
    asks = {name: tiny_zoo.tiny_asks()[name] for name in ANALYSES}
    run = plan.run_plan(asks, zoo=zoo, cache=tmp_path_factory.mktemp("cache"), jobs=1)
    return {name: document.rows for name, document in run.tables.items()}


def family(results, name: str):
    (row,) = [
        row
        for row in results["attention"]
        if row["subject"]["family"] == name and row["subject"]["prior"] == "hierarchical"
    ]
    return row


def images(figure) -> list[np.ndarray]:
    """What the heatmaps hold, colour bars aside."""
    return [ax.images[0].get_array().filled(0.0) for ax in figure.axes if ax.images]


def bar_panels(figure):
    return [ax for ax in figure.axes if ax.containers]


def assert_bars(ax, row) -> None:
    bars = ax.containers[0]
    assert [bar.get_height() for bar in bars] == row["weights"]
    assert [to_hex(bar.get_facecolor()) for bar in bars] == [OVERLAP_COLOURS[kind] for kind in row["kinds"]]
    # Token t stands at position t, BOS at 0.
    assert bars[0].get_x() + bars[0].get_width() / 2 == pytest.approx(0 if row["kinds"][0] == "bos" else 1)
    assert ax.get_ylim()[1] > max(row["weights"])
    shares = [text.get_text() for text in ax.get_legend().get_texts()]
    assert shares == [panels.share_text(share) for share in panels.shown_masses(row).values()]
    assert all(kind in panels.shown_masses(row) for kind, share in row["mass"].items() if share >= 0.005)
    assert all(place == int(place) for place in ax.get_xticks())


def words_of(figure) -> str:
    return " ".join(text.get_text() for text in figure.findobj(plt.Text) if text.get_visible())


def read_again(row):
    """The row with its readings taken from what was changed in it."""
    return {**row, **readings(row, order=panels.order_of(row), vocab=panels.vocab_of(row))}


def swapped(row):
    """The same model with its two copy heads exchanged, and the blocks they write."""
    vocab = row["subject"]["vocab"]
    index = np.r_[0:vocab, 2 * vocab : 3 * vocab, vocab : 2 * vocab]
    other = copy.deepcopy(row)
    for field in ("copy_pattern", "copy_scores", "copy_bias"):
        other[field] = other[field][::-1]
    other["match_weight"] = np.array(row["match_weight"])[np.ix_(index, index)].tolist()
    return read_again(other)


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_can_be_read_and_redrawn_from_its_numbers(name, results):
    module = load_figure(name)
    chosen = module.chosen(results)
    json.dumps(chosen, allow_nan=False)
    assert set(chosen) == set(module.ANALYSES)
    assert f"T = {tiny_zoo.LENGTH}" in module.caption(chosen)
    assert_readable(drawn(name, results))


def below_best(scores) -> np.ndarray:
    values = np.array(scores, dtype=np.float64)
    expected = np.full_like(values, np.nan)
    for query in range(len(values)):
        best = max(values[query, : query + 1])
        for key in range(query + 1):
            expected[query, key] = max(values[query, key] - best, -panels.SCORE_RANGE)
    return expected


def test_mech_main_shows_the_scores_by_lag_the_blocks_and_the_bars(results):
    figure = drawn("mech_main", results)
    rows = [family(results, name) for name in PAPER]
    shown = images(figure)
    # Three rows of three families, then the two matrices.
    for place in range(2):
        for column, row in enumerate(rows):
            head = panels.by_lag(row)[place]["head"]
            expected = below_best(row["copy_scores"][head])
            assert np.array_equal(shown[3 * place + column], np.nan_to_num(expected))
    for column, row in enumerate(rows):
        expected = below_best(row["match_scores"])
        assert np.array_equal(shown[6 + column], np.nan_to_num(expected))
    for matrix, row in zip(shown[9:], rows[:2], strict=True):
        assert np.array_equal(matrix, np.array(row["match_weight"]))  # planted heads are in order
    for ax, row in zip(bar_panels(figure), rows, strict=True):
        assert_bars(ax, row)


def test_a_planted_construction_is_drawn_as_its_closed_form(results):
    row = family(results, "construction")
    masks = ip.match_masks([row["tokens"]], order=2)[0].tolist()
    scores = [tiny_zoo.KAPPA]
    for mask in masks:
        scores.append(-math.inf if mask < 0 else sum(b for lag, b in enumerate(tiny_zoo.BETA) if mask >> lag & 1))
    total = sum(math.exp(score) for score in scores)
    expected = [math.exp(score) / total for score in scores]
    bars = bar_panels(drawn("hier_induction", results))[0].containers[0]
    assert [bar.get_height() for bar in bars] == pytest.approx(expected, rel=1e-5, abs=1e-12)
    blocks = images(drawn("hier_layer2_wa", results))[0]
    closed = np.zeros((9, 9))
    closed[0:3, 3:6], closed[3:6, 6:9] = (beta * np.eye(3) for beta in tiny_zoo.BETA)
    assert np.array_equal(blocks, closed)
    lags = images(drawn("hier_layer1_attn", results))
    for place in (0, 1):  # construction in the first of three columns
        assert np.allclose(np.diagonal(lags[3 * place], -(place + 1)), 1.0)


def test_heads_are_ordered_by_the_lag_they_copy(results):
    rows = results["attention"]
    other = {"attention": [row if row["match_weight"] is None else swapped(row) for row in rows]}
    for name in ("mech_main", "hier_layer1_attn", "hier_layer2_wa"):
        before, after = drawn(name, results), drawn(name, other)
        assert all(np.array_equal(one, two) for one, two in zip(images(before), images(after), strict=True))
    panel = drawn("hier_layer1_attn", other).axes[0]
    assert panel.texts[0].get_text() == "head 1\nlag 1: 1.00"
    row = family(other, "construction")
    assert [(one["head"], one["lag"]) for one in panels.by_lag(row)] == [(1, 1), (0, 2)]


def test_blocks_are_not_named_by_lags_that_no_head_copies(results):
    both = copy.deepcopy(family(results, "construction"))
    both["copy_pattern"][1] = both["copy_pattern"][0]
    both = read_again(both)
    with pytest.warns(MissingPanel, match="disentangled"):
        figure = drawn("hier_layer2_wa", {"attention": [both]})
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["token", "head 0", "head 1"]


def test_one_missing_family_is_a_note_and_the_rest_is_drawn(results):
    rest = {"attention": [row for row in results["attention"] if row["subject"]["family"] != "standard"]}
    for name, pictures in (("mech_main", 8), ("hier_layer2_attn", 4), ("hier_layer1_attn", 4)):
        with pytest.warns(MissingPanel, match="^panel left out: standard model, hierarchical prior with BOS$"):
            figure = drawn(name, rest)
        assert len(images(figure)) == pictures
        assert_readable(figure)


def test_every_bar_that_can_be_seen_has_a_legend_entry(results):
    row = copy.deepcopy(family(results, "construction"))
    early = row["kinds"].index("early")
    assert "early" not in panels.shown_masses(row)
    row["weights"][early] = row["mass"]["early"] = 0.5 * attention.LEAST_MASS
    share = row["weights"][early] / max(row["weights"])
    assert ("early" in panels.shown_masses(row)) == (share >= attention.LEAST_HEIGHT)
    row["weights"][early] = attention.LEAST_HEIGHT * max(row["weights"])
    assert "early" in panels.shown_masses(row)
    assert panels.share_text(row["mass"]["early"]) == "<0.01"


@pytest.mark.parametrize("name", ["mech_main", "hier_layer1_attn", "nobos_trained"])
def test_captions_say_how_training_started(name, results):
    module = load_figure(name)
    started = copy.deepcopy(results)
    for row in started["attention"]:
        row["subject"]["init"] = {"standard": "copy(3)"}.get(row["subject"]["family"], "random(0.3)")
        if not row["subject"]["bos"]:
            row["subject"]["init"] = "copy(5)"
    caption = module.caption(module.chosen(started))
    trained = "disentangled copy(5)" if name == "nobos_trained" else "disentangled random(0.3); standard copy(3)"
    assert caption.endswith(f"Start of training: {trained} (copy(c): a bias of c on each copy head's lag).")
    assert "disentangled not recorded" in module.caption(module.chosen(results))


def test_hier_layer2_attn_shows_scores_above_weights(results):
    figure = drawn("hier_layer2_attn", results)
    rows = [family(results, name) for name in PAPER]
    above, below = images(figure)[:3], images(figure)[3:]
    for shown, row in zip(above, rows, strict=True):
        assert np.array_equal(shown, np.nan_to_num(below_best(row["match_scores"])))
    for shown, row in zip(below, rows, strict=True):
        assert np.array_equal(shown, np.array(row["match_pattern"]))
    # One scale for all families, whatever their early keys score.
    pictures = [image for ax in figure.axes for image in ax.images][:3]
    assert [image.get_clim() for image in pictures] == [(-panels.SCORE_RANGE, 0.0)] * 3


@pytest.mark.parametrize("name", PAGES)
def test_a_page_shows_biases_blocks_attention_and_bars(name, results):
    module = load_figure(name)
    ((row,),) = module.chosen(results).values()
    figure = drawn(name, results)
    assert set(FIELDS) <= set(row)
    weights, first, second, match = images(figure)
    assert np.array_equal(weights, np.array(row["match_weight"]))
    assert np.array_equal(first, np.array(row["copy_pattern"][0]))
    assert np.array_equal(second, np.array(row["copy_pattern"][1]))
    expected = np.nan_to_num(below_best(row["match_scores"])) if PAGES[name] else np.array(row["match_pattern"])
    assert np.array_equal(match, expected)
    assert f"match, {'before' if PAGES[name] else 'after'} softmax" in words_of(figure)
    (bars,) = bar_panels(figure)
    assert_bars(bars, row)
    stems = [ax for ax in figure.axes if ax.collections and not ax.images and ax.get_xlabel() == "distance $i - j$"]
    for ax, bias in zip(stems, [*row["copy_bias"], row["match_bias"]], strict=True):
        heights = {float(segment[0, 0]): float(segment[1, 1]) for segment in ax.collections[0].get_segments()}
        ordinary = {place: value for place, value in enumerate(bias) if abs(value) < panels.FORBIDDEN}
        assert {place: heights[place] for place in ordinary} == pytest.approx(ordinary)
        for place, value in enumerate(bias):
            if abs(value) >= panels.FORBIDDEN:  # an arrow head at the edge, with the value beside it
                assert abs(heights[place]) < abs(value)
                assert math.copysign(1, heights[place]) == math.copysign(1, value)
                assert any(text.get_text().replace(" ", "")[-5:].isdigit() for text in ax.texts)


def test_mech_indep_draws_five_models(results):
    rows = mech_indep.rows_of(load_figure("mech_indep").chosen(results))
    order = ("hard", "adaptive", "nobos_trained", "bos", "bos_trained")
    for ax, name in zip(bar_panels(drawn("mech_indep", results)), order, strict=True):
        assert_bars(ax, rows[name])


def of_both_starts(results):
    """The rows as from soft starts, and beside them trained models from hard copies, whose weights are half of it."""
    rows = copy.deepcopy(results["attention"])
    trained = [row for row in rows if row["subject"]["family"] != "construction"]
    for row in trained:
        row["subject"] |= {"start": "soft", "init": "random(0.3)"}
    hard = copy.deepcopy(trained)
    for row in hard:
        row["subject"] |= {"start": "hard", "init": "copy(40)"}
        if row["match_weight"] is not None:
            row["match_weight"] = (np.array(row["match_weight"]) / 2).tolist()
    return {"attention": [*rows, *hard]}


def test_the_hard_start_has_the_papers_place(results):
    both = of_both_starts(results)
    soft = np.array(family(results, "disentangled")["match_weight"])
    for name, places in (("hier_layer2_wa", (1, 2)), ("mech_main", (10, 14))):
        shown = images(drawn(name, both))
        assert all(np.array_equal(shown[at], one) for at, one in zip(places, (soft / 2, soft), strict=True))
        assert_readable(drawn(name, both))
    titles = [ax.get_title("left") for ax in drawn("hier_layer1_attn", both).axes if ax.get_title("left")]
    trained = [f"{name},\n{start} start" for name in PAPER[1:] for start in ("hard", "soft")]
    assert titles == ["construction", *trained]
    assert len(bar_panels(drawn("mech_main", both))) == 5


def test_families_are_compared_at_one_length_and_one_protocol(results):
    rows = copy.deepcopy(results["attention"])
    longer = copy.deepcopy(family(results, "construction"))
    longer["subject"]["length"] = 128
    paper = copy.deepcopy(family(results, "standard"))
    paper["subject"] |= {"length": 128, "protocol": "paper"}
    found = panels.of_families([*rows, longer, paper], 128)
    assert [row["subject"]["family"] for row in found] == ["construction"]
    found = panels.of_families([*rows, longer, paper], 16)
    assert [row["subject"]["family"] for row in found] == list(PAPER)
