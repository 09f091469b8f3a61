"""Prompts in the words of a tiny tokenizer, with odd alphabets, and a tiny language model that reads them."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from hypothesis import strategies as st

import interp as ip
from interp.language.load import LanguageModel
from interp.language.prompts import Prompts
from tests import tiny_language
from tests.fuzz.captures import SWITCH, looked_at
from tests.fuzz.room import Sandbox, run_call
from tests.fuzz.values import mostly, numbers, one_in

Case = tuple[str, dict[str, Any]]

WORDS = tuple(f" {word}" for word in tiny_language.WORDS)
ALPHABETS: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(["letters", "words", "rare", "other", "", None, WORDS, list(WORDS), WORDS[:1], WORDS[:3], ()]),
    st.lists(
        st.one_of(
            st.sampled_from(WORDS), st.sampled_from(["", " ", "a", "é", "<|start|>", "\0", "\n", " red blue", 3])
        ),
        max_size=5,
    ),
    st.lists(st.characters(exclude_categories=()), max_size=4),
    numbers(),
    st.just({" red", " blue"}),
)
SEED = mostly(st.integers(0, 3))
FEW = mostly(st.integers(1, 12))
SEPARATOR = st.one_of(
    st.none(),
    st.none(),
    st.just(" o"),
    st.sampled_from([" the", ",", "", " red", "<|start|>", " the of", 3, "\0", "é"]),
)


@functools.cache
def language() -> LanguageModel:
    """The tiny model with its tokenizer, written and read back once."""
    with tempfile.TemporaryDirectory() as folder:
        return ip.load_language_model(tiny_language.write(tiny_language.llama(), Path(folder) / "tiny"))


@functools.cache
def chains(vocab: int) -> ip.ChainBatch:
    """Some chains."""
    return ip.HierarchicalDirichlet(order=1, vocab=vocab, eta=(5.0,)).sample(batch=12, length=10, seed=0)


def prompted(*, vocab: int, **given: Any) -> Any:
    return whole(ip.prompts(language(), chains(vocab), **given))


def repeated(**given: Any) -> Any:
    return whole(ip.repeated_tokens(language(), **given))


def text(**given: Any) -> Any:
    return whole(ip.natural_text(language(), **given))


def whole(found: Prompts) -> Prompts:
    """The prompts, which must be ids of the model."""
    ids = found.ids()
    assert ids.min() >= 0, "a negative id"
    assert ids.max() < len(language().tokenizer), "an id past the vocabulary"
    return found


def scanned(*, order: Any, alphabet: Any, fresh: Any, bos: Any, query: Any) -> Any:
    given = ip.prompts(language(), chains(3), alphabet=alphabet, fresh=fresh, bos=bos)
    return ip.scan_heads(language().model, given.tokens, order=order, query=query, **given.place)


def predicted(*, order: Any, alphabet: Any, fresh: Any, bos: Any) -> torch.Tensor:
    given = ip.prompts(language(), chains(3), alphabet=alphabet, fresh=fresh, bos=bos)
    return ip.predict(ip.Circuit(language().model, order=order, **given.place), given.tokens)


PROMPTS = {
    "vocab": st.integers(2, 5),
    "alphabet": one_in(3).flatmap(lambda odd: ALPHABETS if odd else st.sampled_from([WORDS, WORDS[:6]])),
    "fresh": SWITCH,
    "bos": SWITCH,
    "separator": SEPARATOR,
    "seed": SEED,
}
READ = {
    "order": mostly(st.integers(1, 3)),
    "alphabet": st.sampled_from(["letters", WORDS, WORDS[:3], WORDS[1:]]),
    "fresh": SWITCH,
    "bos": SWITCH,
}
FUNCTIONS: dict[str, tuple[Callable[..., Any], dict[str, st.SearchStrategy[Any]]]] = {
    "prompts": (prompted, PROMPTS),
    "repeated_tokens": (
        repeated,
        {
            "batch": FEW,
            "length": FEW,
            "copies": mostly(st.integers(2, 3)),
            "share": mostly(st.floats(0.1, 1)),
            "bos": SWITCH,
            "seed": SEED,
        },
    ),
    "natural_text": (
        text,
        {
            "batch": FEW,
            "length": FEW,
            "bos": SWITCH,
            "text": st.one_of(
                st.sampled_from(["the cat of the dog " * 40, "", "a", "\0" * 99, "é" * 99]), numbers(), st.text()
            ),
        },
    ),
    "predict": (predicted, READ),
    "scan_heads": (scanned, {**READ, "query": st.sampled_from(["last", "all", "trained", [3], [99], None])}),
}
RARELY = ("predict", "scan_heads")  # they run the model: 30 ms


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A function's name and its arguments."""
    names = [name for name in FUNCTIONS if name not in RARELY or draw(one_in(4))]
    name = draw(st.sampled_from(names))
    return name, draw(st.fixed_dictionaries(FUNCTIONS[name][1]))


def run(case: Case, sandbox: Sandbox) -> str:
    """Call it."""
    name, given = case
    return f"{name}: {run_call(lambda: FUNCTIONS[name][0](**given), lambda found: looked_at(found, drawn=False))}"
