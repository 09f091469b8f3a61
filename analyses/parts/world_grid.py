"""Grids of worlds (prior, length, BOS), and what was measured in each: the tables in analyses/tables.

    python -m analyses.parts.world_grid --grid second_test --part 0 4 --out runs/worlds    a quarter of it, resumable
    python -m analyses.parts.world_grid --grid excess --out runs/worlds

Four grids are drawn at random, and hold the optimum of each world: searched, derived and corrected. They have different
seeds and share no world. The two tuning grids are what the derivation was checked on and the fitted term
(`interp.estimators.fitted_correction`) was fitted on; `fit_terms` gives its coefficients from their tables. The first
test grid was used once, to test the first version of the law; its table holds the predictions of that version. The
second one tests the present law, and was used once, after derivation and fitted term were fixed.

The grid `excess` is regular: the hierarchical prior with BOS, eta alike at all levels. On each sequence the excess is
KL(Bayes || soft matching at its optimum): given the tokens, the true law's mean is the Bayes prediction, so this is
the expected difference of the two KLs from the true law, without the true law's noise. The Monte Carlo error of the
Bayes prediction adds about sum(mcse^2 / 2 mean) to it, which is taken off; column `bias` keeps what was.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import interp as ip

if TYPE_CHECKING:
    from interp.estimators.optimal import OptimalParameters
    from interp.estimators.population import Population

TABLES = Path(__file__).parents[1] / "tables"
TUNING = ("tuning", "second_tuning")
EXCESS = "excess"


@dataclass(frozen=True, kw_only=True)
class Grid:
    """How a random grid's worlds are drawn and searched.

    draws   sequences that a world is searched on: the next number while a standard error is above `sure` (nats), or a
            lag seems flat. (In the second tuning grid flat lags were left as they were, and the first worlds had up to
            384,000; column `draws` says.)
    """

    seed: int
    count: int
    draws: tuple[int, ...]
    sure: float = 0.0


GRIDS = {
    "tuning": Grid(seed=100, count=240, draws=(40_000,)),
    "second_tuning": Grid(seed=101, count=250, draws=(24_000, 96_000), sure=0.05),
    "test": Grid(seed=2026, count=240, draws=(12_000,)),
    "second_test": Grid(seed=2027, count=200, draws=(12_000, 48_000, 96_000), sure=0.1),
}
MOST_BYTES = 6e8  # of the counts of one sample; larger samples are not drawn
ORDERS, ORDER_SHARES = (1, 2, 3, 4), (0.2, 0.35, 0.25, 0.2)
VOCABS = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32)
MOST = max(ORDERS)
NAMES = (*(str(lag + 1) for lag in range(MOST)), "kappa")
SOFTENING = 0.1  # nats: added to the standard errors; points with larger residuals lose weight
UNSURE = 0.3  # nats: a searched value with a larger standard error is not fitted on
RIDGE, LEAST_RIDGE = 30.0, 1e-7
LONG, LONG_ETA = 1024, 7.0  # of the grid `excess`: the longest sequences only at this eta, because Bayes is slow there
SEQUENCES = {16: 600, 64: 300, 256: 150, LONG: 60}
PEAKED, MORE = 1.0, 4  # at this eta few sequences have most of the excess: so many times more sequences
SEARCH_DRAWS, BAYES_DRAWS = 8000, 160
VISITS = {"0": 0, "1": 1, "2-3": 2, "4-7": 4, "8+": 8}  # of the query's full context before it: where each bin starts


@dataclass(frozen=True, kw_only=True)
class World:
    """One task: what the optimum depends on."""

    prior: ip.Prior
    length: int
    bos: bool


def draw_worlds(grid: str) -> list[World]:
    """The worlds of a grid, always the same."""
    if grid == EXCESS:
        return _excess_worlds()
    rng = np.random.default_rng(GRIDS[grid].seed)
    return [_draw_world(rng) for _ in range(GRIDS[grid].count)]


def _draw_world(rng: np.random.Generator) -> World:
    """Orders 1..4, |V| 2..32, T 16..4096, eta 1..50 (equal in half of them), alpha and eta0 0.1..5, in logarithms."""

    def between(low: float, high: float) -> float:
        return round(float(np.exp(rng.uniform(np.log(low), np.log(high)))), 2)

    order = int(rng.choice(ORDERS, p=ORDER_SHARES))
    vocab = int(rng.choice(VOCABS))
    length = round(2 ** rng.uniform(4, 12))
    hierarchical = rng.random() < 0.75
    bos = bool(rng.random() < 0.55)
    if not hierarchical:
        kept = rng.random() >= 0.6  # with BOS the optimum is known: a few are enough
        alpha = between(0.1, 5.0)
        return World(
            prior=ip.IndependentDirichlet(order=order, vocab=vocab, alpha=alpha), length=length, bos=bos and kept
        )
    equal = rng.random() < 0.5
    eta = (between(1.0, 50.0),) * order if equal else tuple(between(1.0, 50.0) for _ in range(order))
    eta0 = 1.0 if rng.random() < 0.6 else between(0.1, 5.0)
    prior = ip.HierarchicalDirichlet(order=order, vocab=vocab, eta=eta, eta0=eta0)
    return World(prior=prior, length=length, bos=bos)


def _excess_worlds() -> list[World]:
    """The worlds of the map, short sequences first."""
    orders, vocabs, etas = (1, 2, 3), (3, 10), (1.0, 7.0, 50.0)
    shapes = [
        *itertools.product((16, 64, 256), orders, vocabs, etas),
        *itertools.product((LONG,), orders, vocabs, (LONG_ETA,)),
    ]
    return [
        World(prior=ip.HierarchicalDirichlet(order=order, vocab=vocab, eta=(eta,) * order), length=length, bos=True)
        for length, order, vocab, eta in shapes
    ]


def search_world(world: World, *, steps: Sequence[int], sure: float, seed: int = 0) -> tuple[OptimalParameters, int]:
    """The searched optimum, and the sequences it took: the next of `steps` while it is not sure enough."""
    prior = world.prior
    for draws in steps:
        best = ip.optimal_parameters(prior, length=world.length, bos=world.bos, draws=draws, seed=seed)
        known = [error for error in best.stderr if math.isfinite(error)]
        if max(known, default=0.0) <= sure and (prior.independent or not any(best.flat)):
            break
        if 4 * steps[-1] * (prior.vocab << prior.order) > MOST_BYTES:
            break
    return best, draws


def measure_world(world: World, *, steps: Sequence[int], sure: float = 0.0, seed: int = 0) -> dict[str, Any]:
    """One row: the searched optimum with errors, the predicted one, and the KL of each on the same sequences."""
    from interp.estimators.population import draw_population

    best, draws = search_world(world, steps=steps, sure=sure, seed=seed)
    sample = draw_population(world.prior, length=world.length, order=world.prior.order, draws=draws, seed=seed)
    return world_row(world, best, sample) | {"draws": draws, "seed": seed}


def world_row(world: World, best: OptimalParameters, sample: Population) -> dict[str, Any]:
    """The row of a searched world.

    searched_*, stderr_*   the search; inf for a lag along which the loss is flat: see `searched_combination`
    derived_*, predicted_* by the closed form alone, and with the fitted term; leading_* to leading order
    kl, kl_*               at the searched, derived, predicted and leading parameters
    """
    from interp.estimators.optimal import population_divergence

    prior, length, bos = world.prior, world.length, world.bos
    found = ip.predicted_parameters(prior, length=length, bos=bos)
    predictions = {
        "derived": (found.derived_beta, found.derived_kappa),
        "predicted": (found.beta, found.kappa),
        "leading": (found.leading_beta, found.leading_kappa),
    }
    row: dict[str, Any] = {
        "prior": prior.text,
        "order": prior.order,
        "vocab": prior.vocab,
        "length": length,
        "bos": bos,
    }
    errors = best.stderr[: prior.order], best.stderr[-1] if bos else None
    for name, (beta, kappa) in {"searched": (best.beta, best.kappa), "stderr": errors, **predictions}.items():
        row |= {f"{name}_{lag + 1}": beta[lag] if lag < prior.order else None for lag in range(MOST)}
        row[f"{name}_kappa"] = kappa
    row |= {"searched_combination": best.combination, "predicted_combination": found.combination}
    row |= {"kl": best.kl, "kl_stderr": best.kl_stderr, "floored": best.floored}
    for name, (beta, kappa) in predictions.items():
        if found.combination is not None:
            beta, kappa = found.usable()
        point = np.array([*beta, *([] if kappa is None else [kappa])])
        row[f"kl_{name}"] = population_divergence(sample, point, bos=bos)[0]
    return row | {"trusted": best.success and found.success}


def sequences_of(world: World) -> int:
    """How many sequences a world of the map is measured on."""
    peaked = world.prior.concentrations()[-1] == PEAKED and world.length > min(SEQUENCES)
    return SEQUENCES[world.length] * (MORE if peaked else 1)


def measure_excess(world: World, *, sequences: int, seed: int = 0) -> dict[str, Any]:
    """One row.

    kl_bayes, excess, share   mean KL(truth || Bayes), what soft matching adds, and the second over the first
    queries_*, excess_*       by visits of the full context: share of the queries, and of the excess
    """

    prior, length = world.prior, world.length
    best = ip.optimal_parameters(prior, length=length, bos=True, draws=SEARCH_DRAWS, seed=seed + 1)
    chains = prior.sample(batch=sequences, length=length, seed=seed, method="collapsed")
    bayes = ip.bayes_predictive(chains.tokens, prior=prior, draws=BAYES_DRAWS, seed=seed)
    bias = (bayes.mcse**2 / (2.0 * bayes.mean)).sum(1).numpy()
    excess = ip.kl_divergence(bayes.mean, best.predict(chains.tokens)).values.numpy() - bias
    kl, kl_stderr = ip.mean_stderr(ip.kl_divergence(chains.next_law, bayes.mean).values.numpy())
    mean, stderr = ip.mean_stderr(excess)
    visits = ip.mask_counts(chains.tokens, order=prior.order, vocab=prior.vocab).sum(-1)[:, -1].numpy()
    bins = np.searchsorted(list(VISITS.values()), visits, side="right") - 1
    row: dict[str, Any] = {"order": prior.order, "vocab": prior.vocab, "eta": float(prior.concentrations()[-1])}
    row |= {"length": length, "kl_bayes": kl, "kl_bayes_stderr": kl_stderr}
    row |= {"excess": mean, "excess_stderr": stderr, "share": mean / kl}
    row |= {"bias": float(bias.mean()), "rhat_ok": bayes.success, "sequences": sequences, "flat": any(best.flat)}
    for number, name in enumerate(VISITS):
        row[f"queries_{name}"] = float((bins == number).mean())
        row[f"excess_{name}"] = float(excess[bins == number].sum() / excess.sum())
    return row


def fit_terms(rows: list[dict[str, Any]]) -> dict[tuple[str, bool], tuple[float, ...]]:
    """The coefficients of `fitted_correction` from a table of worlds: ridge regression, made robust by reweighting."""
    from interp.estimators.fitted_correction import LARGEST, features

    found: dict[tuple[str, bool], list[tuple[np.ndarray, float, float]]] = {}
    for row in rows:
        prior = ip.parse_prior(row["prior"], order=row["order"], vocab=row["vocab"])
        if not isinstance(prior, ip.HierarchicalDirichlet):
            continue
        names = [*NAMES[: prior.order], *(["kappa"] if row["bos"] else [])]
        derived = [row[f"derived_{name}"] for name in names]
        kappa = derived[-1] if row["bos"] else None
        every = features(prior, length=row["length"], beta=derived[: prior.order], kappa=kappa)
        for name, value, here in zip(names, derived, every, strict=True):
            error = row[f"stderr_{name}"]
            if error is not None and error < UNSURE:
                kind = "kappa" if name == "kappa" else "beta_1" if name == "1" else "beta"
                found.setdefault((kind, row["bos"]), []).append((here, row[f"searched_{name}"] - value, error))
    terms = {}
    for key, points in sorted(found.items()):
        x, y = np.array([one[0] for one in points]), np.clip([one[1] for one in points], -LARGEST, LARGEST)
        plain = 1.0 / np.hypot([one[2] for one in points], SOFTENING)
        penalty = RIDGE * np.diag(np.append(LEAST_RIDGE, np.ones(x.shape[1] - 1)))  # the constant is free
        weight = plain
        for _ in range(8):
            scaled = x * weight[:, None]
            solution = np.linalg.solve(scaled.T @ scaled + penalty, scaled.T @ (y * weight))
            weight = plain / np.sqrt(np.maximum(np.abs(y - x @ solution) / (1.5 * SOFTENING), 1.0))
        terms[key] = tuple(round(float(value), 4) for value in solution)
    return terms


def read_table(path: Path) -> list[dict[str, Any]]:
    """The rows of a table; an empty cell is None."""
    import pandas as pd

    table = pd.read_csv(path)
    plain = table.astype(object).where(table.notna(), None)
    return [{str(name): value for name, value in row.items()} for row in plain.to_dict("records")]


def shipped_table(grid: str) -> list[dict[str, Any]]:
    """The shipped table of a grid."""
    return read_table(TABLES / f"worlds_{grid}.csv")


def write_table(path: Path, rows: list[dict[str, Any]]) -> None:
    """The rows as a table, six digits each; the file is replaced in one step."""
    import pandas as pd

    from analyses.running.files import write_file

    write_file(path, pd.DataFrame(rows).to_csv(index=False, float_format="%.6g"))


def main() -> None:
    import argparse

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--grid", choices=[*GRIDS, EXCESS], default="second_test")
    parser.add_argument(
        "--part", type=int, nargs=2, default=(0, 1), metavar=("I", "N"), help="every N-th world from I on"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder; worlds that it has are not measured again")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    first, step = options.part
    path = options.out / f"{options.grid}_{first}_of_{step}.csv"
    rows = read_table(path) if path.exists() else []
    worlds = draw_worlds(options.grid)[first::step]
    for number, world in enumerate(worlds[len(rows) :], start=len(rows) + 1):
        if options.grid == EXCESS:
            rows.append(measure_excess(world, sequences=sequences_of(world)))
        else:
            rows.append(measure_world(world, steps=GRIDS[options.grid].draws, sure=GRIDS[options.grid].sure))
        write_table(path, rows)
        print(f"{number} of {len(worlds)}: {world.prior.text}, T = {world.length}", flush=True)


if __name__ == "__main__":
    main()
