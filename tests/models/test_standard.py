"""The trainer of the standard family: the plain HookedTransformer's loss, gradients and steps, only faster."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from interp.hooked.transformer import InductionConfig, InductionTransformer
from models.families.standard import copy_layer
from models.families.standard import loss as losses_of
from models.families.standard.loss import loss_and_gradient, predict, predict_hooked
from models.families.standard.parameters import (
    flattened,
    from_hooked,
    init_standard,
    parameter_shapes,
    standard_config,
    to_hooked,
    views,
)
from models.families.standard.trainer import StandardTrainer
from models.training.spec import make_spec


def config(*, order: int = 2, bos: bool = True, dtype: str = "float64", length: int = 19) -> InductionConfig:
    small = standard_config(order=order, vocab=4, length=length, bos=bos, d_model=24, d_mlp=40)
    return replace(small, dtype=dtype)


def anywhere(shape: InductionConfig) -> torch.Tensor:
    """Parameters with nothing at its starting value, so that every gradient is put to the test."""
    generator = torch.Generator().manual_seed(7)
    params = init_standard(shape, 0)
    for name, value in params.items():
        noise = torch.randn(value.shape, generator=generator).to(value)
        if name == "embed.W_E":
            noise[shape.vocab :] = 0.0
        value += (3.0 if name.endswith("rel_bias") else 0.3) * noise
    return flattened(shape, params)


def trainer_of(prior: str = "hierarchical:5,5", *, dtype: str = "float64", **settings: object) -> StandardTrainer:
    given = {"vocab": 4, "length": 19, "batch": 8, "target": "token", **settings}
    spec = make_spec(family="standard", prior=prior, bos=True, **given)
    return StandardTrainer(spec, d_model=24, d_mlp=40, dtype=dtype)


def some_tokens(shape: InductionConfig, *, batch: int = 9) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.randint(0, shape.vocab, (batch, shape.length), generator=generator)


def one_hot(tokens: torch.Tensor, shape: InductionConfig) -> torch.Tensor:
    return functional.one_hot(tokens, shape.vocab).to(shape.torch_dtype)


def plain_logits(model: InductionTransformer, tokens: torch.Tensor) -> torch.Tensor:
    """The HookedTransformer run at all positions."""
    if model.config.bos:
        tokens = functional.pad(tokens, (1, 0), value=model.config.vocab)
    return model(tokens)[:, -1]


def worst_difference(shape: InductionConfig, flat: torch.Tensor, tokens: torch.Tensor, target: torch.Tensor) -> float:
    """Between our loss and gradients and autograd through the HookedTransformer of the same weights."""
    loss, gradient = loss_and_gradient(shape, flat, tokens, target)
    model = to_hooked(shape, flat)
    expected = functional.cross_entropy(plain_logits(model, tokens), target)
    expected.backward()
    gaps = [(value - model.get_parameter(name).grad).abs().max() for name, value in views(shape, gradient).items()]
    return float(max(abs(expected.item() - loss.item()), *gaps))


@pytest.mark.parametrize("bos", [True, False])
@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float64", 1e-12)])
def test_gradients_are_those_of_the_hooked_transformer(order: int, bos: bool, dtype: str, tolerance: float) -> None:
    shape = config(order=order, bos=bos, dtype=dtype)
    tokens = some_tokens(shape)
    target = torch.randint(0, shape.vocab, (len(tokens),), generator=torch.Generator().manual_seed(1))
    assert worst_difference(shape, anywhere(shape), tokens, one_hot(target, shape)) < tolerance


def test_a_law_is_a_target_too() -> None:
    shape = config()
    tokens = some_tokens(shape)
    noise = torch.randn(len(tokens), shape.vocab, generator=torch.Generator().manual_seed(1))
    assert worst_difference(shape, anywhere(shape), tokens, torch.softmax(noise.double(), dim=-1)) < 1e-12


def test_the_default_sizes_agree_in_float32() -> None:
    shape = standard_config(order=2, vocab=5, length=64, bos=True)
    tokens = some_tokens(shape, batch=16)
    assert worst_difference(shape, anywhere(shape), tokens, one_hot(tokens[:, 0], shape)) < 1e-5


@pytest.mark.parametrize("sharpness", [30.0, 500.0])
def test_sharp_heads_neither_underflow_nor_lose_precision(sharpness: float) -> None:
    # Until the peak's lag lies inside the sequence, all weights of a row are tiny beside the peak's.
    shape = config(dtype="float32")
    flat = anywhere(shape)
    bias = views(shape, flat)["blocks.0.attn.rel_bias"]
    bias[0, 6] += sharpness
    bias[1, 0] -= sharpness
    tokens = some_tokens(shape)
    assert worst_difference(shape, flat, tokens, one_hot(tokens[:, 0], shape)) < 1e-5


def test_groups_of_sequences_and_blocks_of_queries_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    shape, results = config(), []
    flat, tokens = anywhere(shape), some_tokens(shape)
    for rows, queries in ((10**6, 10**6), (70, 6)):
        monkeypatch.setattr(losses_of, "GROUP_ROWS", rows)
        monkeypatch.setattr(copy_layer, "COUNT_QUERIES", queries)
        found = loss_and_gradient(shape, flat, tokens, one_hot(tokens[:, 0], shape))
        results.append((*found, predict(shape, flat, tokens)))
    for whole, parts in zip(*results, strict=True):
        torch.testing.assert_close(whole, parts, rtol=1e-12, atol=1e-13)


def test_predictions_are_those_of_the_hooked_transformer() -> None:
    shape = config()
    model, tokens = to_hooked(shape, anywhere(shape)), some_tokens(shape)
    torch.testing.assert_close(predict_hooked(model, tokens), torch.softmax(plain_logits(model, tokens), dim=-1))


@pytest.mark.parametrize("bos", [True, False])
def test_conversion_loses_nothing(bos: bool) -> None:
    shape = config(bos=bos, dtype="float32")
    flat = anywhere(shape)
    model = to_hooked(shape, flat)
    assert torch.equal(from_hooked(model), flat)
    assert set(parameter_shapes(shape)) == set(model.free_parameters())


def test_steps_are_adam_steps_of_the_hooked_transformer() -> None:
    ours, twin = trainer_of(), trainer_of()
    model = ours.hooked()
    adam, expected = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-2), []
    for _ in range(4):
        tokens, target = map(torch.from_numpy, twin.draw())
        adam.zero_grad()
        loss = functional.cross_entropy(plain_logits(model, tokens), target)
        loss.backward()
        adam.step()
        expected.append(loss.item())
    np.testing.assert_allclose(ours.advance(np.full(4, 1e-2)), expected, rtol=1e-9)
    np.testing.assert_allclose(ours.params, from_hooked(model).numpy(), rtol=0, atol=1e-7)
    assert ours.step == 4


def test_bos_and_key_biases_stay_as_they_are() -> None:
    shape, trainer = config(dtype="float32"), trainer_of(dtype="float32")
    trainer.advance(np.full(5, 1e-2))
    params = views(shape, trainer.flat)
    assert torch.equal(params["embed.W_E"][-1], torch.full((24,), 1 / 4))
    moved = {name for name, value in params.items() if not torch.equal(value, init_standard(shape, 0)[name])}
    assert moved == set(params) - {"blocks.0.attn.b_K", "blocks.1.attn.b_K"}


@pytest.mark.parametrize("kind", ["constant", "block", "mean"])
def test_the_vector_of_bos_is_fixed_and_seen_unless_it_is_constant(kind: str) -> None:
    shape, trainer = config(), trainer_of(bos_vector=kind)
    before = views(shape, trainer.flat.clone())["embed.W_E"]
    expected = {
        "constant": torch.full((24,), 1 / 4),
        "block": torch.cat([torch.full((4,), 1 / 4), torch.zeros(20)]),
        "mean": before[:4].mean(0),
    }[kind]
    assert torch.allclose(before[-1], expected.double(), atol=1e-6)
    # Layer norm takes the constant vector to zero and no other.
    normed = functional.layer_norm(before[-1], (24,), eps=1e-5)
    assert (normed.abs().max() < 1e-9) == (kind == "constant")
    tokens = some_tokens(shape)
    assert worst_difference(shape, trainer.flat, tokens, one_hot(tokens[:, 0], shape)) < (
        1e-8 if kind == "constant" else 1e-12
    )
    trainer.advance(np.full(5, 1e-2))
    after = views(shape, trainer.flat)["embed.W_E"]
    assert torch.equal(after[-1], before[-1])
    assert not torch.equal(after[0], before[0])
    # The tokens start alike whichever vector stands for BOS.
    assert torch.equal(before[:4], init_standard(shape, 0)["embed.W_E"][:4])


def test_a_block_of_bos_needs_a_wider_stream() -> None:
    with pytest.raises(ValueError, match="LayerNorm would see nothing"):
        init_standard(standard_config(order=2, vocab=4, length=9, bos=True, d_model=4, d_mlp=8), 0, bos_vector="block")


@pytest.mark.parametrize("prior", ["hierarchical:5,5", "independent:0.5"])
def test_both_targets_follow_the_same_sequences(prior: str) -> None:
    drawn = [map(torch.from_numpy, trainer_of(prior, batch=4000, target=kind).draw()) for kind in ("token", "law")]
    (tokens, chosen), (same, law) = drawn
    assert torch.equal(tokens, same)
    assert torch.equal(chosen.sum(-1), torch.ones(4000))
    assert set(chosen.unique().tolist()) == {0.0, 1.0}
    torch.testing.assert_close(law.sum(-1), torch.ones(4000, dtype=torch.float64))
    # Tokens are drawn from the laws: their differences average to zero within four standard errors.
    gap = ((chosen - law) * law).sum(-1)  # the second factor tells a right law from a wrong one
    assert abs(gap.mean()) < 4 * gap.std() / 4000**0.5
    assert ((chosen - 0.25) * law).sum(-1).mean() > 10 * gap.std() / 4000**0.5


def test_initialisations() -> None:
    shape = config(dtype="float32")
    first, again, other = (init_standard(shape, seed) for seed in (0, 0, 1))
    for name, value in first.items():
        assert torch.equal(value, again[name])
    assert not torch.equal(first["embed.W_E"], other["embed.W_E"])
    assert first["blocks.0.mlp.W_in"].std() == pytest.approx(24**-0.5, rel=0.1)
    assert init_standard(shape, 0, std=0.02)["blocks.0.mlp.W_in"].std() == pytest.approx(0.02, rel=0.1)
    bias = init_standard(shape, 0, copy=2.5)["blocks.0.attn.rel_bias"]
    assert bias.nonzero().tolist() == [[0, 1], [1, 2]]
    assert bias.unique().tolist() == [0.0, 2.5]
    assert not first["blocks.0.attn.rel_bias"].any()


def test_one_thread_within_and_the_callers_number_after(monkeypatch: pytest.MonkeyPatch) -> None:
    within, trainer = [], trainer_of()
    monkeypatch.setattr(trainer, "descend", lambda *_: within.append(torch.get_num_threads()))
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        trainer.advance(np.full(1, 1e-3))
        assert (within, torch.get_num_threads()) == ([1], 2)
    finally:
        torch.set_num_threads(threads)
