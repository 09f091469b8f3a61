"""What the paper leaves open: the analysis, and the figure whose verdict can fail."""

from __future__ import annotations

import json
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest

import interp as ip
from analyses.running.cli import main
from analyses.studies import open_choices
from figures.beyond import open_choices as picture
from interp.estimators.population import draw_population, population_loss
from models.families.kappa import KappaRule
from tests.figures.artists import assert_readable, drawn


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    out = tmp_path_factory.mktemp("results")
    arguments = ["--eta0s", "0.5", "2", "--eta0-lengths", "16", "--lengths", "16", "24", "--draws", "1200"]
    assert main(["open_choices", *arguments, "--batch", "200", "--cache", str(out / "cache"), "--out", str(out)]) == 0
    found: list[dict[str, Any]] = json.loads((out / "open_choices.json").read_text())["rows"]
    return found


def test_the_readings_of_kappa(rows: list[dict[str, Any]]) -> None:
    swept = [row for row in rows if row["question"] == "eta0"]
    assert [(row["eta0"], row["length"]) for row in swept] == [(0.5, 16), (2.0, 16)]
    readings = {row["reading"]: row for row in rows if row["question"] == "kappa" and row["length"] == 24}
    prior = ip.HierarchicalDirichlet(order=2, vocab=5, eta=(5.0, 5.0))
    best = ip.optimal_parameters(prior, length=24, bos=True, draws=1200, seed=1)
    # The same sample: the free reading is the optimum itself.
    assert readings["free"]["beta"] == pytest.approx(best.beta, abs=1e-3)
    assert readings["free"]["kappa"] == pytest.approx(best.kappa, abs=1e-3)
    assert readings["free"]["over_free"] == pytest.approx(0.0, abs=1e-12)
    for name in ("tied(1)", "fixed(0)", "no BOS"):
        assert readings[name]["over_free"] > 0
        assert readings[name]["kl"] > readings["free"]["kl"]
    tied, fixed = readings["tied(1)"], readings["fixed(0)"]
    assert tied["kappa"] == pytest.approx(sum(tied["beta"]) + np.log(5))
    assert fixed["kappa"] == pytest.approx(sum(fixed["beta"]) / 5)
    assert readings["no BOS"]["kappa"] is None


def test_betas_under_a_tied_kappa_are_a_minimum() -> None:
    prior = ip.HierarchicalDirichlet(order=2, vocab=4, eta=(5.0, 5.0))
    sample = draw_population(prior, length=20, order=2, draws=800, seed=0)
    for reading in ("tied(1)", "fixed(0)", "tied(0.1)"):
        theta = open_choices.best_under(sample, reading, order=2, vocab=4)
        offset, slope = KappaRule.parse(reading).line(vocab=4)
        assert theta[2] == pytest.approx(offset + slope * theta[:2].sum())
        least = population_loss(sample, theta, bos=True).value
        for step in ((0.05, 0.0), (-0.05, 0.0), (0.0, 0.05), (0.0, -0.05)):
            beta = theta[:2] + np.array(step)
            moved = np.append(beta, offset + slope * beta.sum())
            assert population_loss(sample, moved, bos=True).value > least


def test_the_picture_is_the_table(rows: list[dict[str, Any]]) -> None:
    figure = drawn("open_choices", {"open_choices": rows})
    assert_readable(figure)
    tied = [row["over_free_share"] for row in rows if row["reading"] == "tied(1)"]
    lines = {line.get_label(): list(line.get_ydata()) for line in figure.axes[2].lines}
    assert lines[picture.READINGS["tied(1)"][0]] == tied
    plt.close(figure)
