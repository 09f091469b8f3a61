"""Prompts for a language model: Markov chains written in words, repeated random tokens, natural text.

    given = prompts(language, chains, alphabet="letters", fresh=True)
    circuit = Circuit(language.model, order=2, match_heads=((17, 3),), **given.place)
    predict(circuit, given.tokens, every_position=True)

A chain's symbol becomes a word that is one token of the model. The choice of words has a large effect on a model's
predictions. There are three alphabets, and any list of words can be given:

    letters   " A" .. " Z"
    words     common English nouns, with a space before
    rare      lower-case pieces of words, with a space before, from the last quarter of the tokenizer's vocabulary:
              byte-pair tokenizers list their tokens by how often they were seen

All sequences can use one alphabet, or each sequence draws its own (fresh=True), so that no result depends on the names
of a few symbols.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import torch
from jaxtyping import Int64

from interp.arguments import count, fits_memory, seed_number, shown, switch
from interp.chains.priors import ChainBatch

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from interp.language.load import LanguageModel

    Language: TypeAlias = LanguageModel | PreTrainedTokenizerBase
    Alphabet: TypeAlias = Literal["letters", "words", "rare"] | list[str] | tuple[str, ...]
else:  # checked by `tokenizer_of` and `_single_tokens`
    Language = Alphabet = Any

LETTERS = tuple(f" {letter}" for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
NOUNS = (
    "apple book chair door eye fish garden hand island key lamp moon night ocean paper queen river stone table voice "
    "water year bird cloud dog fire game hill iron king leaf milk north plant road school tree wall wind wood"
)
WORDS = tuple(f" {noun}" for noun in NOUNS.split())
TEXT = Path(__file__).with_name("alice.txt")  # Lewis Carroll, Alice's Adventures in Wonderland (1865)


@dataclass(frozen=True, kw_only=True)
class Prompts:
    """Sequences for a language model.

    tokens      [batch, length], without BOS: symbols 0..vocab-1 where `symbols` says what stands for them, else ids
    symbols     the ids that stand for the symbols, [vocab], or [batch, vocab] with an alphabet for each sequence
    vocab       how many symbols there are
    bos         the id of the BOS token in front, or None
    alphabet    the text of the symbols, a tuple for each row of `symbols`
    """

    tokens: Int64[torch.Tensor, "batch length"]
    symbols: Int64[torch.Tensor, "*batch vocab"] | None = field(repr=False)
    vocab: int
    bos: int | None
    alphabet: tuple[tuple[str, ...], ...] = field(repr=False)

    @property
    def place(self) -> dict[str, Any]:
        """The arguments of `Circuit` and of the scan for these prompts: vocab, bos and symbols."""
        return {"vocab": self.vocab, "bos": self.bos, "symbols": self.symbols}

    def ids(self) -> Int64[torch.Tensor, "batch position"]:
        """What the model is given, BOS included."""
        ids = self.tokens
        if self.symbols is not None:
            ids = self.symbols.expand(len(ids), -1).gather(1, self.tokens)
        return ids if self.bos is None else torch.nn.functional.pad(ids, (1, 0), value=self.bos)

    def __str__(self) -> str:
        batch, length = self.tokens.shape
        bos = "without BOS" if self.bos is None else f"after BOS (id {self.bos})"
        own = "ids of the model" if self.symbols is None else f"{self.vocab} symbols"
        first = "" if not self.alphabet else f": {' '.join(repr(word) for word in self.alphabet[0][:8])}"
        fresh = f", an alphabet for each sequence, the first{first}" if len(self.alphabet) > 1 else first
        return f"Prompts of {batch} sequences of {length} tokens {bos}\n  {own}{fresh}"

    __repr__ = __str__


def prompts(
    language: Language,
    chains: ChainBatch,
    *,
    alphabet: Alphabet = "letters",
    fresh: bool = False,
    bos: bool = True,
    seed: int = 0,
) -> Prompts:
    """Chains in words of a language model.

    Parameters
    ----------
    language : LanguageModel or tokenizer
        Whose words.
    chains : ChainBatch
        What a prior's `sample` gives.
    alphabet : "letters", "words", "rare" or list of str, default "letters"
        The words. One that is not a single token of the model, or occurs twice, is refused.
    fresh : bool, default False
        Whether every sequence draws its own words, in place of one draw for all.
    bos : bool, default True
        Whether the model's BOS token stands in front.
    seed : int, default 0
        Draws the words, where the alphabet has more than the chains have symbols.

    Returns
    -------
    Prompts
        Tokens, and `place`: the arguments of `Circuit` for them.
    """
    tokenizer = tokenizer_of(language)
    fresh, bos, seed = switch(fresh, name="fresh"), switch(bos, name="bos"), seed_number(seed)
    if not isinstance(chains, ChainBatch):
        raise ValueError(f"chains must be a ChainBatch, as a prior's sample gives it, got {shown(chains)}")
    words = _single_tokens(tokenizer, alphabet, needed=chains.vocab)
    generator = torch.Generator().manual_seed(seed)
    rows = len(chains.tokens) if fresh else 1
    drawn = torch.stack([torch.randperm(len(words), generator=generator)[: chains.vocab] for _ in range(rows)])
    texts, symbols = list(words), torch.tensor(list(words.values()))[drawn]
    return Prompts(
        tokens=chains.tokens,
        symbols=symbols if fresh else symbols[0],
        vocab=chains.vocab,
        bos=_bos_id(tokenizer) if bos else None,
        alphabet=tuple(tuple(texts[word] for word in row) for row in drawn.tolist()),
    )


def repeated_tokens(
    language: Language, *, batch: int, length: int, copies: int = 2, bos: bool = True, seed: int = 0
) -> Prompts:
    """Random tokens, and copies of them: these can be predicted only from the earlier copy.

    They come from the first half of the vocabulary: byte-pair tokenizers list their tokens by how often they were seen,
    and a model knows the last ones badly.

    Parameters
    ----------
    language : LanguageModel or tokenizer
        Whose tokens, without the special ones.
    batch : int
        How many sequences.
    length : int
        Tokens of one copy, each of which occurs once in it.
    copies : int, default 2
        How often they come in all.
    bos : bool, default True
        Whether the model's BOS token stands in front.
    seed : int, default 0
        Of the random numbers.

    Returns
    -------
    Prompts
    """
    tokenizer = tokenizer_of(language)
    bos, seed = switch(bos, name="bos"), seed_number(seed)
    batch, length, copies = (
        count(value, name=name, least=least)
        for name, value, least in (("batch", batch, 1), ("length", length, 1), ("copies", copies, 2))
    )
    ordinary = torch.tensor(sorted(set(range(len(tokenizer) // 2)) - _special(tokenizer)))
    if length > len(ordinary):
        raise ValueError(f"length must be at most {len(ordinary)}, the tokens to draw from, got {length}")
    fits_memory(8 * batch * length * copies, what="the tokens")
    generator = torch.Generator().manual_seed(seed)
    once = torch.stack([ordinary[torch.randperm(len(ordinary), generator=generator)[:length]] for _ in range(batch)])
    return _of_ids(language, once.repeat(1, copies), bos=bos)


def natural_text(language: Language, *, batch: int, length: int, bos: bool = True, text: str | None = None) -> Prompts:
    """Windows of a text, spread over all of it.

    Parameters
    ----------
    language : LanguageModel or tokenizer
        Whose tokens.
    batch : int
        How many windows.
    length : int
        Tokens of a window.
    bos : bool, default True
        Whether the model's BOS token stands in front.
    text : str, optional
        By default Alice's Adventures in Wonderland (1865, in the public domain): the Millennium Fulcrum edition 2.9, as
        in the Canterbury corpus of texts for compression; lines of a paragraph are joined.

    Returns
    -------
    Prompts
    """
    tokenizer = tokenizer_of(language)
    batch, length, bos = count(batch, name="batch"), count(length, name="length"), switch(bos, name="bos")
    if text is not None and not isinstance(text, str):
        raise ValueError(f"text must be a text, got {shown(text)}")
    given = shipped_text() if text is None else text
    ids = torch.tensor(tokenizer(given, add_special_tokens=False, verbose=False).input_ids)
    if len(ids) < batch * length:
        raise ValueError(f"{batch} windows of {length} tokens were asked for, but the text has {len(ids)} tokens")
    starts = torch.linspace(0, len(ids) - length, batch).long() if batch > 1 else torch.zeros(1, dtype=torch.int64)
    return _of_ids(language, ids[starts[:, None] + torch.arange(length)], bos=bos)


def shipped_text() -> str:
    """Alice's Adventures in Wonderland: paragraphs, with an empty line between them."""
    return TEXT.read_text(encoding="ascii")


def tokenizer_of(language: Language) -> Any:
    """The tokenizer of a `LanguageModel`, or the tokenizer itself."""
    tokenizer = getattr(language, "tokenizer", language)
    if not callable(tokenizer) or not hasattr(tokenizer, "all_special_ids"):
        raise ValueError(f"expected a LanguageModel or a tokenizer, got {type(language).__name__}")
    return tokenizer


def _of_ids(language: Language, ids: Int64[torch.Tensor, "batch length"], *, bos: bool) -> Prompts:
    tokenizer, model = tokenizer_of(language), getattr(language, "model", None)
    known = len(tokenizer)  # a tokenizer may have more tokens than its model, such as an <unk> that no text leads to
    return Prompts(
        tokens=ids,
        symbols=None,
        vocab=known if model is None else min(known, int(model.cfg.d_vocab)),
        bos=_bos_id(tokenizer) if bos else None,
        alphabet=(),
    )


def _bos_id(tokenizer: Any) -> int:
    if tokenizer.bos_token_id is None:
        raise ValueError("this tokenizer has no BOS token: give bos=False")
    return int(tokenizer.bos_token_id)


def _single_tokens(tokenizer: Any, alphabet: Any, *, needed: int) -> dict[str, int]:
    """The words of an alphabet that are single tokens, with their ids; in a list of words, each must be one."""
    if isinstance(alphabet, str):
        kinds = {"letters": LETTERS, "words": WORDS, "rare": ()}
        if alphabet not in kinds:
            raise ValueError(f"alphabet must be one of {', '.join(kinds)} or a list of words, got {shown(alphabet)}")
        offered = _rare(tokenizer) if alphabet == "rare" else kinds[alphabet]
        found = {word: ids[0] for word in offered if len(ids := _encoded(tokenizer, word)) == 1}
        if len(found) < needed:
            raise ValueError(f"the alphabet {shown(alphabet)} has {len(found)} single tokens here, {needed} are needed")
        return found
    words = list(alphabet) if isinstance(alphabet, (list, tuple)) else None
    if words is None or not all(isinstance(word, str) and word for word in words):
        raise ValueError(f"alphabet must be the name of one or a list of words, got {shown(alphabet)}")
    found = {}
    for word in words:
        ids = _encoded(tokenizer, word)
        if len(ids) != 1:
            raise ValueError(f"the word {shown(word)} is {len(ids)} tokens of this model, not one")
        if ids[0] in _special(tokenizer):
            raise ValueError(f"the word {shown(word)} is a special token of this model")
        if word in found or ids[0] in found.values():
            raise ValueError(f"the word {shown(word)} is in the alphabet twice")
        found[word] = ids[0]
    if len(found) < needed:
        raise ValueError(f"the alphabet has {len(found)} words, the chains have {needed} symbols")
    return found


def first_alphabet(language: Language, *, needed: int) -> Literal["words", "letters", "rare"]:
    """The first of the alphabets that has this many single tokens of the model."""
    names: tuple[Literal["words", "letters", "rare"], ...] = ("words", "letters", "rare")
    for name in names:
        with contextlib.suppress(ValueError):
            _single_tokens(tokenizer_of(language), name, needed=needed)
            return name
    raise ValueError(f"no alphabet of {needed} single tokens of this model: give a list of words")


def _special(tokenizer: Any) -> set[int]:
    """Tokens that are not text: those with a special role, and those added to the learned vocabulary."""
    return {*tokenizer.all_special_ids, *tokenizer.get_added_vocab().values()}


def _encoded(tokenizer: Any, word: str) -> list[int]:
    return [int(one) for one in tokenizer(word, add_special_tokens=False).input_ids]


def _rare(tokenizer: Any) -> Iterator[str]:
    size = len(tokenizer)
    for one in np.arange(3 * size // 4, size).tolist():
        word = tokenizer.decode([one])
        if len(word) > 3 and word[0] == " " and word[1:].isascii() and word[1:].isalpha() and word[1:].islower():
            yield word
