"""The four questions about attention, asked of checkpoints: a construction passes, random weights do not."""

from __future__ import annotations

import importlib
import json

import pytest

import interp as ip
from analyses.running.questions import options_of
from analyses.running.subject import Subject
from analyses.running.table import flat_rows
from tests.known_captures import random_model

QUESTIONS = ("copy_heads", "beta_kappa", "lag_pairs", "overlap_mass")


def ask(name: str, path, **options: object):
    module = importlib.import_module(f"analyses.checkpoint.{name}")
    given = options_of(name)(**{"batch": 64, **options})
    return module, module.analyse(Subject.open(path, given), given)


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_construction_passes_and_random_weights_fail(name, tmp_path):
    ip.save(ip.construct(order=2, vocab=4, length=30, beta=(2.7, 1.2), kappa=3.3), tmp_path / "built")
    module, result = ask(name, tmp_path / "built")
    assert result.success, result.message
    assert result.provenance["checkpoint"] == str(tmp_path / "built")
    record = result.record()
    json.dumps(record, allow_nan=False)
    shown = getattr(module, "compared", lambda row: flat_rows([row])[0])({"checkpoint": "built", **record})
    assert set(module.COLUMNS) <= set(shown)
    assert module.LEGEND
    assert len(str(result).splitlines()) <= 8
    assert len(result.table())
    model = random_model(order=2, vocab=4, length=30, bos=True, family="disentangled", scale=0.3, seed=0)
    ip.save(model, tmp_path / "random")
    assert not ask(name, tmp_path / "random")[1].success


def test_copy_heads_are_compared_by_lag_whatever_the_order_of_the_heads():
    compared = importlib.import_module("analyses.checkpoint.copy_heads").compared
    row = {
        "checkpoint": "a",
        "success": True,
        "lag": [2, 0, 1],
        "mass": [0.9, None, 0.8],
        "last_mass": [0.4, None, 0.3],
    }
    row |= {"mass": [0.9, None, 0.8], "last_mass": [0.4, None, 0.3]}
    assert compared(row) == {
        "checkpoint": "a", "success": True,
        "mass_lag_1": "0.800", "last_mass_lag_1": "0.300", "mass_lag_2": "0.900", "last_mass_lag_2": "0.400",
    }  # fmt: skip


def test_options_reach_the_instruments(tmp_path):
    ip.save(ip.construct(order=2, vocab=4, length=30, beta=(2.7, 1.2), kappa=3.3), tmp_path / "built")
    fit = ask("beta_kappa", tmp_path / "built", source="pattern", no_position=True)[1]
    assert fit.source == "pattern"
    assert fit.position_share == 0.0
    assert ask("beta_kappa", tmp_path / "built", query="all")[1].queries == 28
    every, last = (ask("overlap_mass", tmp_path / "built", query=query)[1].bos for query in ("all", "last"))
    assert abs(every - last) > 0.01
    with pytest.raises(ValueError, match="min_mass must be at most 1"):
        ask("copy_heads", tmp_path / "built", copies=2.0)
