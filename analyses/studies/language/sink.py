"""(e) What does the sink at BOS do as the context grows, and what happens without BOS?

Rows of kind `band`: for each of the best heads, beta, kappa and kappa - |beta| of the additive law (without a
positional term) within bands of query positions of long chains, and the observed mass on BOS. If the head were
add-alpha with a constant number of pseudo-counts, kappa would not depend on the position.

Rows of kind `without`: the same chains, shorter, with and without BOS: the attention on the very first key, on early
keys, beta, and the KL of the model's prediction to the truth. Without BOS the first token may act as BOS.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from analyses.studies.language.heads import fitted, full_match, only_head
from analyses.studies.language.task import Options, Row, best_heads, chains, circuit_of, opened, rounded

if TYPE_CHECKING:
    from analyses.running.cache import Cache
    from interp.circuit.capture import Capture

LONG = 320
BANDS = ((8, 16), (16, 32), (32, 64), (64, 128), (128, 224), (224, 320))
QUERIES = 8  # in each band
SHORT = 96


def rows(options: Options, cache: Cache) -> list[Row]:
    """Bands, then with and without BOS."""
    if opened(options.model).bos is None:
        return [{"part": "sink", "kind": "none", "message": "this model has no BOS token"}]
    return _bands(options, cache) + _without(options, cache)


def _bands(options: Options, cache: Cache) -> list[Row]:
    from interp.circuit.capture import capture
    from interp.circuit.circuit import head_name
    from interp.fitting.attention_fit import fit_attention
    from interp.results import mean_stderr

    heads = best_heads(options, cache)
    _, given = chains(options, batch=options.batch // 2, length=LONG, stream=11)
    bands = [list(range(low, high, max(1, (high - low) // QUERIES))) for low, high in BANDS]
    cap = capture(circuit_of(options, given, heads), given.tokens, query=[query for band in bands for query in band])
    found = []
    for (low, high), queries in zip(BANDS, bands, strict=True):
        for place, head in enumerate(heads):
            one = at_queries(only_head(cap, place), queries)
            fit = fit_attention(one, position=False, min_explained=0.0)
            bos = mean_stderr(one.match_pattern[:, 0, :, 0].double().mean(dim=-1))
            strength = full_match(fit)
            found.append(
                {
                    "part": "sink",
                    "kind": "band",
                    "name": head_name(head),
                    "from": low,
                    "to": high - 1,
                    "beta": rounded(fit.beta),
                    "beta_stderr": rounded(fit.stderr),
                    "kappa": fit.kappa,
                    "kappa_stderr": fit.kappa_stderr,
                    "kappa_minus_beta": strength[0],
                    "kappa_minus_beta_stderr": strength[1],
                    "bos_mass": bos[0],
                    "bos_mass_stderr": bos[1],
                    "nats_explained": fit.nats_explained,
                    "message": fit.message,
                    "n": fit.sequences,
                }
            )
    return found


def at_queries(cap: Capture, queries: list[int]) -> Capture:
    """The capture at some of its queries, by token index."""
    import dataclasses

    import torch

    kept = torch.isin(cap.queries, torch.tensor(queries) + int(cap.bos))
    return dataclasses.replace(
        cap,
        match_scores=cap.match_scores[:, :, kept],
        match_pattern=cap.match_pattern[:, :, kept],
        queries=cap.queries[kept],
    )


def _without(options: Options, cache: Cache) -> list[Row]:
    from interp.circuit.capture import capture
    from interp.circuit.circuit import head_name
    from interp.circuit.runner import predict
    from interp.divergence import kl_divergence
    from interp.results import mean_stderr

    heads = best_heads(options, cache)
    found = []
    for bos in (True, False):
        drawn, given = chains(options, batch=options.batch // 2, length=SHORT, bos=bos, stream=12)
        circuit = circuit_of(options, given, heads)
        cap = capture(circuit, given.tokens, query=range(SHORT // 2, SHORT, 4))
        kl = kl_divergence(drawn.next_law, predict(circuit, given.tokens))
        for place, head in enumerate(heads):
            one = only_head(cap, place)
            fit = fitted(one)
            first = mean_stderr(one.match_pattern[:, 0, :, 0].double().mean(dim=-1))
            second = mean_stderr(one.match_pattern[:, 0, :, 1].double().mean(dim=-1))
            found.append(
                {
                    "part": "sink",
                    "kind": "without",
                    "name": head_name(head),
                    "bos": bos,
                    "first_key": first[0],
                    "first_key_stderr": first[1],
                    "second_key": second[0],
                    "second_key_stderr": second[1],
                    "beta": rounded(fit.beta),
                    "beta_stderr": rounded(fit.stderr),
                    "nats_explained": fit.nats_explained,
                    "kl": kl.mean,
                    "kl_stderr": kl.stderr,
                    "message": fit.message,
                    "n": fit.sequences,
                }
            )
    return found
