"""A circuit anywhere in a model: copy heads in different layers, several match heads, a larger vocabulary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import interp as ip
from interp.circuit.edits import MatchReader, write_pattern
from interp.circuit.runner import laws
from interp.lens import HookedTransformer, HookedTransformerConfig
from tests.planted import DEEP, planted_deep, planted_foreign, trained_like

BETAS, KAPPAS = ((2.7, 1.2), (1.4, 2.1)), (1.5, 0.4)


@pytest.fixture(scope="module")
def chains() -> ip.ChainBatch:
    return ip.HierarchicalDirichlet(order=2, vocab=4, eta=(3.0, 3.0)).sample(batch=160, length=24, seed=2)


@pytest.fixture(scope="module")
def alike() -> ip.Circuit:
    """Two match heads with the same law."""
    return ip.Circuit(planted_deep(), bos=True, **DEEP)


@pytest.fixture(scope="module")
def unlike() -> ip.Circuit:
    """Two match heads with different laws."""
    return ip.Circuit(planted_deep(betas=BETAS, kappas=KAPPAS), bos=True, **DEEP)


# ---- a circuit that spans four layers


def test_copy_heads_in_two_layers_are_read_together(alike: ip.Circuit, chains: ip.ChainBatch) -> None:
    seen = ip.capture(alike, chains.tokens)
    assert seen.copy_pattern.shape == (160, 2, 25, 25)
    assert seen.copy_heads == ((0, 1), (1, 2))
    heads = ip.copy_heads(seen)
    assert heads.lag.tolist() == [1, 2]
    assert heads.success
    _, cache = alike.model.run_with_cache(alike.ids(chains.tokens), prepend_bos=False)
    torch.testing.assert_close(seen.copy_pattern[:, 1], cache["blocks.1.attn.hook_pattern"][:, 2])
    torch.testing.assert_close(seen.match_scores[:, 1], cache["blocks.3.attn.hook_attn_scores"][:, 2, -1:])


def test_planted_betas_come_back_from_heads_that_agree(alike: ip.Circuit, chains: ip.ChainBatch) -> None:
    seen = ip.capture(alike, chains.tokens)
    fit = ip.fit_scores(seen)
    assert fit.success
    assert "differ" not in fit.message
    assert fit.beta == pytest.approx((2.7, 1.2), abs=1e-9)
    assert fit.kappa == pytest.approx(1.5, abs=1e-9)
    mass = ip.overlap_mass(seen)
    assert mass.distance_each == pytest.approx(0.0, abs=1e-9)
    pairs = ip.fit_score_pairs(seen)
    assert pairs.aligned == pytest.approx((2.7, 1.2), abs=1e-9)


def test_planted_betas_come_back_from_heads_that_differ(unlike: ip.Circuit, chains: ip.ChainBatch) -> None:
    seen = ip.capture(unlike, chains.tokens)
    fit = ip.fit_scores(seen)
    for one, beta, kappa in zip(fit.heads, BETAS, KAPPAS, strict=True):
        assert one.beta == pytest.approx(beta, abs=1e-9)
        assert one.kappa == pytest.approx(kappa, abs=1e-9)
    assert fit.message.endswith("the match heads differ in beta_1, beta_2, kappa: `heads` has the fit of each one")
    assert fit.beta == pytest.approx(np.mean(BETAS, axis=0), abs=1e-9)  # one beta for both is their mean
    assert fit.record()["heads"][1]["beta"] == pytest.approx(BETAS[1])
    mass = ip.overlap_mass(seen, fit)
    assert mass.distance_each == pytest.approx(0.0, abs=1e-9)
    apart = [ip.overlap_mass(seen.match_head(index)) for index in (0, 1)]
    assert mass.by_mask == pytest.approx(np.mean([one.by_mask for one in apart], axis=0))
    assert mass.order_weights == pytest.approx(np.mean([one.order_weights for one in apart], axis=0))


def test_one_law_for_heads_that_differ_shows_in_the_mass(unlike: ip.Circuit, chains: ip.ChainBatch) -> None:
    """The negative control: the law of one head is not that of the other."""
    seen = ip.capture(unlike, chains.tokens)
    wrong = ip.fit_scores(seen.match_head(0))
    assert ip.overlap_mass(seen.match_head(1), wrong).distance_each > 0.02


def test_edits_reach_all_match_heads_at_once(unlike: ip.Circuit, chains: ip.ChainBatch) -> None:
    found = ip.causal_tests(unlike, chains.tokens, next_law=chains.next_law, law=(BETAS, KAPPAS))
    assert found["law"].kl == pytest.approx(0.0, abs=1e-9)
    assert found["law"].loss_change == pytest.approx(0.0, abs=1e-9)
    assert found["law"].control_kl > 0.01
    assert {"copy_head_0.1", "copy_head_1.2"} <= {row.edit for row in found.edits}
    assert found["copy_head_1.2"].kl > 0.001
    one = ip.causal_tests(unlike, chains.tokens, next_law=chains.next_law, law=(BETAS[0], KAPPAS[0]))
    assert one["law"].kl > 1e-4  # the same law in both heads is not what the model does


def test_edits_of_one_head_leave_the_other(unlike: ip.Circuit, chains: ip.ChainBatch) -> None:
    half = unlike.with_match_heads((3, 0))
    both = ip.causal_tests(unlike, chains.tokens, next_law=chains.next_law, law=(BETAS, KAPPAS))
    one = ip.causal_tests(half, chains.tokens, next_law=chains.next_law, law=(BETAS[0], KAPPAS[0]))
    assert one["law"].kl == pytest.approx(0.0, abs=1e-9)
    assert one["uniform"].kl < both["uniform"].kl


def test_other_instruments_take_the_circuit(unlike: ip.Circuit, chains: ip.ChainBatch) -> None:
    source = ip.smoothing_source(unlike, chains.tokens, next_law=chains.next_law)
    assert source["partial"].change > 0
    assert ip.direct_path(unlike, chains.tokens, next_law=chains.next_law).verdict == "nothing"
    assert ip.label_symmetry(unlike, chains.tokens[:20]).kl == pytest.approx(0.0, abs=1e-9)
    assert ip.nearest_estimator(unlike, chains.tokens[:40]).success
    blocks = ip.identity_blocks(unlike.with_match_heads((3, 2)), chains.tokens)
    assert blocks["scores"].beta == pytest.approx(BETAS[1], abs=1e-6)
    assert blocks["circuit"].beta == pytest.approx(BETAS[1], abs=1e-6)
    with pytest.raises(ValueError, match="one match head at a time"):
        ip.identity_blocks(unlike, chains.tokens)


# ---- the runner


def test_the_forward_stops_after_the_last_layer_needed(chains: ip.ChainBatch) -> None:
    model = planted_deep()
    circuit = ip.Circuit(model, order=2, vocab=4, bos=True, match_heads=((1, 2),))
    called: list[int] = []
    for layer in range(4):
        handle = model.blocks[layer].register_forward_hook(lambda *_, layer=layer: called.append(layer))
        assert handle is not None
    ip.capture(circuit, chains.tokens[:3])
    assert sorted(set(called)) == [0, 1]


def test_queries_can_be_listed(alike: ip.Circuit, chains: ip.ChainBatch) -> None:
    every = ip.capture(alike, chains.tokens[:6], query="all")
    some = ip.capture(alike, chains.tokens[:6], query=[5, -1, 9])
    assert some.queries.tolist() == [6, 10, 24]  # BOS is position 0
    torch.testing.assert_close(some.match_scores, every.match_scores[:, :, [6, 10, 24]])


def test_predictions_at_every_position(alike: ip.Circuit, chains: ip.ChainBatch) -> None:
    every = ip.predict(alike, chains.tokens, every_position=True)
    assert every.shape == (160, 24, 4)
    torch.testing.assert_close(every[:, -1], ip.predict(alike, chains.tokens))


def test_reading_and_writing_the_same_attention_changes_nothing(unlike: ip.Circuit, chains: ip.ChainBatch) -> None:
    reader = MatchReader(unlike, chains.tokens)
    plain = laws(unlike, chains.tokens, hooks=reader.hooks)
    assert reader.pattern.shape == (160, 2, 1, 25)
    torch.testing.assert_close(laws(unlike, chains.tokens, hooks=write_pattern(unlike, reader.pattern)), plain)
    turned = laws(unlike, chains.tokens, hooks=write_pattern(unlike, reader.pattern.roll(1, dims=0)))
    assert float((turned - plain).abs().max()) > 1e-3


@pytest.mark.parametrize("family", ["ours", "foreign"])
def test_tokens_follow_the_model_to_its_device(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The meta device computes shapes only, and refuses to mix with the CPU: a stand-in for a GPU.

    What it cannot do is hand numbers back, so that `cpu` gives zeros here.
    """
    if family == "ours":
        circuit = ip.Circuit(trained_like())
    else:
        shape = {"n_layers": 2, "d_model": 8, "n_ctx": 25, "d_head": 4, "d_vocab": 5, "d_vocab_out": 4}
        config = HookedTransformerConfig(**shape, attn_only=True, device="cpu")
        place = {"order": 2, "copy_heads": ((0, 0), (0, 1)), "match_heads": ((1, 1),), "bos": 4}
        circuit = ip.Circuit(HookedTransformer(config), **place)
    torch.nn.Module.to(circuit.model, "meta")
    for config in (circuit.model.cfg, *(block.attn.cfg for block in circuit.model.blocks)):
        config.device = "meta"
    returned: list[torch.Size] = []
    plain = torch.Tensor.cpu

    def cpu(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.device.type != "meta":
            return plain(tensor)
        returned.append(tensor.shape)
        return torch.zeros(tensor.shape, dtype=tensor.dtype)

    monkeypatch.setattr(torch.Tensor, "cpu", cpu)
    tokens = torch.zeros(3, 24, dtype=torch.int64)
    assert circuit.ids(tokens).device.type == "meta"
    reader = MatchReader(circuit, tokens)
    found = laws(circuit, tokens, hooks=reader.hooks)
    assert found.device.type == reader.pattern.device.type == "cpu"
    edited = laws(circuit, tokens, hooks=write_pattern(circuit, reader.pattern), last_only=True)
    assert edited.device.type == "cpu"
    seen = ip.capture(circuit, tokens)
    assert seen.copy_pattern.device.type == seen.match_scores.device.type == "cpu"
    assert torch.Size([3, 1, 25]) in returned  # one head's scores at the last query


def test_the_precision_of_a_model_is_kept(chains: ip.ChainBatch) -> None:
    seen = ip.capture(ip.construct(order=2, vocab=4, length=24, beta=(2.0, 1.0), dtype="float32"), chains.tokens)
    assert seen.match_scores.dtype == seen.copy_pattern.dtype == torch.float32
    deep = ip.capture(ip.Circuit(planted_deep(), bos=True, **DEEP), chains.tokens)
    assert deep.match_scores.dtype == deep.copy_pattern.dtype == torch.float64


# ---- symbols of a larger vocabulary


def test_symbols_stand_for_ids_of_a_larger_vocabulary(alike: ip.Circuit, chains: ip.ChainBatch) -> None:
    names = (6, 0, 3, 5)
    named = ip.Circuit(planted_deep(names=names), bos=8, symbols=names, **DEEP)
    assert named.ids(chains.tokens)[0].tolist() == [8, *(names[token] for token in chains.tokens[0].tolist())]
    torch.testing.assert_close(ip.predict(named, chains.tokens), ip.predict(alike, chains.tokens))
    fit = ip.fit_scores(ip.capture(named, chains.tokens))
    assert fit.beta == pytest.approx((2.7, 1.2), abs=1e-9)
    blocks = ip.identity_blocks(named.with_match_heads((3, 0)), chains.tokens)
    assert blocks["circuit"].beta == pytest.approx((2.7, 1.2), abs=1e-6)


# ---- what a circuit says, and what it refuses


def test_a_model_of_the_suite_says_everything_itself() -> None:
    circuit = ip.Circuit(trained_like())
    assert (circuit.order, circuit.vocab, circuit.bos) == (2, 4, 4)
    assert circuit.copy_heads == ((0, 0), (0, 1))
    assert circuit.match_heads == ((1, 0),)
    assert not circuit.lags_known
    assert "lags to be measured" in repr(circuit)


def test_heads_that_share_a_lag_are_saved_with_the_circuit(tmp_path: Path) -> None:
    model = planted_deep()
    shared = ip.Circuit(model, **{**DEEP, "copy_heads": (((0, 1), (1, 0)), (1, 2))}, bos=True)
    assert shared.known_copy_heads == ((0, 1), (1, 0), (1, 2))
    ip.save(shared, tmp_path / "shared", length=24)
    again = ip.load(tmp_path / "shared")
    assert isinstance(again, ip.Circuit)
    assert again.copy_heads == shared.copy_heads
    seen = ip.copy_heads(ip.capture(shared, torch.randint(4, (12, 24)), copies=True))
    assert len(seen.verdict) == 3
    with pytest.raises(ValueError, match="head 7, but layer 1 has heads"):
        ip.Circuit(model, **{**DEEP, "copy_heads": (((0, 1), (1, 7)), None)}, bos=True)


def test_what_is_not_known_is_said(alike: ip.Circuit) -> None:
    circuit = ip.Circuit(alike.model, order=2, vocab=4, bos=4, copy_heads=(None, (1, 2)))
    assert "lag 1: not known, lag 2: 1.2" in repr(circuit)
    assert "match heads  not known" in repr(circuit)
    with pytest.raises(ValueError, match="names no match head"):
        ip.capture(circuit, [[0, 1, 2, 3]])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": None}, "give order=k"),
        ({"order": True}, "order must be an integer"),
        ({"copy_heads": 3}, r"copy_heads must list one \(layer, head\) or None for each lag 1..2, got 3"),
        ({"copy_heads": ((0, 1),)}, "for each lag 1..2"),
        ({"copy_heads": ((0, 1), (1, 3))}, "head 3, but layer 1 has heads 0..2"),
        ({"match_heads": (3, 0)}, r"match_heads must list \(layer, head\) pairs, such as \(\(2, 1\),\), got 3 for one"),
        ({"match_heads": ((4, 0),)}, "layer 4, but the model has layers 0..3"),
        ({"match_heads": ((3, 0), (3, 0))}, "names a head twice"),
        ({"vocab": 9}, "input vocabulary has 5 symbols"),
        ({"bos": "five"}, "bos must be the id"),
        ({"bos": 7}, "BOS id 7 is outside"),
        ({"symbols": (0, 1)}, "one id for each of the 4 symbols"),
        ({"symbols": (0, 1, 2, 2)}, "different ids"),
        ({"symbols": (0, 1, 2, 9)}, "symbol ids 0 to 9 are not all in"),
        ({"symbols": (0, 1, 2, 3), "bos": 3}, "symbol id 3 is the id of BOS"),
    ],
)
def test_bad_circuits_are_refused_in_one_line(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        ip.Circuit(planted_deep(), **{**DEEP, "bos": True, **options})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c, t: ip.capture(c, t, order=2), "order was given together with a Circuit"),
        (
            lambda c, t: ip.capture(c.model, t, order=2, match_heads=((3, 0),), match_layer=3),
            "give match_heads or match_layer, not both",
        ),
        (lambda c, t: ip.capture(c, t, query=[40]), "query 40 is outside the tokens 0..23"),
        (lambda c, t: ip.capture(c, t, query=[]), "lists no token index"),
        (lambda c, t: ip.capture(c, t, query=[2.7]), "a list of token indices, got"),
        (lambda c, t: ip.capture(c, t, query=[True]), "a list of token indices, got"),
        (lambda c, t: c.with_match_heads((3, 0), (3, 0)), "names a head twice"),
        (lambda c, t: ip.capture(c, t).match_head(2), "the capture has match heads 0..1"),
        (lambda c, t: ip.capture(c, t, query=3), "a list of token indices, got 3"),
        (lambda c, t: ip.predict(c.model, t), "does not say where its circuit sits"),
        (lambda c, t: ip.predict("model", t), "expected a HookedTransformer or a Circuit, got str"),
        (lambda c, t: ip.Circuit("model"), "needs a HookedTransformer, got str"),
        (lambda c, t: ip.Circuit(trained_like(), order=3), "order=3, but the model has order 2"),
        (lambda c, t: ip.Circuit(trained_like(), symbols=(0, 1, 2, 3)), "has its own symbols"),
    ],
)
def test_bad_calls_are_refused_in_one_line(alike: ip.Circuit, call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        call(alike, [[0, 1, 2, 3] * 6])
    assert "\n" not in str(caught.value)


def test_a_foreign_circuit_without_copies_has_no_copy_patterns(chains: ip.ChainBatch) -> None:
    model = planted_foreign(length=24, vocab=4)
    seen = ip.capture(ip.Circuit(model, order=1, match_heads=((2, 2),)), chains.tokens)
    assert seen.copy_pattern.shape[0] == 0
    with pytest.raises(ValueError, match="the circuit names no copy head"):
        ip.copy_heads(seen)


def test_the_last_match_head_by_its_index(unlike: ip.Circuit, chains: ip.ChainBatch) -> None:
    seen = ip.capture(unlike, chains.tokens)
    assert seen.match_head(-1).match_heads == ((3, 2),)
    assert seen.match_head(1, 0).match_heads == ((3, 2), (3, 0))
    assert torch.equal(seen.match_head(-1).match_scores, seen.match_head(1).match_scores)
