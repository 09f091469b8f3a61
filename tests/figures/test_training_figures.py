"""Figures along training: curves are the snapshots; without BOS planted readouts are shown for what they are."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex

import interp as ip
from analyses.running import cli as analyses_cli
from figures.beyond import leaving_the_law
from figures.parts.figure import load_figure
from figures.parts.panels import MissingPanel
from interp.plotting import OVERLAP_COLOURS
from tests.figures.artists import assert_readable, drawn
from tests.interp.instruments.test_vote_weight import comparing, constant_readout

INDEPENDENT = {"kind": "independent", "order": 2, "vocab": 4, "alpha": 1.0}
WITHOUT = {"prior": "independent", "bos": False, "length": 24}


def history(**words: Any) -> dict[str, Any]:
    """A run in the shape of the analysis `dynamics`: the lag-2 part comes late, the scores are no law at first."""
    rows = [
        {
            "step": step, "kl": 0.4 - 0.05 * place, "kl_stderr": 0.01, "fit": place > 1, "r2_match": 0.9,
            "beta": [1.0 * place, 0.5 * (place > 2)] if place > 1 else [None, None],
            "kappa": 0.5 * place if place > 1 else None, "copy": [0.2 * place, 0.9 if place > 2 else 0.1],
            "mass": [0.4 - 0.08 * place, 0.3, 0.25 + 0.06 * place], "bos": 0.03 + 0.02 * place, "early": 0.02,
        }
        for place, step in enumerate((0, 10, 100, 1000, 10000))
    ]  # fmt: skip
    subject = {
        "family": "disentangled", "prior": "hierarchical", "bos": True, "length": 64, "order": 2, "vocab": 5,
        "seed": 0, "protocol": "annealed", "start": "soft",
    }  # fmt: skip
    formed = {"kl": 1000, "copy lag 1": 10000, "copy lag 2": 1000, "beta_1": 1000, "beta_2": 1000, "kappa": 10000}
    return {
        "checkpoint": "runs/a", "subject": subject | words, "rows": rows, "formed": formed, "n": 96, "success": True,
        "message": "",
    }  # fmt: skip


def test_curves_are_the_snapshots() -> None:
    row = history()
    figure = drawn("dynamics", {"dynamics": [row]})
    assert_readable(figure)
    kl, copies, law, mass = figure.axes
    assert list(kl.lines[0].get_ydata()) == [one["kl"] for one in row["rows"]]
    assert kl.get_ylim()[1] > max(one["kl"] for one in row["rows"])
    curves = {line.get_label(): line for ax in (copies, law, mass) for line in ax.lines}
    assert list(curves["copy lag 2"].get_ydata()) == [one["copy"][1] for one in row["rows"]]
    beta = curves["beta_1"].get_ydata()
    assert np.isnan(beta[:2]).all()
    assert list(beta[2:]) == [2.0, 3.0, 4.0]
    assert list(curves["full"].get_ydata()) == [one["mass"][2] for one in row["rows"]]
    assert to_hex(curves["bos"].get_color()) == OVERLAP_COLOURS["bos"]
    # Marked where formed, unless that is the last snapshot, which cannot tell.
    dotted = [[line.get_xdata()[0] for line in ax.lines if line.get_linestyle() == ":"] for ax in (law, copies)]
    assert dotted == [[1000, 1000], [1000]]


def test_four_runs_stand_side_by_side_on_one_axis_of_steps() -> None:
    rows = [*(history(family=family) for family in ("construction", "disentangled", "standard"))]
    longer = history(protocol="paper")
    for one in longer["rows"]:
        one["step"] *= 30
    figure = drawn("dynamics", {"dynamics": [*rows, longer]})
    assert len(figure.axes) == 16
    assert_readable(figure)
    ((left, right),) = {ax.get_xlim() for ax in figure.axes}
    assert left < 0
    assert right > 300_000


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """A constant readout as the main run, and one that compares tokens as the long one."""
    folder = tmp_path_factory.mktemp("zoo")
    for name, model, protocol in (("main", constant_readout(0.5), "annealed"), ("long", comparing(), "long")):
        ip.save(model, folder / name, training={"prior": INDEPENDENT, "seed": 0, "protocol": protocol})
    paths = [str(folder / "main"), str(folder / "long")]
    assert analyses_cli.main(["vote_weight", *paths, "--batch", "2048", "--out", str(folder / "out")]) in (0, 1)
    falling = history(**WITHOUT, protocol="long")
    for one, share in zip(falling["rows"], (0.0, 0.5, 0.99, 0.98, 0.3), strict=True):
        one["r2_match"] = share
    votes = json.loads((folder / "out" / "vote_weight.json").read_text())["rows"]
    return {"vote_weight": votes, "dynamics": [falling, history(**WITHOUT, protocol="paper"), history()]}


def test_weights_and_sides_are_those_of_the_models(results: dict[str, Any]) -> None:
    figure = drawn("leaving_the_law", results)
    assert_readable(figure)
    assert "n = 2048" in load_figure("leaving_the_law").caption(results)
    explained, loss, weights, sides = figure.axes
    assert [line.get_ydata()[-1] for line in explained.lines[:2]] == [0.9, 0.3]  # the paper's run, then the long one
    (bar,) = loss.containers  # how sure each point is
    ends = bar.lines[2][0].get_segments()[0][:, 1]
    assert ends[1] - ends[0] == pytest.approx(2 * 0.01)
    curves = [line for line in loss.lines if line not in (bar.lines[0], *bar.lines[1])]
    assert len(curves) == 2
    assert all(min(line.get_xdata()) >= leaving_the_law.FIRST_STEP for line in curves)
    main, long = (row["weights"] for row in results["vote_weight"])
    shown = [list(line.get_ydata()) for line in weights.lines if line.get_gid() == "votes"]
    assert shown == [[one["weight"] for one in rows] for rows in (main, long)]
    assert list(weights.lines[-1].get_ydata()) == [one["counted"] for one in long]
    points = np.asarray(sides.collections[0].get_offsets())
    assert points[:, 1] == pytest.approx(-points[:, 0])


def test_models_with_bos_are_not_mixed_in(results: dict[str, Any]) -> None:
    other = copy.deepcopy(results)
    for row in [*other["vote_weight"], *other["dynamics"]]:
        row["subject"]["bos"] = True
    with pytest.warns(MissingPanel):
        drawn("leaving_the_law", other)
    assert not any(load_figure("leaving_the_law").chosen(other).values())
