"""A scan names exactly the heads that were planted, with their betas, and none where there is nothing to name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import interp as ip
from interp.circuit.circuit import one_or_all
from interp.fitting.scan_statistics import ScanStatistics
from interp.instruments.scan_heads import HeadScan
from tests import tiny_language
from tests.planted import planted_deep, trained_like, without_mechanism
from tests.planted_heads import PLANTS, Plant, expected_heads, plant, random_transformer

QUERIES = [-1, -5, -9]
COLUMNS = [
    *("layer", "head", "role", "copy_lag", "copy_mass", "copy_share", "beta_1", "beta_2", "kappa", "r2_match", "nats"),
    *("nats_explained", "mass_full", "mass_partial", "mass_none", "mass_bos"),
    *("self_mass", "duplicate_mass", "sink_mass", "success", "message"),
]


def tokens_for(spec: Plant, *, batch: int = 80, seed: int = 0) -> torch.Tensor:
    """Sequences of a chain. A first token that stands in for BOS is a symbol of its own, so that it matches nothing."""
    first = spec.task["bos"] == "first"
    prior = ip.HierarchicalDirichlet(order=spec.order, vocab=spec.vocab - first, eta=(3.0,) * spec.order)
    tokens = prior.sample(batch=batch, length=spec.length, seed=seed, method="explicit").tokens
    if first:
        tokens[:, 0] = spec.vocab - 1
    return tokens


def roles(scan: HeadScan) -> dict[tuple[int, int], str]:
    return {at: scan.role[at[0]][at[1]] for at in scan.heads}


@pytest.mark.parametrize("noise", [0.0, 0.02])
@pytest.mark.parametrize("name", PLANTS)
def test_exactly_the_planted_heads_are_named(name: str, noise: float) -> None:
    spec = PLANTS[name]
    if noise and spec.rotary:
        noise = 0.005  # rotary copies are less sharp to begin with
    scan = ip.scan_heads(plant(spec, noise=noise), tokens_for(spec), **spec.task, query=QUERIES)
    assert roles(scan) == expected_heads(spec)
    assert scan.match_heads == tuple(sorted(spec.matches))
    copies = [spec.copies[lag] for lag in range(1, spec.order + 1)]
    assert scan.copy_heads == tuple(one_or_all(heads) for heads in copies)
    assert scan.success
    for at, (beta, kappa) in spec.matches.items():
        near = np.maximum(3 * scan.beta_stderr[at], 0.05 if noise else 1e-6)
        assert (np.abs(scan.beta[at] - beta) < near).all(), (at, scan.beta[at], beta)
        if kappa is not None and not noise:  # noise moves BOS's real score
            assert scan.kappa[at] == pytest.approx(kappa, abs=1e-6)
        assert scan.nats_explained[at] > (0.9 if noise else 1 - 1e-6)
        assert scan.r2_match[at] > 0.9
    for lag, heads in spec.copies.items():
        for at in heads:
            assert scan.copy_lag[at] == lag
            assert scan.copy_mass[at][lag - 1] > 0.95
    assert [at for at in scan.heads if scan.copy_lag[at]] == scan.with_role("copy")


@pytest.mark.parametrize(("lag", "share"), [(2, 0.49), (4, 0.4), (2, 0.3)])
def test_a_copy_head_may_attend_to_another_lag_too(lag: int, share: float) -> None:
    spec = Plant(order=1, copies={1: ((0, 0), (0, 3))}, leaks={(0, 3): (lag, share)}, matches={(1, 1): ((4.0,), 1.0)})
    scan = ip.scan_heads(plant(spec), tokens_for(spec), **spec.task)
    assert scan.copying(1) == [(0, 0), (0, 3)]
    assert scan.copy_mass[0, 3][0] == pytest.approx(1 - share, abs=0.05)
    table = scan.table().set_index(["layer", "head"])
    assert table.copy_share[0, 3] == pytest.approx((1 - share) / (2 - share), abs=0.05)
    assert table.copy_lag.isna().sum() == len(table) - 2
    strict = ip.scan_heads(
        plant(spec), tokens_for(spec), **spec.task, rules=ip.RoleRules(min_copied=0.9, max_second=0.2)
    )
    assert roles(strict)[0, 3] == ("copy" if share < 0.5 else "none")  # more than half of all attention is enough


def test_random_weights_find_nothing() -> None:
    """Fifty starts, at three scales of attention weights, with BOS and without: no head is named in any of them."""
    tokens = ip.HierarchicalDirichlet(order=2, vocab=5, eta=(3.0, 3.0)).sample(batch=40, length=39, seed=0).tokens
    most_explained = most_copied = 0.0
    for seed in range(50):
        model = random_transformer(seed, scale=(1.0, 5.0, 20.0)[seed % 3], rotary=seed % 2 == 1)
        order, bos = ((2, 5), (1, "first"))[seed % 4 > 1]
        scan = ip.scan_heads(model, tokens, order=order, vocab=5, bos=bos, query=[-1, -12])
        assert set(roles(scan).values()) == {"none"}
        assert scan.copy_heads == (None,) * order
        assert scan.match_heads == ()
        assert not scan.success
        for missing in ("no head matches", *(f"no head copies lag {lag}" for lag in range(1, order + 1))):
            assert missing in scan.message
            assert f"{missing} (nearest: " in str(scan)
        assert np.isnan(scan.beta).all()
        some = scan.nats > 0.02
        most_explained = max(most_explained, float(scan.nats_explained[some].max(initial=0.0)))
        most_copied = max(most_copied, float(scan.copy_mass.max()))
    assert most_explained < 0.1
    assert most_copied < 0.4


def test_a_planted_model_with_its_weights_dealt_anew_finds_nothing() -> None:
    spec = PLANTS["copies in two layers"]
    model = plant(spec)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for block in model.blocks:
            for weight in (block.attn.W_Q, block.attn.W_K):
                weight.copy_(weight.flatten()[torch.randperm(weight.numel(), generator=generator)].view_as(weight))
    assert set(roles(ip.scan_heads(model, tokens_for(spec), **spec.task)).values()) == {"none"}


@pytest.mark.parametrize("name", ["decoys", "the first token as BOS"])
def test_a_scan_agrees_with_the_instruments_one_head_at_a_time(name: str) -> None:
    spec = PLANTS[name]
    model, tokens = plant(spec, noise=0.05), tokens_for(spec, batch=60)
    scan = ip.scan_heads(model, tokens, **spec.task, query=[20, 39])
    for at in [(0, 0), (1, 1), (2, 2), (2, 3), (0, 1)]:
        assert spec.bos or spec.task["bos"] == "first"
        cap = ip.capture(model, tokens, **spec.task, match_heads=(at,), query=[20, 39])
        scored, seen = ip.fit_scores(cap), ip.fit_scores(cap, source="attention", min_r2=1e-9)
        mass = ip.overlap_mass(cap)
        assert scan.r2_match[at] == pytest.approx(scored.r2_match, abs=1e-6)
        np.testing.assert_allclose(scan.mass[at][:3], mass.by_overlap, atol=1e-12)
        np.testing.assert_allclose(scan.mass_stderr[at], mass.stderr_by_group, atol=1e-12)
        assert scan.mass[at][3:].tolist() == pytest.approx([mass.bos, mass.early])
        assert scan.nats[at] == pytest.approx(seen.nats, abs=1e-8)
        assert scan.nats_explained[at] == pytest.approx(seen.nats_explained, abs=1e-7)
        assert scan.induction[at] == pytest.approx(mass.by_mask[1] + mass.by_mask[3])
        if scored.success:
            np.testing.assert_allclose(scan.beta_scores[at], scored.beta, atol=1e-7)
        if scan.ok[at]:
            assert scan.nats_explained_stderr[at] == pytest.approx(seen.nats_explained_stderr, rel=1e-5)
            np.testing.assert_allclose(scan.beta[at], seen.beta, atol=1e-7)
            np.testing.assert_allclose(scan.beta_stderr[at], seen.stderr, rtol=1e-4)
            assert scan.kappa_stderr[at] == pytest.approx(seen.kappa_stderr, rel=1e-4)
    cap = ip.capture(model, tokens, **spec.task, copy_layer=0, match_layer=2)
    copies = ip.copy_heads(cap)
    np.testing.assert_allclose(scan.copy_mass[0, :, :2], copies.masses, atol=1e-12)
    assert scan.copy_mass_stderr[0, 1, 0] == pytest.approx(copies.stderr[1])


@pytest.mark.parametrize("position", [True, False])
def test_matches_at_one_distance_are_seen_without_a_positional_term(position: bool) -> None:
    """Tokens repeated once: each matches where it came before, at half the length."""
    spec = PLANTS["match heads in two layers"]
    tokens = torch.stack([torch.randperm(20, generator=torch.Generator().manual_seed(seed)) for seed in range(20)])
    model = plant(Plant(**{**vars(spec), "vocab": 20}))
    task = {**spec.task, "vocab": 20, "bos": 20, "query": range(22, 38), "position": position}
    scan = ip.scan_heads(model, tokens.repeat(1, 2), **task)
    for at, (beta, _) in spec.matches.items():
        cap = ip.capture(model, tokens.repeat(1, 2), order=1, vocab=20, bos=20, match_heads=(at,), query=range(22, 38))
        fit = ip.fit_scores(cap, source="attention", position=position)
        np.testing.assert_allclose(scan.beta[at], fit.beta)
        assert position or scan.beta[at] == pytest.approx(beta, abs=1e-6)
    assert position or scan.match_heads == tuple(spec.matches)


def test_the_first_token_in_the_place_of_bos() -> None:
    """Not declared, its attention lies outside the law, and the scan says what to do; declared, kappa comes back."""
    spec = PLANTS["the first token as BOS"]
    model, tokens = plant(spec), tokens_for(spec)
    told = ip.scan_heads(model, tokens, **spec.task, query="trained")
    not_told = ip.scan_heads(model, tokens, **{**spec.task, "bos": None}, query="trained")
    assert told.message == ""
    assert not_told.match_heads == told.match_heads
    early = not_told.mass[2, 0, -1]
    assert early == pytest.approx(told.mass[2, 0, 3], abs=1e-9)  # BOS's place
    assert early > 0.1
    assert "of the attention is on early keys, outside the law: bos='first' gives the first token" in not_told.message
    assert np.isnan(not_told.kappa).all()
    circuit = ip.Circuit(model, **spec.task, match_heads=((2, 0),))
    assert "the first token as BOS" in repr(circuit)
    cap = ip.capture(circuit, tokens, query="trained")
    for fit in (ip.fit_scores(cap), ip.fit_scores(cap, source="attention")):
        assert fit.kappa == pytest.approx(2.5, abs=1e-6)
        np.testing.assert_allclose(fit.beta, [2.4, 1.3], atol=1e-6)
        mass = ip.overlap_mass(cap, fit)
        assert mass.distance == pytest.approx(0.0, abs=1e-6)
        assert mass.predicted_bos == pytest.approx(mass.bos, abs=1e-6)
        assert mass.early == pytest.approx(0.0, abs=1e-6)
    bare = ip.capture(ip.Circuit(model, order=2, vocab=5, match_heads=((2, 0),)), tokens, query="trained")
    assert "bos='first'" in ip.fit_scores(bare, source="attention").message
    with pytest.raises(ValueError, match="the law has no kappa, the model a BOS"):
        ip.causal_tests(circuit, tokens, next_law=torch.full((80, 5), 0.2), law=((2.4, 1.3), None))
    with pytest.raises(ValueError, match="bos='first', but the model has a BOS token"):
        ip.Circuit(trained_like(), bos="first")


def test_induction_of_even_attention() -> None:
    spec = PLANTS["one layer of copies"]
    scan = ip.scan_heads(plant(spec), tokens_for(spec), **spec.task, query=QUERIES)
    assert scan.induction[1, 0] == pytest.approx(scan.induction_even)  # a head without weights
    assert scan.induction[2, 0] > 2 * scan.induction_even


def test_queries_last_all_trained_and_listed() -> None:
    spec = PLANTS["two match heads"]
    model, tokens = plant(spec), tokens_for(spec, batch=20)
    counts = {}
    for query in ("last", "all", "trained", [5, 20]):
        counts[str(query)] = ip.scan_heads(model, tokens, **spec.task, query=query).queries.tolist()
    assert counts["last"] == [39]
    assert counts["all"] == counts["trained"] == list(range(2, 40))  # the context has room for one more token
    assert counts["[5, 20]"] == [5, 20]


def test_the_last_position_of_a_full_context_is_warned_of() -> None:
    model = random_transformer(0)  # a context of 40
    tokens = torch.from_numpy(np.random.default_rng(0).integers(6, size=(20, 40)))
    full = ip.scan_heads(model, tokens, order=1)
    assert "a next-token loss never trained it (query='trained' reads the others)" in full.message
    assert "never trained" not in ip.scan_heads(model, tokens[:, :39], order=1).message
    trained = ip.scan_heads(model, tokens, order=1, query="trained")
    assert "never trained" not in trained.message
    assert trained.queries.tolist() == list(range(1, 39))
    circuit = ip.Circuit(model, order=1, match_heads=((1, 0),))
    assert ip.capture(circuit, tokens, query="trained").queries.tolist() == list(range(39))
    assert "never trained it" in ip.capture(circuit, tokens).note
    assert "never trained it" in ip.fit_scores(ip.capture(circuit, tokens)).message
    assert "never trained it" in str(ip.capture(circuit, tokens))
    ours = ip.Circuit(trained_like())
    assert ip.capture(ours, torch.zeros(3, 24, dtype=torch.int64), query="trained").queries.tolist() == [24]
    assert ip.capture(ours, torch.zeros(3, 24, dtype=torch.int64)).note == ""


def test_models_of_the_suite_are_scanned_as_they_are() -> None:
    chains = ip.HierarchicalDirichlet(order=2, vocab=4, eta=(5.0, 5.0)).sample(batch=80, length=24, seed=1)
    scan = ip.scan_heads(trained_like(), chains.tokens)
    assert scan.heads == ((0, 0), (0, 1), (1, 0))  # two copy heads and one match head
    assert scan.copy_heads == ((0, 0), (0, 1))
    assert scan.match_heads == ((1, 0),)
    np.testing.assert_allclose(scan.beta[1, 0], [2.5, 1.2], atol=1e-7)
    assert np.isnan(scan.nats[1, 1])
    assert not ip.scan_heads(without_mechanism(), chains.tokens).success


def test_a_longer_lag_is_seen() -> None:
    """Copies beyond the order are reported, and are not taken for the circuit."""
    spec = Plant(order=1, copies={1: ((0, 0),), 6: ((0, 3),)}, matches={(1, 1): ((2.5,), 1.0)}, layers=2)
    scan = ip.scan_heads(plant(spec), tokens_for(spec), **spec.task)
    assert scan.copy_lag[0, 3] == 6
    assert scan.copy_heads == ((0, 0),)
    short = ip.scan_heads(plant(spec), tokens_for(spec), **spec.task, copy_lags=3)
    assert short.copy_mass.shape[-1] == 3
    assert roles(short)[0, 3] == "none"


def test_the_model_is_run_once_and_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = PLANTS["two match heads"]
    model, tokens = plant(spec), tokens_for(spec, batch=30)
    whole = ip.scan_heads(model, tokens, **spec.task, query="all")
    seen: list[int] = []
    run = model.run_with_hooks
    monkeypatch.setattr(model, "run_with_hooks", lambda ids, **more: seen.append(len(ids)) or run(ids, **more))
    monkeypatch.setattr("interp.circuit.runner.BATCH_BYTES", 8 * 4 * 41 * 41 * 7)
    parts = ip.scan_heads(model, tokens, **spec.task, query="all")
    assert seen == [7, 7, 7, 7, 2]
    for name in ("beta", "kappa", "nats", "r2_match", "mass", "copy_mass", "induction"):
        np.testing.assert_allclose(getattr(parts, name), getattr(whole, name), atol=1e-9)


def test_float32_models() -> None:
    spec = PLANTS["two match heads"]
    model = plant(spec).to(torch.float32)
    model.cfg.dtype = torch.float32
    scan = ip.scan_heads(model, tokens_for(spec), **spec.task, query=QUERIES)
    assert roles(scan) == expected_heads(spec)
    for at, (beta, _) in spec.matches.items():
        np.testing.assert_allclose(scan.beta[at], beta, atol=1e-4)


# ---- results


@pytest.fixture(scope="module")
def decoys() -> HeadScan:
    spec = PLANTS["decoys"]
    return ip.scan_heads(plant(spec), tokens_for(spec), **spec.task, query=QUERIES)


def test_the_table_has_the_columns_of_the_design(decoys: HeadScan) -> None:
    table = decoys.table()
    assert table.columns.tolist() == COLUMNS
    assert len(table) == 12
    row = table.set_index(["layer", "head"]).loc[(2, 2)]
    assert row.role == "match"
    assert row.success
    assert row.message == ""
    masses = table[["mass_full", "mass_partial", "mass_none", "mass_bos"]].sum(axis=1)
    np.testing.assert_allclose(masses + decoys.details().mass_early, 1.0, atol=1e-9)
    other = table.set_index(["layer", "head"]).loc[(2, 3)]
    assert not other.success
    assert other.message.startswith("matches explain")
    assert np.isnan(other.beta_1)
    details = decoys.details()
    assert {"beta_1_stderr", "beta_2_scores", "mass_gap", "induction", "copy_mass_8"} <= set(details.columns)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m, t: ip.scan_heads(m, t), "give order=k"),
        (lambda m, t: ip.scan_heads(m, t, order=2, vocab=50), "input vocabulary has 5 symbols"),
        (lambda m, t: ip.scan_heads(m, t, order=2, vocab=3), "token 3 is outside the vocabulary 0..2"),
        (
            lambda m, t: ip.scan_heads(m, t, order=2, vocab=4, symbols=(0, 1, 2, 40)),
            "symbol ids 0 to 40 are not all in",
        ),
        (lambda m, t: ip.scan_heads(m, t, order=2, vocab=4, bos=9), "BOS id 9 is outside"),
        (lambda m, t: ip.scan_heads(m, t[:4], order=2, vocab=4, bos=4), "4 sequences; a scan needs at least 10"),
        (lambda m, t: ip.scan_heads(m, t, order=2, vocab=4, query="first"), "query must be 'last', 'all', 'trained'"),
        (lambda m, t: ip.scan_heads(m, t, order=2, vocab=4, query=[0, 1]), "no query has a candidate key"),
        (lambda m, t: ip.scan_heads(m, t, order=2, vocab=4, query=[99]), "query 99 is outside the tokens 0..23"),
        (lambda m, t: ip.scan_heads(m, t, order=2, vocab=4, copy_lags=0), "copy_lags must be an integer >= 1"),
        (
            lambda m, t: ip.scan_heads(m, t, order=2, vocab=4, rules=ip.RoleRules(min_copied=0.0)),
            "min_copied must be a finite number > 0, got 0.0",
        ),
        (lambda m, t: ip.scan_heads(m, t, order=2, vocab=4, bos="last"), "bos must be the id of the BOS token"),
        (
            lambda m, t: ip.scan_heads(ip.Circuit(m, order=2, vocab=4), t, order=2),
            "order was given together with a Circuit",
        ),
        (lambda m, t: ip.scan_heads(m, t.repeat(1, 2), order=2, vocab=4), "but the model's context holds 25"),
        (lambda m, t: ip.scan_heads(m, t, order=30, vocab=4), "order must be at most 12"),
    ],
)
def test_bad_input_gets_one_line(call: Callable[..., Any], message: str) -> None:
    tokens = torch.from_numpy(np.random.default_rng(0).integers(4, size=(20, 24)))
    with pytest.raises(ValueError, match=message) as caught:
        call(planted_deep(), tokens)
    assert "\n" not in str(caught.value)


def test_a_scan_that_would_keep_too_much_is_refused() -> None:
    spec, memory = PLANTS["two match heads"], {"SC_PAGE_SIZE": 1, "SC_PHYS_PAGES": 1 << 20}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("interp.arguments.os.sysconf", memory.__getitem__)
        with pytest.raises(
            ValueError, match=r"a scan of 38 queries of 80 sequences would need .* half of this machine's"
        ):
            ip.scan_heads(plant(spec), tokens_for(spec), **spec.task, query="all")


def test_a_model_without_the_hooks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = PLANTS["two match heads"]
    model = plant(spec)
    run = model.run_with_hooks
    monkeypatch.setattr(
        model,
        "run_with_hooks",
        lambda ids, fwd_hooks, **more: run(ids, fwd_hooks=[h for h in fwd_hooks if "blocks.1" not in h[0]], **more),
    )
    with pytest.raises(ValueError, match=r"the hook blocks.1.attn.hook_pattern was never called"):
        ip.scan_heads(model, tokens_for(spec), **spec.task)
    monkeypatch.setattr(
        model,
        "run_with_hooks",
        lambda ids, fwd_hooks, **more: run(ids, fwd_hooks=[h for h in fwd_hooks if "scores" not in h[0]], **more),
    )
    blind = ip.scan_heads(model, tokens_for(spec), **spec.task)
    assert blind.success  # attention alone is enough
    assert np.isnan(blind.r2_match).all()


def test_groups_and_counts_are_those_of_the_masks() -> None:
    spec = PLANTS["two match heads"]
    tokens = tokens_for(spec, batch=12)
    circuit = ip.Circuit(plant(spec), **spec.task)
    statistics = ScanStatistics(circuit, tokens, torch.tensor([10, 40]), lags=2)
    part = statistics.token_part(slice(0, 12))
    for row, t in enumerate((9, 39)):
        masks = ip.match_masks(tokens[:, : t + 1], order=2)
        expected = torch.where(masks >= 0, masks, 5)
        assert torch.equal(part.groups[:, row, 1 : t + 2], expected)
        assert (part.groups[:, row, 0] == 4).all()
        assert (part.groups[:, row, t + 2 :] == 6).all()
        counts = ip.mask_counts(tokens[:, : t + 1], order=2, vocab=5).sum(-1)
        assert torch.equal(statistics.seen.counts[:, row, :4], counts.double())
        assert statistics.seen.counts[0, row, 4:].tolist() == [1.0, 2.0]


# ---- a language model behind TransformerLens' bridge


@pytest.mark.parametrize("kind", sorted(tiny_language.KINDS))
def test_a_language_model_is_scanned_head_by_head_alike(kind: str, tmp_path: Path) -> None:
    """Rotary positions and grouped keys, or learned positions; an alphabet for every sequence; random weights."""
    language = ip.load_language_model(tiny_language.write(tiny_language.KINDS[kind](), tmp_path / "model"))
    rng = np.random.default_rng(0)
    tokens = torch.from_numpy(rng.integers(5, size=(20, 40)))
    symbols = np.stack([rng.permutation(np.arange(1, 90))[:5] for _ in range(20)])
    task = {"order": 2, "vocab": 5, "bos": 0, "symbols": symbols}
    scan = ip.scan_heads(language.model, tokens, **task, query=[20, 39])
    assert set(roles(scan).values()) == {"none"}
    assert len(scan.heads) == 8
    for at in ((0, 1), (1, 3)):
        cap = ip.capture(ip.Circuit(language.model, **task, match_heads=(at,)), tokens, query=[20, 39])
        fit = ip.fit_scores(cap)
        assert scan.r2_match[at] == pytest.approx(fit.r2_match, abs=1e-4)
        mass = ip.overlap_mass(cap)
        assert scan.mass[at][:3].tolist() == pytest.approx(mass.by_overlap.tolist(), abs=1e-5)
    found = ip.find_circuit(language.model, tokens, **task, scan=scan)
    assert not found.success
