"""TransformerLens' native bridges: the instruments read and edit them as they do a HookedTransformer."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformer_lens.config import TransformerBridgeConfig
from transformer_lens.model_bridge import TransformerBridge

import interp as ip
from interp.circuit.edits import MatchReader, write_output, write_pattern
from interp.circuit.experiment import Experiment
from interp.circuit.runner import laws
from interp.hooked.decoder import Decoder
from interp.lens import HookedTransformer
from tests.planted_heads import random_transformer

ON_4 = HookedTransformer is Decoder
FIELDS = (
    "d_model", "d_head", "n_layers", "n_ctx", "n_heads", "d_mlp", "d_vocab", "d_vocab_out", "act_fn", "dtype",
    "normalization_type", "device",
)  # fmt: skip
TASK: dict[str, Any] = {"order": 1, "vocab": 5, "bos": 5, "match_heads": ((1, 2), (1, 3)), "copy_heads": ((0, 1),)}
CHAINS = ip.IndependentDirichlet(order=1, vocab=5, alpha=1.0).sample(batch=24, length=30, seed=0)


@pytest.fixture(scope="module")
def theirs() -> ip.Circuit:
    return ip.Circuit(random_transformer(1, scale=4.0), **TASK)


@pytest.fixture(scope="module")
def bridge(theirs: ip.Circuit) -> ip.Circuit:
    """A native bridge; on TransformerLens 4, which can convert a checkpoint, with the weights of `theirs`."""
    cfg = TransformerBridgeConfig(**{name: getattr(theirs.model.cfg, name) for name in FIELDS})
    with torch.random.fork_rng():
        torch.manual_seed(2)
        model = TransformerBridge.boot_native(cfg)
    if ON_4:
        from transformer_lens.utilities.tl_checkpoint_conversion import convert_tl_checkpoint

        model.load_state_dict(convert_tl_checkpoint(dict(theirs.model.named_parameters()), cfg), strict=False)
    return ip.Circuit(model, **TASK)


def test_the_pattern_in_place_of_the_scores_is_noticed(bridge: ip.Circuit, theirs: ip.Circuit) -> None:
    assert bridge.layers_without_scores == {0, 1}
    assert theirs.layers_without_scores == frozenset()


def test_the_softmax_of_captured_scores_is_the_pattern(bridge: ip.Circuit) -> None:
    seen = ip.capture(bridge, CHAINS.tokens, query="all")
    torch.testing.assert_close(torch.softmax(seen.match_scores, -1), seen.match_pattern, rtol=0, atol=1e-6)
    assert torch.isneginf(seen.match_scores[..., 0, 1:]).all()
    assert torch.isfinite(seen.match_scores[..., -1, :]).all()


def test_a_capture_stops_before_the_logits(bridge: ip.Circuit) -> None:
    called: list[str] = []
    handle = bridge.model.unembed.register_forward_hook(lambda *_: called.append("unembed"))
    ip.capture(bridge, CHAINS.tokens)
    ip.scan_heads(bridge, CHAINS.tokens)
    handle.remove()
    assert called == []


@pytest.mark.skipif(not ON_4, reason="TransformerLens 3.9 converts no checkpoint to a native bridge")
def test_numbers_are_those_of_the_same_weights_without_bridge(bridge: ip.Circuit, theirs: ip.Circuit) -> None:
    tokens = CHAINS.tokens
    torch.testing.assert_close(ip.predict(bridge, tokens), ip.predict(theirs, tokens), rtol=1e-5, atol=1e-6)
    columns = ["copy_mass", "r2_match", "nats", "nats_explained", "mass_full", "mass_none", "mass_bos"]
    found, expected = (ip.scan_heads(one, tokens).table()[columns] for one in (bridge, theirs))
    assert float((found - expected).abs().max().max()) < 1e-5
    edit = write_output((1, 2), lambda z, rows: torch.zeros_like(z))
    torch.testing.assert_close(laws(bridge, tokens, hooks=edit), laws(theirs, tokens, hooks=edit), rtol=1e-5, atol=1e-6)


@pytest.mark.skipif(not ON_4, reason="TransformerLens 3.9 shows a native bridge's pattern after its use")
def test_a_written_pattern_reaches_the_logits(bridge: ip.Circuit) -> None:
    reader = MatchReader(bridge, CHAINS.tokens)
    plain = laws(bridge, CHAINS.tokens, hooks=reader.hooks)
    own = laws(bridge, CHAINS.tokens, hooks=write_pattern(bridge, reader.pattern))
    torch.testing.assert_close(own, plain)
    even = laws(bridge, CHAINS.tokens, hooks=write_pattern(bridge, torch.full_like(reader.pattern, 1 / 31)))
    assert float((even - plain).abs().max()) > 1e-3


@pytest.mark.skipif(ON_4, reason="on TransformerLens 4 the edit has an effect")
def test_an_edit_without_effect_is_noticed(bridge: ip.Circuit) -> None:
    trial = Experiment(bridge, CHAINS.tokens, next_law=CHAINS.next_law)
    with pytest.raises(ValueError, match="did not reach the logits"):
        trial.write(torch.full_like(trial.pattern, 1 / 31), edit="even")
