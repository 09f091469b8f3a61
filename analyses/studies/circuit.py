"""The two-layer circuit on one short sequence: what is copied, what matches, and which keys vote.

    python -m analyses circuit
    python -m analyses circuit --length 16 --beta 2 1 --kappa 2.5

One sequence from the hierarchical prior goes through the construction of prop:transformer_estimator with BOS, a real
HookedTransformer, and its attention is captured (fig:two_layer_circuit). beta and kappa are the optimum of the
population loss at this length unless they are given. Of --batch sequences the first is taken whose last k tokens differ
and in which a full, a partial and an empty match of these stand at least k + 1 positions apart, and as far from the
end, so that a picture can show what each of them copies. The row compares what was captured with the closed form: each
candidate's attention over that of an empty match against exp(|beta|_M), and the votes added up against
eq:transformer_estimator.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import interp as ip
from analyses.running.ask import Ask
from analyses.running.cache import Cache
from analyses.running.options import ChainOptions, option
from analyses.running.subject import DEFAULT_ETA
from analyses.running.table import Table
from interp.notation import key_kinds

SHOWN_KINDS = ("full", "partial", "none")
Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Options(ChainOptions):
    order: int = option(2, "order of the chain (default: %(default)s)", metavar="K", least=2)
    vocab: int = option(3, "vocabulary size (default: %(default)s)", metavar="V", least=2)
    length: int = option(12, "tokens (default: %(default)s)", metavar="T", least=3)
    eta: float = option(DEFAULT_ETA, "of the prior, at every level (default: %(default)s)")
    beta: tuple[float, ...] | None = option(None, "match weights, lag 1 first (default: the optimum)", metavar="B")
    kappa: float | None = option(None, "score of BOS (default: the optimum)", metavar="X")
    draws: int = option(100_000, "for the optimum (default: %(default)s)", metavar="N", least=2)


ASK = Ask(cost=0.2)


def study(options: Options, cache: Cache) -> Table:
    """One row: the sequence, the attention, and how far both are from the closed form."""
    order, vocab, length = options.order, options.vocab, options.length
    prior = ip.HierarchicalDirichlet(order=order, vocab=vocab, eta=(options.eta,) * order)
    chains = prior.sample(batch=options.batch, length=length, seed=options.seed, method="explicit")
    masks = ip.match_masks(chains.tokens, order=order)
    kinds = [key_kinds(row.numpy(), order=order, bos=True) for row in masks]
    place, shown = first_to_show(chains.tokens.tolist(), kinds, order=order)
    tokens = chains.tokens[place : place + 1]
    beta, kappa, source = parameters(options, prior)
    model = ip.construct(order=order, vocab=vocab, length=length, beta=beta, kappa=kappa)
    cap = ip.capture(model, tokens)
    keys = key_rows(cap, kinds=kinds[place], masks=masks[place].tolist(), beta=beta, kappa=kappa)
    votes = votes_by_kind(keys, vocab=vocab)
    aggregated = [sum(votes[kind][symbol] for kind in votes) for symbol in range(vocab)]
    estimator = ip.soft_matching(tokens, vocab=vocab, beta=beta, kappa=kappa)[0]
    predicted = ip.predict(model, tokens)[0]
    row = {
        "order": order,
        "vocab": vocab,
        "length": length,
        "prior": prior.to_dict(),
        "beta": list(beta),
        "kappa": kappa,
        "parameters": source,
        "tokens": tokens[0].tolist(),
        "sequence": place,
        "keys": keys,
        "shown": shown,
        "copies": [copies(cap, position) for position in [*shown, length]],
        "votes": votes,
        "aggregated": aggregated,
        "predicted": predicted.tolist(),
        "estimator": estimator.tolist(),
        "truth": chains.next_law[place].tolist(),
        "least_copy": least_copy(cap),
        "largest_ratio_error": largest_ratio_error(keys),
        "to_estimator": max(abs(a - b) for a, b in zip(aggregated, estimator.tolist(), strict=True)),
        "model_to_estimator": float((predicted - estimator).abs().max()),
    }
    return Table(
        rows=[row],
        provenance={"prior": prior.to_dict(), "sequence": place},
        shown=("beta_1", "beta_2", "kappa", "least_copy", "largest_ratio_error", "to_estimator", "model_to_estimator"),
        notes=["largest_ratio_error is of ln(ratio); to_estimator of the votes, model_to_estimator of the readout"],
    )


def first_to_show(
    sequences: Sequence[Sequence[int]], kinds_of: Sequence[Sequence[str]], *, order: int
) -> tuple[int, list[int]]:
    """The first sequence with a full, a partial and an empty match well apart, and their positions in that order.

    The last k tokens must differ; otherwise a match at one lag could be mistaken for a match at another. The kinds have
    BOS first, so that indices are positions.
    """
    apart = order + 1
    for place, (tokens, kinds) in enumerate(zip(sequences, kinds_of, strict=True)):
        last = len(kinds) - 1 - apart
        found = [[at for at, kind in enumerate(kinds) if kind == wanted and at <= last] for wanted in SHOWN_KINDS]
        for positions in itertools.product(*found) if len(set(tokens[-order:])) == order else ():
            if all(abs(a - b) >= apart for a, b in itertools.combinations(positions, 2)):
                return place, list(positions)
    raise ValueError(
        f"none of {len(kinds_of)} sequences ends in different tokens and has a full, a partial and an empty match "
        f"of them {apart} positions apart; expected a larger --batch, --length or --vocab"
    )


def parameters(options: Options, prior: ip.Prior) -> tuple[tuple[float, ...], float, str]:
    """beta, kappa, and where they come from: the options, or the optimum at this length."""
    if options.beta is not None and options.kappa is not None:
        if len(options.beta) != options.order:
            raise ValueError(f"--beta needs a number for each of {options.order} lags, got {len(options.beta)}")
        return options.beta, options.kappa, "given"
    if options.beta is not None or options.kappa is not None:
        raise ValueError("--beta and --kappa belong together: expected both or neither")
    best = ip.optimal_parameters(prior, length=options.length, bos=True, draws=options.draws, seed=options.seed)
    if not best.success:
        raise ValueError(f"no optimum found ({best.message}); give --beta and --kappa")
    beta, kappa = best.usable()
    assert kappa is not None
    return beta, kappa, "optimal"


def key_rows(
    cap: ip.Capture, *, kinds: Sequence[str], masks: Sequence[int], beta: Sequence[float], kappa: float
) -> list[Row]:
    """The keys of the last query. `ratio` is the measured attention over that of the empty matches.

    `expected` is what the ratio should be: exp(|beta|_M) for a candidate, exp(kappa) for BOS, 0 for an early key.
    """
    tokens = cap.tokens[0].tolist()
    weights = cap.match_pattern[0, 0, -1].tolist()
    empty = [weight for weight, kind in zip(weights, kinds, strict=True) if kind == "none"]
    unit = sum(empty) / len(empty)
    rows: list[Row] = []
    for position, (kind, weight) in enumerate(zip(kinds, weights, strict=True)):
        every = range(1, cap.order + 1) if kind in SHOWN_KINDS else ()
        lags = [lag for lag in every if masks[position - 1] >> (lag - 1) & 1]
        score = {"bos": kappa, "early": -math.inf}.get(kind, sum(beta[lag - 1] for lag in lags))
        rows.append(
            {
                "position": position,
                "token": None if kind == "bos" else tokens[position - 1],
                "kind": kind,
                "context": [tokens[position - 1 - lag] for lag in every] or None,
                "lags": lags,
                "weight": weight,
                "ratio": weight / unit,
                "expected": math.exp(score),
            }
        )
    return rows


def copies(cap: ip.Capture, position: int) -> Row:
    """What a position holds after the copy layer: its own token, and what each head brings, with its attention.

    Head h is at lag h + 1. The token is the one at the position that the head attends to most, as captured.
    """
    tokens = cap.tokens[0].tolist()
    heads = []
    for head in range(cap.order):
        pattern = cap.copy_pattern[0, head, position]
        source = int(pattern.argmax())
        token = tokens[source - 1] if source else None
        heads.append({"lag": head + 1, "source": source, "token": token, "weight": float(pattern[source])})
    return {"position": position, "token": tokens[position - 1], "heads": heads}


def least_copy(cap: ip.Capture) -> float:
    """The least attention of a copy head on its lag, over all positions that have a token there."""
    return min(float(cap.copy_pattern[0, head].diagonal(-(head + 1)).min()) for head in range(cap.order))


def votes_by_kind(keys: Sequence[Row], *, vocab: int) -> dict[str, list[float]]:
    """The attention that falls on each symbol, by the kind of key it comes from; BOS votes for all symbols alike."""
    votes = {kind: [0.0] * vocab for kind in (*SHOWN_KINDS, "early", "bos")}
    for key in keys:
        for symbol in range(vocab) if key["token"] is None else [key["token"]]:
            votes[key["kind"]][symbol] += key["weight"] / (vocab if key["token"] is None else 1)
    return votes


def largest_ratio_error(keys: Sequence[Row]) -> float:
    """The largest |ln ratio - ln expected| over candidates and BOS."""
    return max(abs(math.log(key["ratio"] / key["expected"])) for key in keys if key["kind"] != "early")
