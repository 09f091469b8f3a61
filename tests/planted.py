"""Models with a mechanism planted in them, in every family, and models without any: what detectors are tried on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from interp.chains.priors import ChainBatch, HierarchicalDirichlet
from interp.hooked.construction import COPY_STRENGTH, write_construction
from interp.hooked.transformer import InductionConfig, InductionTransformer
from interp.lens import HookedTransformer, HookedTransformerConfig
from tests.planted_heads import Plant, plant


def chains(*, order: int = 2, vocab: int = 4, length: int = 24, batch: int = 96, seed: int = 0) -> ChainBatch:
    """Held-out sequences of the paper's hierarchical task."""
    return HierarchicalDirichlet(order=order, vocab=vocab, eta=(5.0,) * order).sample(
        batch=batch, length=length, seed=seed
    )


def trained_like(
    *,
    order: int = 2,
    vocab: int = 4,
    length: int = 24,
    beta: tuple[float, ...] = (2.5, 1.2),
    kappa: float | None = 2.0,
    noise: float = 0.0,
    seed: int = 0,
    **config: Any,
) -> InductionTransformer:
    """A disentangled model that holds the construction, and what training leaves on top: noise on every free number."""
    model = InductionTransformer(
        InductionConfig(
            family="disentangled",
            order=order,
            vocab=vocab,
            length=length,
            bos=kappa is not None,
            **{"readout": "probability", "dtype": "float64", **config},
        )
    )
    write_construction(model, beta=np.array(beta), kappa=kappa)
    disturb(model, scale=noise, seed=seed, readout=0.1 * noise)
    return model


def without_mechanism(*, seed: int = 0, scale: float = 0.7, **config: Any) -> InductionTransformer:
    """Random weights in any family: there is nothing to find."""
    settings = {
        "family": "disentangled",
        "order": 2,
        "vocab": 4,
        "length": 24,
        "bos": True,
        "readout": "probability",
        "dtype": "float64",
    }
    model = InductionTransformer(InductionConfig(**{**settings, **config}))
    disturb(model, scale=scale, seed=seed)
    return model


@torch.no_grad()
def disturb(model: InductionTransformer, *, scale: float, seed: int, readout: float | None = None) -> None:
    """Add Gaussian noise to every number that training may change; the frozen parts stay as they are."""
    generator = torch.Generator().manual_seed(seed)
    rows = {"blocks.0.attn.W_Q": model.config.vocab, "blocks.1.attn.W_Q": model.config.blocks * model.config.vocab}
    for name in model.free_parameters():
        parameter = model.get_parameter(name)
        size = readout if readout is not None and name == "unembed.W_U" else scale
        noise = size * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        if model.config.family != "standard" and name in rows:
            noise[:, rows[name] :] = 0.0  # outside the live blocks there is no gradient
        parameter.add_(noise)


@torch.no_grad()
def planted_standard(*, beta: tuple[float, ...] = (2.5, 1.2), vocab: int = 4, length: int = 24) -> InductionTransformer:
    """A standard transformer, LayerNorm, scaling and all, whose match scores are exactly |beta|_M; it has no BOS.

    One-hot embeddings have one norm, and so have all streams of full contexts: LayerNorm only divides by a constant,
    which is made up for in W_Q.
    """
    order, blocks = len(beta), len(beta) + 1
    width = (blocks + 1) * vocab
    config = InductionConfig(
        family="standard",
        order=order,
        vocab=vocab,
        length=length,
        bos=False,
        readout="logit",
        d_model=width + (-width) % order,
        d_mlp=4,
        dtype="float64",
    )
    model = InductionTransformer(config)
    copy, match = model.blocks[0].attn, model.blocks[1].attn
    eye = torch.eye(vocab, dtype=torch.float64)
    model.embed.W_E[:vocab, :vocab] = eye
    # LayerNorm maps a stream with ones in n of d places to (stream - n/d) / sigma_n.
    sigma = [float(np.sqrt(n / config.d_model * (1 - n / config.d_model))) for n in (1, blocks)]
    for lag in range(1, order + 1):
        copy.rel_bias[lag - 1, lag] = COPY_STRENGTH
        copy.W_V[lag - 1, :vocab, :vocab] = sigma[0] * eye
        copy.W_O[lag - 1, :vocab, lag * vocab : (lag + 1) * vocab] = eye
        # LayerNorm takes 1/d off every entry of the copied token: a constant, which the bias gives back.
        copy.b_O[lag * vocab : (lag + 1) * vocab] += 1 / config.d_model
        query, key = (lag - 1) * vocab, lag * vocab
        match.W_Q[0, query : query + vocab, query : query + vocab] = (
            beta[lag - 1] * sigma[1] ** 2 * float(match.attn_scale) * eye
        )
        match.W_K[0, key : key + vocab, query : query + vocab] = eye
    match.rel_bias[0, length - order : length] = -COPY_STRENGTH
    match.W_V[0, :vocab, :vocab] = sigma[1] * eye
    match.W_O[0, :vocab, blocks * vocab : (blocks + 1) * vocab] = eye
    model.unembed.W_U[blocks * vocab : (blocks + 1) * vocab] = eye
    return model


@torch.no_grad()
def planted_foreign(*, beta: float = 2.0, vocab: int = 5, length: int = 16, bos: bool = False) -> HookedTransformer:
    """Someone else's model of order 1, with three layers of three heads and one-hot positions.

    Layer 1 copies, head 2 of layer 2 matches. The other heads do nothing. It has no LayerNorm, and keeps the scale
    1/sqrt(d_head). With BOS (id = vocab, embedded as nothing), kappa is 0 and BOS has no vote.
    """
    length += bos
    d_head = max(vocab, length)
    config = HookedTransformerConfig(
        n_layers=3,
        d_model=3 * vocab + length,
        n_ctx=length,
        n_heads=3,
        d_head=d_head,
        d_vocab=vocab + bos,
        d_vocab_out=vocab,
        attn_only=True,
        normalization_type=None,
        init_weights=False,
        default_prepend_bos=False,
        dtype=torch.float64,
    )
    model = HookedTransformer(config)
    for parameter in model.parameters():
        parameter.zero_()
    eye, places = torch.eye(vocab, dtype=torch.float64), slice(3 * vocab, 3 * vocab + length)
    model.embed.W_E[:vocab, :vocab] = eye
    model.pos_embed.W_pos[:, places] = torch.eye(length, dtype=torch.float64)
    copy, match = model.blocks[1].attn, model.blocks[2].attn
    copy.W_Q[0, places, :length] = 1e4 * torch.diag(torch.ones(length - 1, dtype=torch.float64), diagonal=-1)
    copy.W_K[0, places, :length] = torch.eye(length, dtype=torch.float64)
    copy.W_V[0, :vocab, :vocab] = eye
    copy.W_O[0, :vocab, vocab : 2 * vocab] = eye
    match.W_Q[2, :vocab, :vocab] = beta * d_head**0.5 * eye
    match.W_K[2, vocab : 2 * vocab, :vocab] = eye
    match.W_V[2, :vocab, :vocab] = eye
    match.W_O[2, :vocab, 2 * vocab : 3 * vocab] = eye
    model.unembed.W_U[2 * vocab : 3 * vocab] = 4.0 * eye
    return model


# Where the circuit of `planted_foreign` sits.
FOREIGN = {"order": 1, "copy_heads": ((1, 0),), "match_heads": ((2, 2),)}


def planted_deep(
    *,
    betas: Sequence[Sequence[float]] = ((2.7, 1.2), (2.7, 1.2)),
    kappas: Sequence[float] = (1.5, 1.5),
    vocab: int = 4,
    length: int = 24,
    names: Sequence[int] | None = None,
) -> HookedTransformer:
    """Four layers of three heads, of order 2 and with BOS: copy heads in layers 0 and 1, two match heads in layer 3.

    Head 0.1 copies lag 1 and head 1.2 lag 2; heads 3.0 and 3.2 match, each with its own betas and kappa, and vote for
    half of the prediction each. The other heads do nothing. `names` are the ids of the symbols in a vocabulary of twice
    the size; BOS has the last id.
    """
    matches = {(3, head): (tuple(beta), kappa) for head, beta, kappa in zip((0, 2), betas, kappas, strict=True)}
    spec = Plant(order=2, copies={1: ((0, 1),), 2: ((1, 2),)}, matches=matches, layers=4, heads=3, room=0, gain=12.0)
    return plant(replace(spec, vocab=vocab, length=length, names=None if names is None else tuple(names)))


# Where the circuit of `planted_deep` sits.
DEEP = {"order": 2, "copy_heads": ((0, 1), (1, 2)), "match_heads": ((3, 0), (3, 2)), "vocab": 4}
