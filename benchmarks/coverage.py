"""How often intervals hold the truth, and how often a test of a true hypothesis rejects it, in simulations.

    python -m benchmarks.coverage                     all tables of docs/concepts/intervals.md
    python -m benchmarks.coverage --only fits         fits, additivity, bayes, optimum or share
    python -m benchmarks.coverage --simulations 100   fewer of each, quicker
    python -m benchmarks.coverage --json              a JSON object for each table

A simulation draws sequences, gives the match head scores that follow the law with known beta and kappa, adds noise, and
fits. The four kinds of noise have mean zero at every key:

    keys      independent normal noise at every key
    slopes    every sequence has its own beta: normal around the law's
    masks     every sequence has its own score for each mask, and noise at every key that grows with the overlap
    tails     heavy tails (Student's t, 3 degrees of freedom), correlated along the keys of a sequence (0.7 from one to
              the next)

BOS has normal noise in all of them. What a fit of scores should find is what was planted. A fit of attention finds the
law that is nearest to noisy attention, which is not quite the planted one: its truth is a fit of very many sequences.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported

import numpy as np
import torch

import interp as ip
from benchmarks.measure import options_of, show
from interp.circuit.experiment import Experiment
from interp.circuit.law import even_pattern, law_pattern
from interp.circuit.runner import law_of
from interp.notation import mask_bits
from interp.results import half_width, share_recovered

Row = dict[str, Any]

NOISES = ("keys", "slopes", "masks", "tails")
BETA, KAPPA, VOCAB, LENGTH = (2.0, 1.0), 2.0, 4, 40
MANY = 20_000  # sequences for the truth of a fit of attention
# order, |V|, sequences, T: where the additivity test is asked for
ADDITIVITY = ((2, 4, 16, 40), (3, 2, 64, 64), (4, 2, 64, 64), (4, 2, 16, 64))
PRIOR = ip.HierarchicalDirichlet(order=2, vocab=3, eta=(4.0, 4.0))
SIMULATIONS = {"fits": 2000, "additivity": 400, "bayes": 400, "optimum": 400, "share": 400}
HEAVY = Path(__file__).parent.parent / "models/checkpoints/hierarchical_bos/disentangled/soft/T32_seed0"


def captures(
    noise: str, *, beta: tuple[float, ...], vocab: int, sequences: int, length: int, seed: int, parts: int
) -> Iterator[ip.Capture]:
    """`parts` captures of so many sequences each, of a head that follows the law with this noise."""
    order = len(beta)
    prior = ip.HierarchicalDirichlet(order=order, vocab=vocab, eta=(5.0,) * order)
    model = ip.construct(order=order, vocab=vocab, length=length, beta=beta, kappa=KAPPA, dtype="float64")
    rng = np.random.default_rng(seed)
    tokens = prior.sample(batch=sequences * parts, length=length, seed=seed).tokens
    for start in range(0, sequences * parts, sequences):
        cap = ip.capture(model, tokens[start : start + sequences], copies=False)
        masks = ip.match_masks(cap.tokens, order=order).numpy()[:, order:]
        scores = cap.match_scores.clone()
        scores[:, 0, 0, 1 + order :] += torch.from_numpy(drawn(noise, masks, order=order, rng=rng))
        scores[:, 0, 0, 0] += torch.from_numpy(rng.normal(scale=0.5, size=sequences))
        yield replace(cap, match_scores=scores, match_pattern=torch.softmax(scores, dim=-1))


def drawn(noise: str, masks: np.ndarray, *, order: int, rng: np.random.Generator) -> np.ndarray:
    """[sequence, key] noise of one kind."""
    sequences, keys = masks.shape
    matches = masks[..., None] >> np.arange(order) & 1
    plain = rng.normal(size=(sequences, keys))
    if noise == "keys":
        return 0.7 * plain
    if noise == "slopes":
        return 0.3 * plain + (matches * rng.normal(scale=0.5, size=(sequences, 1, order))).sum(axis=-1)
    if noise == "masks":
        own = rng.normal(scale=0.5, size=(sequences, 1 << order))
        return 0.2 * (1 + matches.sum(axis=-1)) * plain + np.take_along_axis(own, masks, axis=1)
    shocks = 0.3 * rng.standard_t(3, size=(sequences, keys))
    for key in range(1, keys):
        shocks[:, key] += 0.7 * shocks[:, key - 1]
    return shocks


def fit_rows(simulations: int, *, sizes: tuple[int, ...] = (10, 16, 60)) -> Iterator[Row]:
    """Coverage of beta and kappa, of scores and of attention; `failed` is the share of fits that refuse to tell."""
    task = {"beta": BETA, "vocab": VOCAB, "length": LENGTH}
    planted = np.array([*BETA, KAPPA])
    for noise in NOISES:
        (many,) = captures(noise, **task, sequences=MANY, seed=1, parts=1)
        nearest = ip.fit_scores(many, source="attention")
        truths = {"scores": planted, "attention": np.array([*nearest.beta, nearest.kappa])}
        for sequences in sizes:
            inside: dict[str, list[np.ndarray]] = {"scores": [], "attention": []}
            for cap in captures(noise, **task, sequences=sequences, seed=sequences, parts=simulations):
                for source, found in inside.items():
                    fit = ip.fit_scores(cap, source=source)
                    if fit.success:
                        low, high = fit.interval(0.95)
                        found.append((low <= truths[source]) & (truths[source] <= high))
            for source, found in inside.items():
                shares = np.mean(found, axis=0)
                names = [*(f"beta_{lag + 1}" for lag in range(len(BETA))), "kappa"]
                yield {
                    "fit of": source, "noise": noise, "sequences": sequences,
                    **{name: round(float(share), 3) for name, share in zip(names, shares, strict=True)},
                    "all": round(float(shares.mean()), 3), "failed": round(1 - len(found) / simulations, 3),
                }  # fmt: skip


def additivity_rows(simulations: int) -> Iterator[Row]:
    """How often the test of additivity rejects an additive law at the 5% level, and how often it cannot tell."""
    for order, vocab, sequences, length in ADDITIVITY:
        row: Row = {"order": order, "symbols": vocab, "sequences": sequences}
        unknown = 0.0
        for noise in NOISES:
            task = {"beta": (2.0, 1.0, 0.5, 0.3)[:order], "vocab": vocab, "length": length}
            parts = captures(noise, **task, sequences=sequences, seed=order, parts=simulations)
            p = np.array([ip.fit_scores(cap).additivity_p for cap in parts])
            row[noise] = round(float((p < 0.05).mean()), 3)
            unknown += float(np.isnan(p).mean()) / len(NOISES)
        yield row | {"cannot tell": round(unknown, 3)}


def bayes_rows(simulations: int, *, draws: int = 200_000) -> Iterator[Row]:
    """Coverage of the posterior mean of 200 draws, by the number of chains; the truth is a run of many draws."""
    tokens = PRIOR.sample(batch=8, length=30, seed=0).tokens
    truth = ip.bayes_predictive(tokens, prior=PRIOR, draws=draws, chains=8, seed=10**6).mean.numpy()
    for chains in (2, 4, 8):
        inside, normal = [], []
        for seed in range(simulations):
            found = ip.bayes_predictive(tokens, prior=PRIOR, draws=200, chains=chains, seed=seed)
            low, high = found.interval(0.95)
            inside.append((low <= truth) & (truth <= high))
            normal.append(np.abs(found.mean.numpy() - truth) <= half_width(found.mcse.numpy(), n=None))
        shares = {"interval": np.mean(inside), "normal quantile": np.mean(normal)}
        yield {"chains": chains, **{name: round(float(share), 3) for name, share in shares.items()}}


def optimum_rows(simulations: int) -> Iterator[Row]:
    """Coverage of the optimal beta and kappa at T = 30; the truth is a search on very many draws."""
    best = ip.optimal_parameters(PRIOR, length=30, draws=1_000_000, seed=10**6)
    truth = np.array([*best.beta, best.kappa])
    for draws in (1_000, 10_000):
        inside = []
        for seed in range(simulations):
            low, high = ip.optimal_parameters(PRIOR, length=30, draws=draws, seed=seed).interval(0.95)
            inside.append((low <= truth) & (truth <= high))
        shares = np.mean(inside, axis=0).round(3).tolist()
        yield {"draws": draws, **dict(zip(("beta_1", "beta_2", "kappa"), shares, strict=True))}


def share_rows(simulations: int) -> Iterator[Row]:
    """The error of the recovered loss on a model whose edited predictions come close to zero in a few sequences.

    `error / spread` is the root mean square of the errors over the standard deviation of the shares, `median error /
    spread` the same of their median.
    """
    model = ip.load(HEAVY)
    config = model.config
    prior = ip.HierarchicalDirichlet(order=config.order, vocab=config.vocab, eta=(5.0,) * config.order)
    fit = ip.fit_scores(ip.capture(model, prior.sample(batch=1000, length=config.length, seed=1).tokens, copies=False))
    for sequences in (128, 512):
        lost, scale = [], []
        for seed in range(simulations):
            chains = prior.sample(batch=sequences, length=config.length, seed=seed + 2)
            trial = Experiment(model, chains.tokens, next_law=chains.next_law, seed=seed)
            by_mask = mask_bits(len(fit.beta)) @ fit.beta
            law, even = law_pattern(trial.masks, by_mask=by_mask, kappa=fit.kappa), even_pattern(trial.masks)
            for pattern, losses in ((law, lost), (even, scale)):
                edited = trial.kl(law_of(trial.write(pattern[:, None], edit="attention")))
                losses.append((edited.values - trial.divergence.values).numpy())
        truth = 1 - np.mean(lost) / np.mean(scale)
        shares, errors = np.array([share_recovered(*one) for one in zip(lost, scale, strict=True)]).T
        inside = np.abs(shares - truth) <= half_width(errors, n=sequences)
        yield {
            "sequences": sequences,
            "error / spread": round(float(np.sqrt((errors**2).mean()) / shares.std()), 2),
            "median error / spread": round(float(np.median(errors) / shares.std()), 2),
            "interval": round(float(inside.mean()), 3),
        }


TABLES: dict[str, Callable[[int], Iterator[Row]]] = {
    "fits": fit_rows,
    "additivity": additivity_rows,
    "bayes": bayes_rows,
    "optimum": optimum_rows,
    "share": share_rows,
}


def main() -> None:
    options = options_of(__doc__, only=tuple(TABLES), simulations=0)
    for name in options.only:
        show(name, list(TABLES[name](options.simulations or SIMULATIONS[name])), as_json=options.json)


if __name__ == "__main__":
    main()
