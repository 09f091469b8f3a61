"""Worlds (prior, length, BOS) drawn at random, and the optimum in each: searched, derived and corrected.

    python -m analyses.parts.world_grid --grid second_test --part 0 4 --out runs/worlds      a quarter of it, resumable

The grids have different seeds and share no world. The two tuning grids are what the derivation was checked on and the
fitted term (`interp.estimators.fitted_correction`) was fitted on. The first test grid was used once, to test the first
version of the law; its table holds the predictions of that version. The second one tests the present law, and was used
once, after derivation and fitted term were fixed. The tables are shipped in analyses/tables; `fit_terms` gives the
fitted term's coefficients from those of the tuning grids.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from interp.chains.priors import Prior
    from interp.estimators.optimal import OptimalParameters
    from interp.estimators.population import Population

TABLES = Path(__file__).parents[1] / "tables"
SEEDS = {"tuning": 100, "second_tuning": 101, "test": 2026, "second_test": 2027}
TUNING = ("tuning", "second_tuning")
COUNTS = {"tuning": 240, "second_tuning": 250, "test": 240, "second_test": 200}  # worlds of a grid
DIGESTS = {
    "tuning": "c1a516d8ebebcf80dc6975a0899a25bc0a3afddf292a0d67cd40ab38030fbac3",
    "second_tuning": "8d8a16db539ce1bb1832a0cd7ed534a2e5be7735bac6f541b89749d8ae6e7bd9",
    "test": "b5e697a2fc90e238f1acc5feeda23ca4dabfdb24a0c8acbeecf5aa349b03bb66",
    "second_test": "7deb31f6d1aeea7feb18da0ca150d6a1c7665c20cf54713b1ade0a03710a0d90",
    "excess": "5f7171018f46dac67d31d75b7a2d5c99edb582ac3ada904afea029bb1a626f4e",
}
# Sequences that a world is searched on: more while a standard error is above SURE, or a lag seems flat. (In the second
# tuning grid flat lags were left as they were, and the first worlds had up to 384,000; column `draws` says.)
DRAWS = {
    "tuning": (40_000,),
    "second_tuning": (24_000, 96_000),
    "test": (12_000,),
    "second_test": (12_000, 48_000, 96_000),
}
SURE = {"tuning": 0.0, "second_tuning": 0.05, "test": 0.0, "second_test": 0.1}  # nats
MOST_BYTES = 6e8  # of the counts of one sample; larger samples are not drawn
ORDERS, ORDER_SHARES = (1, 2, 3, 4), (0.2, 0.35, 0.25, 0.2)
VOCABS = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32)
MOST = max(ORDERS)
SOFTENING = 0.1  # nats: added to the standard errors; points with larger residuals lose weight
UNSURE = 0.3  # nats: a searched value with a larger standard error is not fitted on
RIDGE, LEAST_RIDGE = 30.0, 1e-7


@dataclass(frozen=True, kw_only=True)
class World:
    """One task: what the optimum depends on."""

    prior: Prior
    length: int
    bos: bool


def draw_worlds(grid: str) -> list[World]:
    """The worlds of a grid, always the same."""
    import numpy as np

    rng = np.random.default_rng(SEEDS[grid])
    return [_draw_world(rng) for _ in range(COUNTS[grid])]


def _draw_world(rng: np.random.Generator) -> World:
    """Orders 1..4, |V| 2..32, T 16..4096, eta 1..50 (equal in half of them), alpha and eta0 0.1..5, in logarithms."""
    import numpy as np

    from interp.chains.priors import HierarchicalDirichlet, IndependentDirichlet

    def between(low: float, high: float) -> float:
        return round(float(np.exp(rng.uniform(np.log(low), np.log(high)))), 2)

    order = int(rng.choice(ORDERS, p=ORDER_SHARES))
    vocab = int(rng.choice(VOCABS))
    length = round(2 ** rng.uniform(4, 12))
    hierarchical = rng.random() < 0.75
    bos = bool(rng.random() < 0.55)
    if not hierarchical:
        kept = rng.random() >= 0.6  # with BOS the optimum is known: a few are enough
        bos = bos and kept
        return World(
            prior=IndependentDirichlet(order=order, vocab=vocab, alpha=between(0.1, 5.0)), length=length, bos=bos
        )
    equal = rng.random() < 0.5
    eta = (between(1.0, 50.0),) * order if equal else tuple(between(1.0, 50.0) for _ in range(order))
    eta0 = 1.0 if rng.random() < 0.6 else between(0.1, 5.0)
    prior = HierarchicalDirichlet(order=order, vocab=vocab, eta=eta, eta0=eta0)
    return World(prior=prior, length=length, bos=bos)


def search_world(world: World, *, steps: Sequence[int], sure: float, seed: int = 0) -> tuple[OptimalParameters, int]:
    """The searched optimum, and the sequences it took: the next of `steps` while it is not sure enough."""
    from interp.estimators.optimal import optimal_parameters

    prior = world.prior
    for draws in steps:
        best = optimal_parameters(prior, length=world.length, bos=world.bos, draws=draws, seed=seed)
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
    return world_row(world, best, sample, draws=draws, seed=seed)


def world_row(world: World, best: OptimalParameters, sample: Population, *, draws: int, seed: int) -> dict[str, Any]:
    """The row of a searched world.

    searched_*, stderr_*   the search; inf for a lag along which the loss is flat: see `searched_combination`
    derived_*, predicted_* by the closed form alone, and with the fitted term; leading_* to leading order
    kl, kl_*               at the searched, derived, predicted and leading parameters
    """
    import numpy as np

    from interp.estimators.optimal import population_divergence
    from interp.estimators.predicted import predicted_parameters

    prior, length, bos = world.prior, world.length, world.bos
    found = predicted_parameters(prior, length=length, bos=bos)

    def kl(beta: Sequence[float], kappa: float | None) -> float:
        if found.combination is not None:
            beta, kappa = found.usable()
        return population_divergence(sample, np.array([*beta, *([] if kappa is None else [kappa])]), bos=bos)[0]

    row: dict[str, Any] = {
        "prior": prior.text,
        "order": prior.order,
        "vocab": prior.vocab,
        "length": length,
        "bos": bos,
    }
    named = {
        "searched": (best.beta, best.kappa),
        "stderr": (best.stderr[: prior.order], best.stderr[-1] if bos else None),
        "derived": (found.derived_beta, found.derived_kappa),
        "predicted": (found.beta, found.kappa),
        "leading": (found.leading_beta, found.leading_kappa),
    }
    for name, (beta, kappa) in named.items():
        row |= {f"{name}_{lag + 1}": beta[lag] if lag < prior.order else None for lag in range(MOST)}
        row[f"{name}_kappa"] = kappa
    row |= {"searched_combination": best.combination, "predicted_combination": found.combination}
    row |= {"kl": best.kl, "kl_stderr": best.kl_stderr, "floored": best.floored}
    row |= {
        "kl_derived": kl(found.derived_beta, found.derived_kappa),
        "kl_predicted": kl(found.beta, found.kappa),
        "kl_leading": kl(found.leading_beta, found.leading_kappa),
    }
    return row | {"trusted": best.success and found.success, "draws": draws, "seed": seed}


def fit_terms(rows: list[dict[str, Any]]) -> dict[tuple[str, bool], tuple[float, ...]]:
    """The coefficients of `fitted_correction` from a table of worlds: ridge regression, made robust by reweighting."""
    import numpy as np

    from interp.chains.descriptions import parse_prior
    from interp.chains.priors import HierarchicalDirichlet
    from interp.estimators.fitted_correction import LARGEST, features

    found: dict[tuple[str, bool], list[tuple[np.ndarray, float, float]]] = {}
    for row in rows:
        prior = parse_prior(row["prior"], order=row["order"], vocab=row["vocab"])
        if not isinstance(prior, HierarchicalDirichlet):
            continue
        names = [*(str(lag + 1) for lag in range(prior.order)), *(["kappa"] if row["bos"] else [])]
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
    """The rows of a table, numbers as numbers; an empty cell is None."""

    def cell(name: str, text: str) -> Any:
        if text == "" or name == "prior":
            return text or None
        return text == "True" if text in ("True", "False") else json.loads(text) if text.isdigit() else float(text)

    with path.open(newline="", encoding="utf-8") as file:
        return [{name: cell(name, text) for name, text in row.items()} for row in csv.DictReader(file)]


def shipped_table(grid: str) -> list[dict[str, Any]]:
    """The shipped table of a grid; a `ValueError` where it is not the one that this code was written for.

    Results are kept by code, and the digest makes the table a part of it.
    """
    path = TABLES / f"worlds_{grid}.csv"
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != DIGESTS[grid]:
        raise ValueError(f"{path.name} has changed: its SHA-256 is {found}; if that is meant, put it into DIGESTS")
    return read_table(path)


def write_table(path: Path, rows: list[dict[str, Any]]) -> None:
    """The rows as a table, six digits each; the file is replaced in one step."""
    part = path.with_suffix(".part")
    with part.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        for row in rows:
            writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()})
    part.replace(path)


def main() -> None:
    import argparse

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--grid", choices=list(SEEDS), default="second_test")
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
        rows.append(measure_world(world, steps=DRAWS[options.grid], sure=SURE[options.grid]))
        write_table(path, rows)
        print(f"{number} of {len(worlds)}: {world.prior.text}, T = {world.length}", flush=True)


if __name__ == "__main__":
    main()
