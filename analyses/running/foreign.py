"""Models from elsewhere: functions that return a model, and language models.

    python -m analyses scan mine.py:build --order 1 --vocab 12 --bos none
    python -m analyses scan mine.py:build --order 1 --bos first        no BOS, but the first token is used as one
    python -m analyses scan smollm2                                    or a GGUF file, or a Hugging Face directory

A function returns a HookedTransformer or an `ip.Circuit`, which contains the task of the model. For a plain
HookedTransformer the options give it, and `find_circuit` finds the heads of its circuit when an analysis needs them.
The file is executed: use only files that you trust.

The prompts of a language model are chains written in words, with one alphabet for all sequences: nouns that are single
tokens, or letters where there are too few. `--order` and `--vocab` say how long the contexts are and how many words
there are (2 and 5 by default); `--bos none` leaves the BOS token out.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import interp as ip
from analyses.running.options import CheckpointOptions
from analyses.running.subject import Subject
from interp.outside import one_line, read_object

FORM = re.compile(r"(?P<file>.+\.py):(?P<function>\w+)")
MOST_TOKENS = 128  # by default; --length may be larger: a pretrained model's context may hold thousands
ORDER, VOCAB, WORDS = 2, 5, 96  # of the chains of a language model, and how many words a prompt has
Opening = Callable[[str, CheckpointOptions], Subject]


@dataclass(frozen=True, kw_only=True)
class ForeignSubject(Subject):
    """A model from elsewhere, with sequences of the prior that the options name.

    task   the model with its task; its heads need not be known
    """

    task: ip.Circuit

    @cached_property
    def model(self) -> ip.Circuit:
        """The circuit; heads that are not known are found first."""

        if self.task.match_heads:
            return self.task
        found = ip.find_circuit(self.task, self.chains.tokens, query="trained")
        if not found.match_heads:
            raise ValueError(f"{self.path}: no circuit was found: {found.message}")
        return found

    @property
    def scanned(self) -> ip.Circuit:
        """The model with its task."""
        return self.task


def opener(text: str, ours: Opening) -> Opening:
    """What opens this: a function in a file, a language model, or one of our checkpoints."""
    from interp.language.weights import PACKAGED

    if FORM.fullmatch(text):
        return open_function
    path = Path(text)
    if path.suffix == ".py" and not path.is_dir():
        raise ValueError(f"{text}: write {text}:FUNCTION, where the function returns a HookedTransformer or a Circuit")
    language = path.suffix == ".gguf" or text in PACKAGED
    if path.is_dir():
        try:
            language = "model_type" in read_object(path / "config.json")
        except ValueError:
            language = False
    return open_language if language else ours


def open_function(text: str, options: CheckpointOptions) -> ForeignSubject:
    """Run the file's function; a `ValueError` says what is wrong with what it returns."""

    made = _call(text)
    if isinstance(made, ip.Circuit):
        if given := [name for name in ("order", "vocab", "bos") if getattr(options, name) is not None]:
            raise ValueError(
                f"{text}: --{given[0]} was given, but the function returns a Circuit, which already defines it"
            )
        return _subject(text, made, options, length=MOST_TOKENS)
    if isinstance(made, ip.InductionTransformer):
        return _subject(text, ip.Circuit(made), options, length=MOST_TOKENS)
    try:
        circuit = ip.Circuit(made, order=options.order, vocab=options.vocab, bos=_bos(options.bos))
    except ValueError as error:
        raise ValueError(f"{text}: {str(error).replace('give order=k', 'give --order')}") from error
    return _subject(text, circuit, options, length=MOST_TOKENS)


def open_language(text: str, options: CheckpointOptions) -> ForeignSubject:
    """Load a language model; a `ValueError` says why it cannot be."""

    if options.bos not in (None, "none"):
        raise ValueError(f"{text}: a language model has its own BOS token; --bos none leaves it out")
    language = ip.load_language_model(text)
    order, vocab = options.order or ORDER, options.vocab or VOCAB
    bos = None if options.bos == "none" else language.bos
    circuit = ip.Circuit(language.model, order=order, vocab=vocab, bos=bos, symbols=_symbols(language, vocab))
    return _subject(text, circuit, options, length=WORDS)


def _subject(text: str, circuit: ip.Circuit, options: CheckpointOptions, *, length: int) -> ForeignSubject:
    """The circuit on sequences of at most this length, one less than its context holds; --length may be larger."""
    from interp.hooked.checkpoint import FOREIGN, CheckpointInfo

    circuit.checkpoint = text
    room = int(circuit.model.cfg.n_ctx) - circuit.has_bos
    length = min(room - 1, length) if options.length is None else options.length
    if not circuit.order < length <= room:
        raise ValueError(f"{text}: --length must be more than the order and at most {room}, got {length}")
    model = {
        "family": FOREIGN,
        "order": circuit.order,
        "vocab": circuit.vocab,
        "length": length,
        "bos": circuit.has_bos,
        "first_as_bos": circuit.first_as_bos,
        "d_model": int(circuit.model.cfg.d_model),
        "readout": "logit",
    }
    info = CheckpointInfo(path=Path(text), model=model, training=None)
    return ForeignSubject(path=Path(text), name=text, info=info, task=circuit).asked(options)


def _call(text: str) -> Any:
    """What the function returns."""
    found = FORM.fullmatch(text)
    assert found is not None
    file, name = Path(found["file"]), found["function"]
    if not file.is_file():
        raise ValueError(f"{text}: no file {file}")
    spec = importlib.util.spec_from_file_location(f"brought_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses in the file look their module up
    try:
        spec.loader.exec_module(module)
        function = getattr(module, name, None)
        if callable(function):
            return function()
    except SyntaxError as error:
        raise ValueError(f"{text}: {file} does not parse: {error}") from error
    except Exception as error:  # in the user's own code: the last line of the file that ran
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == file]
        place = f", line {lines[-1]}" if lines else ""
        raise ValueError(f"{text}: {file}{place}: {type(error).__name__}: {one_line(error)}") from error
    raise ValueError(f"{text}: {file} has no function {name}")


def _bos(text: str | None) -> int | Literal["first"] | None:
    """none, first, or the id of the BOS token."""
    if text in (None, "none"):
        return None
    if text == "first":
        return "first"
    try:
        return int(str(text))
    except ValueError:
        raise ValueError(f"--bos must be none, first or the id of the BOS token, got {text!r}") from None


def _symbols(language: Any, vocab: int) -> Any:
    """The ids of words that stand for the symbols."""
    from interp.language.prompts import first_alphabet

    chains = ip.IndependentDirichlet(order=1, vocab=vocab, alpha=1.0).sample(batch=1, length=2, seed=0)
    return ip.prompts(language, chains, alphabet=first_alphabet(language, needed=vocab), bos=False).symbols
