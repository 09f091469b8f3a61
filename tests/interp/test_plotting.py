"""Plotting primitives: the artists carry the numbers they were given, in the colours they stand for."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import Normalize, to_hex

from interp import plotting


@pytest.fixture
def ax():
    figure, axes = plt.subplots()
    yield axes
    plt.close(figure)


def test_many_tokens_are_counted_instead(ax):
    plotting.induction_bars(ax, np.full(400, 1 / 400), ["none"] * 400, tokens=["0"] * 400)
    assert len(ax.get_xticks()) < 40
    assert ax.get_xlabel() == "key position"


def test_kinds_with_nothing_to_see_need_no_legend():
    weights = np.array([0.5, 0.496, 0.004, 0.0])
    kinds = ["full", "partial", "none", "early"]
    masses = dict(zip(kinds, weights.tolist(), strict=True)) | {"bos": 0.0}
    assert list(plotting.visible_masses(weights, kinds, masses)) == ["full", "partial"]
    weights[2] = 0.01 * 1.01  # its bar can be seen, though its share rounds to 0.01
    assert list(plotting.visible_masses(weights, kinds, masses)) == ["full", "partial", "none"]


def test_legend_gives_the_masses_in_the_fixed_order():
    handles = plotting.overlap_handles({"none": 0.25, "full": 0.75, "early": 0.001})
    assert [handle.get_label() for handle in handles] == ["full match: 0.75", "no match: 0.25", "early key: <0.01"]
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


def test_scores_below_the_scale_are_red(ax):
    scores = np.array([[1.0, -np.inf, -np.inf], [-9e3, 2.0, -np.inf], [0.5, 3.0, -1.0]])
    plotting.attention_heatmap(ax, scores, norm=Normalize(-1.0, 3.0))
    image = ax.images[0]
    assert np.array_equal(image.get_array().mask, np.triu(np.ones((3, 3), dtype=bool), 1))
    assert image.get_array().compressed().tolist() == [1.0, -9e3, 2.0, 0.5, 3.0, -1.0]
    assert image.get_clim() == (-1.0, 3.0)
    assert to_hex(image.to_rgba(np.array([-9e3]))[0]) == plotting.SHUT_OUT
    assert to_hex(image.to_rgba(np.array([-1.0]))[0]) != plotting.SHUT_OUT


def test_blocks_are_ruled_and_named(ax):
    matrix = np.zeros((6, 9))
    matrix[0, 3], matrix[2, 1], matrix[5, 8], matrix[4, 4] = -2.0, -0.5, -0.01, 2.0
    plotting.block_heatmap(ax, matrix, vocab=3)
    (dashes,) = [
        one for one in ax.collections if one.get_gid() == "negative"
    ]  # both ends of the scale are dark in grey
    assert [segment.mean(axis=0).tolist() for segment in dashes.get_segments()] == [[3.0, 0.0], [1.0, 2.0]]
    assert np.array_equal(ax.images[0].get_array(), matrix)
    assert ax.images[0].get_clim() == (-2.0, 2.0)
    upright = [line.get_xdata()[0] for line in ax.lines if line.get_xdata()[0] == line.get_xdata()[1]]
    assert upright == [2.5, 5.5]
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["$x_j$", "$x_{j-1}$", "$x_{j-2}$"]
    assert ax.get_yticks().tolist() == [1.0, 4.0]


def test_pairs_are_coloured_numbered_and_framed(ax):
    values = np.array([[0.001, 2.5], [np.nan, -0.004]])
    plotting.pair_heatmap(ax, values, np.full((2, 2), 0.02))
    image = ax.images[0]
    assert np.array_equal(image.get_array().filled(np.nan), values, equal_nan=True)
    assert image.get_clim() == (-2.5, 2.5)
    words = {(int(text.get_position()[1]), int(text.get_position()[0])): text.get_text() for text in ax.texts}
    assert words == {(0, 0): "0.00\n±0.02", (0, 1): "2.50\n±0.02", (1, 1): "0.00\n±0.02"}
    assert [frame.get_xy() for frame in ax.patches] == [(0.5, -0.5)]
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["$x_t$", "$x_{t-1}$"]
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["$x_s$", "$x_{s-1}$"]


def test_shares_show_their_test_where_they_are_heavy(ax):
    shares = np.array([[0.01, 0.9], [0.05, 0.04]])
    plotting.share_heatmap(ax, shares, p_values=np.array([[1.0, 0.008], [0.5, 1.0]]))
    assert np.array_equal(ax.images[0].get_array(), shares)
    assert [text.get_text() for text in ax.texts] == ["1.0%", "90%\np=.008", "5%\np=.500", "4.0%"]


@pytest.mark.parametrize("across", [False, True])
def test_estimates_are_points_with_intervals(ax, across):
    values, reach = np.array([1.0, np.nan, np.inf, -2.0]), np.array([0.1, 0.1, 0.1, np.nan])
    plotting.estimate_points(ax, ["a", "b", "c", "d"], values, reach, filled=[True, True, True, False], across=across)
    points = [container.lines[0] for container in ax.containers]
    along, other = ("get_xdata", "get_ydata") if across else ("get_ydata", "get_xdata")
    assert [getattr(point, along)()[0] for point in points] == [1.0, -2.0]
    assert [getattr(point, other)()[0] for point in points] == [0, 3]
    (bars,) = ax.containers[0].lines[2]
    ends = bars.get_segments()[0][:, 0 if across else 1]
    assert ends.tolist() == pytest.approx([0.9, 1.1])
    assert ax.containers[1].lines[2] == ()  # an error that is not known is not drawn
    assert points[1].get_markerfacecolor() == "white"
    assert [text.get_text() for text in ax.texts] == ["1", "\N{INFINITY}", "-2"]
    names = ax.get_yticklabels() if across else ax.get_xticklabels()
    assert [name.get_text() for name in names] == ["a", "b", "c", "d"]


@pytest.mark.parametrize("across", [False, True])
def test_grouped_bars_stand_side_by_side(ax, across):
    series = {"edit": np.array([1.0, -2.0, np.nan]), "control": np.array([0.5, np.nan, 0.25])}
    plotting.grouped_bars(
        ax,
        ["a", "b", "c"],
        series,
        reach={"edit": np.array([0.1, np.nan, 0.1])},
        colours={"edit": ["#ff0000", "#00ff00", "#0000ff"], "control": "#bdbdbd"},
        across=across,
    )
    bars = {one.get_label(): one for one in ax.containers if hasattr(one, "patches")}
    length = "get_width" if across else "get_height"
    assert [getattr(bar, length)() for bar in bars["edit"]] == [1.0, -2.0]  # the gap is no bar
    assert [getattr(bar, length)() for bar in bars["control"]] == [0.5, 0.25]
    assert [to_hex(bar.get_facecolor()) for bar in bars["edit"]] == ["#ff0000", "#00ff00"]
    edge, width = ("get_y", "get_height") if across else ("get_x", "get_width")
    places = [[getattr(bar, edge)() + getattr(bar, width)() / 2 for bar in bars[name]] for name in ("edit", "control")]
    assert places[0] == pytest.approx([-0.2, 0.8])
    assert places[1] == pytest.approx([0.2, 2.2])
    assert places[1] == pytest.approx([plotting.bar_centre(name, place=1, count=2) for name in (0, 2)])
    (errors,) = bars["edit"].errorbar.lines[2]
    reach = [abs(segment[1, 0 if across else 1] - segment[0, 0 if across else 1]) for segment in errors.get_segments()]
    assert reach == pytest.approx([0.2, 0.0])


def test_a_heading_is_wrapped_and_a_doubt_is_red(ax):
    plotting.heading(ax, "a title")
    assert ax.get_title(loc="left") == "a title"
    plotting.heading(ax, "a title", doubt="not to be trusted: " + "so many reasons " * 8)
    lines = ax.get_title(loc="left").splitlines()
    assert lines[0] == "a title"
    assert len(lines) > 2
    assert " ".join(lines[1:]).startswith("not to be trusted: so many reasons")
    assert to_hex(ax.title.get_color()) != plotting.SHUT_OUT
    assert to_hex(ax._left_title.get_color()) == plotting.SHUT_OUT
    ax.figure.draw_without_rendering()
    assert ax._left_title.get_window_extent().x1 <= 1.02 * ax.get_window_extent().x1


def test_stems_reach_the_bias_and_clip_at_the_limit(ax):
    bias = np.array([0.0, 3.0, -1.0, -1e4])
    plotting.rpe_stem(ax, bias, limit=5.0)
    tips = [segment[1, 1] for segment in ax.collections[0].get_segments()]
    assert tips == [0.0, 3.0, -1.0, -5.0]
    markers = {line.get_marker(): line.get_xdata().tolist() for line in ax.lines if line.get_marker() in ("o", "v")}
    assert markers == {"o": [0, 1, 2], "v": [3]}


@pytest.mark.parametrize("across", [False, True])
def test_a_curve_has_its_intervals_as_bars(ax, across):
    line = plotting.curve(ax, [1, 2, 3], [0.5, None, 0.7], reach=[0.1, 0.1, np.nan], across=across, color="#c1121f")
    assert line.get_ydata().tolist() == pytest.approx([0.5, np.nan, 0.7], nan_ok=True)
    (bars,) = ax.collections
    assert to_hex(bars.get_color()[0]) == "#c1121f"
    spans = [segment.tolist() for segment in bars.get_segments() if len(segment)]
    assert spans == [[[0.9, 0.5], [1.1, 0.5]] if across else [[1.0, 0.4], [1.0, 0.6]]]


def imports_of_plotting(node, function=None):
    """The functions in which a module imports `interp.plotting`; None stands for the module itself."""
    found = []
    for child in ast.iter_child_nodes(node):
        inside = child.name if isinstance(child, ast.FunctionDef) else function
        names = [one.name for one in child.names] if isinstance(child, (ast.Import, ast.ImportFrom)) else []
        if isinstance(child, ast.ImportFrom):
            names = [f"{child.module}.{name}" for name in names]
        found += [inside for name in names if name.startswith("interp.plotting")]
        found += imports_of_plotting(child, inside)
    return found


def test_no_number_depends_on_a_picture():
    """Only `.plot()` methods import this package: a change of colours cannot change a result."""
    root = Path(plotting.__file__).parent.parent.parent
    files = [file for name in ("interp", "models", "analyses") for file in (root / name).rglob("*.py")]
    outside = [file for file in files if file.parent.name != "plotting"]
    used = [name for file in outside for name in imports_of_plotting(ast.parse(file.read_text(encoding="utf-8")))]
    assert len(used) > 10
    assert set(used) <= {"plot", "draw", "_panel"}  # the parts of a `.plot()`
    guilty = (
        "import interp.plotting\ndef f():\n    from interp import plotting\n    from interp.plotting.panel import panel"
    )
    assert imports_of_plotting(ast.parse(guilty)) == [None, "f", "f"]


def test_reading_the_library_loads_no_matplotlib():
    code = "import sys, interp.instruments.causal, interp.results; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.strip() == "False", done.stderr
