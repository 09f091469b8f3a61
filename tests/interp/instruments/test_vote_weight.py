"""The votes' weight: constant readouts are seen to be constant; a planted comparison is found, and worth something."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from interp.chains.priors import ChainBatch, IndependentDirichlet
from interp.circuit.capture import capture
from interp.circuit.circuit import Circuit
from interp.circuit.runner import predict
from interp.hooked.construction import construct
from interp.hooked.transformer import InductionTransformer
from interp.instruments.vote_weight import VoteWeight, vote_weight
from tests import reference
from tests.planted import planted_foreign, planted_standard, trained_like, without_mechanism

VOCAB, LENGTH = 4, 24
RANKS, GAIN = torch.tensor([0.0, 0.0, 1.0, 1.0], dtype=torch.float64), 0.35


@pytest.fixture(scope="module")
def chains() -> ChainBatch:
    return IndependentDirichlet(order=2, vocab=VOCAB).sample(batch=2048, length=LENGTH, seed=0)


def run(model: InductionTransformer, chains: ChainBatch, **arguments: object) -> VoteWeight:
    return vote_weight(model, chains.tokens, next_law=chains.next_law, **arguments)


def constant_readout(share: float) -> InductionTransformer:
    """Without BOS; the readout mixes in one share of the uniform law."""
    model = trained_like(kappa=None, beta=(3.0, 3.0))
    half = model.config.blocks * VOCAB
    with torch.no_grad():
        model.unembed.W_U[half : half + VOCAB] *= 1 - share
        model.unembed.W_U[:VOCAB] += share / VOCAB
    return model


def comparing(*, key_order: tuple[int, ...] = (0, 1, 2, 3)) -> InductionTransformer:
    """Without BOS; unmatched queries attend to keys of no higher rank, and the readout adds the difference of ranks.

    The level is 0.8 where all attention is on full matches, and 0.1 at least. `key_order` relabels the ranks on the
    key's side of the readout: anything but the identity spoils the comparison.
    """
    model = trained_like(kappa=None, beta=(6.0, 6.0))
    blocks = model.config.blocks
    higher = (RANKS[None, :] > RANKS[:, None]).double()
    with torch.no_grad():
        model.unembed.W_U[blocks * VOCAB : (blocks + 1) * VOCAB] *= 0.8
        model.unembed.W_U[:VOCAB] += 0.6
        for lag in (1, 2):
            query, key = (lag - 1) * VOCAB, lag * VOCAB
            mismatch = -20.0 * higher - 2.0 * RANKS[None, :] * (1 - torch.eye(VOCAB))
            model.match_attention.W_Q[0, query : query + VOCAB, key : key + VOCAB] += mismatch
            model.unembed.W_U[query : query + VOCAB] += GAIN * RANKS[:, None]
            start = (blocks + lag) * VOCAB
            model.unembed.W_U[start : start + VOCAB] -= GAIN * RANKS[list(key_order), None]
    return model


def test_a_construction_weighs_its_votes_alike(chains: ChainBatch) -> None:
    found = run(construct(order=2, vocab=VOCAB, length=LENGTH, beta=(2.5, 1.2)), chains)
    assert found.success
    assert found.verdict == "constant level"
    assert found.level_spread < 1e-6
    assert [row.weight for row in found.weights] == pytest.approx([1.0] * 7, abs=1e-5)
    assert found.held == pytest.approx(0.0, abs=1e-8)


def test_bos_gives_hard_attention_the_weights_of_counts(chains: ChainBatch) -> None:
    """prop:add_constant: the level is constant, and yet the votes weigh N / (N + alpha |V|), through BOS."""
    kappa = 24.0 + math.log(0.5 * VOCAB)
    found = run(construct(order=2, vocab=VOCAB, length=LENGTH, beta=(12.0, 12.0), kappa=kappa), chains, alpha=0.5)
    assert found.verdict == "constant level"
    for row in found.weights[:-1]:  # in the last row numbers of matches are mixed, and sums of ratios differ
        assert row.weight == pytest.approx(row.counted, abs=1e-3)
    assert found.weights[-1].weight == pytest.approx(found.weights[-1].counted, abs=0.05)


def test_a_constant_share_is_the_weight(chains: ChainBatch) -> None:
    found = run(constant_readout(0.3), chains)
    assert found.verdict == "constant level"
    assert [row.weight for row in found.weights] == pytest.approx([0.7] * 7, abs=1e-5)
    assert sum(row.sequences for row in found.weights) == found.n == 2048
    assert abs(found.held) < 1e-8
    assert abs(found.shuffled) < 1e-8


def test_a_planted_comparison_is_found(chains: ChainBatch) -> None:
    found = run(comparing(), chains, alpha=1.0)
    assert found.verdict == "level follows the evidence"
    assert found.opposed == pytest.approx((1.0, 1.0))
    assert found.compared == pytest.approx(1.0, abs=1e-6)
    assert found.query_side == pytest.approx(np.tile(GAIN * (RANKS.numpy() - 0.5), (2, 1)))
    assert found.key_side == pytest.approx(-found.query_side)
    assert found.held > 2 * found.held_stderr
    assert found.shuffled > 2 * found.shuffled_stderr
    assert found.weights[0].weight < 0.95 * found.weights[3].weight
    counts = [row.counted for row in found.weights[:6]]
    assert counts == pytest.approx([count / (count + VOCAB) for count in range(6)])


def test_level_and_weight_are_those_of_the_definition(chains: ChainBatch) -> None:
    model = comparing()
    few = IndependentDirichlet(order=2, vocab=VOCAB).sample(batch=40, length=LENGTH, seed=1)
    found = run(model, few)
    cap = capture(model, few.tokens)
    levels: list[float] = []
    slopes: dict[int, tuple[float, float]] = {}
    for tokens, pattern, law in zip(few.tokens, cap.match_pattern[:, 0, -1], predict(model, few.tokens), strict=True):
        level, votes, matches = reference.readout_level(
            tokens.tolist(), pattern.tolist(), model.unembed.W_U.tolist(), order=2, vocab=VOCAB
        )
        levels.append(level)
        top, bottom = slopes.get(min(matches, 6), (0.0, 0.0))
        top += sum((vote - 1 / VOCAB) * (share - 1 / VOCAB) for vote, share in zip(votes, law.tolist(), strict=True))
        slopes[min(matches, 6)] = (top, bottom + sum((vote - 1 / VOCAB) ** 2 for vote in votes))
    assert found.level_spread == pytest.approx(np.std(levels) / np.mean(levels), rel=1e-4)
    for row in found.weights:
        if row.matches in slopes:
            top, bottom = slopes[row.matches]
            assert row.weight == pytest.approx(top / bottom, rel=1e-4)
        else:
            assert row.sequences == 0
            assert math.isnan(row.weight)


def test_sides_that_do_not_compare_are_not_taken_for_a_comparison(chains: ChainBatch) -> None:
    found = run(comparing(key_order=(3, 2, 1, 0)), chains)
    assert found.opposed == pytest.approx((-1.0, -1.0))
    assert found.compared < 0.1
    assert found.verdict != "level follows the evidence"


def test_random_weights_do_not_follow_the_evidence(chains: ChainBatch) -> None:
    for seed in range(4):
        found = run(without_mechanism(bos=False, seed=seed), chains)
        assert found.verdict != "level follows the evidence"


def test_where_holding_would_clip_its_worth_cannot_be_told(chains: ChainBatch) -> None:
    model = trained_like(kappa=0.0, beta=(3.0, 3.0))  # BOS leaves a little on every symbol
    with torch.no_grad():
        model.unembed.W_U[3 * VOCAB : 4 * VOCAB] *= torch.tensor([1.0, 1.0, 3.0, 3.0])[:, None]
    found = run(model, chains)
    assert found.clipped > 0.01
    assert math.isnan(found.held)
    assert "would clip" in found.message


def test_bad_input_and_too_few_sequences(chains: ChainBatch) -> None:
    for alpha in (0.0, -5.0, math.inf):
        with pytest.raises(ValueError, match="alpha must be a finite number > 0"):
            run(comparing(), chains, alpha=alpha)
    few = vote_weight(comparing(), chains.tokens[:8], next_law=chains.next_law[:8])
    assert not few.success
    assert few.verdict == "cannot tell"
    assert "8 sequences" in few.message


def test_models_without_votes_are_refused(chains: ChainBatch) -> None:
    found = run(planted_standard(), chains)
    assert not found.success
    assert "no block that holds the votes" in str(found)
    logit = run(trained_like(kappa=None, readout="logit"), chains)
    assert "logit readout" in logit.message
    foreign = Circuit(planted_foreign(), order=1)
    assert not vote_weight(foreign, torch.zeros(2, 8, dtype=torch.int64), next_law=torch.full((2, 5), 0.2)).success
