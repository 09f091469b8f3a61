"""From a scan to a circuit: every choice has evidence, and what is missing is said rather than guessed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import interp as ip
from interp.circuit.circuit import one_or_all
from interp.instruments.find_circuit import FEEDS, FoundCircuit
from interp.instruments.roles import copy_evidence
from tests.interp.instruments.test_scan_heads import QUERIES, tokens_for
from tests.planted import trained_like
from tests.planted_heads import PLANTS, Plant, plant, random_transformer


def found_in(spec: Plant, model: Any = None, **options: Any) -> FoundCircuit:
    model = plant(spec) if model is None else model
    return ip.find_circuit(model, tokens_for(spec), **spec.task, query=QUERIES, **options)


@pytest.mark.parametrize("name", PLANTS)
def test_the_planted_circuit_is_found(name: str) -> None:
    spec = PLANTS[name]
    circuit = found_in(spec)
    assert isinstance(circuit, ip.Circuit)
    assert circuit.copy_heads == tuple(one_or_all(spec.copies[lag]) for lag in range(1, spec.order + 1))
    assert circuit.match_heads == tuple(sorted(spec.matches))
    assert circuit.lags_known
    assert circuit.success
    assert circuit.message == ""
    for lag, heads in spec.copies.items():
        *alone, together = [trial for trial in circuit.trials if trial.lag == lag] or [None]
        assert lag > spec.order or (together.feeds and together.heads == heads and together.lost > 0.95)
        assert all(trial.lost > 0.2 and trial.control_lost < 0.2 for trial in alone)


def test_a_found_circuit_goes_into_every_instrument() -> None:
    spec = PLANTS["two match heads"]
    chains = ip.HierarchicalDirichlet(order=2, vocab=5, eta=(3.0, 3.0)).sample(
        batch=60, length=40, seed=3, method="explicit"
    )
    circuit = ip.find_circuit(plant(spec), chains.tokens, **spec.task)
    fit = ip.fit_scores(ip.capture(circuit, chains.tokens))
    assert [one.beta.round(6).tolist() for one in fit.heads] == [[2.4, 1.3], [1.5, 2.0]]
    found = ip.causal_tests(circuit, chains.tokens, next_law=chains.next_law, law=fit)
    assert found.loss_recovered == pytest.approx(1.0, abs=1e-6)


def test_reasons_and_evidence_are_given() -> None:
    circuit = found_in(PLANTS["copies in two layers"])
    text = repr(circuit)
    assert "copy heads   lag 1: 0.3, lag 2: 1.2" in text
    assert "lag 1: 0.3 (mass 1.00); without it the match heads lose 100% of beta_1 (control: " in text
    assert "match: the law explains the attention of 2.0 (100% of 0.61 nats)" in text
    table = circuit.evidence()
    assert table.columns.tolist() == ["lag", "heads", "mass", "beta", "without", "lost", "control_lost", "feeds"]
    assert table.heads.tolist() == ["0.3", "1.2"]
    assert table.beta.tolist() == pytest.approx([2.4, 1.3], abs=1e-6)
    assert np.abs(table.without).max() < 0.05


def test_no_head_copies_a_lag() -> None:
    """A model of order 1, asked for order 2: lag 2 is not there, and no head is put in its place."""
    spec = PLANTS["match heads in two layers"]
    circuit = ip.find_circuit(plant(spec), tokens_for(spec), **{**spec.task, "order": 2}, query=QUERIES)
    assert circuit.copy_heads == ((0, 2), None)
    assert not circuit.success
    assert circuit.message.startswith("no head copies lag 2 (nearest: ")
    assert circuit.message.endswith(" above even; 0.25 needed)")
    assert "lag 2: not known" in repr(circuit)


@torch.no_grad()
def test_a_head_that_looks_but_does_not_feed_is_not_taken() -> None:
    """Two heads attend to lag 1; only what the second writes is read."""
    spec = Plant(order=1, copies={1: ((0, 1), (0, 3))}, matches={(2, 0): ((2.5,), 1.0)})
    model = plant(spec)
    model.blocks[0].attn.W_O[3] *= 2
    model.blocks[0].attn.W_O[1] = 0.0
    circuit = found_in(spec, model)
    assert circuit.copy_heads == ((0, 3),)
    assert [(one.heads, one.feeds) for one in circuit.trials] == [(((0, 1),), False), (((0, 3),), True)]
    assert circuit.reasons[0].endswith("; 0.1 would copy it, too")
    # Without what the second writes no head feeds, whatever they look at: none is chosen.
    model.blocks[1].attn.W_O.zero_()
    model.blocks[0].attn.W_O[3] = 0.0
    scan = circuit.scan
    nothing = found_in(spec, model, scan=scan)
    assert nothing.copy_heads == (None,)
    assert "no head copies lag 1 for the match heads: 0.1 would, but without it" in nothing.message


def test_heads_that_can_stand_in_for_each_other_are_tried_together() -> None:
    """Four heads copy lag 1 by a quarter each: none is needed, together they are."""
    spec = Plant(order=1, copies={1: tuple((0, head) for head in range(4))}, matches={(2, 0): ((3.0,), 1.0)})
    circuit = found_in(spec)
    assert circuit.success
    assert circuit.copy_heads == (spec.copies[1],)
    *alone, together = circuit.trials
    assert all(one.lost < FEEDS for one in alone)
    assert together.feeds
    assert together.heads == tuple(one.heads[0] for one in alone)
    assert "without them the match heads lose" in circuit.reasons[0]


def test_a_copy_that_comes_too_late_is_no_copy() -> None:
    spec = Plant(order=1, copies={1: ((0, 1), (2, 3))}, matches={(1, 0): ((2.5,), 1.0)})
    assert found_in(spec).copy_heads == ((0, 1),)
    late = copy_evidence(1, {}, ip.RoleRules(), late=[(2, 3)])
    assert late == "no head copies lag 1 below the match heads (2.3 would, but in too late a layer)"


def test_random_weights_give_no_circuit() -> None:
    tokens = tokens_for(PLANTS["decoys"])[:, 1:]
    for seed in range(5):
        circuit = ip.find_circuit(random_transformer(seed, scale=5.0), tokens, order=2, vocab=5, bos=5)
        assert circuit.copy_heads == (None, None)
        assert circuit.match_heads == ()
        assert not circuit.success
        for missing in ("no head copies lag 1", "no head copies lag 2", "no head matches"):
            assert f"{missing} (nearest: " in circuit.message
        with pytest.raises(ValueError, match="names no match head"):
            ip.capture(circuit, tokens)


def test_copies_without_a_match_are_named_and_said_to_feed_nothing() -> None:
    spec = PLANTS["one layer of copies"]
    model = plant(spec)
    with torch.no_grad():
        model.blocks[2].attn.W_Q.zero_()
    circuit = found_in(spec, model)
    assert circuit.copy_heads == ((0, 1), (0, 2))
    assert circuit.match_heads == ()
    assert "copied by 0.1 (mass 1.00); no head matches, so that its effect cannot be tested" in repr(circuit)
    assert not circuit.success


@pytest.mark.parametrize(
    ("weak", "query", "named"),
    [
        (((0.5, 0.3), 2.0), QUERIES, "2.3 (beta 0.50, 0.30; 100% of 0.035 nats)"),
        (((0.999, 0.15), 2.0), "last", "2.3 (beta 1.00, 0.15; 100% of 0.089 nats)"),
        (((0.6, 0.0), None), QUERIES, "2.3 (beta 0.60, 0.00; 100% of "),
    ],
)
def test_a_match_head_below_the_threshold_is_named(weak: Any, query: Any, named: str) -> None:
    """Two strong match heads are the circuit; a third, weak one is neither taken nor passed over in silence."""
    strong = {(2, 0): ((2.4, 1.3), 1.0), (2, 1): ((1.5, 2.0), 1.0)}
    spec = Plant(
        order=2,
        copies={1: ((0, 1),), 2: ((0, 2),)},
        matches={**strong, (2, 3): (weak[0], 0.0 if weak[1] is None else weak[1])},
        decoys={(1, 1): "recency", (1, 2): "own"},
    )
    circuit = ip.find_circuit(plant(spec), tokens_for(spec), **spec.task, query=query)
    assert circuit.success
    assert circuit.match_heads == ((2, 0), (2, 1))
    needed = "below the thresholds of a match head (a beta of 1, 0.02 nats, 25% of them explained): "
    assert circuit.message.startswith(needed + named)
    assert circuit.message.count(" nats)") == 1  # no other head
    assert circuit.message in repr(circuit)


def test_many_heads_below_a_threshold_are_counted() -> None:
    heads = {(2, head): ((0.5, 0.5), 1.0) for head in range(1, 9)}
    spec = Plant(order=2, copies={1: ((0, 1),), 2: ((0, 2),)}, matches={(2, 0): ((2.4, 1.3), 1.0), **heads}, heads=9)
    assert found_in(spec).message.endswith(" and 2 more")


def test_models_of_the_suite() -> None:
    chains = ip.HierarchicalDirichlet(order=2, vocab=4, eta=(5.0, 5.0)).sample(batch=80, length=24, seed=1)
    circuit = ip.find_circuit(trained_like(noise=0.05), chains.tokens)
    assert circuit.copy_heads == ((0, 0), (0, 1))
    assert circuit.match_heads == ((1, 0),)
    assert circuit.success


def test_a_scan_of_another_order_is_refused() -> None:
    spec = PLANTS["one layer of copies"]
    scan = ip.scan_heads(plant(spec), tokens_for(spec), **spec.task)
    with pytest.raises(ValueError, match="the scan is of order 2, the circuit of order 1"):
        ip.find_circuit(plant(spec), tokens_for(spec), **{**spec.task, "order": 1}, scan=scan)


def test_a_negative_beta_counts_as_a_match_that_is_fed() -> None:
    chains = ip.HierarchicalDirichlet(order=2, vocab=5, eta=(5.0, 5.0)).sample(batch=256, length=64, seed=0)
    found = ip.find_circuit(ip.construct(order=2, vocab=5, length=64, beta=(3.0, -1.0), kappa=2.0), chains.tokens)
    assert found.copy_heads == ((0, 0), (0, 1))
    assert all(trial.lost > 0.9 > trial.control_lost for trial in found.trials)
