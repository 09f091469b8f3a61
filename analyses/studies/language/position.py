"""The sink of the match heads on chains: does kappa depend on the position, and what takes the place of BOS?

band      the law without a positional term within bands of query positions of long chains, and the mass on the first
          key. If a head were add-alpha with a constant number of pseudo-counts, kappa would not depend on the position
without   shorter chains with and without BOS: the attention on the first two keys and beta. Without BOS the first token
          may act as BOS
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from analyses.studies.language.case import Case, Row
from analyses.studies.language.heads import head_laws
from interp.circuit.capture import Capture, capture
from interp.results import mean_stderr

BANDS = ((8, 16), (16, 32), (32, 64), (64, 128), (128, 224), (224, 320))
BAND_QUERIES = 8  # in each band


def rows(case: Case, part: str) -> list[Row]:
    """Bands, then with and without BOS; nothing where no head matches, or without BOS."""
    heads, order = case.heads("match"), case.options.order
    if not heads or not case.bos:
        return []
    found: list[Row] = []
    _, given = case.chains(batch=case.options.batch // 2, length=BANDS[-1][1], stream=11)
    circuit = case.circuit(given, heads, order=order)
    bands = [
        range(low, high, max(1, (high - low) // BAND_QUERIES)) for low, high in BANDS if high <= given.tokens.shape[1]
    ]
    cap = capture(circuit, given.tokens, query=[one for band in bands for one in band], copies=False)
    for band in bands:
        place = {"kind": "band", "from": band.start, "to": band.stop - 1}
        found += [{**place, **row} for row in laws(at_queries(cap, band), position=False)]
    for bos in (True, False):
        _, given = case.chains(batch=case.options.batch // 2, bos=bos, stream=12)
        length = given.tokens.shape[1]
        circuit = case.circuit(given, heads, order=order)
        cap = capture(circuit, given.tokens, query=range(length // 2, length, 4), copies=False)
        found += [{"kind": "without", "bos": bos, **row} for row in laws(cap)]
    return found


def laws(cap: Capture, **how: Any) -> Iterator[Row]:
    """The law of each head, and its attention on the first two keys."""
    seen = cap.match_pattern.double().mean(dim=2)
    for place, row in enumerate(head_laws(cap, **how)):
        for key, name in enumerate(("first_key", "second_key")):
            row[name], row[f"{name}_stderr"] = mean_stderr(seen[:, place, key])
        yield row


def at_queries(cap: Capture, queries: Sequence[int]) -> Capture:
    """The capture of some of its queries."""
    kept = torch.isin(cap.queries, torch.tensor(queries) + int(cap.bos))
    return dataclasses.replace(
        cap,
        queries=cap.queries[kept],
        match_scores=cap.match_scores[:, :, kept],
        match_pattern=cap.match_pattern[:, :, kept],
    )
