"""The standard family's config, its start, and its parameters as one flat vector."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from interp.hooked.transformer import COPY, MATCH, InductionConfig, InductionTransformer

D_MODEL, D_MLP = 64, 256


def standard_config(
    *,
    order: int,
    vocab: int,
    length: int,
    bos: bool,
    d_model: int = D_MODEL,
    d_mlp: int = D_MLP,
) -> InductionConfig:
    """The standard family's config: two layers with LayerNorm and MLP, logit readout."""
    return InductionConfig(
        family="standard",
        order=order,
        vocab=vocab,
        length=length,
        bos=bos,
        readout="logit",
        d_model=d_model,
        d_mlp=d_mlp,
    )


def parameter_shapes(config: InductionConfig) -> dict[str, tuple[int, ...]]:
    """The free parameters by their names in the HookedTransformer, in the order of the flat vector."""
    width, mlp = config.stream_width, config.d_mlp
    assert mlp is not None
    shapes: dict[str, tuple[int, ...]] = {"embed.W_E": (config.vocab + config.bos, width)}
    for block, heads, d_head in ((COPY, config.order, config.copy_width), (MATCH, 1, config.match_width)):
        for layer_norm in ("ln1", "ln2"):
            shapes |= {f"{block}.{layer_norm}.w": (width,), f"{block}.{layer_norm}.b": (width,)}
        for matrix in "QKV":
            shapes |= {f"{block}.attn.W_{matrix}": (heads, width, d_head), f"{block}.attn.b_{matrix}": (heads, d_head)}
        shapes |= {f"{block}.attn.W_O": (heads, d_head, width), f"{block}.attn.b_O": (width,)}
        shapes[f"{block}.attn.rel_bias"] = (heads, config.n_ctx)
        shapes |= {f"{block}.mlp.W_in": (width, mlp), f"{block}.mlp.b_in": (mlp,)}
        shapes |= {f"{block}.mlp.W_out": (mlp, width), f"{block}.mlp.b_out": (width,)}
    shapes |= {"ln_final.w": (width,), "ln_final.b": (width,)}
    shapes |= {"unembed.W_U": (width, config.vocab), "unembed.b_U": (config.vocab,)}
    return shapes


def views(config: InductionConfig, flat: Float[Tensor, " size"]) -> dict[str, Tensor]:
    """The flat parameters by name: writing to a view writes to `flat`."""
    shapes = parameter_shapes(config)
    parts = flat.split([math.prod(shape) for shape in shapes.values()])
    return {name: part.view(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}


def flattened(config: InductionConfig, params: Mapping[str, Tensor]) -> Float[Tensor, " size"]:
    """The inverse of `views`."""
    return torch.cat([params[name].detach().flatten() for name in parameter_shapes(config)]).to(config.torch_dtype)


def init_standard(
    config: InductionConfig, seed: int, *, std: float | None = None, copy: float = 0.0, bos_vector: str = "constant"
) -> dict[str, Tensor]:
    """Parameters before training.

    Matrices are normal with standard deviation `std`, by default 1/sqrt(fan-in) each, and 1 for the embedding;
    LayerNorm scales are one, biases zero, relative biases too. `copy` adds that much to head h's bias at lag h: the
    named initialisation copy(strength). From a random start the model predicts equally well, but its copy heads mix
    lags. `bos_vector` is the row of BOS, which never changes (`models.families.registry`); it uses no random number.
    """
    generator = torch.Generator().manual_seed(seed)
    params: dict[str, Tensor] = {}
    for name, shape in parameter_shapes(config).items():
        kind = name.rsplit(".", 1)[-1]
        if kind == "w":
            value = torch.ones(shape)
        elif kind == "W_E":
            value = torch.randn(shape, generator=generator) * (1.0 if std is None else std)
            value[config.vocab :] = _bos_vector(value[: config.vocab], bos_vector)
        elif kind.startswith("W_"):
            fan_in = shape[-2] * (shape[0] if kind == "W_O" else 1)  # the heads' outputs are summed
            value = torch.randn(shape, generator=generator) * (fan_in**-0.5 if std is None else std)
        else:
            value = torch.zeros(shape)
        params[name] = value.to(config.torch_dtype)
    for head in range(config.order):
        params[f"{COPY}.attn.rel_bias"][head, head + 1] += copy
    return params


def _bos_vector(tokens: Float[Tensor, "symbol d_model"], kind: str) -> Float[Tensor, " d_model"]:
    vocab, width = tokens.shape
    if kind == "constant":
        return torch.full((width,), 1.0 / vocab)
    if kind == "block":
        if width <= vocab:
            raise ValueError(f"a block of {vocab} symbols fills a stream of width {width}: LayerNorm would see nothing")
        return torch.cat([torch.full((vocab,), 1.0 / vocab), torch.zeros(width - vocab)])
    if kind == "mean":
        return tokens.mean(0)
    raise ValueError(f"bos_vector must be constant, block or mean, got {kind!r}")


def from_hooked(model: InductionTransformer) -> Float[Tensor, " size"]:
    """The flat parameters of a model."""
    return flattened(model.config, dict(model.named_parameters()))


@torch.no_grad()
def to_hooked(config: InductionConfig, flat: Float[Tensor, " size"]) -> InductionTransformer:
    """The HookedTransformer with these weights."""
    model = InductionTransformer(config)
    for name, value in views(config, flat).items():
        model.get_parameter(name).copy_(value)
    return model
