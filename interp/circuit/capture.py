"""What a circuit's heads did on a batch of sequences: copy patterns, match scores and match patterns, through hooks.

    capture(model, tokens)                                              a model of this suite
    capture(circuit, tokens)                                            any model, with the place of its circuit
    capture(foreign, tokens, order=2, match_heads=((3, 0), (3, 2)))     the same, the place given by hand

`capture` uses only `run_with_hooks` and TransformerLens' canonical hook names, so that it also takes models from
outside this suite. The forward pass stops after the last layer that the circuit uses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import torch
from jaxtyping import Float, Int64

from interp.arguments import Whole, is_whole, real_array, shown
from interp.circuit.circuit import Circuit, Head, as_circuit, head_name
from interp.circuit.edits import MatchReader, layers_of
from interp.circuit.queries import query_positions, untrained_note
from interp.circuit.runner import Hook, observe
from interp.estimators.counts import match_masks
from interp.notation import Tokens, check_order, check_vocab, key_kinds, kind_masses

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Query: TypeAlias = Literal["last", "all", "trained"] | Sequence[int]

ATTENTION_ROUNDING = 0.05  # error of a sum over thousands of keys in bfloat16
COPY_BYTES = 256 << 20  # copy patterns kept in a capture
MATCH_BYTES = 256 << 20  # match attention kept in a capture; twice that while it is assembled


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
        check_order(self.order)
        vocab = check_vocab(self.vocab)
        if self.tokens.ndim != 2 or not self.tokens.numel():
            raise ValueError(f"a capture needs tokens of shape [batch, length], got {list(self.tokens.shape)}")
        low, high = int(self.tokens.min()), int(self.tokens.max())
        if low < 0 or high >= vocab:
            raise ValueError(f"token {low if low < 0 else high} is outside the capture's vocabulary 0..{vocab - 1}")
        (batch, length), shape = self.tokens.shape, tuple(self.match_pattern.shape)
        keys = length + bool(self.bos)
        if len(shape) != 4 or shape != (batch, max(1, shape[1]), max(1, len(self.queries)), keys):
            raise ValueError(
                f"match_pattern must have shape [{batch}, match >= 1, {max(1, len(self.queries))}, {keys}], one row "
                f"for each sequence, match head, query and key, got {list(shape)}"
            )
        if tuple(self.match_scores.shape) != shape:
            raise ValueError(f"match_scores must have the shape {list(shape)} of match_pattern")
        if int(self.queries.min()) < 0 or int(self.queries.max()) >= keys:
            raise ValueError(f"queries must be keys 0..{keys - 1}, got {shown(self.queries.tolist())}")
        copied = tuple(self.copy_pattern.shape)
        if len(copied) != 4 or copied[0] > batch or (copied[0] and copied[2:] != (keys, keys)):
            raise ValueError(f"copy_pattern must have shape [<= {batch}, head, {keys}, {keys}], got {list(copied)}")

    @property
    def has_sink(self) -> bool:
        """Whether key 0, BOS or the first token in its place, has the score kappa in the law."""
        return self.bos or self.first_as_bos

    @property
    def copy_tokens(self) -> Int64[torch.Tensor, "copy_batch length"]:
        """The tokens that `copy_pattern` belongs to."""
        return self.tokens[: self.copy_pattern.shape[0]]

    def match_head(self, index: Whole) -> Capture:
        """The capture of one match head alone; -1 is the last."""
        heads = int(self.match_pattern.shape[1])
        place = int(index) if is_whole(index) else heads
        if not -heads <= place < heads:
            raise ValueError(f"match_head({shown(index)}), but the capture has match heads 0..{heads - 1}")
        one = slice(place % heads, place % heads + 1)
        return replace(
            self,
            match_scores=self.match_scores[:, one],
            match_pattern=self.match_pattern[:, one],
            match_heads=self.match_heads[one],
        )

    def mean_head(self, weights: Any = None) -> Capture:
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

    def plot(self, ax: Axes | None = None, *, sequence: int = 0, query: int = -1, head: int | None = None) -> Axes:
        """The match attention of one query: a bar for each key, coloured by its overlap with the query's context.

        `query` counts the queries that were kept, -1 is the last one. Of several match heads the mean is drawn, unless
        `head` says which one. The legend gives the share of each kind of key.
        """
        from interp.plotting import heading, induction_bars, legend_beside, overlap_handles, panel, visible_masses

        batch, heads, queries, _ = self.match_pattern.shape
        for name, index, size in (
            ("sequence", sequence, batch),
            ("query", query, queries),
            ("head", 0 if head is None else head, heads),
        ):
            if not is_whole(index) or not -size <= index < size:
                raise ValueError(f"{name}={shown(index)}, but the capture has {size}")
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
        batch, length = self.tokens.shape
        heads = self.copy_pattern.shape[1]
        queries = "last query" if len(self.queries) == 1 else f"{len(self.queries)} queries"
        several = "" if len(self.match_heads) < 2 else f" of heads {', '.join(map(head_name, self.match_heads))}"
        return (
            f"Capture of {batch} sequences of {length} tokens{' after BOS' if self.bos else ''}\n"
            f"  order {self.order}, vocabulary {self.vocab}\n"
            f"  copy pattern   {heads} heads, {self.copy_pattern.shape[0]} sequences, all queries\n"
            f"  match          {queries}{several}" + (f"\n  {self.note}" if self.note else "")
        )

    __repr__ = __str__


def check_attention(pattern: Float[torch.Tensor, "... key"], *, of: str) -> None:
    """Refuse numbers that are not attention weights; the tolerance allows for the rounding of 16-bit models."""
    if not torch.isfinite(pattern).all():
        raise ValueError(f"the {of} attention is not finite: the model's weights are too large for its precision")
    if (pattern < 0).any() or float((pattern.double().sum(-1) - 1).abs().max()) > ATTENTION_ROUNDING:
        raise ValueError(f"the {of} attention must be numbers >= 0 that sum to 1 over the keys")


def capture(
    model: Any,
    tokens: Tokens,
    *,
    query: Any = "last",
    copies: bool = True,
    copy_layer: Any = None,
    match_layer: Any = None,
    match_head: Any = None,
    **place: Any,
) -> Capture:
    """Run the model and keep its copy patterns, match scores and match patterns.

    query="last" keeps the match attention of the last position, "all" that of every position, "trained" that of the
    positions where the model's loss has a target (`interp.circuit.queries`), and a list of token indices that of these
    tokens. Instruments on the match heads need no copy patterns: copies=False keeps none, which saves time and memory
    on long sequences.

    For a model of this suite and for a `Circuit` nothing else is needed. For a HookedTransformer from elsewhere give
    the arguments of `Circuit` by hand: `order`, and where they apply `copy_heads`, `match_heads`, `vocab`, `bos` and
    `symbols`. Instead of the heads, `copy_layer`, `match_layer` and `match_head` (by default 0, 1 and 0) name one layer
    all of whose heads may copy, and one match head.
    """
    layers = {"copy_layer": copy_layer, "match_layer": match_layer, "match_head": match_head}
    circuit = _circuit_of(model, place, layers=layers)
    circuit.require_match()
    array = circuit.check(tokens)
    queries = query_positions(query, circuit, array.shape[1])
    batch, keys = array.shape[0], array.shape[1] + circuit.has_bos
    per_sequence = 2 * 8 * len(circuit.match_heads) * len(queries) * keys
    if per_sequence * batch > MATCH_BYTES:
        raise ValueError(
            f"query={shown(query)} on {batch} sequences would keep {per_sequence * batch >> 20} MiB of attention; "
            f"use at most {max(1, MATCH_BYTES // per_sequence)} sequences"
            + (", or query='last'" if isinstance(query, str) else "")
        )
    match, copied = MatchReader(circuit, array, queries=queries), _CopyReader(circuit, array, kept=copies)
    observe(
        circuit,
        array,
        hooks=lambda rows: copied.hooks(rows) + match.hooks(rows),
        last_only=queries.tolist() == [keys - 1],
    )
    return Capture(
        tokens=array,
        copy_pattern=copied.pattern,
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


class _CopyReader:
    """Keeps the copy heads' attention at all queries, of as many sequences as `COPY_BYTES` hold."""

    def __init__(self, circuit: Circuit, tokens: Int64[torch.Tensor, "batch length"], *, kept: bool) -> None:
        self.heads = circuit.known_copy_heads
        keys = tokens.shape[1] + circuit.has_bos
        room = max(1, COPY_BYTES // (circuit.dtype.itemsize * max(1, len(self.heads)) * keys**2))
        sequences = min(len(tokens), room) if kept and self.heads else 0
        self.pattern = torch.zeros(sequences, len(self.heads), keys, keys, dtype=circuit.dtype)

    def hooks(self, rows: slice) -> list[Hook]:
        """For one part of the batch, whose queries may come some at a time."""
        layers = layers_of(self.heads) if rows.start < len(self.pattern) else []
        return [(f"blocks.{layer}.attn.hook_pattern", partial(self._keep, rows, layer)) for layer in layers]

    def _keep(self, rows: slice, layer: int, activation: torch.Tensor, hook: Any) -> None:
        kept = self.pattern[rows]
        queries, keys = activation.shape[-2:]  # the queries are the last of the keys
        for index, (own, head) in enumerate(self.heads):
            if own == layer:
                kept[:, index, keys - queries : keys, :keys] = activation[: len(kept), head].detach().cpu()


def _circuit_of(model: Any, place: dict[str, Any], *, layers: dict[str, Any]) -> Circuit:
    """The circuit that was given, or the one that the place keywords describe."""
    layers = {name: value for name, value in layers.items() if value is not None}
    if isinstance(model, Circuit):
        if given := [*layers, *(name for name, value in place.items() if value is not None)]:
            raise ValueError(f"{given[0]} was given together with a Circuit, which already defines it")
        return model
    if unknown := sorted(set(place) - {"order", "copy_heads", "match_heads", "vocab", "bos", "symbols"}):
        raise TypeError(f"capture() got an unexpected keyword argument {unknown[0]!r}")
    named = [name for name in ("copy_heads", "match_heads") if place.get(name) is not None]
    if named and layers:
        raise ValueError(f"give {named[0]} or {next(iter(layers))}, not both")
    if named:
        return Circuit(model, **place)
    if not layers and not any(value is not None for value in place.values()) and not hasattr(model, "run_with_hooks"):
        return as_circuit(model)  # raises the error that says what is wrong
    return Circuit.in_layers(model, **layers, **place)
