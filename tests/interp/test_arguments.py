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

TOKENS = [[0, 1, 0, 2, 0, 1, 2, 0, 1], [2, 2, 1, 0, 2, 2, 1, 0, 0]]
PRIOR = ip.HierarchicalDirichlet(order=2, vocab=3, eta=(5.0, 5.0))
NO_NUMBERS = (True, False, np.True_, "2", b"2", None, 2.5, math.nan, math.inf, 2j, [2], 10**400)

# What returns a law from tokens, order and vocabulary, whatever else it takes.
ESTIMATORS: dict[str, Callable[..., torch.Tensor]] = {
    "maximum_likelihood": ip.maximum_likelihood,
    "add_alpha": lambda tokens, **size: ip.add_alpha(tokens, alpha=1.0, **size),
    "katz": ip.katz,
    "katz_absolute": lambda tokens, **size: ip.katz(tokens, discount="absolute", **size),
    "witten_bell": ip.witten_bell,
    "kneser_ney": ip.kneser_ney,
    "context_tree_weighting": ip.context_tree_weighting,
}
OTHERS: dict[str, Callable[..., Any]] = {
    "mask_counts": ip.mask_counts,
    "cumulative_counts": ip.cumulative_counts,
    "match_masks": lambda tokens, *, order, vocab: ip.match_masks(tokens, order=order),
    "pseudo_counts": lambda tokens, **size: ip.pseudo_counts(tokens, beta=1.5, **size),
    "order_mixture": lambda tokens, **size: ip.order_mixture(tokens, beta=1.5, **size).prediction(),
}
SMALL_TYPES = (np.int8, np.uint8, np.int16, np.uint64, lambda value: torch.tensor(value, dtype=torch.uint8))


def is_law(law: torch.Tensor) -> bool:
    return bool((law >= 0).all()) and torch.allclose(law.sum(-1), torch.ones(law.shape[:-1], dtype=law.dtype))


@pytest.mark.parametrize("kind", SMALL_TYPES, ids=["int8", "uint8", "int16", "uint64", "tensor"])
@pytest.mark.parametrize("name", [*ESTIMATORS, *OTHERS])
def test_any_integer_type_gives_the_same(name: str, kind: Callable[[int], Any]) -> None:
    function = (ESTIMATORS | OTHERS)[name]
    plain = function(TOKENS, order=2, vocab=3)
    torch.testing.assert_close(function(TOKENS, order=kind(2), vocab=kind(3)), plain, rtol=0, atol=0, equal_nan=True)


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
    found = ip.bayes_predictive(chains.tokens, prior=prior, draws=np.uint8(200), chains=np.int8(4), burn_in=np.int8(2))
    assert is_law(found.mean)
    model = ip.construct(order=np.int8(2), vocab=np.int8(3), length=np.uint8(9), beta=np.array([2, 1], dtype=np.int8))
    assert is_law(ip.predict(model, TOKENS))


@pytest.mark.parametrize("bad", NO_NUMBERS, ids=shown)
@pytest.mark.parametrize("name", [*ESTIMATORS, *OTHERS])
def test_what_is_no_integer_is_refused(name: str, bad: Any) -> None:
    function = (ESTIMATORS | OTHERS)[name]
    for size in ({"order": bad, "vocab": 3}, {"order": 2, "vocab": bad}):
        if name == "match_masks" and size["vocab"] is bad:
            continue
        with pytest.raises(ValueError, match=r"(order|vocab) must be") as caught:
            function(TOKENS, **size)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "bad", [True, np.True_, "1", b"1", math.nan, math.inf, -math.inf, 2j, [1.0], 10**400], ids=shown
)
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
        lambda bad: ip.soft_matching(TOKENS, vocab=3, beta=(1.0, bad)),
        lambda bad: ip.soft_matching_pairs(TOKENS, vocab=3, beta=[[1.0, 0.0], [bad, 1.0]]),
        lambda bad: ip.soft_matching_from_counts(np.ones((4, 3)), beta=[1.0, bad]),
        lambda bad: ip.jelinek_mercer(TOKENS, vocab=3, weights=(0.5, bad)),
        lambda bad: ip.construct(order=2, vocab=3, length=9, beta=(1.0, bad)),
    ],
)
def test_what_is_no_finite_number_is_refused(call: Callable[[Any], object], bad: Any) -> None:
    with pytest.raises(ValueError, match="must") as caught:
        call(bad)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("bad", [True, "1", math.nan, math.inf, [1.0], 10**400], ids=shown)
def test_a_kappa_that_is_no_number_is_refused(bad: Any) -> None:
    for call in (
        lambda: ip.soft_matching(TOKENS, vocab=3, beta=(1.0, 1.0), kappa=bad),
        lambda: ip.soft_matching_pairs(TOKENS, vocab=3, beta=[[1.0]], kappa=bad),
        lambda: ip.soft_matching_from_counts(np.ones((2, 3)), beta=[1.0], kappa=bad),
        lambda: ip.construct(order=2, vocab=3, length=9, beta=(1.0, 1.0), kappa=bad),
    ):
        with pytest.raises(ValueError, match="kappa must be finite"):
            call()


@pytest.mark.parametrize("bad", [1, 0, "yes", None, 1.0, [True]], ids=shown)
def test_a_switch_is_true_or_false(bad: Any) -> None:
    for estimate in ESTIMATORS.values():
        with pytest.raises(ValueError, match="every_position must be True or False"):
            estimate(TOKENS, order=2, vocab=3, every_position=bad)


@pytest.mark.parametrize(
    "call",
    [
        lambda bad: PRIOR.sample(batch=bad, length=9, seed=0),
        lambda bad: PRIOR.sample(batch=2, length=bad, seed=0),
        lambda bad: PRIOR.sample(batch=2, length=9, seed=bad),
        lambda bad: ip.bayes_predictive(TOKENS, prior=PRIOR, draws=bad),
        lambda bad: ip.bayes_predictive(TOKENS, prior=PRIOR, seed=bad),
        lambda bad: ip.bayes_predictive(TOKENS, prior=PRIOR, chains=bad),
        lambda bad: ip.bayes_predictive(TOKENS, prior=PRIOR, burn_in=bad),
        lambda bad: ip.optimal_parameters(PRIOR, length=bad),
        lambda bad: ip.predicted_parameters(PRIOR, length=bad),
        lambda bad: ip.optimal_parameters(PRIOR, length=9, draws=bad),
        lambda bad: ip.optimal_parameters(PRIOR, length=9, seed=bad),
        lambda bad: ip.tune_jelinek_mercer(PRIOR, length=bad),
        lambda bad: ip.tune_jelinek_mercer(PRIOR, length=9, draws=bad),
        lambda bad: ip.tune_jelinek_mercer(PRIOR, length=9, steps=bad),
        lambda bad: ip.beta_for_add_alpha(length=bad, order=2, vocab=3, alpha=1.0),
        lambda bad: ip.expected_cumulative_count(length=bad, order=2, vocab=3, overlap=1),
        lambda bad: ip.expected_cumulative_count(length=9, order=2, vocab=3, overlap=bad),
        lambda bad: ip.construct(order=2, vocab=3, length=bad, beta=(1.0, 1.0)),
        ip.overlap,
        ip.mask_name,
        ip.is_contiguous,
    ],
)
def test_what_is_no_count_is_refused(call: Callable[[Any], object]) -> None:
    for bad in (True, "9", 9.0, math.nan, -1, [9]):
        with pytest.raises(ValueError, match="must") as caught:
            call(bad)
        assert "\n" not in str(caught.value)


def test_what_is_no_prior_is_refused() -> None:
    bayes = inspect.unwrap(ip.bayes_predictive)  # past the run-time type check, which only the tests have
    parse = inspect.unwrap(ip.parse_prior)
    for call in (
        lambda: bayes(TOKENS, prior=None),
        lambda: bayes(TOKENS, prior="hierarchical:5"),
        lambda: parse(None, order=2, vocab=3),
        lambda: parse("hierarchical:5", order=True, vocab=3),
        lambda: inspect.unwrap(ip.prior_from_dict)(["hierarchical"]),
    ):
        with pytest.raises(ValueError, match=r"prior|order") as caught:
            call()
        assert "\n" not in str(caught.value)


# ---- laws at the edges


@pytest.mark.parametrize("alpha", [1e-100, 1e-9, 1.0, 1e9, 1e100])
def test_any_concentration_that_is_accepted_gives_laws(alpha: float) -> None:
    for law in (
        ip.add_alpha(TOKENS, order=2, vocab=3, alpha=alpha),
        ip.context_tree_weighting(TOKENS, order=2, vocab=3, alpha=alpha),
        ip.bayes_predictive(TOKENS, prior=ip.IndependentDirichlet(order=2, vocab=3, alpha=alpha)).mean,
        ip.bayes_predictive(TOKENS, prior=ip.HierarchicalDirichlet(order=2, vocab=3, eta=(alpha, alpha))).mean,
        ip.IndependentDirichlet(order=2, vocab=3, alpha=alpha).sample(batch=4, length=9, seed=0).next_law,
        ip.HierarchicalDirichlet(order=2, vocab=3, eta=(alpha, alpha), eta0=alpha)
        .sample(batch=4, length=9, seed=0, method="collapsed")
        .next_law,
    ):
        assert is_law(law), law


@pytest.mark.parametrize("alpha", [1e308, 1e101, 1e-101, 5e-324])
def test_concentrations_past_the_range_of_floats_are_refused(alpha: float) -> None:
    for call in (
        lambda: ip.add_alpha(TOKENS, order=2, vocab=3, alpha=alpha),
        lambda: ip.context_tree_weighting(TOKENS, order=2, vocab=3, alpha=alpha),
        lambda: ip.IndependentDirichlet(order=2, vocab=3, alpha=alpha),
        lambda: ip.HierarchicalDirichlet(order=2, vocab=3, eta=(1.0, alpha)),
    ):
        with pytest.raises(ValueError, match=r"must be at (most|least) 1e[+-]?100"):
            call()


def test_counts_are_checked() -> None:
    good = np.ones((4, 3), dtype=np.uint8)
    assert is_law(ip.soft_matching_from_counts(good, beta=[1.0, 2.0]))
    bad = {
        "negative": (-np.ones((4, 3)), "not negative"),
        "NaN": (np.full((4, 3), math.nan), "must be finite"),
        "infinite": (np.full((4, 3), math.inf), "must be finite"),
        "huge": (np.full((4, 3), 1e308), "at most"),
        "booleans": (np.ones((4, 3), dtype=bool), "must be numbers"),
        "one axis": (np.ones(4), "shape"),
        "another order": (np.ones((8, 3)), "expected counts for 4 masks, got 8"),
        "no mask": (np.ones((0, 3)), "2..order entries"),
        "no symbol": (np.ones((4, 0)), "at least one symbol"),
        "texts": (np.full((4, 3), "1"), "must"),
    }
    for name, (counts, message) in bad.items():
        with pytest.raises((ValueError, TypeError), match=message) as caught:
            ip.soft_matching_from_counts(counts, beta=[1.0, 2.0])
        assert isinstance(caught.value, ValueError), name


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32, torch.float32])
def test_sums_over_supersets_do_not_wrap(dtype: torch.dtype) -> None:
    counts = torch.full((4, 3), 100, dtype=dtype)
    summed = ip.superset_sum(counts)
    assert summed[0].tolist() == [400, 400, 400]
    assert torch.equal(ip.superset_difference(summed).to(dtype), counts)


def test_extreme_scores_still_give_laws() -> None:
    for beta, kappa in (((8e307, 8e307), -1e308), ((8e307, -8e307), None), ((-1e300, 1e300), 1e308), ((0.0, 0.0), 0.0)):
        assert is_law(ip.soft_matching(TOKENS, vocab=3, beta=beta, kappa=kappa))
    with pytest.raises(ValueError, match="so must its sum"):
        ip.soft_matching(TOKENS, vocab=3, beta=(1e308, -1e308))
    with pytest.raises(ValueError, match="so must its sum"):
        ip.soft_matching_pairs(TOKENS, vocab=3, beta=np.full((2, 2), 1e308))


def test_a_construction_that_its_weights_cannot_hold_is_refused() -> None:
    for beta, dtype in (((1e308, 0.0), "float64"), ((1e13, 0.0), "float64"), ((1e5, 0.0), "float32")):
        with pytest.raises(ValueError, match="beta and kappa must not exceed"):
            ip.construct(order=2, vocab=3, length=9, beta=beta, kappa=1.0, dtype=dtype)
    tokens = torch.tensor(TOKENS)
    model = ip.construct(order=2, vocab=3, length=9, beta=(1e3, 5e2), kappa=1.0, dtype="float32")
    expected = ip.soft_matching(tokens, vocab=3, beta=(1e3, 5e2), kappa=1.0)
    torch.testing.assert_close(ip.predict(model, tokens).double(), expected, rtol=0, atol=1e-3)


def test_tensors_that_require_gradients_are_read() -> None:
    beta = torch.tensor([2.0, 1.0], dtype=torch.float64, requires_grad=True)
    kappa = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    weights = torch.tensor([0.2, 0.3, 0.5], requires_grad=True)
    one = torch.tensor(1.5, requires_grad=True)
    for law in (
        ip.soft_matching(TOKENS, vocab=3, beta=beta, kappa=kappa),
        ip.soft_matching(TOKENS, vocab=3, beta=[one, one], kappa=kappa),
        ip.soft_matching_pairs(TOKENS, vocab=3, beta=torch.diag(beta), kappa=kappa),
        ip.jelinek_mercer(TOKENS, vocab=3, weights=weights),
        ip.add_alpha(TOKENS, order=2, vocab=3, alpha=one),
        ip.context_tree_weighting(TOKENS, order=2, vocab=3, alpha=one),
        ip.order_mixture(TOKENS, order=2, vocab=3, beta=one).prediction(),
        ip.predict(ip.construct(order=2, vocab=3, length=9, beta=beta, kappa=kappa), TOKENS),
    ):
        assert is_law(law)
    live = ip.soft_matching_from_counts(ip.mask_counts(TOKENS, order=2, vocab=3), beta=beta, kappa=kappa)
    live[0, 0].backward()
    assert torch.isfinite(beta.grad).all()
    assert torch.isfinite(kappa.grad)


def test_tokens_of_odd_kinds_are_named() -> None:
    odd = (
        None,
        "0101",
        [["0", "1", "0", "1"]],
        [[0, 1], [0]],
        [[True, 0, 1, 0]],
        [[0, 1, 10**30, 0]],
        [[None, 1, 0, 1]],
        {"a": 1},
        np.array([[0, 1, 0, 1]], dtype=complex),
        torch.zeros(1, 4, requires_grad=True),
        torch.zeros(1, 4, dtype=torch.bfloat16),
        [],
        [[]],
        [[[0]]],
    )
    for tokens in odd:
        with pytest.raises(ValueError, match="tokens") as caught:
            ip.maximum_likelihood(tokens, order=1, vocab=3)
        assert "\n" not in str(caught.value)


# ---- limits


@pytest.mark.parametrize(
    "call",
    [
        lambda: PRIOR.sample(batch=2**31 - 1, length=2**31 - 1, seed=0),
        lambda: ip.IndependentDirichlet(order=12, vocab=2**20).sample(batch=2, length=20, seed=0),
        lambda: ip.IndependentDirichlet(order=12, vocab=2**20).sample(batch=2, length=400, seed=0, method="collapsed"),
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
    with pytest.raises(ValueError, match=r"would need .* more than 4 GiB") as caught:
        call()
    assert "\n" not in str(caught.value)


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
