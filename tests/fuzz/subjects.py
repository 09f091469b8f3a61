"""Tiny models with ordinary, extreme and damaged weights, circuits at odd places in them, and tokens of every kind.

A case holds descriptions, so that a finding can be read; `build_model`, `build_circuit` and `build_tokens` make things
of them. A model takes two milliseconds, so none is kept between cases.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from transformer_lens import HookedTransformer, HookedTransformerConfig

import interp as ip
from tests.fuzz.values import mostly, numbers, one_in
from tests.planted import without_mechanism
from tests.planted_heads import Plant, plant

DAMAGES = ("zero", "constant", "nan", "inf", "-inf", "huge", "tiny", "rounded", "all nan", "steep")
KINDS_OF_TOKENS = (
    "list",
    "tensor",
    "int8",
    "uint64",
    "int32 tensor",
    "negative",
    "too large",
    "float",
    "nan",
    "bool",
    "text",
    "one sequence",
    "three axes",
    "empty batch",
    "empty length",
    "length 1",
    "length 2",
    "short",
    "too long",
    "transposed",
    "masked",
    "ragged",
    "none",
    "number",
    "nothing",
    "constant",
    "gradient",
    "one row",
    "two rows",
    "same rows",
)


@dataclass(frozen=True)
class ModelCase:
    """A model: what it is, its sizes, and what was done to its weights."""

    kind: str
    order: int
    vocab: int
    length: int
    bos: bool
    beta: tuple[float, ...]
    kappa: float
    scale: float
    dtype: str
    seed: int
    damage: str


@dataclass(frozen=True)
class TokensCase:
    """Tokens: how many sequences, and what is odd about them."""

    batch: int
    seed: int
    kind: str


@dataclass(frozen=True)
class CircuitCase:
    """A model with the place of its circuit; `odd` are arguments in place of the right ones."""

    model: ModelCase
    odd: dict[str, Any] = field(default_factory=dict)


def models(*kinds: str) -> st.SearchStrategy[ModelCase]:
    """Models of these kinds, or of any."""
    strength = st.one_of(st.floats(0, 4), st.sampled_from([0.0, -3.0, 60.0, 800.0, 1e6, -1e6]))
    return st.builds(
        ModelCase,
        kind=st.sampled_from(kinds or ("construction", "disentangled", "standard", "planted", "plain")),
        order=st.integers(1, 2),
        vocab=st.integers(2, 4),
        length=st.integers(5, 10),
        bos=st.booleans(),
        beta=st.tuples(strength, strength),
        kappa=strength,
        scale=st.sampled_from([0.0, 1e-3, 0.3, 0.3, 1.0, 1.0, 10.0, 1e4]),
        dtype=st.sampled_from(["float64", "float64", "float32"]),
        seed=st.integers(0, 99),
        damage=one_in(4).flatmap(lambda odd: st.sampled_from(DAMAGES) if odd else st.just("")),
    )


def tokens() -> st.SearchStrategy[TokensCase]:
    """Good tokens, with one exception in six."""
    return st.builds(
        TokensCase,
        batch=st.sampled_from([24, 24, 24, 12, 10, 11, 40]),
        seed=st.integers(0, 2**16),
        kind=one_in(6).flatmap(lambda odd: st.sampled_from(KINDS_OF_TOKENS) if odd else st.just("")),
    )


HEADS: st.SearchStrategy[Any] = st.one_of(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), max_size=3),
    st.sampled_from(
        [
            ((1, 0),),
            ((1, 0), (1, 1)),
            ((1, 0), (1, 0)),
            ((0, 0),),
            (None, None),
            ((0, 0), None),
            ((9, 9),),
            ((-1, 0),),
            ((1, -1),),
            ((1,),),
            (1, 0),
            ((1, 0, 0),),
            "10",
            (),
            {},
            [[1, 0]],
            np.array([[1, 0]]),
            np.array([[0, 0], [0, 1]]),
            torch.tensor([[1, 0]]),
            ((1.0, 0.0),),
            ((True, False),),
            3,
            (("1", "0"),),
        ]
    ),
)
IDS: st.SearchStrategy[Any] = st.sampled_from(
    [
        None,
        (0, 1, 2),
        (2, 1, 0),
        (0, 0, 1),
        (0, 1),
        (0, 1, 99),
        (-1, 0, 1),
        (),
        "012",
        [[0, 1, 2]],
        [[0, 1, 2]] * 24,
        [[0, 1], [0]],
        np.array([0, 1, 2], dtype=np.int8),
        torch.tensor([0.0, 1.0, 2.0]),
        torch.tensor([2, 0, 1]),
        np.zeros((0, 3), dtype=int),
        {0, 1, 2},
        3,
        [10**30, 1, 2],
        [None, 1, 2],
        torch.arange(100),
    ]
)
BOS: st.SearchStrategy[Any] = st.one_of(numbers(), st.sampled_from(["first", "last", 0, 3, 4, True, False, None]))
ODD_PLACE = {
    "order": mostly(st.integers(1, 3)),
    "vocab": st.one_of(numbers(), st.integers(1, 6)),
    "bos": BOS,
    "symbols": IDS,
    "copy_heads": HEADS,
    "match_heads": HEADS,
}


def odd_places() -> st.SearchStrategy[dict[str, Any]]:
    """Nothing odd five times in six, else one or two of the arguments that place a circuit."""
    some = st.fixed_dictionaries({}, optional=ODD_PLACE).map(lambda odd: dict(list(odd.items())[:2]))
    return one_in(6).flatmap(lambda odd: some if odd else st.just({}))


def circuits(*kinds: str) -> st.SearchStrategy[CircuitCase]:
    """Models with the place of their circuit."""
    return st.builds(CircuitCase, models(*kinds), odd_places())


@torch.no_grad()
def build_model(case: ModelCase) -> Any:
    """The model."""
    kappa = case.kappa if case.bos else None
    sizes = {"order": case.order, "vocab": case.vocab, "length": case.length}
    beta = case.beta[: case.order]
    if case.kind == "construction":
        model: Any = ip.construct(**sizes, beta=beta, kappa=kappa, dtype=case.dtype)
    elif case.kind in ("disentangled", "standard"):
        widths = {"d_model": 4, "d_mlp": 4, "readout": "logit"} if case.kind == "standard" else {}
        model = without_mechanism(
            seed=case.seed, scale=case.scale, family=case.kind, **sizes, bos=case.bos, dtype=case.dtype, **widths
        )
    elif case.kind == "planted":
        model = plant(_planted(case), noise=min(case.scale, 1.0) / 10, seed=case.seed)
    else:
        model = _plain(case)
    _damage(model, case)
    return model


def _planted(case: ModelCase) -> Plant:
    lags = range(1, case.order + 1)
    return Plant(
        order=case.order,
        copies={lag: ((0, lag - 1),) for lag in lags},
        matches={(1, 0): (case.beta[: case.order], case.kappa if case.bos else None)},
        layers=2,
        heads=2,
        vocab=case.vocab,
        length=case.length,
        bos=case.bos,
    )


def _plain(case: ModelCase) -> HookedTransformer:
    """A random transformer from elsewhere, with LayerNorm and an MLP."""
    config = HookedTransformerConfig(
        n_layers=2,
        n_heads=2,
        d_model=4,
        d_head=2,
        d_mlp=4,
        act_fn="relu",
        n_ctx=case.length + case.bos,
        d_vocab=case.vocab + 2,
        d_vocab_out=case.vocab + 2,
        normalization_type="LN" if case.seed % 2 else None,
        init_weights=False,
        default_prepend_bos=False,
        dtype=getattr(torch, case.dtype),
        device="cpu",
    )
    model = HookedTransformer(config)
    generator = torch.Generator().manual_seed(case.seed)
    for parameter in model.parameters():
        parameter.copy_(case.scale * torch.randn(parameter.shape, generator=generator))
    return model


def _damage(model: Any, case: ModelCase) -> None:
    generator = np.random.default_rng(case.seed)
    weights = [one for one in model.parameters() if one.numel()]
    one = weights[int(generator.integers(len(weights)))]
    place = int(generator.integers(one.numel()))
    if case.damage in ("nan", "inf", "-inf"):
        one.view(-1)[place] = float(case.damage)
    elif case.damage == "steep":
        one.view(-1)[place] = 1e30
    for weight in weights:
        if case.damage == "zero":
            weight.zero_()
        elif case.damage == "constant":
            weight.fill_(1.0)
        elif case.damage == "huge":
            weight.mul_(1e20)
        elif case.damage == "tiny":
            weight.mul_(1e-30)
        elif case.damage == "rounded":
            weight.round_()
        elif case.damage == "all nan":
            weight.fill_(torch.nan)


def place_of(case: ModelCase) -> dict[str, Any]:
    """What `Circuit` has to know of the model, of a planted one also where its heads are; nothing for our own."""
    if case.kind == "planted":
        copies = tuple((0, lag) for lag in range(case.order))
        return {**_planted(case).task, "copy_heads": copies, "match_heads": ((1, 0),)}
    if case.kind == "plain":
        copies = ((0, 0), (0, 1))[: case.order]
        bos = case.vocab if case.bos else "first" if case.seed % 3 == 0 else None
        matches = ((1, 0), (1, 1)) if case.seed % 5 == 0 else ((1, 0),)
        return {"order": case.order, "vocab": case.vocab, "bos": bos, "copy_heads": copies, "match_heads": matches}
    return {}


def build_circuit(case: CircuitCase, model: Any) -> Any:
    """The circuit, or a model of this suite itself where nothing has to be said about it."""
    place = {**place_of(case.model), **case.odd}
    return ip.Circuit(model, **place) if place else model


def build_tokens(case: TokensCase, *, vocab: int, length: int) -> Any:
    """The tokens."""
    generator = np.random.default_rng(case.seed)
    array = generator.integers(0, vocab, (case.batch, length))
    changes: dict[str, Any] = {
        "list": array.tolist,
        "tensor": lambda: torch.from_numpy(array),
        "int8": lambda: array.astype(np.int8),
        "uint64": lambda: array.astype(np.uint64),
        "int32 tensor": lambda: torch.from_numpy(array).int(),
        "negative": lambda: array - 1,
        "too large": lambda: array * 100,
        "float": lambda: array.astype(float),
        "nan": lambda: np.where(array == 0, np.nan, array),
        "bool": lambda: array.astype(bool),
        "text": lambda: array.astype(str),
        "one sequence": lambda: array[0],
        "three axes": lambda: array[None],
        "empty batch": lambda: array[:0],
        "empty length": lambda: array[:, :0],
        "length 1": lambda: array[:, :1],
        "length 2": lambda: array[:, :2],
        "short": lambda: array[:, : length // 2],
        "too long": lambda: np.concatenate([array, array], axis=1),
        "transposed": lambda: array.T,
        "masked": lambda: np.ma.masked_array(array, mask=array == 0),
        "ragged": lambda: [row[: 1 + place % length] for place, row in enumerate(array.tolist())],
        "none": lambda: [[None] * length] * case.batch,
        "number": lambda: 3,
        "nothing": lambda: None,
        "constant": lambda: array * 0,
        "gradient": lambda: torch.from_numpy(array.astype(float)).requires_grad_(),
        "one row": lambda: array[:1],
        "two rows": lambda: array[:2],
        "same rows": lambda: np.repeat(array[:1], case.batch, axis=0),
    }
    return array if not case.kind else changes[case.kind]()
