"""The figure of models without BOS: planted readouts are shown for what they are, and other models are left out."""

from __future__ import annotations

import copy
import json
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest

import interp as ip
from analyses.running import cli as analyses_cli
from figures.beyond import leaving_the_law
from figures.parts.panels import MissingPanel
from figures.running import drawing
from tests.figures.artists import assert_readable
from tests.figures.test_instrument_figures import history
from tests.interp.instruments.test_vote_weight import comparing, constant_readout

INDEPENDENT = {"kind": "independent", "order": 2, "vocab": 4, "alpha": 1.0}
WITHOUT = {"prior": "independent", "bos": False, "length": 24}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """A constant readout as the main run, and one that compares tokens as the long one."""
    folder = tmp_path_factory.mktemp("zoo")
    for name, model, protocol in (("main", constant_readout(0.5), "annealed"), ("long", comparing(), "long")):
        ip.save(model, folder / name, training={"prior": INDEPENDENT, "seed": 0, "protocol": protocol})
    found: dict[str, list[dict[str, Any]]] = {}
    for name, batch in (("vote_weight", "2048"), ("beta_kappa", "64")):
        paths = [str(folder / "main"), str(folder / "long")]
        assert analyses_cli.main([name, *paths, "--batch", batch, "--out", str(folder / "out")]) in (0, 1)
        found[name] = json.loads((folder / "out" / f"{name}.json").read_text())["rows"]
    falling = history(**WITHOUT, protocol="long")
    for place, row in enumerate(falling["rows"]):
        row["r2_match"] = (0.0, 0.5, 0.99, 0.98, 0.3)[place]
    return {**found, "dynamics": [falling, history(**WITHOUT, protocol="paper"), history()]}


def drawn(results: dict[str, Any]) -> Any:
    with plt.style.context(drawing.STYLE):
        return drawing.picture_of(leaving_the_law, results)


def test_weights_and_sides_are_those_of_the_models(results: dict[str, Any]) -> None:
    mine = leaving_the_law.chosen(results)
    assert leaving_the_law.chosen(json.loads(json.dumps(mine))) == mine
    assert "n = 2048" in drawing.caption_of(leaving_the_law, mine)
    figure = drawn(mine)
    with plt.style.context(drawing.STYLE):
        assert_readable(figure)
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
    plt.close(figure)


def test_models_with_bos_are_not_mixed_in(results: dict[str, Any]) -> None:
    other = copy.deepcopy(results)
    for row in [*other["vote_weight"], *other["beta_kappa"], *other["dynamics"]]:
        row["subject"]["bos"] = True
    nothing = leaving_the_law.chosen(other)
    assert not any(nothing.values())
    with pytest.warns(MissingPanel):
        figure = drawn(nothing)
    plt.close(figure)
    assert "no such model is there" in drawing.caption_of(leaving_the_law, nothing)
