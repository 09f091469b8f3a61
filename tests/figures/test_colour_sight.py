"""The check of legends finds what cannot be told apart, and lets second marks pass."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pytest

from interp.plotting import LAG_COLOURS, OVERLAP_COLOURS
from tests.figures.colour_sight import LEAST, SIGHTS, apart, confused, seen


def test_known_colours_have_their_known_places() -> None:
    assert seen("#ff0000", "everyone") == pytest.approx([53.24, 80.09, 67.20], abs=0.02)
    assert apart("#000000", "#ffffff", "grey") == pytest.approx(100.0, abs=0.01)
    for sight in SIGHTS:  # who confuses colours still sees greys as they are
        assert seen("#808080", sight) == pytest.approx(seen("#808080", "everyone"), abs=0.05)


def test_a_red_and_a_green_of_one_lightness_are_confused_and_the_suites_colours_are_not() -> None:
    assert apart("#b0602a", "#758000", "everyone") > LEAST["everyone"]
    assert apart("#b0602a", "#758000", "deuteranopia") < LEAST["deuteranopia"]
    for colours in (LAG_COLOURS, tuple(OVERLAP_COLOURS.values())):
        for place, one in enumerate(colours):
            for other in colours[place + 1 :]:
                assert all(apart(one, other, sight) >= least for sight, least in LEAST.items()), (one, other)


@pytest.mark.parametrize(
    "second",
    [{"marker": "s"}, {"linestyle": "--"}, {"marker": "o", "markerfacecolor": "white"}, {"linewidth": 3.0}],
)
def test_a_second_mark_makes_up_for_colour(second: dict[str, object]) -> None:
    first = {"marker": "o"} if "markerfacecolor" in second else {}
    for options, alike in (({}, True), (second, False)):
        figure, ax = plt.subplots()
        ax.errorbar([0, 1], [0, 1], yerr=0.1, color="#b0602a", label="one", **first)
        ax.errorbar([0, 1], [1, 0], yerr=0.1, color="#758000", label="other", **{**first, **options})
        ax.legend()
        figure.canvas.draw()
        assert bool(confused(figure)) == alike
        plt.close(figure)


def test_areas_are_told_apart_by_hatches_and_points_by_colour() -> None:
    figure, (bars, points) = plt.subplots(1, 2)
    bars.bar([0], [1], color="#b0602a", label="one")
    bars.bar([1], [1], color="#758000", label="other", hatch="//")
    bars.legend()
    points.scatter([0], [1], color="#b0602a", label="one")
    points.scatter([1], [1], color="#758000", label="other")
    points.legend()
    figure.canvas.draw()
    assert {text.partition(":")[0] for text in confused(figure)} == {"one / other"}
    points.get_legend().remove()
    assert confused(figure) == []
    plt.close(figure)
