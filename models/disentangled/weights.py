"""The disentangled family: one-hot blocks, every W_A, every relative bias and W_O free (sec:models).

    config = disentangled.config(order=2, vocab=5, length=64, bos=True)
    flat = disentangled.initial(config, init="random(0.3)", seed=0)       # the compiled trainer's parameter vector
    model = disentangled.to_hooked(config, flat)                          # and the HookedTransformer it stands for

Initialisations
    random(std)      every W_A and relative bias normal(0, std); W_O reads the match head's votes
    copy(strength)   the same with std 0.02, and `strength` added to copy head h's bias at lag h: the paper's
                     "initialised to hard copy heads but trainable". Large strengths saturate the softmax and freeze it.
"""

from __future__ import annotations

import re

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment

from interp.hooked.transformer import InductionConfig, InductionTransformer, Readout
from models.disentangled.compiled import Shape

COPY_STD = 0.02


def config(
    *, order: int = 2, vocab: int = 5, length: int, bos: bool, readout: Readout = "probability"
) -> InductionConfig:
    """Attention only, width 2(k+1)|V|, k copy heads of width |V|, one match head of width (k+1)|V|."""
    return InductionConfig(
        family="disentangled", order=order, vocab=vocab, length=length, bos=bos, readout=readout, floor=1e-7
    )


def shape_of(config: InductionConfig) -> Shape:
    """What the compiled trainer needs to know of the config."""
    return Shape(
        order=config.order,
        vocab=config.vocab,
        length=config.length,
        bos=config.bos,
        readout=config.readout,
        floor=config.floor,
    )


def parse_init(init: str) -> tuple[str, float]:
    """`random(0.3)` as ("random", 0.3).

    >>> parse_init("copy(3)")
    ('copy', 3.0)
    """
    match = re.fullmatch(r"(random|copy)\(([0-9.]+)\)", init.replace(" ", ""))
    if match is None:
        raise ValueError(f"init must be random(STD) or copy(STRENGTH), e.g. random(0.3), got {init!r}")
    return match[1], float(match[2])


def initial(config: InductionConfig, *, init: str, seed: int) -> np.ndarray:
    """A start vector for the compiled trainer; its own generator, so that data and weights do not share a stream."""
    kind, size = parse_init(init)
    rng = np.random.default_rng([seed, 1])
    shape = shape_of(config)
    flat = rng.normal(scale=size if kind == "random" else COPY_STD, size=shape.size)
    parts = shape.views(flat)
    if kind == "copy":
        for lag in range(1, config.order + 1):
            parts["copy_bias"][lag - 1, lag] += size
    half = config.blocks * config.vocab
    parts["readout_weight"][:] = 0.0
    parts["readout_weight"][:, half : half + config.vocab] = np.eye(config.vocab)
    return flat.astype(config.dtype)


@torch.no_grad()
def to_hooked(config: InductionConfig, flat: np.ndarray) -> InductionTransformer:
    """The HookedTransformer with these parameters."""
    model = InductionTransformer(config)
    parts = {name: torch.from_numpy(part.copy()) for name, part in shape_of(config).views(flat).items()}
    half = config.blocks * config.vocab
    model.copy_attention.W_Q[:, : config.vocab] = parts["copy_weight"]
    model.copy_attention.rel_bias[:] = parts["copy_bias"]
    model.match_attention.W_Q[0, :half] = parts["match_weight"]
    model.match_attention.rel_bias[0] = parts["match_bias"]
    model.unembed.W_U[:] = parts["readout_weight"].T
    return model


def from_hooked(model: InductionTransformer) -> np.ndarray:
    """The compiled trainer's parameter vector of a disentangled (or construction) model: the inverse of `to_hooked`."""
    config = model.config
    if config.family == "standard":
        raise ValueError("a standard transformer has no disentangled parameters")
    half = config.blocks * config.vocab
    shape = shape_of(config)
    flat = np.zeros(shape.size, dtype=config.dtype)
    parts = shape.views(flat)
    parts["copy_weight"][:] = model.copy_attention.W_Q[:, : config.vocab].detach().numpy()
    parts["copy_bias"][:] = model.copy_attention.rel_bias.detach().numpy()
    parts["match_weight"][:] = model.match_attention.W_Q[0, :half].detach().numpy()
    parts["match_bias"][:] = model.match_attention.rel_bias[0].detach().numpy()
    parts["readout_weight"][:] = model.unembed.W_U.detach().numpy().T
    return flat


def read_weights(config: InductionConfig, flat: np.ndarray) -> tuple[list[float], float | None]:
    """beta per lag and kappa as the weights alone tell them, for a progress line. `interp.fit_scores` measures them.

    A block's coefficient is its mean diagonal minus its mean off-diagonal. Heads are matched to lags
    1..k by their biases. Impure copy heads make these numbers larger than the betas that the scores show.
    """
    parts = shape_of(config).views(flat.astype(np.float64))
    order, vocab = config.order, config.vocab
    blocks = parts["match_weight"].reshape(order + 1, vocab, order + 1, vocab).transpose(0, 2, 1, 3)
    diagonal = np.trace(blocks, axis1=2, axis2=3) / vocab
    everything = blocks.mean(axis=(2, 3))
    off = (everything * vocab - diagonal) / (vocab - 1)
    coefficient = diagonal - off
    heads, lags = linear_sum_assignment(parts["copy_bias"][:, 1 : order + 1], maximize=True)
    block_of = {0: 0} | {int(lag) + 1: int(head) + 1 for head, lag in zip(heads, lags, strict=True)}
    beta = [float(coefficient[block_of[lag - 1], block_of[lag]]) for lag in range(1, order + 1)]
    if not config.bos:
        return beta, None
    candidates = parts["match_bias"][: config.length - order]
    kappa = (everything - off).sum() + parts["match_bias"][-1] - candidates.mean()
    return beta, float(kappa)
