"""The shipped table of the study `conditions`: what it knows, that it is still true, and how it is added to."""

from __future__ import annotations

import copy
import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analyses import shipped
from analyses.parts.condition_runs import QUANTITIES
from analyses.running import plan
from analyses.running.cache import Cache
from analyses.shipped.__main__ import extend
from analyses.studies import conditions
from models.running.command_line import BadInput

OPTIONS = conditions.ASK.options
RELATIVE, ABSOLUTE = 1e-4, 1e-6  # other machines round otherwise, and fits of float32 scores pass that on
REMEASURED = {
    "hierarchical:5 BOS T=64": (
        "frozen/hierarchical_bos/disentangled/T64_seed1",
        "random_start/hierarchical_bos/disentangled/T64_seed0_logit",
        "hierarchical_bos/standard/soft/T64_seed0",
    ),
    "independent:1 no BOS T=32": ("leaving/independent_nobos/disentangled/T32_seed0_logit_long",),
}


@pytest.fixture(scope="module")
def table() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = shipped.read_shipped("conditions")["rows"]
    return rows


def runs_in(rows: Any) -> dict[str, dict[str, Any]]:
    return {run["run"]: run for row in rows for run in row["runs"]}


def differences(found: dict[str, Any], told: dict[str, Any]) -> list[str]:
    """The numbers of a run that are not the table's."""
    assert set(found) == set(told)
    return [
        name
        for name in QUANTITIES
        if (found[name] is None) != (told[name] is None)
        or (found[name] is not None and not math.isclose(found[name], told[name], rel_tol=RELATIVE, abs_tol=ABSOLUTE))
    ]


def test_every_run_that_lies_here_is_in_the_table_with_its_weights(table):
    """If this fails: python -m analyses.shipped conditions."""
    told = runs_in(table)
    found = {run.name: conditions.weights_of(run) for _, run in conditions.runs_of(OPTIONS)}
    assert len(found) > 100
    assert {name: told[name]["weights"] if name in told else None for name in found} == found


def test_the_table_has_every_number_and_says_how_it_was_made(table):
    content = shipped.read_shipped("conditions")
    assert content["provenance"]["options"] == OPTIONS.shaping()
    made = content["provenance"]["made"]
    assert sum(one["runs"] for one in made) >= len(runs_in(table))
    assert all(one["commit"] and one["code"] for one in made)
    for row in table:
        assert row["seeds"] == len(row["runs"])
        assert all(set(QUANTITIES) <= set(run) for run in row["runs"])
        for name in QUANTITIES:
            assert row[name] == conditions.spread([run[name] for run in row["runs"]])


@pytest.mark.parametrize("setting", list(REMEASURED))
def test_the_table_is_what_the_instruments_say_now(setting, table, tmp_path):
    """A few runs, measured anew; if this fails, so does the table: python -m analyses.shipped conditions --anew."""
    told = runs_in(table)
    known = {run["weights"] for name, run in told.items() if name not in REMEASURED[setting]}
    (piece,) = (one for one in conditions.pieces(OPTIONS) if str(one) == setting)
    study = conditions.study_piece(OPTIONS, piece, Cache(None), known=known).plain()
    found = runs_in(study.rows)
    assert set(found) == set(REMEASURED[setting])
    assert {name: differences(run, told[name]) for name, run in found.items()} == {name: [] for name in found}
    for row in study.rows:
        (other,) = (one for one in table if all(one[name] == row[name] for name in conditions.GROUP))
        assert row["best_kl"] == pytest.approx(other["best_kl"], rel=RELATIVE)
        moved = {**row["runs"][0], "r2": row["runs"][0]["r2"] * (1 + 3 * RELATIVE)}
        assert differences(moved, told[moved["run"]]) == ["r2"]


def test_reproduce_reads_the_table_and_counts_anew(tmp_path, monkeypatch):
    monkeypatch.delenv("CONDITIONS", raising=False)
    asks = plan.asks_for(["conditions"])
    run = plan.run_plan(asks, zoo=OPTIONS.zoo, cache=tmp_path / "cache", jobs=1)
    assert not run.made
    rows = run.tables["conditions"].rows
    assert rows == shipped.shipped_table("conditions").rows
    assert all(row["met"] for row in rows)
    assert run.tables["conditions"].provenance["checkpoints"] == {
        name: one["weights"] for name, one in runs_in(rows).items()
    }
    # What is shipped is measured; what it means is decided when it is read.
    content = copy.deepcopy(shipped.read_shipped("conditions"))
    for row in content["rows"]:
        for one in row["runs"]:
            one["r2"] = 0.0
    (tmp_path / "conditions.json").write_text(json.dumps(content))
    changed = shipped.shipped_table("conditions", folder=tmp_path)
    assert all(row["met"]["r2"][0] == 0 for row in changed.rows)
    assert any(row["met"]["r2"][0] > 0 for row in rows)
    monkeypatch.setenv("CONDITIONS", "1")
    assert shipped.shipped_table("conditions") is None


def test_only_new_runs_are_measured_and_absent_ones_are_kept(tmp_path, capsys):
    runs, folder, cache = tmp_path / "runs", tmp_path / "table", tmp_path / "cache"
    small = replace(
        OPTIONS, runs=runs, zoo=tmp_path / "none", cells=("frozen",), lengths=(32,), batch=40, keys=1024, draws=400
    )
    place = Path("frozen") / "hierarchical_bos" / "disentangled"

    def bring(*seeds: int) -> None:
        for seed in seeds:
            source = OPTIONS.runs / place / f"T32_seed{seed}"
            shutil.copytree(source, runs / place / f"T32_seed{seed}")

    bring(0, 2)
    assert extend("conditions", anew=False, cache=cache, folder=folder, options=small) == 2
    first = shipped.read_shipped("conditions", folder=folder)
    assert extend("conditions", anew=False, cache=cache, folder=folder, options=small) == 0
    assert shipped.read_shipped("conditions", folder=folder) == first
    shutil.rmtree(runs / place / "T32_seed0")
    bring(1)
    assert extend("conditions", anew=False, cache=cache, folder=folder, options=small) == 1
    second = shipped.read_shipped("conditions", folder=folder)
    (before,), (after,) = first["rows"], second["rows"]
    assert [run["seed"] for run in after["runs"]] == [0, 1, 2]
    assert [after["runs"][0], after["runs"][2]] == before["runs"]
    assert after["r2"] == conditions.spread([run["r2"] for run in after["runs"]])
    assert [one["runs"] for one in second["provenance"]["made"]] == [2, 1]
    # Changed weights are measured, and take the place of the old ones.
    config = runs / place / "T32_seed2" / "config.json"
    config.write_text(config.read_text() + " ")
    assert extend("conditions", anew=False, cache=cache, folder=folder, options=small) == 1
    (third,) = shipped.read_shipped("conditions", folder=folder)["rows"]
    assert third["seeds"] == 3
    assert third["runs"][2]["weights"] != after["runs"][2]["weights"]
    with pytest.raises(BadInput, match="--anew"):
        extend("conditions", anew=False, cache=cache, folder=folder, options=replace(small, batch=41))
    assert extend("conditions", anew=True, cache=cache, folder=folder, options=small) == 2


def test_a_study_without_runs_is_refused(tmp_path):
    for name in ("theory", "nothing"):
        with pytest.raises(BadInput, match="no study with a table"):
            extend(name, anew=False, cache=tmp_path, folder=tmp_path)
