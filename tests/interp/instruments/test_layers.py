"""The law by layer: it forms where the planted circuit writes, and ends at the model's own prediction."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import interp as ip
from tests import tiny_language
from tests.planted import DEEP, chains, planted_deep, without_mechanism


def test_a_planted_law_forms_in_the_layer_that_matches() -> None:
    given = chains(batch=40)
    circuit = ip.Circuit(planted_deep(), bos=True, **DEEP)
    found = ip.law_by_layer(circuit, given.tokens, next_law=given.next_law)
    assert found.from_final.shape == (5,)
    assert found.formed == 3
    assert found.from_final[-1] == pytest.approx(0.0, abs=1e-12)
    assert found.kl[:4] == pytest.approx(found.uniform)  # nothing is written before the last layer
    assert found.mass == pytest.approx(np.ones(5))
    expected = ip.kl_divergence(given.next_law, ip.predict(circuit, given.tokens)).values.mean()
    assert found.kl[-1] == pytest.approx(float(expected))
    assert found.table()["layer"].tolist() == [-1, 0, 1, 2, 3]
    assert "after layer 3" in str(found)
    drawn = found.plot().lines[0].get_ydata()
    assert drawn == pytest.approx(found.from_final)


def test_without_a_truth_there_is_no_loss() -> None:
    found = ip.law_by_layer(ip.Circuit(planted_deep(), bos=True, **DEEP), chains(batch=8).tokens)
    assert np.isnan(found.kl).all()
    assert found.formed == 3


@pytest.mark.parametrize("kind", sorted(tiny_language.KINDS))
def test_language_models_end_at_their_own_prediction(kind: str, tmp_path: Path) -> None:
    language = ip.load_language_model(tiny_language.write(tiny_language.KINDS[kind](layers=3), tmp_path))
    given = ip.prompts(language, chains(batch=10), alphabet=[" red", " blue", " cat", " dog"], fresh=True)
    circuit = ip.Circuit(language.model, order=2, match_heads=((1, 0),), **given.place)
    found = ip.law_by_layer(circuit, given.tokens)
    assert found.from_final.shape == (4,)
    assert found.from_final[-1] == pytest.approx(0.0, abs=1e-5)
    assert found.from_final[0] > 0.01
    assert 0 < found.mass[-1] < 0.5


def test_models_of_the_suite_have_layers_too() -> None:
    model = without_mechanism(family="standard", readout="logit", d_model=16, d_mlp=8)
    given = chains(batch=12)
    found = ip.law_by_layer(model, given.tokens)
    torch.testing.assert_close(torch.tensor(found.from_final[-1]), torch.tensor(0.0, dtype=torch.float64))
