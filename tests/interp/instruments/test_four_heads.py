"""The shipped model with four match heads: what led to several rules of this suite, and what they say of it now."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import interp as ip
from interp.instruments.beta_kappa import MIN_R2

FOLDER = Path(__file__).parents[3] / "models" / "foreign"
MATCHING = ((1, 0), (1, 1), (1, 2), (1, 3))


@pytest.fixture(scope="module")
def circuit() -> ip.Circuit:
    found = ip.load(FOLDER / "four_heads")
    assert isinstance(found, ip.Circuit)
    return found


@pytest.fixture(scope="module")
def tokens() -> torch.Tensor:
    prior = ip.read_info(FOLDER / "four_heads").prior
    return prior.sample(batch=60, length=63, seed=7).tokens


def test_its_heads_are_named(circuit: ip.Circuit, tokens: torch.Tensor) -> None:
    assert (circuit.model.cfg.n_layers, circuit.model.cfg.n_heads) == (4, 4)
    found = ip.find_circuit(circuit.model, tokens, order=1, bos="first", query="trained")
    assert found.match_heads == circuit.match_heads == MATCHING
    assert found.copy_heads == circuit.copy_heads == ((0, 2),)
    assert found.success
    (trial,) = found.trials
    assert trial.lost > 0.9 > 0.5 > trial.control_lost


def test_it_is_nearly_the_bayes_predictor() -> None:
    record = ip.read_info(FOLDER / "four_heads").training
    assert record["bayes_loss"] < record["held_out_loss"] < record["bayes_loss"] + 0.01


def test_a_fit_says_ok_only_where_the_law_holds(circuit: ip.Circuit, tokens: torch.Tensor) -> None:
    """The scores of such a model were once said to be ok; the attention does follow the law, and the scan agrees."""
    cap = ip.capture(circuit, tokens, query="trained")
    scored, seen = ip.fit_scores(cap), ip.fit_scores(cap, source="attention")
    assert scored.r2_match < MIN_R2
    assert not scored.success
    assert np.isnan(scored.beta).all()
    assert seen.success
    assert seen.nats_explained > 0.75
    assert seen.mass_gap < 0.01
    scan = ip.scan_heads(circuit, tokens, query="trained")
    for place, one in zip(MATCHING, seen.heads, strict=True):
        assert scan.beta[place] == pytest.approx(one.beta, abs=1e-5)
        assert scan.kappa[place] == pytest.approx(one.kappa, abs=1e-5)


def test_the_heads_share_the_work(circuit: ip.Circuit, tokens: torch.Tensor) -> None:
    tests = ip.replace_heads(circuit, tokens, query="trained", law="fitted", each=True)
    assert tests["law"].recovered > 0.85
    assert tests["law"].control_recovered < 0.1
    assert tests.best_alone is not None
    assert tests.best_alone.recovered < 0.5
    assert tests["law"].recovered < tests["grouped"].recovered < 1.0
    assert tests.worst_control < 0.2 * tests["ablated"].change


def test_without_the_first_token_the_law_does_not_do(circuit: ip.Circuit, tokens: torch.Tensor) -> None:
    """Nothing but the declaration differs; the scan says what is missing."""
    bare = ip.Circuit(circuit.model, order=1, match_heads=MATCHING, copy_heads=circuit.copy_heads)
    tests = ip.replace_heads(bare, tokens, query="trained", law="fitted")
    assert tests["law"].recovered < 0.5
    assert "bos='first'" in ip.scan_heads(bare, tokens, query="trained").message
