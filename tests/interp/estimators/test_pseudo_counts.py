"""The pseudo-count of eq:pseudo_count: its definition, and the identity that gives it its name."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from interp.chains.priors import IndependentDirichlet
from interp.estimators.counts import cumulative_counts
from interp.estimators.pseudo_counts import pseudo_counts
from interp.estimators.soft_matching import beta_for_add_alpha, soft_matching
from tests import reference
from tests.cases import CASES

EVERY_OTHER = CASES[::2]


@pytest.mark.parametrize("case", EVERY_OTHER, ids=str)
def test_equals_its_definition(case):
    tokens = case.tokens()
    for beta in (0.05, 0.7, 3.0, 20.0):
        ours = pseudo_counts(tokens, order=case.order, vocab=case.vocab, beta=beta)
        expected = [reference.pseudo_counts(row.tolist(), k=case.order, vocab=case.vocab, beta=beta) for row in tokens]
        np.testing.assert_allclose(ours.numpy(), expected, rtol=1e-10)


@pytest.mark.parametrize("case", EVERY_OTHER, ids=str)
def test_counting_with_these_pseudo_counts_is_soft_matching(case):
    tokens = case.tokens()
    for every_position in (False, True):
        options = {"vocab": case.vocab, "every_position": every_position}
        extra = pseudo_counts(tokens, order=case.order, beta=1.3, **options)
        exact = cumulative_counts(tokens, order=case.order, **options)[..., -1, :]
        votes = exact + extra
        seen = votes.sum(-1) > 0
        expected = soft_matching(tokens, beta=(1.3,) * case.order, **options)
        torch.testing.assert_close((votes / votes.sum(-1, keepdim=True))[seen], expected[seen])


def test_the_lemma_makes_their_mean_alpha_where_its_approximation_holds():
    """At order 1 the lemma's only approximation is its count of candidates, T - 2 for T - 1."""
    alpha, length = 1.0, 200
    tokens = IndependentDirichlet(order=1, vocab=5, alpha=alpha).sample(batch=4000, length=length, seed=0).tokens
    beta = beta_for_add_alpha(length=length, order=1, vocab=5, alpha=alpha)
    mean = float(pseudo_counts(tokens, order=1, vocab=5, beta=beta).mean())
    assert mean == pytest.approx(alpha * (length - 1) / (length - 2), abs=0.01)
