"""A fitted term that the predicted optimum adds to its derivation, and where it may: named and separate.

    fitted_correction(prior, length=64, beta=(3.4, 1.7), kappa=4.2)      what to add to each; None outside of the range

The derivation leaves out that chains return to the same few contexts, and that frequent symbols are frequent in all
roles (docs/theory.md, "What is approximate"). Their effect is smooth. So the difference between the searched and the
derived optimum was regressed on the eleven quantities of FEATURES, in the worlds of analyses/tables/worlds_tuning.csv,
apart for beta_1, the other betas and kappa, with and without BOS. `python -m analyses worlds` judges it on others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from interp.chains.priors import HierarchicalDirichlet, Prior
from interp.estimators.match_rates import law_correlations

FEATURES = (
    "1", "r_k", "value", "r_k value", "ln(T - k)", "ln|V|", "k - 1", "(k - 1) value", "r_0", "1 / (1 + eta)",
    "value / (1 + eta)",
)  # fmt: skip
LARGEST = 1.5  # nats, either way
RANGE = {"order": (1, 4), "vocab": (2, 32), "eta": (1.0, 50.0), "eta0": (0.1, 5.0), "length": (16, 4096)}
# For each kind of parameter, with and without BOS: the coefficients in the order of FEATURES.
COEFFICIENTS: dict[tuple[str, bool], tuple[float, ...]] = {
    ("beta", False): (-0.0995, -0.1725, 0.1079, 0.0651, -0.0145, 0.0076, 0.0477, -0.0596, 0.0608, 0.4195, -0.1171),
    ("beta", True): (-0.1126, 0.0626, 0.1149, -0.1047, -0.0196, 0.009, 0.0262, -0.0215, -0.0947, -0.0069, 0.2846),
    ("beta_1", False): (-0.1834, -0.4779, 0.0326, 0.0651, 0.0122, -0.0338, 0.2254, -0.081, 0.3201, 1.4382, -0.2612),
    ("beta_1", True): (-0.0513, 0.5591, 0.0563, -0.0029, -0.0349, -0.0273, 0.0522, -0.0326, -0.4721, -0.7531, 0.0905),
    ("kappa", True): (-0.6794, -0.8353, 0.0769, 0.3166, -0.0223, 0.112, 0.0775, -0.0306, 0.9309, 0.0, 0.0),
}


def fitted_correction(
    prior: Prior, *, length: int, beta: Sequence[float], kappa: float | None
) -> Float[np.ndarray, " parameter"] | None:
    """What to add to the derived beta and kappa; None where nothing was fitted.

    That is outside of RANGE, and under the independent prior, whose derivation needs no such term.
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
    values = {
        "order": [prior.order],
        "vocab": [prior.vocab],
        "eta": prior.eta,
        "eta0": [prior.eta0],
        "length": [length],
    }
    return all(RANGE[name][0] <= value <= RANGE[name][1] for name, many in values.items() for value in many)


def features(
    prior: HierarchicalDirichlet, *, length: int, beta: Sequence[float], kappa: float | None
) -> Float[np.ndarray, "parameter feature"]:
    """One row per parameter; `value` is its derived value, and eta that of its level (kappa has none)."""
    correlations = law_correlations(prior)
    first, last = float(correlations[0]), float(correlations[-1])
    keys, vocab, more = np.log(length - prior.order), np.log(prior.vocab), prior.order - 1
    rows = []
    for lag, value in enumerate([*beta, *([] if kappa is None else [kappa])]):
        near = 1.0 / (1.0 + prior.eta[lag]) if lag < prior.order else 0.0
        rows.append([1, last, value, last * value, keys, vocab, more, more * value, first, near, near * value])
    return np.array(rows)
