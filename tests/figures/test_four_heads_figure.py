"""The figure of the four-head model: points are what the edits recover; it says what one head alone does."""

from __future__ import annotations

import json
from typing import Any

import matplotlib.pyplot as plt

from figures.beyond import four_heads
from figures.running import drawing
from tests.figures.artists import assert_readable


def edit(name: str, recovered: float, control: float | None = None) -> dict[str, Any]:
    return {
        "edit": name, "loss": 2.2, "change": 0.03, "stderr": 0.003, "recovered": recovered, "recovered_stderr": 0.01,
        "control_change": 0.3, "control_stderr": 0.01, "control_recovered": control, "model": "four_heads",
        "heads": "1.0, 1.1", "queries": 61, "n": 128, "success": True, "message": "",
    }  # fmt: skip


ROWS = [
    edit("ablated", 0.0, 0.95),
    edit("even", -0.1),
    edit("law", 0.9, -0.08),
    edit("hard", 0.2, -1.7),
    edit("only 1.0", 0.33),
    edit("law 1.0", 0.3, 0.04),
    edit("only 1.1", 0.37),
]


def test_points_are_what_the_edits_recover() -> None:
    mine = four_heads.chosen({"four_heads": ROWS})
    assert four_heads.chosen(json.loads(json.dumps(mine))) == mine
    with plt.style.context(drawing.STYLE):
        figure = four_heads.draw(mine)
        assert_readable(figure)
    (ax,) = figure.axes
    (points,) = (line for line in ax.lines if line.get_gid() == "edits")
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert dict(zip(names, points.get_xdata(), strict=True)) == {
        "the law in all match heads": 0.9, "hard matching in all match heads": 0.2,
        "even attention in all match heads": -0.1,
        "head 1.0 alone, as it is": 0.33, "head 1.1 alone, as it is": 0.37, "head 1.0 alone, with its law": 0.3,
    }  # fmt: skip
    controls = {line.get_gid(): line for line in ax.lines if (line.get_gid() or "").startswith("control")}
    assert controls["control of law"].get_xdata()[0] == -0.08
    assert controls["control of hard"].get_marker() == "<"  # beyond the axis, with its value beside it
    words = {text.get_text(): text for text in ax.texts}
    assert "-1.7" in words
    assert words["all match heads ablated"].xy[0] == 0.0  # what the two lines are
    assert words["the model as it is"].xy[0] == 1.0
    plt.close(figure)
