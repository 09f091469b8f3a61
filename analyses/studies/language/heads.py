"""(b) Which heads match, and by which law? The scan, and for the best heads fits of three laws to their attention.

Rows of kind `head` are the scan of `analyses.studies.language.scanning`, one for each head. Rows of kind `law` are the
best heads' attention on chains: beta and kappa of the additive law with their errors, kappa - |beta| (BOS against a
full match), the same fitted twice on disjoint sequences, masses by overlap observed and predicted, how far single
queries are off, and the additive, suffix and free laws on held-out sequences, with and without lag 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from analyses.studies.language.scanning import chain_scan
from analyses.studies.language.task import FIRST_QUERY, LENGTH, Options, Row, best_heads, chains, circuit_of, rounded

if TYPE_CHECKING:
    from analyses.running.cache import Cache
    from interp.circuit.capture import Capture
    from interp.fitting.attention_fit import AttentionFit

STEP = 4  # of the queries, every fourth is fitted


def rows(options: Options, cache: Cache) -> list[Row]:
    """The scan, and the laws of the best heads."""
    import torch

    from interp.circuit.capture import capture
    from interp.circuit.circuit import head_name

    found: list[Row] = [{"part": "heads", "kind": "head", **row} for row in chain_scan(options, cache)]
    best = best_heads(options, cache)
    _, given = chains(options, batch=options.batch + options.batch // 3, stream=4)
    cap = capture(circuit_of(options, given, best), given.tokens, query=range(FIRST_QUERY, LENGTH, STEP))
    half = torch.arange(len(given.tokens)) % 2 == 0
    for place, head in enumerate(best):
        one = only_head(cap, place)
        found.append({"part": "heads", "kind": "law", "name": head_name(head), **_laws(one, half)})
    return found


def only_head(cap: Capture, place: int) -> Capture:
    """The capture with one of its match heads."""
    import dataclasses

    return dataclasses.replace(
        cap,
        match_scores=cap.match_scores[:, place : place + 1],
        match_pattern=cap.match_pattern[:, place : place + 1],
        match_heads=cap.match_heads[place : place + 1],
    )


def some(cap: Capture, chosen: Any) -> Capture:
    """The capture of some of its sequences."""
    import dataclasses

    return dataclasses.replace(
        cap,
        tokens=cap.tokens[chosen],
        copy_pattern=cap.copy_pattern[:0],
        match_scores=cap.match_scores[chosen],
        match_pattern=cap.match_pattern[chosen],
    )


def fitted(cap: Capture, *, law: Any = "additive", own: bool = False) -> AttentionFit:
    """A fit whose numbers are kept however little they explain; the rows give the share explained."""
    from interp.fitting.attention_fit import fit_attention

    return fit_attention(cap, law=law, own=own, min_explained=0.0)


def full_match(fit: AttentionFit) -> tuple[float, float]:
    """kappa - |beta|: the score of BOS relative to a full match, and its error."""
    import numpy as np

    weights = np.array(
        [-1.0 if name.startswith("beta") else 1.0 if name == "kappa" else 0.0 for name in fit.parameters]
    )
    return float(weights @ fit.estimates), float(np.sqrt(weights @ fit.covariance @ weights))


def _laws(cap: Capture, half: Any) -> Row:
    """Everything about one head."""
    import numpy as np

    from interp.instruments.compare_laws import compare_laws

    fit, own = fitted(cap), fitted(cap, own=True)
    twice = [fitted(some(cap, chosen)) for chosen in (half, ~half)]
    spread = np.sqrt(twice[0].stderr ** 2 + twice[1].stderr ** 2)
    laws, laws_own = compare_laws(cap), compare_laws(cap, own=True)
    strength = full_match(fit)
    return {
        "beta": rounded(fit.beta),
        "beta_stderr": rounded(fit.stderr),
        "kappa": fit.kappa,
        "kappa_stderr": fit.kappa_stderr,
        "kappa_minus_beta": strength[0],
        "kappa_minus_beta_stderr": strength[1],
        "halves": [rounded(one.beta) for one in twice],
        "halves_apart": rounded(np.abs(twice[0].beta - twice[1].beta) / spread),
        "nats": fit.nats,
        "nats_explained": fit.nats_explained,
        "nats_explained_stderr": fit.nats_explained_stderr,
        "lag_0": own.own,
        "lag_0_stderr": own.own_stderr,
        "nats_explained_with_lag_0": own.nats_explained,
        "groups": list(fit.groups),
        "observed": rounded(fit.observed),
        "predicted": rounded(fit.predicted),
        "mass_gap": fit.mass_gap,
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
        "n": fit.sequences,
        "queries": fit.queries,
        "message": fit.message,
    }


def _query_gap(cap: Capture, fit: AttentionFit) -> float:
    """Mean over queries of the total variation distance between observed and predicted mass by overlap and BOS."""
    import numpy as np

    from interp.fitting.attention_fit import AttentionFitter

    fitter = AttentionFitter(cap, law="additive", position=False, own=False)
    theta = fit.estimates[None]
    if not np.isfinite(theta).all():
        return float("nan")
    predicted = fitter.likelihood.masses(theta)[0] @ fitter.sizes
    return float(np.abs(fitter.rows.shares @ fitter.sizes - predicted).sum(axis=1).mean() / 2)
