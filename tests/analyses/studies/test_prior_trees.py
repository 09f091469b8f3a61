"""Studies behind the schematic figures: node laws and correlations of the priors, and the circuit on one sequence."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import interp as ip
from analyses.running.cli import main
from analyses.studies import circuit, prior_trees
from interp.chains.priors import HierarchicalDirichlet, IndependentDirichlet, Prior
from interp.notation import key_kinds

PRIORS: list[Prior] = [
    IndependentDirichlet(order=2, vocab=3, alpha=0.5),
    HierarchicalDirichlet(order=2, vocab=3, eta=(5.0, 2.0)),
    HierarchicalDirichlet(order=3, vocab=2, eta=(4.0, 1.0, 2.0), eta0=0.5),
]


@pytest.fixture
def run(capsys):
    def from_the_command_line(name, *arguments):
        assert main([name, "--json", *map(str, arguments)]) == 0
        return json.loads(capsys.readouterr().out)

    return from_the_command_line


# ---- the trees


@pytest.mark.parametrize("prior", PRIORS, ids=["indep", "hier-k2", "hier-k3"])
def test_the_deepest_level_of_a_tree_is_the_kernel_that_sequences_are_drawn_from(prior):
    tree = prior.draw_tree(7, np.random.default_rng(3))
    sampled = prior.sample(batch=7, length=9, seed=3, method="explicit").kernel
    assert np.array_equal(tree[prior.order], sampled.numpy())
    assert list(tree) == ([prior.order] if prior.independent else list(range(prior.order + 1)))
    for depth, laws in tree.items():
        assert laws.shape == (7, prior.vocab**depth, prior.vocab)
        np.testing.assert_allclose(laws.sum(-1), 1.0, atol=1e-12)


def test_nodes_are_the_first_draw_with_siblings_side_by_side(run):
    rows = run("prior_trees", "--draws", 50, "--seed", 4)["rows"]
    assert len({tuple(row) for row in rows}) == 1  # the same keys everywhere
    nodes = [row for row in rows if row["what"] == "node" and row["prior"] == "hierarchical"]
    prior = HierarchicalDirichlet(order=2, vocab=3, eta=(5.0, 5.0))
    tree = prior.draw_tree(50, np.random.default_rng(4))
    assert len(nodes) == 13
    assert [row["name"] for row in nodes[:7]] == ["()", "(0)", "(1)", "(2)", "(0,0)", "(1,0)", "(2,0)"]
    for row in nodes:
        code = sum(token * 3**lag for lag, token in enumerate(reversed(row["context"])))
        assert row["law"] == tree[row["depth"]][0, code].tolist()
        suffix = row["context"][1:]
        assert row["parent"] == (None if row["depth"] == 0 else prior_trees.written(suffix))
    alone = [row for row in rows if row["what"] == "node" and row["prior"] == "independent"]
    assert [row["depth"] for row in alone] == [2] * 9
    assert {row["parent"] for row in alone} == {None}


@pytest.mark.parametrize(
    ("prior", "names"),
    [
        (PRIORS[0], ["siblings", "others"]),
        (PRIORS[1], ["siblings", "others", "parent"]),
        (PRIORS[2], ["siblings", "others", "parent"]),
        (HierarchicalDirichlet(order=1, vocab=3, eta=(5.0,)), ["siblings", "parent"]),
    ],
)
def test_correlations_are_the_exact_ones(prior, names):
    found = prior_trees.pairs(prior.draw_tree(6000, np.random.default_rng(1)), prior)
    assert [row["name"] for row in found] == names
    for row in found:
        assert row["stderr"] < 0.02
        assert abs(row["correlation"] - row["exact"]) < 4 * row["stderr"], row["name"]
        assert row["exact"] == 0.0 or not prior.independent


def test_correlations_tell_another_prior_apart():
    """The control: draws of a looser hierarchy are not as the exact values of a tighter one say."""
    loose = HierarchicalDirichlet(order=2, vocab=3, eta=(5.0, 2.0))
    tight = HierarchicalDirichlet(order=2, vocab=3, eta=(5.0, 3.0))
    (siblings, *_) = prior_trees.pairs(loose.draw_tree(6000, np.random.default_rng(1)), tight)
    assert abs(siblings["correlation"] - siblings["exact"]) > 6 * siblings["stderr"]


def test_the_standard_error_is_that_of_repetitions():
    prior = PRIORS[1]
    found = [prior_trees.pairs(prior.draw_tree(200, np.random.default_rng(seed)), prior) for seed in range(100)]
    for rows in zip(*found, strict=True):
        spread = np.std([row["correlation"] for row in rows], ddof=1)
        assert np.mean([row["stderr"] for row in rows]) == pytest.approx(spread, rel=0.3)


# ---- the circuit

GIVEN = ("--beta", 1.7, 0.6, "--kappa", 2.1)


def test_the_circuit_agrees_with_the_closed_form(run):
    (row,) = run("circuit", *GIVEN)["rows"]
    tokens = row["tokens"]
    assert (row["beta"], row["kappa"], row["parameters"]) == ([1.7, 0.6], 2.1, "given")
    masks = ip.match_masks([tokens], order=2)[0].numpy()
    assert [key["kind"] for key in row["keys"]] == key_kinds(masks, order=2, bos=True)
    weight_of = {"bos": math.exp(2.1), "early": 0.0}
    weights = []
    for key in row["keys"]:
        if key["kind"] in weight_of:
            weights.append(weight_of[key["kind"]])
            continue
        position = key["position"]
        assert key["context"] == [tokens[position - 2], tokens[position - 3]]
        assert key["lags"] == [lag for lag in (1, 2) if tokens[-lag] == tokens[position - 1 - lag]]
        weights.append(math.exp(sum((1.7, 0.6)[lag - 1] for lag in key["lags"])))
    np.testing.assert_allclose([key["weight"] for key in row["keys"]], np.array(weights) / sum(weights), atol=1e-12)
    law = ip.soft_matching([tokens], vocab=3, beta=(1.7, 0.6), kappa=2.1)[0].tolist()
    np.testing.assert_allclose(row["aggregated"], law, atol=1e-12)
    np.testing.assert_allclose(row["estimator"], law, atol=0)
    np.testing.assert_allclose(np.sum(list(row["votes"].values()), axis=0), law, atol=1e-12)
    drawn = HierarchicalDirichlet(order=2, vocab=3, eta=(5.0, 5.0)).sample(
        batch=512, length=12, seed=0, method="explicit"
    )
    assert tokens == drawn.tokens[row["sequence"]].tolist()
    assert row["truth"] == drawn.next_law[row["sequence"]].tolist()
    assert row["least_copy"] > 0.999
    assert row["largest_ratio_error"] < 1e-9
    assert max(row["to_estimator"], row["model_to_estimator"]) < 1e-9


def test_what_is_shown_is_a_full_a_partial_and_an_empty_match_well_apart(run):
    (row,) = run("circuit", *GIVEN, "--seed", 2)["rows"]
    assert [row["keys"][position]["kind"] for position in row["shown"]] == ["full", "partial", "none"]
    places = sorted([*row["shown"], row["length"]])
    assert min(np.diff(places)) >= 3
    assert row["tokens"][-1] != row["tokens"][-2]
    for stack in row["copies"]:
        assert stack["token"] == row["tokens"][stack["position"] - 1]
        for head in stack["heads"]:
            assert head["source"] == stack["position"] - head["lag"]
            assert head["token"] == row["tokens"][head["source"] - 1]
            assert head["weight"] == pytest.approx(1.0)


def test_soft_copy_heads_and_other_weights_are_seen():
    """The controls: a capture of a spoilt model is not as the closed form says."""
    tokens = ip.HierarchicalDirichlet(order=2, vocab=3, eta=(5.0, 5.0)).sample(batch=1, length=12, seed=1).tokens
    model = ip.construct(order=2, vocab=3, length=12, beta=(1.7, 0.6), kappa=2.1)
    masks = ip.match_masks(tokens, order=2)[0]
    kinds = key_kinds(masks.numpy(), order=2, bos=True)

    def error(beta):
        keys = circuit.key_rows(ip.capture(model, tokens), kinds=kinds, masks=masks.tolist(), beta=beta, kappa=2.1)
        return circuit.largest_ratio_error(keys)

    assert error((1.7, 0.6)) < 1e-9
    assert error((1.7, 0.7)) == pytest.approx(0.1)
    assert circuit.least_copy(ip.capture(model, tokens)) == pytest.approx(1.0)
    model.copy_attention.rel_bias.data[1] *= 3e-4  # a score of 3 among up to a dozen keys
    assert circuit.least_copy(ip.capture(model, tokens)) < 0.9
    assert error((1.7, 0.6)) > 0.01


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--beta", "1", "2"], "--beta and --kappa belong together"),
        (["--beta", "1", "--kappa", "2"], "--beta needs a number for each of 2 lags, got 1"),
        (["--batch", "1", "--length", "5", *map(str, GIVEN)], "none of 1 sequences"),
    ],
)
def test_bad_options_are_one_line(arguments, words, capsys):
    assert main(["circuit", *arguments]) == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert len(captured.err.splitlines()) == 1
