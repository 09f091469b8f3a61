"""What does the model predict in context, and where does the prediction form? KL to the truth, beside estimators.

Chains in words of the model, the same chains under several alphabets. `model` is the KL of its law over the alphabet,
mean over alphabets; `alphabets averaged` that of the law whose logits are averaged over them. Estimators with
parameters are tuned on other chains, for all positions at once: one alpha per order, one beta and kappa. `nearest` rows
have the parameters that bring an estimator nearest to the model, KL(model || estimator), within a band of positions,
tuned on one half of the chains and tested on the other, then the reverse. `model, letters` is the model on the same
chains written in letters. Rows of the part `layers`: what the readout reads of the stream after each layer.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from scipy.optimize import minimize

from analyses.running.cache import Cache
from analyses.studies.language.task import LENGTH, ORDER, PRIOR, VOCAB, Row, chains, circuit_of, rounded
from analyses.studies.language_model import Options
from interp.circuit.runner import every_law
from interp.divergence import KL_FLOOR, kl_between, kl_divergence
from interp.estimators.bayes import bayes_predictive
from interp.estimators.soft_matching import add_alpha, soft_matching
from interp.instruments.layers import law_by_layer
from interp.results import mean_stderr

# From parameters and tokens to the law after every token, and where a search for the parameters starts.
Family: TypeAlias = tuple[Callable[[Sequence[float], torch.Tensor], torch.Tensor], list[float]]

ALPHABETS = 3
BANDS = ((4, 8), (8, 16), (16, 32), (32, 64), (64, 96))
BAYES_AT = (4, 6, 8, 12, 16, 24, 32, 48, 64, 80, 96)  # tokens before the prediction
TUNED_ON = 150  # other chains
BAYES_DRAWS = 120
LAYERS_LENGTH = 64


def rows(options: Options, cache: Cache) -> list[Row]:
    """KL curves, nearest estimators, and the share of names."""
    number = max(10, 2 * options.batch // 3)
    drawn, given = chains(options, batch=number, alphabets=ALPHABETS, stream=3)
    laws, masses = every_law(circuit_of(options, given), given.tokens)
    by_chain = laws.unflatten(0, (number, ALPHABETS))
    truth = drawn.laws()
    averaged = torch.softmax(by_chain.log().mean(dim=1), dim=-1)
    own = torch.stack([kl(truth, by_chain[:, one]) for one in range(ALPHABETS)]).mean(dim=0)
    found = [curve("model", own), curve("alphabets averaged", kl(truth, averaged))]
    found += _estimators(drawn.tokens, truth, options)
    found.append(_bayes(drawn.tokens, truth, options))
    found.append({**_names(by_chain, masses), "alphabet": options.alphabet})
    found += _nearest(by_chain, drawn.tokens, FAMILIES)
    if options.alphabet == "words":  # the same chains in letters, once each: names have a large effect
        lettered = dataclasses.replace(options, alphabet="letters")
        drawn, given = chains(lettered, batch=number, stream=3)
        laws, masses = every_law(circuit_of(lettered, given), given.tokens)
        mass = float(masses[:, BANDS[-1][0] :].mean())
        near = _nearest(laws[:, None], drawn.tokens, {"soft matching": FAMILIES["soft matching"]})
        found.append(curve("model, letters", kl(truth, laws), late_alphabet_mass=mass))
        found += [{**row, "predictor": "soft matching, letters"} for row in near]
    return found


def layer_rows(options: Options, cache: Cache) -> list[Row]:
    """One row for the stream before the first layer (-1) and after each one."""
    drawn, given = chains(options, batch=options.batch, length=LAYERS_LENGTH, stream=5)
    found = law_by_layer(circuit_of(options, given), given.tokens, next_law=drawn.next_law)
    more = {"part": "layers", "uniform": found.uniform, "n": found.n}
    return [{str(name): value for name, value in row.items()} | more for row in found.table().to_dict("records")]


def kl(truth: torch.Tensor, law: torch.Tensor) -> torch.Tensor:
    """KL(truth || law) by sequence and position."""
    return kl_divergence(truth.flatten(0, 1), law.flatten(0, 1)).values.unflatten(0, truth.shape[:2])


def curve(name: str, values: torch.Tensor, *, positions: Sequence[int] = (), **more: Any) -> Row:
    """KL by position, and its mean over the last band; errors are over chains."""
    places = list(positions) or list(range(1, values.shape[1] + 1))
    pairs = [mean_stderr(column) for column in values.T]
    late = [index for index, place in enumerate(places) if place > BANDS[-1][0]]
    mean, stderr = mean_stderr(values[:, late].mean(dim=1))
    return {
        "part": "prediction",
        "kind": "kl",
        "predictor": name,
        **more,
        "late_kl": mean,
        "late_stderr": stderr,
        "n": len(values),
        "position": places,
        "kl": rounded(pair[0] for pair in pairs),
        "stderr": rounded(pair[1] for pair in pairs),
    }


def _additive(theta: Sequence[float], tokens: torch.Tensor, *, order: int) -> torch.Tensor:
    """add-alpha; of order 0 counts of single symbols with pseudo-counts."""
    alpha = math.exp(theta[0])
    if order:
        return add_alpha(tokens, order=order, vocab=VOCAB, alpha=alpha, every_position=True)
    counts = torch.nn.functional.one_hot(tokens, VOCAB).double().cumsum(dim=1) + alpha
    return counts / counts.sum(-1, keepdim=True)


def _soft(theta: Sequence[float], tokens: torch.Tensor) -> torch.Tensor:
    return soft_matching(tokens, vocab=VOCAB, beta=theta[:ORDER], kappa=theta[ORDER], every_position=True)


FAMILIES: dict[str, Family] = {f"add-alpha, order {k}": (partial(_additive, order=k), [0.0]) for k in range(4)}
FAMILIES["soft matching"] = (_soft, [2.0, 1.0, 2.0])


def _minimum(loss: Callable[[Any], float], start: Sequence[float]) -> list[float]:
    """The parameters with the least loss; none leaves [-12, 12]."""
    bounds = [(-12.0, 12.0)] * len(start)
    # SciPy's own first simplex is tiny around a start at zero, and the search would end there.
    simplex = np.vstack([start, np.asarray(start) + np.eye(len(start))])
    options: Any = {"maxfev": 150, "xatol": 0.01, "fatol": 1e-5, "initial_simplex": simplex}
    best = minimize(loss, start, method="Nelder-Mead", bounds=bounds, options=options)
    return [float(value) for value in best.x]


def _estimators(tokens: torch.Tensor, truth: torch.Tensor, options: Options) -> list[Row]:
    """The estimators for comparison after every token; parameters tuned on other chains."""
    uniform = torch.full((*tokens.shape, VOCAB), 1.0 / VOCAB, dtype=torch.float64)
    found = [curve("uniform", kl(truth, uniform))]
    other = PRIOR.sample(batch=TUNED_ON, length=LENGTH, seed=1000 * options.seed + 999, method="explicit")
    other_truth = other.laws()[:, 3:]
    for name, (family, start) in FAMILIES.items():

        def loss(theta: Any, family: Any = family) -> float:
            return float(kl(other_truth, family(theta, other.tokens)[:, 3:]).mean())

        best = _minimum(loss, start)
        found.append(curve(name, kl(truth, family(best, tokens)), parameters=_named(name, best)))
    return found


def _named(name: str, theta: Sequence[float]) -> Row:
    if name.startswith("soft matching"):
        return {"beta": rounded(theta[:ORDER]), "kappa": round(theta[ORDER], 5)}
    return {"alpha": round(math.exp(theta[0]), 5)}


def _bayes(tokens: torch.Tensor, truth: torch.Tensor, options: Options) -> Row:
    """The Bayes predictor at some positions."""
    found = [
        bayes_predictive(tokens[:, :place], prior=PRIOR, draws=BAYES_DRAWS, seed=options.seed) for place in BAYES_AT
    ]
    columns = [kl_divergence(truth[:, at - 1], one.mean).values for at, one in zip(BAYES_AT, found, strict=True)]
    error = max(one.error for one in found)
    return curve("bayes", torch.stack(columns, dim=1), positions=BAYES_AT, monte_carlo=error)


def _names(laws: torch.Tensor, masses: torch.Tensor) -> Row:
    """The share of the variance of log-laws due to the choice of names, and the mass of the alphabet by position.

    Log-probabilities, centred over symbols. With A alphabets for every chain, the variance over alphabets is that of
    names; the whole variance is over chains, alphabets and positions, from 16 tokens on.
    """
    logs = laws.log()
    logs = (logs - logs.mean(dim=-1, keepdim=True))[:, :, 16:]
    names = logs.var(dim=1, unbiased=True).mean(dim=(1, 2))
    whole = (logs**2).mean(dim=(1, 2, 3))
    share = float(names.mean() / whole.mean())
    return {
        "part": "prediction",
        "kind": "names",
        "share": share,
        "share_stderr": mean_stderr((names - share * whole) / float(whole.mean()))[1],
        "alphabets": int(laws.shape[1]),
        "n": int(laws.shape[0]),
        "alphabet_mass": rounded(masses.mean(dim=0)),
        "late_alphabet_mass": float(masses[:, BANDS[-1][0] :].mean()),
    }


def _nearest(laws: torch.Tensor, tokens: torch.Tensor, families: dict[str, Family]) -> list[Row]:
    """The nearest estimator of each kind in each band of positions."""
    odd = torch.arange(len(tokens)) % 2 == 1
    found = []
    for name, (family, start) in families.items():
        for low, high in BANDS:

            def distances(theta: Any, family: Any = family, low: int = low, high: int = high) -> torch.Tensor:
                estimator = family(theta, tokens)[:, None, low:high].expand(-1, laws.shape[1], -1, -1)
                values = kl_between(laws[:, :, low:high].flatten(0, 2), estimator.flatten(0, 2), floor=KL_FLOOR)
                return torch.as_tensor(values).unflatten(0, (len(tokens), -1)).mean(dim=1)

            def tuned(chosen: torch.Tensor, start: list[float] = start, distances: Any = distances) -> list[float]:
                return _minimum(lambda theta: float(distances(theta)[chosen].mean()), start)

            halves = [tuned(~odd), tuned(odd)]
            kl_found, stderr = mean_stderr(torch.where(odd, distances(halves[0]), distances(halves[1])))
            found.append(
                {
                    "part": "prediction",
                    "kind": "nearest",
                    "predictor": name,
                    "from": low + 1,
                    "to": high,
                    "from_model": kl_found,
                    "from_model_stderr": stderr,
                    "parameters": _named(name, tuned(torch.ones_like(odd))),
                    "halves": [_named(name, one) for one in halves],
                }
            )
    return found
