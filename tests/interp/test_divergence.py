"""The one KL: exact where nothing is zero, floored where it must be, and honest about how often."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.special import rel_entr

from interp.divergence import KL_FLOOR, kl_divergence


def laws(rows: int, vocab: int, seed: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).dirichlet(np.ones(vocab), size=rows))


def test_equals_scipy_and_leaves_positive_predictions_alone():
    truth, prediction = laws(500, 4, 0), laws(500, 4, 1)
    result = kl_divergence(truth, prediction)
    expected = rel_entr(truth.numpy(), prediction.numpy()).sum(-1)
    kept = (prediction >= KL_FLOOR).all(-1).numpy()
    np.testing.assert_allclose(result.values.numpy()[kept], expected[kept], atol=1e-12)
    assert result.mean == pytest.approx(expected.mean())
    assert result.stderr == pytest.approx(expected.std(ddof=1) / math.sqrt(500))
    assert result.n == 500


def test_a_law_has_no_distance_from_itself():
    truth = laws(10, 3, 0)
    assert kl_divergence(truth, truth).mean == pytest.approx(0.0, abs=1e-15)


def test_floor_is_applied_only_where_a_possible_symbol_got_nothing():
    truth = torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.2, 0.3, 0.5]], dtype=torch.float64)
    prediction = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.2, 0.3, 0.5]], dtype=torch.float64)
    result = kl_divergence(truth, prediction)
    total = 1.0 + 2 * KL_FLOOR
    floored = 0.5 * math.log(0.5 * total) + 0.5 * math.log(0.5 * total / KL_FLOOR)
    assert result.values.tolist() == pytest.approx([floored, 0.0, 0.0])
    assert result.floored == pytest.approx(1 / 3)
    assert "33.3%" in str(result)


def test_positions_of_one_sequence_are_one_cluster():
    truth, prediction = laws(40, 3, 0), laws(40, 3, 1)
    once = kl_divergence(truth, prediction)
    repeated = kl_divergence(truth[:, None].expand(-1, 7, -1), prediction[:, None].expand(-1, 7, -1))
    assert repeated.values.shape == (40, 7)
    assert repeated.stderr == pytest.approx(once.stderr)


def test_table_and_record():
    result = kl_divergence(laws(5, 3, 0), laws(5, 3, 1))
    assert list(result.table().columns) == list(result.record()) == ["mean", "stderr", "floored", "floor", "n"]
