"""Three routes to the |V| x |V| comparisons that a match head makes; `identity_blocks` decomposes them.

    weight_blocks    W_A itself, for models whose stream is made of blocks
    score_blocks     least squares on match scores, for any model
    circuit_blocks   W_E and the copy heads' OV circuits around the match head's QK circuit, for any model

Block (a, b) compares the query's token at lag a (its rows) with the key's token at lag b (its columns), for a and b in
0..k. Only W_A is known exactly. The others are known up to what the softmax does not see and up to terms that depend on
one token only, so their rows and columns are centred.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
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
from interp.circuit.runner import Hook, run
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
    """What one route found.

    blocks           [block, block, vocab, vocab], rows are the query's token, columns the key's
    identity_stderr  [block, block] cluster-robust errors of the identity coefficients; NaN for routes that read weights
    r2, n            of the regression, for `scores`, and the number of sequences; success, message: as in `Result`
    """

    blocks: Float[np.ndarray, "block block vocab vocab"]
    identity_stderr: Float[np.ndarray, "block block"]
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
    return FoundBlocks(blocks=blocks, identity_stderr=_unknown(blocks), success=heads.success, message=message)


def in_lag_order(
    weights: Float[np.ndarray, "row column"], lags: Sequence[int] | Array, *, vocab: int
) -> Float[np.ndarray, "block block vocab vocab"]:
    """W_A as blocks (query lag, key lag), where copy head h writes block h + 1 and serves lag `lags[h]`."""
    blocks = einops.rearrange(weights, "(a v) (b w) -> a b v w", v=vocab, w=vocab)
    places = np.concatenate([[0], 1 + np.argsort(np.asarray(lags))])
    return np.asarray(blocks[np.ix_(places, places)])


def score_blocks(circuit: Circuit, tokens: torch.Tensor) -> FoundBlocks:
    """Least squares of the last query's match scores on (query token at lag a) x (key token at lag b).

    Beside the blocks, a number for each key token at each lag takes up what depends on the key alone, and is left out
    of them. Each query has its own intercept, and so has each key position, so that functions of the position are not
    mistaken for content. Both are exact, because all sequences have the same candidates.

    The normal equations are solved by conjugate gradients, which need products with the sparse design alone. Blocks are
    NaN where the sequences do not determine them: some pair of tokens never occurs, or random blocks are not found
    again from the scores that they make.
    """
    order, (n, length) = circuit.order, tokens.shape
    if length <= order + 1:
        raise ValueError(f"a query needs two candidates: expected more than {order + 1} tokens, got {length}")
    scores = capture(circuit, tokens, copies=False).match_scores[:, 0, 0, order + circuit.has_bos :].double().numpy()
    if not np.isfinite(scores).all():
        raise ValueError("a candidate key has a score that is not finite: this head masks keys")
    design, response = _design(tokens.numpy(), order=order, vocab=circuit.vocab), centred(scores)
    total = float((response**2).sum())
    unknown = np.full((order + 1, order + 1, circuit.vocab, circuit.vocab), np.nan)
    if total <= ROUNDING * float((scores**2).sum()):
        nothing, why = np.zeros_like(unknown), "the scores do not vary with the keys"
        return FoundBlocks(blocks=nothing, identity_stderr=_unknown(nothing), n=n, success=False, message=why)
    known = np.random.default_rng(0).standard_normal(design.ones.shape[1])
    again = design.solve(design.normal(known)) if design.counts.all() else None
    if again is None or not np.allclose(design.blocks(again), design.blocks(known), rtol=0, atol=FOUND_AGAIN):
        few = "these sequences do not determine all comparisons of tokens: give more of them"
        return FoundBlocks(blocks=unknown, identity_stderr=_unknown(unknown), n=n, success=False, message=few)
    coefficients = design.solve(design.transposed(response))
    residual, stderr = response - design.times(coefficients), _unknown(unknown)
    for a, b in np.ndindex(*stderr.shape):
        # A centred block has a = trace / (|V| - 1). How far a sequence moves it is linear in its residuals.
        moved = (residual * design.times(design.solve(design.of_trace(a, b)))).sum(axis=1)
        stderr[a, b] = mean_stderr(n * moved / (circuit.vocab - 1))[1]
    r2 = 1 - float((residual**2).sum()) / total
    return FoundBlocks(blocks=design.blocks(coefficients), identity_stderr=stderr, r2=r2, n=n)


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
    centred_blocks = doubly_centred(blocks.cpu().numpy())
    return FoundBlocks(blocks=centred_blocks, identity_stderr=_unknown(centred_blocks), n=tokens.shape[0])


def _unknown(blocks: Array) -> Float[np.ndarray, "block block"]:
    return np.full(blocks.shape[:2], np.nan)


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
    """Scores of the candidates as X c, where c is a table B: f' B g is the score of a key to a query.

    f has a constant, and ones for the query's token at each lag; g has ones for the key's. A row of `ones`, which is X,
    belongs to a sequence and a key position s = k..T-1, and has ones where f and g have them.
    """

    lags: int  # k + 1
    vocab: int
    batch: int
    ones: csr_array

    @cached_property
    def counts(self) -> Float[np.ndarray, " unknown"]:
        """How many keys show each pair of tokens."""
        return np.asarray(self.ones.sum(axis=0))

    def times(self, coefficients: Array) -> Float[np.ndarray, "batch key"]:
        """The scores that B makes, centred."""
        return centred((self.ones @ coefficients).reshape(self.batch, -1))

    def transposed(self, values: Float[np.ndarray, "batch key"]) -> Float[np.ndarray, " unknown"]:
        """Sums of such scores by the unknowns of B."""
        return np.asarray(self.ones.T @ values.ravel())

    def normal(self, coefficients: Array) -> Float[np.ndarray, " unknown"]:
        """X'X times the unknowns."""
        return self.transposed(self.times(coefficients))

    def blocks(self, coefficients: Array) -> Float[np.ndarray, "block block vocab vocab"]:
        """The blocks in B, rows and columns centred."""
        pairs = coefficients[self.lags * self.vocab :]  # without those of the constant
        sizes = {"a": self.lags, "b": self.lags, "v": self.vocab}
        return doubly_centred(einops.rearrange(pairs, "(a v b w) -> a b v w", **sizes))

    def of_trace(self, a: int, b: int) -> Float[np.ndarray, " unknown"]:
        """The gradient of the trace of one of these blocks."""
        found = np.zeros((1 + self.lags * self.vocab, self.lags * self.vocab))
        rows, columns = (slice(start, start + self.vocab) for start in (1 + a * self.vocab, b * self.vocab))
        found[rows, columns] = np.eye(self.vocab) - 1 / self.vocab
        return found.ravel()

    def solve(self, right: Float[np.ndarray, " unknown"]) -> Float[np.ndarray, " unknown"]:
        """A solution of the normal equations; NaN where none is in reach."""
        size, scale = right.size, 1 / np.maximum(self.counts, 1.0)  # about the diagonal of X'X
        normal, scaled = (
            LinearOperator((size, size), matvec=product, dtype=np.float64)
            for product in (self.normal, lambda values: scale * values)
        )
        found, left = cg(normal, right, rtol=TOLERANCE, atol=0.0, maxiter=MOST_STEPS, M=scaled)
        return np.asarray(found) if left == 0 else np.full_like(right, np.nan)


def _design(tokens: Int64[np.ndarray, "batch length"], *, order: int, vocab: int) -> _Design:
    """The design of the last query's candidates."""
    (batch, length), lags = tokens.shape, np.arange(order + 1)
    columns = vocab * len(lags)
    key = tokens[:, np.arange(order, length)[:, None] - lags] + vocab * lags
    query = np.hstack([np.zeros((batch, 1), dtype=np.int64), 1 + tokens[:, length - 1 - lags] + vocab * lags])
    places = einops.rearrange(query * columns, "n f -> n 1 f 1") + einops.rearrange(key, "n s g -> n s 1 g")
    rows = einops.rearrange(places, "n s f g -> (n s) (f g)")
    ends = np.arange(0, rows.size + 1, rows.shape[1])
    ones = csr_array((np.ones(rows.size), rows.ravel(), ends), shape=(len(rows), (1 + columns) * columns))
    return _Design(lags=len(lags), vocab=vocab, batch=batch, ones=ones)


def _product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    whole = FactoredMatrix(left, right).AB
    assert isinstance(whole, torch.Tensor)
    return whole


def _copying(circuit: Circuit, tokens: torch.Tensor) -> tuple[Float[torch.Tensor, "head lag"], float]:
    """Each copy head's mean attention to lags 0..k, and the mean scale of the LayerNorm before the match head.

    Both over the positions that have k tokens before them. A model without that LayerNorm has scale 1.
    """
    first, patterns = circuit.order + circuit.has_bos, capture(circuit, tokens).copy_pattern.double()
    on_lag = [patterns.diagonal(-lag, dim1=-2, dim2=-1)[..., first - lag :] for lag in range(circuit.order + 1)]
    scales: list[torch.Tensor] = []
    name = f"blocks.{circuit.only_match_head()[0]}.ln1.hook_scale"
    if name in circuit.model.hook_dict:
        keep: Hook = (name, lambda scale, hook: scales.append(scale[:, first:].cpu().double().flatten()))
        run(circuit, tokens, hooks=lambda rows: [keep])
    attention = torch.stack([attended.mean(dim=(0, -1)) for attended in on_lag], dim=-1)
    return attention, float(torch.cat(scales).mean()) if scales else 1.0


def _linear_norm(norm: torch.nn.Module, vectors: torch.Tensor, *, scale: float) -> torch.Tensor:
    """LayerNorm as a linear map: centring (not for RMS norms), division by the mean scale, its weights."""
    if type(norm).__name__.startswith("LayerNorm"):
        vectors = vectors - vectors.mean(-1, keepdim=True)
    weight = getattr(norm, "w", None)
    return vectors / scale if weight is None else vectors / scale * weight.detach().cpu().double()
