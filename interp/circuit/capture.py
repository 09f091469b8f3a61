"""Look at a model at work: its predictions, and its copy and match attention through hooks.

    predict(model, tokens)               [batch, vocab] probabilities of the token after the last one
    capture(model, tokens)               copy pattern, match scores and match pattern of one forward, read-only

Both take tokens without BOS and prepend it where the model has one. `capture` asks only for `run_with_hooks` and
TransformerLens' canonical hook names, so it also takes a HookedTransformer of your own; say then which layer copies,
which layer and head match, the order, and the BOS id. Models of this suite are run at the last query alone where that
is all that is read (`last_query`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

import einops
import torch
from jaxtyping import Float, Int64
from transformer_lens import HookedTransformer

from interp.circuit import last_query
from interp.circuit.last_query import Hook
from interp.hooked.transformer import InductionTransformer
from interp.notation import Tokens, as_tokens, check_order

Query: TypeAlias = Literal["last", "all"]

BATCH_BYTES = 8 << 20  # attention held at once while running
COPY_BYTES = 256 << 20  # copy patterns kept in a capture
MATCH_BYTES = 256 << 20  # match attention kept in a capture; twice that while it is put together


@dataclass(frozen=True, kw_only=True)
class Capture:
    """What the circuit's two layers did on a batch of sequences. Treat it as read-only.

    tokens         [batch, length], without BOS
    copy_pattern   [copy_batch, head, query, key]: all queries, for the first `copy_batch` sequences (memory is
                   bounded, so that for long sequences fewer than `batch` are kept, and none with copies=False;
                   `copy_tokens` are theirs)
    match_scores   [batch, 1, query, key] before the softmax; -inf where a key is masked
    match_pattern  [batch, 1, query, key] after it
    queries        the key index of each query of the match arrays: the last position only, unless query="all"

    Positions count BOS, where there is one, as position 0: token t sits at key t + bos.
    """

    tokens: Int64[torch.Tensor, "batch length"]
    copy_pattern: Float[torch.Tensor, "copy_batch head query_all key"]
    match_scores: Float[torch.Tensor, "batch 1 query key"]
    match_pattern: Float[torch.Tensor, "batch 1 query key"]
    queries: Int64[torch.Tensor, " query"]
    order: int
    vocab: int
    bos: bool
    checkpoint: str | None = None

    @property
    def copy_tokens(self) -> Int64[torch.Tensor, "copy_batch length"]:
        """The tokens that `copy_pattern` belongs to."""
        return self.tokens[: self.copy_pattern.shape[0]]

    def __str__(self) -> str:
        batch, length = self.tokens.shape
        heads = self.copy_pattern.shape[1]
        queries = "last query" if len(self.queries) == 1 else f"{len(self.queries)} queries"
        return (
            f"Capture of {batch} sequences of {length} tokens{' after BOS' if self.bos else ''}\n"
            f"  order {self.order}, vocabulary {self.vocab}\n"
            f"  copy pattern   {heads} heads, {self.copy_pattern.shape[0]} sequences, all queries\n"
            f"  match          {queries}"
        )

    __repr__ = __str__


def predict(
    model: HookedTransformer,
    tokens: Tokens,
    *,
    order: int | None = None,
    bos: int | bool | None = None,
    vocab: int | None = None,
) -> Float[torch.Tensor, "batch vocab"]:
    """The model's law of the token after the last one. Prepends BOS where the model has it.

    `order`, `bos` and `vocab` are for a HookedTransformer of your own, as in `capture`.
    """
    setting = setting_of(model, order=order, bos=bos, vocab=vocab)
    array = torch.from_numpy(as_tokens(tokens, vocab=setting.vocab, order=setting.order))
    check_length(model, array.shape[1], setting)
    laws = []
    short = last_query.applies(model)
    with torch.no_grad():
        for part in batches(array, model, setting, queries=last_query.QUERIES if short else None):
            ids = setting.with_bos(part)
            if short:
                logits = last_query.from_match(model, last_query.before_match(model, ids))
            else:
                logits = model(ids, prepend_bos=False)[:, -1]
            laws.append(torch.softmax(logits[:, : setting.vocab].double(), dim=-1))
    return torch.cat(laws)


def capture(
    model: HookedTransformer,
    tokens: Tokens,
    *,
    query: Query = "last",
    copies: bool = True,
    order: int | None = None,
    copy_layer: int | None = None,
    match_layer: int | None = None,
    match_head: int | None = None,
    bos: int | bool | None = None,
    vocab: int | None = None,
    checkpoint: str | None = None,
) -> Capture:
    """Run the model and keep its copy pattern, match scores and match pattern.

    query="last" keeps the match attention of the last position, "all" of every position. Instruments on the match
    head need no copy patterns: copies=False keeps none, which saves time and memory on long sequences.

    For models of this suite nothing else is needed. For a HookedTransformer of your own give `order` and, where they
    differ from 0, 1, 0 and "no BOS", `copy_layer`, `match_layer`, `match_head` and `bos` (the id of the BOS token,
    or True for id = vocab); `vocab` is the number of real symbols, by default the model's output size.
    """
    if query not in ("last", "all"):
        raise ValueError(f"query must be 'last' or 'all', got {query!r}")
    setting = setting_of(model, order=order, bos=bos, vocab=vocab)
    copy_layer, match_layer, match_head = check_place(
        model, copy_layer=copy_layer, match_layer=match_layer, match_head=match_head
    )
    array = torch.from_numpy(as_tokens(tokens, vocab=setting.vocab, order=setting.order))
    check_length(model, array.shape[1], setting)
    keys = array.shape[1] + (setting.bos_id is not None)
    rows = keys if query == "all" else 1
    kept = 2 * 8 * array.shape[0] * rows * keys
    if kept > MATCH_BYTES:
        raise ValueError(
            f"query={query!r} on {array.shape[0]} sequences would keep {kept >> 20} MiB of attention; "
            f"use at most {max(1, MATCH_BYTES // (16 * rows * keys))} sequences"
            + (", or query='last'" if query == "all" else "")
        )
    number = 8 if model.cfg.dtype == torch.float64 else 4
    heads = int(model.blocks[copy_layer].attn.cfg.n_heads)
    room = min(array.shape[0], max(1, COPY_BYTES // (number * heads * keys * keys))) if copies else 0
    # One piece from the start: lists put together at the end would take the room twice.
    copied = torch.empty(room, heads, keys, keys, dtype=model.cfg.dtype)
    scores: list[torch.Tensor] = []
    patterns: list[torch.Tensor] = []

    def keep_copy(start: int, activation: torch.Tensor, hook: Any) -> None:
        copied[start : start + len(activation)] = activation.detach()[: room - start]

    def keep_match(kept: list[torch.Tensor], activation: torch.Tensor, hook: Any) -> None:
        kept.append(activation.detach()[:, match_head : match_head + 1, -rows:].clone())

    on_match: list[Hook] = [
        (f"blocks.{match_layer}.attn.hook_attn_scores", partial(keep_match, scores)),
        (f"blocks.{match_layer}.attn.hook_pattern", partial(keep_match, patterns)),
    ]

    def on_copy(start: int) -> list[Hook]:
        return [(f"blocks.{copy_layer}.attn.hook_pattern", partial(keep_copy, start))] if start < room else []

    short = query == "last" and (copy_layer, match_layer) == (0, 1) and last_query.applies(model)
    # Copy patterns are read whole, so the sequences that keep theirs are run whole.
    whole = room if short else array.shape[0]
    start = 0
    with torch.no_grad():
        for part in batches(array[:whole], model, setting):
            ids = setting.with_bos(part)
            model.run_with_hooks(ids, prepend_bos=False, return_type=None, fwd_hooks=on_copy(start) + on_match)
            start += len(part)
        for part in batches(array[whole:], model, setting, queries=last_query.QUERIES):
            last_query.from_match(model, last_query.before_match(model, setting.with_bos(part)), hooks=on_match)
    return Capture(
        tokens=array,
        copy_pattern=copied,
        match_scores=torch.cat(scores),
        match_pattern=torch.cat(patterns),
        queries=torch.arange(keys - rows, keys),
        order=setting.order,
        vocab=setting.vocab,
        bos=setting.bos_id is not None,
        checkpoint=checkpoint,
    )


def check_place(
    model: HookedTransformer, *, copy_layer: int | None, match_layer: int | None, match_head: int | None
) -> tuple[int, int, int]:
    """The copy layer, match layer and match head, 0, 1 and 0 unless given; refused where the model has none such."""
    places = (0 if copy_layer is None else copy_layer, 1 if match_layer is None else match_layer)
    for name, layer in zip(("copy_layer", "match_layer"), places, strict=True):
        if not 0 <= layer < len(model.blocks):
            raise ValueError(f"{name}={layer}, but the model has layers 0..{len(model.blocks) - 1}")
    head = 0 if match_head is None else match_head
    heads = int(model.blocks[places[1]].attn.cfg.n_heads)
    if not 0 <= head < heads:
        raise ValueError(f"match_head={head}, but layer {places[1]} has heads 0..{heads - 1}")
    return (*places, head)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How tokens enter a model: its order, its real symbols, and its BOS id if it has one."""

    order: int
    vocab: int
    bos_id: int | None

    def with_bos(self, tokens: Int64[torch.Tensor, "batch length"]) -> Int64[torch.Tensor, "batch key"]:
        if self.bos_id is None:
            return tokens
        bos = torch.full((tokens.shape[0], 1), self.bos_id, dtype=tokens.dtype)
        packed, _ = einops.pack([bos, tokens], "batch *")
        return packed


def setting_of(
    model: HookedTransformer,
    *,
    order: int | None = None,
    bos: int | bool | None = None,
    vocab: int | None = None,
) -> Setting:
    if isinstance(model, InductionTransformer):
        config = model.config
        given = {"order": (order, config.order), "vocab": (vocab, config.vocab)}
        for name, (asked, real) in given.items():
            if asked is not None and asked != real:
                raise ValueError(f"{name}={asked}, but the model has {name} {real}")
        if bos is not None and (bos is True or (bos is not False and bos == config.vocab)) != config.bos:
            raise ValueError(f"bos={bos}, but the model {'has a BOS token' if config.bos else 'has no BOS token'}")
        return Setting(order=config.order, vocab=config.vocab, bos_id=config.vocab if config.bos else None)
    if order is None:
        raise ValueError("give order=k: a HookedTransformer from elsewhere does not say how long its contexts are")
    symbols = int(model.cfg.d_vocab_out) if vocab is None else vocab
    if symbols > model.cfg.d_vocab:
        raise ValueError(f"vocab={symbols}, but the model's input vocabulary has {model.cfg.d_vocab} symbols")
    bos_id = None if bos is None or bos is False else symbols if bos is True else int(bos)
    if bos_id is not None and not 0 <= bos_id < model.cfg.d_vocab:
        raise ValueError(f"BOS id {bos_id} is outside the model's input vocabulary 0..{model.cfg.d_vocab - 1}")
    return Setting(order=check_order(order), vocab=symbols, bos_id=bos_id)


def check_length(model: HookedTransformer, length: int, setting: Setting) -> None:
    room = model.cfg.n_ctx - (setting.bos_id is not None)
    if length > room:
        raise ValueError(f"sequences have {length} tokens, but the model's context holds {room}")
    if isinstance(model, InductionTransformer) and model.config.family == "construction" and length != room:
        raise ValueError(f"this construction is tied to length {room}, got sequences of {length} tokens")


def batches(
    tokens: Int64[torch.Tensor, "batch length"],
    model: HookedTransformer,
    setting: Setting,
    *,
    queries: int | None = None,
) -> Iterator[Int64[torch.Tensor, "part length"]]:
    """Parts small enough that one layer's attention, at so many queries at a time, stays within `BATCH_BYTES`."""
    keys = tokens.shape[1] + (setting.bos_id is not None)
    rows = keys if queries is None else min(keys, queries)
    heads = max(int(block.attn.cfg.n_heads) for block in model.blocks)
    step = max(1, BATCH_BYTES // (8 * heads * rows * keys))
    for start in range(0, tokens.shape[0], step):
        yield tokens[start : start + step]
