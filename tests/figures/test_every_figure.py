"""What holds of every figure: it says what it draws, and without results it is a note."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pytest

from figures.parts.panels import MissingPanel
from figures.running import cli, drawing
from models.running.command_line import read_entries
from tests.figures.artists import assert_readable

ENTRIES = read_entries(cli.FOLDER, marker="LABEL")


@pytest.mark.parametrize("name", ENTRIES)
def test_without_results_there_is_a_note(name, drawn):
    module = drawing.load_module(name)
    nothing = {analysis: [] for analysis in module.ANALYSES}
    with pytest.warns(MissingPanel, match="panel left out"):
        figure = drawn(name, nothing)
    assert_readable(figure)
    assert any("not available" in text.get_text() for text in figure.findobj(plt.Text))
    assert len(drawing.caption_of(module, module.chosen(nothing))) > 60
