"""The plan of `make reproduce`: which checkpoints are asked, and that nothing is computed twice."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from analyses import plan
from analyses.command import BadInput, read_entries
from analyses.door import FOLDER
from analyses.plan import (
    Ask,
    everything,
    near,
    not_long,
    run_plan,
    up_to,
    with_snapshots,
    with_votes,
    write_documents,
)
from analyses.yardstick import trained_checkpoints
from tests import tiny_zoo

SHIPPED = dict(plan.PLAN)


@pytest.fixture(scope="module")
def zoo(tmp_path_factory):
    return tiny_zoo.plant(tmp_path_factory.mktemp("zoo"), families=("construction", "disentangled"))


@pytest.fixture(autouse=True)
def tiny_plan(monkeypatch):
    monkeypatch.setattr(plan, "PLAN", dict(tiny_zoo.TINY_PLAN))


def names(checkpoints):
    return [checkpoint.name for checkpoint in checkpoints]


def test_every_analysis_is_in_the_plan_and_the_other_way_round():
    analyses = set(read_entries(FOLDER, marker="KIND"))
    assert set(SHIPPED) == set(tiny_zoo.TINY_PLAN) == analyses


def test_selections(zoo):
    found = trained_checkpoints(zoo)
    assert len(found) == 8
    assert names(everything(found)) == names(found)
    assert up_to(8)(found) == []
    assert names(with_snapshots(found)) == ["hierarchical_bos/construction/T16_seed0"]
    first = near(64, 128, seeds=1)(found)
    assert names(first) == [name for name in names(found) if name.endswith("seed0")]
    assert len(near(64)(found)) == 8


def test_long_runs_and_the_standard_family_can_be_left_out(zoo):
    found = trained_checkpoints(zoo)
    assert not_long(everything)(found) == found
    long = [replace(one, training={**one.training, "protocol": "long"}) for one in found[:2]]
    assert not_long(everything)([*long, *found[2:]]) == found[2:]
    standard = replace(found[0], model={**found[0].model, "family": "standard"})
    assert with_votes(everything)([standard, *found[1:]]) == found[1:]


def test_nearest_lengths_are_taken_by_ratio(zoo):
    found = trained_checkpoints(zoo)
    longer = [
        type(one)(**{**vars(one), "name": f"{one.name}-{length}", "model": {**one.model, "length": length}})
        for one in found
        if one.name == "hierarchical_bos/construction/T16_seed0"
        for length in (16, 90, 129)
    ]
    assert [one.model["length"] for one in near(64, 128)(longer)] == [90, 129]
    assert [one.model["length"] for one in near(40)(longer)] == [90]
    assert [one.model["length"] for one in near(20)(longer)] == [16]


def test_second_run_reads_what_the_first_computed(zoo, tmp_path, monkeypatch):
    wanted = ["beta_kappa", "lag_asymmetry", "construction_attention"]
    first = run_plan(wanted, zoo=zoo, cache=tmp_path, jobs=1)
    assert [len(first[name]["rows"]) for name in wanted] == [8, 8, 3]
    assert {row["subject"]["family"] for row in first["beta_kappa"]["rows"]} == {"construction", "disentangled"}
    planted = [row for row in first["beta_kappa"]["rows"] if row["subject"]["family"] == "construction"]
    assert planted[0]["beta"] == pytest.approx(tiny_zoo.BETA, abs=1e-3)

    monkeypatch.setattr(plan, "perform", lambda job: pytest.fail(f"{job.analysis} ran again"))
    assert run_plan(wanted, zoo=zoo, cache=tmp_path, jobs=1) == first
    # Another option is another job.
    plan.PLAN["construction_attention"] = Ask(argv=("--length", "12"))
    with pytest.raises(pytest.fail.Exception, match="construction_attention ran again"):
        run_plan(wanted, zoo=zoo, cache=tmp_path, jobs=1)


def test_changed_weights_are_analysed_anew_and_only_they(tmp_path, monkeypatch):
    zoo = tiny_zoo.plant(tmp_path / "zoo", seeds=1, families=("construction", "disentangled"))
    run_plan(["copy_heads"], zoo=zoo, cache=tmp_path / "cache", jobs=1)
    tiny_zoo.ip.save(
        tiny_zoo.model_of("disentangled", kappa=None, seed=7),
        zoo / "independent_nobos/disentangled/T16_seed0",
        training=tiny_zoo.training(tiny_zoo.INDEPENDENT, seed=0),
    )
    ran = []
    perform = plan.perform
    monkeypatch.setattr(plan, "perform", lambda job: (ran.append(job.checkpoints), perform(job)))
    run_plan(["copy_heads"], zoo=zoo, cache=tmp_path / "cache", jobs=1)
    assert ran == [(str(zoo / "independent_nobos/disentangled/T16_seed0"),)]


def test_damaged_cache_is_made_again(zoo, tmp_path):
    first = run_plan(["construction_attention"], zoo=zoo, cache=tmp_path, jobs=1)
    (file,) = tmp_path.glob("job-construction_attention-*.json")
    file.write_text(file.read_text()[:100])
    assert run_plan(["construction_attention"], zoo=zoo, cache=tmp_path, jobs=1) == first


def test_two_processes_give_what_one_gives(zoo, tmp_path):
    wanted = ["copy_heads"]
    one = run_plan(wanted, zoo=zoo, cache=tmp_path / "one", jobs=1)
    two = run_plan(wanted, zoo=zoo, cache=tmp_path / "two", jobs=2)
    assert one["copy_heads"]["rows"] == two["copy_heads"]["rows"]


def test_documents_are_written_as_the_analyses_door_writes_them(zoo, tmp_path):
    documents = run_plan(["lag_pairs", "construction_attention"], zoo=zoo, cache=tmp_path / "cache", jobs=1)
    write_documents(documents, tmp_path)
    stored = json.loads((tmp_path / "lag_pairs.json").read_text())
    assert stored["analysis"] == "lag_pairs"
    assert stored["rows"] == documents["lag_pairs"]["rows"]
    assert (tmp_path / "lag_pairs.csv").read_text().startswith("analysis,checkpoint,subject.family")
    assert (tmp_path / "lag_pairs_tidy.csv").is_file()
    assert not (tmp_path / "construction_attention_tidy.csv").exists()


def test_an_empty_zoo_gives_empty_documents(tmp_path):
    (tmp_path / "zoo").mkdir()
    documents = run_plan(["attention", "lag_asymmetry"], zoo=tmp_path / "zoo", cache=tmp_path, jobs=1)
    assert [document["rows"] for document in documents.values()] == [[], []]


def test_unknown_names_are_refused(zoo, tmp_path):
    with pytest.raises(BadInput, match="no analysis 'nothing' in the plan"):
        run_plan(["nothing"], zoo=zoo, cache=tmp_path, jobs=1)
