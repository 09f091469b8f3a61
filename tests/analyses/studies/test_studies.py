"""The statistical studies, run from the command line on few sequences."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from analyses.running.cli import main
from analyses.studies import kl_curves, optimal
from interp.chains.priors import HierarchicalDirichlet
from interp.divergence import KL_FLOOR
from interp.hooked.checkpoint import save
from interp.hooked.construction import construct

PRIOR = HierarchicalDirichlet(order=2, vocab=3, eta=(5.0, 5.0))
BETA, KAPPA, LENGTH = (2.4, 1.1), 2.9, 24


@pytest.fixture(scope="module")
def zoo(tmp_path_factory):
    """A zoo of one checkpoint with planted parameters."""
    root = tmp_path_factory.mktemp("zoo")
    model = construct(order=2, vocab=3, length=LENGTH, beta=BETA, kappa=KAPPA)
    training = {"prior": PRIOR.to_dict(), "seed": 0, "status": "finished"}
    save(model, root / "planted", training=training)
    save(construct(order=2, vocab=3, length=9, beta=BETA), root / "other_length", training=training)
    save(model, root / "analytic")  # no training record: whose prior?
    return root


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def run(zoo, cache, capsys, monkeypatch):
    """Run a study from the command line and read its JSON; the tests share a cache."""
    monkeypatch.setattr(kl_curves, "TUNING_DRAWS", 400)

    def from_the_command_line(name, *arguments, code=0, with_zoo=True):
        places = ["--cache", str(cache), *(["--zoo", str(zoo)] if with_zoo else [])]
        assert main([name, "--json", *places, *map(str, arguments)]) == code
        return json.loads(capsys.readouterr().out)

    return from_the_command_line


PREDICTORS = {
    "bayes", "maximum likelihood", "add-0.5", "add-alpha, tuned", "jelinek-mercer", "katz", "witten-bell", "kneser-ney",
    "context tree weighting", "hard, no BOS", "hard, BOS", "beta(t), no BOS", "optimal, no BOS", "optimal, BOS",
}  # fmt: skip
CURVES = ("--vocab", 3, "--lengths", 8, LENGTH, "--batch", 300, "--draws", 80)


def test_kl_curves_has_every_predictor_and_its_excess(run):
    found = run("kl_curves", *CURVES)
    rows = pd.DataFrame(found["rows"])
    assert set(rows.prior) == {"hierarchical:5", "independent:1"}
    for (prior, length), here in rows.groupby(["prior", "length"]):
        names = list(here.predictor)
        assert len(set(names)) == len(names)
        assert set(names) >= PREDICTORS
        assert ("planted" in names) == (prior == "hierarchical:5" and length == LENGTH)
        assert not {"unfinished", "analytic"} & set(names)
        bayes = here[here.predictor == "bayes"].kl.item()
        np.testing.assert_allclose(here.excess, here.kl - bayes, atol=1e-12)
        np.testing.assert_allclose(here.excess_share, here.excess / bayes, atol=1e-12)
        assert (here.excess > -4 * here.excess_stderr - 1e-9).all()  # nothing beats Bayes
        additive = here[here.predictor.isin(["add-0.1", "add-0.5", "add-1", "add-alpha, tuned"])]
        assert set(here.best_add_alpha) == {additive.predictor[additive.kl.idxmin()]}
        np.testing.assert_allclose(here.below_add_alpha, additive.kl.min() - here.kl, atol=1e-12)
    assert (rows.n == 300).all()
    assert (rows.floor == KL_FLOOR).all()
    assert (rows[rows.predictor == "maximum likelihood"].floored > 0.2).all()
    assert (rows[rows.predictor == "optimal, BOS"].floored == 0).all()
    assert found["provenance"]["seed"] == 0
    assert "planted" in found["provenance"]["checkpoints"]


def test_kl_curves_measures_a_checkpoint_like_the_estimator_it_is(run):
    from interp.divergence import kl_divergence
    from interp.estimators.soft_matching import soft_matching

    rows = run("kl_curves", *CURVES)["rows"]
    planted = next(row for row in rows if row["predictor"] == "planted")
    chains = PRIOR.sample(batch=300, length=LENGTH, seed=0, method="collapsed")
    expected = kl_divergence(chains.next_law, soft_matching(chains.tokens, vocab=3, beta=BETA, kappa=KAPPA))
    assert planted["kl"] == pytest.approx(expected.mean, rel=1e-4)
    assert planted["stderr"] == pytest.approx(expected.stderr, rel=1e-3)


def test_second_run_computes_nothing(run, monkeypatch):
    first = run("kl_curves", *CURVES)

    def refuse(*_):
        raise AssertionError("computed again")

    monkeypatch.setattr(kl_curves, "study_piece", refuse)
    assert run("kl_curves", *CURVES)["rows"] == first["rows"]
    with pytest.raises(AssertionError, match="computed again"):
        run("kl_curves", *CURVES, "--seed", 1)


CONTEXT = ("worlds", "--questions", "context", "--draws", 400)


def test_the_excess_of_contexts_adds_up(run):
    found = run(*CONTEXT, "--vocab", 3, "--length", LENGTH, "--batch", 400, "--bayes-draws", 80)
    rows = pd.DataFrame(found["rows"])
    assert set(rows.by) == {"seen", "entropy", "position"}
    whole = rows[(rows.by == "position") & (rows["bin"] == str(LENGTH))].set_index("predictor")
    assert {"bayes", "soft matching", "soft matching, retuned", "add-0.5", "planted"} == set(whole.index)
    for by in ("seen", "entropy"):
        for name in ("soft matching", "add-0.5", "planted"):
            part = rows[(rows.by == by) & (rows.predictor == name)]
            assert part.n.sum() == 400
            assert part.share.sum() == pytest.approx(1)
            assert part.contribution.sum() == pytest.approx(whole.excess[name], abs=1e-12)
            assert part.contribution_share.sum() == pytest.approx(1)
    seen = rows[(rows.by == "seen") & (rows.predictor == "bayes")].set_index("bin").kl
    assert seen["0"] > seen["more"]  # what has been seen is known better
    # Parameters for the full length do worse early on than those for the position itself.
    early = rows[(rows.by == "position") & (rows["bin"] == str(LENGTH // 4))].set_index("predictor")
    assert early.kl["soft matching"] > early.kl["soft matching, retuned"]


def test_optimal_reports_combinations_and_what_was_learned(run, monkeypatch):
    monkeypatch.setattr(optimal, "BASE", {"order": 2, "vocab": 3, "length": LENGTH})
    found = run(
        "optimal", "--sweeps", "length", "concentration", "zoo", "--lengths", 16, "--concentrations", 5,
        "--draws", 8000, "--batch", 200,
    )  # fmt: skip
    rows = pd.DataFrame(found["rows"])
    assert set(rows.sweep) == {"length", "concentration", "zoo"}
    flat = rows[(rows.kind == "independent") & rows.bos].iloc[0]
    assert flat.beta == [None, None]
    assert flat.kappa is None or np.isnan(flat.kappa)
    assert flat.combination == pytest.approx(flat.log_alpha_vocab, abs=4 * flat.combination_stderr)
    finite = rows[(rows.kind == "independent") & ~rows.bos.astype(bool)].iloc[0]
    assert all(value > 0 for value in finite.beta)
    assert finite.lemma_beta > 0
    learned = rows[rows.checkpoint == "planted"].iloc[0]
    assert learned.source == "trained"
    np.testing.assert_allclose(learned.beta, BETA, atol=1e-3)
    assert learned.kappa == pytest.approx(KAPPA, abs=1e-3)
    assert learned.over_optimum > -4 * learned.over_optimum_stderr
    best = rows[(rows.sweep == "concentration") & (rows.kind == "hierarchical") & rows.bos].iloc[0]
    np.testing.assert_allclose(learned.gap_beta, np.subtract(BETA, best.beta), atol=1e-3)
    assert (rows.excess > -4 * rows.excess_stderr - 1e-9).all()
    assert learned.subject["family"] == "construction"
    assert set(rows[rows.source == "trained"].length) == {9, LENGTH}


def test_learned_combination_has_the_error_of_a_difference():
    covariance = [[0.04, 0.01, 0.02], [0.01, 0.09, 0.03], [0.02, 0.03, 0.25]]
    fit = {"beta": [3.0, 2.0], "kappa": 6.5, "covariance": covariance}
    value, error = optimal.learned_combination(fit, [0, 1])
    assert value == pytest.approx(1.5)
    assert error == pytest.approx(np.sqrt(0.04 + 0.09 + 0.25 + 2 * (0.01 - 0.02 - 0.03)))
    assert optimal.learned_combination(fit, [1]) == pytest.approx((4.5, np.sqrt(0.09 + 0.25 - 0.06)))
    assert optimal.learned_combination(fit, []) == (None, None)
    assert optimal.learned_combination({**fit, "kappa": None}, [0, 1]) == (None, None)
    unknown = np.full((3, 3), np.nan).tolist()
    assert np.isnan(optimal.learned_combination({**fit, "covariance": unknown}, [0, 1])[1])


def test_pseudo_counts_beside_the_approximation(run):
    found = run(
        "pseudo_counts", "--lengths", 16, 128, "--vocabs", 2, 5, "--orders", 1, 2, "--batch", 800, with_zoo=False
    )
    rows = pd.DataFrame(found["rows"])
    assert len(rows) == 8
    for row in found["rows"]:
        assert row["measured"][0] == row["length"] - row["order"]  # every candidate matches on nothing
        assert row["approximation"][0] == row["length"] - row["order"] - 1
        assert row["ratio"] == pytest.approx(row["mean"] / row["alpha"])
        assert row["low"] <= row["mean"] <= row["high"]
    first = rows[(rows.order == 1) & (rows.length == 128)]
    np.testing.assert_allclose(first.ratio, 127 / 126, atol=1e-9)  # exact at order 1, but for one candidate
    second = rows[rows.order == 2].set_index(["vocab", "length"])
    assert second.ratio[2, 128] > 1.1  # and off where contexts are few: they recur
    assert (second.correlation > 0).all()  # exact counts do tell something of the pseudo-counts


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("kl_curves", "--priors", "nonsense"), "bad prior"),
        (("kl_curves", "--priors", "independent:-1"), "alpha"),
        (("kl_curves", "--lengths", "2", "--batch", "20"), "length"),
        (("kl_curves", "--alphas", "0", "--lengths", "8", "--batch", "20"), "alpha"),
        ((*CONTEXT, "--prior", "hierarchical:0"), "eta"),
        ((*CONTEXT, "--length", "2"), "length"),
        (("optimal", "--sweeps", "concentration", "--concentrations", "0"), "must be a finite number > 0"),
        (("pseudo_counts", "--alpha", "0"), "alpha"),
        (("pseudo_counts", "--lengths", "3", "--orders", "2"), "length"),
    ],
)
def test_bad_input_is_one_line(arguments, message, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(kl_curves, "TUNING_DRAWS", 400)
    places = ["--cache", str(tmp_path)]
    if arguments[0] != "pseudo_counts":
        places += ["--zoo", str(tmp_path / "absent")]
    assert main([*map(str, arguments), *places]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert message in output.err
    assert len(output.err.strip().splitlines()) == 1
