"""Captures of tiny models, as they are and with odd scores planted, through every instrument that reads a capture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from hypothesis import strategies as st

import interp as ip
from tests.fuzz.found import fingerprint, wrong_result
from tests.fuzz.room import Finding, Sandbox, run_call
from tests.fuzz.subjects import CircuitCase, TokensCase, build_circuit, build_model, build_tokens, circuits, tokens
from tests.fuzz.values import mostly, numbers, one_in

EDITS = (
    "-inf scores",
    "nan score",
    "inf score",
    "all -inf",
    "one key",
    "constant",
    "huge",
    "tiny",
    "float16",
    "bfloat16",
    "gradient",
    "zero attention",
    "nan attention",
    "negative attention",
    "half attention",
    "no copies",
    "no queries",
    "no heads",
    "other order",
    "other vocab",
    "other bos",
    "other tokens",
    "short tokens",
    "queries past the end",
    "zero copies",
    "nan copies",
    "negative copies",
)
QUERIES: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(["last", "last", "all", "trained", [0], [-1], [0, 3], [99], [], [0, 0], "other", [1.5], [True]]),
    numbers(),
)
SWITCH = mostly(st.booleans())
SHARE = mostly(st.floats(0, 1))


@dataclass(frozen=True)
class Case:
    """An instrument and its options, and the capture that it is given."""

    instrument: str
    circuit: CircuitCase
    tokens: TokensCase
    query: Any
    copies: Any
    edit: str
    seed: int
    options: dict[str, Any]
    drawn: bool


def fitted_mass(cap: Any, *, source: Any) -> Any:
    """The mass with a fit, which may be one that cannot be trusted."""
    return ip.overlap_mass(cap, ip.fit_scores(cap, source=source))


FIT = {"own": SWITCH, "position": SWITCH, "min_r2": SHARE, "min_sequences": mostly(st.integers(2, 12))}
LAW = st.sampled_from(["additive", "additive", "suffix", "free", "other", 3, None])
# name -> (function of a capture, its options, of which each is given in half of the cases)
INSTRUMENTS: dict[str, tuple[Callable[..., Any], dict[str, st.SearchStrategy[Any]]]] = {
    "fit_scores": (ip.fit_scores, {"source": st.sampled_from(["scores", "pattern", "other", None]), **FIT}),
    "fit_scores of attention": (
        ip.fit_scores,
        {"law": LAW, **FIT},
    ),
    "fit_score_pairs": (ip.fit_score_pairs, {name: FIT[name] for name in ("position", "min_r2", "min_sequences")}),
    "overlap_mass": (ip.overlap_mass, {"fit": st.one_of(st.none(), numbers())}),
    "overlap_mass of a fit": (fitted_mass, {"source": st.sampled_from(["scores", "attention", "pattern"])}),
    "copy_heads": (ip.copy_heads, {"copies": SHARE, "pure": SHARE, "some": SHARE}),
    "compare_laws": (ip.compare_laws, {"position": SWITCH, "own": SWITCH}),
    "match_head": (lambda cap, index=0: cap.match_head(index), {"index": mostly(st.integers(-1, 1))}),
    "mean_head": (
        lambda cap, weights=None: cap.mean_head(weights),
        {
            "weights": st.one_of(
                numbers(), st.lists(mostly(st.floats(0, 1)), max_size=3), st.sampled_from([[1.0], [0.0]])
            )
        },
    ),
    "plot": (
        lambda cap, **options: closed(cap.plot(**options)),
        {name: mostly(st.integers(-2, 2)) for name in ("sequence", "query", "head")},
    ),
}
REQUIRED = {"fit_scores of attention": {"source": "attention"}, "overlap_mass of a fit": {"source": "scores"}}
SLOW = ("plot",)  # 40 ms: once in ten of its turns


def closed(ax: Any) -> None:
    """Forget the figure."""
    import matplotlib.pyplot as plt

    plt.close(ax.figure)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A case."""
    name = draw(st.sampled_from(sorted(INSTRUMENTS)))
    if name in SLOW and not draw(one_in(10)):
        name = "fit_scores"
    return Case(
        instrument=name,
        circuit=draw(circuits()),
        tokens=draw(tokens()),
        query=draw(QUERIES) if draw(one_in(5)) else "last",
        copies=draw(SWITCH) if draw(one_in(10)) else True,
        edit=draw(st.sampled_from(EDITS)) if draw(st.booleans()) else "",
        seed=draw(st.integers(0, 99)),
        options={
            **REQUIRED.get(name, {}),
            **draw(st.fixed_dictionaries({}, optional=INSTRUMENTS[name][1])),
        },
        drawn=draw(one_in(100)),
    )


def edited(cap: Any, kind: str, seed: int) -> Any:
    """The capture with something odd in it; most edits of the scores are also seen in the attention."""
    generator = torch.Generator().manual_seed(seed)
    scores, pattern, copied = cap.match_scores.clone(), cap.match_pattern.clone(), cap.copy_pattern.clone()
    some = torch.rand(scores.shape, generator=generator) < 0.3
    one = torch.zeros(scores.shape, dtype=torch.bool)
    if one.numel():
        one.view(-1)[int(torch.randint(one.numel(), (), generator=generator))] = True
    of_scores = {
        "-inf scores": lambda: scores.masked_fill(some, -torch.inf),
        "nan score": lambda: scores.masked_fill(one, torch.nan),
        "inf score": lambda: scores.masked_fill(one, torch.inf),
        "all -inf": lambda: torch.full_like(scores, -torch.inf),
        "one key": lambda: torch.full_like(scores, -torch.inf).index_fill(-1, torch.tensor([0]), 0.0),
        "constant": lambda: torch.zeros_like(scores),
        "huge": lambda: scores * 1e30,
        "tiny": lambda: scores * 1e-30,
        "float16": scores.half,
        "bfloat16": scores.bfloat16,
        "gradient": lambda: scores.requires_grad_(),
    }
    if kind in of_scores:
        found = of_scores[kind]()
        return replace(cap, match_scores=found, match_pattern=torch.softmax(found, dim=-1))
    changes: dict[str, Callable[[], dict[str, Any]]] = {
        "zero attention": lambda: {"match_pattern": torch.zeros_like(pattern)},
        "nan attention": lambda: {"match_pattern": pattern.masked_fill(one, torch.nan)},
        "negative attention": lambda: {"match_pattern": -pattern},
        "half attention": lambda: {"match_pattern": pattern / 2},
        "no copies": lambda: {"copy_pattern": copied[:0], "copy_heads": ()},
        "no queries": lambda: {
            "match_scores": scores[:, :, :0],
            "match_pattern": pattern[:, :, :0],
            "queries": cap.queries[:0],
        },
        "no heads": lambda: {"match_scores": scores[:, :0], "match_pattern": pattern[:, :0], "match_heads": ()},
        "other order": lambda: {"order": cap.order + 1},
        "other vocab": lambda: {"vocab": cap.vocab - 1},
        "other bos": lambda: {"bos": not cap.bos},
        "other tokens": lambda: {"tokens": cap.tokens + 5},
        "short tokens": lambda: {"tokens": cap.tokens[:, 1:]},
        "queries past the end": lambda: {"queries": cap.queries + 5},
        "zero copies": lambda: {"copy_pattern": torch.zeros_like(copied)},
        "nan copies": lambda: {"copy_pattern": torch.full_like(copied, torch.nan)},
        "negative copies": lambda: {"copy_pattern": -copied},
    }
    return replace(cap, **changes[kind]())


def run(case: Case, sandbox: Sandbox) -> str:
    """Build the model, take the capture, edit it and give it to the instrument."""
    given = build_tokens(case.tokens, vocab=case.circuit.model.vocab, length=case.circuit.model.length)
    before = fingerprint(given)
    taken: list[Any] = []

    def take() -> None:
        model = build_model(case.circuit.model)
        weights = fingerprint(model)
        cap = ip.capture(build_circuit(case.circuit, model), given, query=case.query, copies=case.copies)
        taken.append(edited(cap, case.edit, case.seed) if case.edit else cap)
        if fingerprint(model) != weights or fingerprint(given) != before:
            raise Finding("capture changed the model or the tokens in place")

    if run_call(take, lambda _: None) == "refused":
        return "capture: refused"
    (cap,) = taken
    captured = fingerprint(cap)
    function, _ = INSTRUMENTS[case.instrument]
    ended = run_call(lambda: function(cap, **case.options), lambda found: looked_at(found, drawn=case.drawn))
    if fingerprint(cap) != captured:
        raise Finding(f"{case.instrument} changed the capture in place")
    return f"{case.instrument}: {ended}"


def looked_at(found: Any, *, drawn: bool) -> str | None:
    """What is wrong with a result; with `drawn`, it is also drawn."""
    if (wrong := wrong_result(found)) is not None:
        return wrong
    if drawn and hasattr(found, "plot"):
        closed(found.plot())
    if drawn and hasattr(found, "_repr_html_"):
        found._repr_html_()
    return None
