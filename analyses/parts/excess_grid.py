"""How far soft matching at its optimum is from Bayes, world by world, and which queries carry the difference.

    python -m analyses.parts.excess_grid --out runs/excess      makes the table anew, world by world; resumable

The hierarchical prior with BOS and the same eta at all levels. On each sequence the excess is KL(Bayes || soft
matching): given the tokens, the true law's mean is the Bayes prediction, so this is the expected difference of the two
KLs from the true law, without the true law's noise. The Monte Carlo error of the Bayes prediction adds about
sum(mcse^2 / 2 mean) to it, which is taken off; column `bias` keeps what was. The table is shipped in analyses/tables.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analyses.parts.world_grid import read_table, write_table

if TYPE_CHECKING:
    import numpy as np

VOCABS, ETAS, LENGTHS = (3, 10), (1.0, 7.0, 50.0), (16, 64, 256)
ORDERS = (1, 2, 3)
LONG, LONG_ETA = 1024, 7.0  # the longest sequences only at this eta, because Bayes is slow there
SEQUENCES = {16: 600, 64: 300, 256: 150, 1024: 60}
PEAKED, MORE = 1.0, 4  # at this eta few sequences have most of the excess: so many times more sequences
SEARCH_DRAWS = 8000
BAYES_DRAWS = 160
# Visits of the query's full context before it: the first number of each bin, up to the next one's.
VISITS = (0, 1, 2, 4, 8)


@dataclass(frozen=True, kw_only=True)
class ExcessWorld:
    """One task of the map."""

    order: int
    vocab: int
    eta: float
    length: int


def excess_worlds() -> Iterator[ExcessWorld]:
    """The worlds of the map, short sequences first."""
    for length, order, vocab, eta in itertools.product(LENGTHS, ORDERS, VOCABS, ETAS):
        yield ExcessWorld(order=order, vocab=vocab, eta=eta, length=length)
    for order, vocab in itertools.product(ORDERS, VOCABS):
        yield ExcessWorld(order=order, vocab=vocab, eta=LONG_ETA, length=LONG)


def sequences_of(world: ExcessWorld) -> int:
    """How many sequences a world is measured on."""
    return SEQUENCES[world.length] * (MORE if world.eta == PEAKED and world.length > LENGTHS[0] else 1)


def visit_names() -> list[str]:
    """What the bins of `VISITS` are called: 0, 1, 2-3, 4-7, 8+."""
    ends = [*VISITS[1:], None]
    return [
        f"{first}+" if end is None else str(first) if end == first + 1 else f"{first}-{end - 1}"
        for first, end in zip(VISITS, ends, strict=True)
    ]


def measure_excess(world: ExcessWorld, *, sequences: int, seed: int = 0) -> dict[str, Any]:
    """One row.

    kl_bayes, excess, share   mean KL(truth || Bayes), what soft matching adds, and the second over the first
    queries_*, excess_*       by visits of the full context: share of the queries, and of the excess
    suffix_*, at_suffix_*     the same by the length of the longest suffix of the context that occurred before
    """
    import numpy as np

    from interp.chains.priors import HierarchicalDirichlet
    from interp.divergence import kl_divergence
    from interp.estimators.bayes import bayes_predictive
    from interp.estimators.optimal import optimal_parameters
    from interp.results import mean_stderr

    prior = HierarchicalDirichlet(order=world.order, vocab=world.vocab, eta=(world.eta,) * world.order)
    best = optimal_parameters(prior, length=world.length, bos=True, draws=SEARCH_DRAWS, seed=seed + 1)
    chains = prior.sample(batch=sequences, length=world.length, seed=seed, method="collapsed")
    bayes = bayes_predictive(chains.tokens, prior=prior, draws=BAYES_DRAWS, seed=seed)
    soft = best.predict(chains.tokens)
    bias = (bayes.mcse**2 / (2.0 * bayes.mean)).sum(1).numpy()
    excess = kl_divergence(bayes.mean, soft).values.numpy() - bias
    kl, kl_stderr = mean_stderr(kl_divergence(chains.next_law, bayes.mean).values.numpy())
    mean, stderr = mean_stderr(excess)
    visits, suffix = seen_before(chains.tokens.numpy(), order=world.order)
    bins = np.searchsorted(VISITS, visits, side="right") - 1
    row: dict[str, Any] = {"order": world.order, "vocab": world.vocab, "eta": world.eta, "length": world.length}
    row |= {"kl_bayes": kl, "kl_bayes_stderr": kl_stderr, "excess": mean, "excess_stderr": stderr, "share": mean / kl}
    row |= {"bias": float(bias.mean()), "rhat_ok": bayes.success, "sequences": sequences, "flat": any(best.flat)}
    for number, name in enumerate(visit_names()):
        row |= _part(f"{name}", "queries", "excess", bins == number, excess)
    for length in range(max(ORDERS) + 1):
        row |= _part(str(length), "suffix", "at_suffix", suffix == length, excess)
    return row


def _part(name: str, queries: str, carried: str, chosen: np.ndarray, excess: np.ndarray) -> dict[str, float]:
    """The share of queries that are chosen, and the share of the excess that they carry."""
    return {f"{queries}_{name}": float(chosen.mean()), f"{carried}_{name}": float(excess[chosen].sum() / excess.sum())}


def seen_before(tokens: np.ndarray, *, order: int) -> tuple[np.ndarray, np.ndarray]:
    """For the last query of each sequence: visits of its full context before, and its longest suffix that occurred."""
    import numpy as np

    from interp.estimators.counts import mask_counts

    counts = mask_counts(tokens, order=order, vocab=max(int(tokens.max()) + 1, 2)).sum(-1).numpy()
    longest = np.zeros(len(tokens), dtype=np.int64)
    for mask in range(1 << order):
        suffix = next((lag for lag in range(order) if not mask >> lag & 1), order)
        longest = np.maximum(longest, np.where(counts[:, mask] > 0, suffix, 0))
    return counts[:, -1], longest


def main() -> None:
    import argparse

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder; worlds that it has are not measured again")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "excess_worlds.csv"
    rows = read_table(path) if path.exists() else []
    worlds = list(excess_worlds())
    for number, world in enumerate(worlds[len(rows) :], start=len(rows) + 1):
        rows.append(measure_excess(world, sequences=sequences_of(world)))
        write_table(path, rows)
        print(f"{number} of {len(worlds)}: {world}", flush=True)


if __name__ == "__main__":
    main()
