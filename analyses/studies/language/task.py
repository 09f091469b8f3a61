"""What the parts of the study share: the model, its prompts, parts of captures, and the columns of a law."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch

from analyses.studies.language_model import Options
from interp.chains.priors import ChainBatch, HierarchicalDirichlet
from interp.circuit.capture import Capture
from interp.circuit.circuit import Circuit, Head
from interp.fitting.attention_fit import fit_attention
from interp.fitting.fits import AttentionFit
from interp.language.load import LanguageModel, load_language_model
from interp.language.prompts import Prompts, prompts, repeated_tokens

ORDER, VOCAB, ETA = 2, 5, 5.0  # of the chains: the suite's hierarchical prior
PRIOR = HierarchicalDirichlet(order=ORDER, vocab=VOCAB, eta=(ETA,) * ORDER)
LENGTH = 96  # tokens of a chain
FIRST_QUERY = 8  # earlier queries see too few keys to fit a law
COPY = 24  # tokens of a copy of repeated random tokens

Row = dict[str, Any]


@functools.lru_cache(maxsize=1)
def opened(model: str) -> LanguageModel:
    """The model; parts that run in one process share it."""
    return load_language_model(model)


def chains(
    options: Options, *, batch: int, length: int = LENGTH, alphabets: int = 1, bos: bool = True, stream: int
) -> tuple[ChainBatch, Prompts]:
    """Chains, and the same chains as prompts: an alphabet for every sequence, `alphabets` of them for every chain.

    `stream` gives each part its own random numbers. With several alphabets the prompts come chain by chain.
    """
    seed = 1000 * options.seed + stream
    drawn = PRIOR.sample(batch=batch, length=length, seed=seed, method="explicit")
    several = dataclasses.replace(drawn, tokens=drawn.tokens.repeat_interleave(alphabets, dim=0))
    language = opened(options.model)
    bos = bos and language.bos is not None
    return drawn, prompts(language, several, alphabet=options.alphabet, fresh=True, bos=bos, seed=seed)


def repeats(options: Options, *, batch: int, stream: int, length: int = COPY) -> Prompts:
    """Random tokens, and the same again."""
    language = opened(options.model)
    bos = language.bos is not None
    return repeated_tokens(language, batch=batch, length=length, bos=bos, seed=1000 * options.seed + stream)


def circuit_of(options: Options, given: Prompts, heads: Sequence[Head] = (), *, order: int = ORDER) -> Circuit:
    """The match heads on these prompts."""
    return Circuit(opened(options.model).model, order=order, match_heads=tuple(heads), **given.place)


def rounded(values: Iterable[Any], digits: int = 5) -> list[float]:
    """A vector as JSON."""
    return [round(float(value), digits) for value in values]


def part_of(cap: Capture, *, head: int | None = None, sequences: Any = slice(None), queries: Any = None) -> Capture:
    """The capture of one match head, of some sequences, or of some queries by token index."""
    heads = slice(None) if head is None else slice(head, head + 1)
    kept = torch.ones(len(cap.queries), dtype=torch.bool)
    if queries is not None:
        kept = torch.isin(cap.queries, torch.tensor(queries) + int(cap.bos))
    return dataclasses.replace(
        cap,
        tokens=cap.tokens[sequences],
        copy_pattern=cap.copy_pattern[:0],
        match_scores=cap.match_scores[sequences][:, heads][:, :, kept],
        match_pattern=cap.match_pattern[sequences][:, heads][:, :, kept],
        match_heads=cap.match_heads[heads],
        queries=cap.queries[kept],
    )


def fitted(cap: Capture, **how: Any) -> AttentionFit:
    """A fit whose numbers are kept however little they explain; the rows give the share explained."""
    return fit_attention(cap, min_explained=0.0, **how)


def law_columns(fit: AttentionFit) -> Row:
    """The numbers of a fit. kappa_minus_beta is kappa - |beta|: the score of BOS relative to a full match."""
    signs = np.array([-1.0 if name.startswith("beta") else float(name == "kappa") for name in fit.parameters])
    return {
        "beta": rounded(fit.beta),
        "beta_stderr": rounded(fit.stderr),
        "kappa": fit.kappa,
        "kappa_stderr": fit.kappa_stderr,
        "kappa_minus_beta": float(signs @ fit.estimates),
        "kappa_minus_beta_stderr": float(np.sqrt(signs @ fit.covariance @ signs)),
        "nats": fit.nats,
        "nats_explained": fit.nats_explained,
        "nats_explained_stderr": fit.nats_explained_stderr,
        "observed": rounded(fit.observed),
        "predicted": rounded(fit.predicted),
        "mass_gap": fit.mass_gap,
        "message": fit.message,
        "n": fit.sequences,
    }
