"""What the parts of the study share: options, the model, its prompts, and the heads that match."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from analyses.running.options import CachedOptions, option, subject

if TYPE_CHECKING:
    from analyses.running.cache import Cache
    from interp.chains.priors import ChainBatch
    from interp.circuit.circuit import Circuit, Head
    from interp.language.load import LanguageModel
    from interp.language.prompts import Prompts

ORDER, VOCAB, ETA = 2, 5, 5.0  # of the chains: the suite's hierarchical prior
LENGTH = 96  # tokens of a chain
FIRST_QUERY = 8  # earlier queries see too few keys to fit a law
COPY = 24  # tokens of a copy of repeated random tokens

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Options(CachedOptions):
    """Of the whole study."""

    model: str = subject(
        "smollm2",
        "a directory in Hugging Face form, a GGUF file, a hub name, or smollm2 (default: smollm2)",
        metavar="MODEL",
    )
    batch: int = option(
        24, "sequences for each measurement, some take a part of it (default: %(default)s)", metavar="N", least=20
    )
    heads: int = option(5, "how many of the best matching heads are studied (default: %(default)s)", least=1)
    alphabet: Literal["letters", "words", "rare"] = option(
        "words", "what stands for the symbols of a chain (default: %(default)s)"
    )


def weights(options: Options) -> dict[str, str]:
    """The digest of the model's weights."""
    from interp.language.weights import find

    return {options.model: find(options.model).digest}


@functools.lru_cache(maxsize=1)
def opened(model: str) -> LanguageModel:
    """The model; parts that run in one process share it."""
    from interp.language.load import load_language_model

    return load_language_model(model)


def prior() -> Any:
    """What the chains are drawn from."""
    from interp.chains.priors import HierarchicalDirichlet

    return HierarchicalDirichlet(order=ORDER, vocab=VOCAB, eta=(ETA,) * ORDER)


def chains(
    options: Options, *, batch: int, length: int = LENGTH, alphabets: int = 1, bos: bool = True, stream: int
) -> tuple[ChainBatch, Prompts]:
    """Chains, and the same chains as prompts: an alphabet for every sequence, `alphabets` of them for every chain.

    `stream` gives each part its own random numbers. With several alphabets the prompts come chain by chain.
    """
    import dataclasses

    from interp.language.prompts import prompts

    drawn = prior().sample(batch=batch, length=length, seed=1000 * options.seed + stream, method="explicit")
    several = dataclasses.replace(drawn, tokens=drawn.tokens.repeat_interleave(alphabets, dim=0))
    language = opened(options.model)
    given = prompts(
        language,
        several,
        alphabet=options.alphabet,
        fresh=True,
        bos=bos and language.bos is not None,
        seed=1000 * options.seed + stream,
    )
    return drawn, given


def repeats(options: Options, *, batch: int, stream: int, length: int = COPY) -> Prompts:
    """Random tokens, and the same again."""
    from interp.language.prompts import repeated_tokens

    language = opened(options.model)
    return repeated_tokens(
        language, batch=batch, length=length, bos=language.bos is not None, seed=1000 * options.seed + stream
    )


def circuit_of(
    options: Options, given: Prompts, heads: list[Head] | tuple[Head, ...], *, order: int = ORDER
) -> Circuit:
    """The match heads on these prompts."""
    from interp.circuit.circuit import Circuit

    return Circuit(opened(options.model).model, order=order, match_heads=heads, **given.place)


def rounded(values: Any, digits: int = 5) -> list[float]:
    """A vector as JSON."""
    return [round(float(value), digits) for value in values]


def best_heads(options: Options, cache: Cache) -> list[Head]:
    """The heads whose scores matches explain best on chains, the best first."""
    from analyses.studies.language.scanning import chain_scan

    table = chain_scan(options, cache)
    ranked = sorted(table, key=lambda row: -(row["r2_match"] or 0.0))
    return [(row["layer"], row["head"]) for row in ranked[: options.heads]]
