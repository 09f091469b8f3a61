"""Tiny models and circuits at odd places through every instrument that takes a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

import interp as ip
from tests.fuzz.captures import QUERIES, SHARE, SWITCH, looked_at
from tests.fuzz.found import fingerprint
from tests.fuzz.room import Finding, Sandbox, run_call
from tests.fuzz.subjects import (
    ODD_PLACE,
    CircuitCase,
    TokensCase,
    build_circuit,
    build_model,
    build_tokens,
    circuits,
    place_of,
    tokens,
)
from tests.fuzz.values import mostly, numbers, one_in

SEED = mostly(st.integers(0, 3))
FEW = mostly(st.integers(1, 3))
FLOOR = mostly(st.sampled_from([1e-6, 1e-3]))
BETA = st.one_of(
    st.lists(mostly(st.floats(-5, 5)), min_size=1, max_size=3),
    numbers(),
    st.sampled_from([np.array([1.0, 2.0]), np.zeros(0), np.full(2, np.nan), torch.tensor([1.0]), (1e308, 1e308)]),
)
KAPPA = mostly(st.one_of(st.none(), st.floats(-5, 5)))
PAIRS = st.one_of(
    st.sampled_from([None, np.zeros((2, 2)), np.eye(3), np.full((3, 3), np.nan), [[1.0, 2.0], [3.0]], np.eye(2)]),
    numbers(),
)
LAWS = (
    "right",
    "none",
    "nan",
    "negative",
    "unnormalised",
    "other batch",
    "other vocab",
    "list",
    "text",
    "bool",
    "zero",
)
BY_MASK = st.one_of(
    st.sampled_from(["fitted", "fitted", "observed", "other", None, {0: 0.0}, {0: 0.0, 1: 2.0}, {"x": 1}, {1: np.nan}]),
    st.sampled_from([np.zeros(2), np.arange(4.0), np.full(4, np.nan), [0.0, 1.0], np.zeros((2, 2)), np.zeros(99)]),
    numbers(),
)
TASK = {name: ODD_PLACE[name] for name in ("order", "vocab", "bos", "symbols")}


@dataclass(frozen=True)
class Case:
    """An instrument and its options, the circuit and the tokens that it is given, and the kind of next law."""

    instrument: str
    circuit: CircuitCase
    tokens: TokensCase
    law: str
    options: dict[str, Any]
    drawn: bool


# name -> (function, its options, whether it takes a next law)
INSTRUMENTS: dict[str, tuple[Callable[..., Any], dict[str, st.SearchStrategy[Any]], bool]] = {
    "predict": (ip.predict, {"every_position": SWITCH}, False),
    "identity_blocks": (
        ip.identity_blocks,
        {
            "routes": st.sampled_from([None, (), ("weights",), ("scores",), ("other",), "weights", 3, ("scores", 3)]),
            "query": QUERIES,
            "draws": mostly(st.just(19)),
            "batch": mostly(st.integers(12, 24)),
            "seed": SEED,
        },
        False,
    ),
    "label_symmetry": (
        ip.label_symmetry,
        {"draws": FEW, "seed": SEED, "floor": FLOOR, "other_models": st.sampled_from([(), [], (3,), None, "x"])},
        False,
    ),
    "scan_heads": (
        ip.scan_heads,
        {
            "query": QUERIES,
            "copy_lags": mostly(st.integers(1, 4)),
            "copies": SHARE,
            "explains": SHARE,
            "min_explained": SHARE,
        },
        False,
    ),
    "scan_heads of a model": (ip.scan_heads, {**TASK, "query": QUERIES}, False),
    "find_circuit": (ip.find_circuit, {"query": QUERIES, "seed": SEED, "scan": st.one_of(st.none(), numbers())}, False),
    "replace_heads": (
        ip.replace_heads,
        {
            "by_mask": BY_MASK,
            "kappa": KAPPA,
            "each": SWITCH,
            "draws": FEW,
            "seed": SEED,
            "queries": QUERIES,
            "other_laws": st.sampled_from([None, {}, {"x": (None, None)}, {"x": 3}, {3: (np.zeros(4), 1.0)}, "x"]),
        },
        False,
    ),
    "copying_scores": (ip.copying_scores, {"draws": FEW, "seed": SEED}, False),
    "nearest_estimator": (ip.nearest_estimator, {"beta": BETA, "kappa": KAPPA, "floor": FLOOR}, False),
    "law_by_layer": (ip.law_by_layer, {"floor": FLOOR}, True),
    "causal_tests": (
        ip.causal_tests,
        {
            "beta": BETA,
            "kappa": KAPPA,
            "pairs": PAIRS,
            "pairs_kappa": KAPPA,
            "seed": SEED,
            "floor": FLOOR,
            "only_laws": SWITCH,
        },
        True,
    ),
    "direct_path": (ip.direct_path, {"floor": FLOOR}, True),
    "smoothing_source": (ip.smoothing_source, {"floor": FLOOR}, True),
    "vote_weight": (
        ip.vote_weight,
        {"floor": FLOOR, "seed": SEED, "alpha": mostly(st.sampled_from([None, 1.0]))},
        True,
    ),
}
REQUIRED: dict[str, dict[str, Any]] = {
    "replace_heads": {"queries": "trained", "draws": 1},
    "identity_blocks": {"draws": 19},
    "label_symmetry": {"draws": 2},
    "copying_scores": {"draws": 1},
}


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A case."""
    name = draw(st.sampled_from(sorted(INSTRUMENTS)))
    circuit = draw(circuits())
    _, options, _ = INSTRUMENTS[name]
    required = dict(REQUIRED.get(name, {}))
    if name == "causal_tests":
        kappa = 1.0 if circuit.model.bos else None
        required = {"beta": circuit.model.beta[: circuit.model.order], "kappa": kappa}
    odd = draw(st.fixed_dictionaries({}, optional=options)) if draw(st.booleans()) else {}
    return Case(
        instrument=name,
        circuit=circuit,
        tokens=draw(tokens()),
        law=draw(st.sampled_from(LAWS)) if draw(one_in(5)) else "right",
        options={**required, **odd},
        drawn=draw(one_in(100)),
    )


def law_of(kind: str, *, rows: int, vocab: int) -> Any:
    """The next law, right in its shape or odd."""
    law = torch.from_numpy(np.random.default_rng(rows).dirichlet(np.ones(vocab), size=rows)).reshape(rows, vocab)
    return {
        "right": law,
        "none": None,
        "nan": law * torch.nan,
        "negative": -law,
        "unnormalised": law * 3,
        "other batch": law[: rows // 2],
        "other vocab": law[:, :1],
        "list": law.tolist(),
        "text": "law",
        "bool": law > 0.5,
        "zero": law * 0,
    }[kind]


def run(case: Case, sandbox: Sandbox) -> str:
    """Build the model and its circuit and give them to the instrument."""
    own = case.circuit.model
    given = build_tokens(case.tokens, vocab=own.vocab, length=own.length)
    function, _, with_law = INSTRUMENTS[case.instrument]
    options = dict(case.options)
    if with_law:
        rows = len(given) if hasattr(given, "__len__") else 3
        options["next_law"] = law_of(case.law, rows=rows, vocab=own.vocab)
    before = fingerprint((given, options))

    def ask() -> Any:
        model = build_model(own)
        weights = fingerprint(model)
        if case.instrument == "scan_heads of a model":
            task = {name: value for name, value in place_of(own).items() if name in TASK}
            found = function(model, given, **{**task, **options})
        else:
            found = function(build_circuit(case.circuit, model), given, **options)
        if fingerprint(model) != weights:
            raise Finding(f"{case.instrument} changed the model in place")
        return found

    ended = run_call(ask, lambda found: looked_at(found, drawn=case.drawn))
    if fingerprint((given, options)) != before:
        raise Finding(f"{case.instrument} changed an input in place")
    return f"{case.instrument}: {ended}"
