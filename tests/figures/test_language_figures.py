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


def drawn(name: str, rows: list[dict[str, Any]]) -> Any:
    return FIGURES[name].draw(FIGURES[name].chosen({"language_model": rows}))


def test_the_map_shows_every_head_and_frames_those_that_match(rows: list[dict[str, Any]]) -> None:
    figure = drawn("language_heads", rows)
    image = np.ma.filled(figure.axes[0].images[0].get_array(), np.nan)
    heads = language.by_head(pick(rows, kind="head", model="smollm2"))
    for at, texts in heads.items():
        assert image[at] == pytest.approx(max(row["nats_explained"] or 0.0 for row in texts.values()))
    rings = figure.axes[1].collections[-1].get_offsets()
    assert len(rings) == sum(texts["chains"]["role"] == "match" for texts in heads.values()) == 5
    plt.close(figure)


def test_models_lie_beside_each_other_and_their_control(rows: list[dict[str, Any]]) -> None:
    figure = drawn("language_heads", rows)
    points = {one.get_label(): np.asarray(one.get_offsets()) for one in figure.axes[1].collections}
    models = list(dict.fromkeys(row["model"] for row in pick(rows, kind="head")))
    assert list(points) == [*models, "masks of another sequence", "(b) ring: it matches on chains"]
    assert points["smollm2"].max() > 0.5 > points["masks of another sequence"].max()
    plt.close(figure)


def test_betas_are_of_every_text(rows: list[dict[str, Any]]) -> None:
    figure = drawn("language_heads", rows)
    lines = {line.get_label(): line.get_ydata() for line in figure.axes[2].lines}
    for text in {row["text"] for row in pick(rows, kind="law")}:
        last = max(row["order"] for row in pick(rows, kind="law", text=text))
        assert list(lines[rf"$\beta_1$ on {text}"]) == [
            row["beta"][0] for row in pick(rows, kind="law", text=text, order=last)
        ]
    plt.close(figure)


def test_what_is_compared_shares_its_scale_and_every_predictor_is_drawn(rows: list[dict[str, Any]]) -> None:
    figure = drawn("language_kl", rows)
    models, estimators = figure.axes
    assert models.get_ylim() == estimators.get_ylim()
    seen = {line.get_label() for ax in (models, estimators) for line in ax.lines}
    predictors = {row["predictor"] for row in pick(rows, kind="kl")}
    others = {row["model"] for row in pick(rows, kind="kl")} - {"smollm2"}
    assert seen == {language.PREDICTORS[name]["label"] for name in predictors} | others
    plt.close(figure)
    figure = drawn("language_kappa", rows)
    assert figure.axes[0].get_ylim() == figure.axes[1].get_ylim()
    plt.close(figure)
