"""The map of the excess over Bayes: what it counts, that the excess is the difference of two KLs, and its picture."""

from __future__ import annotations

import json

import matplotlib.pyplot as plt
import numpy as np
import pytest

from analyses.parts.excess_grid import ExcessWorld, excess_worlds, measure_excess, seen_before, visit_names
from analyses.parts.world_grid import shipped_table
from analyses.running.cli import main
from analyses.studies import excess_map
from figures.beyond import excess_map as figure
from figures.running import drawing
from interp.chains.priors import HierarchicalDirichlet
from interp.divergence import kl_divergence
from interp.estimators.bayes import bayes_predictive
from interp.estimators.soft_matching import soft_matching
from interp.results import mean_stderr
from tests import reference
from tests.figures.artists import assert_readable


def test_visits_and_suffixes_by_definition():
    order, vocab = 2, 3
    tokens = HierarchicalDirichlet(order=order, vocab=vocab, eta=(2.0, 2.0)).sample(batch=40, length=12, seed=3).tokens
    visits, longest = seen_before(tokens.numpy(), order=order)
    for row, x in enumerate(tokens.tolist()):
        masks = [reference.match_mask(x, t=12, s=s, k=order) for s in reference.candidates(12, order)]
        assert visits[row] == sum(mask == frozenset({1, 2}) for mask in masks)
        suffixes = [j for j in range(order + 1) if any(set(range(1, j + 1)) <= mask for mask in masks)]
        assert longest[row] == max(suffixes)


def test_the_bins_cover_all_visits():
    assert visit_names() == ["0", "1", "2-3", "4-7", "8+"]


@pytest.fixture(scope="module")
def row():
    return measure_excess(ExcessWorld(order=1, vocab=3, eta=5.0, length=20), sequences=200)


def test_shares_are_shares(row):
    names = visit_names()
    assert sum(row[f"queries_{name}"] for name in names) == pytest.approx(1.0)
    assert sum(row[f"excess_{name}"] for name in names) == pytest.approx(1.0)
    assert sum(row[f"at_suffix_{length}"] for length in range(4)) == pytest.approx(1.0)
    assert 0 < row["bias"] < row["excess"]
    assert row["share"] == pytest.approx(row["excess"] / row["kl_bayes"])


def test_the_excess_is_the_difference_of_two_divergences():
    """KL(Bayes || q) has the expectation of KL(truth || q) - KL(truth || Bayes); a worse q has more of it."""
    prior = HierarchicalDirichlet(order=1, vocab=3, eta=(5.0,))
    chains = prior.sample(batch=2000, length=20, seed=1)
    bayes = bayes_predictive(chains.tokens, prior=prior, draws=80, seed=2).mean
    found = []
    for beta in (2.0, 0.5):
        soft = soft_matching(chains.tokens, vocab=3, beta=(beta,), kappa=2.0)
        here = kl_divergence(bayes, soft).values
        apart = kl_divergence(chains.next_law, soft).values - kl_divergence(chains.next_law, bayes).values
        mean, error = mean_stderr((here - apart).numpy())
        assert abs(mean) < 4 * error
        found.append(float(here.mean()))
    assert found[1] > 2 * found[0]


def test_the_shipped_table_is_of_these_worlds():
    rows = shipped_table("excess")
    wanted = [(world.order, world.vocab, world.eta, world.length) for world in excess_worlds()]
    assert [(row["order"], row["vocab"], row["eta"], row["length"]) for row in rows] == wanted
    assert all(row["bias"] < 0.1 * row["excess"] for row in rows)


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    out = tmp_path_factory.mktemp("excess")
    assert main(["excess_map", "--again", "1", "--out", str(out)]) == 0
    return json.loads((out / "excess_map.json").read_text())["rows"]


def test_a_changed_world_is_a_failure(rows):
    changed = [{**row, "excess": 2 * row["excess"] + 0.01} for row in rows]
    assert excess_map.measured_again(changed, excess_map.Options(again=1))


def test_the_figure_draws_every_world(rows):
    results = figure.chosen({"excess_map": rows})
    with plt.style.context(drawing.STYLE):
        picture = figure.draw(results)
        assert_readable(picture)
    *panels, visits = picture.axes
    assert len(panels) == len({(row["order"], row["vocab"]) for row in rows})
    heights = [line.get_ydata() for ax in panels for line in ax.lines if len(line.get_xdata()) > 2]
    assert sum(len(one) for one in heights) == len(rows)
    assert len({(ax.get_xlim(), ax.get_ylim()) for ax in panels}) == 1  # they are compared
    named = {text.get_text() for legend in picture.legends for text in legend.get_texts()}
    assert "bar: ± one standard error" in named
    bars = np.array([bar.get_height() for bar in visits.patches])
    assert bars.sum() == pytest.approx(2 * len({row["length"] for row in rows}))
    assert str(len(rows)) in drawing.caption_of(figure, results)


def test_the_errors_of_shares_come_from_both_parts(rows):
    for row in rows:
        parts = [row["excess_stderr"] / row["excess"], row["kl_bayes_stderr"] / row["kl_bayes"]]
        assert row["share_stderr"] / row["share"] == pytest.approx(np.hypot(*parts))
