"""The copy layer: tables of what it computes from the parameters alone, and from symbol counts to the stream."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import einops
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from interp.hooked.transformer import COPY, InductionConfig

LAYER_NORM_EPSILON = 1e-5  # that of HookedTransformerConfig
# Queries per product with the Toeplitz matrix: it is lower triangular, so few keys for early queries.
COUNT_QUERIES = 256


class Tables(NamedTuple):
    """What the copy layer computes from the parameters alone, without its positions; writes are centred."""

    content: Float[Tensor, "head_key symbol"]  # S[x_i, m], row (head, m), column x_i
    stream: Float[Tensor, "feature d_model"]  # what the token and each share write
    hidden: Float[Tensor, "feature_1 d_mlp"]  # the same carried through LayerNorm's scale and W_in; last row b_in
    out: Float[Tensor, "d_mlp d_model"]
    out_bias: Float[Tensor, " d_model"]


def make_tables(config: InductionConfig, params: Mapping[str, Tensor]) -> tuple[Tensor, Tables]:
    """exp(r_{i-j} - row maximum) [head, query, key], zero above the diagonal; and the tables of symbols."""

    def of(name: str) -> Tensor:
        return params[f"{COPY}.{name}"]

    symbols = params["embed.W_E"]
    read = layer_norm(symbols, params, f"{COPY}.ln1")
    read = einops.repeat(read, "symbol d_model -> head symbol d_model", head=config.order)
    weights = torch.cat([of("attn.W_Q"), of("attn.W_K"), of("attn.W_V")], dim=-1)
    query, key, value = (read @ weights).split(config.copy_width, dim=-1)
    query = query + of("attn.b_Q")[:, None]  # b_K would shift all scores of a query alike
    content = key @ query.mT * config.copy_width**-0.5
    value = (value + of("attn.b_V")[:, None]) @ of("attn.W_O")
    # All that is written to the stream, to be centred in one go.
    writes = torch.cat([symbols + of("attn.b_O"), value.flatten(0, 1), of("mlp.W_out"), of("mlp.b_out")[None]], dim=0)
    writes = writes - writes.mean(-1, keepdim=True)
    features = symbols.shape[0] * config.blocks
    stream, out, out_bias = writes.split([features, writes.shape[0] - features - 1, 1])
    into = of("ln2.w")[:, None] * of("mlp.W_in")
    bias = torch.addmm(of("mlp.b_in"), of("ln2.b")[None], of("mlp.W_in"))
    tables = Tables(
        content=content.flatten(0, 1),
        stream=stream,
        hidden=torch.cat([stream @ into, bias]),
        out=out,
        out_bias=out_bias[0],
    )
    return _Toeplitz.apply(of("attn.rel_bias")), tables


def layer_norm(x: Float[Tensor, "row d_model"], params: Mapping[str, Tensor], name: str) -> Tensor:
    x = functional.layer_norm(x, x.shape[-1:], eps=LAYER_NORM_EPSILON)
    return torch.addcmul(params[f"{name}.b"], x, params[f"{name}.w"])


class _Toeplitz(torch.autograd.Function):
    """exp(r_{i-j} - max over d <= i of r_d) for j <= i, else zero. The maxima cancel in use: they carry no gradient."""

    @staticmethod
    def forward(ctx: Any, bias: Float[Tensor, "head lag"]) -> Float[Tensor, "head query key"]:
        n = bias.shape[-1]
        # Row i is the window of (r_{n-1}, ..., r_0, -inf, ...) that starts at n - 1 - i.
        padded = torch.cat([bias.flip(-1), bias.new_full((*bias.shape[:-1], n - 1), -math.inf)], dim=-1)
        rows = padded.unfold(-1, n, 1).flip(-2)
        decay = torch.exp(rows - bias.cummax(-1).values[..., None])
        ctx.save_for_backward(decay)
        return decay

    @staticmethod
    def backward(ctx: Any, *pulls: Tensor) -> Tensor:
        (decay,) = ctx.saved_tensors
        n = decay.shape[-1]
        # In rows of 2n - 1 the flattened matrix, padded to rows of 2n, has lag d in column n - 1 - d.
        skewed = decay.new_zeros(*decay.shape[:-2], n * 2 * n)
        window = skewed[..., n - 1 : n - 1 + n * (2 * n - 1)].unflatten(-1, (n, 2 * n - 1))[..., :n]
        torch.mul(pulls[0], decay, out=window)
        return skewed.unflatten(-1, (n, 2 * n)).sum(-2)[..., :n].flip(-1)


class Counts(torch.autograd.Function):
    """C_m(i) of every head, symbol and sequence: one-hot tokens times the Toeplitz matrix, block by causal block."""

    @staticmethod
    def forward(
        ctx: Any, decay: Float[Tensor, "head query key"], onehot: Float[Tensor, "symbol batch key"]
    ) -> Float[Tensor, "head symbol batch query"]:
        ctx.save_for_backward(onehot)
        heads, n, _ = decay.shape
        flat = onehot.flatten(0, 1)
        counts = decay.new_empty(heads, flat.shape[0], n)
        for head in range(heads):
            for start in range(0, n, COUNT_QUERIES):
                stop = min(start + COUNT_QUERIES, n)
                counts[head, :, start:stop] = flat[:, :stop] @ decay[head, start:stop, :stop].mT
        return counts.unflatten(1, onehot.shape[:2])

    @staticmethod
    def backward(ctx: Any, *pulls: Tensor) -> tuple[Tensor, None]:
        (onehot,) = ctx.saved_tensors
        pull = pulls[0].flatten(1, 2).mT
        flat = onehot.flatten(0, 1)
        heads, n, _ = pull.shape
        decay = pull.new_zeros(heads, n, n)
        for head in range(heads):
            for start in range(0, n, COUNT_QUERIES):
                stop = min(start + COUNT_QUERIES, n)
                decay[head, start:stop, :stop] = pull[head, start:stop] @ flat[:, :stop]
        return decay, None


class CopyLayer(torch.autograd.Function):
    """From C to the centred stream after the copy layer's MLP, [d_model, batch, position]."""

    @staticmethod
    def forward(
        ctx: Any,
        counts: Float[Tensor, "head symbol batch position"],
        content: Float[Tensor, "head_key symbol"],
        stream: Float[Tensor, "feature d_model"],
        hidden: Float[Tensor, "feature_1 d_mlp"],
        out: Float[Tensor, "d_mlp d_model"],
        out_bias: Float[Tensor, " d_model"],
        onehot: Float[Tensor, "symbol batch position"],
    ) -> Float[Tensor, "d_model batch position"]:
        token = onehot.flatten(1)
        scores = counts.log().flatten(2)  # -inf where a symbol has not occurred
        scores += (content @ token).view_as(scores)
        scores -= scores.amax(1, keepdim=True)
        shares = scores.exp_()
        shares /= shares.sum(1, keepdim=True)
        features = torch.cat([token, shares.flatten(0, 1)])
        residual = stream.mT @ features
        scale = (residual.square().mean(0, keepdim=True) + LAYER_NORM_EPSILON).rsqrt()
        read = torch.cat([features * scale, torch.ones_like(scale)])  # the last row is for the bias
        before = hidden.mT @ read
        after = functional.gelu(before)
        result = torch.addmm(residual + out_bias[:, None], out.mT, after)
        ctx.save_for_backward(
            counts, stream, hidden, out, token, shares, features, residual, scale, read, before, after
        )
        return result.unflatten(1, onehot.shape[1:])

    @staticmethod
    def backward(ctx: Any, *pulls: Tensor) -> tuple[Tensor | None, ...]:
        counts, stream, hidden, out, token, shares, features, residual, scale, read, before, after = ctx.saved_tensors
        pull = pulls[0].flatten(1)
        symbols = token.shape[0]
        pull_out = after @ pull.mT
        pull_before = torch.ops.aten.gelu_backward(out @ pull, before)
        pull_hidden = read @ pull_before.mT
        pull_read = (hidden @ pull_before)[:-1]
        # The LayerNorm: a row's scale is (mean of squares + epsilon)^(-1/2).
        pull_scale = (pull_read * features).sum(0, keepdim=True)
        pull_residual = torch.addcmul(pull, residual, pull_scale * scale**3, value=-1.0 / residual.shape[0])
        pull_stream = features @ pull_residual.mT
        pull_shares = torch.addcmul(stream[symbols:] @ pull_residual, pull_read[symbols:], scale)
        pull_shares = pull_shares.view_as(shares)
        # The softmax over symbols, and the logarithm. Where C is zero, so is the share.
        pull_shares -= (shares * pull_shares).sum(1, keepdim=True)
        pull_shares *= shares
        pull_content = pull_shares.flatten(0, 1) @ token.mT
        pull_counts = pull_shares.view_as(counts) / counts.clamp_min(torch.finfo(counts.dtype).tiny)
        return pull_counts, pull_content, pull_stream, pull_hidden, pull_out, pull.sum(1), None
