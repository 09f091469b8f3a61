"""The two constructions on one sequence: copy and match attention, and the weights by overlap.

    python -m analyses construction_attention
    python -m analyses construction_attention --length 128 --alpha 0.5

One sequence from the independent prior, seen through three analytic models (fig:mech_indep): hard matching without BOS
(beta = 100, counting), soft matching without BOS at the beta of lemma:optimal_beta (interpolation), and hard matching
with BOS at kappa = k beta + ln(alpha |V|) (add-alpha). Of --batch sequences the first is taken whose last context has
occurred at least twice, so that there are matches to see.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import interp as ip
from analyses.parts.estimators import HARD
from analyses.running.ask import Ask
from analyses.running.cache import Cache
from analyses.running.options import ChainOptions, option
from analyses.running.table import Table

MASSES = tuple(f"mass.{kind}" for kind in ("full", "partial", "none", "bos"))


@dataclass(frozen=True, kw_only=True)
class Options(ChainOptions):
    length: int = option(64, "tokens (default: %(default)s)", metavar="T", least=2)
    alpha: float = option(1.0, "concentration of the prior (default: %(default)s)")


ASK = Ask()


def study(options: Options, cache: Cache) -> Table:
    """One row per construction, with the attention it paid."""
    from analyses.checkpoint.attention import first_with_matches, one_sequence

    order, vocab, length, alpha = options.order, options.vocab, options.length, options.alpha
    prior = ip.IndependentDirichlet(order=order, vocab=vocab, alpha=alpha)
    drawn = prior.sample(batch=options.batch, length=length, seed=options.seed, method="explicit").tokens
    chosen = first_with_matches(drawn, order=order)
    tokens = drawn[chosen : chosen + 1]
    counted = ip.maximum_likelihood(tokens, order=order, vocab=vocab)
    smoothed = ip.add_alpha(tokens, order=order, vocab=vocab, alpha=alpha)
    soft = ip.beta_for_add_alpha(length=length, order=order, vocab=vocab, alpha=alpha)
    models: dict[str, tuple[float, float | None]] = {
        "hard": (HARD, None),
        "adaptive": (soft, None),
        "bos": (HARD, order * HARD + math.log(alpha * vocab)),
    }
    rows = []
    for name, (beta, kappa) in models.items():
        model = ip.construct(order=order, vocab=vocab, length=length, beta=[beta] * order, kappa=kappa)
        law = ip.predict(model, tokens)
        rows.append(
            {
                "construction": name,
                "order": order,
                "vocab": vocab,
                "length": length,
                "alpha": alpha,
                "bos": kappa is not None,
                "beta": [beta] * order,
                "kappa": kappa,
                "to_counting": float((law - counted).abs().max()),
                "to_add_alpha": float((law - smoothed).abs().max()),
                **one_sequence(model, tokens),
            }
        )
    return Table(
        rows=rows,
        provenance={"prior": prior.to_dict(), "sequence": chosen},
        shown=("construction", "beta_1", "kappa", *MASSES, "to_counting", "to_add_alpha"),
        notes=["to_counting, to_add_alpha: largest difference of the predicted law from that estimator's."],
    )
