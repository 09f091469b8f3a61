"""The figure of formation draws the table: a line for each run, a point with its interval for each size."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import pytest

from figures.beyond import formation
from figures.running import drawing
from interp.results import half_width
from tests.figures.artists import assert_readable

STEPS = (0, 500, 1000)


def snapshot(layers: int, bos: bool, seed: int, place: int) -> dict[str, Any]:
    matches = layers > 1 and place > 0
    return {
        "kind": "snapshot", "run": f"{layers}{bos}/{seed}", "layers": layers, "bos": bos, "seed": seed,
        "step": STEPS[place], "loss": 3.0 - place - 0.1 * seed, "copied": 0.3 * place, "matched": 0.4 * place,
        "beta": 2.0 * place + 0.1 * seed if matches else None, "kappa": -1.0 * place if matches else None,
    }  # fmt: skip


def order(layers: int, bos: bool) -> dict[str, Any]:
    leads = {"copied_leads": -10.0, "matched_leads": -20.0, "beta_leads": None}
    more = {f"{name}_{word}": value for name in leads for word, value in (("stderr", 5.0), ("n", 3))}
    return {"kind": "order", "run": "seeds", "layers": layers, "bos": bos, **leads, **more}


ROWS = [
    *(snapshot(layers, bos, seed, place) for layers, bos in formation.LOOKS for seed in range(3) for place in range(3)),
    *(order(layers, bos) for layers, bos in formation.LOOKS if layers > 1),
]


def test_lines_are_the_runs_and_points_the_order() -> None:
    results = {"formation": ROWS}
    assert formation.fields(results) == {"seeds": 3}
    with plt.style.context(drawing.STYLE):
        figure = formation.draw(results)
        assert_readable(figure)
    loss, copied, _, beta, kappa, events = figure.axes
    assert [list(line.get_ydata()) for line in loss.lines[:3]] == [
        [row["loss"] for row in ROWS if row["kind"] == "snapshot" and (row["layers"], row["bos"], row["seed"]) == one]
        for one in ((2, True, 0), (2, True, 1), (2, True, 2))
    ]
    assert len(copied.lines) == 18
    assert list(beta.lines[0].get_ydata()[1:]) == [2.0, 4.0]
    assert list(kappa.lines[0].get_ydata()[1:]) == [-1.0, -2.0]
    points = [line for line in events.lines if len(line.get_xdata()) == 1]
    assert [line.get_xdata()[0] for line in points] == [-10.0, -20.0] * 4  # beta has no step in these rows
    (low, high) = events.collections[0].get_segments()[0][:, 0]
    assert (high - low) / 2 == pytest.approx(float(half_width(5.0, n=3)))
    plt.close(figure)
