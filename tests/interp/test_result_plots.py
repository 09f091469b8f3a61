"""Every result draws itself: the artists are its numbers, and a result that failed says in its title why."""

from __future__ import annotations

import importlib
import inspect
import math
import pkgutil
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.container import BarContainer, ErrorbarContainer

import interp
import interp as ip
from interp import plotting
from interp.results import MOST_LINES, NamedRows, Result, half_width
from tests import planted, reference
from tests.figures.artists import SMALLEST, _not_drawn

MODEL = planted.trained_like(noise=0.05)
NOTHING = planted.without_mechanism()
CHAINS = planted.chains()
MANY = planted.chains(batch=1000)  # enough to tell a loss from its error
FITTED = ip.fit_scores(ip.capture(MODEL, CHAINS.tokens))
TRUTH = {"next_law": CHAINS.next_law}


@pytest.fixture(autouse=True)
def closing() -> Iterator[None]:
    yield
    plt.close("all")


def bars(ax: Axes) -> dict[str, BarContainer]:
    """The bars of each series, by its label."""
    return {str(one.get_label()): one for one in ax.containers if isinstance(one, BarContainer)}


def heights(container: BarContainer) -> list[float]:
    return [bar.get_height() for bar in container]


def widths(container: BarContainer) -> list[float]:
    return [bar.get_width() for bar in container]


def colours(container: BarContainer) -> list[str]:
    return [to_hex(bar.get_facecolor()) for bar in container]


def reaches(ax: Axes, axis: int) -> list[float]:
    """The length of every interval, along x (0) or y (1)."""
    found = [one for one in ax.containers if isinstance(one, ErrorbarContainer)]
    segments = [segment for one in found for bar in one.lines[2] for segment in bar.get_segments()]
    return [float(abs(segment[1, axis] - segment[0, axis])) for segment in segments]


def ticks(ax: Axes, axis: str = "x") -> list[str]:
    return [label.get_text() for label in getattr(ax, f"get_{axis}ticklabels")()]


def title(ax: Axes) -> str:
    return " ".join(ax.get_title(loc="left").split())


def assert_readable(ax: Axes) -> None:
    """Both axes are named, there is a title, and no text is cut off or too small."""
    assert ax.get_ylabel() or ticks(ax, "y")
    assert ax.get_xlabel() or ticks(ax)
    assert title(ax)
    figure = ax.figure
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    page = figure.bbox.padded(1)
    hidden = {id(text) for axis in (ax.xaxis, ax.yaxis) for text in _not_drawn(axis)}
    for text in figure.findobj(plt.Text):
        if text.get_visible() and text.get_text().strip() and id(text) not in hidden:
            box = text.get_window_extent(renderer)
            assert page.contains(box.x0, box.y0), text.get_text()
            assert page.contains(box.x1, box.y1), text.get_text()
            assert text.get_fontsize() >= SMALLEST, text.get_text()


# What each is asked on a planted model, and where it fails. A dash of the failure that no model shows is set by hand.


def planted_results() -> dict[str, Any]:
    cap = ip.capture(MODEL, CHAINS.tokens)
    pairs = ip.fit_score_pairs(cap)
    prior = ip.HierarchicalDirichlet(order=2, vocab=4, eta=(5.0, 5.0))
    tokens = CHAINS.tokens
    deep = ip.Circuit(planted.planted_deep(), bos=True, **planted.DEEP)
    repeated = torch.randint(4, (30, 12), generator=torch.Generator().manual_seed(0)).repeat(1, 2)
    return {
        "MatchFit": FITTED,
        "AttentionFit": ip.fit_scores(cap, source="attention"),
        "LawComparison": ip.compare_laws(cap),
        "HeadScan": ip.scan_heads(MODEL, tokens),
        "CopyingScores": ip.copying_scores(MODEL, tokens),
        "PairFit": pairs,
        "OverlapMass": ip.overlap_mass(cap, FITTED),
        "CopyHeads": ip.copy_heads(cap),
        "IdentityBlocks": ip.identity_blocks(MODEL, tokens),
        "LabelSymmetry": ip.label_symmetry(MODEL, tokens[:16], other_models=[planted.trained_like(noise=0.1)]),
        "NearestEstimator": ip.nearest_estimator(MODEL, tokens, law=FITTED),
        "CausalTests": ip.causal_tests(MODEL, MANY.tokens, next_law=MANY.next_law, law=FITTED, pair_law=pairs),
        "SmoothingSource": ip.smoothing_source(MODEL, tokens, **TRUTH),
        "DirectPath": ip.direct_path(MODEL, tokens, **TRUTH),
        "VoteWeight": ip.vote_weight(MODEL, tokens, **TRUTH, alpha=1.0),
        "ReplacedHeads": ip.replace_heads(deep, repeated, query=range(12, 23), draws=1),
        "LawByLayer": ip.law_by_layer(MODEL, tokens, **TRUTH),
        "OptimalParameters": ip.optimal_parameters(prior, length=24, bos=True, draws=400),
        "PredictedParameters": ip.predicted_parameters(prior, length=24, bos=True),
        "JelinekMercerFit": ip.tune_jelinek_mercer(prior, length=24, draws=400),
        "AddAlphaFit": ip.tune_add_alpha(prior, length=24, draws=400),
        "BayesPredictive": ip.bayes_predictive(tokens[:4], prior=prior, draws=40),
        "Divergence": ip.kl_divergence(CHAINS.next_law, ip.predict(MODEL, tokens)),
    }


def planted_order_1() -> ip.InductionTransformer:
    """At order 1 the three laws are one."""
    return planted.trained_like(order=1, beta=(2.0,))


def failed_results(good: dict[str, Any]) -> dict[str, Any]:
    cap = ip.capture(NOTHING, CHAINS.tokens)
    fit = ip.fit_scores(cap)
    tokens = CHAINS.tokens
    failed = {
        "MatchFit": fit,
        "AttentionFit": ip.fit_scores(cap, source="attention"),
        "LawComparison": ip.compare_laws(ip.capture(planted_order_1(), planted.chains(order=1).tokens)),
        "HeadScan": ip.scan_heads(NOTHING, tokens),
        "PairFit": ip.fit_score_pairs(cap),
        "OverlapMass": ip.overlap_mass(cap, fit),
        "CopyHeads": ip.copy_heads(cap),
        "IdentityBlocks": ip.identity_blocks(NOTHING, tokens),
        "CausalTests": ip.causal_tests(NOTHING, tokens, **TRUTH, law=None),
        "VoteWeight": ip.vote_weight(MODEL, tokens[:5], next_law=CHAINS.next_law[:5]),
    }
    by_hand = {"success": False, "message": "the search ended early"}
    return failed | {name: replace(result, **by_hand) for name, result in good.items() if name not in failed}


@pytest.fixture(scope="module")
def good() -> dict[str, Any]:
    return planted_results()


@pytest.fixture(scope="module")
def bad(good: dict[str, Any]) -> dict[str, Any]:
    return failed_results(good)


def result_classes() -> dict[str, type[Result]]:
    """Every class of results in the package."""
    for module in pkgutil.walk_packages(interp.__path__, "interp."):
        importlib.import_module(module.name)
    waiting, found = [Result], {}
    while waiting:
        for one in waiting.pop().__subclasses__():
            waiting.append(one)
            if one.__module__.startswith("interp.") and one is not NamedRows and not inspect.isabstract(one):
                found[one.__name__] = one
    return found


def test_every_result_of_the_package_is_drawn_here(good: dict[str, Any], bad: dict[str, Any]) -> None:
    classes = result_classes()
    assert set(good) == set(bad) == set(classes)
    for name, one in classes.items():
        assert one.plot is not Result.plot, name
        parameters = list(inspect.signature(one.plot).parameters.values())
        assert (parameters[1].name, parameters[1].default) == ("ax", None)
        assert all(parameter.kind is parameter.KEYWORD_ONLY for parameter in parameters[2:]), name
        assert isinstance(good[name], one)
        assert good[name].success
        assert not bad[name].success
        assert bad[name].message


@pytest.mark.parametrize("name", sorted(result_classes()))
def test_results_can_be_read_printed_and_shown(name: str, good: dict[str, Any], bad: dict[str, Any]) -> None:
    for result in (good[name], bad[name]):
        assert len(str(result).splitlines()) <= MOST_LINES
        assert repr(result) == str(result)
        html = result._repr_html_()
        assert "<table" in html
        assert (result.doubt != "") == (not result.success) == ("color" in html)
        ax = result.plot()
        assert_readable(ax)
        if not result.success:
            reason = result.message.removeprefix("weights: ")  # a block map names its route already
            assert f"{result.DOUBT}: {reason}" in title(ax)
        assert (to_hex(ax._left_title.get_color()) == plotting.SHUT_OUT) == (not result.success)
        _, given = plt.subplots()
        assert result.plot(given) is given
        assert len(plt.get_fignums()) == 2  # the one it made, and ours
        plt.close("all")


# Captures: the induction bars of one query.


def kind_by_definition(tokens: list[int], s: int, *, k: int) -> str:
    """The kind of token s (from 1) as the last query sees it, by def:match_mask."""
    if s not in reference.candidates(len(tokens), k):
        return "early"
    size = len(reference.match_mask(tokens, t=len(tokens), s=s, k=k))
    return {0: "none", k: "full"}.get(size, "partial")


@pytest.mark.parametrize("sequence", [0, 3])
def test_a_capture_draws_its_attention_coloured_by_overlap(sequence: int) -> None:
    cap = ip.capture(MODEL, CHAINS.tokens)
    ax = cap.plot(sequence=sequence)
    assert_readable(ax)
    (container,) = bars(ax).values()
    tokens = CHAINS.tokens[sequence].tolist()
    kinds = ["bos", *(kind_by_definition(tokens, s, k=2) for s in range(1, len(tokens) + 1))]
    weights = cap.match_pattern[sequence, 0, -1]
    assert heights(container) == pytest.approx(weights.tolist())
    assert colours(container) == [plotting.OVERLAP_COLOURS[kind] for kind in kinds]
    assert len(set(kinds)) >= 4
    assert ticks(ax) == ["BOS", *map(str, tokens)]
    shares = {text.get_text().split(":")[0]: text.get_text().split()[-1] for text in ax.get_legend().get_texts()}
    full = sum(weight for weight, kind in zip(weights.tolist(), kinds, strict=True) if kind == "full")
    assert shares["full match"] == f"{full:.2f}"
    assert title(ax).endswith(f"whose context is {tokens[-2]} {tokens[-1]}")


def test_a_capture_without_a_mechanism_draws_what_it_attends_to() -> None:
    """The colours are of the tokens, not of the model: attention that ignores overlap stands on grey keys, too."""
    cap = ip.capture(NOTHING, CHAINS.tokens)
    (container,) = bars(cap.plot()).values()
    assert heights(container) == pytest.approx(cap.match_pattern[0, 0, -1].tolist())
    trained = bars(ip.capture(MODEL, CHAINS.tokens).plot())
    assert colours(container) == colours(next(iter(trained.values())))


def test_a_capture_draws_any_query_and_head() -> None:
    cap = ip.capture(MODEL, CHAINS.tokens[:4], query="all")
    ax = cap.plot(sequence=1, query=9)
    (container,) = bars(ax).values()
    assert heights(container) == pytest.approx(cap.match_pattern[1, 0, 9, :10].tolist())
    assert "at token 9" in title(ax)
    early = cap.plot(query=1)  # one token: it has no context to match
    assert colours(next(iter(bars(early).values()))) == [plotting.OVERLAP_COLOURS[kind] for kind in ("bos", "early")]
    pattern = torch.cat([cap.match_pattern, cap.match_pattern.flip(0)], dim=1)
    two = replace(cap, match_pattern=pattern, match_scores=pattern.log())
    mean, second = two.plot(), two.plot(head=1)
    assert heights(next(iter(bars(mean).values()))) == pytest.approx(two.match_pattern[0, :, -1].mean(0).tolist())
    assert heights(next(iter(bars(second).values()))) == pytest.approx(two.match_pattern[0, 1, -1].tolist())
    for wrong in ({"sequence": 4}, {"query": 99}, {"head": 1}):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))}=.*, but the capture has"):
            cap.plot(**wrong)


# Each result: its numbers are the artists, and a failed one draws what it observed.


def test_match_fit(good: dict[str, Any], bad: dict[str, Any]) -> None:
    fit = good["MatchFit"]
    ax = fit.plot()
    points = [float(one.lines[0].get_ydata()[0]) for one in ax.containers]
    assert points == pytest.approx([*fit.beta, fit.kappa])
    assert reaches(ax, 1) == pytest.approx(np.subtract(*fit.interval()[::-1]))
    assert ticks(ax) == [r"$\beta_{1}$", r"$\beta_{2}$", r"$\kappa$"]
    failed = bad["MatchFit"].plot()
    assert not failed.containers
    assert ticks(failed) == ticks(ax)
    several = replace(fit, heads=(replace(fit, beta=fit.beta + 1), fit)).plot()
    dashes = [line for line in several.lines if line.get_marker() == "_" and len(line.get_ydata()) == 3]
    assert [line.get_ydata().tolist() for line in dashes] == [[*(fit.beta + 1), fit.kappa], [*fit.beta, fit.kappa]]


def test_attention_fit(good: dict[str, Any], bad: dict[str, Any]) -> None:
    fit = good["AttentionFit"]
    ax = fit.plot()
    points = [float(one.lines[0].get_ydata()[0]) for one in ax.containers]
    assert points == pytest.approx([*fit.beta, fit.kappa])
    assert reaches(ax, 1) == pytest.approx(np.subtract(*fit.interval()[::-1]))
    assert f"it explains {fit.nats_explained:.1%} of" in title(ax)
    assert not bad["AttentionFit"].plot().containers


def test_law_comparison(good: dict[str, Any]) -> None:
    result = good["LawComparison"]
    ax = result.plot()
    points = [float(one.lines[0].get_ydata()[0]) for one in ax.containers]
    assert points == pytest.approx(result.nats_explained.tolist())
    assert ticks(ax) == ["additive", "suffix", "free"]
    assert title(ax).startswith("additive law predicts")


def test_head_scan(good: dict[str, Any], bad: dict[str, Any]) -> None:
    scan = good["HeadScan"]
    ax = scan.plot()
    image = ax.images[0].get_array()
    assert image.shape == (2, 2)
    assert image[1, 0] == pytest.approx(scan.nats_explained[1, 0])
    assert image.mask[1, 1]  # there is no such head
    framed = {(round(patch.get_y() + 0.5), round(patch.get_x() + 0.5)): patch for patch in ax.patches}
    assert set(framed) == {(0, 0), (0, 1), (1, 0)}
    assert to_hex(framed[0, 1].get_edgecolor()) == plotting.lag_colour(2)
    assert to_hex(framed[1, 0].get_edgecolor()) == plotting.OVERLAP_COLOURS["full"]
    assert [text.get_text() for text in ax.texts if text.get_text()] == ["1", "2"]
    assert "match heads: 1.0; copy heads: 0.0 (lag 1), 0.1 (lag 2)" in title(ax)
    empty = bad["HeadScan"].plot()
    assert not empty.patches
    assert "match heads: none; copy heads: none" in title(empty)


def test_copying_scores(good: dict[str, Any]) -> None:
    result = good["CopyingScores"]
    ax = result.plot()
    found = bars(ax)
    assert heights(found["own token"]) == pytest.approx([one.vote for one in result.votes])
    assert heights(found["another key's token"]) == pytest.approx([one.control_vote for one in result.votes])
    assert ticks(ax) == ["1.0"]


def test_pair_fit(good: dict[str, Any], bad: dict[str, Any]) -> None:
    ax = good["PairFit"].plot()
    assert np.array_equal(ax.images[0].get_array(), good["PairFit"].beta)
    assert len(ax.texts) == 9
    failed = bad["PairFit"].plot()
    assert failed.images[0].get_array().mask.all()
    assert not failed.texts


def test_overlap_mass(good: dict[str, Any], bad: dict[str, Any]) -> None:
    kinds = ("none", "partial", "full", "bos", "early")
    for result in (good["OverlapMass"], bad["OverlapMass"]):
        ax = result.plot()
        observed = [*result.by_overlap, result.bos, result.early]
        assert heights(bars(ax)["observed"]) == pytest.approx(observed)
        assert colours(bars(ax)["observed"]) == [plotting.OVERLAP_COLOURS[kind] for kind in kinds]
        assert reaches(ax, 1) == pytest.approx(2 * half_width(result.stderr_by_group, n=result.n))
        rings = [line for line in ax.lines if line.get_marker() == "o"]
        if result.success:
            predicted = [*result.predicted_by_overlap, result.predicted_bos, 0.0]
            assert rings[0].get_ydata().tolist() == pytest.approx(predicted)
        else:
            assert rings == []
    bare = ip.overlap_mass(ip.capture(planted.trained_like(kappa=None), CHAINS.tokens)).plot()
    assert "BOS" not in ticks(bare)


def test_copy_heads(good: dict[str, Any], bad: dict[str, Any]) -> None:
    for result in (good["CopyHeads"], bad["CopyHeads"]):
        ax = result.plot()
        found = bars(ax)
        for lag in (1, 2):
            assert heights(found[f"lag {lag}"]) == pytest.approx(result.masses[:, lag - 1].tolist())
            assert set(colours(found[f"lag {lag}"])) == {plotting.lag_colour(lag)}
        assert heights(found["itself"]) == pytest.approx(result.self_mass.tolist())
        assert heights(found["BOS"]) == pytest.approx(result.bos_mass.tolist())
        (diamonds,) = [line for line in ax.lines if line.get_marker() == "D"]
        assert diamonds.get_ydata().tolist() == pytest.approx(result.last_mass.tolist())
        for head, x in enumerate(diamonds.get_xdata()):  # on the bar of the assigned lag
            bar = found[f"lag {result.lag[head]}"][head]
            assert bar.get_x() < x < bar.get_x() + bar.get_width()
        assert [name.splitlines()[1] for name in ticks(ax)] == list(result.verdict)


def test_identity_blocks(good: dict[str, Any], bad: dict[str, Any]) -> None:
    for result in (good["IdentityBlocks"], bad["IdentityBlocks"]):
        for route in result:
            ax = result.plot(route=route)
            assert np.array_equal(ax.images[0].get_array(), result[route].weight_share)
            assert f"from the {route}" in title(ax)
            assert ("not to be trusted" in title(ax)) == (not result[route].success)
        assert np.array_equal(result.plot().images[0].get_array(), result.maps[0].weight_share)
    with pytest.raises(KeyError, match="no route 'circuit'"):
        good["IdentityBlocks"].plot(route="circuit")


def test_label_symmetry(good: dict[str, Any]) -> None:
    result = good["LabelSymmetry"]
    ax = result.plot()
    (container,) = bars(ax).values()
    assert heights(container) == pytest.approx(sorted(result.by_relabeling, reverse=True))
    assert [float(line.get_ydata()[0]) for line in ax.lines] == pytest.approx([result.kl, result.seeds_kl])
    alone = replace(result, other_models=0).plot()
    assert len(alone.lines) == 1


def test_nearest_estimator(good: dict[str, Any]) -> None:
    result = good["NearestEstimator"]
    ax = result.plot()
    points = [one.lines[0] for one in ax.containers]
    assert [float(point.get_xdata()[0]) for point in points] == pytest.approx([row.kl for row in result.estimators])
    assert [point.get_markerfacecolor() == "white" for point in points] == [row.tuned for row in result.estimators]
    assert [name.split()[0] for name in ticks(ax, "y")] == list(result)
    assert ax.get_ylim()[0] > ax.get_ylim()[1]  # the nearest on top


def test_causal_tests(good: dict[str, Any], bad: dict[str, Any]) -> None:
    for result in (good["CausalTests"], bad["CausalTests"]):
        ax = result.plot()
        found = bars(ax)
        assert widths(found["edit"]) == pytest.approx([row.loss_change for row in result.edits])
        controls = [row.control_loss_change for row in result.edits]
        assert widths(found["control"]) == pytest.approx([one for one in controls if one is not None])
        assert ticks(ax, "y") == list(result)
        assert set(colours(found["control"])) == {plotting.CONTROL_COLOUR}
    assert "law" in good["CausalTests"]
    assert "law" not in bad["CausalTests"]


def test_smoothing_source(good: dict[str, Any]) -> None:
    result = good["SmoothingSource"]
    ax = result.plot()
    found = bars(ax)
    assert widths(found["alone"]) == pytest.approx([result[part.source].change for part in result.shares])
    assert widths(found["part"]) == pytest.approx([part.contribution for part in result.shares])
    assert colours(found["alone"]) == [plotting.SOURCE_COLOURS[part.source] for part in result.shares]
    bare = ip.smoothing_source(planted.planted_standard(), CHAINS.tokens, **TRUTH)
    ax = bare.plot()
    assert_readable(ax)
    applied = [part for part in bare.shares if part.applies]
    assert len(applied) == 1
    assert widths(bars(ax)["part"]) == pytest.approx([part.contribution for part in applied])
    assert sum("does not apply" in text.get_text() for text in ax.texts) == 2


def test_direct_path(good: dict[str, Any]) -> None:
    result = good["DirectPath"]
    (container,) = bars(result.plot()).values()
    assert widths(container) == pytest.approx([result.kl_uniform, result.kl, result.kl_model])


def test_vote_weight(good: dict[str, Any], bad: dict[str, Any]) -> None:
    result = good["VoteWeight"]
    ax = result.plot()
    weights, counted = (line.get_ydata() for line in ax.lines[:2])
    assert list(weights) == pytest.approx([row.weight for row in result.weights], nan_ok=True)
    assert list(counted) == pytest.approx([row.counted for row in result.weights], nan_ok=True)
    assert not bad["VoteWeight"].plot().lines


def test_replaced_heads(good: dict[str, Any]) -> None:
    result = good["ReplacedHeads"]
    ax = result.plot()
    found = bars(ax)
    assert heights(found["edit"]) == pytest.approx([row.change for row in result.edits])
    controls = [row.control_change for row in result.edits]
    assert heights(found["control"]) == pytest.approx([one for one in controls if one is not None])
    assert None in controls
    assert ticks(ax) == list(result)


def test_predicted_parameters(good: dict[str, Any]) -> None:
    result = good["PredictedParameters"]
    ax = result.plot()
    points = [float(one.lines[0].get_ydata()[0]) for one in ax.containers]
    assert points == pytest.approx([*result.beta, result.kappa])
    exact = ip.predicted_parameters(ip.IndependentDirichlet(order=2, vocab=3, alpha=1.0), length=24, bos=True)
    assert ticks(exact.plot())[-1] == r"$\kappa-\sum\beta$"


def test_optimal_parameters(good: dict[str, Any]) -> None:
    result = good["OptimalParameters"]
    ax = result.plot()
    points = [float(one.lines[0].get_ydata()[0]) for one in ax.containers]
    assert points == pytest.approx([*result.beta, result.kappa])
    flat = replace(
        result,
        beta=(math.inf, math.inf),
        kappa=math.inf,
        stderr=(math.nan,) * 3,
        flat=(True, True),
        combination=1.5,
        combination_stderr=0.1,
    )
    ax = flat.plot()
    assert_readable(ax)
    assert [float(one.lines[0].get_ydata()[0]) for one in ax.containers] == [1.5]
    assert [text.get_text() for text in ax.texts].count("\N{INFINITY}") == 3
    assert ticks(ax)[-1] == r"$\kappa-\beta_1-\beta_2$"


def test_jelinek_mercer_and_the_order_mixture(good: dict[str, Any]) -> None:
    result = good["JelinekMercerFit"]
    (container,) = bars(result.plot()).values()
    assert heights(container) == pytest.approx(result.weights)
    assert colours(container) == [plotting.OVERLAP_COLOURS[kind] for kind in ("none", "partial", "full")]
    mixture = ip.order_mixture(CHAINS.tokens, order=2, vocab=4, beta=1.5)
    ax = mixture.plot()
    assert_readable(ax)
    assert mixture.plot(ax) is ax
    medians = np.median(mixture.order_weights.numpy(), axis=0)
    drawn = [line.get_ydata()[0] for line in ax.lines if len(set(line.get_ydata())) == 1 and len(line.get_ydata()) == 2]
    assert all(np.isclose(drawn, median).any() for median in medians)


def test_add_alpha_fit(good: dict[str, Any]) -> None:
    result = good["AddAlphaFit"]
    ax = result.plot()
    assert_readable(ax)
    assert [float(one.lines[0].get_ydata()[0]) for one in ax.containers] == pytest.approx([result.alpha])


def test_bayes_predictive(good: dict[str, Any]) -> None:
    result = good["BayesPredictive"]
    for sequence in (0, 3):
        ax = result.plot(sequence=sequence)
        (container,) = bars(ax).values()
        assert heights(container) == pytest.approx(result.mean[sequence].tolist())
        assert reaches(ax, 1) == pytest.approx(np.subtract(*result.interval()[::-1])[sequence])


def test_divergence(good: dict[str, Any]) -> None:
    result = good["Divergence"]
    ax = result.plot()
    assert sum(bar.get_height() for bar in ax.containers[0]) == len(result.values)
    assert float(ax.lines[0].get_xdata()[0]) == pytest.approx(result.mean)
