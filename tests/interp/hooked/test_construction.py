"""prop:transformer_estimator: the constructed model is the estimator."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from interp.circuit.runner import predict
from interp.estimators.soft_matching import soft_matching
from interp.hooked.construction import construct, write_construction
from interp.hooked.transformer import InductionConfig, InductionTransformer
from tests import reference
from tests.cases import CASES, Case, every_case


def built(case: Case, **more: str) -> InductionTransformer:
    return construct(order=case.order, vocab=case.vocab, length=case.length, beta=case.beta, kappa=case.kappa, **more)


@every_case
def test_the_construction_is_the_estimator(case: Case) -> None:
    tokens = case.tokens()
    law = predict(built(case), tokens)
    expected = soft_matching(tokens, vocab=case.vocab, beta=case.beta, kappa=case.kappa)
    assert law.shape == (3, case.vocab)
    assert float((law - expected).abs().max()) < 1e-9
    row = tokens[0].tolist()
    loop = reference.soft_matching(row, vocab=case.vocab, beta=case.beta, kappa=case.kappa)
    assert np.abs(law[0].numpy() - loop).max() < 1e-9


@pytest.mark.parametrize("case", CASES[1::6], ids=str)
def test_single_precision_reaches_the_estimator_too(case: Case) -> None:
    tokens = case.tokens()
    expected = soft_matching(tokens, vocab=case.vocab, beta=case.beta, kappa=case.kappa)
    law = predict(built(case, dtype="float32"), tokens)
    # Scores of size |beta|_1 + |kappa| are rounded to seven digits of themselves before they are exponentiated.
    scale = 1 + sum(map(abs, case.beta)) + abs(case.kappa or 0.0)
    assert float((law - expected).abs().max()) < 1e-6 * scale


@pytest.mark.parametrize("kappa", [None, 1e4, -1e4])
def test_very_large_betas_are_stable(kappa: float | None) -> None:
    tokens = np.random.default_rng(0).integers(3, size=(8, 20))
    for beta in ((1e4, 1e4), (1e4, -1e4), (-1e4, -1e4)):
        law = predict(construct(order=2, vocab=3, length=20, beta=beta, kappa=kappa), tokens)
        assert float((law - soft_matching(tokens, vocab=3, beta=beta, kappa=kappa)).abs().max()) < 1e-5


@every_case
def test_scores_at_the_last_query_are_the_papers(case: Case) -> None:
    """kappa at BOS, |beta|_M at the candidates, shut out in between."""
    model = built(case)
    tokens = torch.from_numpy(case.tokens(batch=1))
    bos = case.kappa is not None
    inputs = torch.cat([torch.full((1, 1), case.vocab), tokens], dim=1) if bos else tokens
    _, cache = model.run_with_cache(inputs)
    scores = cache["blocks.1.attn.hook_attn_scores"][0, 0, -1].tolist()
    pattern = cache["blocks.1.attn.hook_pattern"][0, 0, -1].tolist()
    size = 1 + sum(map(abs, case.beta)) + abs(case.kappa or 0.0)
    if bos:
        assert scores[0] == pytest.approx(case.kappa, abs=1e-12 * size)
    row = tokens[0].tolist()
    for s in range(1, case.length + 1):
        key = s - 1 + bos
        if s <= case.order:
            assert pattern[key] == 0.0
        else:
            mask = reference.match_mask(row, t=case.length, s=s, k=case.order)
            assert scores[key] == pytest.approx(sum(case.beta[r - 1] for r in mask), abs=1e-12 * size)


@pytest.mark.parametrize("case", CASES[::5], ids=str)
def test_copy_heads_copy_their_lag(case: Case) -> None:
    model = built(case)
    tokens = torch.from_numpy(case.tokens(batch=2))
    inputs = torch.cat([torch.full((2, 1), case.vocab), tokens], dim=1) if model.config.bos else tokens
    _, cache = model.run_with_cache(inputs)
    pattern = cache["blocks.0.attn.hook_pattern"]
    for lag in range(1, case.order + 1):
        assert torch.diagonal(pattern[:, lag - 1], offset=-lag, dim1=-2, dim2=-1).eq(1.0).all()


def test_the_match_matrix_is_the_shift_of_betas() -> None:
    """S_{r,r+1} = beta_r, 1-based: block (r-1, r) of W_A, 0-based."""
    model = construct(order=3, vocab=2, length=8, beta=(1.0, 2.0, 3.0))
    matrix = model.blocks[1].attn.W_Q[0, :8].reshape(4, 2, 4, 2)
    expected = torch.zeros(4, 2, 4, 2, dtype=torch.float64)
    for lag in (1, 2, 3):
        expected[lag - 1, :, lag, :] = lag * torch.eye(2, dtype=torch.float64)
    assert torch.equal(matrix, expected)
    assert not model.blocks[0].attn.W_Q.any()


def test_a_disentangled_model_can_hold_the_construction() -> None:
    """With the probability readout the trained family contains its target."""
    config = InductionConfig(
        family="disentangled", order=2, vocab=4, length=15, bos=True, readout="probability", dtype="float64"
    )
    model = InductionTransformer(config)
    write_construction(model, beta=np.array([2.7, 1.2]), kappa=3.3)
    tokens = np.random.default_rng(1).integers(4, size=(6, 15))
    target = soft_matching(tokens, vocab=4, beta=(2.7, 1.2), kappa=3.3)
    assert float((predict(model, tokens) - target).abs().max()) < 1e-6  # the floor is 1e-7
    assert all(model.get_parameter(name).requires_grad for name in model.free_parameters())
    # A softmax of the same votes is a different predictor: why the readout is a choice.
    other = InductionTransformer(replace(config, readout="logit"))
    write_construction(other, beta=np.array([2.7, 1.2]), kappa=3.3)
    assert float((predict(other, tokens) - target).abs().max()) > 0.05


def test_kappa_and_bos_go_together() -> None:
    with_bos = construct(order=1, vocab=3, length=6, beta=(1.0,), kappa=0.0)
    without = construct(order=1, vocab=3, length=6, beta=(1.0,))
    with pytest.raises(ValueError, match="kappa given to a model without BOS"):
        write_construction(without, beta=np.array([1.0]), kappa=2.0)
    with pytest.raises(ValueError, match="this model has a BOS token: give kappa"):
        write_construction(with_bos, beta=np.array([1.0]), kappa=None)


def test_a_standard_model_has_no_analytic_weights() -> None:
    config = InductionConfig(
        family="standard", order=1, vocab=3, length=6, bos=False, readout="logit", d_model=8, d_mlp=8
    )
    with pytest.raises(ValueError, match="a standard transformer has no analytic weights"):
        write_construction(InductionTransformer(config), beta=np.array([1.0]), kappa=None)


@pytest.mark.parametrize("kappa", [None, 1.0])
def test_a_construction_is_tied_to_its_length(kappa: float | None) -> None:
    model = construct(order=2, vocab=3, length=9, beta=(1.0, 2.0), kappa=kappa)
    for length in (8, 10):
        with pytest.raises(ValueError, match=rf"(length 9, got sequences of {length}|context holds 9)"):
            predict(model, np.zeros((2, length), dtype=np.int64))
