"""Where the excess over Bayes comes from: visits of the context, entropy, position.

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

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from analyses.parts.estimators import additive, alpha_of, optimum, soft
from analyses.parts.heldout import Predictor, Sequences, excess_columns, measure, measure_bayes
from analyses.running.ask import Ask
from analyses.running.options import PRIOR_FORMS, ChainOptions, ZooOptions, option
from analyses.running.subject import Study, Subject
from analyses.running.zoo import find_subjects, predictor_of

if TYPE_CHECKING:
    import numpy as np

    from analyses.running.cache import Cache
    from interp.chains.priors import Prior

KIND = "study"

TUNING_DRAWS = 40_000
SEEN_BINS = (("0", 0, 0), ("1", 1, 1), ("2", 2, 2), ("3-5", 3, 5), ("more", 6, None))
ENTROPY_EDGES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


@dataclass(frozen=True, kw_only=True)
class Options(ChainOptions, ZooOptions):
    batch: int = option(10_000, "number of sequences (default: %(default)s)", metavar="N", least=1)
    prior: str = option("hierarchical:5", f"{PRIOR_FORMS} (default: %(default)s)", metavar="PRIOR")
    length: int = option(64, "tokens (default: %(default)s)", metavar="T", least=2)
    draws: int = option(120, "posterior draws of the Bayes predictor (default: %(default)s)", metavar="N", least=16)
    all_seeds: bool = option(False, "all checkpoints of that prior and length, not one of each kind")


ASK = Ask(options=Options(batch=4000), cost=4.0)


def together(options: Options, piece: None) -> str:
    """`kl_curves` needs the same optimum."""
    return f"{options.prior} T={options.length}"


def study(options: Options, cache: Cache) -> Study:
    """The excess of every predictor, bin by bin."""
    from interp.chains.descriptions import parse_prior
    from interp.results import provenance

    prior = parse_prior(options.prior, order=options.order, vocab=options.vocab)
    sequences = Sequences(prior=prior, batch=options.batch, length=options.length, seed=options.seed)
    models = chosen(
        find_subjects(options.zoo, unfinished=options.unfinished), prior, length=options.length, every=options.all_seeds
    )
    bayes = measure_bayes(sequences, cache, draws=options.draws)
    predictors = [
        soft_matching_at(prior, options.length, "soft matching", seed=options.seed, cache=cache),
        add_alpha_of(prior),
        *map(predictor_of, models),
    ]
    measured = {p.name: measure(sequences, p, cache).values for p in predictors}
    rows = []
    for by, bins in (("seen", seen_bins(sequences)), ("entropy", entropy_bins(sequences))):
        for label, inside in bins:
            for name, values in {"bayes": bayes.values, **measured}.items():
                if inside.any():
                    rows.append(bin_row(by, label, name, values, bayes.values, inside))
    rows += position_rows(options, prior, models, cache)
    summaries = {model.name: model.summary() for model in models}
    place = {"prior": options.prior, "order": prior.order, "vocab": prior.vocab, "length": options.length}
    whole = {name: excess_columns(values, bayes.values) for name, values in measured.items()}
    parts = [f"{name} {c['excess']:.4f} ({c['excess_share']:+.1%})" for name, c in whole.items()]
    notes = [f"Bayes {bayes.values.mean():.4f} nats; excess: {', '.join(parts)}"]
    if not models:
        notes.append("no trained checkpoint of this prior and length was found")
    digests = {model.name: model.digest[:16] for model in models}
    return Study(
        rows=[{**place, **row, "subject": summaries.get(row["predictor"])} for row in rows],
        provenance=provenance(seed=options.seed, prior=prior.to_dict(), checkpoints=digests),
        shown=("by", "bin", "predictor", "n", "kl", "excess", "excess_stderr", "excess_share", "contribution_share"),
        notes=notes,
        failures=[] if bayes.converged else ["the Bayes predictor did not converge; try more --draws"],
    )


def chosen(subjects: list[Subject], prior: Prior, *, length: int, every: bool) -> list[Subject]:
    """The checkpoints of this prior and length: all, or the first seed of each family, start and BOS."""
    fitting = [one for one in subjects if one.trained_on(prior, length=length)]
    if every:
        return fitting
    kinds: dict[tuple[str, str | None, bool], Subject] = {}
    for one in fitting:
        kinds.setdefault((one.model_config["family"], one.start, one.model_config["bos"]), one)
    return list(kinds.values())


def soft_matching_at(prior: Prior, length: int, name: str, *, seed: int, cache: Cache) -> Predictor:
    """Soft matching with BOS at the population optimum of this length."""
    best = optimum(prior, length=length, bos=True, draws=TUNING_DRAWS, seed=seed + 1, cache=cache)
    beta, kappa = best.usable()
    return soft(name, vocab=prior.vocab, beta=beta, kappa=kappa)


def add_alpha_of(prior: Prior) -> Predictor:
    """add-alpha, with the prior's own alpha if it is independent and 0.5 otherwise (the better of the usual ones)."""
    return additive(prior, alpha_of(prior) if prior.independent else 0.5)


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


def position_rows(options: Options, prior: Prior, models: list[Subject], cache: Cache) -> list[dict[str, Any]]:
    """Predictions made earlier: a prefix of a chain is a chain, so each position has sequences of that length."""
    import numpy as np

    length = options.length
    positions = sorted({p for p in (length // 16, length // 8, length // 4, length // 2, length) if p > prior.order})
    fixed = soft_matching_at(prior, length, "soft matching", seed=options.seed, cache=cache)
    rows = []
    for position in positions:
        sequences = Sequences(prior=prior, batch=options.batch, length=position, seed=options.seed)
        bayes = measure_bayes(sequences, cache, draws=options.draws).values
        own = soft_matching_at(prior, position, "soft matching, retuned", seed=options.seed, cache=cache)
        predictors = [fixed, own, add_alpha_of(prior)]
        predictors += [predictor_of(model) for model in models if position == length]
        values = {"bayes": bayes} | {p.name: measure(sequences, p, cache).values for p in predictors}
        everything = np.ones(len(bayes), dtype=bool)
        for name, kl in values.items():
            row = bin_row("position", str(position), name, kl, bayes, everything)
            rows.append({**row, "contribution": None, "contribution_share": None})
    return rows
