"""The losses of a HookedTransformer without its hooks: the same numbers in about half the time, for training."""

from __future__ import annotations

from typing import Any


def next_token_losses(model: Any, tokens: Any, *, bos: int) -> Any:
    """Cross-entropy of every token after those before it, BOS in front: [batch, length].

    Attention-only models with LayerNorm and rotary positions are computed here, all others by the model itself.
    """
    from torch.nn.functional import cross_entropy, pad

    inputs = pad(tokens, (1, 0), value=bos)[:, :-1]
    plain = model.cfg.attn_only and model.cfg.normalization_type == "LN"
    if plain and model.cfg.positional_embedding_type == "rotary" and model.cfg.rotary_dim == model.cfg.d_head:
        logits = _logits(model, inputs)
    else:
        logits = model(inputs, prepend_bos=False).flatten(0, 1)
    return cross_entropy(logits, tokens.flatten(), reduction="none").unflatten(0, tokens.shape)


def _logits(model: Any, inputs: Any) -> Any:
    """[batch * position, vocab]."""
    import torch

    stream = model.embed.W_E[inputs.flatten()]
    for block in model.blocks:
        stream = stream + _attention(block.attn, _normal(block.ln1, stream), inputs.shape)
    return torch.addmm(model.unembed.b_U, _normal(model.ln_final, stream), model.unembed.W_U)


def _normal(layer: Any, stream: Any) -> Any:
    from torch.nn.functional import layer_norm

    return layer_norm(stream, stream.shape[-1:], layer.w, layer.b, layer.eps)


def _attention(attention: Any, stream: Any, shape: Any) -> Any:
    """What a layer's heads add to the stream."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    cos, sin = attention.rotary_cos[: shape[1]], attention.rotary_sin[: shape[1]]

    def projected(weight: Any, bias: Any) -> Any:
        flat = torch.addmm(bias.flatten(), stream, weight.transpose(0, 1).flatten(1))
        return flat.view(*shape, *bias.shape).transpose(1, 2)

    def turned(vectors: Any) -> Any:
        left, right = vectors.chunk(2, dim=-1)
        return vectors * cos + torch.cat([-right, left], dim=-1) * sin

    query = turned(projected(attention.W_Q, attention.b_Q))
    key = turned(projected(attention.W_K, attention.b_K))
    value = projected(attention.W_V, attention.b_V)
    seen = None
    if attention.attn_type == "local":
        distance = torch.arange(shape[1])[:, None] - torch.arange(shape[1])
        seen = (distance >= 0) & (distance < attention.cfg.window_size)
    mixed = scaled_dot_product_attention(
        query, key, value, attn_mask=seen, is_causal=seen is None, scale=1.0 / attention.attn_scale
    )
    return torch.addmm(attention.b_O, mixed.transpose(1, 2).flatten(2).flatten(0, 1), attention.W_O.flatten(0, 1))
