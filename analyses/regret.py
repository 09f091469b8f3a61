"""Where the excess over Bayes comes from: contexts seen, entropy, position.

    python -m analyses regret                                          hierarchical prior, T = 64
    python -m analyses regret --prior independent:1 --length 128
    python -m analyses regret --zoo runs/mine --all-seeds

For each predictor the mean KL and its excess over the Bayes predictor, within bins of the same sequences:

    seen       how often the last context has occurred before: 0, 1, 2, 3-5, more
    entropy    of the true law, as a share of ln |V|
    position   where the prediction is made. `soft matching` keeps the parameters that are best at the full length,
               as a trained model does; `soft matching, retuned` has the best ones for that position. Models are
               read at their own length

`contribution` is the bin's share of sequences times its excess, so that it adds up to the whole excess over the bins
of `seen` or of `entropy`; `contribution_share` is its part of that.
"""

from __future__ import annotations

import argparse
import itertools
from typing import TYPE_CHECKING, Any

from analyses.cache import Cache
from analyses.command import whole_number
from analyses.subject import Study
from analyses.yardstick import (
    Predictor,
    Sequences,
    Trained,
    add_common_arguments,
    add_shape_arguments,
    add_zoo_argument,
    alpha_of,
    excess_columns,
    measure,
    measure_bayes,
    open_cache,
    optimum,
    progress,
    remembered,
    trained_checkpoints,
)

if TYPE_CHECKING:
    import numpy as np

    from interp.chains.priors import Prior

KIND = "study"

TUNING_DRAWS = 40_000
SEEN_BINS = (("0", 0, 0), ("1", 1, 1), ("2", 2, 2), ("3-5", 3, 5), ("more", 6, None))
ENTROPY_EDGES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(batch=10_000)
    parser.add_argument(
        "--prior",
        metavar="PRIOR",
        default="hierarchical:5",
        help="independent[:ALPHA] or hierarchical[:ETA,...[:ETA0]] (default: %(default)s)",
    )
    parser.add_argument("--length", metavar="T", type=whole_number(2), default=64, help="tokens (default: 64)")
    add_shape_arguments(parser)
    parser.add_argument(
        "--draws",
        metavar="N",
        type=whole_number(16),
        default=120,
        help="posterior draws of the Bayes predictor (default: %(default)s)",
    )
    parser.add_argument(
        "--all-seeds", action="store_true", help="all checkpoints of that prior and length, not one of each kind"
    )
    add_zoo_argument(parser)
    add_common_arguments(parser)


def study(options: argparse.Namespace) -> Study:
    """The excess of every predictor, bin by bin."""
    from interp.results import provenance

    checkpoints = trained_checkpoints(options.zoo)
    digests = {checkpoint.name: checkpoint.digest for checkpoint in checkpoints}
    found = remembered("regret", options, lambda: table(options, checkpoints), checkpoints=digests)
    notes = [found["summary"]]
    if not found["models"]:
        notes.append("no trained checkpoint of this prior and length was found")
    return Study(
        rows=found["rows"],
        provenance=provenance(seed=options.seed, prior=found["prior"], checkpoints=found["models"]),
        shown=("by", "bin", "predictor", "n", "kl", "excess", "excess_stderr", "excess_share", "contribution_share"),
        notes=notes,
        failures=found["failures"],
    )


def table(options: argparse.Namespace, checkpoints: list[Trained]) -> dict[str, Any]:
    from interp.chains.priors import parse_prior

    cache = open_cache(options)
    prior = parse_prior(options.prior, order=options.order, vocab=options.vocab)
    sequences = Sequences(prior=prior, batch=options.batch, length=options.length, seed=options.seed)
    models = chosen(checkpoints, prior, length=options.length, every=options.all_seeds)
    bayes = measure_bayes(sequences, cache, draws=options.draws)
    predictors = [
        soft_matching_at(prior, options.length, "soft matching", seed=options.seed, cache=cache),
        add_alpha_of(prior),
        *(model.predictor() for model in models),
    ]
    measured = {p.name: measure(sequences, p, cache).values for p in progress(predictors, "regret")}
    rows = []
    for by, bins in (("seen", seen_bins(sequences)), ("entropy", entropy_bins(sequences))):
        for label, inside in bins:
            for name, values in {"bayes": bayes.values, **measured}.items():
                if inside.any():
                    rows.append(bin_row(by, label, name, values, bayes.values, inside))
    rows += position_rows(options, prior, models, cache)
    subjects = {model.name: model.summary() for model in models}
    place = {"prior": options.prior, "order": prior.order, "vocab": prior.vocab, "length": options.length}
    rows = [{**place, **row, "subject": subjects.get(row["predictor"])} for row in rows]
    whole = {name: excess_columns(values, bayes.values) for name, values in measured.items()}
    parts = [f"{name} {c['excess']:.4f} ({c['excess_share']:+.1%})" for name, c in whole.items()]
    return {
        "rows": rows,
        "prior": prior.to_dict(),
        "models": {model.name: model.digest[:16] for model in models},
        "failures": [] if bayes.converged else ["the Bayes predictor did not converge; try more --draws"],
        "summary": f"Bayes {bayes.values.mean():.4f} nats; excess: {', '.join(parts)}",
    }


def chosen(checkpoints: list[Trained], prior: Prior, *, length: int, every: bool) -> list[Trained]:
    """The checkpoints of this prior and length: all, or the first seed of each family with and without BOS."""
    fitting = [checkpoint for checkpoint in checkpoints if checkpoint.fits(prior, length=length)]
    if every:
        return fitting
    kinds: dict[tuple[str, bool], Trained] = {}
    for checkpoint in fitting:
        kinds.setdefault((checkpoint.model["family"], checkpoint.model["bos"]), checkpoint)
    return list(kinds.values())


def soft_matching_at(prior: Prior, length: int, name: str, *, seed: int, cache: Cache) -> Predictor:
    """Soft matching with BOS at the population optimum of this length."""
    from interp.estimators.soft_matching import soft_matching

    best = optimum(prior, length=length, bos=True, draws=TUNING_DRAWS, seed=seed + 1, cache=cache)
    beta, kappa = best.usable()
    return Predictor(
        name=name,
        group="construction",
        key={"name": "soft matching", "vocab": prior.vocab, "beta": list(beta), "kappa": kappa},
        law=lambda tokens: soft_matching(tokens, vocab=prior.vocab, beta=beta, kappa=kappa),
    )


def add_alpha_of(prior: Prior) -> Predictor:
    """add-alpha, with the prior's own alpha if it is independent and 0.5 otherwise (the better of the usual ones)."""
    from interp.estimators.soft_matching import add_alpha

    alpha = alpha_of(prior) if prior.independent else 0.5
    return Predictor(
        name=f"add-{alpha:g}",
        group="classical",
        key={"name": f"add-{alpha:g}", "order": prior.order, "vocab": prior.vocab, "alpha": alpha},
        law=lambda tokens: add_alpha(tokens, order=prior.order, vocab=prior.vocab, alpha=alpha),
    )


def seen_bins(sequences: Sequences) -> list[tuple[str, np.ndarray]]:
    """By the number of exact matches of the last context."""
    from interp.estimators.counts import mask_counts

    counts = mask_counts(sequences.tokens, order=sequences.prior.order, vocab=sequences.prior.vocab)
    exact = counts[:, -1].sum(-1).numpy()
    return [(label, (exact >= low) & ((exact <= high) if high is not None else True)) for label, low, high in SEEN_BINS]


def entropy_bins(sequences: Sequences) -> list[tuple[str, np.ndarray]]:
    """By the entropy of the true law over ln |V|."""
    import numpy as np
    import torch

    law = sequences.chains.next_law
    share = (-torch.xlogy(law, law).sum(-1) / np.log(sequences.prior.vocab)).numpy()
    place = np.clip(np.digitize(share, ENTROPY_EDGES) - 1, 0, len(ENTROPY_EDGES) - 2)
    edges = itertools.pairwise(ENTROPY_EDGES)
    return [(f"{low:g}-{high:g}", place == i) for i, (low, high) in enumerate(edges)]


def bin_row(
    by: str, label: str, name: str, values: np.ndarray, bayes: np.ndarray, inside: np.ndarray
) -> dict[str, Any]:
    """One predictor in one bin."""
    share = float(inside.mean())
    numbers = excess_columns(values[inside], bayes[inside])
    contribution = share * numbers["excess"]
    whole = float((values - bayes).mean())
    return {
        "by": by,
        "bin": label,
        "predictor": name,
        "n": int(inside.sum()),
        "share": share,
        **numbers,
        "contribution": contribution,
        "contribution_share": contribution / whole if whole else None,
    }


def position_rows(
    options: argparse.Namespace, prior: Prior, models: list[Trained], cache: Cache
) -> list[dict[str, Any]]:
    """Predictions made earlier: a prefix of a chain is a chain, so each position has sequences of that length."""
    import numpy as np

    length = options.length
    positions = sorted({p for p in (length // 16, length // 8, length // 4, length // 2, length) if p > prior.order})
    fixed = soft_matching_at(prior, length, "soft matching", seed=options.seed, cache=cache)
    rows = []
    for position in progress(positions, "position"):
        sequences = Sequences(prior=prior, batch=options.batch, length=position, seed=options.seed)
        bayes = measure_bayes(sequences, cache, draws=options.draws).values
        own = soft_matching_at(prior, position, "soft matching, retuned", seed=options.seed, cache=cache)
        predictors = [fixed, own, add_alpha_of(prior)]
        predictors += [model.predictor() for model in models if position == length]
        values = {"bayes": bayes} | {p.name: measure(sequences, p, cache).values for p in predictors}
        everything = np.ones(len(bayes), dtype=bool)
        for name, kl in values.items():
            row = bin_row("position", str(position), name, kl, bayes, everything)
            rows.append({**row, "contribution": None, "contribution_share": None})
    return rows
