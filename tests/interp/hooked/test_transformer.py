"""The HookedTransformer subclass: its hooks, its relative bias, its readout, and what training may and may not move."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import interp as ip
from interp.hooked.transformer import InductionConfig, InductionTransformer, RelativeBiasAttention
from tests import reference

DISENTANGLED = InductionConfig(
    family="disentangled", order=2, vocab=3, length=9, bos=True, readout="probability", dtype="float64"
)
STANDARD = InductionConfig(
    family="standard",
    order=2,
    vocab=3,
    length=9,
    bos=True,
    readout="logit",
    d_model=12,
    d_mlp=16,
    dtype="float64",
)
SHAPES = [
    replace(DISENTANGLED, order=order, vocab=vocab, length=order + 5, bos=bos, readout=readout)
    for order, vocab, bos, readout in [
        (1, 2, False, "probability"),
        (1, 4, True, "logit"),
        (2, 3, True, "probability"),
        (2, 5, False, "logit"),
        (3, 3, False, "probability"),
        (3, 2, True, "probability"),
    ]
]


def name_of(config: InductionConfig) -> str:
    bos = "bos" if config.bos else "nobos"
    return f"{config.family}-k{config.order}-V{config.vocab}-{bos}-{config.readout}"


def live_blocks(model: InductionTransformer) -> dict[str, tuple[slice, ...]]:
    """Where the paper's free matrices sit inside the model's parameters; everything else there must stay zero."""
    vocab, half = model.config.vocab, model.config.blocks * model.config.vocab
    return {
        "blocks.0.attn.W_Q": (slice(None), slice(0, vocab), slice(None)),
        "blocks.0.attn.rel_bias": (slice(None),),
        "blocks.1.attn.W_Q": (slice(None), slice(0, half), slice(None)),
        "blocks.1.attn.rel_bias": (slice(None),),
        "unembed.W_U": (slice(None),),
    }


def randomised(config: InductionConfig, *, seed: int = 0, scale: float = 0.7) -> InductionTransformer:
    """A model with its free parameters drawn at random, the disentangled family inside its live blocks only."""
    model = InductionTransformer(config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name in model.free_parameters():
            parameter = model.get_parameter(name)
            live = live_blocks(model)[name] if config.family == "disentangled" else (slice(None),)
            if config.family == "standard" and name == "embed.W_E":
                live = (slice(0, config.vocab),)
            values = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype) * scale
            parameter[live] = values[live]
    return model


def inputs(config: InductionConfig, *, batch: int = 3, seed: int = 0) -> torch.Tensor:
    """Token ids as the model itself takes them, BOS included."""
    tokens = torch.from_numpy(np.random.default_rng(seed).integers(config.vocab, size=(batch, config.length)))
    if not config.bos:
        return tokens
    return torch.cat([torch.full((batch, 1), config.vocab), tokens], dim=1)


def dense(model: InductionTransformer, row: list[int]) -> dict[str, np.ndarray]:
    """The paper's forward on this model's matrices."""
    config = model.config
    vocab, half = config.vocab, config.blocks * config.vocab
    copy, match = model.blocks[0].attn, model.blocks[1].attn
    return reference.disentangled_forward(
        row,
        vocab=vocab,
        bos=config.bos,
        copy_weights=copy.W_Q.detach().numpy()[:, :vocab],
        copy_biases=copy.rel_bias.detach().numpy(),
        match_weight=match.W_Q.detach().numpy()[0, :half],
        match_bias=match.rel_bias.detach().numpy()[0],
        readout=model.unembed.W_U.detach().numpy().T,
    )


# ---- the disentangled transformer is exactly the paper's


@pytest.mark.parametrize("config", SHAPES, ids=name_of)
def test_the_hooked_model_is_the_papers_forward(config: InductionConfig) -> None:
    model = randomised(config)
    tokens = inputs(config)
    logits, cache = model.run_with_cache(tokens)
    probabilities = torch.softmax(logits, dim=-1).detach().numpy()
    for b, row in enumerate(tokens.tolist()):
        expected = dense(model, row[1:] if config.bos else row)
        assert np.allclose(cache["blocks.0.attn.hook_pattern"][b], expected["copy_pattern"], atol=1e-12)
        assert np.allclose(cache["blocks.1.attn.hook_attn_scores"][b, 0], expected["match_scores"], atol=1e-11)
        assert np.allclose(cache["blocks.1.attn.hook_pattern"][b, 0], expected["match_pattern"], atol=1e-12)
        if config.readout == "probability":
            votes = np.maximum(expected["votes"], 0.0) + config.floor
        else:
            votes = np.exp(expected["votes"])
        law = votes / votes.sum(-1, keepdims=True)
        assert np.allclose(probabilities[b], law, atol=1e-11)


# ---- hooks


@pytest.mark.parametrize("config", [DISENTANGLED, STANDARD], ids=["disentangled", "standard"])
def test_hooks_fire_with_the_canonical_names_and_axes(config: InductionConfig) -> None:
    model = randomised(config)
    tokens = inputs(config, batch=4)
    n, k, width = config.n_ctx, config.order, config.stream_width
    shapes: dict[str, tuple[int, ...]] = {}
    model.run_with_hooks(
        tokens,
        fwd_hooks=[(lambda name: True, lambda value, hook: shapes.__setitem__(hook.name, tuple(value.shape)))],
    )
    assert shapes["hook_embed"] == (4, n, width)
    assert shapes["blocks.0.attn.hook_q"] == (4, n, k, config.copy_width)
    assert shapes["blocks.1.attn.hook_q"] == (4, n, 1, config.match_width)
    assert shapes["blocks.0.attn.hook_attn_scores"] == shapes["blocks.0.attn.hook_pattern"] == (4, k, n, n)
    assert shapes["blocks.1.attn.hook_attn_scores"] == shapes["blocks.1.attn.hook_pattern"] == (4, 1, n, n)
    assert shapes["blocks.1.hook_resid_post"] == (4, n, width)
    assert model(tokens).shape == (4, n, config.vocab)


@pytest.mark.parametrize("config", [DISENTANGLED, STANDARD], ids=["disentangled", "standard"])
def test_a_hook_that_edits_reaches_the_logits(config: InductionConfig) -> None:
    model = randomised(config)
    tokens = inputs(config)
    plain = model(tokens)

    def look_away(scores: torch.Tensor, hook: object) -> torch.Tensor:
        scores = scores.clone()
        scores[:, :, -1, 2] += 3.0
        return scores

    for layer in (0, 1):
        edited = model.run_with_hooks(tokens, fwd_hooks=[(f"blocks.{layer}.attn.hook_attn_scores", look_away)])
        assert not torch.allclose(edited[:, -1], plain[:, -1], atol=1e-6)
        assert torch.equal(edited[:, :-1], plain[:, :-1])  # only the last query was edited
    assert torch.equal(model(tokens), plain)


def test_fewer_queries_than_keys_are_the_last_ones() -> None:
    """As with a key-value cache, where only new positions ask."""
    model = randomised(DISENTANGLED)
    attention = model.blocks[0].attn
    assert isinstance(attention, RelativeBiasAttention)
    q, k = torch.randn(2, 2, 10, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    whole = attention.calculate_attention_scores(q, k)
    assert torch.allclose(attention.calculate_attention_scores(q[:, -3:], k), whole[:, :, -3:])


def test_scores_are_content_and_relative_bias_then_masked() -> None:
    """A scale of 1 / sqrt(d) would put beta off; only the standard family has one, each layer by its head width."""
    for config, scales in ((DISENTANGLED, (1.0, 1.0)), (STANDARD, (math.sqrt(6), math.sqrt(12)))):
        model = randomised(config)
        _, cache = model.run_with_cache(inputs(config))
        places = torch.arange(config.n_ctx)
        distance = places[:, None] - places
        for layer, scale in enumerate(scales):
            q, k = (cache[f"blocks.{layer}.attn.hook_{x}"] for x in "qk")
            content = torch.einsum("bqhd,bkhd->bhqk", q, k) / scale
            expected = content + model.blocks[layer].attn.rel_bias[:, distance.clamp(min=0)]
            scores = cache[f"blocks.{layer}.attn.hook_attn_scores"]
            assert torch.allclose(scores, expected.masked_fill(distance < 0, -torch.inf))


# ---- the readout


def test_the_probability_readout_is_its_own_softmax() -> None:
    model = randomised(DISENTANGLED)
    tokens = inputs(DISENTANGLED)
    logits, cache = model.run_with_cache(tokens)
    votes = torch.relu(cache["blocks.1.hook_resid_post"] @ model.unembed.W_U) + DISENTANGLED.floor
    law = votes / votes.sum(-1, keepdim=True)
    assert torch.allclose(torch.softmax(logits, -1), law, atol=1e-14)
    assert torch.allclose(torch.logsumexp(logits, -1), torch.zeros(3, 10, dtype=torch.float64), atol=1e-14)
    assert (votes == DISENTANGLED.floor).any()  # some vote was negative, or the non-negative part were untested


# ---- what training may move


@pytest.mark.parametrize("readout", ["probability", "logit"])
def test_gradients_outside_the_live_blocks_are_exactly_zero(readout: str) -> None:
    model = randomised(replace(DISENTANGLED, readout=readout))
    tokens = inputs(DISENTANGLED, batch=8)
    torch.nn.functional.cross_entropy(model(tokens)[:, -1], tokens[:, 2]).backward()
    live = live_blocks(model)
    assert sorted(live) == sorted(model.free_parameters())
    for name, parameter in model.named_parameters():
        if name not in live:
            assert parameter.grad is None
            continue
        inside = torch.zeros_like(parameter, dtype=torch.bool)
        inside[live[name]] = True
        assert not parameter.grad[~inside].any()
        assert parameter.grad[inside].any()


def test_the_bos_row_of_the_standard_family_never_moves() -> None:
    model = randomised(STANDARD)
    assert torch.equal(model.embed.W_E[3].detach(), torch.full((12,), 1 / 3, dtype=torch.float64))
    model(inputs(STANDARD))[:, -1].logsumexp(-1).sum().backward()
    assert not model.embed.W_E.grad[3].any()
    assert model.embed.W_E.grad[:3].any()


def test_the_standard_family_frees_all_but_its_positions() -> None:
    model = InductionTransformer(STANDARD)
    frozen = {name for name, value in model.named_parameters() if not value.requires_grad}
    assert frozen == {"pos_embed.W_pos"}
    assert not model.pos_embed.W_pos.any()
    assert {"blocks.0.mlp.W_in", "blocks.0.ln1.w", "ln_final.w", "blocks.1.attn.rel_bias"} <= set(
        model.free_parameters()
    )
    assert torch.equal(model.blocks[0].ln1.w, torch.ones(12, dtype=torch.float64))


def test_the_construction_family_frees_nothing() -> None:
    model = InductionTransformer(replace(DISENTANGLED, family="construction"))
    assert model.free_parameters() == []
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_a_new_model_is_the_symmetric_start() -> None:
    """theorem:invariance starts at W_A = 0 and W_O = 0: uniform attention, a uniform law."""
    model = InductionTransformer(DISENTANGLED)
    for name in model.free_parameters():
        assert not model.get_parameter(name).any()
    logits, cache = model.run_with_cache(inputs(DISENTANGLED))
    assert torch.allclose(torch.softmax(logits, -1), torch.tensor(1 / 3, dtype=torch.float64))
    for layer in (0, 1):
        last = cache[f"blocks.{layer}.attn.hook_pattern"][:, :, -1]
        assert torch.allclose(last, torch.tensor(0.1, dtype=torch.float64))


# ---- building


@pytest.mark.parametrize("config", [DISENTANGLED, STANDARD], ids=["disentangled", "standard"])
def test_building_touches_no_global_generator(config: InductionConfig) -> None:
    of_numpy, of_torch = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    first, second = InductionTransformer(config), InductionTransformer(config)
    assert np.array_equal(np.random.get_state()[1], of_numpy)  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), of_torch)
    for name, value in first.named_parameters():
        assert torch.equal(value, second.get_parameter(name))
        assert value.isfinite().all()


# ---- tokens without BOS


def warnings_of(run: Callable[[], object]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run()
    return [str(one.message) for one in caught if one.category is UserWarning]


@pytest.mark.parametrize("config", [DISENTANGLED, STANDARD], ids=["disentangled", "standard"])
@pytest.mark.parametrize(
    "run",
    [
        lambda model, ids: model(ids),
        lambda model, ids: model.run_with_cache(ids),
        lambda model, ids: model.run_with_hooks(ids, return_type=None),
        lambda model, ids: model(ids[0]),
    ],
    ids=["call", "cache", "hooks", "one sequence"],
)
def test_tokens_without_bos_warn_once(config: InductionConfig, run: Callable[..., object]) -> None:
    model = InductionTransformer(config)
    tokens = torch.tensor([[3, 0, 1, 2, 0, 1], [0, 0, 1, 2, 0, 1]])  # one of the two begins with BOS
    found = warnings_of(lambda: run(model, tokens.flip(0)))
    assert found == [
        "the tokens do not begin with BOS, id 3, which this model was made for: "
        "ip.Circuit(model).ids(tokens) puts it in front"
    ]
    assert warnings_of(lambda: run(model, tokens.flip(0))) == []
    assert len(warnings_of(lambda: run(InductionTransformer(config), tokens.flip(0)))) == 1


@pytest.mark.parametrize("config", SHAPES[:3], ids=name_of)
def test_right_tokens_do_not_warn(config: InductionConfig) -> None:
    model = InductionTransformer(config)
    tokens = torch.randint(config.vocab, (12, config.length), generator=torch.Generator().manual_seed(0))
    ids = ip.Circuit(model).ids(tokens)

    def runs() -> None:
        _, cache = model.run_with_cache(ids)
        model(cache["blocks.0.hook_resid_post"], start_at_layer=1)
        ip.predict(model, tokens)
        ip.predict(model, tokens, every_position=True)
        ip.capture(model, tokens, query="all")
        ip.scan_heads(ip.Circuit(model), tokens)

    assert warnings_of(runs) == []


def test_the_warning_names_the_line_that_ran_the_model() -> None:
    with pytest.warns(UserWarning, match="do not begin with BOS") as caught:
        InductionTransformer(DISENTANGLED).run_with_cache(torch.zeros(1, 4, dtype=torch.int64))
    assert Path(caught[0].filename).is_relative_to(Path(__file__).parents[2])  # not in torch or the suite
