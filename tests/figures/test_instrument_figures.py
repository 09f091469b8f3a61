"""Figures of what the instruments find: the artists are the numbers, and planted mechanisms show their closed form."""

from __future__ import annotations

import json
import math
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex

import interp as ip
from analyses.running import cli as analyses_cli
from figures.beyond import causal, direct_path, identity_blocks, mass_by_overlap, nearest_estimator, smoothing_source
from figures.parts.figure import load_figure
from figures.parts.panels import MissingPanel
from interp.plotting import OVERLAP_COLOURS, SOURCE_COLOURS
from tests.figures.artists import assert_readable, drawn
from tests.planted import trained_like

Rows = list[dict[str, Any]]
ANALYSES = {  # by figure, what it draws
    "causal": "causal",
    "direct_path": "direct_path",
    "identity_blocks": "identity_blocks",
    "lag_pairs": "lag_pairs",
    "mass_by_overlap": "overlap_mass",
    "nearest_estimator": "nearest_estimator",
    "smoothing_source": "smoothing_source",
}
BETA, KAPPA = (2.5, 1.2), 2.0
ORDER, VOCAB, LENGTH = 2, 4, 24
PRIORS = {
    "hierarchical": ip.HierarchicalDirichlet(order=ORDER, vocab=VOCAB, eta=(5.0, 5.0)),
    "independent": ip.IndependentDirichlet(order=ORDER, vocab=VOCAB, alpha=1.0),
}
pytestmark = pytest.mark.filterwarnings("ignore::figures.parts.panels.MissingPanel")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Rows]:
    """What the analyses say of a planted model for every setting but the standard family, which is missing."""
    folder = tmp_path_factory.mktemp("zoo")
    planted = {
        "a": (ip.construct(order=ORDER, vocab=VOCAB, length=LENGTH, beta=BETA, kappa=KAPPA), "hierarchical"),
        "b": (trained_like(beta=BETA, kappa=KAPPA), "hierarchical"),
        "c": (trained_like(beta=(8.0, 8.0), kappa=17.0), "independent"),
        "d": (trained_like(beta=BETA, kappa=None), "independent"),
    }
    for name, (model, prior) in planted.items():
        training = {"prior": PRIORS[prior].to_dict(), "seed": 0, "protocol": "annealed"}
        ip.save(model, folder / name, training=training)
    found = {}
    for name in (*ANALYSES.values(), "copy_heads"):
        paths = [str(folder / one) for one in planted]
        code = analyses_cli.main([name, *paths, "--batch", "96", "--out", str(folder / "out")])
        assert code in (0, 1)  # 1 for causal: even attention costs d no loss, so none can be recovered
        found[name] = json.loads((folder / "out" / f"{name}.json").read_text())["rows"]
    return found


def construction(rows: Rows) -> dict[str, Any]:
    return next(row for row in rows if row["subject"]["family"] == "construction")


@pytest.mark.parametrize("name", ANALYSES)
def test_pictures_can_be_read_and_say_what_is_missing(name: str, results: dict[str, Rows]) -> None:
    figure = load_figure(name)
    mine = figure.chosen(results)
    with pytest.warns(MissingPanel, match="standard"):
        assert_readable(drawn(name, results))
    words = figure.caption(mine)
    assert "n = 96" in words
    assert "k = 2" in words


@pytest.mark.parametrize("name", ["causal", "identity_blocks", "lag_pairs", "mass_by_overlap", "nearest_estimator"])
def test_runs_of_the_papers_protocol_are_not_mixed_in(name: str, results: dict[str, Rows]) -> None:
    rows = deepcopy(results[ANALYSES[name]])
    for row in rows:
        row["subject"]["protocol"] = "paper"
    assert load_figure(name).ANALYSES[ANALYSES[name]](rows) == []


def test_maps_of_pairs_are_the_matrices_and_the_planted_law(results: dict[str, Rows]) -> None:
    maps = [ax for ax in drawn("lag_pairs", results).axes if ax.images]
    rows = load_figure("lag_pairs").chosen(results)["lag_pairs"]
    assert len(maps) == len(rows) == 4
    for ax, row in zip(maps, rows, strict=True):
        assert np.array_equal(ax.images[0].get_array(), np.array(row["beta"]))
        frames = [patch.get_xy() for patch in ax.patches]
        assert frames == [(0.5, -0.5), (1.5, 0.5)]  # around (x_t, x_{s-1}) and (x_{t-1}, x_{s-2})
    planted = np.zeros((3, 3))
    planted[0, 1], planted[1, 2] = BETA
    np.testing.assert_allclose(maps[0].images[0].get_array(), planted, atol=1e-6)
    assert "100.0%" in maps[0].get_xlabel()


def test_the_direct_path_has_its_losses_and_what_explains_it(results: dict[str, Rows]) -> None:
    losses, made_of = drawn("direct_path", results).axes
    row = construction(results["direct_path"])
    assert list(losses.lines[0].get_xdata()) == [row[field] for field in direct_path.POINTS]
    # Where no model knows anything without its match head, one sentence says so.
    assert [text.get_text()[:8] for text in made_of.texts] == ["no model"]
    counting = deepcopy(results)
    shares = {"r2_frequency": 0.8, "r2_recent": 0.7, "r2": 0.9, "r2_control": 0.01}
    counting["direct_path"][1] |= {"verdict": "counts tokens", "gain": 0.3, **shares}
    figure = drawn("direct_path", counting)
    assert_readable(figure)
    assert [bar.get_width() for group in figure.axes[1].containers for bar in group] == list(shares.values())


def test_maps_and_bars_of_blocks_are_the_shares(results: dict[str, Rows]) -> None:
    figure = drawn("identity_blocks", results)
    readings = [reading for row in results["identity_blocks"] for reading in row["maps"]]
    maps, bars = [ax for ax in figure.axes if ax.images], [ax for ax in figure.axes if ax.containers]
    assert len(maps) == len(bars) == len(readings) == 8
    for ax, panel, reading in zip(maps, bars, readings, strict=True):
        assert np.array_equal(ax.images[0].get_array(), np.array(reading["weight_share"]))
        pairs = sorted(identity_blocks.heavy(reading))  # from the top, as in the map
        places = [bar.get_y() + bar.get_height() / 2 for bar in panel.containers[0]]
        assert places == pytest.approx([query for query, _ in pairs])
        assert panel.get_ylim() == ax.get_ylim()
        for part, container in zip(identity_blocks.PARTS, panel.containers, strict=True):
            shares = [reading[part][a][b] for a, b in pairs]
            assert [bar.get_width() for bar in container] == pytest.approx(shares, abs=1e-12)
    # A planted beta I: (|V| - 1)/|V| of its squared norm is a (I - J/|V|), the rest is constant, nothing is left.
    identity, constant, residual = ([bar.get_width() for bar in group] for group in bars[0].containers)
    np.testing.assert_allclose(identity, (VOCAB - 1) / VOCAB)
    np.testing.assert_allclose(constant, 1 / VOCAB)
    np.testing.assert_allclose(residual, 0.0, atol=1e-12)
    assert maps[0].images[0].get_array()[0, 1] == pytest.approx(BETA[0] ** 2 / (BETA[0] ** 2 + BETA[1] ** 2))


def test_markers_are_the_distances_and_the_nearest_is_shaded(results: dict[str, Rows]) -> None:
    rows = load_figure("nearest_estimator").chosen(results)["nearest_estimator"]
    for ax, row in zip(drawn("nearest_estimator", results).axes, rows, strict=True):
        places = {line.get_gid(): line.get_xdata()[0] for line in ax.lines if line.get_gid()}
        assert places == pytest.approx(
            {one["estimator"]: max(one["kl"], nearest_estimator.LEAST) for one in row["estimators"]}
        )
        assert {patch.get_gid() for patch in ax.patches if patch.get_gid()} == {f"nearest {row['nearest']}"}


def test_dots_are_observed_masses_and_rings_predicted_ones(results: dict[str, Rows]) -> None:
    figure = drawn("mass_by_overlap", results)
    row = construction(results["overlap_mass"])
    lines = {line.get_label(): line for line in figure.axes[0].lines}
    for kind, mass in {"full": row["by_overlap"]["2"], "partial": row["by_overlap"]["1"], "bos": row["bos"]}.items():
        assert lines[kind].get_ydata() == [mass]
        assert to_hex(lines[kind].get_color()) == OVERLAP_COLOURS[kind]
        # The construction is its own law.
        np.testing.assert_allclose(lines[f"{kind}, predicted"].get_ydata(), [mass], atol=1e-6)
    assert "early, predicted" not in lines
    assert "bos" not in {line.get_label() for line in figure.axes[3].lines}


def test_planted_masses_have_their_closed_form(results: dict[str, Rows]) -> None:
    chains = PRIORS["hierarchical"].sample(batch=96, length=LENGTH, seed=0, method="explicit")
    masks = ip.match_masks(chains.tokens, order=ORDER).numpy()
    scores = np.array([0.0, BETA[0], BETA[1], sum(BETA)])
    weights = np.where(masks >= 0, np.exp(scores[np.maximum(masks, 0)]), 0.0)
    total = weights.sum(-1) + math.exp(KAPPA)
    found = mass_by_overlap.masses(results["overlap_mass"][0], predicted=False)
    for kind, mask in (("full", 3), ("none", 0)):
        assert found[kind] == pytest.approx(((weights * (masks == mask)).sum(-1) / total).mean(), abs=1e-6)
    assert found["bos"] == pytest.approx((math.exp(KAPPA) / total).mean(), abs=1e-6)
    assert sum(found.values()) == pytest.approx(1.0, abs=1e-6)


def test_failed_fits_are_left_out_and_named(results: dict[str, Rows]) -> None:
    rows = deepcopy(load_figure("mass_by_overlap").chosen(results)["overlap_mass"])
    rows[1] |= {"success": False, "predicted_bos": None}
    rows[1]["predicted_by_overlap"] = dict.fromkeys(rows[1]["predicted_by_overlap"])
    with pytest.warns(MissingPanel, match=r"disentangled \(hierarchical prior"):
        drawn("mass_by_overlap", {"overlap_mass": rows})
    caption = load_figure("mass_by_overlap").caption({"overlap_mass": rows})
    assert caption.endswith(f"because no law fits their scores: {mass_by_overlap.names_of(rows[1:2])[0]}.")


def marks(panel: Axes, gid: str) -> dict[int, float]:
    """What is marked on each line of a panel."""
    return {int(line.get_ydata()[0]): line.get_xdata()[0] for line in panel.lines if line.get_gid() == gid}


def test_edits_stand_beside_their_controls(results: dict[str, Rows]) -> None:
    panel = drawn("causal", results).axes[0]  # of the construction
    edits = {one["edit"]: one for one in causal.by_lag(construction(results["causal"]), [1, 2])["edits"]}
    assert {"copy_lag_1", "copy_lag_2"} < set(edits)
    names = [name for name in causal.EDITS if name in edits]
    own = {names[place]: value for place, value in marks(panel, "edit").items()}
    assert own == {name: max(edits[name]["kl"], causal.LEAST) for name in names}
    control = {names[place]: value for place, value in marks(panel, "control").items()}
    assert control == {name: max(edits[name]["control_kl"], causal.LEAST) for name in names if name != "uniform"}
    # A construction is its own law: replacing its attention by the law's changes nothing.
    assert edits["law"]["kl"] == pytest.approx(0.0, abs=1e-6)
    (arrow,) = (line for line in panel.lines if line.get_gid() == "edit" and line.get_ydata()[0] == 0)
    assert arrow.get_marker() == "<"
    assert own["beta_zero"] > 0.01


def test_recovered_losses_are_the_numbers(results: dict[str, Rows]) -> None:
    panel = drawn("causal", results).axes[-1]
    told = [row for row in load_figure("causal").chosen(results)["causal"] if row["success"]]
    for field in ("loss_recovered", "pair_loss_recovered"):
        lines = [line for line in panel.lines if line.get_gid() == field]
        assert [value for line in lines for value in line.get_ydata()] == [row[field] for row in told]
    assert construction(told)["loss_recovered"] == pytest.approx(1.0, abs=1e-4)


def test_copy_heads_stand_on_the_line_of_the_lag_they_copy(results: dict[str, Rows]) -> None:
    row = construction(results["causal"])
    before = {one["edit"]: one["kl"] for one in row["edits"]}
    after = {one["edit"]: one["kl"] for one in causal.by_lag(row, [2, 1])["edits"]}
    assert (after["copy_lag_2"], after["copy_lag_1"]) == (before["copy_head_0"], before["copy_head_1"])
    for unclear in (None, [1, 1], [1, None]):  # then heads keep their numbers
        assert causal.by_lag(row, unclear) == row


def test_every_seed_is_drawn(results: dict[str, Rows]) -> None:
    rows = deepcopy(results)
    other = deepcopy(rows["causal"][1])
    other["subject"]["seed"] = 1
    other |= {"checkpoint": "another", "loss_recovered": other["loss_recovered"] - 0.01}
    next(one for one in other["edits"] if one["edit"] == "beta_zero")["kl"] = 0.7
    rows["causal"].append(other)
    axes = drawn("causal", rows).axes
    place = causal.known_edits(rows["causal"]).index("beta_zero")
    moved = [line.get_xdata()[0] for line in axes[1].lines if line.get_gid() == "edit" and line.get_ydata()[0] == place]
    assert len(moved) == 2
    assert 0.7 in moved
    places = [x for line in axes[-1].lines if line.get_gid() == "loss_recovered" for x in line.get_xdata()]
    assert len(set(places)) == len(places)  # seeds stand apart


def test_bars_of_smoothing_are_the_costs_and_shares(results: dict[str, Rows]) -> None:
    alone, parts, uniform = drawn("smoothing_source", results).axes[:3]
    rows = load_figure("smoothing_source").chosen(results)["smoothing_source"]
    for source, colour in SOURCE_COLOURS.items():
        bars = [bar for group in alone.containers if group.get_label() == source for bar in group]
        costs = [one["change"] for row in rows if (one := smoothing_source.switched(row, source)) is not None]
        assert [bar.get_width() for bar in bars] == costs
        assert {to_hex(bar.get_facecolor()) for bar in bars} == {colour}
    shares = [smoothing_source.share(row, source) for row in rows for source in SOURCE_COLOURS]
    widths = [bar.get_width() for group in parts.containers for bar in group]
    assert widths == pytest.approx([share for share in shares if share is not None], abs=1e-12)
    mixed_in = [bar.get_width() for group in uniform.containers for bar in group]
    assert mixed_in == pytest.approx([0.0] * len(rows), abs=1e-6)  # a planted readout mixes nothing in


def test_edits_of_four_heads_are_points_with_their_controls() -> None:
    recovered = {  # of each edit and of its control
        "ablated": (0.0, 0.95), "even": (-0.1, None), "law": (0.9, -0.08), "hard": (0.2, -1.7),
        "only 1.0": (0.33, None), "law 1.0": (0.3, 0.04), "only 1.1": (0.37, None),
    }  # fmt: skip
    rows = [
        {
            "edit": edit,
            "recovered": own,
            "recovered_stderr": 0.01,
            "control_recovered": control,
            "n": 9,
            "success": True,
        }
        for edit, (own, control) in recovered.items()
    ]
    figure = drawn("four_heads", {"four_heads": rows})
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
    assert "-1.7" in {text.get_text() for text in ax.texts}
