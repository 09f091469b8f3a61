"""Votes of match heads: planted ones come back with their sign, and a head that writes something else is told."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import interp as ip
from interp.instruments.copying_scores import _direct_votes
from tests.interp.instruments.test_scan_heads import tokens_for
from tests.planted import trained_like
from tests.planted_heads import PLANTS, Plant, plant, random_transformer


def circuit_of(spec: Plant) -> ip.Circuit:
    return ip.Circuit(plant(spec), **spec.task, match_heads=tuple(sorted(spec.matches)))


@pytest.mark.parametrize("name", ["two match heads", "four match heads, no BOS", "grouped keys", "rotary"])
def test_planted_votes_come_back(name: str) -> None:
    """The readout gives 8 to the votes, which the match heads share."""
    spec = PLANTS[name]
    scores = ip.copying_scores(circuit_of(spec), tokens_for(spec))
    heads = sorted(spec.matches)
    assert list(scores) == [f"{layer}.{head}" for layer, head in heads]
    for one in scores.votes:
        assert one.vote == pytest.approx(8 / len(heads))
        assert one.direct == pytest.approx(one.vote)
        assert one.copying == pytest.approx(1.0)
        assert one.control_vote < 0.5 * one.vote  # another key has the same token by chance
    assert scores.weights == pytest.approx(np.full(len(heads), 1 / len(heads)))
    assert scores.success


@torch.no_grad()
def test_heads_that_vote_otherwise_are_told() -> None:
    """One head votes half as much, one against its token, one for another symbol."""
    spec = PLANTS["four match heads, no BOS"]
    circuit = circuit_of(spec)
    output = circuit.model.blocks[1].attn.W_O
    output[1] *= 0.5
    output[2] *= -1.0
    output[3] = output[3].roll(1, dims=0)
    scores = ip.copying_scores(circuit, tokens_for(spec, batch=200))
    full, half, against, other = scores.votes
    assert half.vote == pytest.approx(full.vote / 2)
    assert against.vote == pytest.approx(-full.vote)
    assert abs(other.vote) < 0.3 * full.vote
    assert other.copying < 0.1
    assert [one.copies for one in scores.votes] == [True, True, False, False]
    assert scores.weights[:3] == pytest.approx([2 / 3, 1 / 3, 0.0], abs=0.1)
    assert not scores.success
    assert scores.message == "no vote for the attended token beyond its control: 1.2, 1.3"
    assert scores["1.1"] is half


@torch.no_grad()
def test_the_direct_path_of_a_model_with_layernorm() -> None:
    """By hand, for some sequences and keys: value, output weights, LayerNorm at its own scale, readout."""
    model = random_transformer(3)
    circuit = ip.Circuit(model, order=1, match_heads=((1, 2),))
    tokens = torch.from_numpy(np.random.default_rng(0).integers(6, size=(12, 30)))
    keys = torch.from_numpy(np.random.default_rng(1).integers(1, 30, size=(1, 12)))
    found = _direct_votes(circuit, tokens, (1, 2), keys)
    _, cache = model.run_with_cache(tokens, prepend_bos=False)
    for b, key in enumerate(keys[0].tolist()):
        written = cache["blocks.1.attn.hook_v"][b, key, 2] @ model.W_O[1, 2]
        normed = (written - written.mean()) / cache["ln_final.hook_scale"][b, -1] * model.ln_final.w
        logits = normed @ model.W_U
        own = int(tokens[b, key])
        rest = [symbol for symbol in range(6) if symbol != own]
        assert found[b] == pytest.approx(float(logits[own] - logits[rest].mean()), abs=1e-6)


def test_random_weights_do_not_copy() -> None:
    tokens = torch.from_numpy(np.random.default_rng(0).integers(6, size=(60, 30)))
    for seed in range(4):
        circuit = ip.Circuit(random_transformer(seed), order=1, match_heads=((1, 0), (1, 1), (1, 2), (1, 3)))
        scores = ip.copying_scores(circuit, tokens)
        assert max(one.copying for one in scores.votes) < 0.6
        assert not scores.success


def test_models_of_the_suite_vote() -> None:
    chains = ip.HierarchicalDirichlet(order=2, vocab=4, eta=(5.0, 5.0)).sample(batch=40, length=24, seed=1)
    scores = ip.copying_scores(trained_like(readout="logit"), chains.tokens)
    assert scores.success
    assert scores["1.0"].copying == pytest.approx(1.0)


def test_the_mean_attention_of_several_heads() -> None:
    spec = PLANTS["two match heads"]
    cap = ip.capture(circuit_of(spec), tokens_for(spec))
    mean = cap.mean_head((3.0, 1.0))
    torch.testing.assert_close(
        mean.match_pattern[:, 0], 0.75 * cap.match_pattern[:, 0] + 0.25 * cap.match_pattern[:, 1]
    )
    assert mean.match_pattern.shape[1] == 1
    one = ip.fit_scores(cap.mean_head((1.0, 0.0)), source="attention")
    np.testing.assert_allclose(one.beta, (2.4, 1.3), atol=1e-6)
    both = ip.fit_scores(cap.mean_head(), source="attention")
    assert 1.5 < both.beta[0] < 2.4
    assert 0.9 < both.nats_explained < 1.0  # the mean of two laws is not of the family
    for wrong in ((1.0,), (0.0, 0.0), (1.0, -1.0), (1.0, np.nan)):
        with pytest.raises(ValueError, match="weights must be 2 numbers >= 0, not all of them 0"):
            cap.mean_head(wrong)


def test_few_sequences_are_refused() -> None:
    spec = PLANTS["two match heads"]
    with pytest.raises(ValueError, match="4 sequences; votes need at least 10"):
        ip.copying_scores(circuit_of(spec), tokens_for(spec, batch=4))
