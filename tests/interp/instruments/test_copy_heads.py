"""Copy heads are found, matched to lags and judged; heads that do something else are not called copies."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from transformer_lens.head_detector import (
    compute_head_attention_similarity_score,
    get_previous_token_head_detection_pattern,
)

import interp as ip
from interp.instruments.copy_heads import copy_heads
from interp.lens import HookedTransformer, HookedTransformerConfig
from tests.known_captures import disentangled, imperfect, planted, random_model, tokens_of


def copying_model(biases: list[dict[int, float]], *, vocab: int = 4, length: int = 30, bos: bool = False):
    """One head per dict, with these relative biases and no content."""
    model = disentangled(order=len(biases), vocab=vocab, length=length, bos=bos)
    with torch.no_grad():
        for head, bias in enumerate(biases):
            for lag, value in bias.items():
                model.blocks[0].attn.rel_bias[head, lag] = value
    return model


def heads_of(model, **given):
    config = model.config
    return copy_heads(
        ip.capture(model, tokens_of(order=config.order, vocab=config.vocab, length=config.length)), **given
    )


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("kappa", [None, 1.0])
def test_a_construction_copies_every_lag(order, kappa):
    heads = copy_heads(planted(beta=(2.0,) * order, kappa=kappa, vocab=3))
    assert heads.success
    assert heads.lag.tolist() == list(range(1, order + 1))
    assert heads.verdict == tuple(f"copies lag {lag}" for lag in range(1, order + 1))
    np.testing.assert_allclose(heads.mass, 1.0)
    # A token without a lag of its own head's kind looks everywhere: a little mass at the first positions.
    np.testing.assert_allclose(heads.masses, np.eye(order), atol=0.03)
    np.testing.assert_allclose(heads.spread, 0.0, atol=1e-12)
    np.testing.assert_allclose(heads.position_share, 1.0)
    for head in range(order):
        assert np.isnan(heads.profile[head, : head + 1]).all()
        np.testing.assert_allclose(heads.profile[head, head + 1 :], 1.0)


def test_heads_in_another_order_are_matched():
    heads = heads_of(copying_model([{3: 50.0}, {1: 50.0}, {2: 50.0}]))
    assert heads.lag.tolist() == [3, 1, 2]
    assert heads.verdict == ("copies lag 3", "copies lag 1", "copies lag 2")
    assert heads.success


def test_two_heads_on_one_lag():
    heads = heads_of(copying_model([{1: 8.0}, {1: 50.0}]))
    assert sorted(heads.lag.tolist()) == [1, 2]
    assert heads.verdict == ("copies lag 1", "copies lag 1")
    assert not heads.success
    assert heads.message == "no head copies lag 2: largest mass 0.00, required 0.5"


def test_verdicts():
    """Diluted copies are copies; a head on two lags is mixed; an even one, one on BOS or on itself is none."""
    diluted = heads_of(copying_model([{1: 4.0}, {2: 4.0}]))
    assert (diluted.mass < 0.95).all()
    assert diluted.success
    shared = heads_of(copying_model([{1: 50.0, 2: 49.0}, {2: 50.0}]))
    assert shared.verdict == ("mixed", "copies lag 2")
    assert shared.message == "no head copies lag 1: it has 0.73 of a head's mass on lags 1..2, required 0.75"
    assert heads_of(copying_model([{}, {0: 50.0}])).verdict == ("none", "none")
    for length in (6, 30):
        assert heads_of(copying_model([{}, {}], length=length)).verdict == ("none", "none")
    assert heads_of(copying_model([{9: 50.0}, {5: 50.0}])).verdict == ("none", "none")
    model = copying_model([{}], bos=True)
    with torch.no_grad():
        model.blocks[0].attn.rel_bias[0, :] = torch.linspace(0, 300, 31)
    on_bos = heads_of(model)
    assert on_bos.verdict == ("none",)
    assert on_bos.bos_mass[0] == pytest.approx(1.0, abs=1e-3)
    strict = heads_of(copying_model([{1: 4.0}, {2: 4.0}]), min_mass=0.99)
    assert strict.verdict == ("mixed", "mixed")
    with pytest.raises(ValueError, match=r"min_mass must be at most 1, got 1.5"):
        heads_of(copying_model([{1: 4.0}]), min_mass=1.5)


@pytest.mark.parametrize("family", ["disentangled", "standard"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_random_weights_copy_nothing(family, seed):
    model = random_model(order=2, vocab=5, length=40, bos=bool(seed % 2), family=family, scale=0.3, seed=seed)
    heads = heads_of(model)
    assert not heads.success
    assert heads.verdict == ("none", "none")


def test_masses_equal_their_definitions():
    """Against loops over sequences and positions, BOS apart, on soft heads that read content."""
    model = imperfect(beta=(2.0, 1.0), kappa=1.0, vocab=4, noise=0.8, length=16)
    cap = ip.capture(model, tokens_of(order=2, vocab=4, length=16, batch=9))
    heads = copy_heads(cap)
    pattern = cap.copy_pattern.numpy()
    for head in range(2):
        for lag in (1, 2):
            values = np.array([[pattern[b, head, t + 1, t - lag + 1] for t in range(lag, 16)] for b in range(9)])
            assert heads.masses[head, lag - 1] == pytest.approx(values.mean())
            if heads.lag[head] == lag:
                assert heads.mass[head] == pytest.approx(values.mean())
                assert heads.stderr[head] == pytest.approx(values.mean(1).std(ddof=1) / 3)
                np.testing.assert_allclose(heads.profile[head, lag:], values.mean(0))
                assert heads.spread[head] == pytest.approx(values.mean(0).std())
        entropies = [-(row[row > 0] * np.log(row[row > 0])).sum() for b in range(9) for row in pattern[b, head, 1:]]
        assert heads.entropy[head] == pytest.approx(np.mean(entropies))
        assert heads.bos_mass[head] == pytest.approx(pattern[:, head, 1:, 0].mean())
        own = [pattern[b, head, t, t] for b in range(9) for t in range(1, 17)]
        assert heads.self_mass[head] == pytest.approx(np.mean(own))
        total = content = 0.0
        for t in range(1, 17):
            for s in range(t + 1):
                cell = pattern[:, head, t, s]
                total += ((cell - 1 / (t + 1)) ** 2).mean()
                content += cell.var(ddof=1)
        assert heads.position_share[head] == pytest.approx(1 - content / total)


def test_content_and_position_are_told_apart():
    by_position = copying_model([{1: 3.0}, {2: 3.0}])
    by_content = copying_model([{}, {}])
    with torch.no_grad():
        by_content.blocks[0].attn.W_Q[:, :4] = 4.0 * torch.eye(4, dtype=torch.float64)
    np.testing.assert_allclose(heads_of(by_position).position_share, 1.0, atol=1e-9)
    assert (heads_of(by_content).position_share < 0.5).all()
    even = heads_of(copying_model([{}, {}]))
    np.testing.assert_array_equal(even.position_share, 1.0)


def test_agrees_with_transformer_lens_on_the_previous_token():
    """Its score averages over all positions, the first included, which has no previous token."""
    model = imperfect(beta=(2.0, 1.0), kappa=None, vocab=4, noise=0.8, length=20)
    cap = ip.capture(model, tokens_of(order=2, vocab=4, length=20, batch=6))
    detection = get_previous_token_head_detection_pattern(cap.tokens[:1])
    ours = copy_heads(cap).masses[:, 0]
    for head in range(2):
        theirs = np.mean(
            [
                compute_head_attention_similarity_score(
                    cap.copy_pattern[b, head].clone(),
                    detection,
                    exclude_bos=False,
                    exclude_current_token=False,
                    error_measure="mul",
                )
                for b in range(6)
            ]
        )
        assert ours[head] * 19 / 20 == pytest.approx(theirs, abs=1e-3)  # theirs is rounded to three digits


def test_more_heads_than_lags():
    torch.manual_seed(0)
    model = HookedTransformer(
        HookedTransformerConfig(
            n_layers=2, d_model=24, n_ctx=40, d_head=6, n_heads=7, d_vocab=6, act_fn="relu", device="cpu"
        )
    )
    cap = ip.capture(model, tokens_of(order=2, vocab=5, length=30, batch=8), order=2, bos=True, vocab=5)
    heads = copy_heads(cap)
    assert sorted(heads.lag.tolist()) == [0, 0, 0, 0, 0, 1, 2]
    assert np.isnan(heads.mass[heads.lag == 0]).all()
    assert not heads.success
    assert len(str(heads).splitlines()) <= 8
    assert len(heads.table()) == 7


def test_one_sequence_cannot_tell_content_from_position():
    heads = copy_heads(planted(beta=(2.0, 1.0), kappa=None, vocab=3, batch=1))
    assert np.isnan(heads.position_share).all()
    assert np.isnan(heads.stderr).all()
    assert heads.success


def test_captures_are_left_alone_and_results_stored():
    cap = planted(beta=(2.0, 1.0, 0.5), kappa=1.0, vocab=3)
    before = cap.copy_pattern.clone()
    heads = copy_heads(cap)
    assert torch.equal(cap.copy_pattern, before)
    assert len(str(heads).splitlines()) <= 8
    json.dumps(heads.record(), allow_nan=False)
    assert heads.table().verdict.tolist() == list(heads.verdict)
    assert heads.n == 48


def test_the_last_query_is_told_apart_from_the_mean_over_positions():
    """A bias at the largest distance, which the last query alone sees, draws it to BOS."""
    length = 20
    model = copying_model([{1: 12.0, length: 15.0}], length=length, bos=True)
    heads = heads_of(model)
    assert heads.verdict == ("copies lag 1",)
    pulled = np.exp(15.0) / (np.exp(15.0) + np.exp(12.0) + length - 1)
    np.testing.assert_allclose(heads.last_bos, pulled, rtol=1e-5)
    np.testing.assert_allclose(heads.last_mass, np.exp(12.0) / np.exp(15.0) * pulled, rtol=1e-5)
    assert heads.mass[0] > 0.9
    steady = heads_of(copying_model([{1: 12.0}], length=length, bos=True))
    np.testing.assert_allclose(steady.last_mass, 1.0, atol=1e-3)
