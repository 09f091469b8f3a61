"""The study of conditions: its analysis on a few shipped runs, the claims, the figure, and the frozen parts."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest

import interp as ip
from analyses.parts.condition_runs import QUANTITIES
from analyses.running.cache import Cache
from analyses.running.subject import find_subjects
from analyses.shipped import shipped_table
from analyses.studies import conditions
from figures.beyond import conditions as figure
from figures.parts.figure import load_figure
from models.families.disentangled import weights as disentangled
from models.training.spec import RunSpec
from tests.figures.artists import assert_readable, drawn

NEAR_BETA, SMALL_RESIDUAL = 0.15, 0.1  # nats
RUNS = Path(__file__).parents[3] / "models" / "conditions"
FEW = conditions.Options(cells=("frozen", "random_start"), lengths=(64,), batch=200, keys=4096, draws=2000, edited=1)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Two cells of the hierarchical prior at T = 64, by both readouts."""
    cache = Cache(tmp_path_factory.mktemp("cache"))
    piece = next(one for one in conditions.pieces(FEW) if one.prior.startswith("hierarchical"))
    return conditions.join(FEW, [conditions.study_piece(FEW, piece, cache)])


def cell(study, name, readout="probability"):
    return next(row for row in study.rows if (row["cell"], row["readout"]) == (name, readout))


def test_frozen_copies_and_readout_give_the_papers_weights(study):
    """Cell (a), the setting of corollary:inductive."""
    row = cell(study, "frozen")
    assert row["seeds"] == 3
    assert row["block_gap"]["most"] < NEAR_BETA
    assert row["residual"]["most"] < SMALL_RESIDUAL
    assert row["copy_1"]["least"] == row["copy_2"]["least"] == 1.0
    assert row["met"]["block_lead"] == row["met"]["copy_mass_last"] == [3, 3]
    assert row["met"]["direct"] == [1, 1]  # one run is edited
    assert row["met"]["partial_cost"] == [0, 0]  # the study does not switch BOS off


def test_free_copies_change_the_weights_and_not_the_scores(study):
    row = cell(study, "random_start")
    assert row["met"]["block_lead"] == [0, 3]
    assert row["met"]["score_lead"] == [3, 3]
    assert row["met"]["copy_mass_last"] == [0, 3]
    assert row["met"]["r2"] == [3, 3]


def test_the_logit_readout_leaves_the_law_under_the_hierarchical_prior(study):
    row = cell(study, "random_start", "logit")
    assert row["met"]["r2"] == [0, 3]
    assert row["law"]["median"] < 0.8 < row["pair_law"]["median"]
    assert row["direct"]["median"] > 0.1
    assert row["own_token"]["most"] < -0.5
    assert row["readout_share"]["median"] is None  # a logit readout cannot be taken apart
    assert any("random_start (logit) 0/3" in note for note in study.notes if note.startswith("R2 of the law"))


@pytest.fixture(scope="module")
def table():
    """The shipped table: every run, those that are not shipped too."""
    return shipped_table("conditions").rows


def test_the_papers_setting_has_the_optimums_weights_at_every_length_and_seed(table):
    """Cell (a) of the probability readout: blocks, or kappa less beta where the optimum's beta is infinite."""
    rows = [
        row for row in table if (row["cell"], row["readout"], row["protocol"]) == ("frozen", "probability", "annealed")
    ]
    assert {(row["prior"], row["bos"], row["length"]) for row in rows} == {
        (prior, bos, length)
        for prior, bos in (("hierarchical", True), ("independent", True), ("independent", False))
        for length in (32, 64, 128, 256)
    }
    for row in rows:
        assert row["seeds"] == 3
        finite = row["best_beta"][0] is not None
        assert finite == (row["block_gap"]["most"] is not None)
        assert row["block_gap" if finite else "sum_gap"]["most"] < NEAR_BETA
        assert row["residual"]["most"] < SMALL_RESIDUAL
    free = [row for row in table if (row["cell"], row["readout"]) == ("random_start", "probability")]
    assert min(row["block_gap"]["least"] for row in free if row["prior"] == "hierarchical") > NEAR_BETA


def test_cutting_the_direct_path_alone_does_not_bring_the_law_back(table):
    rows = {
        (row["cell"], row["length"]): row
        for row in table
        if (row["readout"], row["prior"], row["protocol"]) == ("logit", "hierarchical", "annealed")
    }
    for length in (32, 64):
        for base in ("frozen_copies", "random_start"):
            cut = rows[f"{base}_no_direct", length]
            assert abs(cut["direct"]["most"]) < 0.01 < 0.1 < rows[base, length]["direct"]["least"]
            assert cut["r2"]["most"] < 0.9
        assert (
            rows["frozen_copies_votes", length]["r2"]["least"] > rows["frozen_copies_no_direct", length]["r2"]["most"]
        )


UNKNOWN = dict.fromkeys(QUANTITIES)
RUNS_OF = [UNKNOWN, {**UNKNOWN, "r2": 0.5, "block_1": 3.0, "block_2": 1.0, "partial_alone": 0.2, "readout_alone": 0.0}]


@pytest.mark.parametrize(
    ("prior", "bos", "freeze", "counts"),
    [
        ("independent", True, "", {"r2": [0, 1], "block_lead": [0, 0], "partial_cost": [0, 0]}),
        ("hierarchical", True, "", {"r2": [0, 1], "block_lead": [1, 1], "partial_cost": [0, 0]}),
        ("independent", False, "copies", {"partial_cost": [1, 1]}),
        ("independent", False, "copies,readout", {"partial_cost": [0, 0]}),
    ],
)
def test_only_what_is_known_and_asked_is_counted(prior, bos, freeze, counts):
    found = conditions.met_counts({"prior": prior, "bos": bos, "freeze": freeze, "runs": RUNS_OF})
    assert {name: found[name] for name in counts} == counts


def test_no_runs_is_said(tmp_path):
    options = replace(FEW, runs=tmp_path / "none", zoo=tmp_path / "none")
    assert conditions.pieces(options) == []
    assert "no finished run" in conditions.join(options, []).notes[0]


@pytest.mark.parametrize("name", ["frozen", "frozen_copies"])
def test_the_frozen_parts_of_every_shipped_run_are_bit_equal_to_their_start(name):
    found = [one for one in find_subjects(RUNS) if Path(one.name).parts[0] == name]
    assert len(found) >= 18
    for one in found:
        known = {field.name for field in fields(RunSpec)}
        spec = RunSpec.from_dict({key: value for key, value in one.training.items() if key in known})
        model = ip.load(one.path)
        start, end = disentangled.initial(model.config, init=spec.init, seed=spec.seed), disentangled.from_hooked(model)
        frozen = disentangled.training_mask(model.config, spec.frozen) == 0
        assert frozen.any()
        np.testing.assert_array_equal(start[frozen], end[frozen])
        assert not np.array_equal(start[~frozen], end[~frozen])


def test_the_figure_fills_each_square_by_the_share_of_runs(study):
    results = load_figure("conditions").chosen({"conditions": list(study.rows)})
    first = results["conditions"][0]
    first["met"]["r2"] = [1, 3]
    picture = drawn("conditions", results)
    assert_readable(picture)
    (matrix,) = picture.axes  # one prior was asked
    filled = {patch.get_gid(): patch.get_height() / figure.SIDE for patch in matrix.patches if patch.get_gid()}
    expected = {
        f"{claim}|{row['cell']}|{row['readout']}": met / asked
        for row in results["conditions"]
        for claim, (met, asked) in row["met"].items()
        if asked
    }
    assert filled == pytest.approx(expected)
    assert filled[f"r2|{first['cell']}|{first['readout']}"] == pytest.approx(1 / 3)
    dots = [line for line in matrix.lines if line.get_gid() == "not asked"]
    columns = {(row["cell"], row["readout"]) for row in results["conditions"]}
    lines, _ = figure.lines_of(results["conditions"])
    assert len(dots) == len(columns) * len(lines) - len(expected)  # where nothing was asked there is a dot
    assert "not asked" in {text.get_text() for legend in picture.legends for text in legend.get_texts()}
    assert 0.0 in filled.values()
    assert 1.0 in filled.values()
    plt.close(picture)


def test_every_quantity_of_the_study_has_its_line():
    assert sorted(name for lines in figure.GROUPS.values() for name in lines) == sorted(conditions.ASKED)
