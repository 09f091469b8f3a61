"""Families are described once: a fourth one, registered here, trains, is measured and is drawn."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex

import interp as ip
from figures.beyond import lag_asymmetry
from models.families import registry as families
from models.families.registry import (
    AT_ONE_DISTANCE,
    FAMILIES,
    READ_BESIDE_VOTES,
    STANDARD,
    drawing_order,
    find_family,
    register_family,
    start_name,
)
from models.families.standard.trainer import StandardTrainer
from models.running.zoo import measure
from models.training.run import run
from models.training.spec import make_spec
from models.training.trainers import fast_predict, make_trainer

ROOT = Path(__file__).parents[2]


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> families.Family:
    monkeypatch.setattr(families, "FAMILIES", dict(FAMILIES))
    return register_family(
        replace(
            STANDARD,
            name="narrow",
            label="narrow, trained",
            trained_label="trained, narrow",
            colour="#e07a5f",
            marker="v",
            trainer=lambda spec: StandardTrainer(spec, d_model=8, d_mlp=12),
        )
    )


def test_a_fourth_family_trains_loads_and_is_measured(narrow: families.Family, tmp_path: Path) -> None:
    spec = make_spec(family="narrow", prior="hierarchical:5", vocab=3, bos=False, length=9, steps=20, init="copy(3)")
    run(spec, tmp_path / "a", progress=False)
    model = ip.load(tmp_path / "a")
    assert (model.config.family, model.cfg.d_model, model.config.one_hot) == ("narrow", 8, False)
    row = measure(tmp_path / "a", "a")
    assert (row["family"], row["readout"]) == ("narrow", "logit")
    tokens = spec.build_prior().sample(batch=8, length=9, seed=0).tokens
    np.testing.assert_allclose(fast_predict(model, tokens), ip.predict(model, tokens), atol=2e-6)
    with pytest.raises(ValueError, match="freeze of the narrow family must be nothing"):
        make_spec(family="narrow", prior="hierarchical:5", bos=True, length=9, freeze="copies")


def test_a_fourth_family_is_drawn_in_its_own_colour(narrow: families.Family) -> None:
    assert drawing_order() == ["disentangled", "standard", "narrow", "construction"]
    numbers = {"beta_1": 2.0, "beta_2": 1.0, "raw_1": None, "raw_2": None, "fit": True, "subject": {"bos": True}}
    kinds = {"narrow": "geometric", "standard": "independent"}
    rows = [{"family": name, "prior": kind, **numbers} for name, kind in kinds.items()]
    with pytest.warns(UserWarning, match="panel left out"):  # there are no weight blocks to draw
        figure = lag_asymmetry.draw({"lag_asymmetry": rows})
    drawn = {text.get_text() for text in figure.legends[0].get_texts()}
    assert {f"{narrow.label}, geometric, BOS", f"{STANDARD.label}, independent, BOS"} <= drawn
    colours = {to_hex(line.get_color()) for line in figure.axes[0].lines}
    assert {"#e07a5f", STANDARD.colour} <= colours
    plt.close(figure)


@pytest.mark.parametrize(
    ("family", "settings", "name"),
    [
        ("disentangled", {"init": "hard"}, "hard"),
        ("disentangled", {"init": "random(0.3),copies=hard"}, "hard"),
        ("disentangled", {"init": "copy(40)"}, "hard"),
        ("standard", {"init": "copy(40)"}, "hard"),
        ("standard", {"init": "copy(39.5)"}, "copy39.5"),
        ("standard", {"init": "copy(8)"}, "copy8"),
        ("disentangled", {"init": "copy(5)"}, "soft"),
        ("disentangled", {"init": "random(50)"}, "soft"),
        ("disentangled", {"init": "zero"}, "soft"),
        ("standard", {"init": "random(0)"}, "soft"),
        ("construction", {"init": "beta(1)"}, "free"),
        ("construction", {"init": "beta(1)", "kappa": "tied(1)"}, "kappa_tied"),
        ("construction", {"init": "beta(1)", "kappa": "fixed(0)"}, "kappa_fixed"),
    ],
)
def test_a_start_has_a_name(family: str, settings: dict[str, str], name: str) -> None:
    assert start_name(family, **settings) == name


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_says_what_its_models_say(name: str) -> None:
    family = find_family(name)
    spec = make_spec(family=name, prior="independent:1", vocab=3, bos=True, length=8)
    assert (spec.init, spec.readout) == (family.init, family.readouts[0])
    config = make_trainer(spec).hooked().config
    assert (config.family, config.one_hot, config.analytic) == (name, family.blocks, family.analytic)
    assert config.readout == spec.readout
    for form in family.starts.whole:
        assert set(family.starts.parse(re.sub("[A-Z]+", "1", form))) == set(family.starts.parts)
    assert set(family.freezable) <= {*family.starts.parts, *READ_BESIDE_VOTES, *AT_ONE_DISTANCE}


def test_families_are_told_apart_by_name_and_looks() -> None:
    with pytest.raises(ValueError, match="family must be one of construction, disentangled, standard, got 'hybrid'"):
        find_family("hybrid")
    with pytest.raises(ValueError, match="there is a family standard already"):
        register_family(replace(STANDARD, colour="#000000"))
    assert register_family(STANDARD) is STANDARD
    for field in ("label", "short", "trained_label", "colour", "marker"):
        assert len({getattr(family, field) for family in FAMILIES.values()}) == len(FAMILIES), field


def test_nothing_compares_the_name_of_a_family() -> None:
    """What a family can do is asked of it, or of the model: a new one must not meet an else meant for another."""
    found = [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for package in ("interp", "models", "analyses", "figures")
        for file in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Compare) and "family" in ast.unparse(node)
        for side in (node.left, *node.comparators)
        if isinstance(side, ast.Constant) and side.value in FAMILIES
    ]
    assert not found
