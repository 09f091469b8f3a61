"""Steps that need a prior which treats all symbols alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interp.chains.priors import Prior


def check_symmetric(prior: Prior, *, what: str) -> None:
    """Refuse a prior that treats symbols differently; `what` says which step needs label symmetry, and why."""
    if not prior.symmetric:
        raise ValueError(
            f"the prior {prior.text} treats symbols differently. {what}: give one alpha or eta0 for all symbols "
            "(sampling, the estimators and Bayes take unequal ones)"
        )
