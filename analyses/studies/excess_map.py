"""Where soft matching at its optimum stops being near Bayes, and which queries carry the difference.

    python -m analyses excess_map                       the shipped table, and one of its worlds measured again
    python -m analyses excess_map --again 4

One row per world of `analyses.parts.excess_grid`: the hierarchical prior with BOS, eta alike at all levels. `excess` is
what soft matching at the searched optimum adds to the KL of the Bayes predictor, in nats, and `share` the same over
Bayes' own KL. `queries_*` and `excess_*` say how the last queries, and the excess, are spread over the number of visits
of the query's full context before; `suffix_*` and `at_suffix_*` over the longest suffix of it that occurred before.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from analyses.parts.excess_grid import excess_worlds, measure_excess, sequences_of, visit_names
from analyses.parts.world_grid import shipped_table
from analyses.running.ask import Ask
from analyses.running.options import Options as BaseOptions
from analyses.running.options import option
from analyses.running.subject import Study

if TYPE_CHECKING:
    from analyses.running.cache import Cache

KIND = "study"
SHOWN = ("order", "vocab", "eta", "length", "kl_bayes", "excess", "excess_stderr", "share", "share_stderr")
NEAR = 0.05  # of Bayes' KL
AGREES = 5.0  # standard errors between two measurements


@dataclass(frozen=True, kw_only=True)
class Options(BaseOptions):
    again: int = option(1, "worlds to measure again (default: %(default)s)", metavar="N", least=0)


ASK = Ask()


def study(options: Options, cache: Cache) -> Study:
    """The shipped map, row by row, and what it says."""
    from interp.results import provenance

    rows = [with_error(row) for row in shipped_table("excess")]
    failures = measured_again(rows, options)
    return Study(
        rows=rows,
        provenance=provenance(seed=options.seed, table="analyses/tables/worlds_excess.csv"),
        shown=SHOWN,
        notes=[*summary(rows), f"{options.again} worlds measured again: {len(failures)} differ."],
        failures=failures,
    )


def with_error(row: dict[str, Any]) -> dict[str, Any]:
    """The row with a standard error of the share, from those of its two parts as if they were independent."""
    parts = row["excess_stderr"] / row["excess"], row["kl_bayes_stderr"] / row["kl_bayes"]
    return {**row, "share_stderr": row["share"] * math.hypot(*parts)}


def summary(rows: list[dict[str, Any]]) -> list[str]:
    """How many worlds are near Bayes, by order; which are farthest; and how much of the excess rare contexts carry."""
    lines = []
    for order in sorted({row["order"] for row in rows}):
        here = [row for row in rows if row["order"] == order]
        near = sum(row["share"] <= NEAR for row in here)
        lines.append(
            f"k = {order}: within {NEAR:.0%} of Bayes in {near} of {len(here)} worlds; largest "
            f"{max(row['share'] for row in here):.1%}."
        )
    for length in sorted({row["length"] for row in rows}):
        here = [row for row in rows if row["length"] == length]
        parts = [
            f"{name} visits {mean(here, f'queries_{name}'):.0%} and {mean(here, f'excess_{name}'):.0%}"
            for name in visit_names()
        ]
        lines.append(f"T = {length}, share of the queries and of the excess: {', '.join(parts)}.")
    return lines


def mean(rows: list[dict[str, Any]], name: str) -> float:
    """The mean of a column, all worlds alike."""
    return math.fsum(row[name] for row in rows) / len(rows)


def measured_again(rows: list[dict[str, Any]], options: Options) -> list[str]:
    """A line for each number that differs when the first worlds of the table are measured again on other sequences."""
    failures = []
    for number, world in list(enumerate(excess_worlds()))[: options.again]:
        old, new = rows[number], measure_excess(world, sequences=sequences_of(world), seed=options.seed + 100)
        for name in ("kl_bayes", "excess"):
            error = math.hypot(old[f"{name}_stderr"], new[f"{name}_stderr"])
            if abs(old[name] - new[name]) > AGREES * error:
                failures.append(f"{world}: {name} was {old[name]:.5f} and is {new[name]:.5f}, error {error:.5f}")
    return failures
