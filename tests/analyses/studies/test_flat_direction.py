"""The study of starts: which runs it reads, lines between planted models, and its figure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import interp as ip
from analyses.running.cli import main
from analyses.studies import flat_direction
from analyses.studies.flat_direction import HARD, RANDOM, Options
from figures.parts.panels import MissingPanel
from models.families.disentangled import weights as disentangled
from tests.figures.artists import assert_readable, drawn
from tests.models.test_between import CHAINS, CONFIG, LENGTH, PRIOR, planted, swapped

# --- the study ---------------------------------------------------------------------------------------------------


def record(**changes: Any) -> dict[str, Any]:
    made = {"prior": PRIOR.to_dict(), "seed": 0, "protocol": "annealed", "status": "finished", "init": HARD}
    return {**made, **changes}


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Equal models from two starts, a worse one, one with a part frozen, twins, and runs that do not belong."""
    folder = tmp_path_factory.mktemp("zoo")
    good = planted(strength=20.0)
    for name, flat, training in (
        ("a", good, record()),
        ("b", swapped(good), record(init=RANDOM)),
        ("inside/c", planted(noise=0.4), record(init="copy(3)")),
        ("inside/twin", planted(noise=0.4), record()),
        ("inside/frozen", good, record(init=RANDOM, freeze="copies_bos")),
        ("long", good, record(protocol="long", seed=1)),
        ("untold", good, {name: value for name, value in record(seed=2).items() if name != "init"}),
        ("other", good, record(prior=ip.IndependentDirichlet(order=2, vocab=3).to_dict(), seed=3)),
    ):
        ip.save(disentangled.to_hooked(CONFIG, flat.astype(np.float32)), folder / name, training=training)
    (folder / "inside" / "zoo.json").write_text("{}")
    return folder


@pytest.fixture(scope="module")
def rows(zoo: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    out = tmp_path_factory.mktemp("results")
    asked = ["--batch", "500", "--fitted", "64", "--lengths", str(LENGTH), "--cache", str(out / "cache")]
    assert main(["flat_direction", "--zoo", str(zoo), *asked, "--out", str(out)]) == 0
    found: list[dict[str, Any]] = json.loads((out / "flat_direction.json").read_text())["rows"]
    return found


def test_runs_are_known_by_their_records(rows: list[dict[str, Any]]) -> None:
    trained = {(row["question"], row["init"], row["freeze"], row["seed"]) for row in rows if row["way"] is None}
    assert trained == {
        ("start", HARD, "", 0),
        ("start", RANDOM, "", 0),
        ("start", "copy(3)", "", 0),
        ("frozen", RANDOM, "copies_bos", 0),
    }


def test_equal_models_have_a_flat_line_and_a_worse_one_a_paired_loss(rows: list[dict[str, Any]]) -> None:
    line = [row for row in rows if row["question"] == "line"]
    assert [row["way"] for row in line] == ["weights"] * 9 + ["reads"] * 9  # heads of the random start were swapped
    for row in line:
        assert row["over_hard"] == pytest.approx(0.0, abs=1e-6)
        assert row["block"] == pytest.approx([2.0, 1.0], abs=1e-3)
        assert row["last"] == pytest.approx([1.0, 1.0], abs=1e-3)
    (worse,) = (row for row in rows if row["init"] == "copy(3)")
    assert worse["over_hard"] == worse["over_random"] > 5 * worse["over_hard_stderr"] > 0
    assert worse["over_hard_stderr"] < worse["kl_stderr"]


def test_a_sink_is_read_where_the_last_two_tokens_are_equal_and_elsewhere() -> None:
    flat = planted(sink=6.0)
    disentangled.views(CONFIG, flat)["copy_weight"][:] = 2.0 * np.eye(3)  # a head sees more of a token that is its own
    seen = flat_direction.look(disentangled.to_hooked(CONFIG, flat), CHAINS, Options(fitted=64)).looks
    assert seen["bos_equal"][0] < seen["bos_other"][0] - 0.1
    assert seen["bos"][0] == pytest.approx(1.0 - seen["last"][0], abs=0.2)


def test_no_run_of_the_task_is_no_row(tmp_path: Path) -> None:
    options = Options(zoo=tmp_path / "none")
    assert flat_direction.pieces(options) == []
    told = flat_direction.join(options, [])
    assert (list(told.rows), told.notes[0][:26]) == ([], "no run of the task was fou")


# --- the figure --------------------------------------------------------------------------------------------------


def with_control(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    (frozen,) = (row for row in rows if row["freeze"])
    return [*rows, {**frozen, "freeze": "copies_first", "last": [0.25, 0.5]}]


def test_the_picture_shows_the_rows(rows: list[dict[str, Any]]) -> None:
    figure = drawn("flat_direction", {"flat_direction": with_control(rows)})
    assert_readable(figure)
    axes = figure.axes
    assert len(axes) == 9
    way = [row for row in rows if row["way"] == "reads"]
    (solid,) = (
        line
        for line in axes[6].lines
        if line.get_gid() == "block" and line.get_linestyle() == "-" and line.get_color() == "#5b99c2"
    )
    assert list(solid.get_ydata()) == [row["block"][1] for row in way]
    assert [text.get_text() for text in axes[7].get_xticklabels()] == ["random", "3", "40"]
    kept = [line for line in axes[5].lines if line.get_gid() == "last"]
    assert [line.get_ydata()[1] for line in kept] == [0.25, 0.5]  # none, a neighbour, at BOS's distance


def test_what_is_missing_is_left_out(rows: list[dict[str, Any]]) -> None:
    with pytest.warns(MissingPanel):
        figure = drawn("flat_direction", {"flat_direction": [row for row in rows if not row["freeze"]]})
    assert len(figure.axes) == 6
