"""Models from elsewhere are saved with their circuit and come back the same; what is damaged is refused in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import interp as ip
from interp.hooked.foreign import KEYS
from interp.lens import HookedTransformer
from tests import tiny_language
from tests.interp.instruments.test_scan_heads import tokens_for
from tests.planted import DEEP, planted_deep, trained_like
from tests.planted_heads import PLANTS, plant, random_transformer


@pytest.mark.parametrize(
    "name",
    [
        "two match heads",
        "rotary, no BOS",
        "grouped keys",
        "symbols of a larger vocabulary",
        "the first token as BOS",
    ],
)
def test_a_circuit_comes_back_the_same(name: str, tmp_path: Path) -> None:
    spec = PLANTS[name]
    circuit = ip.Circuit(
        plant(spec, noise=0.01),
        **spec.task,
        match_heads=tuple(spec.matches),
        copy_heads=[spec.copies[lag][0] for lag in range(1, spec.order + 1)],
    )
    ip.save(circuit, tmp_path / "a", training={"prior": None})
    again = ip.load(tmp_path / "a")
    assert isinstance(again, ip.Circuit)
    assert repr(again) == repr(circuit)
    assert again.dtype == torch.float64
    tokens = tokens_for(spec, batch=12)
    assert torch.equal(ip.predict(again, tokens), ip.predict(circuit, tokens))
    assert sorted(file.name for file in (tmp_path / "a").iterdir()) == ["config.json", "model.safetensors"]
    info = ip.read_info(tmp_path / "a")
    assert (info.model["family"], info.model["order"], info.model["bos"]) == ("foreign", spec.order, spec.bos)
    assert info.model["length"] == spec.length  # the context holds one token more
    assert not info.one_hot
    ip.save(again, tmp_path / "a")  # a checkpoint may be replaced


@pytest.mark.parametrize("options", [{}, {"rotary": True}, {"attn_only": True}, {"scale": 3.0}])
def test_layernorm_mlp_and_float32(options: dict[str, Any], tmp_path: Path) -> None:
    circuit = ip.Circuit(random_transformer(1, **options), order=1)
    ip.save(circuit, tmp_path / "b", length=20)
    again = ip.load(tmp_path / "b")
    assert again.match_heads == ()
    assert not again.copy_heads
    assert ip.read_info(tmp_path / "b").model["length"] == 20
    ids = torch.arange(6).repeat(2, 4)
    assert torch.equal(again.model(ids, prepend_bos=False), circuit.model(ids, prepend_bos=False))


def test_only_the_architecture_is_saved_and_read(tmp_path: Path) -> None:
    """A tokenizer, hooks and a download's name belong to the session that made the model."""
    model = random_transformer(1)
    model.cfg.tokenizer_name, model.cfg.trust_remote_code, model.cfg.use_attn_result = "gpt2", True, True
    ip.save(ip.Circuit(model, order=1), tmp_path / "a")
    document = json.loads((tmp_path / "a" / "config.json").read_text())
    assert set(document["transformer"]) == set(KEYS)
    again: Any = ip.load(tmp_path / "a")
    assert getattr(again.model.cfg, "tokenizer_name", None) is None  # the config of a Decoder has no such field
    assert not getattr(again.model.cfg, "trust_remote_code", False)
    assert not again.model.cfg.use_attn_result


def test_configs_of_earlier_versions_are_read() -> None:
    """They hold every field of TransformerLens' config."""
    folder = Path(__file__).parents[3] / "models" / "foreign" / "four_heads"
    document = json.loads((folder / "config.json").read_text())
    assert set(document["transformer"]) > set(KEYS)
    assert set(ip.read_info(folder).model["transformer"]) == set(KEYS)


@torch.no_grad()
def exchanged() -> HookedTransformer:
    """A layer that the config does not know."""
    model = random_transformer(1)
    model.blocks[1].mlp = torch.nn.Linear(24, 24)
    return model


def altered(**values: Any) -> HookedTransformer:
    """A model whose config says something that a checkpoint has no key for."""
    model = random_transformer(1)
    for name, value in values.items():
        setattr(model.cfg, name, value)
    return model


@pytest.mark.parametrize(
    ("thing", "message"),
    [
        (lambda: random_transformer(1), r"got \w+: give ip.Circuit\(model, order=...\)"),
        (lambda: "model", "expected a model of this suite or a Circuit, got str"),
        (lambda: ip.Circuit(trained_like()), "save the model, which says where its circuit sits"),
        (lambda: ip.Circuit(exchanged(), order=1), "config does not describe it: parameter blocks.1.mlp"),
        (lambda: ip.Circuit(altered(use_yarn_rope=True), order=1), "cannot hold a model with use_yarn_rope=True"),
        (
            lambda: ip.Circuit(altered(attention_dir="bidirectional"), order=1),
            "attention_dir(='bidirectional' needs| must be one of causal)",
        ),
        (
            lambda: ip.Circuit(planted_deep(names=(6, 0, 3, 5)), bos=8, symbols=[[6, 0, 3, 5]] * 4, **DEEP),
            "belong to the sequences",
        ),
    ],
)
def test_what_cannot_be_saved_is_refused_in_one_line(thing: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        ip.save.__wrapped__(thing(), tmp_path / "f") if hasattr(ip.save, "__wrapped__") else ip.save(
            thing(), tmp_path / "f"
        )
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "f").exists()


def test_a_language_model_is_not_saved(tmp_path: Path) -> None:
    language = ip.load_language_model(tiny_language.write(tiny_language.gpt2(), tmp_path / "model"))
    with pytest.raises(ValueError, match="only a HookedTransformer can be saved, got"):
        ip.save(ip.Circuit(language.model, order=1, vocab=4, symbols=(5, 6, 7, 8)), tmp_path / "g")
