"""The fitted term that the predicted optimum adds to its derivation, and the range in which it applies.

    fitted_correction(prior, length=64, beta=(3.4, 1.7), kappa=4.2)      what to add to each; None outside of the range

The derivation ignores that chains return to the same few contexts, and that a frequent symbol is frequent at every lag
(docs/concepts/optimum.md, "What is approximate"). The effect of both is smooth. So the difference between the searched
and the derived optimum was regressed on a quadratic function of the eight quantities of VARIABLES, in the worlds of
analyses/tables/worlds_tuning.csv and worlds_second_tuning.csv, separately for beta_1, the other betas and kappa, with
and without BOS. `python -m analyses worlds` tests it in other worlds.
"""

from __future__ import annotations

import csv
import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float

from interp.chains.priors import HierarchicalDirichlet, Prior
from interp.estimators.match_rates import law_correlations

# The variables of the quadratic function; from each a typical value is subtracted, then it is divided by a typical
# spread.
VARIABLES = {
    "r_k": (0.6, 0.3),
    "r_0": (0.2, 0.15),
    "1 / (1 + eta)": (0.1, 0.15),
    "value": (4.0, 2.5),
    "ln(T - k)": (5.5, 1.5),
    "ln|V|": (2.0, 0.8),
    "k - 1": (1.5, 1.0),
    "beta_1": (4.0, 2.0),
}
LARGEST = 1.5  # nats, of either sign
RANGE = {"order": (1, 4), "vocab": (2, 32), "eta": (1.0, 50.0), "eta0": (0.1, 5.0), "length": (16, 4096)}
# Beside this file: a row for each feature (1, the variables, their products), a column for each kind of parameter.
_HEADER, *_ROWS = csv.reader(Path(__file__).with_suffix(".csv").read_text().splitlines())
FEATURES = tuple(row[0] for row in _ROWS)
COEFFICIENTS = {
    (kind.removesuffix(" BOS"), kind.endswith(" BOS")): tuple(float(row[column]) for row in _ROWS)
    for column, kind in enumerate(_HEADER)
    if column
}


def fitted_correction(
    prior: Prior, *, length: int, beta: Sequence[float], kappa: float | None
) -> Float[np.ndarray, " parameter"] | None:
    """What to add to the derived beta and kappa; None where nothing was fitted.

    None is returned outside of RANGE, and under the independent prior, whose derivation needs no such term.
    """
    if not isinstance(prior, HierarchicalDirichlet) or not in_range(prior, length=length):
        return None
    kinds = ["beta_1", *["beta"] * (prior.order - 1), *([] if kappa is None else ["kappa"])]
    rows = features(prior, length=length, beta=beta, kappa=kappa)
    added = [row @ COEFFICIENTS[kind, kappa is not None] for kind, row in zip(kinds, rows, strict=True)]
    return np.asarray(np.clip(added, -LARGEST, LARGEST))


def in_range(prior: HierarchicalDirichlet, *, length: int) -> bool:
    """Whether the prior and the length lie within the worlds that the term was fitted on."""
    base = (prior.eta0,) if isinstance(prior.eta0, float) else prior.eta0
    values = {"order": [prior.order], "vocab": [prior.vocab], "eta": prior.eta, "eta0": base, "length": [length]}
    return all(RANGE[name][0] <= value <= RANGE[name][1] for name, many in values.items() for value in many)


def features(
    prior: HierarchicalDirichlet, *, length: int, beta: Sequence[float], kappa: float | None
) -> Float[np.ndarray, "parameter feature"]:
    """One row per parameter; `value` is its derived value, eta that of its level (kappa: the geometric mean)."""
    correlations = law_correlations(prior)
    levels = [*prior.eta, *([] if kappa is None else [float(np.exp(np.mean(np.log(prior.eta))))])]
    values = [*beta, *([] if kappa is None else [kappa])]
    task = [np.log(length - prior.order), np.log(prior.vocab), prior.order - 1, beta[0]]
    centres, scales = np.array(list(VARIABLES.values())).T
    rows = []
    for value, eta in zip(values, levels, strict=True):
        z = (np.array([correlations[-1], correlations[0], 1.0 / (1.0 + eta), value, *task]) - centres) / scales
        rows.append([1.0, *z, *(a * b for a, b in itertools.combinations_with_replacement(z, 2))])
    return np.array(rows)
