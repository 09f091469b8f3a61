"""The stacked trainer of the standard family: the plain HookedTransformer's loss, gradients and steps, only faster."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from interp.chains.priors import HierarchicalDirichlet, IndependentDirichlet
from interp.hooked.transformer import InductionConfig, InductionTransformer
from models.families.standard import (
    StackedState,
    copy_layer,
    draw,
    from_hooked,
    init_standard,
    loss_and_gradient,
    parameter_shapes,
    predict,
    predict_hooked,
    stack,
    standard_config,
    to_hooked,
    train_chunk,
    unstack,
)
from models.families.standard import loss as stacked_loss
from models.training.adam import TargetKind

PRIOR = HierarchicalDirichlet(order=2, vocab=4, eta=(5.0, 5.0))


def config(*, order: int = 2, bos: bool = True, dtype: str = "float64", length: int = 19) -> InductionConfig:
    small = standard_config(order=order, vocab=4, length=length, bos=bos, d_model=24, d_mlp=40)
    return replace(small, dtype=dtype)


def anywhere(shape: InductionConfig, *, seeds: int = 2) -> torch.Tensor:
    """Parameters with nothing at its starting value, so that every gradient is put to the test."""
    generator = torch.Generator().manual_seed(7)
    rows = []
    for seed in range(seeds):
        params = init_standard(shape, seed)
        for name, value in params.items():
            noise = torch.randn(value.shape, generator=generator).to(value)
            if name == "embed.W_E":
                noise[shape.vocab :] = 0.0
            value += (3.0 if name.endswith("rel_bias") else 0.3) * noise
        rows.append(params)
    return stack(shape, rows)


def some_tokens(shape: InductionConfig, *, seeds: int = 2, batch: int = 9) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.randint(0, shape.vocab, (seeds, batch, shape.length), generator=generator)


def plain_logits(model: InductionTransformer, tokens: torch.Tensor) -> torch.Tensor:
    """The HookedTransformer run at all positions."""
    if model.config.bos:
        tokens = functional.pad(tokens, (1, 0), value=model.config.vocab)
    return model(tokens)[:, -1]


def worst_difference(shape: InductionConfig, flat: torch.Tensor, tokens: torch.Tensor, target: torch.Tensor) -> float:
    """Between the stacked loss and gradients and autograd through the HookedTransformer of the same weights."""
    loss, gradient = loss_and_gradient(shape, flat, tokens, target)
    named = unstack(shape, gradient)
    worst = 0.0
    for index in range(flat.shape[0]):
        model = to_hooked(shape, flat, index)
        expected = functional.cross_entropy(plain_logits(model, tokens[index]), target[index])
        expected.backward()
        worst = max(worst, abs(expected.item() - loss[index].item()))
        for name, value in named.items():
            worst = max(worst, float((value[index] - model.get_parameter(name).grad).abs().max()))
    return worst


@pytest.mark.parametrize("bos", [True, False])
@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float64", 1e-12)])
def test_loss_and_gradients_are_those_of_the_hooked_transformer(
    order: int, bos: bool, dtype: str, tolerance: float
) -> None:
    shape = config(order=order, bos=bos, dtype=dtype)
    tokens = some_tokens(shape)
    target = torch.randint(0, shape.vocab, tokens.shape[:2], generator=torch.Generator().manual_seed(1))
    assert worst_difference(shape, anywhere(shape), tokens, target) < tolerance


def test_a_law_is_a_target_too() -> None:
    shape = config()
    tokens = some_tokens(shape)
    noise = torch.randn(*tokens.shape[:2], shape.vocab, generator=torch.Generator().manual_seed(1))
    target = torch.softmax(noise.double(), dim=-1)
    assert worst_difference(shape, anywhere(shape), tokens, target) < 1e-12


def test_the_default_sizes_agree_in_float32() -> None:
    shape = standard_config(order=2, vocab=5, length=64, bos=True)
    tokens = some_tokens(shape, seeds=1, batch=16)
    target = tokens[:, :, 0]
    assert worst_difference(shape, anywhere(shape, seeds=1), tokens, target) < 1e-5


@pytest.mark.parametrize("sharpness", [30.0, 500.0])
def test_sharp_heads_neither_underflow_nor_lose_precision(sharpness: float) -> None:
    # Until the peak's lag lies inside the sequence, all weights of a row are tiny beside the peak's.
    shape = config(dtype="float32")
    flat = anywhere(shape)
    bias = unstack(shape, flat)["blocks.0.attn.rel_bias"]
    bias[:, 0, 6] += sharpness
    bias[:, 1, 0] -= sharpness
    tokens = some_tokens(shape)
    assert worst_difference(shape, flat, tokens, tokens[:, :, 0]) < 1e-5


def test_groups_of_sequences_and_blocks_of_queries_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    shape, results = config(), []
    flat, tokens = anywhere(shape), some_tokens(shape)
    for rows, queries in ((10**6, 10**6), (70, 6)):
        monkeypatch.setattr(stacked_loss, "GROUP_ROWS", rows)
        monkeypatch.setattr(copy_layer, "COUNT_QUERIES", queries)
        results.append((*loss_and_gradient(shape, flat, tokens, tokens[:, :, 0]), predict(shape, flat, tokens[0])))
    for whole, parts in zip(*results, strict=True):
        torch.testing.assert_close(whole, parts, rtol=1e-12, atol=1e-13)


def test_predictions_are_those_of_the_hooked_transformer() -> None:
    shape = config()
    flat, tokens = anywhere(shape), some_tokens(shape)[0]
    laws = predict(shape, flat, tokens)
    assert laws.shape == (2, *tokens.shape[:1], shape.vocab)
    for index in range(2):
        model = to_hooked(shape, flat, index)
        torch.testing.assert_close(laws[index], torch.softmax(plain_logits(model, tokens), dim=-1))
        torch.testing.assert_close(predict_hooked(model, tokens), laws[index])


@pytest.mark.parametrize("bos", [True, False])
def test_conversion_loses_nothing(bos: bool) -> None:
    shape = config(bos=bos, dtype="float32")
    flat = anywhere(shape, seeds=3)
    models = [to_hooked(shape, flat, index) for index in range(3)]
    assert torch.equal(from_hooked(models), flat)
    assert set(parameter_shapes(shape)) == set(models[0].free_parameters())


def test_models_of_different_shapes_do_not_stack() -> None:
    models = [InductionTransformer(config(length=length)) for length in (9, 10)]
    with pytest.raises(ValueError, match="share one config"):
        from_hooked(models)
    with pytest.raises(ValueError, match="at least one"):
        from_hooked([])


def test_steps_are_adam_steps_of_the_hooked_transformer() -> None:
    shape = config()
    state = StackedState(params=anywhere(shape), generators=[np.random.default_rng(seed) for seed in (5, 6)])
    models = [to_hooked(shape, state.params, index) for index in range(2)]
    expected = np.empty((4, 2))
    for index, seed in enumerate((5, 6)):
        model, generator = models[index], np.random.default_rng(seed)
        adam = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-2)
        for step in range(4):
            tokens, target = draw(shape, PRIOR, [generator], batch=8, target="token")
            adam.zero_grad()
            loss = functional.cross_entropy(plain_logits(model, tokens[0]), target[0])
            loss.backward()
            adam.step()
            expected[step, index] = loss.item()
    losses = train_chunk(shape, state, PRIOR, np.full(4, 1e-2), batch=8)
    np.testing.assert_allclose(losses, expected, rtol=1e-9)
    torch.testing.assert_close(state.params, from_hooked(models), rtol=0, atol=1e-7)
    assert state.step == 4


@pytest.mark.parametrize("target", ["token", "law"])
def test_a_resumed_run_ends_in_the_same_bits(target: TargetKind) -> None:
    shape, lrs = config(dtype="float32"), np.linspace(3e-3, 0, 20)
    whole = StackedState.start(shape, seeds=(0, 1))
    losses = train_chunk(shape, whole, PRIOR, lrs, target=target, batch=8)
    half = StackedState.start(shape, seeds=(0, 1))
    first = train_chunk(shape, half, PRIOR, lrs[:10], target=target, batch=8)
    half = StackedState.restore(half.dump())
    second = train_chunk(shape, half, PRIOR, lrs[10:], target=target, batch=8)
    np.testing.assert_array_equal(losses, np.concatenate([first, second]))
    for name, value in whole.dump().items():
        np.testing.assert_equal(half.dump()[name], value)


def test_a_dump_is_a_copy() -> None:
    shape = config(dtype="float32")
    state = StackedState.start(shape, seeds=(0,))
    before = state.dump()
    train_chunk(shape, state, PRIOR, np.full(2, 1e-2), batch=4)
    assert not np.array_equal(before["params"], state.dump()["params"])
    assert not np.any(before["first_moment"])
    assert before["generators"] != state.dump()["generators"]


def test_seeds_do_not_touch_each_other() -> None:
    shape, lrs = config(), np.full(5, 1e-2)
    together = StackedState.start(shape, seeds=(0, 1))
    losses = train_chunk(shape, together, PRIOR, lrs, batch=8)
    for index, seed in enumerate((0, 1)):
        alone = StackedState.start(shape, seeds=(seed,))
        np.testing.assert_allclose(train_chunk(shape, alone, PRIOR, lrs, batch=8)[:, 0], losses[:, index], rtol=1e-9)
        torch.testing.assert_close(alone.params[0], together.params[index], rtol=0, atol=1e-7)
    assert not torch.equal(together.params[0], together.params[1])


def test_bos_and_key_biases_stay_as_they_are() -> None:
    shape = config(dtype="float32")
    state = StackedState.start(shape, seeds=(0,))
    train_chunk(shape, state, PRIOR, np.full(5, 1e-2), batch=8)
    params = unstack(shape, state.params)
    assert torch.equal(params["embed.W_E"][:, -1], torch.full((1, 24), 1 / 4))
    for block in ("blocks.0", "blocks.1"):
        assert not params[f"{block}.attn.b_K"].any()
    moved = [name for name, value in params.items() if not torch.equal(value[0], init_standard(shape, 0)[name])]
    assert set(moved) == set(params) - {"blocks.0.attn.b_K", "blocks.1.attn.b_K"}


@pytest.mark.parametrize("kind", ["constant", "block", "mean"])
def test_the_vector_of_bos_is_fixed_and_seen_unless_it_is_constant(kind: str) -> None:
    shape = config(dtype="float64")
    state = StackedState.start(shape, seeds=(0,), bos_vector=kind)
    before = unstack(shape, state.params.clone())["embed.W_E"]
    expected = {
        "constant": torch.full((24,), 1 / 4),
        "block": torch.cat([torch.full((4,), 1 / 4), torch.zeros(20)]),
        "mean": before[0, :4].mean(0),
    }[kind]
    assert torch.allclose(before[0, -1], expected.double(), atol=1e-6)
    # Layer norm takes the constant vector to zero and no other.
    normed = functional.layer_norm(before[:, -1], (24,), eps=1e-5)
    assert (normed.abs().max() < 1e-9) == (kind == "constant")
    tokens = some_tokens(shape, seeds=1)
    target = torch.randint(0, 4, (1, 9), generator=torch.Generator().manual_seed(5))
    assert worst_difference(shape, state.params, tokens, target) < 1e-12 * (1 if kind != "constant" else 1e4)
    train_chunk(shape, state, PRIOR, np.full(5, 1e-2), batch=8)
    after = unstack(shape, state.params)["embed.W_E"]
    assert torch.equal(after[:, -1], before[:, -1])
    assert not torch.equal(after[:, 0], before[:, 0])
    # The tokens start alike whichever vector stands for BOS.
    assert torch.equal(before[0, :4], init_standard(shape, 0)["embed.W_E"][:4])


def test_an_unknown_vector_of_bos_is_refused() -> None:
    with pytest.raises(ValueError, match="constant, block or mean, got 'zero'"):
        init_standard(config(), 0, bos_vector="zero")
    with pytest.raises(ValueError, match="LayerNorm would see nothing"):
        init_standard(standard_config(order=2, vocab=4, length=9, bos=True, d_model=4, d_mlp=8), 0, bos_vector="block")


def test_training_learns() -> None:
    shape = config(dtype="float32", length=16)
    held_out = PRIOR.sample(batch=512, length=16, seed=99)

    def divergence(law: torch.Tensor) -> float:
        return float(functional.kl_div(law.log(), held_out.next_law, reduction="batchmean"))

    state = StackedState.start(shape, seeds=(0,))
    train_chunk(shape, state, PRIOR, np.linspace(3e-3, 0, 300), target="law")
    learnt = predict(shape, state.params, held_out.tokens)[0]
    assert divergence(learnt) < 0.75 * divergence(torch.full_like(learnt, 1 / 4))


@pytest.mark.parametrize("prior", [PRIOR, IndependentDirichlet(order=2, vocab=4, alpha=0.5)])
def test_both_targets_follow_the_same_sequences(prior: HierarchicalDirichlet | IndependentDirichlet) -> None:
    shape = config()
    drawn = [draw(shape, prior, [np.random.default_rng(1)], batch=4000, target=kind) for kind in ("token", "law")]
    (tokens, chosen), (same, law) = drawn
    assert torch.equal(tokens, same)
    assert torch.equal(chosen.sum(-1), torch.ones(1, 4000))
    assert set(chosen.unique().tolist()) == {0.0, 1.0}
    torch.testing.assert_close(law.sum(-1), torch.ones(1, 4000, dtype=torch.float64))
    # Tokens are drawn from the laws: their differences average to zero within four standard errors.
    weights = law[0]  # a test function that tells a right law from a wrong one
    gap = ((chosen[0] - law[0]) * weights).sum(-1)
    assert abs(gap.mean()) < 4 * gap.std() / 4000**0.5
    assert ((chosen[0] - 0.25) * weights).sum(-1).mean() > 10 * gap.std() / 4000**0.5


def test_divergence_stops_the_run_and_keeps_the_last_good_parameters() -> None:
    shape = config(dtype="float32")
    state = StackedState.start(shape, seeds=(0, 1))
    unstack(shape, state.params)["unembed.b_U"][1] = torch.inf
    before = state.dump()
    losses = train_chunk(shape, state, PRIOR, np.full(5, 1e-3), batch=4)
    assert np.isfinite(losses[0, 0])
    assert not np.isfinite(losses[0, 1])
    assert np.isnan(losses[1:]).all()
    assert state.step == 0
    np.testing.assert_array_equal(state.dump()["params"], before["params"])


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


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch.compile's own
def test_torch_compile_takes_the_same_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    # All of it but the C++ compiler, which takes a minute.
    shape = config()
    flat, tokens = anywhere(shape), some_tokens(shape)
    plain = loss_and_gradient(shape, flat, tokens, tokens[:, :, 0])
    traced = torch.compile(stacked_loss._group_loss, backend="aot_eager")
    monkeypatch.setattr(stacked_loss, "_compiled_group_loss", lambda: traced)
    for a, b in zip(plain, loss_and_gradient(shape, flat, tokens, tokens[:, :, 0], compiled=True), strict=True):
        torch.testing.assert_close(a, b)


def test_one_thread_within_and_the_callers_number_after() -> None:
    shape = config(dtype="float32")
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        predict(shape, anywhere(shape), some_tokens(shape)[0])
        assert torch.get_num_threads() == 2
        with stacked_loss.one_thread():
            assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(threads)


def test_refusals() -> None:
    shape = config()
    flat, tokens = anywhere(shape), some_tokens(shape)
    disentangled = InductionConfig(family="disentangled", order=2, vocab=4, length=9, bos=True, readout="probability")
    with pytest.raises(ValueError, match="takes the standard family"):
        parameter_shapes(disentangled)
    with pytest.raises(ValueError, match="std must be positive"):
        init_standard(shape, 0, std=-1.0)
    with pytest.raises(ValueError, match="at least one seed"):
        StackedState.start(shape, seeds=())
    with pytest.raises(ValueError, match="one generator a seed"):
        StackedState(params=flat, generators=[])
    with pytest.raises(ValueError, match="like params"):
        StackedState(params=flat, generators=[np.random.default_rng(0)] * 2, first_moment=flat[:1])
    with pytest.raises(ValueError, match="parameters must be"):
        unstack(shape, flat[:, :-1])
    with pytest.raises(ValueError, match="parameters must be float64"):
        loss_and_gradient(shape, flat.float(), tokens, tokens[:, :, 0])
    with pytest.raises(ValueError, match="tokens must be"):
        loss_and_gradient(shape, flat, tokens[:, :, :-1], tokens[:, :, 0])
    with pytest.raises(ValueError, match=r"over 0\.\.3"):
        loss_and_gradient(shape, flat, tokens + 1, tokens[:, :, 0])
    with pytest.raises(ValueError, match="target must be integers"):
        loss_and_gradient(shape, flat, tokens, tokens[:, :-1, 0])
    state = StackedState.start(shape, seeds=(0,))
    with pytest.raises(ValueError, match="the prior has order 1"):
        train_chunk(shape, state, IndependentDirichlet(order=1, vocab=4), np.ones(1))
    with pytest.raises(ValueError, match="target must be 'token' or 'law'"):
        train_chunk(shape, state, PRIOR, np.ones(1), target="truth")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="batch must be at least 1"):
        train_chunk(shape, state, PRIOR, np.ones(1), batch=0)
