"""The grids of worlds: disjoint, the same on every machine, and the shipped tables are what the code says they are."""

from __future__ import annotations

import json
import math

import matplotlib.pyplot as plt
import pytest

from analyses.parts.world_grid import (
    SEEDS,
    TUNING,
    draw_worlds,
    fit_terms,
    measure_world,
    read_table,
    search_world,
    shipped_table,
    write_table,
)
from analyses.running.cli import main
from analyses.studies import worlds
from figures.beyond import law_of_the_optimum
from figures.running import drawing
from interp.chains.priors import HierarchicalDirichlet
from interp.estimators.fitted_correction import COEFFICIENTS, FEATURES, RANGE, features, fitted_correction, in_range
from interp.estimators.predicted import predicted_parameters
from tests.figures.artists import assert_readable


def key(world):
    return world.prior.text, world.prior.order, world.prior.vocab, world.length, world.bos


def test_grids_are_disjoint_and_cover_the_range():
    grids = {name: [key(world) for world in draw_worlds(name)] for name in SEEDS}
    assert sum(len(set(grid)) for grid in grids.values()) == len(set().union(*grids.values()))
    test = draw_worlds(worlds.GRID)
    assert grids[worlds.GRID] == [key(world) for world in test]
    assert len(test) >= 200
    for world in test:
        assert RANGE["length"][0] <= world.length <= RANGE["length"][1]
        assert RANGE["vocab"][0] <= world.prior.vocab <= RANGE["vocab"][1]
    assert {world.prior.order for world in test} == {1, 2, 3, 4}
    assert {world.bos for world in test if not world.prior.independent} == {True, False}


@pytest.mark.parametrize("grid", list(SEEDS))
def test_shipped_tables_are_of_these_worlds(grid):
    rows = shipped_table(grid)
    every = draw_worlds(grid)
    if grid == "tuning":  # what needs no fit is not in the tables that are fitted on
        every = [world for world in every if not (world.prior.independent and world.bos)]
    elif grid == "second_tuning":
        every = [world for world in every if not world.prior.independent]
    wanted = [key(world) for world in every]
    assert [(row["prior"], row["order"], row["vocab"], row["length"], row["bos"]) for row in rows] == wanted


def test_the_fitted_term_is_what_the_tuning_table_gives():
    found = fit_terms([row for grid in TUNING for row in shipped_table(grid)])
    assert found.keys() == COEFFICIENTS.keys()
    for name, coefficients in found.items():
        assert coefficients == pytest.approx(COEFFICIENTS[name], abs=2e-3)
        assert len(coefficients) == len(FEATURES)


def test_the_fitted_term_is_separate_and_keeps_to_its_range():
    inside = HierarchicalDirichlet(order=2, vocab=5, eta=(5.0, 5.0))
    predicted = predicted_parameters(inside, length=64)
    added = fitted_correction(inside, length=64, beta=predicted.derived_beta, kappa=predicted.derived_kappa)
    assert added is not None
    assert predicted.beta[0] == pytest.approx(predicted.derived_beta[0] + added[0])
    assert predicted.kappa == pytest.approx(predicted.derived_kappa + added[-1])
    plain = predicted_parameters(inside, length=64, fitted=False)
    assert (plain.beta, plain.kappa) == (predicted.derived_beta, predicted.derived_kappa)
    assert features(inside, length=64, beta=(3.0, 1.0), kappa=4.0).shape == (3, len(FEATURES))
    outside = HierarchicalDirichlet(order=1, vocab=5, eta=(400.0,))
    assert not in_range(outside, length=64)
    far = predicted_parameters(outside, length=64)
    assert far.beta == far.derived_beta
    assert "outside the range" in far.message


def test_a_world_is_measured(tmp_path):
    world = next(one for one in draw_worlds("test") if one.length < 40 and not one.prior.independent)
    row = measure_world(world, steps=(400,))
    write_table(tmp_path / "table.csv", [row])
    (back,) = read_table(tmp_path / "table.csv")
    assert back.keys() == row.keys()
    for name, value in row.items():
        if isinstance(value, float) and math.isfinite(value):
            assert back[name] == pytest.approx(value, rel=1e-5)
    assert row["kl_predicted"] >= row["kl"] - 1e-4  # the search has the least KL on its own sample
    assert (tmp_path / "table.csv").with_suffix(".part").exists() is False


def test_a_world_is_searched_until_it_is_sure():
    world = next(one for one in draw_worlds("test") if one.length < 40 and not one.prior.independent)
    _, few = search_world(world, steps=(400, 800), sure=10.0)
    best, more = search_world(world, steps=(400, 800), sure=1e-6)
    assert (few, more) == (400, 800)
    assert best.n >= 800


def test_a_changed_table_is_refused(tmp_path, monkeypatch):
    (tmp_path / "worlds_test.csv").write_text("prior\n", encoding="utf-8")
    monkeypatch.setattr("analyses.parts.world_grid.TABLES", tmp_path)
    with pytest.raises(ValueError, match="has changed"):
        shipped_table("test")


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    out = tmp_path_factory.mktemp("worlds")
    assert main(["worlds", "--again", "1", "--draws", "2000", "--out", str(out)]) == 0
    return json.loads((out / "worlds.json").read_text())["rows"]


def test_the_figure_draws_every_world(rows):
    results = law_of_the_optimum.chosen({"worlds": rows})
    with plt.style.context(drawing.STYLE):
        figure = law_of_the_optimum.draw(results)
        assert_readable(figure)
    first = figure.axes[0].lines[0]
    drawn = [row for row in rows if row["error_1"] is not None]
    assert list(first.get_xdata()) == pytest.approx([row["searched_1"] for row in drawn])
    assert list(first.get_ydata()) == pytest.approx([row["predicted_1"] for row in drawn])
    assert str(len(rows)) in drawing.caption_of(law_of_the_optimum, results)
    # Worlds far from the diagonal have their name beside them.
    for ax, names in zip(figure.axes, (law_of_the_optimum.LAGS, ("kappa",)), strict=False):
        errors = [row[f"error_{name}"] or 0.0 for row in rows for name in names]
        apart = sum(abs(error) >= law_of_the_optimum.OUTLIER for error in errors)
        assert len(ax.texts) == apart
        assert "equal" in {line.get_label() for line in ax.lines}


def test_a_prediction_that_changed_is_a_failure(rows):
    changed = [{**row, "predicted_1": (row["predicted_1"] or 0.0) + 0.5} for row in rows]
    assert worlds.measured_again(changed, worlds.Options(again=1, draws=400))
