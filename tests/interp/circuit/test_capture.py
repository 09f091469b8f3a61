"""Prediction and capture: one forward, observed by hooks, and nothing changed by looking."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import numpy as np
import pytest
import torch

from interp.arguments import takes_memory
from interp.circuit import capture as module
from interp.circuit.capture import capture
from interp.circuit.runner import predict
from interp.estimators.soft_matching import soft_matching
from interp.hooked.construction import construct
from interp.hooked.transformer import InductionConfig, InductionTransformer
from interp.lens import HookedTransformer, HookedTransformerConfig
from tests import reference
from tests.cases import CASES, Case

BETA, KAPPA = (2.0, 0.75), 1.25
some_cases = pytest.mark.parametrize("case", CASES[::5], ids=str)  # with and without BOS in turn


def tokens_of(vocab: int, length: int, *, batch: int = 5, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(vocab, size=(batch, length)))


@pytest.fixture(scope="module")
def model() -> InductionTransformer:
    return construct(order=2, vocab=3, length=9, beta=BETA, kappa=KAPPA)


@pytest.fixture(scope="module")
def trained() -> InductionTransformer:
    """A standard model in a state that training might have left it in."""
    config = InductionConfig(
        family="standard", order=2, vocab=3, length=12, bos=True, readout="logit", d_model=16, d_mlp=16
    )
    model = InductionTransformer(config)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name in model.free_parameters():
            parameter = model.get_parameter(name)
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.4)
    return model


@pytest.fixture(scope="module")
def foreign() -> HookedTransformer:
    """Someone else's model: three layers, four heads, learned positions, its own vocabulary."""
    config = HookedTransformerConfig(
        n_layers=3,
        d_model=24,
        n_ctx=16,
        n_heads=4,
        d_head=6,
        d_vocab=11,
        d_vocab_out=10,
        act_fn="relu",
        d_mlp=20,
        default_prepend_bos=False,
        device="cpu",
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return HookedTransformer(config)


# ---- predict


@some_cases
def test_prediction_prepends_bos_where_the_model_has_it(case: Case) -> None:
    model = construct(order=case.order, vocab=case.vocab, length=case.length, beta=case.beta, kappa=case.kappa)
    tokens = torch.from_numpy(case.tokens())
    bos = torch.full((3, 1), case.vocab)
    by_hand = model(tokens if case.kappa is None else torch.cat([bos, tokens], dim=1))[:, -1]
    law = predict(model, tokens)
    assert law.dtype == torch.float64
    assert torch.allclose(law, torch.softmax(by_hand, -1), atol=1e-12)
    assert torch.allclose(law.sum(-1), torch.ones(3, dtype=torch.float64))


def test_trained_families_predict_at_shorter_lengths(trained: InductionTransformer) -> None:
    """Only a construction is tied to its length."""
    law = predict(trained, tokens_of(3, 7))
    assert law.shape == (5, 3)
    assert torch.allclose(law.sum(-1), torch.ones(5, dtype=torch.float64))


def test_prediction_in_parts_is_the_same(model: InductionTransformer, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = tokens_of(3, 9, batch=7)
    whole = predict(model, tokens)
    sizes: list[int] = []
    monkeypatch.setattr("interp.circuit.runner.BATCH_BYTES", 2 * 8 * 2 * 10 * 10)
    with model.hooks([("hook_embed", lambda value, hook: sizes.append(len(value)))]):
        assert torch.allclose(predict(model, tokens), whole, atol=1e-14)
    assert sizes == [2, 2, 2, 1]


# ---- capture


@pytest.mark.parametrize("query", ["last", "all"])
def test_the_capture_has_the_promised_shapes(model: InductionTransformer, query: str) -> None:
    seen = capture(model, tokens_of(3, 9), query=query)
    rows = 10 if query == "all" else 1
    assert seen.copy_pattern.shape == (5, 2, 10, 10)
    assert seen.match_scores.shape == seen.match_pattern.shape == (5, 1, rows, 10)
    assert seen.queries.tolist() == list(range(10 - rows, 10))
    assert (seen.order, seen.vocab, seen.bos) == (2, 3, True)
    assert torch.equal(seen.tokens, tokens_of(3, 9))
    assert torch.equal(seen.copy_tokens, seen.tokens)
    assert torch.allclose(torch.softmax(seen.match_scores, -1), seen.match_pattern, atol=1e-6)
    future = torch.arange(10) > seen.queries[:, None]
    assert torch.equal(torch.isneginf(seen.match_scores), future.expand_as(seen.match_scores))


@some_cases
def test_captured_scores_are_the_papers(case: Case) -> None:
    model = construct(order=case.order, vocab=case.vocab, length=case.length, beta=case.beta, kappa=case.kappa)
    tokens = case.tokens(batch=2)
    seen = capture(model, tokens)
    bos = case.kappa is not None
    assert seen.bos == bos
    for b, row in enumerate(tokens.tolist()):
        for s in reference.candidates(case.length, case.order):
            mask = reference.match_mask(row, t=case.length, s=s, k=case.order)
            score = float(seen.match_scores[b, 0, 0, s - 1 + bos])  # token s - 1, 0-based, sits at key s - 1 + bos
            assert score == pytest.approx(sum(case.beta[r - 1] for r in mask), abs=1e-9)
    if bos:
        assert seen.match_scores[:, 0, 0, 0].tolist() == pytest.approx([case.kappa] * 2, abs=1e-9)


def test_the_captured_attention_is_the_attention_used(model: InductionTransformer) -> None:
    """Votes put together from the captured pattern are the model's own prediction."""
    tokens = tokens_of(3, 9)
    pattern = capture(model, tokens).match_pattern[:, 0, 0]
    votes = torch.einsum("bk,bkv->bv", pattern[:, 1:], torch.nn.functional.one_hot(tokens, 3).double())
    assert torch.allclose(votes + pattern[:, :1] / 3, predict(model, tokens), atol=1e-10)


def test_looking_changes_nothing(model: InductionTransformer, trained: InductionTransformer) -> None:
    for subject, length in ((model, 9), (trained, 12)):
        tokens = tokens_of(3, length)
        copy = tokens.clone()
        weights = {name: value.detach().clone() for name, value in subject.named_parameters()}
        flags = {name: value.requires_grad for name, value in subject.named_parameters()}
        generator = torch.get_rng_state()
        law = predict(subject, tokens)
        capture(subject, tokens, query="all")
        assert torch.equal(tokens, copy)
        assert torch.equal(predict(subject, tokens), law)
        assert torch.equal(torch.get_rng_state(), generator)
        assert torch.is_grad_enabled()
        for name, value in subject.named_parameters():
            assert torch.equal(value, weights[name])
            assert value.requires_grad == flags[name]
            assert value.grad is None
        assert not any(point.fwd_hooks for point in subject.hook_dict.values())


def test_a_users_own_hook_is_seen_and_stays(model: InductionTransformer) -> None:
    """Interventions can be captured: a hook that was there before is in force during and after."""
    tokens = tokens_of(3, 9)
    plain = capture(model, tokens)

    def shut_bos(scores: torch.Tensor, hook: object) -> torch.Tensor:
        scores = scores.clone()
        scores[..., 0] = -torch.inf
        scores[:, :, 0, 0] = 0.0
        return scores

    with model.hooks([("blocks.1.attn.hook_attn_scores", shut_bos)]):
        edited = capture(model, tokens)
        assert (edited.match_pattern[..., 0] == 0).all()
        assert torch.allclose(predict(model, tokens), soft_matching(tokens, vocab=3, beta=BETA), atol=1e-9)
        assert len(model.hook_dict["blocks.1.attn.hook_attn_scores"].fwd_hooks) == 1
    assert (plain.match_pattern[..., 0] > 0).all()
    assert torch.equal(capture(model, tokens).match_pattern, plain.match_pattern)


# ---- other people's models


def test_a_plain_hooked_transformer_can_be_captured(foreign: HookedTransformer) -> None:
    tokens = tokens_of(10, 14, batch=3)
    seen = capture(foreign, tokens, order=2, copy_layer=1, match_layer=2, match_head=3, query="all")
    _, cache = foreign.run_with_cache(tokens)
    assert torch.allclose(seen.copy_pattern, cache["blocks.1.attn.hook_pattern"], atol=1e-6)
    assert torch.allclose(seen.match_pattern[:, 0], cache["blocks.2.attn.hook_pattern"][:, 3], atol=1e-6)
    scores = cache["blocks.2.attn.hook_attn_scores"][:, 3]
    causal = torch.tril(torch.ones(14, 14, dtype=torch.bool))
    assert torch.allclose(seen.match_scores[:, 0][:, causal], scores[:, causal], atol=1e-5)
    assert (seen.order, seen.vocab, seen.bos) == (2, 10, False)


@pytest.mark.parametrize("bos", [10, True, 4])
def test_a_foreign_bos_is_prepended(foreign: HookedTransformer, bos: int | bool) -> None:
    tokens = tokens_of(10, 14, batch=3)
    seen = capture(foreign, tokens, order=2, bos=bos)
    number = 10 if bos is True else bos
    _, cache = foreign.run_with_cache(torch.cat([torch.full((3, 1), number), tokens], dim=1))
    assert seen.bos
    assert seen.match_pattern.shape == (3, 1, 1, 15)
    assert torch.allclose(seen.match_pattern[:, 0], cache["blocks.1.attn.hook_pattern"][:, 0, -1:], atol=1e-6)


# ---- memory


def test_copy_patterns_are_kept_within_bounds(model: InductionTransformer, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = tokens_of(3, 9, batch=8)
    whole = capture(model, tokens)
    assert whole.copy_pattern.shape[0] == 8
    one = whole.copy_pattern[0].nbytes
    monkeypatch.setattr(module, "COPY_BYTES", 3 * one)
    for batch_bytes in (1, 10**9):  # in parts of one sequence, and all at once
        monkeypatch.setattr("interp.circuit.runner.BATCH_BYTES", batch_bytes)
        part = capture(model, tokens)
        kept = part.copy_pattern.shape[0]
        assert 1 <= kept < 8
        assert torch.allclose(part.copy_pattern, whole.copy_pattern[:kept], atol=1e-12)
        assert torch.equal(part.copy_tokens, tokens[:kept])
        assert torch.allclose(part.match_scores, whole.match_scores, atol=1e-9)
        assert part.match_scores.shape[0] == 8
        assert part.copy_pattern.untyped_storage().nbytes() <= 2 * 3 * one


def test_a_capture_says_what_it_takes(model: InductionTransformer, caplog: pytest.LogCaptureFixture) -> None:
    memory = {"SC_PAGE_SIZE": 1, "SC_PHYS_PAGES": 2 * 16 * 6 * 10 * 10}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("interp.arguments.os.sysconf", memory.__getitem__)
        with pytest.raises(ValueError, match="half of this machine's memory; one sequence needs 0 MiB; query='last'"):
            capture(model, tokens_of(3, 9, batch=8), query="all")
        assert capture(model, tokens_of(3, 9, batch=6), query="all").match_scores.shape[0] == 6
    takes_memory(3 << 29, what="query='all' on 8 sequences")
    assert caplog.messages == ["query='all' on 8 sequences will take 1.5 GiB"]


# ---- names and bad input


@pytest.mark.parametrize("look", [predict, capture])
@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([[0, 1, 3, 0, 1, 2, 0, 1, 2]], r"token 3 is outside the vocabulary 0\.\.2"),  # the BOS id, given by hand
        ([[0] * 8], "tied to length 9, got sequences of 8 tokens"),
        ([[0] * 10], "sequences have 10 tokens, but the model's context holds 9"),
    ],
)
def test_bad_tokens_are_named(
    model: InductionTransformer, look: Callable[..., object], tokens: object, message: str
) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        look(model, tokens)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("subject", "options", "message"),
    [
        ("model", {"copy_layer": 2}, r"copy_layer: layer 2, but the model has layers 0\.\.1"),
        ("model", {"match_layer": -1}, r"match_heads: layer -1, but the model has layers 0\.\.1"),
        ("model", {"match_head": 1}, r"match_heads: head 1, but layer 1 has heads 0\.\.0"),
        ("model", {"vocab": 5}, "vocab=5, but the model has vocab 3"),
        ("model", {"query": "first"}, "query must be 'last', 'all', 'trained' or a list of token indices, got 'first'"),
        ("foreign", {}, "give order=k"),
        ("foreign", {"order": 2, "bos": 11}, r"BOS id 11 is outside the model's input vocabulary 0\.\.10"),
        ("foreign", {"order": 2, "vocab": 2}, r"token \d is outside the vocabulary 0\.\.1"),
    ],
)
def test_bad_options_are_named(subject: str, options: dict, message: str, request: pytest.FixtureRequest) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        inspect.unwrap(capture)(request.getfixturevalue(subject), tokens_of(3, 9), **options)
    assert "\n" not in str(caught.value)


def test_the_table_has_every_key_that_a_query_sees(model: InductionTransformer) -> None:
    cap = capture(model, tokens_of(3, 9, batch=2), query=[4, 8])
    table = cap.table()
    assert len(table) == 2 * (6 + 10)
    last = table[(table["sequence"] == 1) & (table["query"] == 8)]
    assert last["key"].tolist() == list(range(-1, 9))
    assert last["token"].isna().tolist() == [True] + 9 * [False]
    assert last["token"].iloc[1:].tolist() == cap.tokens[1].tolist()
    np.testing.assert_array_equal(last["attention"], cap.match_pattern[1, 0, 1])
    masks = [reference.match_mask(cap.tokens[1].tolist(), t=9, s=s, k=2) for s in reference.candidates(9, 2)]
    names = ["{" + ",".join(map(str, sorted(mask))) + "}" for mask in masks]
    assert last["mask"].tolist() == ["bos", "early", "early", *names]
    assert table[table["query"] == 4]["attention"].sum() == pytest.approx(2.0)
