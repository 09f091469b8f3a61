"""The study of worlds: grids are the same on every machine, and the shipped tables are what the code says."""

from __future__ import annotations

import json
import math

import pytest

from analyses.parts.world_grid import (
    EXCESS,
    GRIDS,
    NAMES,
    TUNING,
    draw_worlds,
    fit_terms,
    measure_excess,
    measure_world,
    read_table,
    search_world,
    sequences_of,
    shipped_table,
    write_table,
)
from analyses.running.cli import main
from analyses.studies import worlds
from figures.beyond import law_of_the_optimum
from figures.parts.figure import load_figure
from figures.running import drawing
from interp.chains.priors import HierarchicalDirichlet
from interp.estimators.fitted_correction import COEFFICIENTS, FEATURES, RANGE, features, fitted_correction, in_range
from interp.estimators.predicted import predicted_parameters
from tests.figures.artists import assert_readable, drawn

RANDOM = list(GRIDS)


def key(world):
    return world.prior.text, world.prior.order, world.prior.vocab, world.length, world.bos


def test_grids_are_disjoint_and_cover_the_range():
    grids = {name: [key(world) for world in draw_worlds(name)] for name in RANDOM}
    assert sum(len(set(grid)) for grid in grids.values()) == len(set().union(*grids.values()))
    test = draw_worlds(worlds.GRID)
    assert grids[worlds.GRID] == [key(world) for world in test]
    assert len(test) >= 200
    for world in test:
        assert RANGE["length"][0] <= world.length <= RANGE["length"][1]
        assert RANGE["vocab"][0] <= world.prior.vocab <= RANGE["vocab"][1]
    assert {world.prior.order for world in test} == {1, 2, 3, 4}
    assert {world.bos for world in test if not world.prior.independent} == {True, False}


@pytest.mark.parametrize("grid", RANDOM)
def test_shipped_tables_are_of_these_worlds(grid):
    every = draw_worlds(grid)
    if grid == "tuning":  # what needs no fit is not in the tables that are fitted on
        every = [world for world in every if not (world.prior.independent and world.bos)]
    elif grid == "second_tuning":
        every = [world for world in every if not world.prior.independent]
    names = ("prior", "order", "vocab", "length", "bos")
    assert [tuple(row[name] for name in names) for row in shipped_table(grid)] == [key(world) for world in every]


def test_the_shipped_map_is_of_these_worlds():
    rows = shipped_table(EXCESS)
    wanted = [(world.prior.order, world.prior.vocab, world.prior.eta[0], world.length) for world in draw_worlds(EXCESS)]
    assert [(row["order"], row["vocab"], row["eta"], row["length"]) for row in rows] == wanted
    assert all(row["bias"] < 0.1 * row["excess"] for row in rows)


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
    assert features(inside, length=64, beta=(3.0, 1.0), kappa=4.0).shape == (3, len(FEATURES))
    outside = HierarchicalDirichlet(order=1, vocab=5, eta=(400.0,))
    assert not in_range(outside, length=64)
    far = predicted_parameters(outside, length=64)
    assert far.beta == far.derived_beta
    assert "outside the range" in far.message


def test_a_world_is_measured_until_it_is_sure(tmp_path):
    world = next(one for one in draw_worlds("test") if one.length < 40 and not one.prior.independent)
    row = measure_world(world, steps=(400,))
    write_table(tmp_path / "table.csv", [row])
    (back,) = read_table(tmp_path / "table.csv")
    assert back.keys() == row.keys()
    for name, value in row.items():
        if isinstance(value, float) and math.isfinite(value):
            assert back[name] == pytest.approx(value, rel=1e-5)
    assert row["kl_predicted"] >= row["kl"] - 1e-4  # the search has the least KL on its own sample
    assert search_world(world, steps=(400, 800), sure=10.0)[1] == 400
    best, draws = search_world(world, steps=(400, 800), sure=1e-6)
    assert draws == 800 <= best.n


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    out = tmp_path_factory.mktemp("worlds")
    asked = ["--questions", "optimum", "excess", "--cache", str(out / "cache")]
    assert main(["worlds", *asked, "--out", str(out)]) == 0
    return json.loads((out / "worlds.json").read_text())["rows"]


def test_a_world_of_the_law_measured_again_agrees():
    number, old = next((place, row) for place, row in enumerate(shipped_table(worlds.GRID)) if row["length"] <= 100)
    new = measure_world(draw_worlds(worlds.GRID)[number], steps=(4000,), seed=1)
    for name in [name for name in NAMES if old[f"predicted_{name}"] is not None]:
        assert new[f"predicted_{name}"] == pytest.approx(old[f"predicted_{name}"], abs=2e-3)  # the table has six digits
        error = math.hypot(old[f"stderr_{name}"], new[f"stderr_{name}"])
        assert new[f"searched_{name}"] == pytest.approx(old[f"searched_{name}"], abs=5 * error)


def test_a_world_of_the_map_measured_again_agrees():
    old, world = shipped_table(EXCESS)[0], draw_worlds(EXCESS)[0]
    new = measure_excess(world, sequences=sequences_of(world), seed=100)
    for name in ("kl_bayes", "excess"):
        error = math.hypot(old[f"{name}_stderr"], new[f"{name}_stderr"])
        assert new[name] == pytest.approx(old[name], abs=5 * error)
        assert 5 * error < old[name]  # so that none at all would be seen


def test_the_law_is_drawn_for_every_world(rows):
    mine = load_figure("law_of_the_optimum").chosen({"worlds": rows})["worlds"]
    figure = drawn("law_of_the_optimum", {"worlds": rows})
    assert_readable(figure)
    first = figure.axes[0].lines[0]
    shown = [row for row in mine if row["error_1"] is not None]
    assert list(first.get_xdata()) == pytest.approx([row["searched_1"] for row in shown])
    assert list(first.get_ydata()) == pytest.approx([row["predicted_1"] for row in shown])
    assert str(len(mine)) in load_figure("law_of_the_optimum").caption({"worlds": mine})
    # Worlds far from the diagonal have their name beside them.
    for ax, names in zip(figure.axes, (law_of_the_optimum.LAGS, ("kappa",)), strict=False):
        errors = [row[f"error_{name}"] or 0.0 for row in mine for name in names]
        assert len(ax.texts) == sum(abs(error) >= law_of_the_optimum.OUTLIER for error in errors)
        assert "equal" in {line.get_label() for line in ax.lines}


def test_the_map_is_drawn_for_every_world(rows):
    mine = load_figure("excess_map").chosen({"worlds": rows})["worlds"]
    with pytest.warns(drawing.MissingPanel):  # no contexts
        picture = drawn("excess_map", {"worlds": rows})
    assert_readable(picture)
    heights = [line.get_ydata() for ax in picture.axes for line in ax.lines if len(line.get_xdata()) > 2]
    assert sum(len(one) for one in heights) == len(mine)
    assert len({(ax.get_xlim(), ax.get_ylim()) for ax in picture.axes}) == 1  # they are compared
    assert str(len(mine)) in load_figure("excess_map").caption({"worlds": mine})
