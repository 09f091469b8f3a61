"""Every head on chains, with a control: the same attention against the masks of another sequence.

The scan is that of `ip.scan_heads`; model and hooks run once, and the statistics are gathered twice, with the masks of
each sequence's own tokens and with those of the next sequence. An effect of matches shows only in the first; an effect
of positions alone shows in both.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from analyses.studies.language.task import FIRST_QUERY, LENGTH, ORDER, Options, Row, chains, opened, repeats, weights

if TYPE_CHECKING:
    from analyses.running.cache import Cache
    from interp.instruments.head_scan import HeadScan
    from interp.language.load import LanguageModel
    from interp.language.prompts import Prompts

QUERY_STEP = 2  # every second query is read
SHOWN = ("r2_match", "nats", "nats_explained", "mass_gap", "induction")


def chain_scan(options: Options, cache: Cache) -> list[Row]:
    """One row per head, from the cache where it is known."""
    key = {"what": "language-scan", "options": options.shaping(), "weights": weights(options)}
    found: list[Row] = cache.value(key, partial(_chain_scan, options))
    return found


def _chain_scan(options: Options) -> list[Row]:
    _, given = chains(options, batch=options.batch, stream=1)
    scan, control = scan_with_control(opened(options.model), given)
    twice = repeats(options, batch=max(10, options.batch // 2), stream=2)
    classical = repeated_scan(opened(options.model), twice)
    return [scan_row(at, scan, control, classical) for at in scan.heads]


def scan_row(at: tuple[int, int], scan: HeadScan, control: HeadScan, classical: HeadScan) -> Row:
    """What is kept of one head."""
    from interp.results import jsonable

    layer, head = at
    row = {
        "layer": layer,
        "head": head,
        "role": scan.role[layer][head],
        "copy_lag": int(scan.copy_lag[at]),
        "copy_mass": scan.copy_mass[at][scan.copy_lag[at] - 1],
        **{name: getattr(scan, name)[at] for name in SHOWN},
        "nats_explained_stderr": scan.nats_explained_stderr[at],
        "induction_stderr": scan.induction_stderr[at],
        "beta": scan.beta[at],
        "beta_stderr": scan.beta_stderr[at],
        "kappa": scan.kappa[at],
        "control_r2_match": control.r2_match[at],
        "control_nats_explained": control.nats_explained[at],
        "induction_even": scan.induction_even,
        "repeat_induction": classical.induction[at],
        "repeat_induction_stderr": classical.induction_stderr[at],
    }
    found: Row = jsonable(row)
    return found


def scan_with_control(language: LanguageModel, given: Prompts) -> tuple[HeadScan, HeadScan]:
    """The scan, and the scan with the masks of the next sequence, from one run of the model."""
    import torch

    from interp.circuit.circuit import Circuit
    from interp.circuit.runner import parts
    from interp.fitting.scan_statistics import ScanStatistics
    from interp.instruments.scan_heads import COPY_LAGS, LayerFitter, assembled

    circuit = Circuit(language.model, order=ORDER, **given.place)
    tokens = circuit.check(given.tokens)
    queries = torch.arange(FIRST_QUERY, tokens.shape[1], QUERY_STEP) + int(circuit.has_bos)
    own, other = (ScanStatistics(circuit, one, queries, lags=COPY_LAGS) for one in (tokens, tokens.roll(1, dims=0)))
    with torch.no_grad():
        for rows in parts(circuit, tokens):
            hooks = [hook for one in (own, other) for hook in one.hooks(one.token_part(rows))]
            circuit.model.run_with_hooks(
                circuit.ids(tokens[rows], rows), prepend_bos=False, return_type=None, fwd_hooks=hooks
            )
    return tuple(assembled(LayerFitter(one)) for one in (own, other))  # type: ignore[return-value]


def repeated_scan(language: LanguageModel, given: Prompts) -> HeadScan:
    """The scan on the second copy of repeated tokens, order 1: its induction score is the classical one."""
    from interp.instruments.scan_heads import scan_heads

    length = given.tokens.shape[1]
    return scan_heads(language.model, given.tokens, order=1, query=range(length // 2, length - 1), **given.place)


def random_rows(options: Options, cache: Cache) -> list[Row]:
    """The same scan on the same architecture with random weights: nothing may match."""
    from interp.language.load import load_language_model

    _, given = chains(options, batch=max(10, options.batch // 2), length=LENGTH // 2, stream=1)
    language = load_language_model(options.model, random_seed=options.seed)
    scan, _ = scan_with_control(language, given)
    import numpy as np

    row: dict[str, Any] = {
        "part": "random",
        "heads": len(scan.heads),
        "matching": len(scan.match_heads),
        "largest_r2_match": float(np.nanmax(scan.r2_match)),
        "largest_nats_explained": float(np.nanmax(np.where(scan.nats > 0.02, scan.nats_explained, 0.0))),
        "sequences": scan.n,
    }
    return [row]
