"""Prompts for a language model: the ids say what the chain says, and bad alphabets are refused."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import interp as ip
from interp.language.prompts import Prompts, shipped_text
from tests import tiny_language

tokenizer = functools.cache(tiny_language.tokenizer)
COLOURS = [" red", " blue", " green", " cat", " dog"]


@pytest.fixture(scope="module")
def chains() -> ip.ChainBatch:
    return ip.IndependentDirichlet(order=2, vocab=4, alpha=1.0).sample(batch=6, length=12, seed=0)


def read(given: Prompts, row: int) -> list[str]:
    """A sequence as the model's own words."""
    return [tokenizer().decode([one]) for one in given.ids()[row].tolist()]


# ---- chains


def test_the_ids_spell_the_chain(chains: ip.ChainBatch) -> None:
    given = ip.prompts(tokenizer(), chains, alphabet=COLOURS)
    [words] = given.alphabet
    assert set(words) < set(COLOURS)
    for row in range(6):
        assert read(given, row) == ["<|start|>", *(words[symbol] for symbol in chains.tokens[row].tolist())]
    torch.testing.assert_close(given.tokens, chains.tokens)
    assert "4 symbols" in str(given)


def test_a_language_model_serves_as_its_tokenizer(chains: ip.ChainBatch) -> None:
    language = SimpleNamespace(tokenizer=tokenizer())
    assert torch.equal(
        ip.prompts(language, chains, alphabet=COLOURS).ids(), ip.prompts(tokenizer(), chains, alphabet=COLOURS).ids()
    )


def test_each_sequence_may_draw_its_own_alphabet(chains: ip.ChainBatch) -> None:
    given = ip.prompts(tokenizer(), chains, alphabet=COLOURS, fresh=True, bos=False, seed=3)
    assert given.symbols.shape == (6, 4)
    assert len(set(given.alphabet)) > 1
    for row in range(6):
        assert read(given, row) == [given.alphabet[row][symbol] for symbol in chains.tokens[row].tolist()]
    again = ip.prompts(tokenizer(), chains, alphabet=COLOURS, fresh=True, bos=False, seed=3)
    other = ip.prompts(tokenizer(), chains, alphabet=COLOURS, fresh=True, bos=False, seed=4)
    assert torch.equal(given.symbols, again.symbols)
    assert not torch.equal(given.symbols, other.symbols)


def test_a_circuit_takes_them_as_they_are(chains: ip.ChainBatch, tmp_path: Any) -> None:
    language = ip.load_language_model(tiny_language.write(tiny_language.llama(), tmp_path))
    for options in ({}, {"fresh": True}, {"bos": False}):
        given = ip.prompts(language, chains, alphabet=COLOURS, **options)
        circuit = ip.Circuit(language.model, order=2, match_heads=((1, 0),), **given.place)
        assert torch.equal(circuit.ids(given.tokens), given.ids())
        laws = ip.predict(circuit, given.tokens, every_position=True)
        assert laws.shape == (*given.tokens.shape, given.vocab)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alphabet": [" red", " redcat", " dog", " blue"]}, "the word ' redcat' is 4 tokens of this model, not one"),
        ({"alphabet": [" red", " blue", " dog", " red"]}, "the word ' red' is in the alphabet twice"),
        ({"alphabet": [" red", " blue", " dog"]}, "the alphabet has 3 words, the chains have 4 symbols"),
        ({"alphabet": ["<|start|>", " blue", " dog", " red"]}, "is a special token of this model"),
        ({"alphabet": "colours"}, "alphabet must be one of letters, words, rare or a list of words"),
        ({"alphabet": "words"}, "the alphabet 'words' has 1 single tokens here, 4 are needed"),
        ({"alphabet": 3}, "alphabet must be the name of one or a list of words, got 3"),
        ({"alphabet": [1, 2, 3, 4]}, "alphabet must be the name of one or a list of words"),
    ],
)
def test_bad_alphabets_are_refused(chains: ip.ChainBatch, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        ip.prompts(tokenizer(), chains, **options)
    assert "\n" not in str(caught.value)


def test_a_tokenizer_without_bos_says_so(chains: ip.ChainBatch) -> None:
    bare = tiny_language.tokenizer()
    bare.bos_token = None
    with pytest.raises(ValueError, match="no BOS token: give bos=False"):
        ip.prompts(bare, chains, alphabet=COLOURS)
    with pytest.raises(ValueError, match="expected a LanguageModel or a tokenizer, got str"):
        ip.prompts("smollm2", chains)


# ---- tokens of the model itself


def test_repeated_tokens_come_again_in_the_same_order() -> None:
    given = ip.repeated_tokens(tokenizer(), batch=5, length=20, copies=3, seed=1)
    assert given.tokens.shape == (5, 60)
    first, second, third = given.tokens.split(20, dim=1)
    assert torch.equal(first, second)
    assert torch.equal(first, third)
    assert all(len(set(row)) == 20 for row in first.tolist())
    assert 0 not in given.tokens  # BOS is special
    assert int(given.tokens.max()) < len(tokenizer()) / 2
    assert len({tuple(row) for row in first.tolist()}) == 5
    assert given.place == {"vocab": len(tokenizer()), "bos": 0, "symbols": None}
    assert not torch.equal(first, ip.repeated_tokens(tokenizer(), batch=5, length=20, seed=2).tokens[:, :20])


def test_natural_text_is_cut_into_windows() -> None:
    given = ip.natural_text(tokenizer(), batch=4, length=50)
    text = shipped_text()
    assert text.startswith("ALICE'S ADVENTURES IN WONDERLAND")
    assert len(text) < 300_000
    windows = [tokenizer().decode(row) for row in given.tokens.tolist()]
    places = [text.index(window) for window in windows]
    assert places[0] == 0
    assert all(
        later >= earlier + len(window) for earlier, later, window in zip(places, places[1:], windows, strict=False)
    )
    own = ip.natural_text(tokenizer(), batch=1, length=3, text=" red cat dog", bos=False)
    assert own.ids().tolist() == [tokenizer()(" red cat dog").input_ids[:3]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ip.repeated_tokens(tokenizer(), batch=0, length=4), "batch must be an integer >= 1, got 0"),
        (lambda: ip.repeated_tokens(tokenizer(), batch=2, length=4, copies=1), "copies must be an integer >= 2"),
        (
            lambda: ip.repeated_tokens(tokenizer(), batch=2, length=4000),
            "length must be at most 142, the tokens",
        ),
        (lambda: ip.natural_text(tokenizer(), batch=2, length=9, text=" red"), "2 windows of 9 tokens were asked for"),
        (lambda: ip.natural_text(tokenizer(), batch=0, length=9), "batch must be an integer >= 1"),
    ],
)
def test_bad_sizes_are_refused(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
