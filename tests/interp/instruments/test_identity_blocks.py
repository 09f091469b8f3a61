"""Identity blocks: the decomposition, its gauge, and the three routes on models with and without a mechanism."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from interp.circuit.capture import capture
from interp.circuit.circuit import Circuit
from interp.circuit.runner import predict
from interp.hooked.construction import construct
from interp.instruments.block_routes import doubly_centred
from interp.instruments.identity_blocks import decompose, identity_blocks, permutation_test
from tests.planted import FOREIGN, chains, planted_foreign, planted_standard, trained_like, without_mechanism


def random_block(vocab: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(vocab, vocab))


@given(vocab=st.integers(2, 8), seed=st.integers(0, 50))
def test_the_five_parts_are_orthogonal_and_complete(vocab: int, seed: int) -> None:
    block = random_block(vocab, seed)
    parts = decompose(block)
    names = ("identity_part", "constant_part", "query_part", "key_part", "rest_part")
    assert sum(parts[name] for name in names) == pytest.approx(parts["squared_norm"])
    # a I + b J is the nearest point of span{I, J}.
    span = np.stack([np.eye(vocab).ravel(), np.ones(vocab * vocab)], axis=1)
    nearest, residual, *_ = np.linalg.lstsq(span, block.ravel(), rcond=None)
    np.testing.assert_allclose([parts["identity"], parts["constant"]], nearest, atol=1e-12)
    outside = parts["query_part"] + parts["key_part"] + parts["rest_part"]
    assert outside == pytest.approx(float(residual[0]) if residual.size else 0.0)


@given(seed=st.integers(0, 50), shift=st.floats(-5, 5))
def test_the_gauge_moves_nothing_that_is_visible(seed: int, shift: float) -> None:
    block = random_block(5, seed)
    moved = block + shift + random_block(5, seed + 1)[:, :1]
    before, after = decompose(block), decompose(moved)
    for name in ("identity", "identity_part", "key_part", "rest_part"):
        assert after[name] == pytest.approx(before[name])


def test_a_key_preference_is_visible_and_a_query_preference_is_not() -> None:
    ramp = np.arange(4.0) - 1.5
    queries, keys = decompose(np.eye(4) + ramp[:, None]), decompose(np.eye(4) + ramp[None, :])
    assert queries["query_part"] == pytest.approx(keys["key_part"])
    assert queries["key_part"] == pytest.approx(0.0)


@pytest.mark.parametrize(("order", "vocab"), [(1, 3), (2, 5), (3, 4)])
@pytest.mark.parametrize("kappa", [None, 1.5])
def test_a_construction_is_made_of_identities(order: int, vocab: int, kappa: float | None) -> None:
    beta = (2.7, 1.2, 0.4)[:order]
    found = identity_blocks(construct(order=order, vocab=vocab, length=12, beta=beta, kappa=kappa))
    (weights,) = found.maps
    assert weights.route == "weights"
    np.testing.assert_allclose(found.beta, beta)
    aligned = np.eye(order + 1, k=1, dtype=bool)
    assert (weights.blocks[~aligned] == 0).all()
    assert np.isnan(weights.residual_share[~aligned]).all()
    np.testing.assert_allclose(weights.residual_share[aligned], 0.0, atol=1e-15)
    np.testing.assert_allclose(weights.visible_residual_share[aligned], 0.0, atol=1e-15)
    assert weights.aligned_share == pytest.approx(1.0)
    # The true labels stand alone among all |V|! relabelings: the least p-value there is.
    np.testing.assert_allclose(weights.p_value[aligned], 1 / math.factorial(vocab))
    np.testing.assert_allclose(weights.p_value[~aligned], 1.0)
    assert math.isnan(found.agreement)
    assert found.success
    assert found.n == 0


def test_blocks_are_in_the_order_of_lags_whichever_head_serves_them() -> None:
    model = trained_like(noise=0.02)
    with torch.no_grad():
        for parameter in (model.blocks[0].attn.W_Q, model.blocks[0].attn.rel_bias):
            parameter.copy_(parameter[[1, 0]].clone())
        swap = [0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7]
        weights = model.blocks[1].attn.W_Q
        weights[0, :12] = weights[0, :12][swap][:, swap].clone()
    found = identity_blocks(model, chains().tokens)
    np.testing.assert_allclose(found["weights"].beta, (2.5, 1.2), atol=0.06)
    assert found.agreement > 0.999


def test_weights_without_copying_are_not_called_lags() -> None:
    found = identity_blocks(without_mechanism())
    assert not found.success
    assert "these blocks are of heads, not of lags" in found.message


def test_what_the_gauge_hides_is_not_a_residual() -> None:
    model, tokens = trained_like(), chains().tokens
    before = predict(model, tokens)
    with torch.no_grad():
        # Block (0, 1) of the query's 4 and the key's 4 symbols: a constant and a preference of the query's token.
        model.blocks[1].attn.W_Q[0, :4, 4:8] += 3.0 + torch.arange(4.0, dtype=torch.float64)[:, None]
    (weights,) = identity_blocks(model).maps
    torch.testing.assert_close(predict(model, tokens), before)
    assert weights.visible_residual_share[0, 1] == pytest.approx(0.0, abs=1e-20)
    assert weights.residual_share[0, 1] > 0.01
    assert weights.identity[0, 1] == pytest.approx(2.5)
    assert weights.constant[0, 1] == pytest.approx(3.0 + 1.5)


def test_the_scores_show_the_weights() -> None:
    """Exactly so, noise and all, when the copy heads are pure: only the gauge differs."""
    model = trained_like(noise=0.3)
    with torch.no_grad():
        model.blocks[0].attn.W_Q.zero_()
        model.blocks[0].attn.rel_bias.copy_(trained_like().blocks[0].attn.rel_bias)
    found = identity_blocks(model, chains(batch=300).tokens)
    assert [each.route for each in found.maps] == ["weights", "scores"]
    scores = found["scores"]
    np.testing.assert_allclose(scores.blocks, doubly_centred(found["weights"].blocks), atol=1e-9)
    np.testing.assert_allclose(scores.identity, found["weights"].identity, atol=1e-9)
    assert scores.r2 == pytest.approx(1.0)
    assert found.agreement == pytest.approx(1.0)
    assert found.success
    np.testing.assert_allclose(
        identity_blocks(model, chains(batch=300).tokens, routes=["circuit"])["circuit"].blocks, scores.blocks, atol=1e-9
    )


def test_an_impure_copy_head_shows_in_the_scores_only() -> None:
    model = trained_like()
    with torch.no_grad():
        bias = model.blocks[0].attn.rel_bias
        bias.zero_()
        bias[0, 1], bias[1, 2], bias[1, 1] = 30.0, 8.0, 7.0  # the lag-2 head also reads lag 1
    found = identity_blocks(model, chains(batch=300).tokens, routes=["weights", "scores", "circuit"])
    share = float(torch.sigmoid(torch.tensor(1.0)))
    np.testing.assert_allclose(found["weights"].beta, (2.5, 1.2))
    # The query's block 2 and the key's block 2 are mixtures now; block 1 meets block 2 at (1 - share) of lag 1.
    assert found["scores"].identity[1, 2] == pytest.approx(1.2 * share, abs=0.02)
    assert found["scores"].identity[1, 1] == pytest.approx(1.2 * (1 - share), abs=0.02)
    assert found["circuit"].identity[1, 2] == pytest.approx(1.2 * share, abs=0.02)


def test_the_standard_errors_cover_the_spread_between_samples() -> None:
    model = trained_like(noise=0.3)
    with torch.no_grad():
        model.blocks[0].attn.rel_bias.mul_(4 / 1e4)  # soft copying: the scores hold more than pairs of tokens
    maps = [identity_blocks(model, chains(batch=150, seed=seed).tokens)["scores"] for seed in range(6)]
    spread = np.std([each.identity for each in maps], axis=0, ddof=1)
    claimed = np.mean([each.identity_stderr for each in maps], axis=0)
    assert 0.6 < np.sqrt(np.mean((spread / claimed) ** 2)) < 1.6
    assert maps[0].r2 < 0.999


def test_random_blocks_are_no_identities() -> None:
    """The negative control: p-values are spread evenly, and next to nothing lies in span{I, J}."""
    values, residuals = [], []
    for seed in range(6):
        (weights,) = identity_blocks(without_mechanism(vocab=5, seed=seed)).maps
        values.append(weights.p_value)
        residuals.append(weights.visible_residual_share)
    assert 0.35 < np.mean(values) < 0.65
    assert np.mean(np.array(values) < 0.1) < 0.25
    assert np.mean(residuals) > 0.85


def test_shuffled_labels_fail() -> None:
    model = construct(order=2, vocab=5, length=12, beta=(2.7, 1.2))
    with torch.no_grad():
        weights = model.blocks[1].attn.W_Q
        weights[0, :10] = weights[0, [1, 2, 3, 4, 0, 6, 7, 8, 9, 5]]
    (found,) = identity_blocks(model).maps
    assert found.p_value[0, 1] > 0.1
    assert found.visible_residual_share[0, 1] > 0.5


def test_sampled_relabelings_count_the_true_labels_in() -> None:
    (weights,) = identity_blocks(construct(order=1, vocab=8, length=12, beta=(2.0,)), draws=199).maps
    assert weights.p_value[0, 1] == pytest.approx(1 / 200)
    relabelings = np.array([[1, 0, 2], [2, 1, 0]])
    assert permutation_test(np.eye(3), relabelings) == pytest.approx(1 / 3)
    assert permutation_test(np.ones((3, 3)), relabelings) == 1.0


def test_a_standard_model_is_read_from_scores_and_circuit() -> None:
    found = identity_blocks(planted_standard())
    assert [each.route for each in found.maps] == ["scores", "circuit"]
    for each in found.maps:
        np.testing.assert_allclose(each.beta, (2.5, 1.2), rtol=1e-3)
        assert each.aligned_share > 0.999
        assert each.visible_residual_share[0, 1] < 1e-6
        assert each.p_value[0, 1] == pytest.approx(1 / 24)
    assert found["scores"].r2 == pytest.approx(1.0)
    assert found.agreement > 0.999
    assert found.n == 512


@pytest.mark.parametrize("bos", [False, True])
def test_someone_elses_model(bos: bool) -> None:
    found = identity_blocks(Circuit(planted_foreign(bos=bos), bos=bos, **FOREIGN), batch=200)
    np.testing.assert_allclose(found["scores"].identity, [[0, 2], [0, 0]], atol=1e-8)
    np.testing.assert_allclose(found["circuit"].identity, [[0, 2], [0, 0]], atol=1e-8)
    assert found["scores"].r2 == pytest.approx(1.0)


def test_the_wrong_head_shows_nothing() -> None:
    found = identity_blocks(Circuit(planted_foreign(), **{**FOREIGN, "match_heads": [(2, 1)]}), batch=50)
    assert not found.success
    assert "do not vary" in found.message


def test_a_random_standard_model_fails() -> None:
    found = identity_blocks(without_mechanism(family="standard", d_model=16, d_mlp=16, readout="logit"))
    scores = found["scores"]
    assert scores.worst_residual > 0.5
    assert np.mean(scores.p_value) > 0.2


@pytest.mark.parametrize(("vocab", "batch"), [(4, 3), (4, 16), (30, 500)])
def test_too_few_sequences_are_said(vocab: int, batch: int) -> None:
    tokens = torch.randint(vocab, (batch, 24), generator=torch.Generator().manual_seed(0))
    found = identity_blocks(trained_like(vocab=vocab), tokens)
    assert not found.success
    assert "scores: these sequences do not determine" in found.message
    assert np.isnan(found["scores"].identity).all()
    assert np.isnan(found["scores"].p_value).all()


def test_the_scores_are_fitted_by_least_squares() -> None:
    """Against a dense design with a column for every unknown, and errors by leaving no sequence out: its influence."""
    model, batch = trained_like(order=1, vocab=3, beta=(2.0,), noise=0.3), 60
    with torch.no_grad():
        model.blocks[0].attn.rel_bias.mul_(4 / 1e4)
    tokens = chains(order=1, vocab=3, batch=batch).tokens
    found = identity_blocks(model, tokens, routes=["scores"])["scores"]
    cap = capture(model, tokens, copies=False)
    scores = cap.match_scores[:, 0, 0, 1 + cap.bos :].double().numpy()
    one_hot, keys = np.eye(3)[tokens.numpy()], range(1, 24)
    columns = [
        np.kron(one_hot[n, 23 - a], one_hot[n, s - b])
        for n in range(batch)
        for s in keys
        for a in (0, 1)
        for b in (0, 1)
    ]
    pairs = np.reshape(columns, (batch * 23, 4 * 9))
    own = np.reshape([one_hot[n, s - b] for n in range(batch) for s in keys for b in (0, 1)], (batch * 23, 6))
    places = np.hstack([np.kron(np.eye(batch), np.ones((23, 1))), np.kron(np.ones((batch, 1)), np.eye(23))])
    solution = np.linalg.lstsq(np.hstack([pairs, own, places]), scores.ravel(), rcond=None)[0]
    np.testing.assert_allclose(found.blocks, doubly_centred(solution[:36].reshape(2, 2, 3, 3)), atol=1e-8)


def test_the_table_has_every_block_of_every_route() -> None:
    found = identity_blocks(trained_like(noise=0.1), chains().tokens)
    table = found.table()
    assert len(table) == 2 * 9
    assert set(table["route"]) == {"weights", "scores"}
    aligned = table[table["aligned"] & (table["route"] == "weights")]
    np.testing.assert_allclose(aligned["identity"], found.beta)
    shares = table[["identity_share", "constant_share", "residual_share"]].sum(axis=1)
    np.testing.assert_allclose(shares, 1.0)
    np.testing.assert_allclose(table.groupby("route")["weight_share"].sum(), 1.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: identity_blocks(planted_standard(), routes=["weights"]), "needs a construction or disentangled model"),
        (lambda: identity_blocks(trained_like(), routes=["wishes"]), "one or more of weights, scores, circuit"),
        (lambda: identity_blocks(trained_like(), routes=[]), "one or more of weights, scores, circuit"),
        (
            lambda: identity_blocks(Circuit(planted_foreign(vocab=300, length=8), order=1, match_heads=((2, 2),))),
            r"\|V\| is 300: give a Circuit with symbols=, at most 256",
        ),
        (lambda: identity_blocks(trained_like(), draws=0), "draws must be an integer >= 1"),
        (lambda: identity_blocks(trained_like(), [[0, 1, 2]]), "a query needs two candidates"),
        (lambda: identity_blocks(trained_like(), [[0, 1, 9, 2, 3]]), "token 9 is outside the vocabulary"),
        (lambda: identity_blocks(planted_foreign()), "does not say where its circuit sits"),
        (lambda: identity_blocks(Circuit(planted_foreign(), order=1)), "names no match head"),
        (
            lambda: identity_blocks(Circuit(planted_foreign(), order=1, match_heads=[(2, 1), (2, 2)])),
            "one match head at a time",
        ),
    ],
)
def test_bad_input(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
