"""Which heads match, and by which law? The scan, fits of laws to the best heads' attention, and the sink at BOS.

head      the scan of `analyses.studies.language.scanning`, one row for each head
law       the best heads' attention on chains: the additive law with its errors, the same fitted twice on disjoint
          sequences, masses by overlap observed and predicted, how far single queries are off, and the additive,
          suffix and free laws on held-out sequences, with and without lag 0
band      the law without a positional term within bands of query positions of long chains, and the mass on BOS. If the
          head were add-alpha with a constant number of pseudo-counts, kappa would not depend on the position
without   shorter chains with and without BOS: the attention on the very first key and the next, beta, and the KL of
          the model's prediction to the truth. Without BOS the first token may act as BOS
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from analyses.running.cache import Cache
from analyses.studies.language.scanning import best_heads, chain_scan
from analyses.studies.language.task import (
    FIRST_QUERY,
    LENGTH,
    Row,
    chains,
    circuit_of,
    fitted,
    law_columns,
    opened,
    part_of,
    rounded,
)
from analyses.studies.language_model import Options
from interp.circuit.capture import Capture, capture
from interp.circuit.circuit import head_name
from interp.circuit.runner import predict
from interp.divergence import kl_divergence
from interp.fitting.candidates import attention_rows
from interp.fitting.fits import AttentionFit
from interp.fitting.laws import law_design
from interp.fitting.likelihood import Likelihood
from interp.instruments.compare_laws import compare_laws
from interp.results import mean_stderr

STEP = 4  # of the queries, every fourth is fitted
LONG = 320
BANDS = ((8, 16), (16, 32), (32, 64), (64, 128), (128, 224), (224, 320))
BAND_QUERIES = 8  # in each band
SHORT = 96


def head_rows(options: Options, cache: Cache) -> list[Row]:
    """The scan, and the laws of the best heads."""
    best = best_heads(options, cache)
    _, given = chains(options, batch=options.batch + options.batch // 3, stream=4)
    cap = capture(circuit_of(options, given, best), given.tokens, query=range(FIRST_QUERY, LENGTH, STEP))
    return [
        *({"part": "heads", "kind": "head", **row} for row in chain_scan(options, cache)),
        *(
            {"part": "heads", "kind": "law", "name": head_name(head), **_laws(part_of(cap, head=place))}
            for place, head in enumerate(best)
        ),
    ]


def _laws(cap: Capture) -> Row:
    """Everything about one head."""
    half = torch.arange(len(cap.tokens)) % 2 == 0
    fit, own = fitted(cap), fitted(cap, own=True)
    one, other = (fitted(part_of(cap, sequences=chosen)) for chosen in (half, ~half))
    laws, laws_own = compare_laws(cap), compare_laws(cap, own=True)
    return {
        **law_columns(fit),
        "halves": [rounded(one.beta), rounded(other.beta)],
        "halves_apart": rounded(np.abs(one.beta - other.beta) / np.hypot(one.stderr, other.stderr)),
        "lag_0": own.own,
        "lag_0_stderr": own.own_stderr,
        "nats_explained_with_lag_0": own.nats_explained,
        "groups": list(fit.groups),
        "query_gap": _query_gap(cap, fit),
        "early": fit.early,
        "law_best": laws.best,
        "law_told": laws.success,
        "laws": list(laws.laws),
        "held_out": rounded(laws.nats_explained),
        "held_out_stderr": rounded(laws.stderr),
        "behind": rounded(laws.behind, 6),
        "behind_stderr": rounded(laws.behind_stderr, 6),
        "held_out_with_lag_0": rounded(laws_own.nats_explained),
        "queries": fit.queries,
    }


def _query_gap(cap: Capture, fit: AttentionFit) -> float:
    """Mean over queries of the total variation distance between observed and predicted mass by overlap and BOS."""
    rows, _ = attention_rows(cap, position=False)
    law = law_design("additive", order=cap.order, bos=cap.has_sink)
    theta = fit.estimates[None]
    if not np.isfinite(theta).all():
        return float("nan")
    apart = (rows.shares - Likelihood(rows, law.design).law(theta).masses)[rows.kept]
    return float(np.abs(apart @ law.sizes).sum(axis=1).mean() / 2)


def sink_rows(options: Options, cache: Cache) -> list[Row]:
    """Bands, then with and without BOS."""
    if opened(options.model).bos is None:
        return [{"part": "sink", "kind": "none", "message": "this model has no BOS token"}]
    heads = best_heads(options, cache)
    _, given = chains(options, batch=options.batch // 2, length=LONG, stream=11)
    bands = {(low, high): list(range(low, high, max(1, (high - low) // BAND_QUERIES))) for low, high in BANDS}
    cap = capture(
        circuit_of(options, given, heads), given.tokens, query=[one for band in bands.values() for one in band]
    )
    found: list[Row] = []
    for (low, high), queries in bands.items():
        for place, head in enumerate(heads):
            one = part_of(cap, head=place, queries=queries)
            columns = {**law_columns(fitted(one, position=False)), **_mass_on(one, 0, "bos_mass")}
            found.append(
                {"part": "sink", "kind": "band", "name": head_name(head), "from": low, "to": high - 1, **columns}
            )
    for bos in (True, False):
        drawn, given = chains(options, batch=options.batch // 2, length=SHORT, bos=bos, stream=12)
        circuit = circuit_of(options, given, heads)
        cap = capture(circuit, given.tokens, query=range(SHORT // 2, SHORT, 4))
        kl = kl_divergence(drawn.next_law, predict(circuit, given.tokens))
        for place, head in enumerate(heads):
            one = part_of(cap, head=place)
            columns = {**law_columns(fitted(one)), **_mass_on(one, 0, "first_key"), **_mass_on(one, 1, "second_key")}
            columns |= {"kl": kl.mean, "kl_stderr": kl.stderr}
            found.append({"part": "sink", "kind": "without", "name": head_name(head), "bos": bos, **columns})
    return found


def _mass_on(cap: Capture, key: int, name: str) -> dict[str, Any]:
    """The attention on one key, mean over queries and sequences, with its error."""
    mean, stderr = mean_stderr(cap.match_pattern[:, 0, :, key].double().mean(dim=-1))
    return {name: mean, f"{name}_stderr": stderr}
