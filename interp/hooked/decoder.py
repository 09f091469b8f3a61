"""The suite's models where TransformerLens has no `HookedTransformer` any more: from release 4 on.

    from interp.lens import HookedTransformer        TransformerLens' own on 3.9, `Decoder` on 4

A `Decoder` is a `HookedRootModule`, with the hooks, parameters and arithmetic that HookedTransformer has in 3.9: the
same weights give the same numbers, and a checkpoint of one is one of the other. It takes token ids, no text.

`DecoderConfig` is a closed list: what it lacks, or has at one value only, is refused. A model that needs more (experts,
norms of queries and keys, ALiBi) runs on 3.9, or behind a `TransformerBridge`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any, cast

import einops
import torch
from jaxtyping import Float, Int
from torch import nn
from torch.nn import functional
from transformer_lens.ActivationCache import ActivationCache
from transformer_lens.cache.key_value_cache_entry import TransformerLensKeyValueCacheEntry as KeyValueCacheEntry
from transformer_lens.config.transformer_lens_config import TransformerLensConfig
from transformer_lens.FactoredMatrix import FactoredMatrix
from transformer_lens.hook_points import HookPoint
from transformer_lens.HookedRootModule import HookedRootModule
from transformer_lens.utilities.activation_functions import SUPPORTED_ACTIVATIONS, apply_softcap
from transformer_lens.utilities.addmm import batch_addmm
from transformer_lens.utilities.attention import complex_attn_linear, simple_attn_linear
from transformer_lens.utilities.lm_utils import lm_cross_entropy_loss

ACTIVATIONS = ("relu", "relu2", "gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "silu", "solu")
# Of these the blocks differ in ways that no other key of a config names.
OTHER_BLOCKS = ("OlmoeForCausalLM", "Olmo2ForCausalLM", "Olmo3ForCausalLM", "GptOssForCausalLM")
BLOCK_HOOKS = ("attn_in", "q_input", "k_input", "v_input", "mlp_in", "attn_out", "mlp_out", "resid_pre", "resid_post")

Stream = Float[torch.Tensor, "batch pos d_model"]
SplitStream = Float[torch.Tensor, "batch pos _ d_model"]  # an input for each head, or each group of heads


def _only(value: Any) -> Any:
    """A field that HookedTransformerConfig has, and that a `Decoder` has at this value only."""
    return field(default=value, metadata={"only": True})


@dataclass
class DecoderConfig(TransformerLensConfig):
    """The fields of HookedTransformerConfig that describe a `Decoder`, with the same names, meanings and defaults."""

    d_vocab_out: int = -1
    model_name: str = "custom"
    original_architecture: str | None = None
    init_weights: bool = True
    initializer_range: float = -1.0
    use_attn_scale: bool = True
    attn_scale: float = -1.0
    scale_attn_by_inverse_layer_idx: bool = False
    use_attn_in: bool = False
    use_hook_mlp_in: bool = False
    use_local_attn: bool = False
    window_size: int | None = None
    attn_types: list[str] | None = None
    parallel_attn_mlp: bool = False
    rotary_dim: int | None = None
    rotary_base: int | float = 10000
    rotary_base_local: int | float | None = None
    rotary_scaling_factor: float = 1.0
    rotary_adjacent_pairs: bool = False
    attn_scores_soft_cap: float = -1.0
    output_logits_soft_cap: float = -1.0
    init_mode: str = _only("gpt2")
    attention_dir: str = _only("causal")
    seed: int | None = _only(None)  # HookedTransformerConfig seeds the global generators with it
    use_qk_norm: bool = _only(False)
    clip_qkv: float | None = _only(None)
    use_attention_sinks: bool = _only(False)
    post_embedding_ln: bool = _only(False)
    use_normalization_before_and_after: bool = _only(False)
    ungroup_grouped_query_attention: bool = _only(False)
    norm_topk_prob: bool = _only(False)

    def __post_init__(self) -> None:
        taken = {
            **{own.name: (own.default,) for own in fields(self) if own.metadata.get("only")},
            **dict.fromkeys(("num_experts", "experts_per_token"), (None,)),
            "positional_embedding_type": ("standard", "rotary"),
            "normalization_type": (None, "LN", "LNPre", "RMS", "RMSPre"),
        }
        if not self.attn_only:
            taken["act_fn"] = ACTIVATIONS
        for name, values in taken.items():
            if getattr(self, name) not in values:
                raise ValueError(
                    f"{name}={getattr(self, name)!r} needs TransformerLens 3.9; the models here on 4 have "
                    f"{name} {' or '.join(map(str, values))}"
                )
        if self.original_architecture in OTHER_BLOCKS:
            raise ValueError(f"the blocks of a {self.original_architecture} need TransformerLens 3.9")
        super().__post_init__()  # type: ignore[no-untyped-call]  # n_heads, d_mlp and device
        if self.use_local_attn and (self.window_size is None or self.attn_types is None):
            raise ValueError("use_local_attn needs window_size and attn_types")
        if self.d_vocab_out == -1:
            self.d_vocab_out = self.d_vocab
        if self.initializer_range < 0:
            self.initializer_range = 0.8 / self.d_model**0.5
        if self.positional_embedding_type == "rotary" and self.rotary_dim is None:
            self.rotary_dim = self.d_head
        if self.use_attn_scale and self.attn_scale == -1.0:
            self.attn_scale = self.d_head**0.5


def _weight(cfg: DecoderConfig, *shape: int) -> nn.Parameter:
    """A matrix that is written later."""
    return nn.Parameter(torch.empty(*shape, dtype=cfg.dtype))


def _bias(cfg: DecoderConfig, *shape: int) -> nn.Parameter:
    return nn.Parameter(torch.zeros(*shape, dtype=cfg.dtype))


class Part(nn.Module):
    """A module with its config and its hook points."""

    def __init__(self, cfg: DecoderConfig, *hooks: str) -> None:
        super().__init__()
        self.cfg = cfg
        for name in hooks:
            self.add_module(f"hook_{name}", HookPoint())  # type: ignore[no-untyped-call]

    def __getattr__(self, name: str) -> Any:
        return super().__getattr__(name)


class Norm(Part):
    """LayerNorm or RMSNorm; the kinds "...Pre" have no weights of their own."""

    def __init__(self, cfg: DecoderConfig, kind: str) -> None:
        super().__init__(cfg, "scale", "normalized")
        self.eps, self.centred, self.scaled = cfg.eps, kind.startswith("LN"), not kind.endswith("Pre")
        if self.scaled:
            self.w = nn.Parameter(torch.ones(cfg.d_model, dtype=cfg.dtype))
        if kind == "LN":
            self.b = _bias(cfg, cfg.d_model)

    def forward(self, stream: Float[torch.Tensor, "*rows d_model"]) -> Float[torch.Tensor, "*rows d_model"]:
        if self.cfg.dtype not in (torch.float32, torch.float64):
            stream = stream.float()
        if self.centred:
            stream = stream - stream.mean(-1, keepdim=True)
        scale = self.hook_scale((stream.pow(2).mean(-1, keepdim=True) + self.eps).sqrt())
        normed: torch.Tensor = self.hook_normalized(stream / scale).to(self.cfg.dtype)
        if self.scaled:
            normed = normed * self.w
        return normed + self.b if hasattr(self, "b") else normed


def _norm(cfg: DecoderConfig, *, final: bool = False) -> nn.Module:
    kind = cfg.normalization_type
    if kind is None:
        return nn.Identity()
    return Norm(cfg, kind.replace("LN", "RMS") if final and cfg.final_rms else kind)


class Embed(Part):
    """The token embedding."""

    def __init__(self, cfg: DecoderConfig) -> None:
        super().__init__(cfg)
        self.W_E = _weight(cfg, cfg.d_vocab, cfg.d_model)

    def forward(self, tokens: Int[torch.Tensor, "batch pos"]) -> Stream:
        return self.W_E[tokens, :]


class PosEmbed(Part):
    """The learned embedding of positions."""

    def __init__(self, cfg: DecoderConfig) -> None:
        super().__init__(cfg)
        self.W_pos = _weight(cfg, cfg.n_ctx, cfg.d_model)

    def forward(self, tokens: Int[torch.Tensor, "batch pos"]) -> Stream:
        return einops.repeat(self.W_pos[: tokens.shape[1]], "pos d_model -> batch pos d_model", batch=len(tokens))


class Unembed(Part):
    """The final stream to logits."""

    def __init__(self, cfg: DecoderConfig) -> None:
        super().__init__(cfg, "in", "out")
        self.W_U, self.b_U = _weight(cfg, cfg.d_model, cfg.d_vocab_out), _bias(cfg, cfg.d_vocab_out)

    def forward(self, residual: Stream) -> Float[torch.Tensor, "batch pos d_vocab_out"]:
        logits = functional.linear(self.hook_in(residual), self.W_U.T.contiguous(), self.b_U)
        return cast(torch.Tensor, self.hook_out(logits))


class Attention(Part):
    """Causal attention; weights have shape [head, d_model, d_head]."""

    def __init__(self, cfg: DecoderConfig, attn_type: str = "global", layer_id: int | None = None) -> None:
        rotary = ("rot_k", "rot_q") if cfg.positional_embedding_type == "rotary" else ()
        super().__init__(cfg, "k", "q", "v", "z", "attn_scores", "pattern", "result", *rotary)
        self.attn_type = attn_type
        self.W_Q = _weight(cfg, cfg.n_heads, cfg.d_model, cfg.d_head)
        self.W_O = _weight(cfg, cfg.n_heads, cfg.d_head, cfg.d_model)
        self.b_Q, self.b_O = _bias(cfg, cfg.n_heads, cfg.d_head), _bias(cfg, cfg.d_model)
        # In a group, several heads share a key and a value: `_W_K` has one matrix a group, `W_K` one a head.
        self.group, self.own = cfg.n_heads // (cfg.n_key_value_heads or cfg.n_heads), "_" * bool(cfg.n_key_value_heads)
        groups = cfg.n_heads // self.group
        for name in ("W_K", "W_V"):
            setattr(self, self.own + name, _weight(cfg, groups, cfg.d_model, cfg.d_head))
        for name in ("b_K", "b_V"):
            setattr(self, self.own + name, _bias(cfg, groups, cfg.d_head))
        self.attn_scale = cfg.attn_scale if cfg.use_attn_scale else 1.0
        if cfg.scale_attn_by_inverse_layer_idx:
            self.attn_scale *= (layer_id or 0) + 1

    def __getattr__(self, name: str) -> Any:
        if name in ("W_K", "W_V", "b_K", "b_V") and self.own:
            return super().__getattr__(f"_{name}").repeat_interleave(self.group, dim=0)
        return super().__getattr__(name)

    @property
    def QK(self) -> FactoredMatrix:
        return FactoredMatrix(self.W_Q, self.W_K.transpose(-2, -1))

    @property
    def OV(self) -> FactoredMatrix:
        return FactoredMatrix(self.W_V, self.W_O)

    def forward(
        self,
        query_input: Stream | SplitStream,
        key_input: Stream | SplitStream,
        value_input: Stream | SplitStream,
        past_kv_cache_entry: KeyValueCacheEntry | None = None,
    ) -> Stream:
        q, k, v = self.calculate_qkv_matrices(query_input, key_input, value_input)
        past = 0
        if past_kv_cache_entry is not None:
            past = past_kv_cache_entry.past_keys.shape[1]
            k, v = past_kv_cache_entry.append(k, v)
        if self.cfg.positional_embedding_type == "rotary":
            q, k = self.hook_rot_q(self.apply_rotary(q, past)), self.hook_rot_k(self.apply_rotary(k))
        scores = self.calculate_attention_scores(q, k)
        scores = self.hook_attn_scores(scores.masked_fill(~self._visible(q.shape[1], k.shape[1], q.device), -torch.inf))
        pattern = self.hook_pattern(torch.softmax(scores, dim=-1))
        return self._output(self.calculate_z_scores(v, pattern.to(v.dtype)))

    def calculate_qkv_matrices(
        self,
        query_input: Stream | SplitStream,
        key_input: Stream | SplitStream,
        value_input: Stream | SplitStream,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries, keys and values, each [batch, pos, head, d_head]; of a split stream each head has its own input."""
        split = self.cfg.use_split_qkv_input or self.cfg.use_attn_in
        apply = complex_attn_linear if split else simple_attn_linear
        keys, values = ([getattr(self, f"{self.own}{part}_{name}") for part in "Wb"] for name in "KV")
        return (
            self.hook_q(apply(query_input, self.W_Q, self.b_Q)),
            self.hook_k(apply(key_input, *keys)),
            self.hook_v(apply(value_input, *values)),
        )

    def calculate_attention_scores(
        self, q: Float[torch.Tensor, "batch query head d_head"], k: Float[torch.Tensor, "batch key group d_head"]
    ) -> Float[torch.Tensor, "batch head query key"]:
        """The scores before the causal mask."""
        queries = einops.rearrange(q, "batch query head d_head -> batch head query d_head")
        keys = einops.rearrange(
            k.repeat_interleave(self.group, dim=2), "batch key head d_head -> batch head d_head key"
        )
        return apply_softcap(queries @ keys / self.attn_scale, self.cfg.attn_scores_soft_cap)

    def calculate_z_scores(
        self, v: Float[torch.Tensor, "batch key group d_head"], pattern: Float[torch.Tensor, "batch head query key"]
    ) -> Float[torch.Tensor, "batch query head d_head"]:
        """The values, mixed by the pattern."""
        values = einops.rearrange(
            v.repeat_interleave(self.group, dim=2), "batch key head d_head -> batch head key d_head"
        )
        mixed = einops.rearrange(pattern @ values, "batch head query d_head -> batch query head d_head")
        return cast(torch.Tensor, self.hook_z(mixed))

    def _output(self, z: Float[torch.Tensor, "batch query head d_head"]) -> Stream:
        if self.cfg.use_attn_result:
            by_head = einops.einsum(z, self.W_O, "batch pos head d_head, head d_head d_model -> batch pos head d_model")
            return cast(torch.Tensor, self.hook_result(by_head).sum(2) + self.b_O)
        weight = einops.rearrange(self.W_O, "head d_head d_model -> d_model (head d_head)").contiguous()
        return functional.linear(
            einops.rearrange(z, "batch pos head width -> batch pos (head width)"), weight, self.b_O
        )

    def _visible(self, queries: int, keys: int, device: torch.device) -> torch.Tensor:
        """Which key each query sees; with a key-value cache the queries are the last of the positions."""
        places = torch.arange(keys, device=device)
        distance = places[keys - queries :, None] - places
        seen = distance >= 0
        if self.attn_type == "local":
            seen &= distance < cast(int, self.cfg.window_size)
        return seen

    def apply_rotary(self, x: Float[torch.Tensor, "batch pos head d_head"], past: int = 0) -> torch.Tensor:
        """The first `rotary_dim` dimensions turned by their position's angles; `past` positions came before."""
        cfg, width, local = self.cfg, cast(int, self.cfg.rotary_dim), self.attn_type == "local"
        precision = torch.float64 if cfg.dtype == torch.float64 else torch.float32
        base = cfg.rotary_base_local if local and cfg.rotary_base_local is not None else cfg.rotary_base
        steps = base ** (torch.arange(width // 2, dtype=precision) / (width / 2))
        if not local:
            steps = steps * cfg.rotary_scaling_factor
        turned, rest = x[..., :width], x[..., width:]
        if cfg.rotary_adjacent_pairs:
            steps = einops.repeat(steps, "d -> (d 2)")
            partner = torch.stack([-turned[..., 1::2], turned[..., ::2]], dim=-1).flatten(-2)
        else:
            steps = einops.repeat(steps, "d -> (2 d)")
            partner = torch.cat([-turned[..., width // 2 :], turned[..., : width // 2]], dim=-1)
        angles = torch.arange(past, past + x.shape[1], dtype=precision)[:, None, None] / steps
        sine, cosine = angles.sin().to(x), angles.cos().to(x)
        return torch.cat([turned * cosine + partner * sine, rest], dim=-1)


class MLP(Part):
    """Two matrices and an activation function; a gated one has a third matrix."""

    def __init__(self, cfg: DecoderConfig) -> None:
        super().__init__(cfg, "pre", "post", *(("pre_linear",) if cfg.gated_mlp else ()))
        width = cast(int, cfg.d_mlp)
        self.act_fn = SUPPORTED_ACTIVATIONS[cfg.act_fn]
        self.W_in, self.W_out = _weight(cfg, cfg.d_model, width), _weight(cfg, width, cfg.d_model)
        if cfg.gated_mlp:
            self.W_gate = _weight(cfg, cfg.d_model, width)
        self.b_in, self.b_out = _bias(cfg, width), _bias(cfg, cfg.d_model)

    def forward(self, x: Stream) -> Stream:
        if self.cfg.gated_mlp:
            gate = self.act_fn(self.hook_pre(functional.linear(x, self.W_gate.T.contiguous())))
            post = self.hook_post(
                gate * self.hook_pre_linear(functional.linear(x, self.W_in.T.contiguous())) + self.b_in
            )
            return functional.linear(post, self.W_out.T.contiguous(), self.b_out)
        post = self.hook_post(self.act_fn(self.hook_pre(batch_addmm(self.b_in, self.W_in, x))))
        return batch_addmm(self.b_out, self.W_out, post)


class TransformerBlock(Part):
    """Attention, and an MLP unless the model is of attention alone."""

    def __init__(self, cfg: DecoderConfig, block_index: int) -> None:
        middle = ("resid_mid",) if not cfg.attn_only and not cfg.parallel_attn_mlp else ()
        super().__init__(cfg, *BLOCK_HOOKS, *middle)
        self.ln1 = _norm(cfg)
        if not cfg.attn_only:
            self.ln2 = _norm(cfg)
        kind = cfg.attn_types[block_index] if cfg.use_local_attn and cfg.attn_types else "global"
        self.attn = Attention(cfg, kind, block_index)
        if not cfg.attn_only:
            self.mlp = MLP(cfg)

    def forward(self, resid_pre: Stream, past_kv_cache_entry: KeyValueCacheEntry | None = None) -> Stream:
        cfg, resid_pre = self.cfg, self.hook_resid_pre(resid_pre)
        inputs = [self.ln1(given) for given in self._attention_inputs(resid_pre)]
        attn_out = self.hook_attn_out(self.attn(*inputs, past_kv_cache_entry=past_kv_cache_entry))
        middle = resid_pre + attn_out
        if not cfg.attn_only:
            if not cfg.parallel_attn_mlp:
                middle = self.hook_resid_mid(middle)
            read = resid_pre if cfg.parallel_attn_mlp else middle
            read = self.hook_mlp_in(read.clone()) if cfg.use_hook_mlp_in else read
            middle = middle + self.hook_mlp_out(self.mlp(self.ln2(read)))
        return cast(torch.Tensor, self.hook_resid_post(middle))

    def _attention_inputs(self, resid_pre: Stream) -> Iterable[Stream | SplitStream]:
        """What queries, keys and values read: the stream, or a copy of it for each head."""
        cfg = self.cfg

        def split(heads: int) -> SplitStream:
            return einops.repeat(resid_pre, "batch pos d_model -> batch pos head d_model", head=heads).clone()

        if cfg.use_split_qkv_input:
            groups = cfg.n_key_value_heads or cfg.n_heads
            hooks = ((self.hook_q_input, cfg.n_heads), (self.hook_k_input, groups), (self.hook_v_input, groups))
            return [hook(split(heads)) for hook, heads in hooks]
        return [self.hook_attn_in(split(cfg.n_heads)) if cfg.use_attn_in else resid_pre] * 3


def _stacked(name: str) -> property:
    """A weight of all layers; the layers must have equally many heads."""
    return property(lambda model: torch.stack([getattr(block.attn, name) for block in model.blocks]))


def _switch(name: str) -> Any:
    """The setter of a switch in the config."""

    def turn(model: Decoder, on: bool) -> None:
        setattr(model.cfg, name, on)

    return turn


class Decoder(HookedRootModule):
    """What HookedTransformer is in TransformerLens 3.9, for token ids."""

    W_Q, W_K, W_V, W_O, b_Q, b_K, b_V, b_O = map(_stacked, ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "b_O"))
    W_E = property(lambda model: model.embed.W_E)
    W_pos = property(lambda model: model.pos_embed.W_pos)
    W_U = property(lambda model: model.unembed.W_U)
    b_U = property(lambda model: model.unembed.b_U)
    set_use_attn_result = _switch("use_attn_result")
    set_use_split_qkv_input = _switch("use_split_qkv_input")
    set_use_attn_in = _switch("use_attn_in")
    set_use_hook_mlp_in = _switch("use_hook_mlp_in")

    def __init__(self, cfg: DecoderConfig, move_to_device: bool = True) -> None:
        super().__init__()
        self.cfg, self.tokenizer = cfg, None
        self.embed, self.hook_embed = Embed(cfg), HookPoint()  # type: ignore[no-untyped-call]
        if cfg.positional_embedding_type == "standard":
            self.pos_embed, self.hook_pos_embed = PosEmbed(cfg), HookPoint()  # type: ignore[no-untyped-call]
        self.blocks = nn.ModuleList(TransformerBlock(cfg, index) for index in range(cfg.n_layers))
        self.ln_final, self.unembed = _norm(cfg, final=True), Unembed(cfg)
        if cfg.init_weights:
            self.init_weights()
        if move_to_device:
            self.to(cfg.device)
        self.setup()  # type: ignore[no-untyped-call]

    @torch.no_grad()
    def init_weights(self) -> None:
        """Matrices from a normal distribution of scale `initializer_range`, by torch's global generator."""
        for name, parameter in self.named_parameters():
            if "W_" in name:
                parameter.normal_(std=self.cfg.initializer_range)

    def forward(
        self,
        input: torch.Tensor,
        return_type: str | None = "logits",
        loss_per_token: bool = False,
        prepend_bos: bool | None = None,
        start_at_layer: int | None = None,
        tokens: Int[torch.Tensor, "batch pos"] | None = None,
        stop_at_layer: int | None = None,
    ) -> Any:
        """Logits, or the stream before `stop_at_layer`; `input` are token ids, or the stream at `start_at_layer`.

        The arguments are HookedTransformer's: `return_type` is "logits", "loss", "both" or None, `prepend_bos` is for
        text.
        """
        if not isinstance(input, torch.Tensor):
            raise ValueError(f"this model has no tokenizer: expected a tensor of token ids, got {type(input).__name__}")
        residual, tokens = (input, tokens) if start_at_layer is not None else self._embedded(input)
        for block in list(self.blocks)[start_at_layer:stop_at_layer]:
            residual = block(residual)
        if stop_at_layer is not None:
            return residual
        residual = self.ln_final(residual)
        if return_type is None:
            return None
        logits = apply_softcap(self.unembed(residual), self.cfg.output_logits_soft_cap)
        if return_type == "logits":
            return logits
        if tokens is None:
            raise ValueError("a loss of a run from start_at_layer needs tokens")
        loss = lm_cross_entropy_loss(logits, tokens, None, loss_per_token)
        return loss if return_type == "loss" else (logits, loss)

    def _embedded(self, tokens: torch.Tensor) -> tuple[Stream, Int[torch.Tensor, "batch pos"]]:
        tokens = (tokens[None] if tokens.ndim == 1 else tokens).to(self.embed.W_E.device)
        residual = self.hook_embed(self.embed(tokens))
        if self.cfg.positional_embedding_type == "standard":
            residual = residual + self.hook_pos_embed(self.pos_embed(tokens))
        return residual, tokens

    def run_with_cache(
        self, *arguments: Any, return_cache_object: bool = True, remove_batch_dim: bool = False, **options: Any
    ) -> tuple[Any, Any]:
        """As HookedRootModule's, with an `ActivationCache` unless a dict is asked for."""
        found, cache = super().run_with_cache(*arguments, remove_batch_dim=remove_batch_dim, **options)
        if return_cache_object:
            return found, ActivationCache(cache, self, has_batch_dim=not remove_batch_dim)
        return found, cache
