"""The direct path: nothing in a construction; planted counts and tokens are found; noise is neither."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from interp.chains.priors import ChainBatch
from interp.circuit.circuit import Circuit
from interp.circuit.runner import predict
from interp.divergence import kl_divergence
from interp.hooked.construction import construct
from interp.hooked.transformer import InductionTransformer
from interp.instruments.direct_path import DirectPath, _fit, _terms, direct_path
from tests import planted
from tests.planted import FOREIGN, planted_foreign, planted_standard, trained_like, without_mechanism

VOCAB, LENGTH = 4, 24


@pytest.fixture(scope="module")
def chains() -> ChainBatch:
    return planted.chains(batch=256)


def run(model: InductionTransformer, chains: ChainBatch, **arguments: object) -> DirectPath:
    return direct_path(model, chains.tokens, next_law=chains.next_law, **arguments)


@torch.no_grad()
def counting(*, frequency: float, last: float) -> InductionTransformer:
    """A standard model whose second copy head attends evenly to all tokens, and whose readout reads that and x_t."""
    model = planted_standard(vocab=VOCAB, length=LENGTH)
    spread = slice(2 * VOCAB, 3 * VOCAB)  # where copy head 1 writes
    model.blocks[0].attn.rel_bias[1] = 0.0
    model.unembed.W_U[spread] = frequency * torch.eye(VOCAB, dtype=torch.float64)
    model.unembed.W_U[:VOCAB] = last * torch.eye(VOCAB, dtype=torch.float64)
    return model


@pytest.mark.parametrize("kappa", [2.0, None])
def test_a_construction_knows_nothing_without_its_match_head(kappa: float | None, chains: ChainBatch) -> None:
    for model in (
        construct(order=2, vocab=VOCAB, length=LENGTH, beta=(2.5, 1.2), kappa=kappa),
        trained_like(kappa=kappa),
        planted_standard(),
    ):
        found = run(model, chains)
        assert found.verdict == "nothing"
        assert found.gain == pytest.approx(0.0, abs=1e-6)
        assert math.isnan(found.r2)
        assert found.kl_model == pytest.approx(kl_divergence(chains.next_law, predict(model, chains.tokens)).mean)
        assert found.kl_uniform == pytest.approx(
            kl_divergence(chains.next_law, torch.full_like(chains.next_law, 1 / VOCAB)).mean
        )


def test_planted_counts_are_found_with_their_weights(chains: ChainBatch) -> None:
    model = counting(frequency=0.4, last=0.0)
    found = run(model, chains)
    assert found.verdict == "counts tokens"
    assert found.gain > 10 * found.gain_stderr
    # The last LayerNorm divides by a scale of its own, which differs a little between sequences.
    assert found.r2_frequency > 0.97
    assert found.r2_frequency > found.r2_recent + 0.2
    assert found.r2_control < 0.05
    assert abs(found.recent).max() < 0.05 * found.frequency


def test_the_silenced_model_is_what_its_stream_says(chains: ChainBatch) -> None:
    """Log-probabilities by hand: LayerNorm of e(x_t), x_{t-1} and the mean of all tokens, through W_U."""
    model = counting(frequency=0.4, last=0.2)
    found = run(model, chains)
    width = model.config.d_model
    losses, explained = [], []
    for tokens, truth in zip(chains.tokens.tolist(), chains.next_law.tolist(), strict=True):
        stream = np.zeros(width)
        stream[tokens[-1]] += 1
        stream[VOCAB + tokens[-2]] += 1
        for token in tokens:
            stream[2 * VOCAB + token] += 1 / LENGTH
        normed = (stream - stream.mean()) / np.sqrt(stream.var() + model.cfg.eps)
        logits = normed[2 * VOCAB : 3 * VOCAB] * 0.4 + 0.2 * normed[:VOCAB]
        law = np.exp(logits) / np.exp(logits).sum()
        losses.append(sum(p * math.log(p / q) for p, q in zip(truth, law, strict=True) if p > 0))
        explained.append(np.log(law) - np.log(law).mean())
    assert found.kl == pytest.approx(np.mean(losses), abs=2e-3)
    assert found.r2 > 0.97
    assert found.recent[0] > 10 * found.recent_stderr[0] > 0


def test_tokens_are_told_from_counts(chains: ChainBatch) -> None:
    found = run(counting(frequency=0.0, last=0.3), chains)
    assert found.r2_recent > 0.97
    assert abs(found.frequency) < 0.1 * found.recent[0]
    assert found.recent[0] > 10 * abs(found.recent[1:]).max()


def test_the_regression_is_the_one_over_every_symbol() -> None:
    """Against a dense design, a row for each sequence and symbol."""
    rng = np.random.default_rng(0)
    tokens, logs = rng.integers(6, size=(20, 9)), rng.normal(size=(20, 6))
    logs -= logs.mean(axis=1, keepdims=True)
    terms = np.zeros((20, 6, 4))
    for b in range(20):
        for symbol in range(6):
            recent = [tokens[b, -1 - lag] == symbol for lag in range(3)]
            terms[b, symbol] = [np.mean(tokens[b] == symbol), *recent]
    terms -= terms.mean(axis=1, keepdims=True)
    flat, values = terms.reshape(-1, 4), logs.ravel()
    weights, *_ = np.linalg.lstsq(flat, values, rcond=None)
    without = [np.delete(np.arange(20), left_out) for left_out in range(20)]
    moved = [weights - np.linalg.lstsq(terms[b].reshape(-1, 4), logs[b].ravel(), rcond=None)[0] for b in without]
    found, errors, r2 = _fit(_terms(tokens, order=2, vocab=6), logs)
    np.testing.assert_allclose(found, weights, atol=1e-10)
    np.testing.assert_allclose(errors, np.sqrt((np.square(moved)).sum(axis=0) * 19 / 20), atol=1e-10)
    assert r2 == pytest.approx(1 - ((values - flat @ weights) ** 2).sum() / (values**2).sum())


def test_random_weights_count_nothing(chains: ChainBatch) -> None:
    for seed in range(4):
        assert run(without_mechanism(seed=seed), chains).verdict != "counts tokens"


def test_someone_elses_model() -> None:
    drawn = planted.chains(order=1, vocab=5, length=16, batch=64)
    found = direct_path(Circuit(planted_foreign(), **FOREIGN), drawn.tokens, next_law=drawn.next_law)
    assert found.verdict == "nothing"
    assert len(found.recent) == 2


def test_a_head_that_nothing_reads_is_an_error_not_a_direct_path() -> None:
    """Silencing the wrong head leaves the whole model, which must not pass for what is known without matching."""
    drawn = planted.chains(order=1, vocab=5, length=16, batch=64)
    with pytest.raises(
        ValueError,
        match=r"the edit 'silencing' changed the attention of 2\.0 \(layer\.head\) but did not reach the logits",
    ):
        direct_path(Circuit(planted_foreign(), order=1, match_heads=[(2, 0)]), drawn.tokens, next_law=drawn.next_law)


def test_few_sequences_cannot_tell(chains: ChainBatch) -> None:
    for count in (1, 4):
        found = direct_path(counting(frequency=0.4, last=0.0), chains.tokens[:count], next_law=chains.next_law[:count])
        assert not found.success
        assert found.verdict == "cannot tell"
        assert f"{count} sequences" in found.message
    assert found.table().term.tolist() == ["frequency", "x_t", "x_{t-1}", "x_{t-2}"]
