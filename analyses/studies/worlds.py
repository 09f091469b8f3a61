"""The law of the optimum on the second test grid, worlds that it was not tuned on: predicted beside searched.

    python -m analyses worlds                          the shipped table, judged, and a few of its worlds measured again
    python -m analyses worlds --again 12 --draws 12000

Each row is one world: a prior, a length, BOS or not. `searched_*` is the optimum that `optimal_parameters` finds on
sampled sequences, `derived_*` that of `predicted_parameters` without its fitted term, `predicted_*` with it,
`leading_*` the explicit leading order. `over_*` is the KL at those parameters divided by that at the searched ones,
minus 1, on the same sequences. `error_*` is predicted minus searched, in nats; it is empty where the search found no
finite value (a flat lag). `sigmas` is the largest error in standard errors of the search. The first short worlds are
measured again with --draws sequences: the prediction must be the same, and the search must agree within its errors. The
notes also say what the first version of the law gave on the first test grid.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from analyses.parts.world_grid import MOST, draw_worlds, measure_world, shipped_table
from analyses.running.ask import Ask
from analyses.running.options import Options as BaseOptions
from analyses.running.options import option
from analyses.running.subject import Study

if TYPE_CHECKING:
    from analyses.running.cache import Cache

KIND = "study"
GRID = "second_test"
NAMES = (*(str(lag + 1) for lag in range(MOST)), "kappa")
SHOWN = ("prior", "order", "vocab", "length", "bos", "kl", "over_predicted", "over_derived", "worst", "sigmas")
NEAR, FAR = 0.02, 0.05  # KL over the searched optimum's
CLOSE = 0.25  # nats
SHORT = 100  # tokens of a world that is measured again
AGREES = 5.0  # standard errors between two searches
SAME = 2e-3  # nats between two predictions; the table has six digits


@dataclass(frozen=True, kw_only=True)
class Options(BaseOptions):
    again: int = option(3, "worlds to measure again (default: %(default)s)", metavar="N", least=0)
    draws: int = option(4000, "sequences for each of them (default: %(default)s)", metavar="N", least=100)


ASK = Ask()


def study(options: Options, cache: Cache) -> Study:
    """The shipped second test grid, row by row, and what it says of the law."""
    from interp.results import provenance

    rows = [judged_row(row) for row in shipped_table(GRID)]
    first = [judged_row(row) for row in shipped_table("test")]
    failures = measured_again(rows, options)
    return Study(
        rows=rows,
        provenance=provenance(seed=options.seed, table=f"analyses/tables/worlds_{GRID}.csv"),
        shown=SHOWN,
        notes=[
            *summary(rows),
            f"The first version of the law on the first test grid: {closeness(first)}",
            f"{options.again} worlds measured again: {len(failures)} differ.",
        ],
        failures=failures,
    )


def judged_row(row: dict[str, Any]) -> dict[str, Any]:
    """The row with ratios and errors."""
    errors = {name: _error(row, name) for name in NAMES}
    if row["searched_combination"] is not None and row["predicted_combination"] is not None:
        errors["kappa"] = row["predicted_combination"] - row["searched_combination"]
    known = [abs(value) for value in errors.values() if value is not None]
    sizes = [
        abs(value) / row[f"stderr_{name}"]
        for name, value in errors.items()
        if value is not None and row[f"stderr_{name}"]
    ]
    return {
        **row,
        **{f"over_{name}": row[f"kl_{name}"] / row["kl"] - 1.0 for name in ("predicted", "derived", "leading")},
        **{f"error_{name}": errors[name] for name in NAMES},
        "worst": max(known, default=None),
        "sigmas": max((one for one in sizes if math.isfinite(one)), default=None),
    }


def _error(row: dict[str, Any], name: str) -> float | None:
    """Predicted minus searched, where both are finite."""
    predicted, searched = row[f"predicted_{name}"], row[f"searched_{name}"]
    if predicted is None or searched is None or not (math.isfinite(predicted) and math.isfinite(searched)):
        return None
    return float(predicted - searched)


def summary(rows: list[dict[str, Any]]) -> list[str]:
    """What share of the worlds is near the searched optimum, with and without the fitted term, and which are far."""
    lines = []
    for name in ("predicted", "derived", "leading"):
        over = [row[f"over_{name}"] for row in rows]
        lines.append(
            f"KL at {name} parameters: within {NEAR:.0%} of the searched in {share(over, NEAR)} of {len(rows)} worlds, "
            f"within {FAR:.0%} in {share(over, FAR)}; largest {max(over):+.1%}."
        )
    lines.append(closeness(rows))
    far = sorted((row for row in rows if row["over_predicted"] > FAR), key=lambda row: -row["over_predicted"])
    lines += [
        f"Beyond {FAR:.0%}: {row['prior']}, k = {row['order']}, |V| = {row['vocab']}, T = {row['length']}, "
        f"{'BOS' if row['bos'] else 'no BOS'}: {row['over_predicted']:+.1%} of a KL of {row['kl']:.4f}"
        for row in far
    ]
    return lines


def closeness(rows: list[dict[str, Any]]) -> str:
    """In what share of the cases beta and kappa themselves are near the searched ones."""
    errors = {name: [row[f"error_{name}"] for row in rows if row[f"error_{name}"] is not None] for name in NAMES}
    beta = [error for name, many in errors.items() if name != "kappa" for error in many]
    every = [*beta, *errors["kappa"]]
    worst = [row["worst"] for row in rows if row["worst"] is not None]
    return (
        f"Within {CLOSE} nats: {share(map(abs, every), CLOSE)} of {len(every)} parameters (beta: "
        f"{share(map(abs, beta), CLOSE)} of {len(beta)}, kappa: {share(map(abs, errors['kappa']), CLOSE)} of "
        f"{len(errors['kappa'])}); all parameters in {share(worst, CLOSE)} of {len(worst)} worlds."
    )


def share(values: Any, most: float) -> str:
    """How many are at most this large, as a percentage."""
    many = list(values)
    return f"{sum(one <= most for one in many) / max(len(many), 1):.1%}"


def measured_again(rows: list[dict[str, Any]], options: Options) -> list[str]:
    """A line for each number that differs when worlds of the table are measured again."""
    chosen = [number for number, row in enumerate(rows) if row["length"] <= SHORT][: options.again]
    worlds = draw_worlds(GRID)
    failures = []
    for number in chosen:
        old, new = rows[number], measure_world(worlds[number], steps=(options.draws,), seed=options.seed + 1)
        for name in NAMES:
            place = f"world {number}, {name}"
            before, after = old[f"predicted_{name}"], new[f"predicted_{name}"]
            if before is not None and math.isfinite(before) and abs(after - before) > SAME:
                failures.append(f"{place}: the prediction was {before:.4f} and is {after:.4f}")
            before, after = old[f"searched_{name}"], new[f"searched_{name}"]
            if before is None or not (math.isfinite(before) and math.isfinite(after)):
                continue
            error = math.hypot(old[f"stderr_{name}"], new[f"stderr_{name}"])
            if abs(after - before) > AGREES * error + SAME:
                failures.append(f"{place}: the search found {before:.4f} and finds {after:.4f}, error {error:.4f}")
    return failures
