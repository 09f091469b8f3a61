"""The classical smoothers against their definitions, as loops; and what all estimators share."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from interp.chains.priors import HierarchicalDirichlet, IndependentDirichlet
from interp.divergence import kl_divergence
from interp.estimators.classical import (
    FALLBACK_DISCOUNT,
    jelinek_mercer,
    katz,
    kneser_ney,
    witten_bell,
)
from interp.estimators.context_trees import context_tree_weighting
from interp.estimators.counts import cumulative_counts, queries
from interp.estimators.soft_matching import add_alpha, maximum_likelihood, soft_matching, soft_matching_pairs
from interp.estimators.suffixes import suffix_counts
from interp.estimators.tuned import tune_add_alpha, tune_jelinek_mercer
from tests.cases import CASES, every_case

WITHOUT_REPEATS = CASES[::2]  # the table lists every setting without and with BOS, which these do not have


def jelinek_mercer_of(tokens, *, order, vocab, every_position=False):
    weights = np.arange(1.0, order + 2) / np.arange(1.0, order + 2).sum()
    return jelinek_mercer(tokens, vocab=vocab, weights=weights, every_position=every_position)


SMOOTHERS = {
    "jelinek_mercer": jelinek_mercer_of,
    "katz": katz,
    "witten_bell": witten_bell,
    "kneser_ney": kneser_ney,
    "context_tree_weighting": context_tree_weighting,
}


def soft_matching_of(tokens, *, order, vocab, kappa=None, every_position=False):
    beta = np.linspace(2.0, -0.4, order)
    return soft_matching(tokens, vocab=vocab, beta=beta, kappa=kappa, every_position=every_position)


def soft_matching_pairs_of(tokens, *, order, vocab, every_position=False):
    beta = np.linspace(2.0, -0.4, order**2).reshape(order, order)
    return soft_matching_pairs(tokens, vocab=vocab, beta=beta, every_position=every_position)


ESTIMATORS = SMOOTHERS | {
    "soft_matching": soft_matching_of,
    "soft_matching with BOS": partial(soft_matching_of, kappa=1.0),
    "soft_matching_pairs": soft_matching_pairs_of,
    "maximum_likelihood": maximum_likelihood,
    "add_alpha": partial(add_alpha, alpha=0.5),
}
every_estimator = pytest.mark.parametrize("estimate", ESTIMATORS.values(), ids=ESTIMATORS)


# ---- definitions, over Python lists and dictionaries


def ngrams(x: list[int], k: int, order: int) -> Counter:
    """(suffix of length `order`, symbol) at every candidate, suffix as (older, ..., recent)."""
    return Counter((tuple(x[s - order : s]), x[s]) for s in range(k, len(x)))


def continuations(x: list[int], k: int, order: int) -> Counter:
    """In how many distinct contexts one token longer each (suffix, symbol) occurs."""
    return Counter((context[1:], symbol) for context, symbol in ngrams(x, k, order + 1))


def suffix(x: list[int], order: int) -> tuple[int, ...]:
    return tuple(x[len(x) - order :])


def discount(counts: Counter) -> float:
    tally = Counter(counts.values())
    return tally[1] / (tally[1] + 2 * tally[2]) if tally[1] and tally[2] else FALLBACK_DISCOUNT


def plain_jelinek_mercer(x, k, vocab):
    weights = [(i + 1) / sum(range(1, k + 2)) for i in range(k + 1)]
    law = [0.0] * vocab
    model = [1 / vocab] * vocab
    for i in range(k + 1):
        counts = [ngrams(x, k, i)[suffix(x, i), m] for m in range(vocab)]
        if sum(counts):
            model = [count / sum(counts) for count in counts]
        law = [p + weights[i] * q for p, q in zip(law, model, strict=True)]
    return law


def plain_katz(x, k, vocab):
    for i in range(k, -1, -1):
        counts = [ngrams(x, k, i)[suffix(x, i), m] for m in range(vocab)]
        if sum(counts):
            return [count / sum(counts) for count in counts]
    return [1 / vocab] * vocab


def plain_witten_bell(x, k, vocab):
    law = [1 / vocab] * vocab
    for i in range(k + 1):
        counts = [ngrams(x, k, i)[suffix(x, i), m] for m in range(vocab)]
        distinct = sum(count > 0 for count in counts)
        if distinct:
            law = [(c + distinct * p) / (sum(counts) + distinct) for c, p in zip(counts, law, strict=True)]
    return law


def plain_kneser_ney(x, k, vocab):
    law = [1 / vocab] * vocab
    for i in range(k + 1):
        table = ngrams(x, k, i) if i == k else continuations(x, k, i)
        counts = [table[suffix(x, i), m] for m in range(vocab)]
        total, distinct = sum(counts), sum(count > 0 for count in counts)
        step = discount(table)
        if total:
            law = [max(c - step, 0) / total + step * distinct / total * p for c, p in zip(counts, law, strict=True)]
    return law


def tree_block(x: list[int], k: int, vocab: int, context: tuple[int, ...] = ()) -> Fraction:
    """P_c of context tree weighting: the block probability of what followed the context, by its definition."""
    followers = [x[s] for s in range(k, len(x)) if tuple(x[s - len(context) : s]) == context]
    leaf, seen = Fraction(1), [0] * vocab
    for symbol in followers:
        leaf *= (seen[symbol] + Fraction(1, 2)) / (sum(seen) + Fraction(vocab, 2))
        seen[symbol] += 1
    if len(context) == k:
        return leaf
    split = Fraction(1)
    for older in range(vocab):
        split *= tree_block(x, k, vocab, (older, *context))
    return (leaf + split) / 2


def plain_tree_weighting(x, k, vocab):
    past = tree_block(x, k, vocab)
    return [float(tree_block([*x, m], k, vocab) / past) for m in range(vocab)]


PLAIN = {
    "jelinek_mercer": plain_jelinek_mercer,
    "katz": plain_katz,
    "witten_bell": plain_witten_bell,
    "kneser_ney": plain_kneser_ney,
}


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("case", WITHOUT_REPEATS, ids=str)
def test_equals_its_definition(name, case):
    tokens = case.tokens()
    ours = SMOOTHERS[name](tokens, order=case.order, vocab=case.vocab)
    expected = [PLAIN[name](row.tolist(), case.order, case.vocab) for row in tokens]
    np.testing.assert_allclose(ours.numpy(), expected, atol=1e-12)


@pytest.mark.parametrize(("order", "vocab", "length"), [(1, 2, 30), (2, 2, 30), (3, 2, 20), (2, 3, 16), (1, 5, 12)])
def test_tree_weighting_equals_its_block_probabilities(order, vocab, length):
    tokens = np.random.default_rng(order).integers(vocab, size=(3, length))
    ours = context_tree_weighting(tokens, order=order, vocab=vocab)
    expected = [plain_tree_weighting(row.tolist(), order, vocab) for row in tokens]
    np.testing.assert_allclose(ours.numpy(), expected, atol=1e-12)


# ---- what all have in common


@every_estimator
@pytest.mark.parametrize("case", WITHOUT_REPEATS[::3], ids=str)
def test_laws_everywhere_never_see_the_future(estimate, case):
    tokens = case.tokens()
    everywhere = estimate(tokens, order=case.order, vocab=case.vocab, every_position=True)
    assert everywhere.shape == (*tokens.shape, case.vocab)
    assert everywhere.dtype == torch.float64
    assert float((everywhere.sum(-1) - 1).abs().max()) < 1e-12
    assert float(everywhere.min()) >= 0
    np.testing.assert_allclose(everywhere[:, : case.order].numpy(), 1 / case.vocab)
    last = estimate(tokens, order=case.order, vocab=case.vocab)
    torch.testing.assert_close(last, everywhere[:, -1], rtol=0, atol=1e-12)
    cut = max(case.order + 1, case.length // 2)
    other = tokens.copy()
    other[:, cut:] = (other[:, cut:] + 1) % case.vocab
    changed = estimate(other, order=case.order, vocab=case.vocab, every_position=True)
    assert torch.equal(changed[:, :cut], everywhere[:, :cut])
    if cut < case.length:  # the change itself was seen
        assert not torch.equal(changed[:, cut:], everywhere[:, cut:])


@every_estimator
@settings(max_examples=20)
@given(data=st.data())
def test_relabelled_tokens_give_the_relabelled_law(estimate, data):
    vocab = data.draw(st.integers(2, 5))
    order = data.draw(st.integers(1, 3))
    row = data.draw(st.lists(st.integers(0, vocab - 1), min_size=order + 1, max_size=30))
    names = np.array(data.draw(st.permutations(range(vocab))))
    law = estimate([row], order=order, vocab=vocab)[0]
    renamed = estimate(names[row][None], order=order, vocab=vocab)[0]
    torch.testing.assert_close(renamed[names], law, rtol=0, atol=1e-12)
    assert abs(float(law.sum()) - 1) < 1e-12


@every_case
def test_suffix_counts_are_the_contiguous_cumulative_counts(case):
    contiguous = [2**i - 1 for i in range(case.order + 1)]
    options = {"order": case.order, "vocab": case.vocab, "every_position": True}
    counts, _ = suffix_counts(queries(case.tokens(), **options))
    assert torch.equal(counts, cumulative_counts(case.tokens(), **options)[..., contiguous, :])


def test_kneser_ney_falls_back_where_no_ngram_is_rare():
    # Every pair of 0 and 1 occurs many times: n_1 = n_2 = 0 at the top order.
    tokens = [[0, 0, 1, 1] * 10]
    _, tallies = suffix_counts(queries(tokens, order=1, vocab=2, every_position=False), continued=True)
    assert tallies[0, 0, 1].tolist() == [0, 0]
    np.testing.assert_allclose(kneser_ney(tokens, order=1, vocab=2)[0], plain_kneser_ney(tokens[0], 1, 2))
    assert discount(ngrams(tokens[0], 1, 1)) == FALLBACK_DISCOUNT


# ---- tuning


def test_tuned_weights_are_the_best_on_fresh_sequences():
    prior = HierarchicalDirichlet(order=2, vocab=5, eta=(5.0, 5.0))
    fit = tune_jelinek_mercer(prior, length=64, draws=5000, seed=1)
    assert fit.success
    assert sum(fit.weights) == pytest.approx(1)
    chains = prior.sample(batch=5000, length=64, seed=2)
    tuned = kl_divergence(chains.next_law, jelinek_mercer(chains.tokens, vocab=5, weights=fit.weights)).values
    for shift in [(0.1, -0.1, 0.0), (-0.1, 0.0, 0.1), (0.0, 0.15, -0.15)]:
        weights = np.array(fit.weights) + shift
        other = kl_divergence(chains.next_law, jelinek_mercer(chains.tokens, vocab=5, weights=weights)).values
        gain = other - tuned
        assert float(gain.mean()) > 3 * float(gain.std()) / len(gain) ** 0.5
    again = tune_jelinek_mercer(prior, length=64, draws=5000, seed=3)
    apart = np.array(again.weights) - fit.weights
    assert (np.abs(apart) < 4 * np.hypot(fit.stderr, again.stderr)).all()


@pytest.mark.parametrize("alpha", [0.3, 1.0])
def test_the_tuned_alpha_of_an_independent_prior_is_its_own(alpha: float) -> None:
    fit = tune_add_alpha(IndependentDirichlet(order=2, vocab=4, alpha=alpha), length=40, draws=6000, seed=2)
    assert fit.success, fit.message
    assert abs(fit.alpha - alpha) < 4 * fit.stderr
    assert 0 < fit.stderr < 0.1 * alpha


def test_no_other_alpha_does_better_on_the_sample() -> None:
    prior = HierarchicalDirichlet(order=2, vocab=4, eta=(5.0, 5.0))
    fit = tune_add_alpha(prior, length=48, draws=2000, seed=4)
    chains = prior.sample(batch=2000, length=48, seed=4, method="collapsed")

    def kl(alpha: float) -> float:
        return kl_divergence(chains.next_law, add_alpha(chains.tokens, order=2, vocab=4, alpha=alpha)).mean

    assert fit.kl == pytest.approx(kl(fit.alpha), abs=1e-12)
    assert all(kl(fit.alpha * factor) > fit.kl for factor in (0.5, 0.9, 1.1, 2.0))
    assert kl(fit.alpha * 1.001) - fit.kl < 1e-6


def test_a_loss_without_a_minimum_is_said() -> None:
    # Couplings without bound: contexts tell nothing, and the best law is uniform.
    prior = HierarchicalDirichlet(order=1, vocab=3, eta=(1e9,), eta0=1e9)
    fit = tune_add_alpha(prior, length=12, draws=200)
    assert not fit.success
    assert "no minimum" in fit.message
    assert np.isnan(fit.stderr)
