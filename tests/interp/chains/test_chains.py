"""Both priors and both samplers against exact probabilities of short sequences.

The exact numbers come from `reference.kernel_moment`: moments of the kernel as polynomials in its parents' laws, in
fractions, with no urn in it. Seeds are fixed, so a test that passes keeps passing; every chi-square has a control that
it must reject.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy import stats

from analyses.running.subject import prior_text
from interp import arguments
from interp.chains import urn
from interp.chains.batch import context_codes
from interp.chains.descriptions import parse_prior, prior_from_dict
from interp.chains.priors import ChainBatch, HierarchicalDirichlet, IndependentDirichlet, Prior, draw_dirichlet
from interp.estimators.predicted import predicted_parameters
from models.training.spec import make_spec
from tests import reference

METHODS = ("explicit", "collapsed")
every_method = pytest.mark.parametrize("method", METHODS)

# A prior, its parameters as the reference takes them, and a length short enough for the exact law.
SMALL = [
    (IndependentDirichlet(order=1, vocab=3, alpha=0.5), {"alpha": Fraction(1, 2)}, 4),
    (IndependentDirichlet(order=2, vocab=2, alpha=1.5), {"alpha": Fraction(3, 2)}, 6),
    (HierarchicalDirichlet(order=1, vocab=3, eta=(2.0,)), {"eta": [Fraction(2)]}, 4),
    (
        HierarchicalDirichlet(order=2, vocab=2, eta=(3.0, 0.5), eta0=0.25),
        {"eta": [Fraction(3), Fraction(1, 2)], "eta0": Fraction(1, 4)},
        6,
    ),
    (HierarchicalDirichlet(order=3, vocab=2, eta=(1.0, 4.0, 2.0)), {"eta": [Fraction(x) for x in (1, 4, 2)]}, 6),
]
every_small = pytest.mark.parametrize(
    ("prior", "exact", "length"), SMALL, ids=["indep-k1", "indep-k2", "hier-k1", "hier-k2", "hier-k3"]
)
# Priors that tell symbols apart.
UNEQUAL = [
    (IndependentDirichlet(order=1, vocab=3, alpha=(0.5, 1.0, 2.5)), {"alpha": [Fraction(x, 2) for x in (1, 2, 5)]}, 4),
    (
        HierarchicalDirichlet(order=2, vocab=2, eta=(3.0, 0.5), eta0=(0.25, 1.0)),
        {"eta": [Fraction(3), Fraction(1, 2)], "eta0": [Fraction(1, 4), Fraction(1)]},
        6,
    ),
    (
        HierarchicalDirichlet(order=1, vocab=3, eta=(2.0,), eta0=(4.0, 1.0, 0.5)),
        {"eta": [Fraction(2)], "eta0": [Fraction(4), Fraction(1), Fraction(1, 2)]},
        4,
    ),
]
every_prior = pytest.mark.parametrize(
    ("prior", "exact", "length"),
    [*SMALL, *UNEQUAL],
    ids=["indep-k1", "indep-k2", "hier-k1", "hier-k2", "hier-k3", "vector-alpha", "vector-eta0-k2", "vector-eta0-k1"],
)
LARGER = [
    IndependentDirichlet(order=2, vocab=4, alpha=0.3),
    HierarchicalDirichlet(order=2, vocab=4, eta=(5.0, 2.0)),
    HierarchicalDirichlet(order=3, vocab=3, eta=(4.0, 1.0, 2.0), eta0=0.5),
]


# ---- the law of the tokens


@every_method
@every_prior
def test_tokens_have_the_exact_law(prior: Prior, exact: dict, length: int, method: str) -> None:
    batch = 20_000
    tokens = prior.sample(batch=batch, length=length, seed=1, method=method).tokens
    seen = Counter(map(tuple, tokens.tolist()))
    observed, expected = [], []
    for x in itertools.product(range(prior.vocab), repeat=length):
        p = reference.next_law_moment(x, k=prior.order, vocab=prior.vocab, m=0, power=0, **exact)
        observed.append(seen[x])
        expected.append(batch * float(p))
    assert stats.chisquare(observed, expected).pvalue > 1e-3


def test_a_different_eta_is_told_apart_from_the_exact_law() -> None:
    """The control of the test above."""
    other = HierarchicalDirichlet(order=1, vocab=3, eta=(2.6,))
    seen = Counter(map(tuple, other.sample(batch=20_000, length=4, seed=1, method="collapsed").tokens.tolist()))
    everything = list(itertools.product(range(3), repeat=4))
    expected = [
        20_000 * float(reference.next_law_moment(x, k=1, vocab=3, m=0, power=0, eta=[Fraction(2)])) for x in everything
    ]
    assert stats.chisquare([seen[x] for x in everything], expected).pvalue < 1e-4


# ---- the laws


def assert_mean(values: np.ndarray, expected: float, *, sigmas: float = 4.5) -> None:
    """The mean over the first axis (independent draws) is `expected` within its own standard error."""
    per_draw = values.reshape(len(values), -1).mean(-1)
    stderr = per_draw.std(ddof=1) / math.sqrt(len(per_draw))
    assert abs(per_draw.mean() - expected) < sigmas * stderr
    assert stderr < 0.05 * expected  # or the comparison would say nothing


def calibration(chains: ChainBatch, exact: dict) -> float:
    """The largest deviation of E[next_law(m)^power given the tokens] from its exact value, in exact standard errors.

    Sparse laws are so skewed that a sample of them may not show its own spread.
    """
    worst = 0.0
    laws = chains.next_law.numpy()
    rows: dict[tuple[int, ...], list[int]] = {}
    for b, row in enumerate(chains.tokens.tolist()):
        rows.setdefault(tuple(row), []).append(b)
    for x, members in rows.items():
        if len(members) < 100:
            continue
        for m, power in itertools.product(range(chains.vocab), (1, 2)):
            weight, first, second = (
                float(reference.next_law_moment(x, k=chains.order, vocab=chains.vocab, m=m, power=p, **exact))
                for p in (0, power, 2 * power)
            )
            mean, square = first / weight, second / weight
            stderr = math.sqrt((square - mean**2) / len(members))
            worst = max(worst, abs((laws[members, m] ** power).mean() - mean) / stderr)
    return worst


@every_method
@every_small
def test_next_law_and_tokens_have_the_right_joint_law(prior: Prior, exact: dict, length: int, method: str) -> None:
    """First and second moments of pi_{u_T} given every short sequence: the collapsed posterior draw is exact too."""
    chains = prior.sample(batch=12_000, length=length, seed=6, method=method)
    assert calibration(chains, exact) < 4.5


def test_laws_of_other_sequences_are_miscalibrated() -> None:
    """The control of the test above."""
    prior, exact, length = SMALL[3]
    chains = prior.sample(batch=20_000, length=length, seed=6, method="collapsed")
    shuffled = ChainBatch(**{**vars(chains), "next_law": chains.next_law.roll(1, dims=0)})
    assert calibration(shuffled, exact) > 10


def test_laws_are_the_kernel_after_each_position() -> None:
    prior = HierarchicalDirichlet(order=2, vocab=3, eta=(5.0, 5.0))
    chains = prior.sample(batch=6, length=12, seed=7, method="explicit")
    laws = chains.laws()
    assert laws.shape == (6, 12, 3)
    assert laws.dtype == torch.float64
    assert torch.equal(laws[:, -1], chains.next_law)
    assert torch.allclose(laws[:, 0], torch.full((6, 3), 1 / 3, dtype=torch.float64))
    for b, row in enumerate(chains.tokens.tolist()):
        for t in range(1, 12):
            assert torch.equal(laws[b, t], chains.kernel[b, row[t] + 3 * row[t - 1]])


@every_method
@pytest.mark.parametrize("prior", [LARGER[1], UNEQUAL[0][0]], ids=["hierarchical", "vector-alpha"])
def test_tokens_follow_their_laws(prior: Prior, method: str) -> None:
    """Each token has the mean probability, under the law that was reported before it, that the law says."""
    chains = prior.sample(batch=2000, length=12, seed=8, method=method)
    laws, tokens = chains.laws()[:, prior.order - 1 : -1], chains.tokens[:, prior.order :]
    chosen = laws.gather(-1, tokens[..., None])[..., 0]
    assert_mean((chosen - (laws**2).sum(-1)).numpy() + 1.0, 1.0)  # E[pi(x)] = sum pi^2
    assert abs(float((chosen - 1 / prior.vocab).mean())) > 0.05  # and it is not the uniform law's


@pytest.mark.parametrize("prior", [*LARGER, *(case[0] for case in UNEQUAL)])
def test_both_samplers_have_one_law_of_laws(prior: Prior) -> None:
    """Means, squares and products over positions, given what the tokens are."""
    moments = []
    for method in METHODS:
        chains = prior.sample(batch=8000, length=12, seed=9, method=method)
        laws, tokens = chains.laws().numpy()[:, prior.order - 1 :], chains.tokens.numpy()[:, prior.order - 1 :]
        follower = np.take_along_axis(laws[:, 2:], tokens[:, 1:-1, None], axis=2)[..., 0]
        sums = [laws[:, 5], laws[:, 5] ** 2, laws[:, 5] * laws[:, 8], laws[:, 0] * laws[:, -1], follower, follower**2]
        values = np.concatenate(sums, axis=1)
        moments.append((values.mean(0), values.std(0) / len(values) ** 0.5))
    (one, error), (other, other_error) = moments
    assert (np.abs(one - other) < 4.5 * np.hypot(error, other_error)).all()


@pytest.mark.parametrize("prior", LARGER[:2], ids=["independent", "hierarchical"])
def test_collapsed_laws_belong_to_contexts(prior: Prior) -> None:
    chains = prior.sample(batch=5, length=60, seed=7)
    laws = chains.laws()
    assert chains.kernel is None
    assert torch.equal(laws, chains.laws())
    assert torch.equal(laws[:, -1], chains.next_law)
    assert torch.allclose(laws[:, : prior.order - 1], torch.full((), 1 / prior.vocab, dtype=torch.float64))
    codes = context_codes(chains.tokens.numpy(), order=prior.order, vocab=prior.vocab)
    for sequence, of in zip(laws[:, prior.order - 1 :], codes, strict=True):
        _, first, again = np.unique(of, return_index=True, return_inverse=True)
        assert torch.equal(sequence, sequence[first[again]])
        assert len(torch.unique(sequence, dim=0)) == len(first)


def test_laws_of_other_tokens_are_refused() -> None:
    chains = LARGER[0].sample(batch=5, length=9, seed=7)
    with pytest.raises(ValueError, match="their laws are unknown"):
        dataclasses.replace(chains, tokens=chains.tokens.flip(0)).laws()


def test_collapsed_chains_never_build_the_table() -> None:
    """30^12 contexts, sampled in passing."""
    for prior in (
        IndependentDirichlet(order=12, vocab=30),
        HierarchicalDirichlet(order=12, vocab=30, eta=(5.0,) * 12),
    ):
        chains = prior.sample(batch=3, length=200, seed=0, method="collapsed")
        assert chains.tokens.shape == (3, 200)
        assert torch.allclose(chains.next_law.sum(-1), torch.ones(3, dtype=torch.float64))
        with pytest.raises(ValueError, match="use method='collapsed'"):
            prior.sample(batch=3, length=200, seed=0, method="explicit")


# ---- the urn itself


def seated(prior: Prior, uniforms: np.ndarray) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
    """Tokens and urn after one chain driven by the given uniforms."""
    tokens = np.empty(len(uniforms), dtype=np.int64)
    seats = urn.new_urn(len(uniforms), prior.order, prior.vocab)
    urn.draw_chain(uniforms, tokens, prior.order, prior.vocab, prior.seating(), prior.independent, seats)
    return tokens, seats


@pytest.mark.parametrize("prior", LARGER, ids=["indep", "hier-k2", "hier-k3"])
def test_predictive_law_is_what_the_urn_draws(prior: Prior) -> None:
    """Every value of the one uniform, on a grid: the share of each next token is its predictive probability."""
    grid = 2000
    rng = np.random.default_rng(9)
    for length in (prior.order + 1, 12, 40):
        _, seats = seated(prior, rng.random(length))
        law = np.empty(prior.vocab)
        setting = (prior.order, prior.vocab, prior.concentrations(), prior.independent)
        urn.predictive_law(law, *setting, seats)
        drawn = [
            urn.draw_token((i + 0.5) / grid, *setting, tuple(array.copy() for array in seats)) for i in range(grid)
        ]
        pieces = (prior.order + 2) * prior.vocab  # intervals of the uniform, each known to one cell of the grid
        assert law.sum() == pytest.approx(1.0, abs=1e-12)
        assert np.abs(np.bincount(drawn, minlength=prior.vocab) / grid - law).max() < pieces / grid


@every_prior
def test_predictive_laws_average_to_the_bayes_predictive(prior: Prior, exact: dict, length: int) -> None:
    """Over the seatings of one sequence; for the independent prior there is only one, and it is add-alpha."""
    rng = np.random.default_rng(10)
    laws: dict[tuple[int, ...], list[np.ndarray]] = {}
    for uniforms in rng.random((3000, length)):
        tokens, seats = seated(prior, uniforms)
        law = np.empty(prior.vocab)
        urn.predictive_law(law, prior.order, prior.vocab, prior.seating(), prior.independent, seats)
        laws.setdefault(tuple(tokens.tolist()), []).append(law)
    compared = 0
    for x, found in laws.items():
        if len(found) < 50:
            continue
        setting = {"k": prior.order, "vocab": prior.vocab, **exact}
        joint = [float(reference.next_law_moment(x, m=m, power=1, **setting)) for m in range(prior.vocab)]
        bayes = np.array(joint) / sum(joint)
        spread = np.std(found, axis=0, ddof=1) / math.sqrt(len(found))
        assert (np.abs(np.mean(found, axis=0) - bayes) <= 4.5 * spread + 1e-12).all()
        if prior.independent:
            assert spread.max() < 1e-12
            alpha = prior.to_dict()["alpha"]
            smoothed = reference.add_alpha(x, k=prior.order, vocab=prior.vocab, alpha=alpha)
            assert np.abs(bayes - smoothed).max() < 1e-12
        compared += 1
    assert compared >= 6


def test_extreme_uniforms_still_name_tokens() -> None:
    for prior in LARGER:
        for value in (0.0, np.nextafter(1.0, 0.0)):
            tokens, _ = seated(prior, np.full(30, value))
            assert tokens.min() >= 0
            assert tokens.max() < prior.vocab


# ---- Dirichlet draws


def test_dirichlet_draws_have_their_moments() -> None:
    concentration = np.array([0.2, 1.0, 3.0])
    laws = draw_dirichlet(np.tile(concentration, (20_000, 1)), np.random.default_rng(11))
    total = concentration.sum()
    for m, a in enumerate(concentration):
        assert_mean(laws[:, m], a / total)
        assert_mean(laws[:, m] ** 2, a * (a + 1) / (total * (total + 1)))


@pytest.mark.parametrize("concentration", [1e-2, 1e-8, 1e-300, 1e8])
def test_dirichlet_draws_survive_extreme_concentrations(concentration: float) -> None:
    laws = draw_dirichlet(np.full((500, 4), concentration), np.random.default_rng(12))
    assert np.isfinite(laws).all()
    assert np.allclose(laws.sum(-1), 1.0)
    if concentration <= 1e-8:  # one symbol takes all, each of them equally often
        assert np.allclose(laws.max(-1), 1.0)
        assert stats.chisquare(np.bincount(laws.argmax(-1), minlength=4)).pvalue > 1e-3


@every_method
def test_sparse_priors_sample_cleanly(method: str) -> None:
    for prior in (
        IndependentDirichlet(order=2, vocab=4, alpha=1e-9),
        HierarchicalDirichlet(order=3, vocab=4, eta=(1e-6, 1e-6, 1e-6), eta0=1e-6),
        HierarchicalDirichlet(order=2, vocab=4, eta=(1e9, 1e9), eta0=1e-12),
    ):
        chains = prior.sample(batch=200, length=20, seed=14, method=method)
        assert chains.next_law.isfinite().all()
        assert torch.allclose(chains.next_law.sum(-1), torch.ones(200, dtype=torch.float64))


# ---- seeds


@every_method
@pytest.mark.parametrize("prior", LARGER, ids=["indep", "hier-k2", "hier-k3"])
def test_a_seed_fixes_the_sample_and_touches_nothing_else(prior: Prior, method: str) -> None:
    of_numpy, of_torch = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    first, again, other = (prior.sample(batch=5, length=20, seed=seed, method=method) for seed in (15, 15, 16))
    assert torch.equal(first.tokens, again.tokens)
    assert torch.equal(first.next_law, again.next_law)
    assert not torch.equal(first.tokens, other.tokens)
    assert np.array_equal(np.random.get_state()[1], of_numpy)  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), of_torch)


# ---- shapes, names and bad input


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"kind": "uniform", "order": 1, "vocab": 2}, "prior kind must be one of independent, hierarchical"),
        ({"kind": "independent", "order": 1, "alpha": 1.0}, "missing key vocab in the description of a prior"),
        ({"kind": "independent", "order": 1, "vocab": 2, "alpha": 1.0, "beta": 1.0}, "unknown key 'beta' in the"),
        ({"kind": "hierarchical", "order": 1, "vocab": 2, "eta": [1.0] * 10**5, "eta0": 1}, "got 100000: "),
        ({"kind": "independent", "order": 1, "vocab": 1, "alpha": 1.0}, "vocab must be an integer >= 2"),
        ({"kind": "hierarchical", "order": 1, "vocab": 2, "eta": [-1.0], "eta0": 1}, "eta must be a finite number > 0"),
    ],
)
def test_bad_descriptions_are_named(values: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        prior_from_dict(values)
    assert len(str(caught.value)) < 200


def test_a_kernel_that_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arguments, "MAX_BYTES", 8 * 10 * 4**3)
    LARGER[0].sample(batch=10, length=9, seed=0, method="explicit")
    with pytest.raises(ValueError, match=r"11 kernels .* use method='collapsed'"):
        LARGER[0].sample(batch=11, length=9, seed=0, method="explicit")


@pytest.mark.parametrize(
    ("prior", "text", "even"),
    [
        (IndependentDirichlet(order=1, vocab=3, alpha=[0.5, 1.0, 2.5]), "independent:0.5,1,2.5", {"alpha": (0.7,) * 3}),
        (
            HierarchicalDirichlet(order=1, vocab=3, eta=(2.0,), eta0=[0.5, 1.0, 2.5]),
            "hierarchical:2:0.5,1,2.5",
            {"eta0": (0.7,) * 3},
        ),
    ],
)
def test_unequal_symbols_are_written_read_and_drawn(prior: Prior, text: str, even: dict) -> None:
    assert prior.text == text == prior_text(prior.to_dict())
    assert parse_prior(text, order=1, vocab=3) == prior == prior_from_dict(prior.to_dict())
    (name,) = even
    equal = dataclasses.replace(prior, **even)
    assert getattr(equal, name) == 0.7
    assert equal.seating().tolist() == equal.concentrations().tolist()
    root = next(iter(prior.draw_tree(20_000, np.random.default_rng(0)).values()))[:, 0]
    expected = np.array([0.5, 1.0, 2.5]) / 4.0
    assert np.abs(root.mean(0) - expected).max() < 0.005
    assert np.abs(root.var(0) - expected * (1 - expected) / 5.0).max() < 0.003
    with pytest.raises(ValueError, match=rf"{name} must be one number, or one per symbol \(3 of them\)"):
        parse_prior(text.removesuffix(",2.5"), order=1, vocab=3)


@pytest.mark.parametrize("prior", [case[0] for case in UNEQUAL])
def test_what_relies_on_label_symmetry_refuses_unequal_symbols(prior: Prior) -> None:
    from analyses.parts.estimators import alpha_of

    with pytest.raises(ValueError, match=r"treats symbols differently.*label symmetry") as refusal:
        prior.concentrations()
    assert "\n" not in str(refusal.value)
    with pytest.raises(
        ValueError, match=r"treats symbols differently\. The closed form of beta and kappa.*one alpha or eta0"
    ):
        predicted_parameters(prior, length=20)
    with pytest.raises(ValueError, match=r"treats symbols differently\. This study smooths with one alpha"):
        alpha_of(prior)
    with pytest.raises(
        ValueError, match=r"treats symbols differently\. Training draws.*uniform base law: give one alpha"
    ):
        make_spec(family="disentangled", prior=prior.to_dict(), length=16, bos=True)
