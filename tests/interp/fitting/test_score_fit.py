"""Planted betas come back; noise stays within its standard errors; random weights and shuffled tokens fail."""

from __future__ import annotations

import inspect
from dataclasses import replace

import numpy as np
import pytest
import torch

import interp as ip
from interp.fitting.regression import (
    FLIPS,
    NormalEquations,
    centred,
    clustered,
    distance_basis,
    leave_one_out,
    sign_flip_test,
)
from interp.instruments.beta_kappa import MatchFit, fit_scores
from interp.instruments.lag_pairs import fit_score_pairs
from interp.results import mean_stderr
from tests.known_captures import (
    CASES,
    comparing,
    everywhere,
    imperfect,
    noisy,
    planted,
    random_model,
    tokens_of,
    with_scores,
)


def assert_found(fit: MatchFit, beta: tuple[float, ...], kappa: float | None, *, within: float) -> None:
    assert fit.success, fit.message
    np.testing.assert_allclose(fit.beta, beta, atol=within, rtol=0)
    if kappa is None:
        assert fit.kappa is None
        assert fit.kappa_stderr is None
    else:
        assert fit.kappa == pytest.approx(kappa, abs=within)


def assert_failed(fit: MatchFit, *, because: str) -> None:
    assert not fit.success
    assert because in fit.message
    assert np.isnan(fit.beta).all()
    assert np.isnan(fit.stderr).all()
    assert fit.kappa is None or np.isnan(fit.kappa)


@pytest.mark.parametrize(("order", "vocab", "beta", "kappa"), CASES)
@pytest.mark.parametrize("source", ["scores", "pattern"])
def test_planted_parameters_are_recovered(order, vocab, beta, kappa, source):
    cap = planted(beta=beta, kappa=kappa, vocab=vocab)
    fit = fit_scores(cap, source=source)
    assert_found(fit, beta, kappa, within=1e-9)
    assert fit.r2 == pytest.approx(1.0, abs=1e-9)
    assert fit.r2_match == pytest.approx(1.0, abs=1e-9)
    np.testing.assert_allclose(fit.beta_no_position, beta, atol=1e-9)
    assert fit.position_share == pytest.approx(0.0, abs=1e-9)
    assert fit.token_share == pytest.approx(0.0, abs=1e-9)
    assert fit.underflowed == 0
    if order > 1:  # rounding is no evidence against additivity
        assert fit.additivity_p > 0.5
    assert fit.additivity_terms == 2**order - 1 - order
    assert fit.n == 48 * (40 - order)


@pytest.mark.parametrize(("order", "vocab", "beta", "kappa"), CASES[::3] + CASES[-3:])
def test_float32_models_are_recovered_to_their_precision(order, vocab, beta, kappa):
    fit = fit_scores(planted(beta=beta, kappa=kappa, vocab=vocab, dtype="float32"))
    assert_found(fit, beta, kappa, within=1e-3)
    if order > 1:
        assert fit.additivity_p > 0.5


@pytest.mark.parametrize("query", ["last", "all"])
@pytest.mark.parametrize("lag", [0, 1, 2])
def test_a_symbol_treated_apart_shows_as_a_token_share(lag, query):
    """Keys with symbol 1 at some lag score lower, as in a trained model that marks one symbol."""
    cap = everywhere(beta=(2.7, 1.2), vocab=5, length=30, batch=60, query=query)
    marked = torch.zeros_like(cap.match_scores)
    marked[..., 1 + lag :] = (cap.tokens == 1)[:, None, None, : cap.tokens.shape[1] - lag].double()
    fit = fit_scores(with_scores(cap, cap.match_scores - 1.6 * marked))
    assert fit.success
    assert fit.r2 < 0.95
    assert fit.token_share > 0.05
    assert fit.r2 + fit.token_share == pytest.approx(1.0, abs=1e-9)
    assert f"own tokens then add {fit.token_share:.2%}" in str(fit)
    many = fit_scores(planted(beta=(2.7, 1.2), kappa=None, vocab=23))  # too many symbols to tell
    assert np.isnan(many.token_share)
    assert "own tokens" not in str(many)
    # The same scores at keys that have nothing to do with the symbol: as poor a fit, but not for this reason.
    dealt = marked[..., torch.randperm(marked.shape[-1], generator=torch.Generator().manual_seed(0))].flip(0)
    other = fit_scores(with_scores(cap, cap.match_scores - 1.6 * dealt))
    assert other.r2 < 0.95
    assert other.token_share < 0.02


@pytest.mark.parametrize("kappa", [None, 3.3])
def test_noise_stays_within_three_standard_errors(kappa):
    beta = (2.7, 1.2)
    cap = noisy(planted(beta=beta, kappa=kappa, vocab=5, batch=200), scale=0.7, seed=1)
    fit = fit_scores(cap)
    assert fit.success
    assert (np.abs(fit.beta - beta) < 3 * fit.stderr).all()
    assert (fit.stderr < 0.05).all()
    assert (fit.stderr > 1e-3).all()
    assert fit.r2 < 0.95
    if kappa is not None:
        assert abs(fit.kappa - kappa) < 3 * fit.kappa_stderr
        assert 0.5 < fit.kappa_spread < 1.0


def fits_without(cap: ip.Capture, **options: object) -> list[MatchFit]:
    """The fits of the capture without each sequence in turn."""
    kept = [torch.arange(len(cap.tokens)) != left_out for left_out in range(len(cap.tokens))]
    return [fit_scores(with_scores(cap, cap.match_scores[one], tokens=cap.tokens[one]), **options) for one in kept]


def test_estimates_and_errors_equal_the_textbook_regression():
    """Against a dense regression with one dummy per query, and fits without each of the sequences."""
    cap = noisy(planted(beta=(1.5, 0.8), kappa=2.0, vocab=3, batch=12, length=14), scale=0.5, seed=3)
    fit = fit_scores(cap, position=False)
    masks = ip.match_masks(cap.tokens, order=2).numpy()[:, 2:]
    scores = cap.match_scores[:, 0, 0].numpy()
    rows, values, sequence = [], [], []
    for b in range(12):
        for s in range(12):
            dummies = np.eye(12)[b]
            rows.append([masks[b, s] & 1, masks[b, s] >> 1 & 1, *dummies])
            values.append(scores[b, s + 3])
            sequence.append(b)
    x, y, sequence = np.array(rows, dtype=float), np.array(values), np.array(sequence)
    inverse = np.linalg.inv(x.T @ x)
    coefficients = inverse @ x.T @ y
    residual = y - x @ coefficients
    np.testing.assert_allclose(fit.beta, coefficients[:2], atol=1e-10)
    without = fits_without(cap, position=False)
    moved = np.array([[*fit.beta, fit.kappa]]) - [[*one.beta, one.kappa] for one in without]
    np.testing.assert_allclose(fit.covariance, moved.T @ moved * 11 / 12, atol=1e-12)
    np.testing.assert_allclose([*fit.stderr, fit.kappa_stderr], np.sqrt(np.diag(fit.covariance)), atol=1e-12)
    # kappa is BOS's score beside the dummies, which are the scores of the empty match.
    relative = scores[:, 0] - coefficients[2:]
    assert fit.kappa == pytest.approx(relative.mean(), abs=1e-10)
    within = y - np.array([y[sequence == b].mean() for b in range(12)])[sequence]
    assert fit.r2 == pytest.approx(1 - (residual**2).sum() / (within**2).sum(), abs=1e-10)


def test_a_positional_term_is_found_and_controlled_for():
    beta, kappa, length = (2.0, 1.0), 1.0, 40
    cap = planted(beta=beta, kappa=kappa, vocab=3, batch=100, length=length)
    distance = torch.arange(length - 1, -1, -1, dtype=torch.float64)
    slope = -0.8 * torch.log1p(distance)  # a cubic spline in log(1 + distance) can follow it exactly
    scores = cap.match_scores.clone()
    scores[:, 0, 0, 1:] += slope
    # kappa is relative to an empty match at an average position.
    scores[:, 0, 0, 0] += slope[2:].mean()
    fit = fit_scores(with_scores(cap, scores))
    assert_found(fit, beta, kappa, within=1e-9)
    assert fit.position_share > 0.05
    found = fit.position - fit.position.mean()
    expected = slope[2:].flip(0).numpy()
    np.testing.assert_allclose(found, expected - expected.mean(), atol=1e-9)
    without = fit_scores(with_scores(cap, scores), position=False)
    np.testing.assert_allclose(without.beta, fit.beta_no_position, atol=1e-12)
    assert without.r2 < fit.r2 - 0.05
    assert np.abs(without.beta - beta).max() > 1e-3
    assert without.position_share == 0.0


def test_additivity_violation_is_detected():
    cap = planted(beta=(2.0, 1.0), kappa=None, vocab=3, batch=150)
    masks = ip.match_masks(cap.tokens, order=2)
    scores = cap.match_scores + 0.5 * (masks == 3)[:, None, None, :]
    clean, bent = (
        fit_scores(noisy(with_scores(cap, values), scale=0.5, seed=2)) for values in (cap.match_scores, scores)
    )
    assert clean.additivity_p > 0.01
    assert clean.additivity_gain < 1e-3
    assert bent.additivity_p == 1 / (FLIPS + 1)
    assert bent.additivity_gain > 3e-3
    assert bent.additivity_terms == 1
    np.testing.assert_allclose(bent.mask_score, [0.0, 2.0, 1.0, 3.5], atol=0.05)


@pytest.mark.parametrize("family", ["disentangled", "standard"])
@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("vocab", [2, 5])
def test_random_weights_fail(family, order, vocab):
    for seed, scale in enumerate((0.3, 1.0)):
        model = random_model(order=order, vocab=vocab, length=24, bos=bool(seed), family=family, scale=scale, seed=seed)
        cap = ip.capture(model, tokens_of(order=order, vocab=vocab, length=24, batch=64))
        assert_failed(fit_scores(cap), because="matches explain")
        assert_failed(fit_scores(cap, source="pattern"), because="matches explain")
        pairs = fit_score_pairs(cap)
        assert not pairs.success or pairs.aligned_share < 0.5


@pytest.mark.parametrize("vocab", [2, 4])
def test_random_match_weights_on_perfect_copies_fail(vocab):
    """Hard copies and a random W_A: scores are functions of the right tokens, but not of their equality."""
    model = comparing(np.zeros((3, 3)), vocab=vocab, length=40)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        weight = model.blocks[1].attn.W_Q
        weight.copy_(torch.randn(weight.shape, generator=generator, dtype=weight.dtype))
    cap = ip.capture(model, tokens_of(order=2, vocab=vocab, batch=100))
    assert_failed(fit_scores(cap), because="matches explain")


def test_shuffled_tokens_fail():
    cap = planted(beta=(2.7, 1.2), kappa=3.3, vocab=5, batch=100)
    rng, tokens = np.random.default_rng(0), cap.tokens.numpy()
    by_position = torch.from_numpy(rng.permuted(tokens, axis=1))
    by_sequence = torch.from_numpy(tokens[rng.permutation(len(tokens))])
    labels = torch.from_numpy(rng.integers(5, size=tokens.shape))
    for shuffled in (by_position, by_sequence, labels):
        fit = fit_scores(replace(cap, tokens=shuffled))
        assert_failed(fit, because="matches explain")
        assert fit.r2_match < 0.2
        assert not fit_score_pairs(replace(cap, tokens=shuffled)).success


CAP = planted(beta=(2.7, 1.2), kappa=3.3, vocab=5)
SAME = np.zeros((16, 20), dtype=np.int64)
FRESH = np.where(np.arange(20) == 19, 2, tokens_of(order=2, vocab=2, length=20, batch=16))
PERIOD = np.tile([0, 1], (16, 10))  # lags 1 and 2 always match together


def spoiled(value: float) -> ip.Capture:
    """A capture with one candidate's score replaced."""
    scores = CAP.match_scores.clone()
    scores[3, 0, 0, 10] = value
    return replace(CAP, match_scores=scores)


def on_tokens(tokens: np.ndarray, *, scored: bool) -> ip.Capture:
    """A construction on tokens that say little, with its own scores or with noise for scores."""
    cap = ip.capture(ip.construct(order=2, vocab=3, length=20, beta=(2.0, 1.0)), tokens)
    noise = torch.randn(16, 1, 1, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return cap if scored else with_scores(cap, noise)


@pytest.mark.parametrize(
    ("cap", "reason", "of_pairs"),
    [
        (with_scores(CAP, torch.full_like(CAP.match_scores, 7.0)), "do not vary", "do not vary"),
        (with_scores(CAP, CAP.match_scores[..., :1].expand_as(CAP.match_scores)), "do not vary", ""),
        *((spoiled(bad), "1 scores of candidate keys are not finite", "not finite") for bad in (np.nan, -np.inf)),
        (on_tokens(SAME, scored=True), "do not vary", ""),
        (on_tokens(SAME, scored=False), "lag 1 never mismatches", ""),
        (on_tokens(FRESH, scored=True), "lag 1 never matches", ""),
        (on_tokens(PERIOD, scored=False), "collinear", "collinear"),
        (planted(beta=(2.0,), kappa=None, vocab=3, batch=4, length=60), "4 sequences; standard errors", "4 sequences"),
        (planted(beta=(2.0, 1.0), kappa=1.0, vocab=3, length=3), "too short", "too short"),
    ],
)  # fmt: skip
def test_data_that_say_too_little_fail(cap: ip.Capture, reason: str, of_pairs: str) -> None:
    assert_failed(fit_scores(cap), because=reason)
    pairs = fit_score_pairs(cap)
    assert not pairs.success
    assert of_pairs in pairs.message
    assert np.isnan(pairs.beta).all()
    assert np.isnan(pairs.aligned_share)


def test_position_alone_is_no_match():
    cap = planted(beta=(2.7, 1.2), kappa=None, vocab=5)
    slope = torch.log1p(torch.arange(40.0, dtype=torch.float64))
    scores = slope.expand_as(cap.match_scores).clone()
    fit = fit_scores(noisy(with_scores(cap, scores), scale=0.01, seed=0))
    assert_failed(fit, because="matches explain")
    assert fit.r2 > 0.99


def test_underflow_is_counted_and_the_rest_is_fitted():
    """In float32, e^-120 is gone: an empty match beside a full one. Beside a partial one it is there."""
    beta, kappa = (60.0, 60.0), 58.0
    cap = planted(beta=beta, kappa=kappa, vocab=5, batch=100, dtype="float32")
    fit = fit_scores(cap, source="pattern")
    assert_found(fit, beta, kappa, within=1e-3)
    assert 0 < fit.underflowed < fit_scores(cap).n
    assert f"{fit.underflowed} attention weights underflowed" in fit.message
    assert fit.n < fit_scores(cap).n
    assert fit_scores(cap).underflowed == 0


def test_underflow_that_hides_beta_fails_with_a_bound():
    cap = planted(beta=(100.0,), kappa=None, vocab=3, batch=100, dtype="float32")
    fit = fit_scores(cap, source="pattern")
    assert_failed(fit, because="underflowed")
    assert "|beta|_{1} >= 8" in fit.message
    assert 80 < fit.bounds[0] <= 100
    assert np.isnan(fit.bounds[1])
    assert_found(fit_scores(cap), (100.0,), None, within=1e-3)
    two = fit_scores(planted(beta=(200.0, 150.0), kappa=3.0, vocab=3, batch=100, dtype="float32"), source="pattern")
    assert_failed(two, because="underflowed")
    assert (two.bounds[:3] <= [350.0, 150.0, 200.0]).all()


def test_bos_that_underflows_leaves_beta():
    cap = planted(beta=(3.0, 2.0), kappa=-300.0, vocab=3, dtype="float32")
    fit = fit_scores(cap, source="pattern")
    assert not fit.success
    assert "kappa" in fit.message
    np.testing.assert_allclose(fit.beta, (3.0, 2.0), atol=1e-3)
    assert np.isnan(fit.kappa)


def test_every_query_gives_the_same_law():
    beta = (1.5, 0.7)
    cap = everywhere(beta=beta, vocab=4, length=16, batch=20, query="all")
    fit = fit_scores(cap)
    assert_found(fit, beta, sum(beta) / 4, within=1e-9)  # BOS: |beta|_1 / |V| through its content
    assert fit.queries == 14
    assert fit.n == 20 * sum(range(1, 15))
    pattern = fit_scores(cap, source="pattern")
    assert_found(pattern, beta, sum(beta) / 4, within=1e-9)
    pairs = fit_score_pairs(cap)
    assert pairs.success
    np.testing.assert_allclose(pairs.aligned, beta, atol=1e-9)


def test_an_imperfect_model_is_measured():
    beta, kappa = (3.0, 1.5), 2.0
    model = imperfect(beta=beta, kappa=kappa, vocab=5, noise=0.15)
    cap = ip.capture(model, tokens_of(order=2, vocab=5, batch=256))
    fit, pairs = fit_scores(cap), fit_score_pairs(cap)
    assert fit.success
    assert 0.8 < fit.r2 < 0.999
    assert 0.5 < fit.r2_attended < 1.0
    np.testing.assert_allclose(fit.beta, beta, atol=0.4)
    assert pairs.success
    assert 0.9 < pairs.aligned_share < 1.0
    assert 0 < pairs.aligned_share_stderr < 0.02
    np.testing.assert_allclose(pairs.aligned, fit.beta, atol=0.3)


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("vocab", [2, 3, 8])
def test_planted_pairs_are_recovered(order, vocab):
    rng = np.random.default_rng([order, vocab])
    truth = rng.normal(scale=2.0, size=(order + 1, order + 1))
    cap = ip.capture(comparing(truth, vocab=vocab, length=40), tokens_of(order=order, vocab=vocab, batch=64))
    pairs = fit_score_pairs(cap)
    assert pairs.success, pairs.message
    np.testing.assert_allclose(pairs.beta, truth, atol=1e-9)
    assert pairs.aligned_share < 0.9
    assert pairs.table().query("aligned").beta.tolist() == pytest.approx(np.diagonal(truth, 1).tolist())


@pytest.mark.parametrize(("order", "vocab", "beta", "kappa"), CASES[::2])
def test_a_construction_is_aligned(order, vocab, beta, kappa):
    pairs = fit_score_pairs(planted(beta=beta, kappa=kappa, vocab=vocab, batch=96))
    assert pairs.success, pairs.message
    np.testing.assert_allclose(pairs.beta, np.pad(np.diag(beta), ((0, 1), (1, 0))), atol=1e-9)
    assert pairs.aligned_share == pytest.approx(1.0, abs=1e-9)
    assert pairs.kappa == (None if kappa is None else pytest.approx(kappa, abs=1e-9))


def test_kappa_beside_pairs_has_the_error_of_its_scores():
    cap = planted(beta=(2.7, 1.2), kappa=3.3, vocab=5, batch=300)
    off = []
    for seed in range(20):
        pairs = fit_score_pairs(noisy(cap, scale=0.5, seed=seed))
        off.append((pairs.kappa - 3.3) / pairs.kappa_stderr)
    assert np.abs(off).max() < 4
    assert 0.6 < np.sqrt(np.mean(np.square(off))) < 1.5


def test_pair_noise_stays_within_three_standard_errors():
    truth = np.array([[0.0, 2.0, 0.5], [0.0, -0.3, 1.0], [0.2, 0.0, 0.0]])
    cap = ip.capture(comparing(truth, vocab=4, length=40), tokens_of(order=2, vocab=4, batch=300))
    pairs = fit_score_pairs(noisy(cap, scale=0.5, seed=5))
    assert (np.abs(pairs.beta - truth) < 3 * pairs.stderr).all()
    exact = fit_score_pairs(cap)
    assert abs(pairs.aligned_share - exact.aligned_share) < 3 * pairs.aligned_share_stderr + 0.01


def test_misaligned_heads_are_told_apart():
    """A head that compares x_t with x_s itself: no induction, and the share says so."""
    truth = np.zeros((3, 3))
    truth[0, 0], truth[1, 1] = 3.0, 2.0
    cap = ip.capture(comparing(truth, vocab=5, length=40), tokens_of(order=2, vocab=5, batch=200))
    pairs = fit_score_pairs(cap)
    assert pairs.success
    assert pairs.aligned_share < 0.3
    assert not fit_scores(cap).success


def test_captures_are_left_alone():
    for dtype in ("float32", "float64"):
        cap = planted(beta=(2.7, 1.2), kappa=3.3, vocab=5, dtype=dtype)
        names = ("tokens", "copy_pattern", "match_scores", "match_pattern", "queries")
        before = {name: getattr(cap, name).clone() for name in names}
        for source in ("scores", "pattern", "attention"):
            ip.overlap_mass(cap, fit_scores(cap, source=source))
        fit_score_pairs(cap)
        assert all(torch.equal(getattr(cap, name), before[name]) for name in names)


@pytest.mark.parametrize("options", [{"source": "logits"}, {"law": "suffix"}, {"own": True}])
def test_bad_arguments_are_refused(options):
    message = "source must be 'scores', 'pattern'" if "source" in options else "law and own are for source='attention'"
    with pytest.raises(ValueError, match=message):
        inspect.unwrap(fit_scores)(CAP, **options)


def test_clustered_errors_agree_with_the_one_function():
    """The regression on a constant is the mean."""
    rng = np.random.default_rng(0)
    values, clusters = rng.normal(size=60), np.repeat(np.arange(12), 5)
    mean, stderr = mean_stderr(values, clusters=clusters)
    pull = np.bincount(clusters, weights=values - mean)[:, None]
    moved = leave_one_out(pull, np.full((12, 1, 1), 5.0), np.array([[1 / 60]]))
    assert np.sqrt(clustered(moved)[0, 0]) == pytest.approx(stderr)


def test_a_cluster_that_alone_determines_a_column():
    """The first column is seen in one cluster alone; the second has no column that was fitted beside it."""
    design = np.random.default_rng(0).normal(size=(8, 5, 3))
    design[1:, :, 0] = 0.0
    information = design.swapaxes(1, 2) @ design
    information[..., 2] = information[:, 2] = 0.0  # left out of the fit
    inverse = np.zeros((3, 3))
    inverse[:2, :2] = np.linalg.inv(information.sum(axis=0)[:2, :2])
    moved = leave_one_out(np.ones((8, 3)) * [0.0, 1.0, 1.0], information, inverse)
    errors = np.sqrt(np.diag(clustered(moved)))
    assert np.isnan(errors[0])
    assert 0 < errors[1] < 10
    assert errors[2] == 0.0


@pytest.mark.parametrize("spread", [0.0, 2.0])  # of the clusters' sizes
@pytest.mark.parametrize(("groups", "columns"), [(12, 2), (30, 3), (24, 12)])
def test_sign_flips_are_calibrated(groups, columns, spread):
    rng = np.random.default_rng(0)
    sizes = np.exp(spread * rng.normal(size=(400, groups, 1)))
    p = np.array([sign_flip_test(one, resolution=0.0) for one in sizes * rng.normal(size=(400, groups, columns))])
    assert np.mean(p < 0.05) == pytest.approx(0.05, abs=0.03)
    assert np.mean(p) == pytest.approx(0.5, abs=0.06)


@pytest.mark.parametrize("source", ["scores", "attention"])
def test_a_beta_of_one_sequence_has_no_error(source):
    """The last token occurs before in the first sequence alone: nothing tells how much its beta would vary."""
    tokens = np.random.default_rng(0).integers(3, size=(20, 24))
    tokens[:, -1] = 3
    tokens[0, 3:20:3] = 3
    model = ip.construct(order=1, vocab=4, length=24, beta=(2.0,), kappa=1.0)
    fit = fit_scores(noisy(ip.capture(model, tokens), scale=0.2, seed=0), source=source, min_r2=0.0)
    assert fit.success, fit.message
    assert fit.beta[0] == pytest.approx(2.0, abs=0.4)
    assert np.isnan(fit.stderr[0])
    assert np.isnan(fit.interval()[0][0])
    assert "one sequence alone determines beta_1" in fit.message


def test_sign_flips_find_what_is_there_and_say_when_they_cannot():
    influence = np.random.default_rng(0).normal(size=(20, 3)) + np.array([2.0, 0.0, 0.0])
    assert sign_flip_test(influence, resolution=0.0) == 1 / (FLIPS + 1)
    assert sign_flip_test(1e-12 * influence, resolution=1e-9) == 1.0
    assert np.isnan([sign_flip_test(few, resolution=0.0) for few in (influence[:3], influence[:, :0])]).all()


@pytest.mark.parametrize("distances", [1, 2, 5, 8, 9, 40, 1000])
def test_distance_basis_is_centred_and_independent(distances):
    basis = distance_basis(distances)
    gram = basis.T @ basis / distances
    np.testing.assert_allclose(gram, np.eye(basis.shape[1]), atol=1e-9)
    np.testing.assert_allclose(basis.sum(axis=0), 0.0, atol=1e-6)
    assert basis.shape[1] == min(distances - 1, 7)


def test_normal_equations_leave_out_what_is_not_known():
    rng = np.random.default_rng(0)
    design, response = rng.normal(size=(6, 9, 2)), rng.normal(size=(6, 9))
    known = rng.random((6, 9)) < 0.6
    hidden = np.where(known, response, -np.inf)
    equations = NormalEquations.empty(columns=2, epsilon=0.0)
    equations.add(design, hidden, known)
    dense = [
        (design[b][known[b]] - design[b][known[b]].mean(0), response[b][known[b]] - response[b][known[b]].mean())
        for b in range(6)
    ]
    x, y = np.concatenate([part[0] for part in dense]), np.concatenate([part[1] for part in dense])
    expected = np.linalg.lstsq(x, y, rcond=None)[0]
    np.testing.assert_allclose(equations.solve([0, 1]).coefficients, expected, atol=1e-10)
    assert (centred(hidden, known)[~known] == 0).all()
    collinear = NormalEquations.empty(columns=3, epsilon=0.0)
    collinear.add(np.concatenate([design, design[..., :1]], axis=-1), response, np.ones_like(known))
    assert not collinear.solve([0, 1, 2]).full_rank
    assert collinear.independent(base=[0, 1], extra=[2]) == []
