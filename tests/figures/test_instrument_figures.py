"""Figures of what the instruments find: the artists are the numbers, and planted mechanisms show their closed form."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from copy import deepcopy
from types import ModuleType
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.legend import Legend

import interp as ip
from analyses.running import cli as analyses_cli
from figures.beyond import (
    causal,
    direct_path,
    dynamics,
    identity_blocks,
    lag_pairs,
    mass_by_overlap,
    nearest_estimator,
    smoothing_source,
)
from figures.parts.panels import MissingPanel
from figures.running import drawing
from interp.plotting import OVERLAP_COLOURS, SOURCE_COLOURS
from tests.figures.artists import assert_readable
from tests.planted import trained_like

Rows = list[dict[str, Any]]
FIGURES = (
    causal,
    direct_path,
    dynamics,
    identity_blocks,
    lag_pairs,
    mass_by_overlap,
    nearest_estimator,
    smoothing_source,
)
BETA, KAPPA = (2.5, 1.2), 2.0
ORDER, VOCAB, LENGTH = 2, 4, 24
PRIORS = {
    "hierarchical": ip.HierarchicalDirichlet(order=ORDER, vocab=VOCAB, eta=(5.0, 5.0)).to_dict(),
    "independent": ip.IndependentDirichlet(order=ORDER, vocab=VOCAB, alpha=1.0).to_dict(),
}


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A planted model for every setting but the standard family, which is missing."""
    folder = tmp_path_factory.mktemp("zoo")
    planted = {
        "a": (ip.construct(order=ORDER, vocab=VOCAB, length=LENGTH, beta=BETA, kappa=KAPPA), "hierarchical"),
        "b": (trained_like(beta=BETA, kappa=KAPPA), "hierarchical"),
        "c": (trained_like(beta=(8.0, 8.0), kappa=17.0), "independent"),
        "d": (trained_like(beta=BETA, kappa=None), "independent"),
    }
    for name, (model, prior) in planted.items():
        ip.save(model, folder / name, training={"prior": PRIORS[prior], "seed": 0, "protocol": "annealed"})
    return [str(folder / name) for name in planted]


@pytest.fixture(scope="module")
def results(zoo: list[str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Rows]:
    """What the real analyses say of them."""
    out = tmp_path_factory.mktemp("results")
    found = {}
    for name in (
        "causal",
        "copy_heads",
        "direct_path",
        "identity_blocks",
        "lag_pairs",
        "nearest_estimator",
        "overlap_mass",
        "smoothing_source",
    ):
        code = analyses_cli.main([name, *zoo, "--batch", "96", "--out", str(out)])
        assert code in (0, 1)  # 1 for causal: even attention costs d no loss, so none can be recovered
        found[name] = json.loads((out / f"{name}.json").read_text())["rows"]
    return found | {"dynamics": [history()]}


def history(**words: Any) -> dict[str, Any]:
    """A run in the shape of the analysis `dynamics`: the lag-2 part comes late, the scores are no law at first."""
    steps = [0, 10, 100, 1000, 10000]
    rows = [
        {
            "step": step,
            "kl": 0.4 - 0.05 * place,
            "kl_stderr": 0.01,
            "fit": place > 1,
            "beta": [1.0 * place, 0.5 * (place > 2)] if place > 1 else [None, None],
            "kappa": 0.5 * place if place > 1 else None,
            "r2_match": 0.9,
            "copy": [0.2 * place, 0.9 if place > 2 else 0.1],
            "mass": [0.4 - 0.08 * place, 0.3, 0.25 + 0.06 * place],
            "bos": 0.03 + 0.02 * place,
            "early": 0.02,
        }
        for place, step in enumerate(steps)
    ]
    subject = {
        "family": "disentangled", "prior": "hierarchical", "bos": True, "length": 64, "order": 2, "vocab": 5,
        "seed": 0, "protocol": "annealed", "start": "soft",
    }  # fmt: skip
    formed = {"kl": 1000, "copy lag 1": 10000, "copy lag 2": 1000, "beta_1": 1000, "beta_2": 1000, "kappa": 10000}
    return {
        "checkpoint": "runs/a", "subject": subject | words, "rows": rows, "formed": formed, "n": 96, "success": True,
        "message": "",
    }  # fmt: skip


def drawn(module: ModuleType, results: dict[str, Rows]) -> Figure:
    """The figure in the house style, the standard family's panels missing."""
    mine = module.chosen({name: results[name] for name in module.ANALYSES})
    with plt.style.context(drawing.STYLE):
        return module.draw(mine)


@pytest.fixture
def closing() -> Iterator[None]:
    yield
    plt.close("all")


pytestmark = pytest.mark.usefixtures("closing")


@pytest.mark.parametrize("module", FIGURES)
def test_pictures_can_be_read_and_say_what_is_missing(module: ModuleType, results: dict[str, Rows]) -> None:
    mine = module.chosen({name: results[name] for name in module.ANALYSES})
    with plt.style.context(drawing.STYLE):
        if module is dynamics:
            figure = module.draw(mine)
        else:
            with pytest.warns(MissingPanel, match="standard"):
                figure = module.draw(mine)
        assert_readable(figure)
    words = drawing.caption_of(module, mine)
    assert "n = 96" in words
    assert "k = 2" in words
    # The sidecar holds what was drawn: drawing from it again changes nothing.
    assert module.chosen(json.loads(json.dumps(mine))) == mine


@pytest.mark.parametrize("module", [causal, identity_blocks, lag_pairs, mass_by_overlap, nearest_estimator])
def test_runs_of_the_papers_protocol_are_not_mixed_in(module: ModuleType, results: dict[str, Rows]) -> None:
    name = module.ANALYSES[0]
    rows = deepcopy(results[name])
    for row in rows:
        row["subject"]["protocol"] = "paper"
    assert module.chosen({name: rows})[name] == []


@pytest.mark.filterwarnings("ignore::figures.parts.panels.MissingPanel")
class TestLagPairs:
    def test_maps_are_the_matrices_and_the_planted_law(self, results: dict[str, Rows]) -> None:
        figure = drawn(lag_pairs, results)
        maps = [ax for ax in figure.axes if ax.images]
        rows = lag_pairs.chosen(results)["lag_pairs"]
        assert len(maps) == len(rows) == 4
        for ax, row in zip(maps, rows, strict=True):
            assert np.array_equal(ax.images[0].get_array(), np.array(row["beta"]))
            frames = [patch.get_xy() for patch in ax.patches]
            assert frames == [(0.5, -0.5), (1.5, 0.5)]  # around (x_t, x_{s-1}) and (x_{t-1}, x_{s-2})
        planted = np.zeros((3, 3))
        planted[0, 1], planted[1, 2] = BETA
        np.testing.assert_allclose(maps[0].images[0].get_array(), planted, atol=1e-6)
        assert "100.0%" in maps[0].get_xlabel()


@pytest.mark.filterwarnings("ignore::figures.parts.panels.MissingPanel")
class TestDirectPath:
    def test_points_and_bars_are_the_numbers(self, results: dict[str, Rows]) -> None:
        figure = drawn(direct_path, results)
        loss, discount, made_of = figure.axes
        (row,) = (row for row in results["direct_path"] if row["subject"]["family"] == "construction")
        assert list(loss.lines[0].get_xdata()) == [row[field] for field in direct_path.POINTS]
        # Where no model knows anything without its match head, one sentence says so.
        assert not made_of.patches
        assert [text.get_text()[:8] for text in made_of.texts] == ["no model"]
        weights = [line.get_xdata()[0] for line in discount.lines if line.get_gid() == "pair"]
        rows = [row for row in results["lag_pairs"] if row["success"]]
        assert weights == [pair[0] for row in rows for pair in row["beta"]]
        assert weights[:3] == pytest.approx([0.0, 0.0, 0.0], abs=1e-6)
        named = {text.get_text() for one in figure.legends for text in one.get_texts()}
        assert {"(a) one seed", "bar: (b) ± one standard error"} < named

    def test_a_model_that_counts_is_shown(self, results: dict[str, Rows]) -> None:
        rows = deepcopy(results)
        one = rows["direct_path"][1]
        one |= {
            "verdict": "counts tokens",
            "gain": 0.3,
            "r2": 0.9,
            "r2_frequency": 0.8,
            "r2_recent": 0.7,
            "r2_control": 0.01,
        }
        figure = drawn(direct_path, rows)
        with plt.style.context(drawing.STYLE):
            assert_readable(figure)
        widths = [bar.get_width() for group in figure.axes[2].containers for bar in group]
        assert widths == [0.8, 0.7, 0.9, 0.01]
        assert figure.axes[2].get_title(loc="left") == "(c) disentangled,\nsilenced: explained by"


@pytest.mark.filterwarnings("ignore::figures.parts.panels.MissingPanel")
class TestIdentityBlocks:
    def test_maps_and_bars_are_the_shares(self, results: dict[str, Rows]) -> None:
        figure = drawn(identity_blocks, results)
        rows = identity_blocks.chosen(results)["identity_blocks"]
        readings = [reading for row in rows for reading in row["maps"]]
        maps = [ax for ax in figure.axes if ax.images]
        bars = [ax for ax in figure.axes if ax.containers]
        assert len(maps) == len(bars) == len(readings) == 8
        for ax, panel, reading in zip(maps, bars, readings, strict=True):
            assert np.array_equal(ax.images[0].get_array(), np.array(reading["weight_share"]))
            pairs = sorted(identity_blocks.heavy(reading))  # from the top, as in the map
            rows_of_bars = [bar.get_y() + bar.get_height() / 2 for bar in panel.containers[0]]
            assert rows_of_bars == pytest.approx([query for query, _ in pairs])
            assert panel.get_ylim() == ax.get_ylim()
            for part, container in zip(identity_blocks.PARTS, panel.containers, strict=True):
                shares = [reading[part][a][b] for a, b in pairs]
                # Stacked bars are drawn from edge to edge, hence rounded.
                assert [bar.get_width() for bar in container] == pytest.approx(shares, abs=1e-12)
        # A planted beta I: (|V| - 1)/|V| of its squared norm is a (I - J/|V|), the rest is constant, nothing is left.
        identity, constant, residual = ([bar.get_width() for bar in group] for group in bars[0].containers)
        np.testing.assert_allclose(identity, (VOCAB - 1) / VOCAB)
        np.testing.assert_allclose(constant, 1 / VOCAB)
        np.testing.assert_allclose(residual, 0.0, atol=1e-12)
        share = BETA[0] ** 2 / (BETA[0] ** 2 + BETA[1] ** 2)
        assert maps[0].images[0].get_array()[0, 1] == pytest.approx(share)


@pytest.mark.filterwarnings("ignore::figures.parts.panels.MissingPanel")
class TestNearestEstimator:
    def test_markers_are_the_distances_and_the_nearest_is_shaded(self, results: dict[str, Rows]) -> None:
        figure = drawn(nearest_estimator, results)
        rows = nearest_estimator.chosen(results)["nearest_estimator"]
        panels = [ax for ax in figure.axes if ax.axison]
        assert len(panels) == len(rows) == 4
        for ax, row in zip(panels, rows, strict=True):
            drawn_at = {line.get_gid(): line.get_xdata()[0] for line in ax.lines if line.get_gid()}
            expected = {one["estimator"]: max(one["kl"], nearest_estimator.LEAST) for one in row["estimators"]}
            assert drawn_at == pytest.approx(expected)
            shaded = {patch.get_gid().partition(" ")[2] for patch in ax.patches if patch.get_gid()}
            assert shaded == {row["nearest"]}


@pytest.mark.filterwarnings("ignore::figures.parts.panels.MissingPanel")
class TestMassByOverlap:
    def test_dots_are_observed_and_rings_predicted(self, results: dict[str, Rows]) -> None:
        figure = drawn(mass_by_overlap, results)
        row = next(row for row in results["overlap_mass"] if row["subject"]["family"] == "construction")
        lines = {line.get_label(): line for line in figure.axes[0].lines}
        observed = {"full": row["by_overlap"]["2"], "partial": row["by_overlap"]["1"], "bos": row["bos"]}
        for kind, mass in observed.items():
            assert lines[kind].get_ydata() == [mass]
            assert to_hex(lines[kind].get_color()) == OVERLAP_COLOURS[kind]
            # The construction is its own law.
            np.testing.assert_allclose(lines[f"{kind}, predicted"].get_ydata(), [mass], atol=1e-6)
        assert "early, predicted" not in lines
        without = {line.get_label() for line in figure.axes[3].lines}
        assert "bos" not in without
        assert "full" in without

    def test_planted_masses_have_their_closed_form(self, results: dict[str, Rows], zoo: list[str]) -> None:
        row = results["overlap_mass"][0]
        prior = ip.HierarchicalDirichlet(order=ORDER, vocab=VOCAB, eta=(5.0, 5.0))
        masks = ip.match_masks(
            prior.sample(batch=96, length=LENGTH, seed=0, method="explicit").tokens, order=ORDER
        ).numpy()
        scores = np.array([0.0, BETA[0], BETA[1], sum(BETA)])
        weights = np.where(masks >= 0, np.exp(scores[np.maximum(masks, 0)]), 0.0)
        total = weights.sum(-1) + math.exp(KAPPA)
        expected = {kind: (weights * (masks == mask)).sum(-1) / total for kind, mask in (("full", 3), ("none", 0))}
        drawn_masses = mass_by_overlap.masses(row, predicted=False)
        for kind, mass in expected.items():
            assert drawn_masses[kind] == pytest.approx(mass.mean(), abs=1e-6)
        assert drawn_masses["bos"] == pytest.approx((math.exp(KAPPA) / total).mean(), abs=1e-6)
        assert sum(drawn_masses.values()) == pytest.approx(1.0, abs=1e-6)

    def test_failed_fits_are_left_out_and_named(self, results: dict[str, Rows]) -> None:
        rows = deepcopy(mass_by_overlap.chosen(results)["overlap_mass"])
        rows[1] |= {"success": False, "predicted_bos": None}
        rows[1]["predicted_by_overlap"] = dict.fromkeys(rows[1]["predicted_by_overlap"])
        with pytest.warns(MissingPanel, match=r"disentangled \(hierarchical prior"):
            drawn(mass_by_overlap, {"overlap_mass": rows})
        caption = drawing.caption_of(mass_by_overlap, {"overlap_mass": rows})
        assert caption.endswith(f"because no law fits their scores: {mass_by_overlap.names_of(rows[1:2])[0]}.")


@pytest.mark.filterwarnings("ignore::figures.parts.panels.MissingPanel")
class TestCausal:
    def test_points_are_the_changes_and_their_controls(self, results: dict[str, Rows]) -> None:
        figure = drawn(causal, results)
        row = next(row for row in results["causal"] if row["subject"]["family"] == "construction")
        edits = {one["edit"]: one for one in causal.by_lag(row, [1, 2])["edits"]}
        assert {"copy_lag_1", "copy_lag_2"} < set(edits)
        (panel,) = (ax for ax in figure.axes if "constr" in ax.get_title(loc="left"))
        names = [name for name in causal.EDITS if name in edits]

        def points(gid: str) -> dict[str, float]:
            lines = [line for line in panel.lines if line.get_gid() == gid]
            return {names[int(line.get_ydata()[0])]: line.get_xdata()[0] for line in lines}

        own, control = points("edit"), points("control")
        assert own == {name: max(edits[name]["kl"], causal.LEAST) for name in names}
        with_control = [name for name in names if edits[name]["control_kl"] is not None]
        assert with_control == [name for name in names if name != "uniform"]
        assert control == {name: max(edits[name]["control_kl"], causal.LEAST) for name in with_control}
        faces = {line.get_markerfacecolor() for line in panel.lines if line.get_gid() == "control"}
        assert faces == {"white"}
        # A construction is its own law: replacing its attention by the law's changes nothing.
        assert edits["law"]["kl"] == pytest.approx(0.0, abs=1e-6)
        (arrow,) = (line for line in panel.lines if line.get_gid() == "edit" and line.get_ydata()[0] == 0)
        assert arrow.get_marker() == "<"
        assert own["beta_zero"] > 0.01
        recovered = figure.axes[-1]
        told = [row for row in causal.chosen(results)["causal"] if row["success"]]
        markers = {}
        for field in ("loss_recovered", "pair_loss_recovered"):
            lines = [line for line in recovered.lines if line.get_gid() == field]
            assert [value for line in lines for value in line.get_ydata()] == [row[field] for row in told]
            (markers[field],) = {line.get_marker() for line in lines}
            # An open marker is a control in the panels above, and nothing else.
            assert {line.get_markerfacecolor() for line in lines}.isdisjoint({"white", "none"})
        assert len(set(markers.values())) == 2
        assert row["loss_recovered"] == pytest.approx(1.0, abs=1e-4)
        named = {text.get_text() for one in figure.findobj(Legend) for text in one.get_texts()}
        assert {"between their medians", "the law of all lag pairs", "bar: ± one standard error"} < named

    def test_copy_heads_stand_on_the_line_of_the_lag_they_copy(self, results: dict[str, Rows]) -> None:
        row = next(row for row in results["causal"] if row["subject"]["family"] == "construction")
        before = {one["edit"]: one["kl"] for one in row["edits"]}
        after = {one["edit"]: one["kl"] for one in causal.by_lag(row, [2, 1])["edits"]}
        assert (after["copy_lag_2"], after["copy_lag_1"]) == (before["copy_head_0"], before["copy_head_1"])
        for unclear in (None, [1, 1], [1, None]):  # then heads keep their numbers
            assert causal.by_lag(row, unclear) == row

    def test_every_seed_is_drawn(self, results: dict[str, Rows]) -> None:
        rows = deepcopy(results)
        first = rows["causal"][1]
        other = deepcopy(first)
        other["subject"]["seed"] = 1
        other |= {"checkpoint": "another", "loss_recovered": first["loss_recovered"] - 0.01}
        next(one for one in other["edits"] if one["edit"] == "beta_zero")["kl"] = 0.7
        rows["causal"].append(other)
        figure = drawn(causal, rows)
        (panel,) = (
            ax for ax in figure.axes if ax.get_title(loc="left").startswith("(b)") or "(b)" in ax.get_title(loc="left")
        )
        place = causal.known_edits(rows["causal"]).index("beta_zero")
        drawn_at = [line.get_xdata()[0] for line in panel.lines if line.get_gid() == "edit"
                    and line.get_ydata()[0] == place]  # fmt: skip
        assert len(drawn_at) == 2
        assert 0.7 in drawn_at
        places = [x for line in figure.axes[-1].lines if line.get_gid() == "loss_recovered" for x in line.get_xdata()]
        assert len(set(places)) == len(places)  # seeds stand apart


@pytest.mark.filterwarnings("ignore::figures.parts.panels.MissingPanel")
class TestSmoothingSource:
    def test_bars_are_the_costs_and_shares(self, results: dict[str, Rows]) -> None:
        figure = drawn(smoothing_source, results)
        alone, parts, uniform = figure.axes[:3]
        rows = smoothing_source.chosen(results)["smoothing_source"]
        for source, colour in SOURCE_COLOURS.items():
            bars = [bar for group in alone.containers if group.get_label() == source for bar in group]
            costs = [one["change"] for row in rows if (one := smoothing_source.switched(row, source)) is not None]
            assert [bar.get_width() for bar in bars] == costs
            assert {to_hex(bar.get_facecolor()) for bar in bars} == {colour}
        shares = [smoothing_source.share(row, source) for row in rows for source in SOURCE_COLOURS]
        shares = [share for share in shares if share is not None]
        assert [bar.get_width() for group in parts.containers for bar in group] == pytest.approx(shares, abs=1e-12)
        assert [bar.get_width() for group in uniform.containers for bar in group] == pytest.approx(
            [0.0] * len(rows), abs=1e-6
        )  # a planted readout mixes nothing in


class TestDynamics:
    def test_curves_are_the_snapshots(self) -> None:
        row = history()
        figure = drawn(dynamics, {"dynamics": [row]})
        kl, copy, law, mass = figure.axes
        assert list(kl.lines[0].get_ydata()) == [one["kl"] for one in row["rows"]]
        assert kl.get_ylim()[0] == 0.0
        assert kl.get_ylim()[1] > max(one["kl"] for one in row["rows"])
        curves = {line.get_label(): line for ax in (copy, law, mass) for line in ax.lines}
        assert list(curves["copy lag 2"].get_ydata()) == [one["copy"][1] for one in row["rows"]]
        beta = curves["beta_1"].get_ydata()
        assert np.isnan(beta[:2]).all()
        assert list(beta[2:]) == [2.0, 3.0, 4.0]
        assert list(curves["full"].get_ydata()) == [one["mass"][2] for one in row["rows"]]
        assert to_hex(curves["bos"].get_color()) == OVERLAP_COLOURS["bos"]
        # Marked where formed, unless that is the last snapshot, which cannot tell.
        dotted = [line.get_xdata()[0] for line in law.lines if line.get_linestyle() == ":"]
        assert dotted == [1000, 1000]
        assert not [line for line in copy.lines if line.get_linestyle() == ":" and line.get_xdata()[0] == 10000]

    def test_steps_of_all_runs_are_on_one_axis_that_holds_the_longest(self) -> None:
        longer = history(family="standard")
        for one in longer["rows"]:
            one["step"] *= 30
        figure = drawn(dynamics, {"dynamics": [history(), longer]})
        ((left, right),) = {ax.get_xlim() for ax in figure.axes}
        assert left < 0
        assert right > 300_000

    def test_four_runs_fit_side_by_side(self) -> None:
        families = ("construction", "disentangled", "standard")
        rows = [*(history(family=family) for family in families), history(protocol="paper")]
        with plt.style.context(drawing.STYLE):
            figure = dynamics.draw(dynamics.chosen({"dynamics": rows}))
            assert len(figure.axes) == 16
            assert_readable(figure)
