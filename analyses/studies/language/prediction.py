"""(a) What does the model predict in context? KL to the truth at every position, beside estimators.

Chains in words of the model, the same chains under several alphabets. `model` is the KL of its law over the alphabet,
mean over alphabets; `alphabets averaged` that of the law whose logits are averaged over them. Estimators with
parameters are tuned on other chains, for all positions at once: one alpha per order, one beta and kappa. `nearest` rows
have the parameters that bring an estimator nearest to the model, KL(model || estimator), within a band of positions,
tuned on one half of the chains and tested on the other, then the reverse. `model, letters` is the model on the same
chains written in letters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from analyses.studies.language.task import LENGTH, ORDER, VOCAB, Options, Row, chains, circuit_of, prior, rounded

if TYPE_CHECKING:
    import torch

    from analyses.running.cache import Cache

    Family = Callable[[Sequence[float], torch.Tensor], torch.Tensor]

ALPHABETS = 3
BANDS = ((4, 8), (8, 16), (16, 32), (32, 64), (64, 96))
BAYES_AT = (4, 6, 8, 12, 16, 24, 32, 48, 64, 80, 96)  # tokens before the prediction
TUNED_ON = 150  # other chains
BAYES_DRAWS = 120


def rows(options: Options, cache: Cache) -> list[Row]:
    """KL curves, nearest estimators, and the share of names."""
    import torch

    from interp.circuit.runner import every_law
    from interp.divergence import kl_divergence

    number = max(10, 2 * options.batch // 3)
    drawn, given = chains(options, batch=number, alphabets=ALPHABETS, stream=3)
    circuit = circuit_of(options, given, ())
    laws, masses = every_law(circuit, given.tokens)
    by_chain = laws.unflatten(0, (number, ALPHABETS))
    truth = drawn.laws()
    averaged = torch.softmax(by_chain.log().mean(dim=1), dim=-1)

    def kl(found: torch.Tensor) -> torch.Tensor:
        flat = kl_divergence(truth.flatten(0, 1), found.flatten(0, 1)).values
        return flat.unflatten(0, truth.shape[:2])

    own = torch.stack([kl(by_chain[:, one]) for one in range(ALPHABETS)]).mean(dim=0)
    found = [curve("model", own), curve("alphabets averaged", kl(averaged))]
    found += [curve(name, kl(law), **more) for name, law, more in _estimators(drawn.tokens, options)]
    found.append(_bayes(drawn.tokens, truth, options))
    found.append({**_names(by_chain, masses), "alphabet": options.alphabet})
    found += _nearest(by_chain, drawn.tokens, _families())
    if options.alphabet == "words":
        found += _in_letters(options, number, kl)
    return found


def _in_letters(options: Options, number: int, kl: Callable[[torch.Tensor], torch.Tensor]) -> list[Row]:
    """The same chains in letters, once each: the names of the symbols have a large effect."""
    import dataclasses

    from interp.circuit.runner import every_law

    lettered = dataclasses.replace(options, alphabet="letters")
    drawn, given = chains(lettered, batch=number, stream=3)
    laws, masses = every_law(circuit_of(lettered, given, ()), given.tokens)
    soft = {"soft matching": _families()["soft matching"]}
    near = [{**row, "predictor": "soft matching, letters"} for row in _nearest(laws[:, None], drawn.tokens, soft)]
    mass = float(masses[:, BANDS[-1][0] :].mean())
    return [curve("model, letters", kl(laws), late_alphabet_mass=mass), *near]


def curve(name: str, values: torch.Tensor, *, positions: Sequence[int] | None = None, **more: Any) -> Row:
    """KL by position, and its mean over the last band; errors are over chains."""
    from interp.results import mean_stderr

    places = list(range(1, values.shape[1] + 1)) if positions is None else list(positions)
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


def _families() -> dict[str, tuple[Family, list[float]]]:
    """Estimators with parameters, by name: from parameters and tokens to the law after every token."""
    import math

    from interp.estimators.soft_matching import add_alpha, soft_matching

    def additive(order: int) -> Family:
        if order == 0:
            return lambda theta, tokens: _order_zero(tokens, alpha=math.exp(theta[0]))
        return lambda theta, tokens: add_alpha(
            tokens, order=order, vocab=VOCAB, alpha=math.exp(theta[0]), every_position=True
        )

    def soft(theta: Sequence[float], tokens: torch.Tensor) -> torch.Tensor:
        return soft_matching(tokens, vocab=VOCAB, beta=theta[:ORDER], kappa=theta[ORDER], every_position=True)

    found: dict[str, tuple[Family, list[float]]] = {f"add-alpha, order {k}": (additive(k), [0.0]) for k in range(4)}
    return found | {"soft matching": (soft, [2.0, 1.0, 2.0])}


def _order_zero(tokens: torch.Tensor, *, alpha: float) -> torch.Tensor:
    """Counts of single symbols with pseudo-counts."""
    import torch

    counts = torch.nn.functional.one_hot(tokens, VOCAB).double().cumsum(dim=1) + alpha
    return counts / counts.sum(-1, keepdim=True)


def _minimum(loss: Callable[[Any], float], start: Sequence[float]) -> list[float]:
    """The parameters with the least loss; none leaves [-12, 12]."""
    import numpy as np
    from scipy.optimize import minimize

    bounds = [(-12.0, 12.0)] * len(start)
    # SciPy's own first simplex is tiny around a start at zero, and the search would end there.
    simplex = np.vstack([start, np.asarray(start) + np.eye(len(start))])
    options: Any = {"maxfev": 150, "xatol": 0.01, "fatol": 1e-5, "initial_simplex": simplex}
    best = minimize(loss, start, method="Nelder-Mead", bounds=bounds, options=options)
    return [float(value) for value in best.x]


def _estimators(tokens: torch.Tensor, options: Options) -> list[tuple[str, torch.Tensor, Row]]:
    """The laws of the estimators for comparison after every token; parameters tuned on other chains."""
    import torch

    from interp.divergence import kl_divergence

    uniform = torch.full((*tokens.shape, VOCAB), 1.0 / VOCAB, dtype=torch.float64)
    found: list[tuple[str, torch.Tensor, Row]] = [("uniform", uniform, {})]
    other = prior().sample(batch=TUNED_ON, length=LENGTH, seed=1000 * options.seed + 999, method="explicit")
    truth = other.laws()[:, 3:].flatten(0, 1)
    for name, (family, start) in _families().items():

        def loss(theta: Any, family: Family = family) -> float:
            return float(kl_divergence(truth, family(theta, other.tokens)[:, 3:].flatten(0, 1)).mean)

        best = _minimum(loss, start)
        found.append((name, family(best, tokens), {"parameters": _named(name, best)}))
    return found


def _named(name: str, theta: Sequence[float]) -> Row:
    import math

    if name.startswith("soft matching"):
        return {"beta": rounded(theta[:ORDER]), "kappa": round(theta[ORDER], 5)}
    return {"alpha": round(math.exp(theta[0]), 5)}


def _bayes(tokens: torch.Tensor, truth: torch.Tensor, options: Options) -> Row:
    """The Bayes predictor at some positions."""
    import torch

    from interp.divergence import kl_divergence
    from interp.estimators.bayes import bayes_predictive

    columns, errors = [], []
    for place in BAYES_AT:
        found = bayes_predictive(tokens[:, :place], prior=prior(), draws=BAYES_DRAWS, seed=options.seed)
        columns.append(kl_divergence(truth[:, place - 1], found.mean).values)
        errors.append(found.error)
    return curve("bayes", torch.stack(columns, dim=1), positions=BAYES_AT, monte_carlo=max(errors))


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
    from interp.results import mean_stderr

    error = mean_stderr((names - share * whole) / float(whole.mean()))[1]
    return {
        "part": "prediction",
        "kind": "names",
        "share": share,
        "share_stderr": error,
        "alphabets": int(laws.shape[1]),
        "n": int(laws.shape[0]),
        "alphabet_mass": rounded(masses.mean(dim=0)),
        "late_alphabet_mass": float(masses[:, BANDS[-1][0] :].mean()),
    }


def _nearest(laws: torch.Tensor, tokens: torch.Tensor, families: dict[str, tuple[Family, list[float]]]) -> list[Row]:
    """The nearest estimator of each kind in each band of positions."""
    import torch

    from interp.divergence import KL_FLOOR, kl_between
    from interp.results import mean_stderr

    halves = [torch.arange(len(tokens)) % 2 == odd for odd in (0, 1)]
    everyone = torch.ones(len(tokens), dtype=torch.bool)
    found = []
    for name, (family, start) in families.items():
        for low, high in BANDS:
            place = slice(low, high)

            def distances(theta: Any, family: Family = family, place: slice = place) -> torch.Tensor:
                estimator = family(theta, tokens)[:, None, place].expand(-1, laws.shape[1], -1, -1)
                values = kl_between(laws[:, :, place].flatten(0, 2), estimator.flatten(0, 2), floor=KL_FLOOR)
                return torch.as_tensor(values).unflatten(0, (len(tokens), -1)).mean(dim=1)

            best = [
                _minimum(lambda theta, chosen=chosen: float(distances(theta)[chosen].mean()), start)  # type: ignore[misc]
                for chosen in (*halves, everyone)
            ]
            judged = torch.zeros(len(tokens), dtype=torch.float64)
            judged[halves[1]], judged[halves[0]] = distances(best[0])[halves[1]], distances(best[1])[halves[0]]
            kl, stderr = mean_stderr(judged)
            found.append(
                {
                    "part": "prediction",
                    "kind": "nearest",
                    "predictor": name,
                    "from": low + 1,
                    "to": high,
                    "from_model": kl,
                    "from_model_stderr": stderr,
                    "parameters": _named(name, best[2]),
                    "halves": [_named(name, one) for one in best[:2]],
                }
            )
    return found
