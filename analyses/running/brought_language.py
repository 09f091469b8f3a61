"""Language models on the command line: `python -m analyses scan smollm2`, a GGUF file, or a Hugging Face directory.

Their prompts are chains written in words, with one alphabet for all sequences: nouns that are single tokens, or letters
where there are too few. `--order` and `--vocab` say how long the contexts are and how many words there are (2 and 5 by
default); `--bos none` leaves the BOS token out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from analyses.running.brought import BroughtSubject
from analyses.running.options import CheckpointOptions
from interp.language.weights import PACKAGED
from interp.outside import read_object

ORDER, VOCAB, LENGTH = 2, 5, 96


def is_language(text: str) -> bool:
    """Whether this names a language model: one that a package ships, a GGUF file, or a Hugging Face directory."""
    path = Path(text)
    if path.is_dir():
        try:
            return "model_type" in read_object(path / "config.json")
        except ValueError:
            return False
    return path.suffix == ".gguf" or text in PACKAGED


@dataclass(frozen=True, kw_only=True)
class LanguageSubject(BroughtSubject):
    """A language model, with chains in words of its own."""

    language: Any

    @cached_property
    def digest(self) -> str:
        """Of the weights."""
        found: str = self.language.digest
        return found


def open_language(text: str, options: CheckpointOptions) -> LanguageSubject:
    """Load the model; a `ValueError` says why it cannot be."""
    from interp.circuit.circuit import Circuit
    from interp.hooked.checkpoint import FOREIGN, CheckpointInfo
    from interp.language.load import load_language_model

    if options.bos not in (None, "none"):
        raise ValueError(f"{text}: a language model has its own BOS token; --bos none leaves it out")
    language = load_language_model(text)
    order, vocab = options.order or ORDER, options.vocab or VOCAB
    bos = None if options.bos == "none" else language.bos
    circuit = Circuit(language.model, order=order, vocab=vocab, bos=bos, symbols=_symbols(language, vocab))
    room = int(language.model.cfg.n_ctx) - circuit.has_bos
    length = min(LENGTH, room - 1) if options.length is None else options.length
    if not order < length <= room:
        raise ValueError(f"{text}: --length must be more than the order and at most {room}, got {length}")
    model = {
        "family": FOREIGN,
        "order": order,
        "vocab": vocab,
        "length": length,
        "bos": circuit.has_bos,
        "d_model": int(language.model.cfg.d_model),
        "readout": "logit",
    }
    info = CheckpointInfo(path=Path(text), model=model, training=None)
    subject = LanguageSubject(path=Path(text), name=text, info=info, brought=circuit, language=language)
    return subject.asked(options)  # type: ignore[return-value]


def _symbols(language: Any, vocab: int) -> Any:
    """The ids of words that stand for the symbols."""
    from interp.chains.priors import IndependentDirichlet
    from interp.language.prompts import prompts

    chains = IndependentDirichlet(order=1, vocab=vocab, alpha=1.0).sample(batch=1, length=2, seed=0)
    for alphabet in ("words", "letters"):
        try:
            return prompts(language, chains, alphabet=alphabet, bos=False).symbols
        except ValueError as error:
            reason = error
    raise ValueError(f"{language.name}: no alphabet for {vocab} symbols: {reason}")
