"""Arguments of public functions: any integer type will do, what is no number is refused, and a law is always a law."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

import interp as ip
from interp import arguments
from interp.arguments import count, finite_number, fits_memory, plain_array, real_array, shown, switch, whole_number
from interp.estimators.counts import superset_difference, superset_sum
from interp.estimators.pseudo_counts import expected_cumulative_count
from interp.notation import is_contiguous, overlap

TOKENS = [[0, 1, 0, 2, 0, 1, 2, 0, 1], [2, 2, 1, 0, 2, 2, 1, 0, 0]]
PRIOR = ip.HierarchicalDirichlet(order=2, vocab=3, eta=(5.0, 5.0))
NO_INTEGERS = (True, np.True_, "2", None, 2.5, math.nan, [2], 10**400)
NO_NUMBERS = (True, "1", math.nan, -math.inf, 2j, [1.0], 10**400)

# What returns a law from tokens, order and vocabulary, whatever else it takes.
ESTIMATORS: dict[str, Callable[..., torch.Tensor]] = {
    "maximum_likelihood": ip.maximum_likelihood,
    "add_alpha": lambda tokens, **size: ip.add_alpha(tokens, alpha=1.0, **size),
    "katz": ip.katz,
    "witten_bell": ip.witten_bell,
    "kneser_ney": ip.kneser_ney,
    "context_tree_weighting": ip.context_tree_weighting,
    "order_mixture": lambda tokens, **size: ip.order_mixture(tokens, beta=1.5, **size).prediction(),
}
OTHERS: dict[str, Callable[..., Any]] = {
    "mask_counts": ip.mask_counts,
    "cumulative_counts": ip.cumulative_counts,
    "match_masks": lambda tokens, *, order, vocab: ip.match_masks(tokens, order=order),
    "pseudo_counts": lambda tokens, **size: ip.pseudo_counts(tokens, beta=1.5, **size),
}
SMALL_TYPES = (np.int8, np.uint64, lambda value: torch.tensor(value, dtype=torch.uint8))
every_function = pytest.mark.parametrize("function", (ESTIMATORS | OTHERS).values(), ids=ESTIMATORS | OTHERS)


def is_law(law: torch.Tensor) -> bool:
    return bool((law >= 0).all()) and torch.allclose(law.sum(-1), torch.ones(law.shape[:-1], dtype=law.dtype))


def assert_refused(call: Callable[[], object], message: str) -> None:
    """With a ValueError of one short line."""
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


@every_function
def test_any_integer_type_gives_the_same(function: Callable[..., Any]) -> None:
    plain = function(TOKENS, order=2, vocab=3)
    for kind in SMALL_TYPES:
        found = function(TOKENS, order=kind(2), vocab=kind(3))
        torch.testing.assert_close(found, plain, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_small_types_do_not_overflow(name: str) -> None:
    """|V| = 125 fits eight bits, and no product with it does."""
    tokens = np.arange(500).reshape(2, 250) * 7 % 125
    small = ESTIMATORS[name](tokens, order=np.int8(3), vocab=np.int8(125))
    torch.testing.assert_close(small, ESTIMATORS[name](tokens, order=3, vocab=125), rtol=0, atol=0)
    assert is_law(small)


def test_priors_hold_plain_numbers() -> None:
    prior = ip.HierarchicalDirichlet(
        order=np.int8(2), vocab=np.uint8(3), eta=np.array([5, 5], dtype=np.int8), eta0=np.float32(1)
    )
    assert prior == PRIOR
    assert [type(value) for value in (prior.order, prior.vocab, prior.eta[0])] == [int, int, float]
    chains = prior.sample(batch=np.int8(4), length=np.uint8(200), seed=np.int16(3))
    assert torch.equal(chains.tokens, PRIOR.sample(batch=4, length=200, seed=3).tokens)


@every_function
def test_what_is_no_integer_is_refused(function: Callable[..., Any], request: pytest.FixtureRequest) -> None:
    for bad in NO_INTEGERS:
        assert_refused(lambda bad=bad: function(TOKENS, order=bad, vocab=3), "order must be")
        if "match_masks" not in request.node.name:
            assert_refused(lambda bad=bad: function(TOKENS, order=2, vocab=bad), "vocab must be")


@pytest.mark.parametrize(
    "call",
    [
        lambda bad: ip.add_alpha(TOKENS, order=2, vocab=3, alpha=bad),
        lambda bad: ip.context_tree_weighting(TOKENS, order=2, vocab=3, alpha=bad),
        lambda bad: ip.kneser_ney(TOKENS, order=2, vocab=3, discount=bad),
        lambda bad: ip.pseudo_counts(TOKENS, order=2, vocab=3, beta=bad),
        lambda bad: ip.order_mixture(TOKENS, order=2, vocab=3, beta=bad),
        lambda bad: ip.IndependentDirichlet(order=2, vocab=3, alpha=bad),
        lambda bad: ip.HierarchicalDirichlet(order=2, vocab=3, eta=(5.0, bad)),
        lambda bad: ip.HierarchicalDirichlet(order=2, vocab=3, eta=(5.0, 5.0), eta0=bad),
        lambda bad: ip.beta_for_add_alpha(length=9, order=2, vocab=3, alpha=bad),
        lambda bad: ip.bayes_predictive(TOKENS, prior=PRIOR, error=bad),
        lambda bad: ip.kl_divergence([[0.5, 0.5]], [[0.5, 0.5]], floor=bad),
    ],
)
def test_what_is_no_finite_number_is_refused(call: Callable[[Any], object]) -> None:
    for bad in NO_NUMBERS:
        assert_refused(lambda bad=bad: call(bad), "must")


@pytest.mark.parametrize("bad", [math.nan, math.inf, "1", 2j, 10**400], ids=shown)
def test_beta_and_kappa_are_finite(bad: Any) -> None:
    for call in (
        lambda beta, kappa: ip.soft_matching(TOKENS, vocab=3, beta=(1.0, beta), kappa=kappa),
        lambda beta, kappa: ip.soft_matching_pairs(TOKENS, vocab=3, beta=[[1.0, 0.0], [beta, 1.0]], kappa=kappa),
        lambda beta, kappa: ip.soft_matching_from_counts(np.ones((4, 3)), beta=[1.0, beta], kappa=kappa),
        lambda beta, kappa: ip.construct(order=2, vocab=3, length=9, beta=(1.0, beta), kappa=kappa),
    ):
        assert_refused(lambda call=call: call(bad, 0.0), "beta must")
        assert_refused(lambda call=call: call(0.0, bad), "kappa must be finite")


@pytest.mark.parametrize("bad", [1, "yes", None], ids=shown)
def test_a_switch_is_true_or_false(bad: Any) -> None:
    for name in ("maximum_likelihood", "katz", "context_tree_weighting"):
        with pytest.raises(ValueError, match="every_position must be True or False"):
            ESTIMATORS[name](TOKENS, order=2, vocab=3, every_position=bad)


@pytest.mark.parametrize(
    "call",
    [
        lambda bad: PRIOR.sample(batch=bad, length=9, seed=0),
        lambda bad: PRIOR.sample(batch=2, length=bad, seed=0),
        lambda bad: PRIOR.sample(batch=2, length=9, seed=bad),
        lambda bad: ip.bayes_predictive(TOKENS, prior=PRIOR, draws=bad),
        lambda bad: ip.bayes_predictive(TOKENS, prior=PRIOR, chains=bad),
        lambda bad: ip.bayes_predictive(TOKENS, prior=PRIOR, burn_in=bad),
        lambda bad: ip.optimal_parameters(PRIOR, length=bad),
        lambda bad: ip.predicted_parameters(PRIOR, length=bad),
        lambda bad: ip.optimal_parameters(PRIOR, length=9, draws=bad),
        lambda bad: ip.tune_jelinek_mercer(PRIOR, length=bad),
        lambda bad: ip.tune_jelinek_mercer(PRIOR, length=9, steps=bad),
        lambda bad: ip.beta_for_add_alpha(length=bad, order=2, vocab=3, alpha=1.0),
        lambda bad: expected_cumulative_count(length=9, order=2, vocab=3, overlap=bad),
        lambda bad: ip.construct(order=2, vocab=3, length=bad, beta=(1.0, 1.0)),
        overlap,
        ip.mask_name,
        is_contiguous,
    ],
)
def test_what_is_no_count_is_refused(call: Callable[[Any], object]) -> None:
    for bad in (True, "9", 9.0, -1, [9]):
        assert_refused(lambda bad=bad: call(bad), "must")


def test_what_is_no_prior_is_refused() -> None:
    bayes, parse = inspect.unwrap(ip.bayes_predictive), inspect.unwrap(ip.parse_prior)  # without run-time type checks
    for call in (
        lambda: bayes(TOKENS, prior="hierarchical:5"),
        lambda: parse(None, order=2, vocab=3),
        lambda: parse("hierarchical:5", order=True, vocab=3),
        lambda: inspect.unwrap(ip.prior_from_dict)(["hierarchical"]),
    ):
        assert_refused(call, "prior|order")


# ---- laws at the edges


@pytest.mark.parametrize("alpha", [1e-100, 1e-9, 1e9, 1e100])
def test_any_concentration_that_is_accepted_gives_laws(alpha: float) -> None:
    independent = ip.IndependentDirichlet(order=2, vocab=3, alpha=alpha)
    hierarchical = ip.HierarchicalDirichlet(order=2, vocab=3, eta=(alpha, alpha), eta0=alpha)
    for law in (
        ip.add_alpha(TOKENS, order=2, vocab=3, alpha=alpha),
        ip.context_tree_weighting(TOKENS, order=2, vocab=3, alpha=alpha),
        ip.bayes_predictive(TOKENS, prior=independent).mean,
        ip.bayes_predictive(TOKENS, prior=hierarchical).mean,
        independent.sample(batch=4, length=9, seed=0).next_law,
        hierarchical.sample(batch=4, length=9, seed=0, method="collapsed").next_law,
    ):
        assert is_law(law), law
    for past in (alpha / 100, alpha * 100):
        if not 1e-100 <= past <= 1e100:
            with pytest.raises(ValueError, match=r"must be at (most|least) 1e[+-]?100"):
                ip.add_alpha(TOKENS, order=2, vocab=3, alpha=past)


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        (-np.ones((4, 3)), "not negative"),
        (np.full((4, 3), math.nan), "must be finite"),
        (np.full((4, 3), 1e308), "at most"),
        (np.ones((4, 3), dtype=bool), "must be numbers"),
        (np.ones(4), "shape"),
        (np.ones((8, 3)), "expected counts for 4 masks, got 8"),
        (np.ones((3, 3)), "2..order entries"),
        (np.ones((4, 0)), "shape"),
        (np.full((4, 3), "1"), "must"),
    ],
)
def test_counts_are_checked(counts: np.ndarray, message: str) -> None:
    assert is_law(ip.soft_matching_from_counts(np.ones((4, 3), dtype=np.uint8), beta=[1.0, 2.0]))
    assert_refused(lambda: ip.soft_matching_from_counts(counts, beta=[1.0, 2.0]), message)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.float32])
def test_sums_over_supersets_do_not_wrap(dtype: torch.dtype) -> None:
    counts = torch.full((4, 3), 100, dtype=dtype)
    summed = superset_sum(counts)
    assert summed[0].tolist() == [400, 400, 400]
    assert torch.equal(superset_difference(summed).to(dtype), counts)


def test_extreme_scores_still_give_laws() -> None:
    for beta, kappa in (((8e307, 8e307), -1e308), ((8e307, -8e307), None), ((-1e300, 1e300), 1e308), ((0.0, 0.0), 0.0)):
        assert is_law(ip.soft_matching(TOKENS, vocab=3, beta=beta, kappa=kappa))
    assert_refused(lambda: ip.soft_matching(TOKENS, vocab=3, beta=(1e308, -1e308)), "so must its sum")
    assert_refused(lambda: ip.soft_matching_pairs(TOKENS, vocab=3, beta=np.full((2, 2), 1e308)), "so must its sum")


def test_a_construction_that_its_weights_cannot_hold_is_refused() -> None:
    for beta, dtype in (((1e308, 0.0), "float64"), ((1e13, 0.0), "float64"), ((1e5, 0.0), "float32")):
        with pytest.raises(ValueError, match="beta and kappa must not exceed"):
            ip.construct(order=2, vocab=3, length=9, beta=beta, kappa=1.0, dtype=dtype)
    model = ip.construct(order=2, vocab=3, length=9, beta=(1e3, 5e2), kappa=1.0, dtype="float32")
    expected = ip.soft_matching(TOKENS, vocab=3, beta=(1e3, 5e2), kappa=1.0)
    torch.testing.assert_close(ip.predict(model, torch.tensor(TOKENS)).double(), expected, rtol=0, atol=1e-3)


def test_tensors_that_require_gradients_are_read() -> None:
    beta = torch.tensor([2.0, 1.0], dtype=torch.float64, requires_grad=True)
    kappa = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    one = torch.tensor(1.5, requires_grad=True)
    for law in (
        ip.soft_matching(TOKENS, vocab=3, beta=beta, kappa=kappa),
        ip.soft_matching_pairs(TOKENS, vocab=3, beta=torch.diag(beta), kappa=kappa),
        ip.jelinek_mercer(TOKENS, vocab=3, weights=torch.tensor([0.2, 0.3, 0.5], requires_grad=True)),
        ip.add_alpha(TOKENS, order=2, vocab=3, alpha=one),
        ip.order_mixture(TOKENS, order=2, vocab=3, beta=one).prediction(),
        ip.predict(ip.construct(order=2, vocab=3, length=9, beta=beta, kappa=kappa), TOKENS),
    ):
        assert is_law(law)
    live = ip.soft_matching_from_counts(ip.mask_counts(TOKENS, order=2, vocab=3), beta=beta, kappa=kappa)
    live[0, 0].backward()
    assert torch.isfinite(beta.grad).all()
    assert torch.isfinite(kappa.grad)


@pytest.mark.parametrize(
    "tokens",
    [None, "0101", [["0", "1"]], [[0, 1], [0]], [[0, 1, 10**30, 0]], [[None, 1, 0]], [], [[]], [[[0]]],
     np.array([[0, 1, 0, 1]], dtype=complex), torch.zeros(1, 4, requires_grad=True)],
    ids=shown,
)  # fmt: skip
def test_tokens_of_odd_kinds_are_named(tokens: Any) -> None:
    assert_refused(lambda: ip.maximum_likelihood(tokens, order=1, vocab=3), "tokens")


# ---- limits


@pytest.mark.parametrize(
    "call",
    [
        lambda: PRIOR.sample(batch=2**31 - 1, length=2**31 - 1, seed=0),
        lambda: ip.IndependentDirichlet(order=12, vocab=2**20).sample(batch=2, length=20, seed=0, method="explicit"),
        lambda: ip.IndependentDirichlet(order=12, vocab=2**20).sample(batch=2, length=400, seed=0),
        lambda: ip.mask_counts(np.zeros((4, 20), dtype=int), order=8, vocab=2**20),
        lambda: ip.match_masks(np.zeros((100, 3000), dtype=int), order=2, every_position=True),
        lambda: ip.context_tree_weighting(np.zeros((1, 1000), dtype=int), order=2, vocab=2**20),
        lambda: ip.katz(np.zeros((1, 1000), dtype=int), order=2, vocab=2**20),
        lambda: ip.construct(order=2, vocab=2**20, length=9, beta=(1.0, 1.0)),
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

    class Unprintable:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    assert shown(Unprintable()) == "Unprintable (RuntimeError)"
    assert shown(10**5000) == "int (ValueError)"
