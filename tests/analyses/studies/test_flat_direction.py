"""The study of starts: lines between planted models, which runs it reads, and its figure."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest

import interp as ip
from analyses.running.cli import main
from analyses.studies import flat_direction
from analyses.studies.flat_direction import HARD, RANDOM, Options
from figures.beyond import flat_direction as picture
from figures.parts.panels import MissingPanel
from figures.running import drawing
from models.families.disentangled import weights as disentangled
from models.families.disentangled.between import by_reads, in_lag_order, straight, undiluted
from models.families.disentangled.training import predict_hooked
from tests.figures.artists import assert_readable

LENGTH = 12
PRIOR = ip.HierarchicalDirichlet(order=2, vocab=3, eta=(5.0, 5.0))
CHAINS = PRIOR.sample(batch=64, length=LENGTH, seed=3, method="explicit")
CONFIG = disentangled.config(order=2, vocab=3, length=LENGTH, bos=True)
WAYS = pytest.mark.parametrize("way", [straight, by_reads])
Way = Callable[..., np.ndarray]


def planted(*, strength: float = 6.0, sink: float = 0.0, noise: float = 0.0, seed: int = 0) -> np.ndarray:
    """A construction whose copy heads are as sharp as asked, with a bias towards BOS at the last query alone."""
    built = ip.construct(order=2, vocab=3, length=LENGTH, beta=(2.0, 1.0), kappa=1.0)
    flat = disentangled.from_hooked(built).astype(np.float64)
    parts = disentangled.views(CONFIG, flat)
    parts["copy_bias"][:] = strength * np.eye(2, LENGTH + 1, k=1)
    parts["copy_bias"][:, -1] = sink
    return flat + noise * np.random.default_rng(seed).normal(size=flat.shape)


def swapped(flat: np.ndarray) -> np.ndarray:
    """The same model with its copy heads in the other order."""
    return in_lag_order(CONFIG, flat, lags=(2, 1))


def laws(flat: np.ndarray) -> np.ndarray:
    return predict_hooked(disentangled.to_hooked(CONFIG, flat), CHAINS.tokens).numpy()


def scores(flat: np.ndarray) -> np.ndarray:
    """Match scores of the last query without those of BOS and of the last key, up to a constant for each query."""
    found = ip.capture(disentangled.to_hooked(CONFIG, flat), CHAINS.tokens).match_scores[:, 0, -1, 3:-1].numpy()
    return found - found.mean(axis=-1, keepdims=True)


def test_the_order_of_the_heads_changes_no_prediction() -> None:
    flat = planted(noise=0.3)
    other = swapped(flat)
    assert np.abs(other - flat).max() > 1.0
    np.testing.assert_allclose(laws(other), laws(flat), atol=1e-6)
    np.testing.assert_array_equal(swapped(other), flat)
    with pytest.raises(ValueError, match=r"each lag 1..2 needs one copy head, got lags \[1, 1\]"):
        in_lag_order(CONFIG, flat, lags=(1, 1))


@WAYS
def test_the_way_through_other_heads_or_weights_is_not_flat(way: Way) -> None:
    flat = planted()
    for other in (swapped(flat), planted(noise=2.0)):
        assert np.abs(laws(way(CONFIG, flat, other, 0.5)) - laws(flat)).max() > 0.05


@WAYS
def test_a_way_begins_and_ends_at_its_models(way: Way) -> None:
    start, end = planted(sink=5.0, strength=4.0, noise=0.3), planted(strength=40.0, noise=0.1, seed=1)
    np.testing.assert_allclose(laws(way(CONFIG, start, end, 0.0)), laws(start), atol=1e-5)
    np.testing.assert_allclose(laws(way(CONFIG, start, end, 1.0)), laws(end), atol=1e-5)


def test_attention_on_the_way_by_reads_is_a_straight_line() -> None:
    start, end = planted(sink=6.0), planted(strength=40.0)

    def last(flat: np.ndarray) -> float:
        return float(
            ip.copy_heads(ip.capture(disentangled.to_hooked(CONFIG, flat), CHAINS.tokens, copies=True)).last_mass[0]
        )

    ends = last(start), last(end)
    assert ends == pytest.approx((0.5, 1.0), abs=0.02)
    assert last(by_reads(CONFIG, start, end, 0.5)) == pytest.approx(np.mean(ends), abs=1e-5)
    assert last(straight(CONFIG, start, end, 0.5)) > 0.95


def test_a_sink_at_the_last_query_is_undone_by_larger_weights() -> None:
    """Its bias is one that no other query uses: with rows of W_A to match, all keys but the last keep their scores."""
    sharp, diluted = planted(strength=12.0), planted(strength=12.0, sink=12.0)
    made_up = undiluted(CONFIG, diluted, inverse=True)
    np.testing.assert_allclose(scores(made_up), scores(sharp), atol=1e-3)
    assert np.abs(scores(diluted) - scores(sharp)).max() > 0.2
    larger, plain = (disentangled.views(CONFIG, one)["match_weight"][3:6, 6:9] for one in (made_up, sharp))
    assert larger.std() > 1.9 * plain.std()
    np.testing.assert_allclose(undiluted(CONFIG, made_up), diluted, atol=1e-9)


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


def drawn(rows: list[dict[str, Any]]) -> Any:
    with plt.style.context(drawing.STYLE):
        figure = drawing.picture_of(picture, {"flat_direction": rows})
        assert_readable(figure)
    plt.close(figure)
    return figure


def with_control(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    (frozen,) = (row for row in rows if row["freeze"])
    return [*rows, {**frozen, "freeze": "copies_first", "last": [0.25, 0.5]}]


def test_the_picture_shows_the_rows(rows: list[dict[str, Any]]) -> None:
    axes = drawn(with_control(rows)).axes
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
        figure = drawn([row for row in rows if not row["freeze"]])
    assert len(figure.axes) == 6
    with pytest.warns(MissingPanel):
        drawn([])
