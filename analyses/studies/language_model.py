"""Are the induction heads of language models smoothed n-gram estimators? Models side by side.

    python -m analyses language_model                        SmolLM2, and its architecture with random weights
    python -m analyses language_model A.gguf path/to/B       GGUF files or directories in Hugging Face form
    python -m analyses language_model A.gguf random:A.gguf   a model, and as control the same with random weights
    python -m analyses language_model A.gguf --order 3       longer contexts: chains of order 3, laws of order 1 to 3

The parts, each kept on its own in the cache:

    memory       how large each model is, and about how much memory the study takes
    scan         every head on chains and on repeated tokens: its role, with another sequence's masks as control
    chains       the heads that match in either: the law of their attention by order, and edits of them, on chains
    repeats      the same on repeated tokens, and the way from the heads that copy to those that match
    text         the same law on natural text, and what the heads carry of the in-context gain
    position     kappa by position; with and without BOS
    prediction   KL to the truth at every position of chains, beside estimators
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from analyses.running.ask import Ask
from analyses.running.cache import Cache
from analyses.running.options import CachedOptions, option
from analyses.running.table import Table, gathered
from models.running.progress import still_at

ASK = Ask(cost=60.0)
SHIPPED = "LANGUAGE"
PARTS = ("scan", "chains", "repeats", "text", "position", "prediction")


@dataclass(frozen=True, kw_only=True)
class Options(CachedOptions):
    models: tuple[str, ...] = option(
        ("smollm2", "random:smollm2"),
        "GGUF files, directories in Hugging Face form, hub names, or smollm2; random:MODEL has random weights",
        metavar="MODEL",
        positional=True,
    )
    order: int = option(
        2, "the longest context: of the chains, and of the laws (default: %(default)s)", metavar="K", least=1
    )
    batch: int = option(
        20, "sequences for each measurement, some take a part of it (default: %(default)s)", metavar="N", least=20
    )
    alphabet: Literal["words", "letters", "rare"] | None = option(
        None, "what stands for the symbols of a chain (default: the first of words, letters and rare that will do)"
    )


@dataclass(frozen=True)
class Piece:
    """One part of the study, about one model; `memory` is about all."""

    part: str
    model: str = ""

    def __str__(self) -> str:
        return f"{self.model} {self.part}".strip()


def weights(options: Options) -> dict[str, str]:
    """The digest of each model's weights."""
    from analyses.studies.language.case import digest

    return {model: digest(model) for model in options.models}


def pieces(options: Options) -> list[Piece]:
    return [Piece("memory"), *(Piece(part, model) for model in dict.fromkeys(options.models) for part in PARTS)]


def together(options: Options, piece: Piece) -> str:
    """The parts of a model share it, and its scan."""
    return f"language model {piece.model}"


def study_piece(options: Options, piece: Piece, cache: Cache) -> Table:
    from analyses.studies.language.case import Case, memory_rows

    with still_at(f"language_model: {piece}"):
        rows = Case(piece.model, options, cache).rows(piece.part) if piece.model else memory_rows(options)
    return Table(rows=rows, provenance={"weights": weights(options)})


def join(options: Options, studies: Sequence[Table]) -> Table:
    """All parts, with a page for the terminal."""
    from analyses.studies.language.page import page

    whole = gathered(studies)
    return replace(whole, text=page([dict(row) for row in whole.rows]))
