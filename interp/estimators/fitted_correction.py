"""The fitted term that the predicted optimum adds to its derivation, and the range in which it applies.

    fitted_correction(prior, length=64, beta=(3.4, 1.7), kappa=4.2)      what to add to each; None outside of the range

The derivation ignores that chains return to the same few contexts, and that a frequent symbol is frequent at every lag
(docs/concepts/optimum.md, "What is approximate"). The effect of both is smooth. So the difference between the searched
and the derived optimum was regressed on a quadratic function of the eight quantities of VARIABLES, in the worlds of
analyses/tables/worlds_tuning.csv and worlds_second_tuning.csv, separately for beta_1, the other betas and kappa, with
and without BOS. `python -m analyses worlds` tests it in other worlds.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

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
FEATURES = (
    "1",
    *VARIABLES,
    *(" x ".join(pair) for pair in itertools.combinations_with_replacement(VARIABLES, 2)),
)
LARGEST = 1.5  # nats, of either sign
RANGE = {"order": (1, 4), "vocab": (2, 32), "eta": (1.0, 50.0), "eta0": (0.1, 5.0), "length": (16, 4096)}
# For each kind of parameter, with and without BOS: the coefficients in the order of FEATURES.
COEFFICIENTS: dict[tuple[str, bool], tuple[float, ...]] = {
    ("beta", False): (
        -0.0601, 0.0432, 0.0011, -0.053, -0.038, 0.0187, -0.0397, -0.0205, 0.0232, 0.0246, -0.0301, -0.0715, 0.0513,
        -0.0416, -0.0122, 0.0045, -0.0284, -0.0014, 0.0205, -0.0045, -0.0097, -0.0205, -0.0047, 0.0472, 0.015,
        -0.0686, 0.0343, -0.0054, 0.0059, 0.0077, -0.0803, 0.093, -0.0705, -0.0277, 0.0625, -0.0437, 0.0164, 0.0447,
        0.1006, -0.0211, 0.01, 0.0307, -0.0158, -0.0386, -0.0819,
    ),
    ("beta", True): (
        0.1972, 0.2181, -0.1022, 0.0111, 0.3827, 0.0625, -0.0703, 0.0369, -0.097, 0.0634, -0.0322, 0.0079, 0.2019,
        0.0419, 0.0041, 0.0318, -0.1275, -0.0071, 0.0131, -0.1403, 0.007, -0.0362, -0.0342, 0.0302, -0.009, -0.0555,
        0.0411, -0.0074, -0.0348, -0.0303, 0.084, 0.1048, -0.1347, -0.0161, -0.0467, -0.0026, 0.0348, 0.0117,
        -0.0564, -0.026, -0.0118, 0.0251, -0.0261, -0.0071, 0.0399,
    ),
    ("beta_1", False): (
        0.0096, 0.1261, -0.0718, -0.1142, 0.0068, 0.0159, -0.0534, -0.1364, 0.0085, -0.0133, -0.0138, -0.1161,
        0.0527, 0.0133, -0.0371, -0.0813, 0.0659, -0.0037, -0.0216, 0.0319, -0.0693, -0.0122, 0.0194, 0.0399, 0.0184,
        0.0007, 0.0063, 0.0196, 0.046, 0.0008, -0.0437, 0.0475, -0.0101, -0.0152, -0.0546, -0.0003, 0.0066, -0.032,
        0.0594, 0.0027, 0.0221, -0.0126, 0.0134, -0.0191, -0.0683,
    ),
    ("beta_1", True): (
        0.2739, 0.324, -0.234, -0.0595, 0.2118, -0.0345, -0.1799, -0.0724, 0.2647, -0.0683, -0.0125, 0.0959, 0.224,
        -0.0393, -0.1593, -0.0196, 0.28, 0.0258, 0.0188, -0.0938, -0.0219, 0.0716, 0.0057, -0.1172, -0.0093, -0.0615,
        0.0761, 0.0024, -0.0052, -0.0769, -0.0358, 0.0299, 0.0268, -0.021, -0.0448, -0.0007, -0.068, -0.0025, 0.0373,
        0.0212, -0.0054, 0.0335, -0.0073, -0.0263, -0.056,
    ),
    ("kappa", True): (
        0.0847, 0.2374, -0.0152, 0.0586, 0.7058, 0.0957, 0.0411, -0.1687, -0.1371, -0.0702, -0.0931, 0.0984, 0.0046,
        0.0299, -0.0298, -0.0091, 0.3929, 0.0238, 0.036, -0.0924, -0.0294, -0.0445, -0.0122, -0.07, -0.0657, 0.1177,
        0.0498, -0.0171, -0.183, -0.1799, -0.1358, 0.002, -0.0879, -0.0156, 0.2344, -0.0359, -0.0122, -0.0739,
        0.1743, -0.0366, 0.0236, -0.0089, 0.0061, 0.048, -0.3008,
    ),
}  # fmt: skip


def fitted_correction(
    prior: Prior, *, length: int, beta: Sequence[float], kappa: float | None
) -> Float[np.ndarray, " parameter"] | None:
    """What to add to the derived beta and kappa; None where nothing was fitted.

    None is returned outside of RANGE, and under the independent prior, whose derivation needs no such term.
    """
    if not isinstance(prior, HierarchicalDirichlet) or not in_range(prior, length=length):
        return None
    rows = features(prior, length=length, beta=beta, kappa=kappa)
    kinds = [*("beta_1" if lag == 0 else "beta" for lag in range(prior.order)), *([] if kappa is None else ["kappa"])]
    added = [row @ COEFFICIENTS[kind, kappa is not None] for kind, row in zip(kinds, rows, strict=True)]
    clipped: Float[np.ndarray, " parameter"] = np.clip(added, -LARGEST, LARGEST)
    return clipped


def in_range(prior: HierarchicalDirichlet, *, length: int) -> bool:
    """Whether the prior and the length lie within the worlds that the term was fitted on."""
    base = (prior.eta0,) if isinstance(prior.eta0, float) else prior.eta0
    values = {
        "order": [prior.order],
        "vocab": [prior.vocab],
        "eta": prior.eta,
        "eta0": base,
        "length": [length],
    }
    return all(RANGE[name][0] <= value <= RANGE[name][1] for name, many in values.items() for value in many)


def features(
    prior: HierarchicalDirichlet, *, length: int, beta: Sequence[float], kappa: float | None
) -> Float[np.ndarray, "parameter feature"]:
    """One row per parameter; `value` is its derived value, eta that of its level (kappa: the geometric mean)."""
    correlations = law_correlations(prior)
    levels = [*prior.eta, *([] if kappa is None else [float(np.exp(np.mean(np.log(prior.eta))))])]
    values = [*beta, *([] if kappa is None else [kappa])]
    centres, scales = np.array(list(VARIABLES.values())).T
    rows = []
    for value, eta in zip(values, levels, strict=True):
        plain = np.array(
            [
                correlations[-1],
                correlations[0],
                1.0 / (1.0 + eta),
                value,
                np.log(length - prior.order),
                np.log(prior.vocab),
                prior.order - 1,
                beta[0],
            ]
        )
        z = (plain - centres) / scales
        rows.append([1.0, *z, *(a * b for a, b in itertools.combinations_with_replacement(z, 2))])
    return np.array(rows)
