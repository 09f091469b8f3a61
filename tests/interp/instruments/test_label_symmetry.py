"""Label symmetry: zero for what is symmetric, the definition term by term, and large for what is not."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from interp.circuit.circuit import Circuit
from interp.circuit.runner import predict
from interp.hooked.construction import construct
from interp.instruments.label_symmetry import label_symmetry
from tests.planted import chains, planted_foreign, trained_like, without_mechanism


@pytest.mark.parametrize("kappa", [None, 1.5])
@pytest.mark.parametrize(("order", "vocab"), [(1, 2), (2, 4), (3, 3)])
def test_a_construction_does_not_know_its_labels(order: int, vocab: int, kappa: float | None) -> None:
    model = construct(order=order, vocab=vocab, length=16, beta=(2.7, 1.2, 0.4)[:order], kappa=kappa)
    found = label_symmetry(model, chains(order=order, vocab=vocab, length=16, batch=20).tokens)
    assert found.kl == pytest.approx(0.0, abs=1e-14)
    assert found.max == pytest.approx(0.0, abs=1e-12)
    assert found.exhaustive
    assert len(found.relabelings) == math.factorial(vocab) - 1


def test_the_definition_term_by_term() -> None:
    """T^(sigma)(x)(m) = T(sigma(x))(sigma(m)), over every sigma but the identity."""
    model, tokens = without_mechanism(vocab=3, scale=0.2, readout="logit"), chains(vocab=3, batch=6).tokens
    base = predict(model, tokens).numpy()
    values = []
    for names in list(itertools.permutations(range(3)))[1:]:
        relabeled = predict(model, torch.tensor(names)[tokens]).numpy()
        moved = np.stack([relabeled[:, names[m]] for m in range(3)], axis=1)
        values.append([sum(p * math.log(p / q) for p, q in zip(*row, strict=True)) for row in zip(base, moved)])  # noqa: B905
    found = label_symmetry(model, tokens)
    np.testing.assert_allclose(found.by_relabeling, np.mean(values, axis=1), rtol=1e-6)
    assert found.kl == pytest.approx(np.mean(values), rel=1e-6)
    assert found.max == pytest.approx(np.max(values), rel=1e-6)
    # Relabelings of one sequence are no independent evidence.
    assert found.stderr == pytest.approx(np.std(np.mean(values, axis=0), ddof=1) / math.sqrt(6), rel=1e-6)
    assert found.worst_kl == found.by_relabeling.max()


def test_it_grows_with_the_asymmetry_and_random_weights_fail() -> None:
    tokens = chains(batch=32).tokens
    values = [label_symmetry(trained_like(noise=noise), tokens).kl for noise in (0.0, 0.02, 0.1)]
    assert values[0] < 1e-14 < values[1] < values[2]
    assert label_symmetry(without_mechanism(), tokens).kl > 10 * values[1]


def test_other_seeds_are_the_scale() -> None:
    model, tokens = trained_like(noise=0.02), chains(batch=32).tokens
    others = [trained_like(noise=0.02, seed=seed) for seed in (1, 2)]
    found = label_symmetry(model, tokens, other_models=others)
    assert found.other_models == 2
    # A relabeled model differs from itself by two of its own noises, as another seed does: about the same.
    assert 0.3 < found.ratio < 3.0
    assert found.ratio == pytest.approx(found.kl / found.seeds_kl)
    assert label_symmetry(model, tokens, other_models=[model]).seeds_kl == 0.0
    assert math.isnan(label_symmetry(model, tokens).ratio)


def test_many_labels_are_sampled() -> None:
    model, tokens = construct(order=1, vocab=7, length=12, beta=(2.0,)), chains(order=1, vocab=7, length=12).tokens
    found = label_symmetry(model, tokens[:8], draws=10, seed=3)
    assert not found.exhaustive
    assert found.relabelings.shape == (10, 7)
    assert len({tuple(row) for row in found.relabelings.tolist()} | {tuple(range(7))}) == 11
    assert np.array_equal(found.relabelings, label_symmetry(model, tokens[:8], draws=10, seed=3).relabelings)
    assert "10 sampled" in str(found)


def test_someone_elses_model() -> None:
    tokens = chains(order=1, vocab=5, length=16, batch=8).tokens
    assert label_symmetry(Circuit(planted_foreign(), order=1), tokens).kl == pytest.approx(0.0, abs=1e-12)


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="draws must be an integer >= 1, got 0"):
        label_symmetry(trained_like(), chains(batch=2).tokens, draws=0)
    with pytest.raises(ValueError, match="share the vocabulary of 4 symbols, not 3"):
        label_symmetry(trained_like(), chains(batch=2).tokens, other_models=[trained_like(vocab=3)])
    with pytest.raises(ValueError, match="outside the vocabulary"):
        label_symmetry(trained_like(vocab=3), chains(batch=8).tokens)
