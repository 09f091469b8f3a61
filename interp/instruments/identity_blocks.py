"""The match weights, block by block: is each |V| x |V| comparison a multiple of the identity (corollary:inductive)?

Block (a, b) compares the query's token at lag a, x_{t-a}, with the key's token at lag b, x_{s-b}, for a, b in 0..k;
so beta_r sits at block (r-1, r). By lemma:permutation_invariant_matrix a label-symmetric block is a I + b J. Any block
is the orthogonal sum of

    identity   a (I - J/|V|), a = mean of the diagonal - mean of the rest
    constant   m J, m the mean of all entries; the part in span{I, J} is then a I + b J with b = m - a/|V|
    query      u 1', what depends on the query's token alone
    key        1 v', what depends on the key's token alone
    rest       what is left: its rows, its columns and its diagonal sum to zero

The softmax over keys does not see the constant and the query part: every block of the stream sums to one, so they add
the same number to all keys. Of the key parts of one key lag it sees only the sum. This freedom is called the gauge. So
b = 0 is never tested, only the distance from span{I, J}: `residual_share` is the share of squared norm outside it,
`visible_residual_share` is (key + rest) / (identity + key + rest) once the gauge is fixed.

Routes (`block_routes` says how they work)
    weights   W_A itself: exact, for construction and disentangled models. Its blocks belong to copy heads; their
              attention shows which head copies which lag.
    scores    regression of the match scores on pairs of tokens: what the head does on data. It cannot separate the key
              parts of blocks with the same key lag; its blocks are identity and rest only.
    circuit   W_E and the copy heads' OV circuits through the match head's QK circuit: the blocks of the weights, with
              LayerNorm made linear and MLPs left out. These blocks, too, are identity and rest only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np
import torch
from jaxtyping import Float, Int64
from numpy.typing import NDArray

from interp.arguments import Whole, count, keywords, seed_number, shown
from interp.circuit.circuit import Model, as_circuit
from interp.hooked.transformer import InductionTransformer
from interp.instruments.block_routes import FoundBlocks, circuit_blocks, doubly_centred, score_blocks, weight_blocks
from interp.instruments.copy_heads import COPY_SEQUENCES
from interp.instruments.label_symmetry import draw_relabelings
from interp.notation import Tokens
from interp.results import Axes, DataFrame, NamedRows, frame, jsonable, provenance

Route: TypeAlias = Literal["weights", "scores", "circuit"]
Array: TypeAlias = NDArray[Any]
if TYPE_CHECKING:
    Routes: TypeAlias = Sequence[Route]
else:
    Routes = Any  # checked below

MAX_VOCAB = 256  # symbols; a design over pairs of them must fit into memory
NOTHING = 1e-20  # a block with a smaller share of the whole squared norm counts as zero
CARRIES = 0.05  # a block that holds this share of the visible squared norm carries weight
GRIDS = (
    "identity", "identity_stderr", "constant", "identity_share", "constant_share", "residual_share",
    "visible_residual_share", "weight_share", "p_value",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class BlockMap(FoundBlocks):
    """All blocks by one route. Arrays are [block, block], query lag first, except `blocks`; see also `FoundBlocks`.

    identity         a, and `constant` b, of the part in span{I, J}
    identity_share, constant_share, residual_share   of the squared norm; they sum to 1, and are NaN for a zero block
    visible_residual_share   outside span{I, J} once the gauge is fixed
    weight_share     the block map: this block's part of the visible squared norm of all
    p_value          permutation test: the share of relabelings of the query side whose |a| is as large, the true labels
                     included, so at least 1 / |V|!. Norm and mean do not change under relabelings, so this is also the
                     test of the residual share.
    """

    route: Route
    identity: Float[np.ndarray, "block block"]
    constant: Float[np.ndarray, "block block"]
    identity_share: Float[np.ndarray, "block block"]
    constant_share: Float[np.ndarray, "block block"]
    residual_share: Float[np.ndarray, "block block"]
    visible_residual_share: Float[np.ndarray, "block block"]
    weight_share: Float[np.ndarray, "block block"]
    p_value: Float[np.ndarray, "block block"]

    @property
    def beta(self) -> Float[np.ndarray, " lag"]:
        """The identity coefficients of the aligned blocks (r-1, r)."""
        return np.diagonal(self.identity, offset=1).copy()

    @property
    def aligned_share(self) -> float:
        """The aligned blocks' part of the visible squared norm."""
        return float(np.diagonal(self.weight_share, offset=1).sum())

    @property
    def worst_residual(self) -> float:
        """The largest visible residual share among the blocks with at least 5% of the visible squared norm."""
        heavy = self.visible_residual_share[self.weight_share >= CARRIES]
        return float(heavy.max()) if heavy.size else math.nan

    @property
    def summary(self) -> dict[str, Any]:
        """beta, the aligned blocks' share, the worst residual of a heavy block, and r2."""
        return {"beta": self.beta, "aligned": self.aligned_share, "residual": self.worst_residual, "r2": self.r2}

    @property
    def largest_residual(self) -> float:
        """The largest entry of any block outside span{I, J} once the gauge is fixed, in the unit of the scores."""
        vocab = self.blocks.shape[-1]
        seen = shared_key_parts(self.blocks)
        seen -= seen.mean(axis=-1, keepdims=True)  # the constant and the query's part
        return float(np.abs(seen - self.identity[..., None, None] * (np.eye(vocab) - 1 / vocab)).max())


@dataclass(frozen=True, kw_only=True)
class IdentityBlocks(NamedRows[BlockMap]):
    """The blocks by every route that was taken, in `maps`; `blocks["scores"]` is the `BlockMap` of one.

    agreement   between the first two routes: the cosine of the angle between their blocks, all together, rows and
                columns centred; NaN for a single route
    order, vocab, n    k, |V| and the number of sequences; n is 0 where only weights were read
    """

    ROWS, NAME, NOUN = "maps", "route", "route"

    maps: tuple[BlockMap, ...]
    agreement: float
    order: int
    vocab: int
    n: int

    @property
    def beta(self) -> Float[np.ndarray, " lag"]:
        """The identity coefficients of the aligned blocks (r-1, r), by the first route."""
        return self.maps[0].beta

    @property
    def title(self) -> str:
        """The size, and how far the first two routes agree."""
        agree = f": {' and '.join([one.route for one in self.maps[:2]])} agree to cosine {self.agreement:.3f}"
        return f"match blocks of order {self.order}, |V| = {self.vocab}{agree if math.isfinite(self.agreement) else ''}"

    def shown(self) -> DataFrame:
        """One row per route: its summary."""
        summaries = [one.summary | {"route": one.route, "beta": one.beta.round(3)} for one in self.maps]
        return frame({name: [one[name] for one in summaries] for name in ("route", *self.maps[0].summary)})

    def table(self) -> DataFrame:
        """One row per route and block: route, query_lag, key_lag, aligned, the arrays of `BlockMap`, r2."""
        import pandas as pd

        tables = []
        for one in self.maps:
            query, key = (index.ravel() for index in np.indices(one.identity.shape))
            place = {"query_lag": query, "key_lag": key, "aligned": key == query + 1}
            grids = {name: getattr(one, name).ravel() for name in GRIDS}
            tables.append(pd.DataFrame({"route": one.route, **place, **grids, "r2": one.r2}))
        return pd.concat(tables, ignore_index=True)

    def record(self) -> dict[str, Any]:
        """The fields, after the summary of each route."""
        return {one.route: jsonable(one.summary) for one in self.maps} | super().record()

    def plot(self, ax: Axes | None = None, *, route: str | None = None) -> Axes:
        """The block map of a route, by default the first: each block's part of the visible squared norm.

        Blocks that carry weight also show p of the relabeling test; aligned blocks are framed.
        """
        from interp.plotting import heading, panel, share_heatmap

        found = self.maps[0] if route is None else self[route]
        ax = panel(ax, width=4.6, height=4.4)
        share_heatmap(ax, found.weight_share, p_values=found.p_value, heavy=CARRIES)
        ax.set_xlabel(
            "key block\n(share of the squared norm that the softmax sees;\n"
            "p: test by relabelings; aligned blocks framed)"
        )
        title = f"match blocks, from the {found.route}: {found.aligned_share:.1%} in the aligned blocks"
        doubt = "" if found.success else f"{self.DOUBT}: {found.message}"
        return heading(ax, title, doubt=doubt)


@keywords()
def identity_blocks(
    model: Model,
    tokens: Tokens | None = None,
    *,
    routes: Routes | None = None,
    draws: Whole = 5039,
    batch: Whole = 512,
    seed: Whole = 0,
) -> IdentityBlocks:
    """Every block of the match weights as a I + b J + residual, by each route that applies.

    Parameters
    ----------
    model    a model of this suite, or a `Circuit` with one match head
    tokens   [batch, length] symbols, without BOS; by default random ones
    routes   "weights", "scores" or "circuit", one or more. By default a construction or disentangled model is read from
             its weights, and from its scores too if tokens are given; any other from its scores and its circuit
    draws    relabelings for the test of each block: all of them if there are no more, else this many random ones
    batch    how many random sequences take the place of tokens
    seed     of these sequences and of the relabelings

    Returns
    -------
    `IdentityBlocks`, a `BlockMap` for each route

    Examples
    --------
        blocks = identity_blocks(model)                       the weights of a disentangled model
        blocks = identity_blocks(model, chains.tokens)        and what the scores on these sequences say
        blocks.beta, blocks.table()
    """
    circuit = as_circuit(model)
    circuit.only_match_head()
    if circuit.vocab > MAX_VOCAB:
        raise ValueError(
            f"blocks are |V| x |V|, and |V| is {circuit.vocab}: give a Circuit with symbols=, at most {MAX_VOCAB}"
        )
    taken = _routes(circuit.model, routes, data=tokens is not None)
    draws, batch, seed = count(draws, name="draws"), count(batch, name="batch"), seed_number(seed)
    rng = np.random.default_rng(seed)
    if tokens is None:
        length = int(circuit.model.cfg.n_ctx) - circuit.has_bos
        tokens = torch.from_numpy(rng.integers(circuit.vocab, size=(batch, length)))
    array = circuit.check(tokens)
    found: dict[Route, FoundBlocks] = {}
    if "weights" in taken:
        found["weights"] = weight_blocks(circuit, array[:COPY_SEQUENCES])
    if "scores" in taken:
        found["scores"] = score_blocks(circuit, array)
    if "circuit" in taken:
        found["circuit"] = circuit_blocks(circuit, array)
    relabelings = draw_relabelings(circuit.vocab, draws=draws, rng=rng)
    maps = [_decomposed(route, found[route], relabelings=relabelings) for route in taken]
    return IdentityBlocks(
        maps=tuple(maps),
        agreement=_cosine(maps[0].blocks, maps[1].blocks) if len(maps) > 1 else math.nan,
        order=circuit.order,
        vocab=circuit.vocab,
        n=max(each.n for each in maps),
        success=all(each.success for each in maps),
        message="; ".join(f"{each.route}: {each.message}" for each in maps if each.message),
        provenance=provenance(seed=seed, checkpoint=circuit.checkpoint),
    )


def decompose(blocks: Float[np.ndarray, "*rows vocab vocab"]) -> dict[str, Float[np.ndarray, "*rows"]]:
    """Each block in span{I, J} and outside it: a, b, the squared norm and its five orthogonal parts.

    >>> parts = decompose(2.0 * np.eye(3) + 0.5)
    >>> {name: parts[name].round(12).item() for name in ("identity", "constant", "rest_part")}
    {'identity': 2.0, 'constant': 0.5, 'rest_part': 0.0}
    """
    vocab = blocks.shape[-1]
    mean, diagonal = blocks.mean(axis=(-2, -1)), np.trace(blocks, axis1=-2, axis2=-1) / vocab
    off_diagonal = (vocab * mean - diagonal) / (vocab - 1)
    identity = diagonal - off_diagonal
    query, key = (blocks.mean(axis=axis) - mean[..., None] for axis in (-1, -2))
    inside = mean[..., None, None] + identity[..., None, None] * (np.eye(vocab) - 1 / vocab)
    rest = blocks - inside - query[..., :, None] - key[..., None, :]
    parts = {
        "identity": identity,
        "constant": off_diagonal,
        "squared_norm": (blocks**2).sum(axis=(-2, -1)),
        "identity_part": identity**2 * (vocab - 1),
        "constant_part": vocab**2 * mean**2,
        "query_part": vocab * (query**2).sum(axis=-1),
        "key_part": vocab * (key**2).sum(axis=-1),
        "rest_part": (rest**2).sum(axis=(-2, -1)),
    }
    return {name: np.asarray(values) for name, values in parts.items()}


def shared_key_parts(blocks: Float[np.ndarray, "block block vocab vocab"]) -> Array:
    """The blocks with the key parts of one key lag distributed evenly, which changes no score."""
    key = blocks.mean(axis=-2, keepdims=True) - blocks.mean(axis=(-2, -1), keepdims=True)
    return np.asarray(blocks - key + key.mean(axis=0, keepdims=True))


def aligned_parts(blocks: Float[np.ndarray, "block block vocab vocab"]) -> tuple[list[float], float]:
    """The identity coefficients of the aligned blocks (r-1, r), and these blocks' part of the visible squared norm.

    What the softmax does not see (the gauge) is left out on both sides.
    """
    parts = decompose(shared_key_parts(blocks))
    visible = parts["identity_part"] + parts["key_part"] + parts["rest_part"]
    total = float(visible.sum())
    aligned = float(np.diagonal(visible, offset=1).sum()) / total if total > 0 else 0.0
    return np.diagonal(parts["identity"], offset=1).tolist(), aligned


def permutation_test(
    block: Float[np.ndarray, "vocab vocab"], relabelings: Int64[np.ndarray, "relabeling vocab"]
) -> float:
    """The share of relabelings of the rows that have an identity coefficient as large, the true labels included."""
    vocab = len(block)
    diagonals = block[relabelings, np.arange(vocab)].mean(axis=1)
    sizes, own = (np.abs(one - block.mean()) for one in (diagonals, block.trace() / vocab))
    as_large = int((sizes >= own * (1 - 1e-9)).sum())
    return math.nan if math.isnan(own) else (1 + as_large) / (1 + len(relabelings))


def _routes(model: Any, asked: Any, *, data: bool) -> Sequence[Route]:
    if asked is None:
        if not isinstance(model, InductionTransformer) or not model.config.one_hot:
            return ["scores", "circuit"]
        return ["weights", "scores"] if data else ["weights"]
    known = get_args(Route)
    if not isinstance(asked, (list, tuple)) or not asked or any(one not in known for one in asked):
        raise ValueError(f"routes must list one or more of {', '.join(known)}, got {shown(asked)}")
    return asked


def _decomposed(route: Route, found: FoundBlocks, *, relabelings: Array) -> BlockMap:
    parts, seen = decompose(found.blocks), decompose(shared_key_parts(found.blocks))
    squared, residual = parts["squared_norm"], seen["key_part"] + seen["rest_part"]
    whole = np.where(squared > NOTHING * squared.sum(), squared, np.nan)
    visible = seen["identity_part"] + residual
    tests = [[permutation_test(block, relabelings) for block in row] for row in found.blocks]
    return BlockMap(
        **vars(found),
        route=route,
        identity=parts["identity"],
        constant=parts["constant"],
        identity_share=parts["identity_part"] / whole,
        constant_share=parts["constant_part"] / whole,
        residual_share=(parts["query_part"] + parts["key_part"] + parts["rest_part"]) / whole,
        visible_residual_share=residual / np.where(visible > NOTHING * visible.sum(), visible, np.nan),
        weight_share=visible / (visible.sum() if visible.sum() > 0 else np.nan),
        p_value=np.array(tests),
    )


def _cosine(first: Array, second: Array) -> float:
    a, b = doubly_centred(first).ravel(), doubly_centred(second).ravel()
    norms = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / norms if norms > 0 else math.nan
