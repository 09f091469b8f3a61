"""The study of conditions: its analysis on a few shipped runs, the claims, the figure, and the frozen parts."""

from __future__ import annotations

import copy
from dataclasses import fields, replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

import interp as ip
from analyses.parts.condition_runs import QUANTITIES
from analyses.running.cache import Cache
from analyses.running.questions import Question, keys_of
from analyses.running.subject import find_subjects
from analyses.shipped import shipped_table
from analyses.studies import conditions
from figures.beyond import conditions as figure
from figures.parts.panels import MissingPanel
from figures.running import drawing
from interp.instruments.identity_blocks import identity_blocks
from models.families import disentangled
from models.training.spec import RunSpec
from tests.figures.artists import assert_readable

NEAR_BETA, SMALL_RESIDUAL = 0.15, 0.1  # nats
RUNS = Path(__file__).parents[2] / "models" / "conditions"
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


def test_only_as_many_seeds_are_edited_as_asked(study):
    runs = cell(study, "frozen")["runs"]
    assert [run["law"] is not None for run in runs] == [True] + [False] * (len(runs) - 1)
    assert all(run["r2"] is not None for run in runs)


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


def test_every_seed_of_the_table_is_edited(table):
    for row in table:
        for run in row["runs"]:
            assert run["dependence"] is not None, run["run"]
            assert run["direct"] is not None, run["run"]


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


def test_the_papers_protocol_is_compared_with_the_annealed_twin(table):
    """A copy under the other name agrees in all; a changed number is said, with both values; the counts stay apart."""
    wanted = {"cell": "frozen", "readout": "probability", "prior": "hierarchical", "length": 64, "protocol": "annealed"}
    (row,) = [one for one in table if wanted.items() <= one.items()]
    ours = [one for one in table if one["protocol"] != "paper"]
    paper = {**copy.deepcopy(row), "protocol": "paper", "runs": [copy.deepcopy(row["runs"][0])]}
    paper["runs"][0]["steps"] = 1_000_000
    (same,) = conditions.protocol_answer([*ours, paper])
    assert "1 pairs of runs" in same
    assert same.endswith("answers are the same.")
    paper["runs"][0]["r2"] = 0.5
    (other,) = conditions.protocol_answer([*ours, paper])
    assert f"R2 of the law in the scores (frozen, probability, T = {row['length']}: lost)" in other
    assert conditions.protocol_answer(ours) == []
    paper["runs"][0]["steps"] = 50_000  # not the protocol's
    assert conditions.protocol_answer([*ours, paper]) == []
    paper["runs"][0] |= {"steps": 1_000_000, "seed": 17}  # a seed that has no annealed run
    assert conditions.protocol_answer([*ours, paper]) == []
    told = [{**one, "met": conditions.met_counts(one)} for one in (*ours, paper)]
    assert conditions.answers(told) == conditions.answers(told[:-1])


def test_only_what_is_known_and_asked_is_counted():
    row = {"prior": "independent", "bos": True, "freeze": "", "runs": [{name: None for name in QUANTITIES}]}
    assert not any(asked for _, asked in conditions.met_counts(row).values())
    row["runs"] += [{**row["runs"][0], "r2": 0.5, "block_1": 3.0, "block_2": 1.0}]
    counts = conditions.met_counts(row)
    assert counts["r2"] == [0, 1]
    assert counts["block_lead"] == [0, 0]  # no claim asks it of this prior
    assert conditions.met_counts({**row, "prior": "hierarchical"})["block_lead"] == [1, 1]


def test_partial_matches_are_compared_with_the_readout_without_bos():
    unknown = dict.fromkeys(QUANTITIES)
    runs = [{**unknown, "partial_alone": 0.2, "readout_alone": cost} for cost in (0.0, 0.3, None)]
    row = {"prior": "independent", "bos": False, "freeze": "copies", "runs": runs}
    assert conditions.met_counts(row)["partial_cost"] == [1, 2]
    assert conditions.met_counts({**row, "prior": "hierarchical", "bos": True})["partial_cost"] == [0, 0]
    assert conditions.met_counts({**row, "freeze": "copies,readout"})["partial_cost"] == [0, 0]


def test_a_changed_run_changes_the_key(tmp_path):
    source = next(one.path for one in find_subjects(RUNS))
    folder = tmp_path / "frozen" / "a"
    folder.mkdir(parents=True)
    for file in ("config.json", "model.safetensors"):
        (folder / file).write_bytes((source / file).read_bytes())
    question = Question(analysis="conditions", options=replace(FEW, runs=tmp_path, zoo=tmp_path / "none"))
    before = keys_of([question])[question]
    assert list(before["weights"]) == ["runs/frozen/a"]
    (folder / "config.json").write_text((folder / "config.json").read_text() + " ")
    assert keys_of([question])[question] != before


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


def test_the_largest_residual_does_not_see_the_gauge():
    model = ip.construct(order=2, vocab=3, length=12, beta=(2.0, 1.0), kappa=1.0)
    assert identity_blocks(model)["weights"].largest_residual == pytest.approx(0.0, abs=1e-6)
    tokens = torch.randint(3, (16, 12), generator=torch.Generator().manual_seed(0))
    laws = ip.predict(model, tokens)
    weight = model.match_attention.W_Q.data[0]
    key = np.array([0.5, -0.2, -0.3], dtype=np.float32)
    for sign, block in ((1, 0), (-1, 1)):  # key parts that cancel in every score
        weight[3 * block : 3 * block + 3, 3:6] += sign * torch.from_numpy(key)
    moved = identity_blocks(model)["weights"]
    assert moved.largest_residual == pytest.approx(0.0, abs=1e-6)
    assert moved.worst_residual == pytest.approx(0.0, abs=1e-6)
    torch.testing.assert_close(ip.predict(model, tokens), laws)
    weight[0, 3] += 0.9  # one entry, which the scores do see
    assert identity_blocks(model)["weights"].largest_residual > 0.2


def test_the_figure_fills_each_square_by_the_share_of_runs(study):
    results = figure.chosen({"conditions": list(study.rows)})
    first = results["conditions"][0]
    first["met"]["r2"] = [1, 3]
    with plt.style.context(drawing.STYLE):
        picture = figure.draw(results)
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


def test_without_runs_there_is_a_note():
    with pytest.warns(MissingPanel), plt.style.context(drawing.STYLE):
        assert_readable(drawing.picture_of(figure, {"conditions": []}))
    assert drawing.caption_of(figure, {"conditions": []}).startswith("No runs")
