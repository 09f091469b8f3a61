"""Models of the user: `file.py:function`, where the function returns a HookedTransformer or an `ip.Circuit`.

    python -m analyses scan mine.py:build --order 1 --vocab 12 --bos none
    python -m analyses scan mine.py:build --order 1 --bos first        no BOS, but the first token is used as one

A `Circuit` contains the task of the model. For a plain HookedTransformer the options give it, and `find_circuit` finds
the heads of its circuit when an analysis needs them. The file is executed: use only files that you trust.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import traceback
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from analyses.running.options import CheckpointOptions
from analyses.running.subject import Subject

if TYPE_CHECKING:
    from interp.circuit.circuit import Circuit

FORM = re.compile(r"(?P<file>.+\.py):(?P<function>\w+)")
TASK = ("order", "vocab", "bos", "length")
MOST_TOKENS = 128  # by default; --length may be larger: a pretrained model's context may hold thousands


def is_brought(text: str) -> bool:
    """Whether this names a function in a file rather than a checkpoint."""
    return FORM.fullmatch(text) is not None


@dataclass(frozen=True, kw_only=True)
class BroughtSubject(Subject):
    """A model from a file, with sequences of the prior that the options name.

    brought   the circuit that the function returned, or the model with the task that the options declare
    """

    brought: Any

    @cached_property
    def digest(self) -> str:
        """A digest of the file that makes the model."""
        import hashlib

        return hashlib.sha256(_parts(str(self.path))[0].read_bytes()).hexdigest()

    @cached_property
    def model(self) -> Any:
        """The circuit; heads that are not known are found first."""
        from interp.instruments.find_circuit import find_circuit

        if self.brought.match_heads:
            return self.brought
        found = find_circuit(self.brought, self.chains.tokens, query="trained")
        if not found.match_heads:
            raise ValueError(f"{self.path}: no circuit was found: {found.message}")
        return found

    @property
    def scanned(self) -> Any:
        """The model with its task; its heads need not be known."""
        return self.brought


def open_brought(text: str, options: CheckpointOptions) -> BroughtSubject:
    """Run the file's function; a `ValueError` says what is wrong with what it returns."""
    from interp.circuit.circuit import Circuit
    from interp.hooked.checkpoint import FOREIGN, CheckpointInfo
    from interp.hooked.transformer import InductionTransformer

    made = _call(text)
    if isinstance(made, Circuit):
        if given := [name for name in TASK[:3] if getattr(options, name) is not None]:
            raise ValueError(
                f"{text}: --{given[0]} was given, but the function returns a Circuit, which already defines it"
            )
        circuit = made
    elif isinstance(made, InductionTransformer):
        circuit = Circuit(made)
    else:
        try:
            circuit = Circuit(made, order=options.order, vocab=options.vocab, bos=_bos(options.bos))
        except ValueError as error:
            raise ValueError(f"{text}: {_as_options(str(error))}") from error
    circuit.checkpoint = text
    model = {
        "family": FOREIGN,
        "order": circuit.order,
        "vocab": circuit.vocab,
        "length": _length(circuit, options.length),
        "bos": circuit.has_bos,
        "first_as_bos": circuit.first_as_bos,
        "d_model": int(circuit.model.cfg.d_model),
        "readout": "logit",
    }
    info = CheckpointInfo(path=Path(text), model=model, training=None)
    subject = BroughtSubject(path=Path(text), name=text, info=info, brought=circuit)
    return subject.asked(options)  # type: ignore[return-value]


def _parts(text: str) -> tuple[Path, str]:
    found = FORM.fullmatch(text)
    assert found is not None
    return Path(found["file"]), found["function"]


def _call(text: str) -> Any:
    """What the function returns."""
    file, name = _parts(text)
    if not file.is_file():
        raise ValueError(f"{text}: no file {file}")
    spec = importlib.util.spec_from_file_location(f"brought_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses in the file look their module up
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise ValueError(f"{text}: {file} does not parse: {error}") from error
    except Exception as error:
        raise _failed(text, file, error) from error
    function = getattr(module, name, None)
    if not callable(function):
        raise ValueError(f"{text}: {file} has no function {name}")
    try:
        return function()
    except Exception as error:
        raise _failed(text, file, error) from error


def _failed(text: str, file: Path, error: Exception) -> ValueError:
    """The error in the user's own code, with the last line of the file that ran."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == file]
    place = f", line {lines[-1]}" if lines else ""
    return ValueError(f"{text}: {file}{place}: {type(error).__name__}: {' '.join(str(error).split())}")


def _bos(text: str | None) -> int | Literal["first"] | None:
    """none, first, or the id of the BOS token."""
    if text is None or text == "none":
        return None
    if text == "first":
        return "first"
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"--bos must be none, first or the id of the BOS token, got {text!r}") from None


def _length(circuit: Circuit, asked: int | None) -> int:
    """How many tokens a sequence has: one less than the context holds, so that the last one has a next token."""
    room = int(circuit.model.cfg.n_ctx) - circuit.has_bos
    length = min(room - 1, MOST_TOKENS) if asked is None else asked
    if not circuit.order < length <= room:
        raise ValueError(f"--length must be more than the order and at most {room}, got {length}")
    return length


def _as_options(message: str) -> str:
    return message.replace("give order=k", "give --order")
