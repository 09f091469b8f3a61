"""Plotting primitives: the artists carry the numbers they were given, in the colours they stand for."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgb

from interp import plotting


@pytest.fixture
def ax():
    figure, axes = plt.subplots()
    yield axes
    plt.close(figure)


def test_bars_have_the_weights_as_heights_and_the_kinds_as_colours(ax):
    kinds = ["bos", "early", "full", "partial", "none"]
    weights = np.array([0.4, 0.0, 0.3, 0.2, 0.1])
    assert plotting.induction_bars(ax, weights, kinds, first_position=3) is ax
    bars = ax.containers[0]
    assert [bar.get_height() for bar in bars] == weights.tolist()
    assert [to_hex(bar.get_facecolor()) for bar in bars] == [plotting.OVERLAP_COLOURS[kind] for kind in kinds]
    assert [bar.get_x() + bar.get_width() / 2 for bar in bars] == pytest.approx([3, 4, 5, 6, 7])


def test_bars_refuse_what_they_cannot_colour(ax):
    with pytest.raises(ValueError, match="a kind for each of the 2 keys, got 1"):
        plotting.induction_bars(ax, np.array([0.5, 0.5]), ["full"])
    with pytest.raises(ValueError, match="unknown kind 'half'"):
        plotting.induction_bars(ax, np.array([1.0]), ["half"])


def test_kinds_follow_the_masks():
    masks = np.array([-1, -1, -1, 7, 5, 0, 1])
    kinds = ["early"] * 3 + ["full", "partial", "none", "partial"]
    assert plotting.key_kinds(masks, order=3, bos=False) == kinds
    assert plotting.key_kinds(masks, order=3, bos=True) == ["bos", *kinds]


def test_overlap_colours_are_the_papers_and_differ_in_lightness():
    assert list(plotting.OVERLAP_COLOURS) == ["full", "partial", "none", "bos", "early"]
    red, green, blue = to_rgb(plotting.OVERLAP_COLOURS["full"])
    assert red > 0.9 > green > 0.6 > blue  # yellow
    red, green, blue = to_rgb(plotting.OVERLAP_COLOURS["partial"])
    assert green == blue > red  # teal
    red, green, blue = to_rgb(plotting.OVERLAP_COLOURS["none"])
    assert red == green == blue  # grey
    luminance = sorted(np.dot([0.2126, 0.7152, 0.0722], to_rgb(c)) for c in plotting.OVERLAP_COLOURS.values())
    assert min(np.diff(luminance)) > 0.05


def test_legend_gives_the_masses_in_the_fixed_order():
    handles = plotting.overlap_handles({"none": 0.25, "full": 0.75})
    assert [handle.get_label() for handle in handles] == ["full match: 0.75", "no match: 0.25"]
    assert to_hex(handles[0].get_facecolor()) == plotting.OVERLAP_COLOURS["full"]


def test_heatmap_shows_the_pattern_and_hides_the_future(ax):
    pattern = np.tril(np.full((4, 4), 0.25))
    plotting.attention_heatmap(ax, pattern, first_position=1)
    shown = ax.images[0].get_array()
    assert np.array_equal(shown.mask, np.triu(np.ones((4, 4), dtype=bool), 1))
    assert np.array_equal(shown.filled(0.0), pattern)
    assert list(ax.images[0].get_extent()) == [0.5, 4.5, 4.5, 0.5]
    assert ax.images[0].norm.vmax == 1.0
    assert ax.get_xlabel()
    assert ax.get_ylabel()


def test_heatmap_of_the_last_query_alone_hides_nothing(ax):
    plotting.attention_heatmap(ax, np.array([[0.5, 0.25, 0.25]]), mark_last=True)
    assert not ax.images[0].get_array().mask.any()
    assert len(ax.lines) == 1


def test_score_heatmap_shows_the_scores_on_their_scale(ax):
    scores = np.array([[1.0, -np.inf, -np.inf], [-9e3, 2.0, -np.inf], [0.5, 3.0, -1.0]])
    assert plotting.score_heatmap(ax, scores, lowest=-1.0) is ax
    image = ax.images[0]
    assert np.array_equal(image.get_array().mask, np.triu(np.ones((3, 3), dtype=bool), 1))
    assert image.get_array().compressed().tolist() == [1.0, -9e3, 2.0, 0.5, 3.0, -1.0]
    assert image.get_clim() == (-1.0, 3.0)
    assert to_hex(image.to_rgba(np.array([-9e3]))[0]) == plotting.SHUT_OUT
    assert to_hex(image.to_rgba(np.array([-1.0]))[0]) != plotting.SHUT_OUT


def test_blocks_are_ruled_and_named(ax):
    matrix = np.zeros((6, 9))
    matrix[0, 3] = -2.0
    plotting.block_heatmap(ax, matrix, vocab=3)
    assert np.array_equal(ax.images[0].get_array(), matrix)
    assert ax.images[0].get_clim() == (-2.0, 2.0)
    upright = [line.get_xdata()[0] for line in ax.lines if line.get_xdata()[0] == line.get_xdata()[1]]
    assert upright == [2.5, 5.5]
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["$x_j$", "$x_{j-1}$", "$x_{j-2}$"]
    assert ax.get_yticks().tolist() == [1.0, 4.0]
    with pytest.raises(ValueError, match="no whole blocks of 4"):
        plotting.block_heatmap(ax, matrix, vocab=4)


def test_stems_reach_the_bias_and_clip_at_the_limit(ax):
    bias = np.array([0.0, 3.0, -1.0, -1e4])
    plotting.rpe_stem(ax, bias, limit=5.0)
    tips = [segment[1, 1] for segment in ax.collections[0].get_segments()]
    assert tips == [0.0, 3.0, -1.0, -5.0]
    markers = {line.get_marker(): line.get_xdata().tolist() for line in ax.lines if line.get_marker() in ("o", "v")}
    assert markers == {"o": [0, 1, 2], "v": [3]}


def test_kl_curves_carry_means_bands_and_names(ax):
    lengths = np.array([16, 32, 64])
    means = {"add 1": np.array([0.4, 0.3, 0.2]), "soft": np.array([0.3, np.nan, 0.1])}
    stderrs = {"add 1": np.array([0.01, 0.01, 0.15])}
    assert plotting.kl_curves(ax, lengths, means, stderrs=stderrs, colours={"soft": "#c1121f"}) is ax
    assert [line.get_label() for line in ax.lines] == ["add 1", "soft"]
    assert np.array_equal(ax.lines[1].get_ydata(), means["soft"], equal_nan=True)
    assert to_hex(ax.lines[1].get_color()) == "#c1121f"
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    band = ax.collections[0].get_paths()[0].vertices
    assert len(ax.collections) == 1
    assert band[:, 1].max() == pytest.approx(0.5)
    assert band[:, 1].min() == pytest.approx(0.02)  # 0.2 - 0.3 cannot be drawn: a decade below the curve
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["add 1", "soft"]
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["16", "32", "64"]


def test_names_at_the_ends_of_kl_curves_do_not_touch(ax):
    lengths = np.array([16, 32])
    means = {"a": np.array([0.4, 0.2]), "b": np.array([0.4, 0.201]), "c": np.array([0.9, np.nan])}
    plotting.kl_curves(ax, lengths, means, labels="ends")
    assert ax.get_legend() is None
    at = {text.get_text(): text for text in ax.texts}
    assert set(at) == {"a", "b", "c"}
    assert at["c"].xy == (16, 0.9)  # its last known point
    height = {name: text.get_window_extent(ax.figure.canvas.get_renderer()) for name, text in at.items()}
    assert height["b"].y0 >= height["a"].y0 + 9 * ax.figure.dpi / 72
    assert to_hex(at["b"].get_color()) == to_hex(ax.lines[1].get_color())


@pytest.mark.parametrize(
    ("means", "stderrs", "labels", "message"),
    [
        ({}, None, "legend", "no curve"),
        ({"a": np.array([0.1])}, None, "legend", r"shape \(1,\), expected \(2,\)"),
        ({"a": np.array([0.1, 0.0])}, None, "legend", "must be > 0"),
        ({"a": np.array([0.1, 0.2])}, {"b": np.array([0.1, 0.2])}, "legend", "a curve 'b' that means do not have"),
    ],
)
def test_kl_curves_refuse_what_cannot_be_drawn(ax, means, stderrs, labels, message):
    with pytest.raises(ValueError, match=message):
        plotting.kl_curves(ax, np.array([16, 32]), means, stderrs=stderrs, labels=labels)
