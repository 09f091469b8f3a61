"""What a circuit's heads did on a batch of sequences: copy patterns, match scores and match patterns, through hooks.

    capture(model, tokens)                                              a model of this suite
    capture(circuit, tokens)                                            any model, with the place of its circuit
    capture(foreign, tokens, order=2, match_heads=((3, 0), (3, 2)))     the same, the place given by hand

`capture` uses only `run_with_hooks` and TransformerLens' canonical hook names, so that it also takes models from
outside this suite. The forward pass stops after the last layer that the circuit uses.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int64

from interp.arguments import Numbers, Whole, keywords, real_array, shown, takes_memory
from interp.circuit.circuit import (
    Bos,
    Circuit,
    CopyHeads,
    Head,
    Heads,
    Model,
    Symbols,
    all_heads,
    as_circuit,
    checked_head,
    head_name,
)
from interp.circuit.edits import MatchReader, at_layers
from interp.circuit.law import key_masks_at
from interp.circuit.queries import Query, query_positions, untrained_note
from interp.circuit.runner import Hook, Hooks, observe
from interp.estimators.counts import match_masks
from interp.notation import Tokens, key_kinds, kind_masses, mask_name

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

ATTENTION_ROUNDING = 0.05  # error of a sum over thousands of keys in bfloat16
COPY_BYTES = 256 << 20  # copy patterns kept in a capture


@dataclass(frozen=True, kw_only=True)
class Capture:
    """What the circuit's heads did on a batch of sequences. Treat it as read-only.

    tokens         [batch, length], without BOS
    copy_pattern   [copy_batch, head, query, key]: all queries, for the first `copy_batch` sequences (memory is
                   bounded, so that for long sequences fewer than `batch` are kept, and none with copies=False;
                   `copy_tokens` are theirs)
    match_scores   [batch, match, query, key] before the softmax; -inf where a key is masked
    match_pattern  [batch, match, query, key] after it
    queries        the key index of each query of the match arrays: the last position only, unless asked otherwise
    copy_heads, match_heads   the (layer, head) behind each entry of the head axes
    order, vocab, bos   k, |V|, and whether a BOS token stands before the tokens
    first_as_bos   whether the first token stands in for BOS (`Circuit`)
    checkpoint     the path that the model came from, for the provenance of results; None if unknown
    note           a warning about what was read, where there is one

    Positions count BOS, where there is one, as position 0: token t sits at key t + bos.
    """

    tokens: Int64[torch.Tensor, "batch length"]
    copy_pattern: Float[torch.Tensor, "copy_batch head query_all key"]
    match_scores: Float[torch.Tensor, "batch match query key"]
    match_pattern: Float[torch.Tensor, "batch match query key"]
    queries: Int64[torch.Tensor, " query"]
    order: int
    vocab: int
    bos: bool
    copy_heads: tuple[Head, ...] = ()
    match_heads: tuple[Head, ...] = ()
    first_as_bos: bool = False
    checkpoint: str | None = None
    note: str = ""

    def __post_init__(self) -> None:
        """Refuse arrays whose shapes do not fit together; the instruments check the numbers."""
        batch, queries, keys = len(self.tokens), len(self.queries), self.tokens.shape[1] + bool(self.bos)
        shape, of_scores = tuple(self.match_pattern.shape), tuple(self.match_scores.shape)
        if shape != of_scores or 0 in shape or shape != (batch, shape[1], queries, keys):
            raise ValueError(
                f"match_pattern and match_scores must have shape [{batch}, match, {queries}, {keys}], one row for each "
                f"sequence, match head, query and key, got {list(shape)} and {list(of_scores)}"
            )
        if len(self.copy_pattern) and tuple(self.copy_pattern.shape[2:]) != (keys, keys):
            raise ValueError(
                f"copy_pattern must have shape [<= {batch}, head, {keys}, {keys}], got {list(self.copy_pattern.shape)}"
            )

    @property
    def has_sink(self) -> bool:
        """Whether key 0, BOS or the first token in its place, has the score kappa in the law."""
        return self.bos or self.first_as_bos

    @property
    def copy_tokens(self) -> Int64[torch.Tensor, "copy_batch length"]:
        """The tokens that `copy_pattern` belongs to."""
        return self.tokens[: self.copy_pattern.shape[0]]

    def match_head(self, *indices: Whole) -> Capture:
        """The capture of the match heads with these `indices` alone; -1 is the last."""
        heads = int(self.match_pattern.shape[1])
        if not all(-heads <= int(index) < heads for index in indices):
            raise ValueError(f"match_head{shown(indices)}, but the capture has match heads 0..{heads - 1}")
        kept = [int(index) % heads for index in indices]
        return replace(
            self,
            match_scores=self.match_scores[:, kept],
            match_pattern=self.match_pattern[:, kept],
            match_heads=tuple(self.match_heads[index] for index in kept) if self.match_heads else (),
        )

    def mean_head(self, weights: Numbers | None = None) -> Capture:
        """The mean attention of the match heads as that of one head; `weights`, one for each head, need not sum to one.

        Its scores are the logarithm of the mean attention.
        """
        heads = int(self.match_pattern.shape[1])
        given = torch.ones(heads) if weights is None else torch.from_numpy(real_array(weights, name="weights"))
        if given.shape != (heads,) or not torch.isfinite(given).all() or (given < 0).any() or not given.sum() > 0:
            raise ValueError(f"weights must be {heads} numbers >= 0, not all of them 0, got {given.tolist()}")
        share = (given / given.sum()).to(self.match_pattern)
        mean = torch.einsum("bhqk,h->bqk", self.match_pattern, share)[:, None]
        return replace(self, match_pattern=mean, match_scores=mean.log(), match_heads=())

    def table(self) -> pd.DataFrame:
        """One row for each key that a query of a match head sees: sequence, head, query, key, token, mask, score,
        attention.

        Query and key are token indices, and BOS has the key -1 and no token. `mask` is the candidate's match mask, and
        "bos" or "early" where the key is none.
        """
        import pandas as pd

        masks = key_masks_at(self.tokens, order=self.order, bos=self.bos, queries=self.queries)
        names = np.array([*map(mask_name, range(1 << self.order)), "early"])  # -1 is no candidate
        seen = torch.arange(self.match_pattern.shape[3]) <= self.queries[:, None]
        sequence, head, query, key = torch.nonzero(seen.expand(self.match_pattern.shape), as_tuple=True)
        heads = np.array([*map(head_name, self.match_heads)] or [*map(str, range(self.match_pattern.shape[1]))])
        places, is_bos = key - int(self.bos), (key < int(self.bos)).numpy()
        return pd.DataFrame(
            {
                "sequence": sequence,
                "head": heads[head.numpy()],
                "query": self.queries[query] - int(self.bos),
                "key": places,
                "token": pd.array(self.tokens[sequence, places].numpy(), dtype="Int64"),
                "mask": np.where(is_bos, "bos", names[masks[sequence, query, key].numpy()]),
                "score": self.match_scores[sequence, head, query, key],
                "attention": self.match_pattern[sequence, head, query, key],
            }
        ).assign(token=lambda table: table["token"].mask(is_bos))

    def plot(self, ax: Axes | None = None, *, sequence: int = 0, query: int = -1, head: int | None = None) -> Axes:
        """The match attention of one query: a bar for each key, coloured by its overlap with the query's context.

        `ax` is where to draw, by default a new figure; `sequence` is a row of the tokens; `query` counts the queries
        that were kept, -1 is the last one. Of several match heads the mean is drawn, unless `head` says which one. The
        legend gives the share of each kind of key.
        """
        from interp.plotting import heading, induction_bars, legend_beside, overlap_handles, panel, visible_masses

        batch, heads, queries, _ = self.match_pattern.shape
        for name, index, size in (("sequence", sequence, batch), ("query", query, queries), ("head", head or 0, heads)):
            if not -size <= index < size:
                raise ValueError(f"{name}={index}, but the capture has {size}")
        last, bos = int(self.queries[query]), int(self.bos)
        seen = self.tokens[sequence, : last + 1 - bos]
        drawn = slice(None) if head is None else [head]
        weights = self.match_pattern[sequence, drawn, query, : last + 1].detach().cpu().double().mean(0).numpy()
        candidates = len(seen) > self.order
        masks = match_masks(seen[None], order=self.order)[0] if candidates else torch.full_like(seen, -1)
        kinds = key_kinds(masks.numpy(), order=self.order, bos=self.bos)
        masses = visible_masses(weights, kinds, kind_masses(weights, kinds))
        ax = panel(ax, width=9.0, height=2.8)
        tokens = [*["BOS"] * bos, *map(str, seen.tolist())]
        induction_bars(ax, weights, kinds, first_position=1 - bos, tokens=tokens)
        legend_beside(ax, handles=overlap_handles(masses))
        context = " ".join(map(str, seen[-self.order :].tolist()))
        of_head = "" if heads == 1 else f", mean of {heads} heads," if head is None else f" of match head {head}"
        where = "the last query" if len(seen) == self.tokens.shape[1] else f"token {len(seen)}"
        return heading(ax, f"sequence {sequence}: attention{of_head} at {where}, whose context is {context}")

    def __str__(self) -> str:
        (batch, length), (copied, heads) = self.tokens.shape, self.copy_pattern.shape[:2]
        queries = "last query" if len(self.queries) == 1 else f"{len(self.queries)} queries"
        several = "" if len(self.match_heads) < 2 else f" of heads {', '.join(map(head_name, self.match_heads))}"
        return (
            f"Capture of {batch} sequences of {length} tokens{' after BOS' if self.bos else ''}\n"
            f"  order {self.order}, vocabulary {self.vocab}\n"
            f"  copy pattern   {heads} heads, {copied} sequences, all queries\n"
            f"  match          {queries}{several}" + (f"\n  {self.note}" if self.note else "")
        )

    __repr__ = __str__


def check_attention(pattern: Float[torch.Tensor, "... key"], *, of: str) -> None:
    """Refuse numbers that are not attention weights; the tolerance allows for the rounding of 16-bit models."""
    sums = pattern.sum(-1, dtype=torch.promote_types(pattern.dtype, torch.float32))
    if not torch.isfinite(sums).all():
        raise ValueError(f"the {of} attention is not finite: the model's weights are too large for its precision")
    if pattern.amin() < 0 or float((sums - 1).abs().max()) > ATTENTION_ROUNDING:
        raise ValueError(f"the {of} attention must be numbers >= 0 that sum to 1 over the keys")


@keywords(queries="query", checkpoint="nothing: a model that ip.load returns knows its path")
def capture(
    model: Model,
    tokens: Tokens,
    *,
    query: Query = "last",
    copies: bool = True,
    order: Whole | None = None,
    copy_heads: CopyHeads = None,
    match_heads: Heads = None,
    vocab: Whole | None = None,
    bos: Bos = None,
    symbols: Symbols = None,
    copy_layer: Whole | None = None,
    match_layer: Whole | None = None,
    match_head: Whole | None = None,
) -> Capture:
    """Run the model and keep its copy patterns, match scores and match patterns.

    Parameters
    ----------
    model : HookedTransformer, TransformerBridge or Circuit
        A model of this suite and a `Circuit` say where the circuit sits. Of any other model give it by hand.
    tokens : array of int [batch, length]
        The sequences, without BOS.
    query : "last", "all", "trained" or sequence of int, default "last"
        Whose match attention is kept: that of the last position, of every position, of those where the model's loss has
        a target (`interp.circuit.queries`), or of these token indices.
    copies : bool, default True
        Whether copy patterns are kept. Instruments on the match heads need none, which saves time and memory.
    order, copy_heads, match_heads, vocab, bos, symbols : optional
        As in `Circuit`, for a model from elsewhere.
    copy_layer, match_layer, match_head : int, optional
        In place of the heads: one layer all of whose heads may copy, and one match head; by default 0, 1 and 0.

    Returns
    -------
    Capture

    Examples
    --------
    >>> import interp as ip
    >>> model = ip.construct(order=2, vocab=3, length=9, beta=(2.0, 1.0), kappa=1.0)
    >>> capture(model, [[0, 1, 2, 0, 1, 2, 0, 1, 2]]).match_scores[0, 0, 0].tolist()[3:]
    [0.0, 3.0, 0.0, 0.0, 3.0, 0.0, 0.0]
    """
    task = {"order": order, "vocab": vocab, "bos": bos, "symbols": symbols}
    heads = {"copy_heads": copy_heads, "match_heads": match_heads}
    layers: dict[str, Any] = {"copy_layer": copy_layer, "match_layer": match_layer, "match_head": match_head}
    circuit = _circuit_of(model, task, heads, {name: value for name, value in layers.items() if value is not None})
    circuit.require_match()
    array = circuit.check(tokens)
    queries, keys = query_positions(query, circuit, array.shape[1]), array.shape[1] + circuit.has_bos
    per_sequence = 2 * circuit.dtype.itemsize * len(circuit.match_heads) * len(queries) * keys
    takes_memory(
        per_sequence * len(array),
        what=f"query={shown(query)} on {len(array)} sequences",
        instead=f"one sequence needs {per_sequence / 2**20:.0f} MiB"
        + ("; query='last' needs little" if query == "all" else ""),
    )
    match = MatchReader(circuit, array, queries=queries)
    pattern, copied = _copy_patterns(circuit, array[:0] if not copies else array)
    observe(
        circuit,
        array,
        hooks=lambda rows: copied(rows) + match.hooks(rows),
        last_only=queries.tolist() == [keys - 1],
    )
    return Capture(
        tokens=array,
        copy_pattern=pattern,
        match_scores=match.scores,
        match_pattern=match.pattern,
        queries=queries,
        order=circuit.order,
        vocab=circuit.vocab,
        bos=circuit.has_bos,
        copy_heads=circuit.known_copy_heads,
        match_heads=circuit.match_heads,
        first_as_bos=circuit.first_as_bos,
        checkpoint=circuit.checkpoint,
        note=untrained_note(queries, circuit, array.shape[1]),
    )


def _copy_patterns(
    circuit: Circuit, tokens: Int64[torch.Tensor, "batch length"]
) -> tuple[Float[torch.Tensor, "copy_batch head key key"], Hooks]:
    """The copy heads' attention of as many sequences as `COPY_BYTES` hold, and the hooks that fill it in."""
    heads, keys = circuit.known_copy_heads, tokens.shape[1] + circuit.has_bos
    room = max(1, COPY_BYTES // (circuit.dtype.itemsize * max(1, len(heads)) * keys**2))
    pattern = torch.zeros(min(len(tokens), room) if heads else 0, len(heads), keys, keys, dtype=circuit.dtype)

    def keep(rows: slice, layer: int, activation: torch.Tensor, hook: Any) -> None:
        kept = pattern[rows]
        queries, seen = activation.shape[-2:]  # a part of the queries may come, the last of the keys that they see
        for index, (own, head) in enumerate(heads):
            if own == layer:
                kept[:, index, seen - queries : seen, :seen] = activation[: len(kept), head].detach().cpu()

    def hooks(rows: slice) -> list[Hook]:
        return at_layers(heads, "pattern", partial(keep, rows)) if rows.start < len(pattern) else []

    return pattern, hooks


def _circuit_of(model: Model, task: dict[str, Any], heads: dict[str, Any], layers: dict[str, Any]) -> Circuit:
    """The circuit that was given, or the one that the other arguments describe."""
    given = [*layers, *(name for name, value in (task | heads).items() if value is not None)]
    if isinstance(model, Circuit) or not hasattr(model, "run_with_hooks"):
        if given:
            raise ValueError(f"{given[0]} was given together with a Circuit, which already defines it")
        return as_circuit(model)
    named = [name for name, value in heads.items() if value is not None]
    if named and layers:
        raise ValueError(f"give {named[0]} or {next(iter(layers))}, not both")
    if named:
        return Circuit(model, **task, **heads)
    match = (layers.get("match_layer", 1), layers.get("match_head", 0))
    circuit = Circuit(model, **task, match_heads=(match,))
    layer, _ = checked_head(model, (layers.get("copy_layer", 0), 0), name="copy_layer")
    circuit.copy_heads, circuit.lags_known = all_heads(model, layer), False
    return circuit
