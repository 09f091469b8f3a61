"""The disentangled family: one-hot blocks, every W_A, every relative bias and W_O free (sec:models).

    shape = config(order=2, vocab=5, length=64, bos=True)
    flat = initial(shape, init="random(0.3)", seed=0)       # the compiled trainer's parameter vector
    model = to_hooked(shape, flat)                          # and the HookedTransformer it stands for

Starts of the whole model (`models.training.starts` for part by part)
    random(STD)      every W_A and relative bias normal(0, STD)
    copy(STRENGTH)   the same with STD 0.02, and STRENGTH added to copy head h's bias at lag h: the paper's
                     "initialised to hard copy heads but trainable". Large strengths saturate the softmax.
    hard             the construction's copy heads, W_A and the match bias zero: the setting of corollary:inductive
    symmetric(STD)   every block of every W_A is a I + b J, with a, b and the relative biases normal(0, STD)
    bias(STD)        relative biases normal(0, STD), every W_A and W_O zero: theorem:invariance's own start
    zero             everything zero, also the relative biases: copy heads that start equal stay equal
In all but the last two W_O starts as the construction's: it reads the match head's votes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from einops import rearrange
from scipy.optimize import linear_sum_assignment

from interp.hooked.construction import COPY_STRENGTH
from interp.hooked.transformer import InductionConfig, InductionTransformer, Readout
from models.families.registry import DISENTANGLED
from models.training.starts import Start

COPY_STD = 0.02
PARAMETERS = {  # of each part that can be frozen
    "copies": ("copy_weight", "copy_bias"),
    "match_bias": ("match_bias",),
    "readout": ("readout_weight",),
    "direct": ("readout_weight",),
    "carried": ("readout_weight",),
    "copies_bos": ("copy_bias",),
    "copies_first": ("copy_bias",),
}


def config(
    *, order: int = 2, vocab: int = 5, length: int, bos: bool, readout: Readout = "probability"
) -> InductionConfig:
    """Attention only, width 2(k+1)|V|, k copy heads of width |V|, one match head of width (k+1)|V|."""
    return InductionConfig(
        family="disentangled", order=order, vocab=vocab, length=length, bos=bos, readout=readout, floor=1e-7
    )


def parameter_shapes(config: InductionConfig) -> dict[str, tuple[int, ...]]:
    """The parameters in the order in which the flat vector holds them."""
    width = config.blocks * config.vocab
    return {
        "copy_weight": (config.order, config.vocab, config.vocab),
        "copy_bias": (config.order, config.n_ctx),
        "match_weight": (width, width),
        "match_bias": (config.n_ctx,),
        "readout_weight": (config.vocab, 2 * width),
    }


def size_of(config: InductionConfig) -> int:
    """Numbers in the flat vector."""
    return sum(map(math.prod, parameter_shapes(config).values()))


def views(config: InductionConfig, flat: np.ndarray) -> dict[str, np.ndarray]:
    """Each parameter as a view into `flat`: writing to a view writes to the vector.

    >>> example = config(order=2, vocab=5, length=64, bos=True)
    >>> views(example, np.zeros(size_of(example)))["copy_bias"].shape
    (2, 65)
    """
    if flat.shape != (size_of(config),):
        raise ValueError(f"the flat vector must have shape ({size_of(config)},), got {flat.shape}")
    shapes = parameter_shapes(config)
    parts = np.split(flat, np.cumsum([math.prod(shape) for shape in shapes.values()])[:-1])
    return {name: part.reshape(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}


def initial(config: InductionConfig, *, init: str, seed: int) -> np.ndarray:
    """A start vector for the compiled trainer, from its own generator, separate from that of the data."""
    starts = DISENTANGLED.starts.parse(init)
    # One draw for the whole vector: a part's numbers do not depend on how the other parts start.
    flat = np.random.default_rng([seed, 1]).standard_normal(size_of(config))
    parts = views(config, flat)
    _start_copies(parts, starts["copies"])
    _scale(parts["match_weight"], starts["match"], vocab=config.vocab)
    parts["match_bias"] *= starts["match_bias"].size or 0.0
    _scale(parts["readout_weight"], starts["readout"], vocab=config.vocab)
    if starts["readout"].word == "construction":
        half = config.blocks * config.vocab
        parts["readout_weight"][:, half : half + config.vocab] = np.eye(config.vocab)
    return flat.astype(config.dtype)


def _start_copies(parts: dict[str, np.ndarray], start: Start) -> None:
    """From standard normal numbers to the copy heads' start, in place."""
    weight, bias = parts["copy_weight"], parts["copy_bias"]
    peak = {"copy": start.size or 0.0, "hard": COPY_STRENGTH}.get(start.word, 0.0)
    spread = {"copy": COPY_STD, "hard": 0.0}.get(start.word, start.size or 0.0)
    for head in weight:
        _scale(head, Start("zero") if start.word == "bias" else Start(start.word, spread), vocab=len(head))
    bias *= spread
    for head in range(len(bias)):
        bias[head, head + 1] += peak


def _scale(weight: np.ndarray, start: Start, *, vocab: int) -> None:
    """Standard normal numbers times the start's size, in place; symmetric: a I + b J in every |V| x |V| block."""
    if start.word == "symmetric":
        blocks = rearrange(weight, "(row m) (column n) -> row column m n", m=vocab, n=vocab)  # a view
        coefficients = blocks[:, :, 0, :2].copy()
        blocks[:] = coefficients[..., 1, None, None]
        blocks += coefficients[..., 0, None, None] * np.eye(vocab)
    weight *= start.size or 0.0


def training_mask(config: InductionConfig, frozen: Sequence[str]) -> np.ndarray:
    """1 for every parameter that trains, 0 for the frozen parts.

    Two parts are columns of W_O: `direct` reads the query's own stream, past the match head; `carried` reads the copied
    tokens that the match head brings from the keys. The rest of W_O reads the votes. Two are single distances of the
    copy heads' biases, the largest: `copies_bos`, at which the last query alone sees BOS, and `copies_first` before it.
    """
    mask = np.ones(size_of(config))
    parts = views(config, mask)
    half = config.blocks * config.vocab
    columns = {
        "direct": slice(half),
        "carried": slice(half + config.vocab, None),
        "copies_bos": slice(-1, None),
        "copies_first": slice(-2, -1),
    }
    for part in frozen:
        for name in PARAMETERS[part]:
            parts[name][..., columns.get(part, slice(None))] = 0.0
    return mask


@torch.no_grad()
def to_hooked(config: InductionConfig, flat: np.ndarray) -> InductionTransformer:
    """The HookedTransformer with these parameters."""
    model, parts = InductionTransformer(config), views(config, flat)
    for name, place in _places(model).items():
        place.copy_(torch.from_numpy(parts[name].copy()))
    return model


def from_hooked(model: InductionTransformer) -> np.ndarray:
    """The compiled trainer's parameter vector of a disentangled (or construction) model: the inverse of `to_hooked`."""
    if not model.config.one_hot:
        raise ValueError("a standard transformer has no disentangled parameters")
    places = _places(model)
    parts = [places[name].detach().numpy().ravel() for name in parameter_shapes(model.config)]
    return np.concatenate(parts).astype(model.config.dtype)


def _places(model: InductionTransformer) -> dict[str, torch.Tensor]:
    """Where in a HookedTransformer each parameter stands, as views."""
    vocab, half = model.config.vocab, model.config.blocks * model.config.vocab
    return {
        "copy_weight": model.copy_attention.W_Q[:, :vocab],
        "copy_bias": model.copy_attention.rel_bias,
        "match_weight": model.match_attention.W_Q[0, :half],
        "match_bias": model.match_attention.rel_bias[0],
        "readout_weight": model.unembed.W_U.T,
    }


def read_weights(config: InductionConfig, flat: np.ndarray) -> tuple[list[float], float | None]:
    """beta per lag and kappa as read from the weights alone, for a progress line; `interp.fit_scores` measures them.

    A block's coefficient is its mean diagonal minus its mean off-diagonal. Heads are matched to lags 1..k by their
    biases. Where copy heads are not sharp, these numbers are larger than the betas of the scores.
    """
    parts = views(config, flat.astype(np.float64))
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
