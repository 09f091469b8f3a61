"""The two schematic figures: every bar, mark and arrow is the number that the analysis found."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex

import interp as ip
from analyses.running.cache import Cache
from analyses.running.table import Table
from analyses.studies import circuit, prior_trees
from figures.paper import task_priors
from figures.parts import circuit_picture
from figures.parts.figure import load_figure
from figures.parts.panels import MissingPanel
from figures.parts.rows import where
from figures.parts.schematic import letter
from figures.running import drawing
from interp.plotting import OVERLAP_COLOURS
from interp.results import half_width, jsonable
from tests.figures.artists import assert_readable, drawn

BETA, KAPPA = (1.8, 0.7), 2.2


def rows_of(study: Table) -> list[dict]:
    return [jsonable(dict(row)) for row in study.rows]


@pytest.fixture(scope="module")
def trees():
    return rows_of(prior_trees.study(prior_trees.Options(draws=2000), Cache(None)))


@pytest.fixture(scope="module")
def row():
    """The circuit."""
    return rows_of(circuit.study(circuit.Options(beta=BETA, kappa=KAPPA, draws=2), Cache(None)))[0]


@pytest.fixture
def forest(trees):
    return drawn("task_priors", {"prior_trees": trees})


@pytest.fixture
def machine(row):
    return drawn("two_layer_circuit", {"circuit": [row]})


def panels(figure) -> dict:
    return {panel.get_label(): panel for panel in figure.axes[0].child_axes}


def labelled(figure) -> dict:
    return {patch.get_label(): patch for patch in figure.axes[0].patches}


def texts(figure) -> dict:
    return {text.get_gid(): text.get_text() for text in figure.findobj(plt.Text) if text.get_gid()}


# ---- task_priors


def test_bars_of_every_node_are_its_law_and_ticks_its_parents(forest, trees):
    found = panels(forest)
    nodes = {(row["prior"], row["name"]): row for row in trees if row["what"] == "node"}
    assert len(nodes) == 9 + 13
    for (prior, name), row in nodes.items():
        panel = found[f"{prior} {name}"]
        assert [bar.get_height() for bar in panel.containers[0]] == row["law"]
        assert [to_hex(bar.get_facecolor()) for bar in panel.containers[0]] == list(task_priors.SYMBOL_COLOURS)
        assert panel.get_ylim() == (0.0, 1.0)
        centre = [1 / 3] * 3 if row["parent"] is None else nodes[prior, row["parent"]]["law"]
        ticks = [segment[0][1] for segment in panel.collections[-1].get_segments()]
        assert ticks == pytest.approx(centre)


def test_correlations_are_drawn_with_their_errors(forest, trees):
    found = panels(forest)
    for prior in task_priors.PRIORS:
        pairs = {row["name"]: row for row in where(trees, prior=prior, what="pair")}
        rows = [pairs[name] for name in task_priors.PAIRS if name in pairs]
        panel = found[f"{prior} correlations"]
        (points,) = (line for line in panel.lines if line.get_gid() == "measured")
        (bars,) = panel.collections
        assert list(points.get_xdata()) == [row["correlation"] for row in rows]
        lengths = [np.ptp(segment[:, 0]) for segment in bars.get_segments()]
        assert lengths == pytest.approx([2 * half_width(row["stderr"], n=row["n"]) for row in rows])
        (exact,) = (line for line in panel.lines if line.get_label() == "exact")
        assert list(exact.get_xdata()) == [row["exact"] for row in rows]


@pytest.mark.parametrize("left", ["independent", "hierarchical"])
def test_missing_priors_are_noted(trees, left):
    with pytest.warns(MissingPanel, match="prior, k = 2"):
        assert_readable(drawn("task_priors", {"prior_trees": where(trees, prior=left)}))


# ---- two_layer_circuit


def test_arrows_are_as_wide_as_the_attention_and_coloured_by_overlap(machine, row):
    found = labelled(machine)
    law = ip.soft_matching([row["tokens"]], vocab=3, beta=BETA, kappa=KAPPA)[0].tolist()
    reaching: dict[int, list[tuple[float, float]]] = {symbol: [] for symbol in range(3)}
    masks = ip.match_masks([row["tokens"]], order=2)[0].tolist()
    unit = 1 / (np.exp(KAPPA) + sum(np.exp(np.dot(BETA, (mask & 1, mask >> 1))) for mask in masks if mask >= 0))
    for key in row["keys"]:
        position = key["position"]
        if key["kind"] == "early":
            assert not any(label.startswith(f"vote {position} ") for label in found)
            continue
        symbols = range(3) if position == 0 else [row["tokens"][position - 1]]
        for symbol in symbols:
            arrow = found[f"vote {position} {symbol}"]
            mask = masks[position - 1]
            closed = np.exp(KAPPA) / 3 if position == 0 else np.exp(np.dot(BETA, (mask & 1, mask >> 1)))
            width = arrow.get_linewidth() / 72 / circuit_picture.ATTENTION_INCHES
            assert width == pytest.approx(closed * unit, abs=1e-9)
            assert to_hex(arrow.get_edgecolor()) == OVERLAP_COLOURS[key["kind"]]
            end = arrow.get_path().vertices[-1, 0]
            reaching[symbol].append((end - arrow.get_linewidth() / 144, end + arrow.get_linewidth() / 144))
    for symbol, spans in reaching.items():  # side by side, without gaps, and together as wide as the probability
        spans.sort()
        assert [low for low, _ in spans[1:]] == pytest.approx([high for _, high in spans[:-1]])
        total = (spans[-1][1] - spans[0][0]) / circuit_picture.ATTENTION_INCHES
        assert total == pytest.approx(law[symbol], abs=1e-9)


def test_boxes_hold_the_tokens_and_what_is_copied(machine, row):
    words, boxes = texts(machine), labelled(machine)
    tokens = row["tokens"]
    assert [words[f"token {place}"] for place in range(13)] == ["BOS", *map(letter, tokens)]
    assert [words[f"value {place}"] for place in range(13)] == ["BOS", *map(letter, tokens)]
    for position in [*row["shown"], 12]:
        assert words[f"stack {position} own"] == letter(tokens[position - 1])
        for lag in (1, 2):
            assert words[f"stack {position} lag {lag}"] == letter(tokens[position - 1 - lag])
            arrow = boxes[f"copy {position} lag {lag}"]
            assert arrow.get_linewidth() == pytest.approx(circuit_picture.COPY_POINTS)  # all of its attention
            start = arrow.get_path().vertices[0]
            assert start[0] == pytest.approx(circuit_picture.column(position - lag), abs=1e-6)
    for key in row["keys"]:
        face = to_hex(boxes[f"value {key['position']}"].get_facecolor())
        assert face == ("#ffffff" if key["kind"] == "early" else OVERLAP_COLOURS[key["kind"]])
        assert float(words[f"weight {key['position']}"]) == pytest.approx(key["weight"], abs=6e-4)


def test_marks_say_which_lags_agree_and_compared_boxes_are_level(machine, row):
    words = texts(machine)
    tokens = row["tokens"]
    for position in row["shown"]:
        for lag in (1, 2):
            same = tokens[-lag] == tokens[position - 1 - lag]
            assert words[f"mark {position} lag {lag}"] == ("=" if same else "≠")
    counts = [sum(words[f"mark {place} lag {lag}"] == "=" for lag in (1, 2)) for place in row["shown"]]
    assert counts == [2, 1, 0]
    candidate, query = (circuit_picture.rows_of(row, place) for place in (row["shown"][0], 12))
    assert candidate[1:] == pytest.approx(query[:2])


def test_the_law_is_stacked_by_kind(machine, row):
    panel = panels(machine)["prediction"]
    for container in panel.containers:
        kind = container.get_label()
        assert [bar.get_height() for bar in container] == pytest.approx(row["votes"][kind])
        assert {to_hex(bar.get_facecolor()) for bar in container} == {OVERLAP_COLOURS[kind]}
    tops = [
        max(container[symbol].get_y() + container[symbol].get_height() for container in panel.containers)
        for symbol in range(3)
    ]
    law = ip.soft_matching([row["tokens"]], vocab=3, beta=BETA, kappa=KAPPA)[0].tolist()
    assert tops == pytest.approx(law)
    (truth,) = (lines for lines in panel.collections if lines.get_label() == "truth")
    assert [segment[0][1] for segment in truth.get_segments()] == pytest.approx(row["truth"])


def test_a_circuit_that_is_too_long_is_not_drawn(row):
    assert load_figure("two_layer_circuit").chosen({"circuit": [{**row, "length": 40}]}) == {"circuit": []}


# ---- both


CAPTIONS = {
    "task_priors": ("n = 2000", "alpha = 1:", "eta_0 = 1, eta_1 = 5 and eta_2 = 5"),
    "two_layer_circuit": ("beta_1 = 1.800", "kappa = 2.200 (as given)", "T = 12", "written a, b and c"),
}


@pytest.mark.parametrize("name", CAPTIONS)
def test_pictures_can_be_read_and_captions_have_the_settings(name, trees, row):
    results = {"prior_trees": trees} if name == "task_priors" else {"circuit": [row]}
    assert_readable(drawn(name, results))
    for part in CAPTIONS[name]:
        assert part in load_figure(name).caption(results)


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_saving_leaves_the_places_as_they_are(machine, suffix):
    """No layout engine may move what was placed in inches; a warning would be an error here."""
    with plt.style.context(drawing.STYLE):
        assert drawing.picture_bytes(machine, "pdf")
        assert drawing.picture_bytes(machine, suffix)
    assert tuple(machine.axes[0].get_position().bounds) == (0.0, 0.0, 1.0, 1.0)
