"""Every head on chains, with a control: the same attention against the masks of another sequence.

The scan is that of `ip.scan_heads`; model and hooks run once, and the statistics are gathered twice, with the masks of
each sequence's own tokens and with those of the next sequence. An effect of matches shows only in the first; an effect
of positions alone shows in both.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch

from analyses.running.cache import Cache
from analyses.studies.language.task import FIRST_QUERY, LENGTH, ORDER, Row, chains, opened, repeats
from analyses.studies.language_model import Options, weights
from interp.circuit.circuit import Circuit, Head
from interp.circuit.runner import observe
from interp.fitting.scan_statistics import ScanStatistics
from interp.instruments.scan_heads import COPY_LAGS, HeadScan, judged, scan_heads
from interp.language.load import LanguageModel, load_language_model
from interp.language.prompts import Prompts
from interp.results import jsonable

QUERY_STEP = 2  # every second query is read
COLUMNS = ("r2_match", "nats", "nats_explained", "nats_explained_stderr", "mass_gap", "induction", "induction_stderr",
           "beta", "beta_stderr", "kappa")  # fmt: skip


def chain_scan(options: Options, cache: Cache) -> list[Row]:
    """One row per head, from the cache where it is known."""
    key = {"what": "language-scan", "options": options.shaping(), "weights": weights(options)}
    found: list[Row] = cache.value(key, partial(_chain_scan, options))
    return found


def best_heads(options: Options, cache: Cache) -> list[Head]:
    """The heads whose scores matches explain best on chains, the best first."""
    ranked = sorted(chain_scan(options, cache), key=lambda row: -(row["r2_match"] or 0.0))
    return [(row["layer"], row["head"]) for row in ranked[: options.heads]]


def _chain_scan(options: Options) -> list[Row]:
    language = opened(options.model)
    scan, control = scan_with_control(language, chains(options, batch=options.batch, stream=1)[1])
    twice = repeats(options, batch=max(10, options.batch // 2), stream=2)
    half = twice.tokens.shape[1] // 2
    # On the second copy of repeated tokens, at order 1, the induction score is the classical one.
    classical = scan_heads(language.model, twice.tokens, order=1, query=range(half, 2 * half - 1), **twice.place)
    return [
        jsonable(
            {
                "layer": at[0],
                "head": at[1],
                "role": scan.role[at[0]][at[1]],
                "copy_lag": int(scan.copy_lag[at]),
                "copy_mass": scan.copy_mass[at].max(),
                **{name: getattr(scan, name)[at] for name in COLUMNS},
                "control_r2_match": control.r2_match[at],
                "control_nats_explained": control.nats_explained[at],
                "induction_even": scan.induction_even,
                "repeat_induction": classical.induction[at],
                "repeat_induction_stderr": classical.induction_stderr[at],
            }
        )
        for at in scan.heads
    ]


def scan_with_control(language: LanguageModel, given: Prompts) -> tuple[HeadScan, HeadScan]:
    """The scan, and the scan with the masks of the next sequence, from one run of the model."""
    circuit = Circuit(language.model, order=ORDER, **given.place)
    tokens = circuit.check(given.tokens)
    queries = torch.arange(FIRST_QUERY, tokens.shape[1], QUERY_STEP) + int(circuit.has_bos)
    own, other = (ScanStatistics(circuit, one, queries, lags=COPY_LAGS) for one in (tokens, tokens.roll(1, dims=0)))
    observe(circuit, tokens, hooks=lambda rows: own.hooks(rows) + other.hooks(rows), last_layer=own.layers[-1])
    return judged(own), judged(other)


def random_rows(options: Options, cache: Cache) -> list[Row]:
    """The same scan on the same architecture with random weights: nothing may match."""
    _, given = chains(options, batch=max(10, options.batch // 2), length=LENGTH // 2, stream=1)
    scan, _ = scan_with_control(load_language_model(options.model, random_seed=options.seed), given)
    row: Row = {
        "part": "random",
        "heads": len(scan.heads),
        "matching": len(scan.match_heads),
        "largest_r2_match": float(np.nanmax(scan.r2_match)),
        "largest_nats_explained": float(np.nanmax(np.where(scan.nats > 0.02, scan.nats_explained, 0.0))),
        "sequences": scan.n,
    }
    return [row]
