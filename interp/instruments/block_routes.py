"""Three routes to the |V| x |V| comparisons that a match head makes; `identity_blocks` decomposes them.

    weight_blocks    W_A itself, for models whose stream is made of blocks
    score_blocks     least squares on match scores, for any model
    circuit_blocks   W_E and the copy heads' OV circuits around the match head's QK circuit, for any model

Block (a, b) compares the query's token at lag a (its rows) with the key's token at lag b (its columns), for a and b in
0..k. Only W_A is known exactly. The others are known up to what the softmax does not see and up to terms that depend on
one token only, so their rows and columns are centred.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import einops
import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray

from interp.circuit.capture import Query, capture
from interp.circuit.circuit import Circuit
from interp.circuit.queries import query_positions
from interp.circuit.runner import run
from interp.fitting.regression import solve_normal_equations
from interp.hooked.transformer import InductionTransformer
from interp.instruments.copy_heads import copy_heads
from interp.lens import FactoredMatrix, HookedTransformer
from interp.results import mean_stderr

Array: TypeAlias = NDArray[Any]

MAX_COEFFICIENTS = 5000  # a Gram matrix of 200 MB
ROUNDING = 1e-13  # relative size of squared scores below which float32 scores are rounding


@dataclass(frozen=True, kw_only=True)
class FoundBlocks:
    """The blocks of one route, with errors of their identity coefficients and the quality of the fit."""

    blocks: Float[np.ndarray, "block block vocab vocab"]
    identity_stderr: Float[np.ndarray, "block block"] | None = None
    r2: float = math.nan
    n: int = 0
    success: bool = True
    message: str = ""


def weight_blocks(circuit: Circuit, tokens: torch.Tensor) -> FoundBlocks:
    """The blocks of W_A in the weights of a construction or disentangled model, in the order of lags.

    Block h of the stream holds what copy head h wrote, and training decides which head copies which lag. This is
    measured on `tokens` (`copy_heads`). Where some lag has no copy head, the blocks are exact, but cannot be assigned
    to lags.
    """
    model = circuit.model
    if not isinstance(model, InductionTransformer) or not model.config.one_hot:
        raise ValueError("route 'weights' needs a construction or disentangled model; take 'scores' or 'circuit'")
    vocab = model.config.vocab
    weights = model.blocks[1].attn.W_Q[0, : model.config.blocks * vocab].detach().double().cpu().numpy()
    heads = copy_heads(capture(circuit, tokens))
    message = "" if heads.success else f"these blocks are of heads, not of lags: {heads.message}"
    blocks = in_lag_order(weights, heads.lag, vocab=vocab)
    return FoundBlocks(blocks=blocks, success=heads.success, message=message)


def in_lag_order(
    weights: Float[np.ndarray, "row column"], lags: Sequence[int] | Array, *, vocab: int
) -> Float[np.ndarray, "block block vocab vocab"]:
    """W_A as blocks (query lag, key lag), where copy head h writes block h + 1 and serves lag `lags[h]`."""
    blocks = einops.rearrange(weights, "(a v) (b w) -> a b v w", v=vocab, w=vocab)
    places = np.concatenate([[0], 1 + np.argsort(np.asarray(lags))])
    return np.asarray(blocks[np.ix_(places, places)])


def score_blocks(circuit: Circuit, tokens: torch.Tensor, *, query: Query) -> FoundBlocks:
    """Least squares of the match scores on (query token at lag a) x (key token at lag b).

    Tokens enter as contrasts, so that the product of both sides makes a centred block. The product of a constant with
    the key side is what depends on the key's token alone; it is fitted once per key lag and left out of the blocks.
    Each query has its own intercept, and so has each key position, so that functions of the position are not mistaken
    for content. Both are exact, because all sequences have the same candidates.
    """
    order, vocab = circuit.order, circuit.vocab
    features = (order + 1) * (vocab - 1)
    if features * (features + 1) > MAX_COEFFICIENTS:
        raise ValueError(
            f"order {order} and {vocab} symbols make {features * (features + 1)} comparisons of tokens; "
            f"route 'scores' holds at most {MAX_COEFFICIENTS}"
        )
    if tokens.shape[1] <= order + 1:
        raise ValueError(f"a query needs two candidates: expected more than {order + 1} tokens, got {tokens.shape[1]}")
    if int(query_positions(query, circuit, tokens.shape[1]).max()) - circuit.has_bos <= order:
        raise ValueError(f"no query has two candidate keys: the first that has them is token {order + 1}")
    solution = _least_squares(_designs(circuit, tokens, query=query))
    sizes = {"a": order + 1, "b": order + 1}
    raw = einops.rearrange(solution.coefficients[1:], "(a i) (b j) -> a b i j", **sizes)
    moved = einops.rearrange(solution.influence[:, 1:], "n (a i) (b j) -> n a b i j", **sizes)
    # A centred block has a = trace / (|V| - 1), which is linear in the coefficients.
    traces = np.einsum("nabii->nab", moved) / (vocab - 1)
    stderr = [[mean_stderr(traces[:, a, b])[1] for b in range(order + 1)] for a in range(order + 1)]
    message = ""
    if math.isnan(solution.r2):
        message = "the scores do not vary with the keys"
    elif not solution.full_rank:
        message = "these sequences do not determine all comparisons of tokens: give more of them"
    basis = _contrasts(vocab)
    return FoundBlocks(
        blocks=np.einsum("abij,vi,wj->abvw", raw, basis, basis),
        identity_stderr=np.array(stderr),
        r2=solution.r2,
        n=tokens.shape[0],
        success=not message,
        message=message,
    )


def circuit_blocks(circuit: Circuit, tokens: torch.Tensor) -> FoundBlocks:
    """From the weights, through W_E and the copy heads' OV circuits, as factored matrices.

    Approximations: copy head h passes on the token at lag a with its mean attention to that lag, and the LayerNorm
    before the match head divides by its mean scale (both measured on `tokens`); MLPs, position embeddings and layers
    before a copy head's are left out. Biases depend on one token at most and are centred away.
    """
    model = circuit.model
    if not isinstance(model, HookedTransformer):
        raise ValueError(f"weight blocks are read from a HookedTransformer, got {type(model).__name__}")
    if circuit.symbols is not None and circuit.symbols.ndim == 2:
        raise ValueError("weight blocks belong to one alphabet, but every sequence has its own")
    layer, head = circuit.only_match_head()
    match = model.blocks[layer]
    attention, scale = _copying(circuit, tokens)
    ids = torch.arange(circuit.vocab) if circuit.symbols is None else circuit.symbols
    with torch.no_grad():
        embedding = model.embed.W_E[ids.to(circuit.device)]
        written = torch.zeros(circuit.order + 1, *embedding.shape, dtype=torch.float64)
        for (own, source), by_lag in zip(circuit.known_copy_heads, attention, strict=True):
            copy = model.blocks[own]
            copied = _product(copy.ln1(embedding) @ copy.attn.W_V[source], copy.attn.W_O[source]).cpu().double()
            written += einops.einsum(by_lag, copied, "lag, v d -> lag v d")
        written[0] += embedding.cpu().double()
        written = _linear_norm(match.ln1, written, scale=scale)
        queries = written @ match.attn.W_Q[head].cpu().double()
        keys = written @ match.attn.W_K[head].cpu().double()
        blocks = _product(
            einops.rearrange(queries, "lag v h -> lag 1 v h"), einops.rearrange(keys, "lag v h -> 1 lag h v")
        )
        blocks = blocks / float(match.attn.attn_scale)
    return FoundBlocks(blocks=doubly_centred(blocks.cpu().numpy()), n=tokens.shape[0])


def doubly_centred(blocks: Float[np.ndarray, "*rows vocab vocab"]) -> Float[np.ndarray, "*rows vocab vocab"]:
    """The blocks without what depends on the query's token alone or the key's token alone."""
    blocks = blocks - blocks.mean(axis=-1, keepdims=True)
    return np.asarray(blocks - blocks.mean(axis=-2, keepdims=True))


def _contrasts(vocab: int) -> Float[np.ndarray, "vocab contrast"]:
    """An orthonormal basis of the vectors over the vocabulary that sum to zero."""
    return np.linalg.svd(np.ones((1, vocab)))[2][1:].T


@dataclass(frozen=True, kw_only=True)
class _Design:
    """One query position: X = (a constant and the query's features) x (the key's features), y = scores.

    As the query's features are the same for all its keys, sums over keys run over the key's features alone:
    X'X = sum_q (f f') x (G'G). Keys and scores are centred within each query; `means`, the mean of X over sequences,
    takes care of the intercept of each key position. `rounding` is the part of y'y that rounding can make.
    """

    query: Float[np.ndarray, "batch one_more"]
    keys: Float[np.ndarray, "batch key feature"]
    scores: Float[np.ndarray, "batch key"]
    means: Float[np.ndarray, "key coefficient"]
    rounding: float

    @classmethod
    def of(cls, query: Array, keys: Array, scores: Array) -> _Design:
        if not np.isfinite(scores).all():
            raise ValueError("a candidate key has a score that is not finite: this head masks keys")
        query = np.concatenate([np.ones((len(query), 1)), query], axis=1)
        keys = keys - keys.mean(axis=1, keepdims=True)
        rounding = ROUNDING * float((scores**2).sum())
        scores = scores - scores.mean(axis=1, keepdims=True)
        joint = np.einsum("bi,bsk->sik", query, keys, optimize=True) / len(query)
        return cls(
            query=query,
            keys=keys,
            scores=scores - scores.mean(axis=0, keepdims=True),
            means=einops.rearrange(joint, "s i k -> s (i k)"),
            rounding=rounding,
        )

    def gram(self) -> Array:
        """X'X."""
        queries = np.einsum("bi,bj->bij", self.query, self.query)
        keys = np.einsum("bsk,bsl->bkl", self.keys, self.keys, optimize=True)
        joint = einops.rearrange(np.tensordot(queries, keys, axes=(0, 0)), "i j k l -> (i k) (j l)")
        return np.asarray(joint - len(self.query) * (self.means.T @ self.means))

    def by_sequence(self, values: Array) -> Array:
        """X' values, for values [batch, key] centred like the scores: one row per sequence."""
        own = np.einsum("bsk,bs->bk", self.keys, values)
        joint = einops.rearrange(np.einsum("bi,bk->bik", self.query, own), "b i k -> b (i k)")
        return np.asarray(joint - values @ self.means)

    def fitted(self, coefficients: Array) -> Array:
        """X times the coefficients."""
        scores = np.einsum("bk,bsk->bs", self.query @ coefficients, self.keys)
        return np.asarray(scores - scores.mean(axis=0, keepdims=True))


def _designs(circuit: Circuit, tokens: torch.Tensor, *, query: Query) -> Callable[[], Iterator[_Design]]:
    """The query positions that have two candidates, to be walked more than once."""
    order, bos = circuit.order, int(circuit.has_bos)
    seen = capture(circuit, tokens, query=query, copies=False)
    coded = _contrasts(circuit.vocab)[tokens.numpy()]

    def walk() -> Iterator[_Design]:
        for row, key in enumerate(seen.queries.tolist()):
            t = key - bos
            if t <= order:
                continue
            lags = [coded[:, t - lag] for lag in range(order + 1)]
            keys = [coded[:, order - lag : t + 1 - lag] for lag in range(order + 1)]
            yield _Design.of(
                einops.rearrange(lags, "lag batch contrast -> batch (lag contrast)"),
                einops.rearrange(keys, "lag batch key contrast -> batch key (lag contrast)"),
                seen.match_scores[:, 0, row, order + bos : key + 1].double().numpy(),
            )

    return walk


@dataclass(frozen=True, kw_only=True)
class _LeastSquares:
    """Coefficients, and each sequence's influence on them: its mean over sequences has their standard error."""

    coefficients: Float[np.ndarray, "one_more feature"]
    influence: Float[np.ndarray, "batch one_more feature"]
    r2: float
    full_rank: bool


def _least_squares(designs: Callable[[], Iterator[_Design]]) -> _LeastSquares:
    """Two walks: one for the sums, one for the residuals."""
    gram, moments, total, rounding, features = np.zeros(()), np.zeros(()), 0.0, 0.0, 0
    for design in designs():
        gram = gram + design.gram()
        moments = moments + design.by_sequence(design.scores).sum(axis=0)
        total += float((design.scores**2).sum())
        rounding += design.rounding
        features = design.keys.shape[2]
    solution = solve_normal_equations(gram, moments, total)
    coefficients = einops.rearrange(solution.coefficients, "(i k) -> i k", k=features)
    pull, unexplained = np.zeros(()), 0.0
    for design in designs():
        residual = design.scores - design.fitted(coefficients)
        unexplained += float((residual**2).sum())
        pull = pull + design.by_sequence(residual)
    influence = len(pull) * pull @ solution.inverse
    return _LeastSquares(
        coefficients=coefficients,
        influence=einops.rearrange(influence, "b (i k) -> b i k", k=features),
        r2=1 - unexplained / total if total > rounding else math.nan,
        full_rank=solution.full_rank,
    )


def _product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    whole = FactoredMatrix(left, right).AB
    assert isinstance(whole, torch.Tensor)
    return whole


def _copying(circuit: Circuit, tokens: torch.Tensor) -> tuple[Float[torch.Tensor, "head lag"], float]:
    """Each copy head's mean attention to lags 0..k, and the mean scale of the LayerNorm before the match head.

    Both over the positions that have k tokens before them. A model without that LayerNorm has scale 1.
    """
    first = circuit.order + circuit.has_bos
    heads = circuit.known_copy_heads
    sums = torch.zeros(len(heads), circuit.order + 1, dtype=torch.float64)
    scales: list[torch.Tensor] = []

    def read_pattern(layer: int, pattern: torch.Tensor, hook: Any) -> None:
        for (index, (own, head)), lag in itertools.product(enumerate(heads), range(circuit.order + 1)):
            if own == layer:
                on_lag = torch.diagonal(pattern[:, head], offset=-lag, dim1=-2, dim2=-1)[..., first - lag :]
                sums[index, lag] += float(on_lag.cpu().double().mean(-1).sum())

    def read_scale(scale: torch.Tensor, hook: Any) -> None:
        scales.append(scale.cpu().double()[:, first:].mean(dim=tuple(range(1, scale.ndim))))

    hooks: list[Any] = [
        (f"blocks.{layer}.attn.hook_pattern", partial(read_pattern, layer)) for layer in {own for own, _ in heads}
    ]
    scale_name = f"blocks.{circuit.only_match_head()[0]}.ln1.hook_scale"
    if scale_name in circuit.model.hook_dict:
        hooks.append((scale_name, read_scale))
    run(circuit, tokens, hooks=lambda part: hooks)
    return sums / tokens.shape[0], float(torch.cat(scales).mean()) if scales else 1.0


def _linear_norm(norm: torch.nn.Module, vectors: torch.Tensor, *, scale: float) -> torch.Tensor:
    """LayerNorm as a linear map: centring (not for RMS norms), division by the mean scale, its weights."""
    if type(norm).__name__.startswith("LayerNorm"):
        vectors = vectors - vectors.mean(-1, keepdim=True)
    weight = getattr(norm, "w", None)
    return vectors / scale if weight is None else vectors / scale * weight.detach().cpu().double()
