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
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import einops
import numpy as np
import torch
from jaxtyping import Float, Int64
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.linalg import LinearOperator, cg

from interp.circuit.capture import capture
from interp.circuit.circuit import Circuit
from interp.circuit.queries import Query, query_positions
from interp.circuit.runner import run
from interp.hooked.transformer import InductionTransformer
from interp.instruments.copy_heads import copy_heads
from interp.lens import FactoredMatrix, HookedTransformer
from interp.results import mean_stderr

Array: TypeAlias = NDArray[Any]

TOLERANCE, MOST_STEPS = 1e-12, 1000  # of the conjugate gradients
FOUND_AGAIN = 1e-5  # largest error of blocks that are determined; entries of the random ones are about 1
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

    Beside the blocks, a number for each key token at each lag takes up what depends on the key alone, and is left out
    of them. Each query has its own intercept, and so has each key position, so that functions of the position are not
    mistaken for content. Both are exact, because all sequences have the same candidates.

    The normal equations are solved by conjugate gradients, which need products with the sparse design alone. Blocks are
    NaN where the sequences do not determine them: some pair of tokens never occurs, or random blocks are not found
    again from the scores that they make.
    """
    order, length = circuit.order, tokens.shape[1]
    if length <= order + 1:
        raise ValueError(f"a query needs two candidates: expected more than {order + 1} tokens, got {length}")
    if int(query_positions(query, circuit, length).max()) - circuit.has_bos <= order:
        raise ValueError(f"no query has two candidate keys: the first that has them is token {order + 1}")
    design, scores = _design(circuit, tokens, query=query)
    response = [centred(one) for one in scores]
    total, size = (sum(float((one**2).sum()) for one in values) for values in (response, scores))
    unknown = np.full((design.lags, design.lags, design.vocab, design.vocab), np.nan)
    if total <= ROUNDING * size:
        nothing = np.zeros_like(unknown)
        return FoundBlocks(blocks=nothing, n=len(tokens), success=False, message="the scores do not vary with the keys")
    known = np.random.default_rng(0).standard_normal(design.shape).ravel()
    again = design.solve(design.normal(known)) if design.counts().all() else None
    if again is None or not np.allclose(design.blocks(again), design.blocks(known), rtol=0, atol=FOUND_AGAIN):
        few = "these sequences do not determine all comparisons of tokens: give more of them"
        return FoundBlocks(blocks=unknown, n=len(tokens), success=False, message=few)
    coefficients = design.solve(design.transposed(response))
    residual = [one - fitted for one, fitted in zip(response, design.times(coefficients), strict=True)]
    stderr = np.full(unknown.shape[:2], np.nan)
    for a, b in np.ndindex(*stderr.shape):
        # A centred block has a = trace / (|V| - 1). How far a sequence moves it is linear in its residuals.
        gradient = design.times(design.solve(design.of_trace(a, b)))
        moved = sum((one * other).sum(axis=1) for one, other in zip(residual, gradient, strict=True))
        stderr[a, b] = mean_stderr(len(tokens) * moved / (design.vocab - 1))[1]
    return FoundBlocks(
        blocks=design.blocks(coefficients),
        identity_stderr=stderr,
        r2=1 - sum(float((one**2).sum()) for one in residual) / total,
        n=len(tokens),
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


def centred(values: Float[np.ndarray, "batch key"]) -> Float[np.ndarray, "batch key"]:
    """The values without an intercept for each query and one for each key position."""
    values = values - values.mean(axis=1, keepdims=True)
    return np.asarray(values - values.mean(axis=0, keepdims=True))


@dataclass(frozen=True, kw_only=True)
class _Design:
    """Scores as f' B g: f says with ones which token the query has at each lag, after a constant; g is the key's.

    lags, vocab   k + 1 and |V|
    queries       [batch, 1 + lag symbol] f, for each query position
    keys          [batch key, batch lag symbol] g of every sequence and position s = k..T-1, as one matrix
    sizes         candidates of each query position
    """

    lags: int
    vocab: int
    queries: list[csr_array]
    keys: csr_array
    sizes: list[int]

    @property
    def shape(self) -> tuple[int, int]:
        """Of B."""
        return 1 + self.lags * self.vocab, self.lags * self.vocab

    def times(self, coefficients: Array) -> list[Array]:
        """The scores that B makes, centred: [batch, candidate] for each query position."""
        batch = self.queries[0].shape[0]
        made = [self.keys @ (query @ coefficients.reshape(self.shape)).ravel() for query in self.queries]
        return [centred(one.reshape(batch, -1)[:, :size]) for one, size in zip(made, self.sizes, strict=True)]

    def transposed(self, values: list[Array]) -> Array:
        """Sums of such values by the unknowns of B."""
        batch, found = self.queries[0].shape[0], np.zeros(self.shape)
        for query, one in zip(self.queries, values, strict=True):
            every = np.pad(one, ((0, 0), (0, self.keys.shape[0] // batch - one.shape[1])))
            found += query.T @ (self.keys.T @ every.ravel()).reshape(batch, -1)
        return found.ravel()

    def counts(self) -> Float[np.ndarray, "*unknown"]:
        """How many keys show each pair of tokens."""
        batch = self.queries[0].shape[0]
        return np.asarray(self.transposed([np.ones((batch, size)) for size in self.sizes]))

    def blocks(self, coefficients: Array) -> Float[np.ndarray, "block block vocab vocab"]:
        """The blocks in B, rows and columns centred."""
        sizes = {"a": self.lags, "b": self.lags}
        table = coefficients.reshape(self.shape)[1:]
        return doubly_centred(einops.rearrange(table, "(a v) (b w) -> a b v w", **sizes))

    def of_trace(self, a: int, b: int) -> Array:
        """The gradient of the trace of one of these blocks."""
        found = np.zeros(self.shape)
        rows, columns = (slice(start, start + self.vocab) for start in (1 + a * self.vocab, b * self.vocab))
        found[rows, columns] = np.eye(self.vocab) - 1 / self.vocab
        return found.ravel()

    def normal(self, coefficients: Array) -> Array:
        """X'X times the unknowns."""
        return self.transposed(self.times(coefficients))

    def solve(self, right: Array) -> Array:
        """A solution of the normal equations; NaN where none is in reach."""
        size, scale = right.size, 1 / np.maximum(self.counts(), 1.0)  # about the diagonal of X'X
        normal, scaled = (
            LinearOperator((size, size), matvec=product, dtype=np.float64)
            for product in (self.normal, lambda values: scale * values)
        )
        found, left = cg(normal, right, rtol=TOLERANCE, atol=0.0, maxiter=MOST_STEPS, M=scaled)
        return np.asarray(found) if left == 0 else np.full_like(right, np.nan)


def _design(circuit: Circuit, tokens: torch.Tensor, *, query: Query) -> tuple[_Design, list[Array]]:
    """The query positions that have two candidates, and the scores of these."""
    order, bos, vocab = circuit.order, int(circuit.has_bos), circuit.vocab
    seen = capture(circuit, tokens, query=query, copies=False)
    at = [(row, key - bos) for row, key in enumerate(seen.queries.tolist()) if key - bos > order]
    scores = [seen.match_scores[:, 0, row, order + bos : t + bos + 1].double().numpy() for row, t in at]
    if not all(np.isfinite(one).all() for one in scores):
        raise ValueError("a candidate key has a score that is not finite: this head masks keys")
    array, (batch, length), lags = tokens.numpy(), tokens.shape, np.arange(order + 1)
    columns = vocab * len(lags)
    place = array[:, np.arange(order, length)[:, None] - lags] + vocab * lags
    place = place + columns * np.arange(batch)[:, None, None]
    constant = np.zeros((batch, 1), dtype=np.int64)
    queries = [np.hstack([constant, 1 + array[:, t - lags] + vocab * lags]) for _, t in at]
    return _Design(
        lags=len(lags),
        vocab=vocab,
        queries=[_ones(one, 1 + columns) for one in queries],
        keys=_ones(place.reshape(-1, len(lags)), batch * columns),
        sizes=[one.shape[1] for one in scores],
    ), scores


def _ones(places: Int64[np.ndarray, "row one"], columns: int) -> csr_array:
    """A sparse matrix with ones at these columns of each row."""
    rows, ones = places.shape
    ends = np.arange(0, rows * ones + 1, ones)
    return csr_array((np.ones(rows * ones), places.ravel(), ends), shape=(rows, columns))


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
