"""What does the model predict in context? KL to the truth at every position of chains, beside estimators.

kl       `model` is the KL of its distribution over the alphabet, mean over alphabets; `alphabets averaged` that of the
         distribution whose logits are averaged over them, `letters` the model on the same chains in letters. add-alpha
         has the alpha that is best on other chains, soft matching the best beta and kappa at the chains' full length
nearest  the estimators by their distance from the model at the last position (`ip.nearest_estimator`)
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import torch

from analyses.studies.language.case import VOCAB, Case, Row, rounded
from interp.circuit.runner import every_law
from interp.divergence import kl_divergence
from interp.estimators.bayes import bayes_predictive
from interp.estimators.optimal import optimal_parameters
from interp.estimators.soft_matching import add_alpha, soft_matching
from interp.instruments.nearest_estimator import nearest_estimator
from interp.language.prompts import Prompts
from interp.results import mean_stderr

ALPHABETS = 2
LATE = 64  # tokens: means over later positions
BAYES_AT = (4, 6, 8, 12, 16, 24, 32, 48, 64, 80, 96)  # tokens before the prediction
BAYES_DRAWS = 120
ALPHAS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
TUNED_ON = 150  # other chains
DRAWS = 20_000  # for the best soft matching


def rows(case: Case, part: str) -> list[Row]:
    """KL curves, then the nearest estimators."""
    number = 4 * case.options.batch // 5
    drawn, _ = case.chains(batch=number, stream=3)
    truth = drawn.laws()
    prompts = [case.chains(batch=number, stream=3, draw=draw)[1] for draw in range(ALPHABETS)]
    laws = torch.stack([predicted(case, given) for given in prompts])
    own = torch.stack([kl(truth, law) for law in laws]).mean(dim=0)
    found = [curve("model", own), curve("alphabets averaged", kl(truth, laws.log().mean(dim=0).softmax(dim=-1)))]
    with contextlib.suppress(ValueError):  # of some models letters are no single tokens
        _, letters = case.chains(batch=number, stream=3, alphabet="letters")
        found.append(curve("letters", kl(truth, predicted(case, letters))))
    _, given = case.chains(batch=case.options.batch, stream=13)
    near = nearest_estimator(case.circuit(given, order=case.options.order), given.tokens)
    table = near.table()[["estimator", "kl", "stderr", "parameters"]].rename(columns={"stderr": "kl_stderr"})
    ranked: list[Row] = [
        {"kind": "nearest", "n": near.n, **{str(name): one for name, one in row.items()}}
        for row in table.to_dict("records")
    ]
    return found + estimators(case, drawn.tokens, truth) + ranked


def predicted(case: Case, given: Prompts) -> torch.Tensor:
    """The model's distributions over the symbols after every token."""
    return every_law(case.circuit(given, order=case.options.order), given.tokens)[0]


def kl(truth: torch.Tensor, law: torch.Tensor) -> torch.Tensor:
    """KL(truth || law) by sequence and position."""
    return kl_divergence(truth.flatten(0, 1), law.flatten(0, 1)).values.unflatten(0, truth.shape[:2])


def curve(name: str, values: torch.Tensor, *, positions: Sequence[int] = ()) -> Row:
    """KL by position, and its mean over the late ones; errors are over chains."""
    places = list(positions) or list(range(1, values.shape[1] + 1))
    pairs = [mean_stderr(column) for column in values.T]
    late = [index for index, place in enumerate(places) if place > min(LATE, places[-1] // 2)]
    mean, stderr = mean_stderr(values[:, late].mean(dim=1))
    return {
        "kind": "kl",
        "predictor": name,
        "late_kl": mean,
        "late_kl_stderr": stderr,
        "n": len(values),
        "position": places,
        "kl": rounded(pair[0] for pair in pairs),
        "kl_stderr": rounded(pair[1] for pair in pairs),
    }


def estimators(case: Case, tokens: torch.Tensor, truth: torch.Tensor) -> list[Row]:
    """The estimators for comparison after every token: the same for all models whose context holds these chains."""
    length, order, seed = tokens.shape[1], case.options.order, case.options.seed

    def made() -> list[Row]:
        found = [curve("uniform", kl(truth, torch.full((*tokens.shape, VOCAB), 1.0 / VOCAB, dtype=torch.float64)))]
        other, _ = case.chains(batch=TUNED_ON, stream=999)
        for k in range(order + 1):
            losses = {one: float(kl(other.laws(), additive(other.tokens, k, one)).mean()) for one in ALPHAS}
            best = min(losses, key=losses.__getitem__)
            found.append(curve(f"add-alpha, order {k}", kl(truth, additive(tokens, k, best))))
        beta, kappa = optimal_parameters(case.prior, length=length, bos=True, draws=DRAWS, seed=seed).usable()
        law = soft_matching(tokens, vocab=VOCAB, beta=beta, kappa=kappa, every_position=True)
        found.append(curve("soft matching", kl(truth, law)))
        places = [place for place in BAYES_AT if place <= length]
        bayes = [bayes_predictive(tokens[:, :at], prior=case.prior, draws=BAYES_DRAWS, seed=seed) for at in places]
        columns = [kl_divergence(truth[:, at - 1], one.mean).values for at, one in zip(places, bayes, strict=True)]
        return [*found, curve("bayes", torch.stack(columns, dim=1), positions=places)]

    key = {"what": "language-estimators", "length": length, "chains": len(tokens), "order": order, "seed": seed}
    rows: list[Row] = case.cache.value(key, made)
    return rows


def additive(tokens: torch.Tensor, order: int, alpha: float) -> torch.Tensor:
    """add-alpha after every token; of order 0 with the counts of single symbols."""
    if order:
        return add_alpha(tokens, order=order, vocab=VOCAB, alpha=alpha, every_position=True)
    counts = torch.nn.functional.one_hot(tokens, VOCAB).double().cumsum(dim=1) + alpha
    return counts / counts.sum(-1, keepdim=True)
