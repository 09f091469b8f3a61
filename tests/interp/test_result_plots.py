"""Every result draws itself: the artists are its numbers, and a result that failed says in its title why."""

from __future__ import annotations

import importlib
import inspect
import json
import math
import pkgutil
from collections.abc import Callable, Iterable, Iterator
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
    panels = (ax, *ax.child_axes)
    hidden = {id(text) for one in panels for axis in (one.xaxis, one.yaxis) for text in _not_drawn(axis)}
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
        "Track": ip.track([NOTHING, MODEL], tokens),
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
        "Track": ip.track([NOTHING], tokens),
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
    """Asking changes neither the model nor the tokens, and leaves no hook."""
    before = {name: value.clone() for name, value in MODEL.named_parameters()}
    tokens = CHAINS.tokens.clone()
    found = planted_results()
    assert all(torch.equal(value, before[name]) for name, value in MODEL.named_parameters())
    assert torch.equal(CHAINS.tokens, tokens)
    assert not any(point.fwd_hooks for point in MODEL.hook_dict.values())
    return found


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
        json.dumps(result.record(), allow_nan=False)
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


# Each result: its numbers are the artists, and a failed one draws what it observed.


def points(ax: Axes, axis: int = 1) -> list[float]:
    """The markers of estimates, in their order."""
    return [float(one.lines[0].get_xydata()[0, axis]) for one in ax.containers if isinstance(one, ErrorbarContainer)]


def lines(ax: Axes, marker: str) -> list[list[float]]:
    return [line.get_ydata().tolist() for line in ax.lines if line.get_marker() == marker]


def law_of(result: Any) -> list[float]:
    return [*result.beta, *([] if result.kappa is None else [result.kappa])]


def known(values: Iterable[float | None]) -> list[float]:
    return [one for one in values if one is not None and not math.isnan(one)]


# What is drawn, and the numbers that it stands for.
Drawn = Callable[[Any, Axes], list[tuple[Any, Any]]]
DRAWN: dict[str, Drawn] = {
    "MatchFit": lambda r, ax: [
        (points(ax), law_of(r)),
        (reaches(ax, 1), np.subtract(*r.interval()[::-1])),
        (ticks(ax), [r"$\beta_{1}$", r"$\beta_{2}$", r"$\kappa$"]),
    ],
    "AttentionFit": lambda r, ax: [(points(ax), law_of(r)), (reaches(ax, 1), np.subtract(*r.interval()[::-1]))],
    "LawComparison": lambda r, ax: [(points(ax), r.nats_explained), (ticks(ax), ["additive", "suffix", "free"])],
    "CopyingScores": lambda r, ax: [
        (heights(bars(ax)["own token"]), [one.vote for one in r.votes]),
        (heights(bars(ax)["another key's token"]), [one.control_vote for one in r.votes]),
        (ticks(ax), list(r)),
    ],
    "PairFit": lambda r, ax: [(ax.images[0].get_array(), r.beta), (len(ax.texts), 9)],
    "LabelSymmetry": lambda r, ax: [
        (heights(*bars(ax).values()), sorted(r.by_relabeling, reverse=True)),
        ([float(line.get_ydata()[0]) for line in ax.lines], [r.kl, r.seeds_kl]),
    ],
    "NearestEstimator": lambda r, ax: [
        (points(ax, 0), [row.kl for row in r.estimators]),
        ([one.lines[0].get_markerfacecolor() == "white" for one in ax.containers], [row.tuned for row in r.estimators]),
        ([name.split()[0] for name in ticks(ax, "y")], list(r)),
    ],
    "SmoothingSource": lambda r, ax: [
        (widths(bars(ax)["switched off\nalone"]), [r[part.source].change for part in r.shares]),
        (widths(bars(ax)["part in the whole\n(Shapley value)"]), [part.contribution for part in r.shares]),
    ],
    "DirectPath": lambda r, ax: [(widths(*bars(ax).values()), [r.kl_uniform, r.kl, r.kl_model])],
    "VoteWeight": lambda r, ax: [
        (known(ax.lines[0].get_ydata()), known(row.weight for row in r.weights)),
        (known(ax.lines[1].get_ydata()), known(row.counted for row in r.weights)),
    ],
    "ReplacedHeads": lambda r, ax: [
        (heights(bars(ax)["edit"]), [row.change for row in r.edits]),
        (heights(bars(ax)["control"]), known(row.control_change for row in r.edits)),
        (ticks(ax), list(r)),
    ],
    "LawByLayer": lambda r, ax: [(one, two) for one, two in zip(lines(ax, "o"), (r.from_final, r.kl), strict=True)],
    "PredictedParameters": lambda r, ax: [(points(ax), law_of(r))],
    "OptimalParameters": lambda r, ax: [(points(ax), law_of(r))],
    "JelinekMercerFit": lambda r, ax: [
        (heights(*bars(ax).values()), r.weights),
        (colours(*bars(ax).values()), [plotting.OVERLAP_COLOURS[kind] for kind in ("none", "partial", "full")]),
    ],
    "AddAlphaFit": lambda r, ax: [(points(ax), [r.alpha])],
    "BayesPredictive": lambda r, ax: [
        (heights(*bars(ax).values()), r.mean[0]),
        (reaches(ax, 1), np.subtract(*r.interval()[::-1])[0]),
    ],
    "Divergence": lambda r, ax: [
        (sum(bar.get_height() for bar in ax.containers[0]), len(r.values)),
        (float(ax.lines[0].get_xdata()[0]), r.mean),
    ],
}
ALSO_FAILED: dict[str, Drawn] = {
    "OverlapMass": lambda r, ax: [
        (heights(bars(ax)["observed"]), [*r.by_overlap, r.bos, r.early]),
        (colours(bars(ax)["observed"]), [plotting.OVERLAP_COLOURS[kind] for kind in OVERLAPS]),
        (reaches(ax, 1), 2 * half_width(r.stderr_by_group, n=r.n)),
        (
            [one for ring in lines(ax, "o") for one in ring],
            [*r.predicted_by_overlap, r.predicted_bos, 0.0] if r.success else [],
        ),
    ],
    "CopyHeads": lambda r, ax: [
        *((heights(bars(ax)[f"lag {lag}"]), r.masses[:, lag - 1]) for lag in (1, 2)),
        *((set(colours(bars(ax)[f"lag {lag}"])), {plotting.lag_colour(lag)}) for lag in (1, 2)),
        (heights(bars(ax)["itself"]), r.self_mass),
        (heights(bars(ax)["BOS"]), r.bos_mass),
        (lines(ax, "D")[0], r.last_mass),
        ([name.splitlines()[1] for name in ticks(ax)], list(r.verdict)),
    ],
    "CausalTests": lambda r, ax: [
        (widths(bars(ax)["edit"]), [row.loss_change for row in r.edits]),
        (widths(bars(ax)["control"]), known(row.control_loss_change for row in r.edits)),
        (ticks(ax, "y"), list(r)),
        (set(colours(bars(ax)["control"])), {plotting.CONTROL_COLOUR}),
    ],
    "IdentityBlocks": lambda r, ax: [(np.nan_to_num(ax.images[0].get_array()), np.nan_to_num(r.maps[0].weight_share))],
}
OVERLAPS = ("none", "partial", "full", "bos", "early")


@pytest.mark.parametrize("name", [*DRAWN, *ALSO_FAILED])
def test_the_numbers_are_the_artists(name: str, good: dict[str, Any], bad: dict[str, Any]) -> None:
    for result in (good[name], bad[name])[: 1 + (name in ALSO_FAILED)]:
        for drawn, numbers in {**DRAWN, **ALSO_FAILED}[name](result, result.plot()):
            if isinstance(numbers, set) or np.asarray(numbers).dtype.kind == "U":
                assert drawn == numbers
            else:
                np.testing.assert_allclose(drawn, numbers)


@pytest.mark.parametrize("name", ["MatchFit", "AttentionFit"])
def test_a_failed_fit_draws_no_estimate(name: str, bad: dict[str, Any]) -> None:
    assert not bad[name].plot().containers


def test_the_fits_of_each_head_are_dashes(good: dict[str, Any]) -> None:
    fit = good["MatchFit"]
    several = replace(fit, heads=(replace(fit, beta=fit.beta + 1), fit)).plot()
    dashes = [one for one in lines(several, "_") if len(one) == 3]
    assert dashes == [[*(fit.beta + 1), fit.kappa], [*fit.beta, fit.kappa]]


def test_a_scan_frames_the_heads_with_a_role(good: dict[str, Any], bad: dict[str, Any]) -> None:
    scan = good["HeadScan"]
    ax = scan.plot()
    image = ax.images[0].get_array()
    assert image[1, 0] == pytest.approx(scan.nats_explained[1, 0])
    assert image.mask[1, 1]  # there is no such head
    framed = {(round(patch.get_y() + 0.5), round(patch.get_x() + 0.5)): patch for patch in ax.patches}
    assert set(framed) == {(0, 0), (0, 1), (1, 0)}
    assert to_hex(framed[0, 1].get_edgecolor()) == plotting.lag_colour(2)
    assert to_hex(framed[1, 0].get_edgecolor()) == plotting.OVERLAP_COLOURS["full"]
    assert "match heads: 1.0; copy heads: 0.0 (lag 1), 0.1 (lag 2)" in title(ax)
    assert not bad["HeadScan"].plot().patches


def test_blocks_of_a_route_are_drawn(good: dict[str, Any]) -> None:
    result = good["IdentityBlocks"]
    for route in result:
        assert np.array_equal(result.plot(route=route).images[0].get_array(), result[route].weight_share)
    with pytest.raises(KeyError, match="no route 'circuit'"):
        result.plot(route="circuit")


def test_a_source_that_does_not_apply_is_said() -> None:
    bare = ip.smoothing_source(planted.planted_standard(), CHAINS.tokens, **TRUTH)
    ax = bare.plot()
    assert_readable(ax)
    drawn = widths(bars(ax)["part in the whole\n(Shapley value)"])
    assert drawn == pytest.approx([part.contribution for part in bare.shares if part.applies])
    assert sum("does not apply" in name for name in ticks(ax, "y")) == 2


def test_an_optimum_at_infinity_is_written_at_the_edge(good: dict[str, Any]) -> None:
    flat = replace(
        good["OptimalParameters"],
        beta=(math.inf, math.inf),
        kappa=math.inf,
        stderr=(math.nan,) * 3,
        combination=1.5,
        combination_stderr=0.1,
    )
    ax = flat.plot()
    assert points(ax) == [1.5]
    assert [text.get_text() for text in ax.texts].count("\N{INFINITY}") == 3


def test_the_order_mixture_draws_its_medians() -> None:
    mixture = ip.order_mixture(CHAINS.tokens, order=2, vocab=4, beta=1.5)
    ax = mixture.plot()
    assert_readable(ax)
    medians = np.median(mixture.order_weights.numpy(), axis=0)
    drawn = [line.get_ydata()[0] for line in ax.lines if len(set(line.get_ydata())) == 1 and len(line.get_ydata()) == 2]
    assert all(np.isclose(drawn, median).any() for median in medians)
