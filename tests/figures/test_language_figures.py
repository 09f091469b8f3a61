"""Figures of a language model, from the shipped results: what is drawn is what was measured."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest

from analyses.shipped import shipped_table
from figures.beyond import language
from figures.beyond.language import FIGURES
from figures.parts.rows import where as pick
from figures.running import drawing
from tests.figures.artists import assert_readable


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    document = shipped_table("language_model")
    assert document is not None
    return document.rows


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_can_be_read(rows: list[dict[str, Any]], name: str) -> None:
    module: Any = FIGURES[name]
    results = module.chosen({"language_model": rows})
    with plt.style.context(drawing.STYLE):
        figure = module.draw(results)
        assert_readable(figure)
        plt.close(figure)
    assert len(module.caption(results)) > 100


def test_bars_are_the_masses(rows: list[dict[str, Any]]) -> None:
    results = FIGURES["language_mass"].chosen({"language_model": rows})
    figure = FIGURES["language_mass"].draw(results)
    for ax, row in zip(figure.axes, results["language_model"], strict=True):
        heights = [bar.get_height() for container in ax.containers for bar in getattr(container, "patches", [])]
        np.testing.assert_allclose(heights, [*row["observed"], *row["predicted"]])
    plt.close(figure)


def test_the_map_shows_every_head(rows: list[dict[str, Any]]) -> None:
    figure = FIGURES["language_heads"].draw(FIGURES["language_heads"].chosen({"language_model": rows}))
    image = np.ma.filled(figure.axes[0].images[0].get_array(), np.nan)
    for row in pick(rows, part="heads", kind="head"):
        assert image[row["layer"], row["head"]] == pytest.approx(row["r2_match"])
    heads = {f"{row['layer']}.{row['head']}": row["r2_match"] for row in pick(rows, part="heads", kind="head")}
    matching = {row["name"] for row in pick(rows, part="heads", kind="law")}
    named = {text.get_text() for text in figure.axes[1].texts}
    assert matching < named  # and the heads that come near them
    assert min(heads[name] for name in named) >= language.NAMED * min(heads[name] for name in matching)
    scale = next(ax for ax in figure.axes if "$R^2$" in ax.get_ylabel() and ax is not figure.axes[1])
    assert scale.get_ylim()[1] == pytest.approx(max(heads.values()))
    plt.close(figure)


def test_what_is_compared_shares_its_scale_and_every_predictor_is_drawn(rows: list[dict[str, Any]]) -> None:
    results = FIGURES["language_kl"].chosen({"language_model": rows})
    figure = FIGURES["language_kl"].draw(results)
    model, estimators, nearest = figure.axes
    assert model.get_ylim() == estimators.get_ylim()
    drawn = {line.get_label() for ax in (model, estimators) for line in ax.lines}
    assert drawn == {language.PREDICTORS[row["predictor"]]["label"] for row in pick(rows, kind="kl")}
    named = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    assert "bar: (c) range of two halves" in named
    places = [tuple(line.get_xdata()) for line in nearest.lines if line.get_marker() != "None"]
    assert len(set(places)) == len(places) == 3  # bars do not hide each other
    plt.close(figure)
    figure = FIGURES["language_kappa"].draw(FIGURES["language_kappa"].chosen({"language_model": rows}))
    assert figure.axes[0].get_ylim() == figure.axes[1].get_ylim()
    plt.close(figure)
