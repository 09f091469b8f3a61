"""A circuit: a model, and where in it the copy heads and the match heads sit.

    circuit = Circuit(model)                                  a model of this suite describes its own circuit
    circuit = Circuit(foreign, order=2, copy_heads=((0, 1), (1, 2)), match_heads=((3, 0), (3, 2)), vocab=5, bos=5)

Every instrument that takes a model takes a circuit. A head is a pair (layer, head). `copy_heads[r - 1]` copies lag r:
one head, several that share the work, or None where none is known. Copy heads may sit in different layers, and several
heads may match: their attention is read and edited together.

`symbols` are for a model whose vocabulary is larger than the alphabet of the chains. Predictions are then distributions
over these symbols. A table with one row per sequence gives every sequence its own alphabet.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import einops
import numpy as np
import torch
from jaxtyping import Float, Int64
from numpy.typing import NDArray

from interp.arguments import Whole, is_whole, shown
from interp.hooked.transformer import InductionTransformer
from interp.notation import Tokens, as_tokens, check_order, check_vocab

Head: TypeAlias = tuple[int, int]  # (layer, head)
Copies: TypeAlias = Head | tuple[Head, ...] | None  # of one lag: a head, several that share the work, or not known

if TYPE_CHECKING:
    from transformer_lens.model_bridge import TransformerBridge

    from interp.lens import HookedTransformer

    Hooked: TypeAlias = HookedTransformer | TransformerBridge
    Model: TypeAlias = Hooked | "Circuit"
    Bos: TypeAlias = Whole | Literal["first"] | None
    Symbols: TypeAlias = Sequence[int] | Sequence[Sequence[int]] | torch.Tensor | NDArray[Any] | None
    Heads: TypeAlias = Sequence[Head] | None
    CopyHeads: TypeAlias = Sequence[Head | Sequence[Head] | None] | None
else:  # checked by the constructor, which says more than a type checker would
    Hooked = Model = Bos = Symbols = Heads = CopyHeads = Any

EVERY_ROW = slice(None)


class Circuit:
    """A live model and the place of its circuit.

    A model of this suite says everything itself. Of any other model give `order`, and what applies of the rest; heads
    that are not given are unknown, and an instrument that needs them raises an error.

    Parameters
    ----------
    model : HookedTransformer or TransformerBridge
        One of this suite, one from elsewhere, or a language model (`load_language_model`).
    order : int
        k, the length of the contexts.
    copy_heads : sequence of (layer, head) or None, optional
        The head that copies each lag 1..k, a tuple of heads where several share a lag, None where none is known.
        Without it, all heads of layer 0 of a model of this suite may copy, and the instrument `copy_heads` measures
        which lag each one copies.
    match_heads : sequence of (layer, head), optional
        The heads that match.
    vocab : int, optional
        |V|, the number of symbols, without BOS. By default the model's output size, or the number of symbols.
    bos : int, True, "first" or None, default None
        The id of the BOS token; True stands for id = vocab. "first" is for models without BOS that use the first token
        as one: whichever symbol it is, it has its own score and receives the attention that matches do not receive.
        Nothing is then put before the tokens, and kappa is the score of the first token, which the law includes. The
        other early keys stay outside the law.
    symbols : sequence of int, or one for each sequence, optional
        The ids that stand for symbols 0..vocab-1. Without it symbols are their own ids.

    The attributes have the parameters' names. `bos` is the id or None, and `first_as_bos` says whether the first token
    stands in for it; `lags_known` says whether `copy_heads` are by lag, or all heads that may copy; `checkpoint` is
    where the model was loaded from, for the provenance of results.

    Examples
    --------
    >>> import interp as ip
    >>> ip.Circuit(ip.construct(order=2, vocab=3, length=9, beta=(2.0, 1.0), kappa=1.0))
    Circuit of order 2 over 3 symbols, BOS id 3
      copy heads   0.0, 0.1 (lags to be measured)
      match heads  1.0
    """

    def __init__(
        self,
        model: Hooked,
        *,
        order: Whole | None = None,
        copy_heads: CopyHeads = None,
        match_heads: Heads = None,
        vocab: Whole | None = None,
        bos: Bos = None,
        symbols: Symbols = None,
    ) -> None:
        if not hasattr(model, "run_with_hooks") or not hasattr(model, "blocks"):
            raise ValueError(f"a circuit needs a HookedTransformer, got {type(model).__name__}")
        self.model: Any = model
        self.checkpoint: str | None = getattr(model, "checkpoint", None)
        self.lags_known = copy_heads is not None
        if isinstance(model, InductionTransformer):
            _agree(model, order=order, vocab=vocab, bos=bos, symbols=symbols)
            order, vocab, bos = model.config.order, model.config.vocab, model.config.bos
            copy_heads = all_heads(model, 0) if copy_heads is None else copy_heads
            match_heads = ((1, 0),) if match_heads is None else match_heads
        if order is None:
            raise ValueError("give order=k: a HookedTransformer from elsewhere does not say how long its contexts are")
        self.order = check_order(order)
        self.first_as_bos = isinstance(bos, str) and bos == "first"
        self.vocab = _vocab_of(model, vocab, symbols)
        self.bos = None if self.first_as_bos else _bos_of(model, bos, vocab=self.vocab)
        self.symbols: Int64[torch.Tensor, "*batch vocab"] | None = _symbols_of(
            model, symbols, vocab=self.vocab, bos=self.bos
        )
        copies = list(copy_heads) if isinstance(copy_heads, Iterable) else [] if copy_heads is None else [copy_heads]
        if self.lags_known and len(copies) != self.order:
            raise ValueError(
                f"copy_heads must list one (layer, head) or None for each lag 1..{self.order}, got {shown(copy_heads)}"
            )
        self.copy_heads: tuple[Copies, ...] = tuple(_copies_of(model, place) for place in copies)
        self.match_heads = _match_heads(model, () if match_heads is None else match_heads)

    @property
    def has_bos(self) -> bool:
        """Whether a BOS token stands before the tokens."""
        return self.bos is not None

    @property
    def has_sink(self) -> bool:
        """Whether key 0, BOS or the first token in its place, has the score kappa in the law."""
        return self.has_bos or self.first_as_bos

    @property
    def declared_bos(self) -> Bos:
        """The argument `bos` that makes this circuit."""
        return "first" if self.first_as_bos else self.bos

    @property
    def known_copy_heads(self) -> tuple[Head, ...]:
        """The copy heads that are known, each once."""
        return tuple(dict.fromkeys(head for copies in self.copy_heads for head in heads_in(copies)))

    @property
    def last_layer(self) -> int:
        """The last layer that the circuit uses."""
        return max(layer for layer, _ in (*self.known_copy_heads, *self.match_heads))

    @cached_property
    def layers_without_scores(self) -> frozenset[int]:
        """The layers whose `hook_attn_scores` shows the pattern, as TransformerLens' native bridges do."""
        model, seen = self.model, dict[str, torch.Tensor]()
        if "blocks.0.hook_out" not in model.hook_dict:  # no bridge
            return frozenset()

        def keep(shown: torch.Tensor, hook: Any) -> None:
            seen[hook.name] = shown

        pairs = {
            layer: [f"blocks.{layer}.attn.{name}" for name in ("hook_attn_scores", "hook_pattern")]
            for layer in range(len(model.blocks))
        }
        with torch.no_grad():
            ids = torch.zeros(1, 2, dtype=torch.int64, device=self.device)
            names = [name for pair in pairs.values() for name in pair if name in model.hook_dict]
            model.run_with_hooks(ids, prepend_bos=False, fwd_hooks=[(name, keep) for name in names])
        return frozenset(
            layer
            for layer, (scores, pattern) in pairs.items()
            if scores in seen and pattern in seen and torch.equal(seen[scores], seen[pattern])
        )

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
        """The same circuit with these `heads` (layer, head) as its only match heads."""
        other = Circuit.__new__(Circuit)  # of a circuit that was found, the reasons belong to the heads found
        other.__dict__.update(self.__dict__)
        other.match_heads = _match_heads(self.model, heads)
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
        """The `tokens` as a tensor, or a ValueError that says why this model cannot read them."""
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

        Where the `tokens` are a part of a batch, `rows` is the slice of that part.
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
        """The columns of the symbols in a model's `logits`, on the CPU; `rows` as for `ids`."""
        if self.symbols is None:
            return logits[..., : self.vocab].detach().cpu()
        symbols = self.symbols.to(logits.device)
        if symbols.ndim == 1:
            return logits[..., symbols].detach().cpu()
        own = symbols[rows] if logits.ndim == 2 else symbols[rows][:, None].expand(-1, logits.shape[1], -1)
        return logits.gather(-1, own).detach().cpu()

    def __repr__(self) -> str:
        matches = ", ".join(map(head_name, self.match_heads)) or "not known"
        bos = "the first token as BOS" if self.first_as_bos else "no BOS" if self.bos is None else f"BOS id {self.bos}"
        copies = ", ".join(map(head_name, self.known_copy_heads)) + " (lags to be measured)"
        if self.lags_known or not self.copy_heads:
            lags = [f"lag {lag}: {head_name(place)}" for lag, place in enumerate(self.copy_heads, start=1)]
            copies = ", ".join(lags) or "not known"
        return (
            f"Circuit of order {self.order} over {self.vocab} symbols, {bos}\n"
            f"  copy heads   {copies}\n"
            f"  match heads  {matches}"
        )


def as_circuit(model: Model) -> Circuit:
    """The circuit itself, or that of a model which says where its circuit sits."""
    if isinstance(model, Circuit):
        return model
    if isinstance(model, InductionTransformer):
        return Circuit(model)
    kind = type(model).__name__
    if not hasattr(model, "run_with_hooks"):
        hint = f": ip.load({model!r}) reads a checkpoint" if isinstance(model, str) else ""
        hint = ": the model comes first, then the tokens" if hasattr(model, "ndim") else hint
        raise ValueError(f"expected a HookedTransformer or a Circuit, got {kind}{hint}")
    raise ValueError(
        f"this {kind} does not say where its circuit sits: give "
        "ip.Circuit(model, order=..., match_heads=((layer, head), ...), ...)"
    )


def heads_of(model: Any, layer: int) -> int:
    """How many attention heads a layer has."""
    own = getattr(model.blocks[layer].attn, "cfg", None)  # TransformerLens' bridge keeps one config for all layers
    return int((model.cfg if own is None else own).n_heads)


def all_heads(model: Any, layer: int) -> tuple[Head, ...]:
    """Every head of a layer."""
    return tuple((layer, head) for head in range(heads_of(model, layer)))


def heads_in(copies: Copies) -> tuple[Head, ...]:
    """The heads that copy one lag, as a tuple also where they are none or one.

    >>> heads_in(None), heads_in((0, 1)), heads_in(((0, 1), (2, 0)))
    ((), ((0, 1),), ((0, 1), (2, 0)))
    """
    if copies is None:
        return ()
    first, *others = copies
    return ((first, *others),) if isinstance(first, int) else (first, *others)


def one_or_all(heads: Sequence[Head]) -> Copies:
    """The heads of one lag as `copy_heads` has them: None, the one head, or a tuple of several."""
    return tuple(heads) if len(heads) > 1 else heads[0] if heads else None


def head_name(copies: Copies) -> str:
    """layer.head, as the field writes it; several heads with "and" between them."""
    return " and ".join(f"{layer}.{head}" for layer, head in heads_in(copies)) or "not known"


def checked_head(model: Any, place: Any, *, name: str) -> Head:
    """A (layer, head) that the model has, and whose attention can be read."""
    pair = np.asarray(place)
    if pair.shape != (2,) or not np.issubdtype(pair.dtype, np.integer):
        raise ValueError(f"{name} must list (layer, head) pairs, such as ((2, 1),), got {shown(place)} for one of them")
    layer, head = pair.tolist()
    if not 0 <= layer < len(model.blocks):
        raise ValueError(f"{name}: layer {layer}, but the model has layers 0..{len(model.blocks) - 1}")
    if not 0 <= head < heads_of(model, layer):
        raise ValueError(f"{name}: head {head}, but layer {layer} has heads 0..{heads_of(model, layer) - 1}")
    # TransformerLens' bridge ignores the name of a hook that it does not have: nothing would be read.
    if f"blocks.{layer}.attn.hook_pattern" not in model.hook_dict:
        raise ValueError(f"{name}: layer {layer} shows no attention pattern (it has no hook_pattern)")
    return layer, head


def _copies_of(model: Any, place: Any) -> Copies:
    """The head or heads of one lag as they were given, checked."""
    if place is None:
        return None
    if isinstance(place, Sequence) and place and isinstance(place[0], Sequence):
        heads = tuple(checked_head(model, one, name="copy_heads") for one in place)
        return heads if len(heads) > 1 else heads[0]
    return checked_head(model, place, name="copy_heads")


def _match_heads(model: Any, places: Any) -> tuple[Head, ...]:
    places = places if isinstance(places, Iterable) else [places]
    heads = tuple(checked_head(model, place, name="match_heads") for place in places)
    if len(set(heads)) < len(heads):
        raise ValueError(f"match_heads names a head twice: {shown(list(heads))}")
    return heads


def _agree(model: InductionTransformer, *, order: Any, vocab: Any, bos: Any, symbols: Any) -> None:
    """Refuse what contradicts the model's own config."""
    config = model.config
    for name, asked, real in (("order", order, config.order), ("vocab", vocab, config.vocab)):
        if asked is not None and asked != real:
            raise ValueError(f"{name}={asked}, but the model has {name} {real}")
    asked = bos is True or (bos is not False and bos == config.vocab)
    if bos == "first" or (bos is not None and asked != config.bos):
        raise ValueError(f"bos={bos!r}, but the model {'has a BOS token' if config.bos else 'has no BOS token'}")
    if symbols is not None:
        raise ValueError("symbols are for a model with a larger vocabulary; a model of this suite has its own symbols")


def _vocab_of(model: Any, vocab: Any, symbols: Any) -> int:
    if vocab is None:
        return int(model.cfg.d_vocab_out) if symbols is None else (np.shape(symbols) or (0,))[-1]
    size = check_vocab(vocab)
    if symbols is None and size > model.cfg.d_vocab:
        raise ValueError(f"vocab={size}, but the model's input vocabulary has {model.cfg.d_vocab} symbols")
    return size


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
    if ids.min() < 0 or ids.max() >= room:
        raise ValueError(f"symbol ids {ids.min()} to {ids.max()} are not all in the model's vocabulary 0..{room - 1}")
    if bos is not None and (ids == bos).any():
        raise ValueError(f"symbol id {bos} is the id of BOS")
    return torch.from_numpy(ids.astype(np.int64))
