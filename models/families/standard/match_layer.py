"""The match layer, its MLP and the readout, all at the last position."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from interp.hooked.transformer import MATCH, InductionConfig
from models.families.standard.copy_layer import LAYER_NORM_EPSILON, layer_norm


class _MatchRead(torch.autograd.Function):
    """What the match head attends to from the last position: sum over j of A_j LN(h_j), before LN's scale and shift."""

    @staticmethod
    def forward(
        ctx: Any,
        stream: Float[Tensor, "d_model batch key"],
        query: Float[Tensor, "d_model batch"],
        bias: Float[Tensor, " lag"],
    ) -> Float[Tensor, "d_model batch"]:
        scale = (stream.square().mean(0) + LAYER_NORM_EPSILON).rsqrt()
        raw = (stream * query[..., None]).sum(0)
        pattern = torch.softmax(raw * scale + bias.flip(-1), dim=-1)
        ctx.save_for_backward(stream, query, scale, raw, pattern)
        return (stream * (pattern * scale)).sum(-1)

    @staticmethod
    def backward(ctx: Any, *pulls: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        stream, query, scale, raw, pattern = ctx.saved_tensors
        pull = pulls[0][..., None]
        pull_weight = (stream * pull).sum(0)
        pull_pattern = pull_weight * scale
        pull_score = pattern * (pull_pattern - (pattern * pull_pattern).sum(-1, keepdim=True))
        pull_scale = pull_weight * pattern + pull_score * raw
        pull_raw = pull_score * scale
        pull_stream = stream * (pull_scale * scale**3 * (-1.0 / stream.shape[0]))
        pull_stream.addcmul_(pattern * scale, pull)
        pull_stream.addcmul_(pull_raw, query[..., None])
        return pull_stream, (stream * pull_raw).sum(-1), pull_score.sum(0).flip(-1)


def read_out(
    config: InductionConfig, params: Mapping[str, Tensor], stream: Float[Tensor, "d_model batch position"]
) -> Float[Tensor, "batch vocab"]:
    """The match layer, its MLP and the readout, all at the last position: logits."""

    def of(name: str) -> Tensor:
        return params[f"{MATCH}.{name}"]

    last = stream[..., -1].mT
    query = torch.addmm(of("attn.b_Q")[0], layer_norm(last, params, f"{MATCH}.ln1"), of("attn.W_Q")[0])
    query = of("attn.W_K")[0] @ query.mT * config.match_width**-0.5  # b_K and ln1.b shift all scores alike
    read = _MatchRead.apply(stream, query * of("ln1.w")[:, None], of("attn.rel_bias")[0])
    read = torch.addcmul(of("ln1.b"), read.mT, of("ln1.w"))
    value = torch.addmm(of("attn.b_V")[0], read, of("attn.W_V")[0])
    last = last + torch.addmm(of("attn.b_O"), value, of("attn.W_O")[0])
    hidden = torch.addmm(of("mlp.b_in"), layer_norm(last, params, f"{MATCH}.ln2"), of("mlp.W_in"))
    last = last + torch.addmm(of("mlp.b_out"), functional.gelu(hidden), of("mlp.W_out"))
    return torch.addmm(params["unembed.b_U"], layer_norm(last, params, "ln_final"), params["unembed.W_U"])
