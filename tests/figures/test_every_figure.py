"""What holds of every figure: without results it is a note, and what it asks for can be written to a file."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pytest

from figures.parts.figure import FOLDER, load_figure
from figures.parts.panels import MissingPanel
from models.running.command_line import read_entries
from tests.figures.artists import assert_readable, drawn


@pytest.mark.parametrize("name", read_entries(FOLDER, marker="LABEL"))
def test_without_results_there_is_a_note(name):
    one = load_figure(name)
    nothing = {analysis: [] for analysis in one.ANALYSES}
    with pytest.warns(MissingPanel, match="panel left out"):
        figure = drawn(name, nothing)
    assert_readable(figure)
    assert any("not available" in text.get_text() for text in figure.findobj(plt.Text))
    assert len(one.caption(nothing)) > 60
