"""A circuit: a model, and where in it the copy heads and the match heads sit.

    circuit = Circuit(model)                                  a model of this suite describes its own circuit
    circuit = Circuit(foreign, order=2, copy_heads=((0, 1), (1, 2)), match_heads=((3, 0), (3, 2)), vocab=5, bos=5)

Every instrument that takes a model takes a circuit. A head is a pair (layer, head). `copy_heads[r - 1]` copies lag r,
and is None where it is not known; copy heads may sit in different layers, and several heads may match: their attention
is read and edited together.

`symbols` are for a model whose vocabulary is larger than the alphabet of the chains: the id in the model's own
vocabulary that stands for each of the symbols 0..vocab-1. Predictions are then laws over these symbols. A table with
one row per sequence gives every sequence its own alphabet.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import einops
import numpy as np
import torch
from jaxtyping import Float, Int64

from interp.arguments import is_whole, shown
from interp.hooked.transformer import InductionTransformer
from interp.notation import Tokens, as_tokens, check_order, check_vocab

Head: TypeAlias = tuple[int, int]  # (layer, head)

EVERY_ROW = slice(None)


class Circuit:
    """A live model and the place of its circuit.

    model         a HookedTransformer, one of this suite or one from elsewhere, or a language model behind
                  TransformerLens' bridge (`load_language_model`)
    order         k
    vocab         |V|, the number of symbols, without BOS
    bos           the id of the BOS token in the model's vocabulary, or None where it has none
    first_as_bos  whether the first token of every sequence stands in for BOS (bos="first")
    symbols       the ids that stand for symbols 0..vocab-1, [vocab] or [batch, vocab]; None where symbols are their
                  own ids
    copy_heads    the copy heads as (layer, head). If `lags_known`, one for each lag 1..k, None where that head is not
                  known; else all heads that may copy; the instrument `copy_heads` measures which lag each one copies
    match_heads   the match heads as (layer, head)
    checkpoint    where the model was loaded from, for the provenance of results; None if it was not

    A model of this suite provides all of this. For any other model give `order`; `vocab` is then the model's output
    size and there is no BOS unless `bos` is given (bos=True means that its id is vocab). Heads that are not given are
    unknown, and an instrument that needs them raises an error.

    Models without BOS often use the first token as one: whichever symbol it is, it has its own score and receives the
    attention that matches do not receive. With bos="first" nothing is put before the tokens, and kappa is the score of
    the first token, which the law then includes. The other early keys stay outside the law.
    """

    def __init__(
        self,
        model: Any,
        *,
        order: Any = None,
        copy_heads: Any = None,
        match_heads: Any = None,
        vocab: Any = None,
        bos: Any = None,
        symbols: Any = None,
    ) -> None:
        if not hasattr(model, "run_with_hooks") or not hasattr(model, "blocks"):
            raise ValueError(f"a circuit needs a HookedTransformer, got {type(model).__name__}")
        self.model: Any = model
        self.checkpoint: str | None = getattr(model, "checkpoint", None)
        own = model if isinstance(model, InductionTransformer) else None
        if own is not None:
            _agree(own, order=order, vocab=vocab, bos=bos, symbols=symbols)
            self.order, self.vocab = own.config.order, own.config.vocab
            self.bos: int | None = own.config.vocab if own.config.bos else None
        else:
            if order is None:
                raise ValueError(
                    "give order=k: a HookedTransformer from elsewhere does not say how long its contexts are"
                )
            self.order = check_order(order)
            self.vocab = _vocab_of(model, vocab, symbols)
            self.bos = _bos_of(model, None if _is_first(bos) else bos, vocab=self.vocab)
        self.first_as_bos = own is None and _is_first(bos)
        self.symbols: Int64[torch.Tensor, "*batch vocab"] | None = _symbols_of(
            model, symbols, vocab=self.vocab, bos=self.bos
        )
        self.lags_known = copy_heads is not None
        copies: Any = [(0, head) for head in range(heads_of(model, 0))] if own is not None else []
        if copy_heads is not None:
            copies = list(copy_heads) if isinstance(copy_heads, Iterable) else copy_heads
            if not isinstance(copies, list) or len(copies) != self.order:
                raise ValueError(
                    f"copy_heads must list one (layer, head) or None for each lag 1..{self.order}, "
                    f"got {shown(copy_heads)}"
                )
        self.copy_heads: tuple[Head | None, ...] = tuple(
            None if place is None else _head(model, place, name="copy_heads") for place in copies
        )
        matches: Any = match_heads
        if match_heads is None:
            matches = [(1, 0)] if own is not None else []
        elif not isinstance(match_heads, Iterable):
            raise ValueError(f"match_heads must list (layer, head) pairs, got {shown(match_heads)}")
        self.match_heads: tuple[Head, ...] = _distinct(
            tuple(_head(model, place, name="match_heads") for place in matches)
        )

    @classmethod
    def in_layers(
        cls,
        model: Any,
        *,
        copy_layer: Any = None,
        match_layer: Any = None,
        match_head: Any = None,
        **task: Any,
    ) -> Circuit:
        """A circuit in one copy layer, all of whose heads may copy, and one match head; by default 0, 1 and head 0."""
        places = (0 if copy_layer is None else copy_layer, 1 if match_layer is None else match_layer)
        for name, layer in zip(("copy_layer", "match_layer"), places, strict=True):
            if not is_whole(layer):
                raise ValueError(f"{name} must be an integer, got {shown(layer)}")
            if not 0 <= layer < len(model.blocks):
                raise ValueError(f"{name}={layer}, but the model has layers 0..{len(model.blocks) - 1}")
        head = 0 if match_head is None else match_head
        if not is_whole(head):
            raise ValueError(
                f"match_head must be an integer, got {shown(head)}; match_heads=((layer, head), ...) names several"
            )
        heads = heads_of(model, int(places[1]))
        if not 0 <= head < heads:
            raise ValueError(f"match_head={head}, but layer {places[1]} has heads 0..{heads - 1}")
        circuit = cls(model, match_heads=((places[1], head),), **task)
        circuit.copy_heads = tuple((int(places[0]), head) for head in range(heads_of(model, int(places[0]))))
        circuit.lags_known = False
        return circuit

    @property
    def has_bos(self) -> bool:
        """Whether a BOS token stands before the tokens."""
        return self.bos is not None

    @property
    def has_sink(self) -> bool:
        """Whether key 0, BOS or the first token in its place, has the score kappa in the law."""
        return self.has_bos or self.first_as_bos

    @property
    def declared_bos(self) -> int | str | None:
        """The argument `bos` that makes this circuit."""
        return "first" if self.first_as_bos else self.bos

    @property
    def known_copy_heads(self) -> tuple[Head, ...]:
        """The copy heads that are known, each once."""
        return tuple(dict.fromkeys(place for place in self.copy_heads if place is not None))

    @property
    def last_layer(self) -> int:
        """The last layer that the circuit uses."""
        return max(layer for layer, _ in (*self.known_copy_heads, *self.match_heads))

    @property
    def dtype(self) -> torch.dtype:
        """Of the model's activations."""
        dtype = self.model.cfg.dtype
        assert isinstance(dtype, torch.dtype)
        return dtype

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        device = next(iter(self.model.parameters())).device
        assert isinstance(device, torch.device)
        return device

    def with_match_heads(self, *heads: Head) -> Circuit:
        """The same circuit with these match heads alone."""
        other = Circuit.__new__(Circuit)
        other.__dict__.update(self.__dict__)
        other.match_heads = _distinct(tuple(_head(self.model, place, name="match_heads") for place in heads))
        return other

    def require_match(self) -> None:
        """Refuse a circuit that names no match head."""
        if not self.match_heads:
            raise ValueError("this circuit names no match head: give match_heads=((layer, head), ...)")

    def only_match_head(self) -> Head:
        """The match head of a circuit that has one; a circuit with several is refused."""
        self.require_match()
        if len(self.match_heads) > 1:
            raise ValueError(
                f"this reads one match head at a time, but the circuit has {len(self.match_heads)}: "
                f"use circuit.with_match_heads({self.match_heads[0]})"
            )
        return self.match_heads[0]

    def check(self, tokens: Tokens) -> Int64[torch.Tensor, "batch length"]:
        """The tokens as a tensor, or a ValueError that says why this model cannot read them."""
        array = torch.from_numpy(as_tokens(tokens, vocab=self.vocab, order=self.order))
        length, room = array.shape[1], int(self.model.cfg.n_ctx) - self.has_bos
        if length > room:
            raise ValueError(f"sequences have {length} tokens, but the model's context holds {room}")
        if self.symbols is not None and self.symbols.ndim == 2 and len(self.symbols) != len(array):
            raise ValueError(f"symbols has {len(self.symbols)} rows, one for each sequence, but there are {len(array)}")
        tied = isinstance(self.model, InductionTransformer) and self.model.config.analytic
        if tied and length != room:
            raise ValueError(f"this construction is tied to length {room}, got sequences of {length} tokens")
        return array

    def ids(
        self, tokens: Int64[torch.Tensor, "batch length"], rows: slice = EVERY_ROW
    ) -> Int64[torch.Tensor, "batch key"]:
        """The model's input: BOS where it has one, then the symbols' ids, on the model's device.

        Where the tokens are a part of a batch, `rows` is the slice of that part.
        """
        ids = tokens
        if self.symbols is not None:
            ids = self.symbols[rows].gather(1, tokens) if self.symbols.ndim == 2 else self.symbols[tokens]
        if self.bos is not None:
            bos = torch.full((ids.shape[0], 1), self.bos, dtype=ids.dtype)
            ids, _ = einops.pack([bos, ids], "batch *")
        return ids.to(self.device)

    def of_symbols(
        self, logits: Float[torch.Tensor, "batch *position d_vocab_out"], rows: slice = EVERY_ROW
    ) -> Float[torch.Tensor, "batch *position vocab"]:
        """The logits of the symbols, on the CPU; `rows` as for `ids`."""
        if self.symbols is None:
            return logits[..., : self.vocab].detach().cpu()
        symbols = self.symbols.to(logits.device)
        if symbols.ndim == 1:
            return logits[..., symbols].detach().cpu()
        own = symbols[rows] if logits.ndim == 2 else symbols[rows][:, None].expand(-1, logits.shape[1], -1)
        return logits.gather(-1, own).detach().cpu()

    def __repr__(self) -> str:
        copies = "not known"
        if self.copy_heads and self.lags_known:
            copies = ", ".join(
                f"lag {lag}: {'not known' if place is None else head_name(place)}"
                for lag, place in enumerate(self.copy_heads, start=1)
            )
        elif self.copy_heads:
            copies = ", ".join(map(head_name, self.known_copy_heads)) + " (lags to be measured)"
        matches = ", ".join(map(head_name, self.match_heads)) or "not known"
        bos = "no BOS" if self.bos is None else f"BOS id {self.bos}"
        bos = "the first token as BOS" if self.first_as_bos else bos
        return (
            f"Circuit of order {self.order} over {self.vocab} symbols, {bos}\n"
            f"  copy heads   {copies}\n"
            f"  match heads  {matches}"
        )


def as_circuit(model: Any) -> Circuit:
    """The circuit itself, or that of a model which says where its circuit sits."""
    if isinstance(model, Circuit):
        return model
    if not isinstance(model, InductionTransformer):
        kind = type(model).__name__
        raise ValueError(
            f"this {kind} does not say where its circuit sits: give "
            "ip.Circuit(model, order=..., match_heads=((layer, head), ...), ...)"
            if hasattr(model, "run_with_hooks")
            else f"expected a HookedTransformer or a Circuit, got {kind}"
        )
    return Circuit(model)


def heads_of(model: Any, layer: int) -> int:
    """How many attention heads a layer has."""
    own = getattr(model.blocks[layer].attn, "cfg", None)  # TransformerLens' bridge keeps one config for all layers
    return int((model.cfg if own is None else own).n_heads)


def head_name(place: Head) -> str:
    """layer.head, as the field writes it."""
    return f"{place[0]}.{place[1]}"


def _distinct(heads: tuple[Head, ...]) -> tuple[Head, ...]:
    if len(set(heads)) < len(heads):
        raise ValueError(f"match_heads names a head twice: {shown(list(heads))}")
    return heads


def _head(model: Any, place: Any, *, name: str) -> Head:
    if isinstance(place, np.ndarray):
        place = place.tolist()
    if not isinstance(place, (tuple, list)) or len(place) != 2 or not all(map(is_whole, place)):
        raise ValueError(f"{name} must list (layer, head) pairs, such as ((2, 1),), got {shown(place)} for one of them")
    layer, head = int(place[0]), int(place[1])
    if not 0 <= layer < len(model.blocks):
        raise ValueError(f"{name}: layer {layer}, but the model has layers 0..{len(model.blocks) - 1}")
    if not 0 <= head < heads_of(model, layer):
        raise ValueError(f"{name}: head {head}, but layer {layer} has heads 0..{heads_of(model, layer) - 1}")
    # TransformerLens' bridge ignores the name of a hook that it does not have: nothing would be read.
    if f"blocks.{layer}.attn.hook_pattern" not in model.hook_dict:
        raise ValueError(f"{name}: layer {layer} shows no attention pattern (it has no hook_pattern)")
    return layer, head


def _agree(model: InductionTransformer, *, order: Any, vocab: Any, bos: Any, symbols: Any) -> None:
    """Refuse what contradicts the model's own config."""
    config = model.config
    for name, asked, real in (("order", order, config.order), ("vocab", vocab, config.vocab)):
        if asked is not None and asked != real:
            raise ValueError(f"{name}={asked}, but the model has {name} {real}")
    if _is_first(bos):
        raise ValueError(
            "bos='first' is for models from elsewhere; a model of this suite says itself whether it has BOS"
        )
    if bos is not None and (bos is True or (bos is not False and bos == config.vocab)) != config.bos:
        raise ValueError(f"bos={bos}, but the model {'has a BOS token' if config.bos else 'has no BOS token'}")
    if symbols is not None:
        raise ValueError("symbols are for a model with a larger vocabulary; a model of this suite has its own symbols")


def _vocab_of(model: Any, vocab: Any, symbols: Any) -> int:
    if vocab is None and symbols is not None:
        if not (shape := np.shape(symbols)):
            raise ValueError(f"symbols must be a list of ids of the model's vocabulary, got {shown(symbols)}")
        return int(shape[-1])
    if vocab is None:
        return int(model.cfg.d_vocab_out)
    size = check_vocab(vocab)
    if symbols is None and size > model.cfg.d_vocab:
        raise ValueError(f"vocab={size}, but the model's input vocabulary has {model.cfg.d_vocab} symbols")
    return size


def _is_first(bos: Any) -> bool:
    return isinstance(bos, str) and bos == "first"


def _bos_of(model: Any, bos: Any, *, vocab: int) -> int | None:
    if bos is None or bos is False:
        return None
    if bos is not True and not is_whole(bos):
        raise ValueError(
            f"bos must be the id of the BOS token, True (for id = vocab), 'first' or None, got {shown(bos)}"
        )
    known = vocab if bos is True else int(bos)
    if not 0 <= known < model.cfg.d_vocab:
        raise ValueError(f"BOS id {known} is outside the model's input vocabulary 0..{model.cfg.d_vocab - 1}")
    return known


def _symbols_of(model: Any, symbols: Any, *, vocab: int, bos: int | None) -> Int64[torch.Tensor, "*batch vocab"] | None:
    if symbols is None:
        return None
    ids = np.asarray(symbols.detach().cpu() if hasattr(symbols, "detach") else symbols)
    if ids.ndim not in (1, 2) or ids.shape[-1] != vocab or not np.issubdtype(ids.dtype, np.integer):
        raise ValueError(f"symbols must list one id for each of the {vocab} symbols, got {shown(symbols)}")
    for row in ids.reshape(-1, vocab).tolist():
        if len(set(row)) < vocab:
            raise ValueError(f"symbols must be different ids, got {row}")
    room = min(int(model.cfg.d_vocab), int(model.cfg.d_vocab_out))
    for one in np.unique(ids).tolist():
        if not 0 <= one < room:
            raise ValueError(f"symbol id {one} is outside the model's vocabulary 0..{room - 1}")
        if one == bos:
            raise ValueError(f"symbol id {one} is the id of BOS")
    return torch.from_numpy(ids.astype(np.int64))
