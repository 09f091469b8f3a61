"""Captures with a known answer, for the tests of attention instruments: constructions, plain or bent on purpose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

import interp as ip
from interp.circuit.capture import Capture
from interp.circuit.queries import Query
from interp.hooked.config import InductionConfig
from interp.hooked.construction import write_construction

# order, vocab, beta, kappa: every order and vocabulary of the claim, beta in [0.2, 100], kappa in [-3, 110] or no BOS.
BETAS = ((2.7, 1.2, 0.6), (100.0, 100.0, 100.0), (0.2, 0.2, 0.2), (100.0, 0.2, 7.0), (0.5, 30.0, 100.0))
KAPPAS = (None, 3.3, 110.0, None, -3.0, 0.0, 110.0)
CASES = [
    (order, vocab, BETAS[(order + vocab) % len(BETAS)][:order], KAPPAS[(3 * order + vocab) % len(KAPPAS)])
    for order in (1, 2, 3)
    for vocab in range(2, 9)
] + [(1, 2, (100.0,), 110.0), (2, 2, (100.0, 100.0), 110.0), (3, 2, (100.0, 100.0, 100.0), 110.0)]


def tokens_of(*, order: int, vocab: int, batch: int = 48, length: int = 40, seed: int = 0) -> torch.Tensor:
    """Sequences in which every mask can occur."""
    prior = ip.HierarchicalDirichlet(order=order, vocab=vocab, eta=(5.0,) * order)
    return prior.sample(batch=batch, length=length, seed=seed).tokens


def planted(
    *,
    beta: Sequence[float],
    kappa: float | None,
    vocab: int,
    batch: int = 48,
    length: int = 40,
    seed: int = 0,
    dtype: str = "float64",
) -> Capture:
    """A construction's capture."""
    order = len(beta)
    model = ip.construct(order=order, vocab=vocab, length=length, beta=beta, kappa=kappa, dtype=dtype)
    return ip.capture(model, tokens_of(order=order, vocab=vocab, batch=batch, length=length, seed=seed))


def disentangled(*, order: int, vocab: int, length: int, bos: bool) -> ip.InductionTransformer:
    """An empty model of the trained family, which is not tied to its length."""
    return ip.InductionTransformer(
        InductionConfig(
            family="disentangled",
            order=order,
            vocab=vocab,
            length=length,
            bos=bos,
            readout="probability",
            dtype="float64",
        )
    )


@torch.no_grad()
def imperfect(
    *, beta: Sequence[float], kappa: float | None, vocab: int, noise: float, length: int = 40, seed: int = 0
) -> ip.InductionTransformer:
    """A construction with softer copies and noise on every free weight: what training leaves behind."""
    model = disentangled(order=len(beta), vocab=vocab, length=length, bos=kappa is not None)
    write_construction(model, beta=np.asarray(beta, dtype=np.float64), kappa=kappa)
    generator = torch.Generator().manual_seed(seed)
    model.blocks[0].attn.rel_bias.clamp_(max=6.0)
    model.blocks[1].attn.rel_bias.clamp_(min=-6.0)
    for name in model.free_parameters():
        weight = model.get_parameter(name)
        weight += noise * torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
    return model


@torch.no_grad()
def random_model(
    *, order: int, vocab: int, length: int, bos: bool, family: str, scale: float, seed: int
) -> ip.InductionTransformer:
    """Every free weight drawn at random."""
    widths = {"d_model": 16, "d_mlp": 32} if family == "standard" else {}
    config = InductionConfig(family=family, order=order, vocab=vocab, length=length, bos=bos, readout="logit", **widths)
    model = ip.InductionTransformer(config)
    generator = torch.Generator().manual_seed(seed)
    for name in model.free_parameters():
        weight = model.get_parameter(name)
        weight.copy_(scale * torch.randn(weight.shape, generator=generator))
    return model


@torch.no_grad()
def comparing(pair_beta: np.ndarray, *, vocab: int, length: int) -> ip.InductionTransformer:
    """Perfect copies, and a match head that weighs equality of query block a and key block b by pair_beta[a, b]."""
    order = len(pair_beta) - 1
    model = disentangled(order=order, vocab=vocab, length=length, bos=False)
    write_construction(model, beta=np.zeros(order), kappa=None)
    weights = np.kron(pair_beta, np.eye(vocab))
    model.blocks[1].attn.W_Q[0, : len(weights)] = torch.from_numpy(weights)
    return model


@torch.no_grad()
def everywhere(*, beta: Sequence[float], vocab: int, length: int, batch: int, query: Query = "all") -> Capture:
    """A model with BOS that compares contexts at every query: no relative bias in its match layer shuts out a key."""
    order = len(beta)
    model = disentangled(order=order, vocab=vocab, length=length, bos=True)
    write_construction(model, beta=np.asarray(beta, dtype=np.float64), kappa=0.0)
    model.blocks[1].attn.rel_bias.zero_()
    return ip.capture(model, tokens_of(order=order, vocab=vocab, batch=batch, length=length), query=query)


def with_scores(cap: Capture, scores: torch.Tensor, *, tokens: torch.Tensor | None = None) -> Capture:
    """The capture as a model with these match scores would give it."""
    tokens = cap.tokens if tokens is None else tokens
    copied = cap.copy_pattern[: len(tokens)]
    return replace(
        cap, tokens=tokens, copy_pattern=copied, match_scores=scores, match_pattern=torch.softmax(scores, dim=-1)
    )


def noisy(cap: Capture, *, scale: float, seed: int) -> Capture:
    """Independent noise on every score."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(cap.match_scores.shape, generator=generator, dtype=cap.match_scores.dtype)
    return with_scores(cap, cap.match_scores + scale * noise)
