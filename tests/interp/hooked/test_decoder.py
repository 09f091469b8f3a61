"""The Decoder of TransformerLens 4 is HookedTransformer of 3.9: parameters, hooks, activations, start, loss, config."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch

from interp.circuit.checkpoint import _config_of
from interp.hooked.decoder import Decoder, DecoderConfig
from interp.lens import HookedTransformer, HookedTransformerConfig, KeyValueCacheEntry

on_3_9 = pytest.mark.skipif(
    HookedTransformer is Decoder, reason="TransformerLens 4 has no HookedTransformer to compare"
)

SHAPE: dict[str, Any] = {
    "n_layers": 3, "d_model": 24, "d_head": 6, "n_heads": 4, "n_ctx": 20, "d_vocab": 11, "act_fn": "gelu",
    "device": "cpu", "default_prepend_bos": False,
}  # fmt: skip
LOCAL = {"use_local_attn": True, "window_size": 4, "attn_types": ["local", "global", "local"]}
ROTARY = {"positional_embedding_type": "rotary"}
CASES: dict[str, dict[str, Any]] = {
    "LayerNorm and MLP": {},
    "attention alone": {"attn_only": True, "normalization_type": None, "use_attn_scale": False, "d_vocab_out": 9},
    "float64": {"dtype": torch.float64},
    "bfloat16": {"dtype": torch.bfloat16, "normalization_type": "RMSPre"},
    "rotary, a part of each head": {**ROTARY, "rotary_dim": 4},
    "rotary, adjacent pairs": {
        **ROTARY,
        "rotary_adjacent_pairs": True,
        "rotary_base": 500,
        "rotary_scaling_factor": 2.0,
    },
    "rotary, local": {**ROTARY, **LOCAL, "rotary_base_local": 100.0},
    "grouped keys, gated MLP": {"n_key_value_heads": 2, "normalization_type": "RMS", "gated_mlp": True},
    "parallel": {"normalization_type": "LNPre", "final_rms": True, "parallel_attn_mlp": True},
    "local, capped": {
        **LOCAL,
        "scale_attn_by_inverse_layer_idx": True,
        "attn_scores_soft_cap": 3.0,
        "output_logits_soft_cap": 5.0,
        "act_fn": "gelu_new",
    },
    "an input for each head": {
        "use_split_qkv_input": True,
        "use_hook_mlp_in": True,
        "use_attn_result": True,
        "n_key_value_heads": 2,
    },
    "one input for queries, keys and values": {"use_attn_in": True},
}
IDS = torch.randint(11, (5, 17), generator=torch.Generator().manual_seed(0))


def pair(options: dict[str, Any]) -> tuple[Any, Decoder]:
    """Both models with the same weights, none of them at its neutral value."""
    made: list[Any] = []
    for model, config in ((HookedTransformer, HookedTransformerConfig), (Decoder, DecoderConfig)):
        with torch.random.fork_rng():
            torch.manual_seed(3)
            made.append(model(config(**{**SHAPE, **options})))
    generator = torch.Generator().manual_seed(4)
    theirs, ours = (dict(model.named_parameters()) for model in made)
    assert set(theirs) == set(ours)
    with torch.no_grad():
        for name, parameter in theirs.items():
            assert torch.equal(parameter, ours[name]), f"another start of {name}"
            if "b_" in name or name.endswith((".w", ".b")):
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator).to(parameter))
                ours[name].copy_(parameter)
    return made[0], made[1]


@on_3_9
@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
def test_every_activation_is_the_same(options: dict[str, Any]) -> None:
    theirs, ours = pair(options)
    assert set(theirs.hook_dict) == set(ours.hook_dict)
    (expected, cache), (found, own) = theirs.run_with_cache(IDS), ours.run_with_cache(IDS)
    assert set(cache) == set(own)
    for name in cache:
        torch.testing.assert_close(own[name], cache[name], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    if found.requires_grad and ours.cfg.dtype == torch.float64:
        (expected.logsumexp(-1).sum() + found.logsumexp(-1).sum()).backward()
        for name, parameter in ours.named_parameters():
            torch.testing.assert_close(parameter.grad, theirs.get_parameter(name).grad)


@on_3_9
def test_runs_from_and_to_a_layer_and_losses_agree() -> None:
    theirs, ours = pair({})
    with torch.no_grad():
        for stop in (0, 2, -1):
            assert torch.equal(ours(IDS, stop_at_layer=stop), theirs(IDS, stop_at_layer=stop))
        stream = ours(IDS, stop_at_layer=2)
        assert torch.equal(ours(stream, start_at_layer=2), theirs(IDS))
        assert torch.equal(ours(IDS[0]), theirs(IDS[0]))
        for options in ({}, {"loss_per_token": True}):
            assert torch.equal(ours(IDS, return_type="loss", **options), theirs(IDS, return_type="loss", **options))
    assert torch.equal(ours.W_O, theirs.W_O)
    assert torch.equal(ours.blocks[1].attn.OV.AB, theirs.blocks[1].attn.OV.AB)


@on_3_9
@pytest.mark.parametrize("name", ["grouped keys, gated MLP", "rotary, adjacent pairs", "local, capped"])
def test_a_checkpoint_says_the_same_of_both(name: str) -> None:
    theirs, ours = pair(CASES[name])
    described = inspect.unwrap(_config_of)
    assert described(ours) == described(theirs)


@pytest.mark.parametrize(
    "name", ["LayerNorm and MLP", "rotary, a part of each head", "grouped keys, gated MLP", "local, capped"]
)
def test_the_last_position_from_a_cache_is_that_of_a_run(name: str) -> None:
    model = Decoder(DecoderConfig(**{**SHAPE, **CASES[name]}))
    block, attention = model.blocks[0], model.blocks[0].attn
    with torch.no_grad():
        stream = model(IDS, stop_at_layer=0)
        normed = block.ln1(stream[:, :-1])
        _, keys, values = attention.calculate_qkv_matrices(normed, normed, normed)
        last = block(stream[:, -1:], past_kv_cache_entry=KeyValueCacheEntry(past_keys=keys, past_values=values))
        torch.testing.assert_close(last, block(stream)[:, -1:])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"positional_embedding_type": "alibi"}, "needs TransformerLens 3.9; .* standard or rotary"),
        ({"num_experts": 2, "experts_per_token": 1}, "num_experts=2 needs TransformerLens 3.9"),
        ({"use_qk_norm": True}, "use_qk_norm=True needs TransformerLens 3.9"),
        ({"attention_dir": "bidirectional"}, "attention_dir='bidirectional' needs"),
        ({"act_fn": "solu_ln"}, "act_fn='solu_ln' needs"),
        ({"seed": 3}, "seed=3 needs"),
        ({"original_architecture": "Olmo2ForCausalLM"}, "the blocks of a Olmo2ForCausalLM need"),
        ({"use_local_attn": True}, "needs window_size and attn_types"),
    ],
)
def test_what_it_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DecoderConfig(**{**SHAPE, **options})


@pytest.mark.parametrize("key", ["tokenizer_name", "trust_remote_code", "load_in_4bit"])
def test_keys_that_load_or_run_code_do_not_exist(key: str) -> None:
    with pytest.raises(TypeError, match=key):
        DecoderConfig(**{**SHAPE, key: "gpt2"})


def test_text_is_refused() -> None:
    with pytest.raises(ValueError, match="no tokenizer: expected a tensor of token ids, got str"):
        inspect.unwrap(Decoder.forward)(Decoder(DecoderConfig(**SHAPE)), "text")
