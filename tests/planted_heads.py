"""Models from elsewhere with heads planted where a test wants them, and heads that only look like it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from interp.lens import HookedTransformer, HookedTransformerConfig

Head = tuple[int, int]

SHARP = 40.0
ROTARY = 16  # dimensions of a head that rotate
ROTARY_SHARP = 40.0


@dataclass(frozen=True, kw_only=True)
class Plant:
    """What is in the model, and where.

    copies     lag: the heads that copy it
    matches    head: (beta, kappa); without BOS kappa is None, or the score of the first token, which stands in for it
    decoys     head: "recency" (attends to near keys), "first" (to the first token), "own" (to its own token elsewhere),
               "self" (to itself) or "wrong" (compares x_t with x_{s-w}, where lag w is copied, too)
    leaks      copy head: another lag, and the share of its attention there
    wrong      the lag w
    rotary     positions by rotation instead of one-hot vectors; then no head can be shut out of early keys
    kv_heads   keys and values shared by groups of heads
    room       positions of the context beyond BOS and the tokens
    gain       of the logits over the mean votes
    """

    order: int
    copies: Mapping[int, tuple[Head, ...]]
    matches: Mapping[Head, tuple[tuple[float, ...], float | None]]
    decoys: Mapping[Head, str] = field(default_factory=dict)
    leaks: Mapping[Head, tuple[int, float]] = field(default_factory=dict)
    wrong: int = 0
    layers: int = 3
    heads: int = 4
    vocab: int = 5
    length: int = 40
    bos: bool = True
    rotary: bool = False
    kv_heads: int | None = None
    names: tuple[int, ...] | None = None
    room: int = 1
    gain: float = 8.0

    @property
    def task(self) -> dict[str, Any]:
        """What the model cannot say itself."""
        bos: Any = (2 if self.names is not None else 1) * self.vocab if self.bos else None
        if not self.bos and any(kappa is not None for _, kappa in self.matches.values()):
            bos = "first"
        return {"order": self.order, "vocab": self.vocab, "bos": bos, "symbols": self.names}


@torch.no_grad()
def plant(spec: Plant, *, noise: float = 0.0, seed: int = 0) -> HookedTransformer:
    """The model. The stream holds blocks of |V|: the token, its copies, the votes; then "is BOS", 1, and positions."""
    vocab, keys, double = spec.vocab, spec.length + spec.bos, torch.float64
    lags = sorted(spec.copies)
    blocks = {name: slice(place * vocab, (place + 1) * vocab) for place, name in enumerate(["token", *lags, "votes"])}
    is_bos, one = len(blocks) * vocab, len(blocks) * vocab + 1
    places = slice(one + 1, one + 1 + (0 if spec.rotary else keys))
    width = places.stop
    larger = vocab * (1 if spec.names is None else 2)
    content = ROTARY if spec.rotary else 0  # dimensions of a head before this one rotate
    config = HookedTransformerConfig(
        n_layers=spec.layers,
        n_heads=spec.heads,
        d_model=width,
        d_head=content + max(width, (max(lags) + 1) * vocab + 2),
        n_ctx=keys + spec.room,
        d_vocab=larger + spec.bos,
        d_vocab_out=larger,
        attn_only=True,
        normalization_type=None,
        use_attn_scale=False,
        positional_embedding_type="rotary" if spec.rotary else "standard",
        rotary_dim=ROTARY if spec.rotary else None,
        n_key_value_heads=spec.kv_heads,
        init_weights=False,
        default_prepend_bos=False,
        dtype=double,
        device="cpu",
    )
    model = HookedTransformer(config)
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.copy_(noise * torch.randn(parameter.shape, generator=generator, dtype=double))
    ids = list(range(vocab)) if spec.names is None else list(spec.names)
    eye = torch.eye(vocab, dtype=double)
    model.embed.W_E.zero_()
    model.embed.W_E[ids, blocks["token"]] = eye
    model.embed.W_E[ids, one] = 1.0
    if spec.bos:
        model.embed.W_E[larger, is_bos] = model.embed.W_E[larger, one] = 1.0
    if not spec.rotary:
        model.pos_embed.W_pos.zero_()
        model.pos_embed.W_pos[:keys, places] = torch.eye(keys, dtype=double)
    model.unembed.W_U.zero_()
    model.unembed.W_U[blocks["votes"], ids] = spec.gain * eye
    model.unembed.b_U.zero_()
    for head in [*(at for heads in spec.copies.values() for at in heads), *spec.matches, *spec.decoys]:
        _Attention(model, head, spec).clear()
    for lag, heads in spec.copies.items():
        for head in heads:
            attn = _Attention(model, head, spec)
            attn.by_distance(lag, places, leak=spec.leaks.get(head))
            attn.value(blocks["token"], blocks[lag], eye / len(heads))
    for head, (beta, kappa) in spec.matches.items():
        attn = _Attention(model, head, spec)
        for lag in range(1, spec.order + 1):
            own = blocks["token"] if lag == 1 else blocks[lag - 1]
            attn.compare(own, blocks[lag], beta[lag - 1] * eye, at=content + (lag - 1) * vocab)
        spare = content + (max(lags) + 1) * vocab
        attn.W_Q[one, spare] = 1.0
        if kappa is not None and spec.bos:
            attn.W_K[is_bos, spare] = kappa
        if not spec.rotary:  # keys without a full context are shut out
            attn.W_K[places.start + spec.bos : places.start + spec.bos + spec.order, spare] = -SHARP
        if kappa is not None and not spec.bos:
            attn.W_K[places.start, spare] = kappa
        attn.value(blocks["token"], blocks["votes"], eye / len(spec.matches))
        attn.value_row(is_bos, blocks["votes"], torch.full((vocab,), 1 / vocab / len(spec.matches), dtype=double))
    for head, kind in spec.decoys.items():
        attn = _Attention(model, head, spec)
        if kind == "recency":
            attn.recency(places)
        elif kind == "self":
            attn.by_distance(0, places)
        elif kind == "first":
            attn.W_Q[one, content], attn.W_K[places.start + spec.bos, content] = 1.0, 6.0
        elif kind == "own":
            attn.compare(blocks["token"], blocks["token"], 4.0 * eye, at=content)
        else:
            attn.compare(blocks["token"], blocks[spec.wrong], 4.0 * eye, at=content)
    return model


class _Attention:
    """One head's weights, whichever way its layer keeps them."""

    def __init__(self, model: HookedTransformer, head: Head, spec: Plant) -> None:
        attn = model.blocks[head[0]].attn
        self.W_Q, self.b_Q, self.W_O = attn.W_Q[head[1]], attn.b_Q[head[1]], attn.W_O[head[1]]
        if spec.kv_heads is None:
            self.W_K, self.W_V, self.b_K = attn.W_K[head[1]], attn.W_V[head[1]], attn.b_K[head[1]]
        else:
            group = head[1] // (spec.heads // spec.kv_heads)
            self.W_K, self.W_V, self.b_K = attn._W_K[group], attn._W_V[group], attn._b_K[group]
        self.spec, self.model, self.layer = spec, model, head[0]

    def clear(self) -> None:
        for weight in (self.W_Q, self.b_Q, self.W_O, self.W_K, self.W_V, self.b_K):
            weight.zero_()

    def compare(self, query: slice, key: slice, weight: torch.Tensor, *, at: int) -> None:
        """Score the agreement of a block of the query with a block of the key."""
        self.W_Q[query, at : at + len(weight)] = weight
        self.W_K[key, at : at + len(weight)] = torch.eye(len(weight), dtype=weight.dtype)

    def value(self, source: slice, target: slice, weight: torch.Tensor) -> None:
        """Write a block of the key into another block of the query."""
        start = ROTARY if self.spec.rotary else 0
        self.W_V[source, start : start + len(weight)] = torch.eye(len(weight), dtype=weight.dtype)
        self.W_O[start : start + len(weight), target] = weight

    def value_row(self, source: int, target: slice, law: torch.Tensor) -> None:
        """What one number of the key's stream adds to the votes."""
        start = ROTARY if self.spec.rotary else 0
        self.W_V[source, start + len(law)] = 1.0
        self.W_O[start + len(law), target] = law

    def by_distance(self, lag: int, places: slice, *, leak: tuple[int, float] | None = None) -> None:
        """Attend to the key at one distance, and with a share of the attention to that at another."""
        if not self.spec.rotary:
            keys = places.stop - places.start
            shift = torch.diag(torch.ones(keys - lag, dtype=self.W_Q.dtype), diagonal=-lag)
            self.W_Q[places, :keys] = SHARP * shift
            if leak:
                far, share = leak
                near = torch.ones(keys - far, dtype=self.W_Q.dtype) * (SHARP + math.log(share / (1 - share)))
                self.W_Q[places, :keys] += torch.diag(near, diagonal=-far)
            self.W_K[places, :keys] = torch.eye(keys, dtype=self.W_Q.dtype)
            return
        # All frequencies are in phase at this distance: a query turned forward by `lag` meets the key there.
        attn = self.model.blocks[self.layer].attn
        key = torch.zeros(1, 1, 1, self.W_Q.shape[1], dtype=self.W_Q.dtype)
        key[..., : ROTARY // 2] = 1.0
        turned = attn.apply_rotary(key.expand(1, lag + 1, 1, -1))[0, lag, 0]
        back = turned.clone()
        back[ROTARY // 2 : ROTARY] *= -1
        self.b_K[:ROTARY], self.b_Q[:ROTARY] = key[0, 0, 0, :ROTARY], ROTARY_SHARP * back[:ROTARY]

    def recency(self, places: slice) -> None:
        """Attend to near keys."""
        if self.spec.rotary:
            self.by_distance(0, places)
            self.b_Q[:ROTARY] *= 3.0 / ROTARY_SHARP
            return
        keys = places.stop - places.start
        distance = torch.arange(keys)[:, None] - torch.arange(keys)
        self.W_Q[places, :keys] = -0.1 * distance.double()
        self.W_K[places, :keys] = torch.eye(keys, dtype=self.W_Q.dtype)


def random_transformer(seed: int, *, scale: float = 1.0, rotary: bool = False, **config: Any) -> HookedTransformer:
    """TransformerLens' own start, its weights times `scale`; the global generator is left as it was."""
    shape = {"n_layers": 2, "n_heads": 4, "d_model": 24, "d_head": 6, "d_mlp": 48, "n_ctx": 40, "d_vocab": 6}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = HookedTransformer(
            HookedTransformerConfig(
                **{**shape, **config},
                act_fn="gelu",
                normalization_type="LN",
                positional_embedding_type="rotary" if rotary else "standard",
                rotary_dim=6 if rotary else None,
                device="cpu",
                default_prepend_bos=False,
            )
        )
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.split(".")[-1].startswith(("W_Q", "W_K")):
                parameter.mul_(scale)
    return model


ORDER_2 = {(2, 0): ((2.4, 1.3), 1.0)}
PLANTS = {
    "one layer of copies": Plant(order=2, copies={1: ((0, 1),), 2: ((0, 2),)}, matches=ORDER_2),
    "copies in two layers": Plant(order=2, copies={1: ((0, 3),), 2: ((1, 2),)}, matches=ORDER_2),
    "two match heads": Plant(
        order=2, copies={1: ((0, 0),), 2: ((1, 1),)}, matches={(2, 1): ((2.4, 1.3), 1.0), (2, 3): ((1.5, 2.0), 0.0)}
    ),
    "match heads in two layers": Plant(
        order=1, copies={1: ((0, 2),)}, matches={(1, 1): ((2.5,), 1.0), (2, 2): ((3.5,), 0.5)}
    ),
    "four match heads, no BOS": Plant(
        order=1,
        copies={1: ((0, 2),)},
        matches={(1, head): ((2.0 + head / 2,), None) for head in range(4)},
        layers=2,
        bos=False,
    ),
    "decoys": Plant(
        order=2,
        copies={1: ((0, 1),), 2: ((0, 2),), 3: ((1, 3),)},
        wrong=3,
        matches={(2, 2): ((2.4, 1.3), 1.0)},
        decoys={(0, 0): "recency", (1, 0): "first", (1, 1): "own", (2, 3): "wrong"},
    ),
    "every role": Plant(
        order=2,
        copies={1: ((0, 1), (0, 2)), 2: ((1, 3),)},
        matches={(2, 0): ((2.4, 1.3), 1.0), (2, 2): ((1.2, 0.8), 0.5)},
        decoys={(0, 0): "recency", (0, 3): "self", (1, 0): "own", (1, 1): "first"},
    ),
    "grouped keys": Plant(
        order=1,
        copies={1: ((0, 1),)},
        matches={(1, 2): ((2.5,), 1.0), (1, 3): ((2.5,), 1.0)},
        layers=2,
        kv_heads=2,
    ),
    "rotary": Plant(
        order=2, copies={1: ((0, 1),), 2: ((1, 2),)}, matches=ORDER_2, decoys={(0, 3): "self"}, rotary=True
    ),
    "rotary, no BOS": Plant(
        order=1, copies={1: ((0, 0),)}, matches={(1, 1): ((3.0,), None)}, rotary=True, bos=False, layers=2
    ),
    "rotary, grouped keys": Plant(
        order=1,
        copies={1: ((0, 1),)},
        matches={(1, 2): ((2.5,), 1.0), (1, 3): ((2.5,), 1.0)},
        layers=2,
        kv_heads=2,
        rotary=True,
    ),
    "order 3, no BOS": Plant(
        order=3,
        vocab=3,
        copies={1: ((0, 0),), 2: ((0, 1),), 3: ((1, 3),)},
        matches={(2, 1): ((2.0, 1.5, 1.2), None)},
        bos=False,
    ),
    "the first token as BOS": Plant(
        order=2,
        copies={1: ((0, 1),), 2: ((1, 2),)},
        matches={(2, 0): ((2.4, 1.3), 2.5), (2, 2): ((2.0, 2.0), 0.5)},
        bos=False,
    ),
    "symbols of a larger vocabulary": Plant(
        order=1, copies={1: ((0, 1),)}, matches={(1, 1): ((2.5,), 1.0)}, layers=2, names=(7, 0, 3, 9, 4)
    ),
}


DECOY_ROLES = {"own": "duplicate", "self": "self", "first": "sink"}


def expected_heads(spec: Plant) -> dict[Head, str]:
    """The role of every head of the model."""
    roles = {(layer, head): "none" for layer in range(spec.layers) for head in range(spec.heads)}
    roles |= {at: "copy" for heads in spec.copies.values() for at in heads}
    roles |= {at: DECOY_ROLES.get(kind, "none") for at, kind in spec.decoys.items()}
    return roles | dict.fromkeys(spec.matches, "match")
