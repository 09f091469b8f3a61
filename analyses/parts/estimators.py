"""The estimators that models are compared with: classical ones, the constructions by their closed form, the optimum."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import interp as ip
from analyses.parts.heldout import Predictor

if TYPE_CHECKING:
    from analyses.running.cache import Cache
    from interp.estimators.optimal import OptimalParameters

TUNED_ALPHA = "add-alpha, tuned"
ALPHA_SHARE = 4  # of the tuning draws, a quarter: one number needs fewer sequences than several
HARD = 100.0  # the beta of the paper's hard construction


def optimum(prior: ip.Prior, *, length: int, bos: bool, draws: int, seed: int, cache: Cache) -> OptimalParameters:
    """`interp.optimal_parameters`, cached."""
    from interp.estimators.optimal import OptimalParameters

    def compute() -> dict[str, Any]:
        return vars(ip.optimal_parameters(prior, length=length, bos=bos, draws=draws, seed=seed))

    key = {"what": "optimal", "prior": prior.to_dict(), "length": length, "bos": bos, "draws": draws, "seed": seed}
    values = cache.value(key, compute)
    # Python's JSON keeps infinities and NaN; tuples come back as lists.
    lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
    return OptimalParameters(**{**values, **lists})


def alpha_of(prior: ip.Prior) -> float:
    """The alpha that additive smoothing is given: the prior's own if independent, 1 otherwise, as in the paper."""
    prior.require_symmetry("This study smooths with one alpha for all symbols")
    return float(prior.concentrations()[-1]) / prior.vocab if prior.independent else 1.0


def soft(name: str, *, vocab: int, beta: Sequence[float], kappa: float | None) -> Predictor:
    """Soft matching: a construction by its closed form."""
    return Predictor(
        name=name,
        group="construction",
        key={"name": "soft matching", "vocab": vocab, "beta": list(beta), "kappa": kappa},
        law=lambda tokens: ip.soft_matching(tokens, vocab=vocab, beta=beta, kappa=kappa),
    )


def soft_at(best: OptimalParameters, name: str = "optimum") -> Predictor:
    """Soft matching at an optimum."""
    beta, kappa = best.usable()
    return soft(name, vocab=best.vocab, beta=beta, kappa=kappa)


def classical(name: str, function: Callable[..., Any], **options: Any) -> Predictor:
    """An estimator of the textbooks, by its function and options."""
    return Predictor(
        name=name, group="classical", key={"name": name, **options}, law=lambda tokens: function(tokens, **options)
    )


def additive(prior: ip.Prior, alpha: float) -> Predictor:
    """add-alpha."""
    return classical(f"add-{alpha:g}", ip.add_alpha, order=prior.order, vocab=prior.vocab, alpha=alpha)


def estimators(
    prior: ip.Prior, *, length: int, alphas: Sequence[float], draws: int, seed: int, cache: Cache
) -> Iterator[Predictor]:
    """Every estimator that needs no model: classical ones, then the constructions by their closed form."""
    from interp.estimators import classical as smoothers

    shape = {"order": prior.order, "vocab": prior.vocab}
    yield classical("maximum likelihood", ip.maximum_likelihood, **shape)
    for alpha in alphas:
        yield additive(prior, alpha)
    yield tuned_additive(prior, length=length, draws=draws, seed=seed, cache=cache)
    weights = tuned_weights(prior, length=length, draws=draws, seed=seed, cache=cache)
    yield classical("jelinek-mercer", smoothers.jelinek_mercer, vocab=prior.vocab, weights=weights)
    yield classical("katz", smoothers.katz, **shape)
    yield classical("witten-bell", smoothers.witten_bell, **shape)
    yield classical("kneser-ney", smoothers.kneser_ney, **shape)
    yield classical("context tree weighting", ip.context_tree_weighting, **shape)
    yield from constructions(prior, length=length, draws=draws, seed=seed, cache=cache)


def tuned_additive(prior: ip.Prior, *, length: int, draws: int, seed: int, cache: Cache) -> Predictor:
    """add-alpha with the alpha that is best at this length, tuned on other sequences of the prior."""
    key = {"what": "alpha", "prior": prior.to_dict(), "length": length, "draws": draws, "seed": seed}
    alpha: float = cache.value(
        key, lambda: ip.tune_add_alpha(prior, length=length, draws=draws // ALPHA_SHARE, seed=seed + 1).alpha
    )
    return classical(TUNED_ALPHA, ip.add_alpha, order=prior.order, vocab=prior.vocab, alpha=alpha)


def tuned_weights(prior: ip.Prior, *, length: int, draws: int, seed: int, cache: Cache) -> list[float]:
    """Jelinek-Mercer weights tuned on other sequences of the prior."""
    key = {"what": "weights", "prior": prior.to_dict(), "length": length, "draws": draws, "seed": seed}
    weights: list[float] = cache.value(
        key, lambda: list(ip.tune_jelinek_mercer(prior, length=length, draws=draws, seed=seed + 1).weights)
    )
    return weights


def constructions(prior: ip.Prior, *, length: int, draws: int, seed: int, cache: Cache) -> Iterator[Predictor]:
    """beta = 100 with and without BOS, beta(t) of lemma:optimal_beta, and the population optimum with and without BOS.

    They are computed by eq:transformer_estimator, which the models equal to rounding (`python -m analyses
    theory`).
    """

    order, vocab, alpha = prior.order, prior.vocab, alpha_of(prior)
    hard = (HARD,) * order
    yield soft("hard, no BOS", vocab=vocab, beta=hard, kappa=None)
    yield soft("hard, BOS", vocab=vocab, beta=hard, kappa=order * HARD + math.log(alpha * vocab))
    if length >= order + 2:
        adaptive = ip.beta_for_add_alpha(length=length, order=order, vocab=vocab, alpha=alpha)
        yield soft("beta(t), no BOS", vocab=vocab, beta=(adaptive,) * order, kappa=None)
    for bos in (False, True):
        best = optimum(prior, length=length, bos=bos, draws=draws, seed=seed + 1, cache=cache)
        yield soft_at(best, f"optimal, {'BOS' if bos else 'no BOS'}")
