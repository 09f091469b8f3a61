"""Every head on chains and on repeated tokens, with a control: the same attention against another sequence's masks.

The scan is that of `ip.scan_heads`; model and hooks run once, and the statistics are gathered twice, with the masks of
each sequence's own tokens and with those of another sequence. An effect of matches shows only in the first; an effect
of positions alone shows in both. On repeated tokens the order is 1: within a period each token occurs once, so that
lag 2 matches wherever lag 1 does.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from analyses.studies.language.case import FIRST_QUERY, Case, Row, others
from interp.circuit.circuit import Circuit
from interp.circuit.runner import observe
from interp.fitting.scan_statistics import ScanStatistics
from interp.instruments.scan_heads import COPY_LAGS, HeadScan, judged
from interp.language.prompts import Prompts

QUERY_STEP = 2  # every second query is read
COLUMNS = ("r2_match", "nats", "nats_explained", "beta", "kappa", "induction")


def rows(case: Case, part: str) -> list[Row]:
    """One row for each head and kind of prompt."""
    _, chains = case.chains(batch=case.options.batch, stream=1)
    repeats, queries = case.repeats(batch=case.options.batch, stream=2)
    every_second = range(FIRST_QUERY, chains.tokens.shape[1], QUERY_STEP)
    return [
        *_heads("chains", case.circuit(chains, order=case.options.order), chains, every_second),
        *_heads("repeats", case.circuit(repeats, order=1), repeats, queries),
    ]


def _heads(text: str, circuit: Circuit, given: Prompts, queries: Iterable[int]) -> list[Row]:
    scan, control = with_control(circuit, given.tokens, queries)
    return [
        {
            "kind": "head",
            "text": text,
            "layer": at[0],
            "head": at[1],
            "role": scan.role[at[0]][at[1]],
            "copy_lag": int(scan.copy_lag[at]),
            "copy_mass": scan.copy_mass[at].max(),
            **{name: getattr(scan, name)[at] for name in COLUMNS},
            "control_role": control.role[at[0]][at[1]],
            "control_explained": control.nats_explained[at],
            "n": scan.n,
        }
        for at in scan.heads
    ]


def with_control(circuit: Circuit, tokens: torch.Tensor, queries: Iterable[int]) -> tuple[HeadScan, HeadScan]:
    """The scan, and the scan with the masks of another sequence, from one run of the model."""
    places = torch.tensor(list(queries)) + int(circuit.has_bos)
    own, other = (ScanStatistics(circuit, one, places, lags=COPY_LAGS) for one in (tokens, others(tokens)))
    observe(circuit, tokens, hooks=lambda part: own.hooks(part) + other.hooks(part), last_layer=own.layers[-1])
    return judged(own), judged(other)
