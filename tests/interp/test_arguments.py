"""Wrong calls of public functions are refused with one line that says what to do; what is accepted gives a law."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import torch

import interp as ip
from interp import arguments
from interp.arguments import count, finite_number, fits_memory, plain_array, real_array, shown, switch, whole_number
from interp.estimators.counts import superset_sum

TOKENS = [[0, 1, 0, 2, 0, 1, 2, 0, 1], [2, 2, 1, 0, 2, 2, 1, 0, 0]]
PRIOR = ip.HierarchicalDirichlet(order=2, vocab=3, eta=(5.0, 5.0))
INDEPENDENT = ip.IndependentDirichlet(order=2, vocab=3)

# What returns a law from tokens, order and vocabulary, whatever else it takes.
ESTIMATORS: dict[str, Callable[..., torch.Tensor]] = {
    "maximum_likelihood": ip.maximum_likelihood,
    "add_alpha": lambda tokens, **size: ip.add_alpha(tokens, alpha=1.0, **size),
    "katz": ip.katz,
    "kneser_ney": ip.kneser_ney,
    "context_tree_weighting": ip.context_tree_weighting,
    "order_mixture": lambda tokens, **size: ip.order_mixture(tokens, beta=1.5, **size).prediction(),
}


def is_law(law: torch.Tensor) -> bool:
    return bool((law >= 0).all()) and torch.allclose(law.sum(-1), torch.ones(law.shape[:-1], dtype=law.dtype))


def assert_refused(call: Callable[[], object], message: str) -> None:
    """With a ValueError of one short line."""
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("name", ESTIMATORS)
def test_small_types_do_not_overflow(name: str) -> None:
    """|V| = 125 fits eight bits, and no product with it does."""
    tokens = np.arange(500).reshape(2, 250) * 7 % 125
    small = ESTIMATORS[name](tokens, order=np.int8(3), vocab=np.int8(125))
    torch.testing.assert_close(small, ESTIMATORS[name](tokens, order=3, vocab=125), rtol=0, atol=0)
    assert is_law(small)


def test_priors_hold_plain_numbers() -> None:
    eta = np.array([5, 5], dtype=np.int8)
    prior = ip.HierarchicalDirichlet(order=np.int8(2), vocab=np.uint8(3), eta=eta, eta0=np.float32(1))
    assert prior == PRIOR
    assert [type(value) for value in (prior.order, prior.vocab, prior.eta[0])] == [int, int, float]
    chains = prior.sample(batch=np.int8(4), length=np.uint8(200), seed=np.int16(3))
    assert torch.equal(chains.tokens, PRIOR.sample(batch=4, length=200, seed=3).tokens)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ip.katz(TOKENS, order=2.5, vocab=3), "order must be an integer"),
        (lambda: ip.katz(TOKENS, order=2, vocab=True), "vocab must be an integer"),
        (lambda: ip.katz(TOKENS, order=2, vocab=3, every_position="yes"), "every_position must be True or False"),
        (lambda: ip.katz("0101", order=2, vocab=3), "tokens"),
        (lambda: ip.katz([[0, 1, 0], [0]], order=2, vocab=3), "tokens must be an array"),
        (lambda: ip.katz([0, 1, 2], order=1, vocab=3), r"shape \[batch, length\], got 1 dimensions"),
        (lambda: ip.katz([[0.0, 1.0]], order=1, vocab=3), "must be integers, got float64"),
        (lambda: ip.katz([[0, 1, 5]], order=1, vocab=5), r"token 5 is outside the vocabulary 0\.\.4"),
        (lambda: ip.katz([[0, 1]], order=2, vocab=3), "longer than the order: length 2, order 2"),
        (lambda: ip.katz(np.zeros((0, 5), dtype=int), order=1, vocab=3), "the batch is empty"),
        (lambda: ip.katz(TOKENS, order=13, vocab=3), "order must be at most 12"),
        (lambda: ip.katz(TOKENS, order=2, vocab=1), "vocab must be an integer >= 2"),
        (lambda: ip.jelinek_mercer(TOKENS, vocab=3, weights=(0.5, 0.4)), "sum to one"),
        (lambda: ip.jelinek_mercer(TOKENS, vocab=3, weights=(1.0,)), "lambda_0"),
        (lambda: ip.add_alpha(TOKENS, order=1, vocab=3, alpha=(1.0, 2.0)), r"one per symbol \(3 of them\)"),
        (lambda: ip.beta_for_add_alpha(length=3, order=2, vocab=5, alpha=1.0), "at least order . 2 = 4"),
        (lambda: ip.kl_divergence([[0.5, 0.5]], [[0.5, 0.5]] * 2), "share a shape"),
        (lambda: ip.kl_divergence([[0.5, 0.5]], [[0.5, 0.5]], floor=0.5), "floor must be far below"),
        (lambda: ip.add_alpha(TOKENS, order=2, vocab=3, alpha=0.0), "alpha must be a finite number > 0"),
        (lambda: ip.pseudo_counts(TOKENS, order=2, vocab=3, beta=math.nan), "beta must be a finite number"),
        (lambda: ip.order_mixture(TOKENS, order=2, vocab=3, beta=(1.0, 2.0)), "beta must"),
        (lambda: ip.soft_matching(TOKENS, vocab=3, beta=(1.0, math.inf)), "beta must be finite"),
        (lambda: ip.soft_matching(TOKENS, vocab=3, beta=2.0), "one number per lag"),
        (lambda: ip.soft_matching(TOKENS, vocab=3, beta=(1.0,), kappa=math.nan), "kappa must be finite, or None"),
        (lambda: ip.pseudo_counts(TOKENS, order=2, vocab=3, beta=1e-300), "too small"),
        (lambda: ip.soft_matching(TOKENS, vocab=3, beta=(1e308, -1e308)), "so must its sum"),
        (lambda: ip.soft_matching_pairs(TOKENS, vocab=3, beta=(1.0, 2.0)), "beta must be a square matrix"),
        (lambda: ip.construct(order=2, vocab=3, length=9, beta=(1e13, 0.0)), "beta and kappa must not exceed"),
        (lambda: ip.construct(order=2, vocab=3, length=9, beta=(1.0,)), "one number per lag: expected 2, got 1"),
        (lambda: ip.construct(order=2, vocab=3, length=2, beta=(1.0, 2.0)), "length must be an integer >= 3, got 2"),
        (lambda: ip.kl_divergence([[0.5, 0.5]], [[0.5, 0.6]]), "sum to 1"),
        (lambda: PRIOR.sample(batch=2, length=9, seed=-1), "seed must be an integer >= 0"),
        (lambda: ip.bayes_predictive(TOKENS, prior=PRIOR, chains=2.5), "chains must be an integer"),
        (lambda: ip.optimal_parameters(PRIOR, length="64"), "length must be an integer"),
        (lambda: ip.mask_name(-1), "mask must be an integer >= 0"),
        (lambda: inspect.unwrap(ip.bayes_predictive)(TOKENS, prior="hierarchical:5"), "expected a prior, such as"),
        (lambda: inspect.unwrap(ip.prior_from_dict)(["hierarchical"]), "description must be a dict"),
        (lambda: ip.soft_matching_from_counts(-np.ones((4, 3)), beta=[1.0, 2.0]), "not negative"),
        (lambda: ip.soft_matching_from_counts(np.ones((8, 3)), beta=[1.0, 2.0]), "expected counts for 4 masks, got 8"),
        (lambda: ip.soft_matching_from_counts(np.ones((3, 3)), beta=[1.0, 2.0]), "2..order entries"),
        (lambda: ip.soft_matching_from_counts(np.ones(4), beta=[1.0, 2.0]), "shape"),
    ],
)
def test_wrong_calls_are_refused(call: Callable[[], object], message: str) -> None:
    assert_refused(call, message)


# ---- laws at the edges


@pytest.mark.parametrize("alpha", [1e-100, 1e-9, 1e9, 1e100])
def test_any_accepted_concentration_gives_laws(alpha: float) -> None:
    independent = ip.IndependentDirichlet(order=2, vocab=3, alpha=alpha)
    hierarchical = ip.HierarchicalDirichlet(order=2, vocab=3, eta=(alpha, alpha), eta0=alpha)
    for law in (
        ip.add_alpha(TOKENS, order=2, vocab=3, alpha=alpha),
        ip.bayes_predictive(TOKENS, prior=hierarchical).mean,
        independent.sample(batch=4, length=9, seed=0, method="explicit").next_law,
        hierarchical.sample(batch=4, length=9, seed=0).laws(),
    ):
        assert is_law(law), law
    past = alpha**1.1
    if not 1e-100 <= past <= 1e100:
        assert_refused(
            lambda: ip.add_alpha(TOKENS, order=2, vocab=3, alpha=past), r"must be at (most|least) 1e[+-]?100"
        )


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.float32])
def test_sums_over_supersets_do_not_wrap(dtype: torch.dtype) -> None:
    assert superset_sum(torch.full((4, 3), 100, dtype=dtype))[0].tolist() == [400, 400, 400]


def test_tensors_that_require_gradients_are_read() -> None:
    beta = torch.tensor([2.0, 1.0], dtype=torch.float64, requires_grad=True)
    kappa = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    for law in (
        ip.soft_matching(TOKENS, vocab=3, beta=beta, kappa=kappa),
        ip.soft_matching_pairs(TOKENS, vocab=3, beta=torch.diag(beta), kappa=kappa),
        ip.predict(ip.construct(order=2, vocab=3, length=9, beta=beta, kappa=kappa), TOKENS),
    ):
        assert is_law(law)
    live = ip.soft_matching_from_counts(ip.mask_counts(TOKENS, order=2, vocab=3), beta=beta, kappa=kappa)
    live[0, 0].backward()
    assert torch.isfinite(beta.grad).all()
    assert torch.isfinite(kappa.grad)


# ---- limits


@pytest.mark.parametrize(
    "call",
    [
        lambda: PRIOR.sample(batch=2**31 - 1, length=2**31 - 1, seed=0),
        lambda: ip.IndependentDirichlet(order=12, vocab=2**20).sample(batch=2, length=20, seed=0, method="explicit"),
        lambda: ip.IndependentDirichlet(order=12, vocab=2**20).sample(batch=2, length=400, seed=0),
        lambda: ip.mask_counts(np.zeros((4, 20), dtype=int), order=8, vocab=2**20),
        lambda: ip.match_masks(np.zeros((100, 3000), dtype=int), order=2, every_position=True),
        lambda: ip.kneser_ney(np.zeros((1, 1000), dtype=int), order=2, vocab=2**20),
        lambda: ip.construct(order=2, vocab=3, length=10**6, beta=(1.0, 1.0)),
        lambda: ip.optimal_parameters(PRIOR, length=2**31 - 1),
        lambda: ip.bayes_predictive(TOKENS, prior=PRIOR, chains=10**8, draws=10**9),
    ],
)
def test_sizes_are_refused_before_memory_is_taken(call: Callable[[], object]) -> None:
    assert_refused(call, r"would need .* more than 4 GiB")


def test_limits_are_stated_on_both_sides() -> None:
    fits_memory(arguments.MAX_BYTES, what="it")
    with pytest.raises(ValueError, match=r"it would need 4\.0 GiB, more than 4 GiB; take less"):
        fits_memory(arguments.MAX_BYTES + 1, what="it", instead="take less")
    assert count(arguments.MAX_COUNT, name="n") == arguments.MAX_COUNT
    with pytest.raises(ValueError, match="n must be at most 2147483647"):
        count(arguments.MAX_COUNT + 1, name="n")


# ---- the readers themselves


def test_readers_take_every_kind_of_number() -> None:
    assert whole_number(torch.tensor(3), name="n") == whole_number(np.array(3), name="n") == 3
    assert finite_number(Fraction(1, 2), name="x") == finite_number(torch.tensor(0.5), name="x") == 0.5
    assert switch(np.True_, name="s") is switch(torch.tensor(True), name="s") is True
    assert real_array(torch.ones(2, dtype=torch.bfloat16), name="a").tolist() == [1.0, 1.0]
    assert plain_array([torch.tensor(1), 2], name="a").tolist() == [1, 2]


def test_long_values_are_cut_in_messages() -> None:
    assert len(shown("x" * 1000)) == 60
    assert shown("a\nb") == r"'a\nb'"
    assert "\n" not in shown(np.zeros((9, 9)))
    assert shown(10**5000) == "int (ValueError)"
