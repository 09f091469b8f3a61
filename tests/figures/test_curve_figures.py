"""The figures of curves over length: curves are the table, missing rows are notes, verdicts can fail."""

from __future__ import annotations

import json
import warnings

import pytest
from matplotlib.colors import to_hex

import interp as ip
from analyses.running import cli as analyses_cli
from analyses.studies import kl_curves
from figures.parts import curves as curve_panels
from figures.parts.figure import load_figure
from figures.parts.panels import MissingPanel
from models.families.registry import drawing_order, find_family
from tests.figures.artists import assert_readable, drawn

LENGTHS = (32, 64, 1024)
BAYES = {32: 0.21, 64: 0.14, 1024: 0.02}


def subject(family, *, prior="hierarchical", bos=True, length=64, seed=0, protocol="annealed"):
    return {
        "family": family, "prior": prior, "bos": bos, "length": length, "order": 2, "vocab": 5, "seed": seed,
        "protocol": protocol,
    }  # fmt: skip


def kl_row(prior, length, predictor, factor, *, group="classical", words=None):
    """A row whose KL is `factor` times Bayes', with small errors."""
    bayes = BAYES[length]
    kl = factor * bayes
    return {
        "prior": prior, "order": 2, "vocab": 5, "length": length, "predictor": predictor, "group": group,
        "alpha": 0.22 if predictor == "add-alpha, tuned" else None, "subject": words,
        "kl": kl, "stderr": 0.01 * kl, "excess": kl - bayes, "excess_stderr": 1e-4 * bayes,
        "excess_share": factor - 1, "excess_share_stderr": 1e-4, "floored": 0.7 if factor > 2 else 0.0,
        "floor": 1e-6, "monte_carlo_error": 0.001, "n": 4000, "best_add_alpha": "add-0.5",
        "below_add_alpha": 1.4 * bayes - kl, "below_add_alpha_stderr": 1e-3 * bayes,
    }  # fmt: skip


INDEPENDENT = {"bayes": 1.0, "maximum likelihood": 16.0, "hard, no BOS": 16.5, "hard, BOS": 1.0, "add-1": 1.0}
HIERARCHICAL = {name: 2.0 for name in curve_panels.LOOKS} | {
    "bayes": 1.0, "maximum likelihood": 9.0, "add-0.1": 1.6, "add-0.5": 1.4, "add-1": 1.8, "add-alpha, tuned": 1.35,
    "optimal, BOS": 1.05,
}  # fmt: skip
ADAPTIVE = {32: 1.5, 64: 1.2, 1024: 1.02}


def claimed_rows():
    """Rows that are as the paper says."""
    rows = []
    for length in LENGTHS:
        rows += [kl_row("hierarchical:5", length, name, factor) for name, factor in HIERARCHICAL.items()]
        rows += [kl_row("independent:1", length, name, factor) for name, factor in INDEPENDENT.items()]
        rows.append(kl_row("independent:1", length, "beta(t), no BOS", ADAPTIVE[length]))
        for seed in range(3):
            for place, family in enumerate(("construction", "disentangled", "standard")):
                words = subject(family, length=length, seed=seed)
                factor = 1.05 - 0.01 * place + 0.001 * seed
                rows.append(kl_row("hierarchical:5", length, f"h/{family}{seed}", factor, group="trained", words=words))
            for bos, factor in ((True, 1.001), (False, 1.04)):
                words = subject("disentangled", prior="independent", bos=bos, length=length, seed=seed)
                name = f"i{bos}/{seed}"
                rows.append(kl_row("independent:1", length, name, factor + seed / 1000, group="trained", words=words))
    return rows


def lines_by_label(ax):
    return {line.get_label(): line for line in ax.get_lines()}


def test_kl_curves_are_the_table():
    rows = claimed_rows()
    figure = drawn("kl_vs_position", {"kl_curves": rows})
    assert_readable(figure)
    axes = figure.axes
    assert [ax.get_title(loc="left")[:3] for ax in axes[:3]] == ["(a)", "(b)", "(c)"]
    for column, (prior, names) in enumerate(
        (("independent:1", ("bayes", "maximum likelihood", "hard, no BOS", "beta(t), no BOS")),
         ("independent:1", ("bayes", "maximum likelihood", "hard, BOS")),
         ("hierarchical:5", ("bayes", "add-0.1", "add-0.5", "add-1", "add-alpha, tuned")))
    ):  # fmt: skip
        for ax, field in ((axes[column], "kl"), (axes[column + 3], "excess_share")):
            lines = lines_by_label(ax)
            for name in names:
                table = [row[field] for row in rows if (row["prior"], row["predictor"]) == (prior, name)]
                label = curve_panels.LOOKS[name]["label"]
                line = lines[label if field == "excess_share" else label.removesuffix(", BOS")]
                assert list(line.get_xdata()) == list(LENGTHS)
                assert list(line.get_ydata()) == table
    points = lines_by_label(axes[2])[find_family("standard").trained_label]
    assert to_hex(points.get_color()) == find_family("standard").colour
    mine = [row for row in rows if row["subject"] and row["subject"]["family"] == "standard"]
    assert sorted(points.get_ydata()) == sorted(row["kl"] for row in mine)
    # A family's markers stand inside those of the next, so that all can be seen.
    sizes = [lines_by_label(axes[2])[find_family(name).trained_label] for name in drawing_order()]
    assert [line.get_markersize() for line in sizes] == sorted(line.get_markersize() for line in sizes)
    (legend,) = figure.legends
    keys = [(h.get_color(), h.get_linestyle(), h.get_marker(), h.get_linewidth()) for h in legend.get_lines()]
    assert len(keys) == len(set(keys))


def test_runs_of_the_papers_protocol_are_left_out():
    rows = claimed_rows()
    other = kl_row("hierarchical:5", 64, "paper", 3.0, words=subject("disentangled", protocol="paper"))
    kept = load_figure("kl_vs_position").chosen({"kl_curves": [*rows, other]})["kl_curves"]
    assert not any(row["predictor"] == "paper" for row in kept)


def test_a_missing_prior_is_a_note():
    rows = [row for row in claimed_rows() if row["prior"] == "independent:1"]
    with pytest.warns(MissingPanel, match="hierarchical prior"):
        figure = drawn("kl_vs_position", {"kl_curves": rows})
    assert_readable(figure)
    assert lines_by_label(figure.axes[0])


BETA, KAPPA, LENGTH = (2.4, 1.1), 2.9, 24


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """Constructions with known parameters as if trained, through the real analyses; the folder of results."""
    root = tmp_path_factory.mktemp("planted")
    prior = ip.HierarchicalDirichlet(order=2, vocab=5, eta=(5.0, 5.0))
    record = {"prior": prior.to_dict(), "seed": 0, "status": "finished", "protocol": "annealed"}
    model = ip.construct(order=2, vocab=5, length=LENGTH, beta=BETA, kappa=KAPPA)
    ip.save(model, root / "zoo/hard", training=record)
    out = ["--out", str(root / "results"), "--cache", str(root / "cache")]
    zoo = ["--zoo", str(root / "zoo")]
    few = ["--priors", "hierarchical:5", "--lengths", "12", str(LENGTH)]
    before, kl_curves.TUNING_DRAWS = kl_curves.TUNING_DRAWS, 400
    try:
        run(["kl_curves", *few, "--batch", "200", "--draws", "80", *out, *zoo])
        run(["optimal", "--sweeps", "length", "zoo", *few, "--batch", "100", "--draws", "2000", *out, *zoo])
        few = ["--questions", "context", "--draws", "400", "--bayes-draws", "80"]
        run(["worlds", *few, "--length", str(LENGTH), "--batch", "300", *out, *zoo])
    finally:
        kl_curves.TUNING_DRAWS = before
    run(["pseudo_counts", "--batch", "200", "--lengths", "16", "32", "--vocabs", "2", "5", *out])
    run(["beta_kappa", str(root / "zoo/hard"), "--batch", "64", *out[:2]])
    run(["lag_asymmetry", str(root / "zoo/hard"), "--batch", "64", *out[:2]])
    return root / "results"


def run(argv):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert analyses_cli.main(argv) in (0, 1)  # few sequences may not converge


def rows_of(folder, *names):
    return {name: json.loads((folder / f"{name}.json").read_text())["rows"] for name in names}


def test_a_planted_construction_is_drawn_at_its_parameters(planted):
    results = rows_of(planted, "beta_kappa", "optimal")
    with pytest.warns(MissingPanel):  # no independent prior
        figure = drawn("beta_kappa_zoo", results)
    assert_readable(figure)
    for ax, value in zip(figure.axes[:3], (*BETA, KAPPA), strict=True):
        points = lines_by_label(ax)[find_family("construction").trained_label]
        assert points.get_ydata() == pytest.approx([value], abs=1e-3)
        lemma = lines_by_label(ax)
        if ax is not figure.axes[2]:
            curve = next(line for line in lemma.values() if line.get_linestyle() == "--")
            expected = [ip.beta_for_add_alpha(length=length, order=2, vocab=5, alpha=1.0) for length in (12, LENGTH)]
            assert list(curve.get_ydata()) == pytest.approx(expected)


def test_a_failed_fit_is_not_drawn(planted):
    results = rows_of(planted, "beta_kappa", "optimal")
    failed = {**results["beta_kappa"][0], "success": False, "message": "no law", "beta": [None, None], "kappa": None}
    with pytest.warns(MissingPanel):
        figure = drawn("beta_kappa_zoo", {**results, "beta_kappa": [failed]})
    assert find_family("construction").trained_label not in lines_by_label(figure.axes[0])
    assert "1 of 1 fits failed" in load_figure("beta_kappa_zoo").caption({**results, "beta_kappa": [failed]})


def test_the_planted_models_kl_is_the_closed_forms(planted):
    rows = rows_of(planted, "kl_curves")["kl_curves"]
    with pytest.warns(MissingPanel):
        figure = drawn("kl_vs_position", {"kl_curves": rows})
    points = lines_by_label(figure.axes[0])[find_family("construction").trained_label]
    prior = ip.HierarchicalDirichlet(order=2, vocab=5, eta=(5.0, 5.0))
    chains = prior.sample(batch=200, length=LENGTH, seed=0, method="collapsed")
    law = ip.soft_matching(chains.tokens, vocab=5, beta=BETA, kappa=KAPPA)
    assert points.get_ydata() == pytest.approx([ip.kl_divergence(chains.next_law, law).mean])
    row = next(row for row in rows if row["subject"])
    rival = next(r for r in rows if r["predictor"] == row["best_add_alpha"] and r["length"] == LENGTH)
    assert row["below_add_alpha"] == pytest.approx(rival["kl"] - row["kl"])


def test_lags_are_drawn_at_their_betas(planted):
    rows = rows_of(planted, "lag_asymmetry")["lag_asymmetry"]
    figure = drawn("lag_asymmetry", {"lag_asymmetry": rows})
    assert_readable(figure)
    for ax in figure.axes:
        points = ax.get_lines()[0]
        assert points.get_xdata() == pytest.approx([BETA[0]], abs=1e-3)
        assert points.get_ydata() == pytest.approx([BETA[1]], abs=1e-3)
    caption = load_figure("lag_asymmetry").caption({"lag_asymmetry": rows})
    assert f"1 checkpoints of T = {LENGTH}" in caption


def test_each_start_has_its_row_of_lags(planted):
    (row,) = rows_of(planted, "lag_asymmetry")["lag_asymmetry"]
    starts = {"hard": (3.0, 2.0), "soft": (2.0, 3.0)}
    trained = [
        {**row, "family": "disentangled", "raw_1": one, "raw_2": other}
        | {"subject": {**row["subject"], "family": "disentangled", "start": start}}
        for start, (one, other) in starts.items()
    ]
    results = {"lag_asymmetry": [row, *trained]}
    figure = drawn("lag_asymmetry", results)
    assert_readable(figure)
    assert [ax.get_title("left") for ax in figure.axes][1::2] == [
        f"({letter}) raw weight blocks, {start} start" for letter, start in zip("bd", starts, strict=True)
    ]
    for ax, at in zip(figure.axes[1::2], starts.values(), strict=True):
        construction, mine = ax.get_lines()[:2]
        assert (mine.get_xdata()[0], mine.get_ydata()[0]) == at
        assert construction.get_xdata() == pytest.approx([BETA[0]], abs=1e-3)
    assert [ax.get_xlabel() for ax in figure.axes[:2]] == ["", ""]
    assert all(ax.get_xlabel() for ax in figure.axes[2:])


def test_a_run_without_a_law_is_named_and_models_without_bos_have_their_own_marker(planted):
    (row,) = rows_of(planted, "lag_asymmetry")["lag_asymmetry"]
    none = {"fit": False, "beta_1": None, "beta_2": None, "raw_1": 4.0, "raw_2": 0.2}
    lost = {**row, **none, "subject": {**row["subject"], "seed": 7}}
    without = {**row, "subject": {**row["subject"], "bos": False}}
    figure = drawn("lag_asymmetry", {"lag_asymmetry": [row, lost, without]})
    assert_readable(figure)
    scores, blocks = figure.axes
    (name,) = blocks.texts
    assert name.get_text() == f"T = {LENGTH}, seed 7:\nno law in the scores"
    assert name.xy == (4.0, 0.2)
    assert not scores.texts
    markers = {line.get_marker() for line in scores.lines if line.get_marker() != "None"}
    assert len(markers) == 2
    assert "v" in markers


def test_contexts_are_drawn_bin_by_bin(planted):
    rows = rows_of(planted, "worlds")["worlds"]
    with pytest.warns(MissingPanel):  # the map
        figure = drawn("excess_map", {"worlds": rows})
    assert_readable(figure)
    for ax, by in zip(figure.axes, ("seen", "entropy", "position"), strict=True):
        table = [row["excess"] for row in rows if row["by"] == by and row["predictor"] == "soft matching"]
        (line,) = (line for line in ax.lines if line.get_gid() == "soft matching")
        assert list(line.get_ydata()) == table
        assert ("share of the queries" in ax.get_xlabel()) == (by != "position")


def test_pseudo_counts_are_drawn(planted):
    rows = rows_of(planted, "pseudo_counts")["pseudo_counts"]
    figure = drawn("pseudo_counts", {"pseudo_counts": rows})
    assert_readable(figure)
    for ax, order in zip(figure.axes, (1, 2, 3), strict=True):
        table = [row["mean"] for row in rows if (row["order"], row["vocab"]) == (order, 5)]
        assert any(list(line.get_ydata()) == table for line in ax.get_lines())
