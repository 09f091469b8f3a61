"""A run at the last query alone gives the numbers of a plain run, and steps aside for other people's hooks."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import interp as ip
from interp.circuit import last_query
from interp.circuit.capture import capture
from interp.circuit.circuit import Circuit
from interp.circuit.runner import predict, run, stream_before_match
from interp.instruments.causal import causal_tests
from interp.lens import HookedTransformer, HookedTransformerConfig
from tests.known_captures import imperfect, random_model, tokens_of

LENGTH = 24


@pytest.fixture(autouse=True)
def several_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of seven queries: the last of a sequence is a smaller one."""
    monkeypatch.setattr(last_query, "QUERIES", 7)


@pytest.fixture(params=["construction", "disentangled", "standard"])
def model(request: pytest.FixtureRequest) -> ip.InductionTransformer:
    if request.param == "construction":
        return ip.construct(order=2, vocab=4, length=LENGTH, beta=(2.5, 1.2), dtype="float32")
    return random_model(order=2, vocab=4, length=LENGTH, bos=True, family=request.param, scale=0.7, seed=3)


@pytest.fixture
def tokens() -> torch.Tensor:
    return tokens_of(order=2, vocab=4, batch=12, length=LENGTH)


def ids_of(model: ip.InductionTransformer, tokens: torch.Tensor) -> torch.Tensor:
    return torch.cat([torch.full((len(tokens), int(model.config.bos)), model.config.vocab), tokens], dim=1)


def pass_on(activation: torch.Tensor, hook: object) -> None:
    """A hook that only looks."""


@pytest.fixture
def short_runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of sequences in each run at the last query alone."""
    runs: list[int] = []
    plain = last_query.from_match

    def counted(model: HookedTransformer, stream: torch.Tensor, **keywords: object) -> torch.Tensor:
        runs.append(len(stream))
        return plain(model, stream, **keywords)

    monkeypatch.setattr(last_query, "from_match", counted)
    return runs


def test_every_number_is_that_of_a_plain_run(model: ip.InductionTransformer, tokens: torch.Tensor) -> None:
    ids = ids_of(model, tokens)
    logits, cache = model.run_with_cache(ids, prepend_bos=False)
    stream = last_query.before_match(model, ids)
    torch.testing.assert_close(stream, cache["blocks.1.hook_resid_pre"], atol=1e-5, rtol=1e-5)
    seen: dict[str, torch.Tensor] = {}

    def keep(activation: torch.Tensor, hook: Any) -> None:
        assert hook.name not in seen
        seen[hook.name] = activation.clone()

    names = ["hook_resid_pre", "attn.hook_attn_scores", "attn.hook_pattern", "attn.hook_z", "hook_resid_post"]
    hooks = [(f"blocks.1.{name}", keep) for name in names]
    short = last_query.from_match(model, stream, hooks=hooks)
    torch.testing.assert_close(short, logits[:, -1], atol=1e-5, rtol=1e-5)
    assert len(seen) == len(hooks)
    for name, value in seen.items():
        queries = 2 if name.endswith(("scores", "pattern")) else 1
        whole = cache[name].narrow(queries, LENGTH + model.config.bos - 1, 1)
        torch.testing.assert_close(value, whole, atol=1e-5, rtol=1e-5)


def test_hooks_of_the_copy_layer_see_it_in_parts(model: ip.InductionTransformer, tokens: torch.Tensor) -> None:
    ids = ids_of(model, tokens)
    seen: list[torch.Size] = []
    shown = [(name, lambda value, hook: seen.append(value.shape)) for name in last_query.SHOWN]
    alone = last_query.before_match(model, ids)
    torch.testing.assert_close(last_query.before_match(model, ids, hooks=shown), alone, atol=0, rtol=0)
    assert len(seen) == 2 * -(-ids.shape[1] // last_query.QUERIES)
    moved = [("blocks.0.attn.hook_z", lambda z, hook: 2 * z)]
    whole = model.run_with_hooks(ids, fwd_hooks=moved, prepend_bos=False, stop_at_layer=1)
    torch.testing.assert_close(last_query.before_match(model, ids, hooks=moved), whole, atol=1e-5, rtol=1e-5)


def test_hooks_are_gone_after_an_error(model: ip.InductionTransformer, tokens: torch.Tensor) -> None:
    def fail(activation: torch.Tensor, hook: Any) -> None:
        raise RuntimeError("no")

    stream = last_query.before_match(model, ids_of(model, tokens))
    with pytest.raises(RuntimeError, match="no"):
        last_query.from_match(model, stream, hooks=[("blocks.1.attn.hook_z", fail)])
    with pytest.raises(KeyError):
        last_query.from_match(model, stream, hooks=[("blocks.1.attn.hook_z", fail), ("nowhere", fail)])
    assert last_query.applies(model)


def test_capture_and_predict_equal_the_cache(
    model: ip.InductionTransformer, tokens: torch.Tensor, short_runs: list[int]
) -> None:
    logits, cache = model.run_with_cache(ids_of(model, tokens), prepend_bos=False)
    seen = capture(model, tokens, copies=False)
    assert sum(short_runs) == len(tokens)
    scores = cache["blocks.1.attn.hook_attn_scores"][:, :, -1:]
    torch.testing.assert_close(seen.match_scores, scores, atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(seen.match_pattern, cache["blocks.1.attn.hook_pattern"][:, :, -1:], atol=1e-5, rtol=1e-5)
    laws = torch.softmax(logits[:, -1].double(), dim=-1)
    torch.testing.assert_close(predict(model, tokens), laws, atol=1e-6, rtol=1e-5)
    assert sum(short_runs) == 2 * len(tokens)


def test_a_capture_without_copies_has_none(model: ip.InductionTransformer, tokens: torch.Tensor) -> None:
    seen = capture(model, tokens, copies=False)
    assert seen.copy_pattern.shape[0] == len(seen.copy_tokens) == 0
    with pytest.raises(ValueError, match="kept no copy patterns"):
        ip.copy_heads(seen)


@pytest.mark.parametrize("place", ["blocks.0.attn.hook_z", "blocks.1.attn.hook_pattern", "hook_embed"])
def test_a_hooked_model_is_run_whole(
    model: ip.InductionTransformer, tokens: torch.Tensor, short_runs: list[int], place: str
) -> None:
    expected = predict(model, tokens)
    short_runs.clear()
    shapes: list[int] = []
    with model.hooks(fwd_hooks=[(place, lambda value, hook: shapes.append(value.shape[-2]))]):
        assert not last_query.applies(model)
        torch.testing.assert_close(predict(model, tokens), expected, atol=1e-6, rtol=1e-5)
        capture(model, tokens, copies=False)
        run(Circuit(model), tokens, last_only=True)
    assert not short_runs
    assert shapes
    assert last_query.applies(model)


def test_torch_hooks_and_split_inputs_count_as_well(model: ip.InductionTransformer) -> None:
    handle = model.blocks[1].register_forward_hook(lambda *_: None)
    assert not last_query.applies(model)
    handle.remove()
    model.set_use_split_qkv_input(True)
    for block in model.blocks:
        block.attn.cfg.use_split_qkv_input = True
    assert not last_query.applies(model)


def test_other_peoples_models_and_other_layers_are_run_whole(short_runs: list[int]) -> None:
    foreign = HookedTransformer(
        HookedTransformerConfig(n_layers=2, d_model=8, n_ctx=12, d_head=4, d_vocab=4, attn_only=True, device="cpu")
    )
    assert not last_query.applies(foreign)
    tokens = tokens_of(order=2, vocab=4, batch=12, length=12)
    capture(foreign, tokens, order=2, copies=False)
    assert stream_before_match(Circuit(foreign, order=2), tokens) is None
    ours = random_model(order=2, vocab=4, length=12, bos=False, family="disentangled", scale=0.7, seed=3)
    capture(ours, tokens, copy_layer=1, match_layer=0, copies=False)
    assert not short_runs


@pytest.mark.parametrize("bos", [True, False])
def test_causal_tests_from_the_kept_stream_equal_those_of_plain_runs(bos: bool, short_runs: list[int]) -> None:
    kappa = 1.5 if bos else None
    model = imperfect(beta=(2.5, 1.2), kappa=kappa, vocab=4, noise=0.3, length=LENGTH)
    chains = ip.HierarchicalDirichlet(order=2, vocab=4, eta=(5.0, 5.0)).sample(batch=300, length=LENGTH, seed=1)
    settings = {"next_law": chains.next_law, "law": ((2.5, 1.2), kappa)}
    short = causal_tests(model, chains.tokens, **settings)
    assert short_runs
    short_runs.clear()
    with model.hooks(fwd_hooks=[("hook_embed", pass_on)]):
        plain = causal_tests(model, chains.tokens, **settings)
    assert not short_runs
    assert [row.edit for row in short.edits] == [row.edit for row in plain.edits]
    for one, other in zip(short.edits, plain.edits, strict=True):
        assert one.loss == pytest.approx(other.loss, abs=1e-9)
        assert one.change == pytest.approx(other.change, abs=1e-9)
        assert one.reached == other.reached
        if not one.edit.startswith("copy_head"):  # its control draws part by part
            assert one.control_loss_change == pytest.approx(other.control_loss_change, abs=1e-9)
    assert short.success or not bos  # without BOS even attention costs too little to tell a share of it
    assert short.loss_recovered == pytest.approx(plain.loss_recovered, abs=1e-9, nan_ok=True)


def test_a_stream_too_large_to_keep_is_made_anew(monkeypatch: pytest.MonkeyPatch, tokens: torch.Tensor) -> None:
    model = random_model(order=2, vocab=4, length=LENGTH, bos=True, family="disentangled", scale=0.7, seed=3)
    circuit = Circuit(model)
    kept = stream_before_match(circuit, tokens)
    assert kept is not None
    assert kept.shape == (12, LENGTH + 1, 24)
    expected = run(circuit, tokens, last_only=True, stream=kept)
    monkeypatch.setattr("interp.circuit.runner.STREAM_BYTES", kept.nbytes - 1)
    assert stream_before_match(circuit, tokens) is None
    torch.testing.assert_close(run(circuit, tokens, last_only=True), expected)


def test_hooks_that_a_run_at_the_last_query_would_not_call_are_refused(tokens: torch.Tensor) -> None:
    circuit = Circuit(random_model(order=2, vocab=4, length=LENGTH, bos=True, family="standard", scale=0.7, seed=3))
    for name, stream in (("hook_z", stream_before_match(circuit, tokens)), ("hook_attn_scores", None)):
        watch = [(f"blocks.0.attn.{name}", pass_on)]
        with pytest.raises(ValueError, match="would not call these hooks"):
            run(circuit, tokens, hooks=lambda rows, watch=watch: watch, last_only=True, stream=stream)
