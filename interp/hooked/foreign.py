"""What `config.json` may say of a model from outside this suite: a closed list of keys, each with its type and range.

    described          the model in the words of the suite, or a `ValueError` of one line
    least_tensors      how many tensors its file has at least

`KEYS` are the arguments of TransformerLens' HookedTransformerConfig that describe an architecture: these are saved, and
these alone reach TransformerLens. None names a tokenizer, a device, code or a download.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from interp.arguments import count, finite_number, fits_memory, is_whole, shown, switch, whole_number
from interp.notation import check_order, check_vocab
from interp.outside import check_keys

FOREIGN = "foreign"  # the family of a model from outside this suite
LEAST, MOST = 1e-30, 1e30  # of a scale: others act as 0 or infinity in 32 bits
UNSET = -1.0  # TransformerLens' number for a scale or a cap that is not given

Check = Callable[[Any, str], None]


def _size(value: Any, name: str) -> None:
    count(value, name=name)


def _switch(value: Any, name: str) -> None:
    switch(value, name=name)


def _positive(value: Any, name: str) -> None:
    finite_number(value, name=name, above=LEAST, most=MOST)


def _attention_types(value: Any, name: str) -> None:
    if not isinstance(value, list) or not all(one in ("global", "local") for one in value):
        raise ValueError(f"{name} must list global or local for each layer, got {shown(value)}")


def _or(other: float | None, check: Check) -> Check:
    return lambda value, name: None if value == other else check(value, name)


def _text(pattern: str) -> Check:
    """A text of this form, a regular expression."""

    def check(value: Any, name: str) -> None:
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            raise ValueError(f"{name} must be one of {pattern.replace('|', ', ')}, got {shown(value)}")

    return check


SIZES = ("d_model", "d_head", "n_layers", "n_ctx", "n_heads", "d_vocab", "d_vocab_out")
OPTIONAL_SIZES = ("d_mlp", "n_key_value_heads", "window_size", "rotary_dim", "num_experts", "experts_per_token")
SWITCHES = (
    "attn_only", "gated_mlp", "use_attn_scale", "scale_attn_by_inverse_layer_idx", "use_local_attn", "use_qk_norm",
    "use_attention_sinks", "parallel_attn_mlp", "final_rms", "post_embedding_ln", "rotary_adjacent_pairs",
    "use_normalization_before_and_after", "norm_topk_prob",
)  # fmt: skip
KEYS: dict[str, Check] = {
    **dict.fromkeys(SIZES, _size),
    **dict.fromkeys(OPTIONAL_SIZES, _or(None, _size)),
    **dict.fromkeys(SWITCHES, _switch),
    **dict.fromkeys(("eps", "rotary_base", "rotary_scaling_factor"), _positive),
    **dict.fromkeys(("rotary_base_local", "clip_qkv"), _or(None, _positive)),
    **dict.fromkeys(("attn_scale", "attn_scores_soft_cap", "output_logits_soft_cap"), _or(UNSET, _positive)),
    "attn_types": _or(None, _attention_types),
    "act_fn": _or(None, _text("relu|relu2|gelu|gelu_new|gelu_fast|gelu_pytorch_tanh|silu|solu|solu_ln")),
    "normalization_type": _or(None, _text("LN|LNPre|RMS|RMSPre")),
    "positional_embedding_type": _text("standard|rotary|shortformer|alibi"),
    "attention_dir": _text("causal"),
    "dtype": _text("float64|float32|float16|bfloat16"),
    "original_architecture": _or(None, _text("[A-Za-z0-9_-]{1,60}")),  # some have other norms under the same names
}
# What earlier versions wrote besides: it is not read, and what is an instruction or another architecture must be off.
NOT_READ = (
    "model_name", "init_mode", "initializer_range", "default_prepend_bos", "tokenizer_prepends_bos", "from_checkpoint",
    "checkpoint_index", "checkpoint_label_type", "uses_rms_norm", "layer_norm_folding", "use_attn_result",
    "use_split_qkv_input", "use_hook_mlp_in", "use_attn_in", "use_hook_tokens", "ungroup_grouped_query_attention",
    "train_seq_length", "NTK_by_parts_low_freq_factor", "NTK_by_parts_high_freq_factor", "NTK_by_parts_factor",
    "NTK_original_ctx_len", "yarn_factor", "yarn_attention_factor", "yarn_beta_fast", "yarn_beta_slow",
    "yarn_original_max_position_embeddings", "yarn_truncate", "yarn_global_attn_only",
)  # fmt: skip
OFF = (
    "trust_remote_code", "load_in_4bit", "quantization_method", "use_logn_attn", "use_dynamic_ntk_rope",
    "use_NTK_by_parts_rope", "use_yarn_rope", "relative_attention_max_distance", "relative_attention_num_buckets",
    "decoder_start_token_id", "tie_word_embeddings",
)  # fmt: skip
CIRCUIT_KEYS = ("order", "vocab", "bos", "symbols", "copy_heads", "match_heads", "length")


def described(document: dict[str, Any]) -> dict[str, Any]:
    """The model by the keys of a model of the suite, besides `transformer` (`KEYS` alone) and `circuit`."""
    transformer = _transformer(document["transformer"])
    circuit = _circuit(document["circuit"], transformer)
    return {
        **{name: circuit[name] for name in ("order", "vocab", "length")},
        "family": FOREIGN,
        "bos": circuit["bos"] not in (None, "first"),
        "first_as_bos": circuit["bos"] == "first",
        "d_model": transformer["d_model"],
        "readout": "logit",
        "transformer": transformer,
        "circuit": circuit,
    }


def least_tensors(transformer: dict[str, Any]) -> int:
    """The least number of tensors of such a model: eight for the attention of each layer, three for each expert."""
    experts = transformer.get("num_experts") or 0
    return int(transformer["n_layers"] * (8 + 3 * experts))


def _transformer(values: Any) -> dict[str, Any]:
    """The architecture, checked; what earlier versions wrote besides is left out."""
    check_keys(values, (*SIZES, "dtype"), optional=(*KEYS, *NOT_READ, *OFF), place="transformer")
    if on := [name for name in OFF if values.get(name) not in (None, False)]:
        raise ValueError(f"{on[0]} in transformer must be off, got {shown(values[on[0]])}")
    config = {name: value for name, value in values.items() if name in KEYS}
    for name, value in config.items():
        KEYS[name](value, name)
    fits_memory(4 * config["n_ctx"] ** 2, what=f"the causal mask of n_ctx {config['n_ctx']}")
    if config["n_heads"] % (config.get("n_key_value_heads") or 1):
        raise ValueError(f"n_heads {config['n_heads']} is no multiple of n_key_value_heads")
    rotated = config.get("rotary_dim") or config["d_head"]
    if config.get("positional_embedding_type") == "rotary" and (rotated > config["d_head"] or rotated % 2):
        raise ValueError(f"rotary_dim must be even and at most d_head {config['d_head']}, got {rotated}")
    if config.get("attn_only") and config.get("parallel_attn_mlp"):
        raise ValueError("parallel_attn_mlp is for a model with MLPs, but attn_only is true")
    if config.get("attn_types") is not None and len(config["attn_types"]) < config["n_layers"]:
        raise ValueError(f"attn_types names {len(config['attn_types'])} of {config['n_layers']} layers")
    return config


def _circuit(values: Any, transformer: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `Circuit` and the length that analyses give it; `Circuit` compares the heads with the model."""
    check_keys(values, CIRCUIT_KEYS, place="circuit")
    order, bos, symbols, room = check_order(values["order"]), values["bos"], values["symbols"], transformer["n_ctx"]
    check_vocab(values["vocab"])
    if bos is not None and bos != "first":
        whole_number(bos, name="bos", most=transformer["d_vocab"] - 1)
        room -= 1
    if symbols is not None and not (isinstance(symbols, list) and all(map(is_whole, symbols))):
        raise ValueError(f"symbols must list ids of the model's vocabulary, got {shown(symbols)}")
    whole_number(values["length"], name="length", least=order + 1, most=room)
    return dict(values)
