"""Figures drawn as the command draws them, and closed afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import matplotlib.pyplot as plt
import pytest

from figures.running import drawing


@pytest.fixture
def drawn() -> Iterator[Callable[[str, dict[str, Any]], Any]]:
    """Chooses the rows of a figure, by its name, and draws them in the house style."""

    def draw(name: str, results: dict[str, Any]) -> Any:
        module = drawing.load_module(name)
        with plt.style.context(drawing.STYLE):
            figure = drawing.picture_of(module, module.chosen(results))
            figure.canvas.draw()
        return figure

    yield draw
    plt.close("all")
