"""A series of models is tracked: planted betas come back, steps are found, and random models show nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

import interp as ip
from interp.hooked.checkpoint import CONFIG_FILE
from tests.planted_heads import Plant, plant, random_transformer

BETAS = (0.0, 1.5, 2.5, 3.5)
STEPS = (0, 100, 400, 1000)
KAPPA = 1.0
QUERIES = range(8, 39, 3)


def spec_of(beta: float) -> Plant:
    return Plant(order=1, copies={1: ((0, 1),)}, matches={(2, 0): ((beta,), KAPPA if beta else 0.0)})


def chains() -> ip.ChainBatch:
    return ip.IndependentDirichlet(order=1, vocab=5).sample(batch=200, length=40, seed=1)


def tokens() -> torch.Tensor:
    return chains().tokens


def planted(betas: tuple[float, ...] = BETAS, **more: Any) -> Any:
    task = {**spec_of(1.0).task, "query": QUERIES, "steps": STEPS[: len(betas)], **more}
    return ip.track([plant(spec_of(beta), noise=0.01) for beta in betas], tokens(), **task)


def test_planted_betas_are_tracked() -> None:
    found = planted()
    assert found.steps.tolist() == list(STEPS)
    np.testing.assert_allclose(found.beta[:, 2, 0, 0], BETAS, atol=0.08)
    np.testing.assert_allclose(found.kappa[1:, 2, 0], KAPPA, atol=0.08)
    assert (found.copy_mass[:, 0, 1, 0] > 0.95).all()
    assert found.match_heads == ((2, 0),)
    assert found.success
    assert (np.diff(found.nats_explained[:, 2, 0])[:1] > 0.5).all()
    assert not np.nan_to_num(found.beta[:, 0, 1]).any()  # a copy head has no beta, or none but 0


def test_the_table_has_every_head_of_every_model() -> None:
    found = planted((0.0, 2.5))
    table = found.table()
    assert len(table) == 2 * 12
    row = table[(table.step == 100) & (table.layer == 2) & (table["head"] == 0)].iloc[0]
    assert (row.role, round(row.beta_1, 1)) == ("match", 2.5)
    assert row.loss == found.loss[1]
    assert "2 models, steps 0 to 100" in str(found)


def test_the_loss_is_that_of_the_next_token() -> None:
    found = planted((2.5,))
    laws = ip.predict(ip.Circuit(plant(spec_of(2.5), noise=0.01), **spec_of(2.5).task), tokens(), every_position=True)
    given = laws[:, :-1].gather(2, tokens()[:, 1:, None])[..., 0]
    assert found.loss[0] == pytest.approx(-float(given[:, list(QUERIES)].log().mean()), abs=1e-6)
    assert np.isnan(planted((2.5,), query="last").loss[0])  # it has no next token


def test_the_picture_follows_the_heads_of_the_end() -> None:
    found = planted()
    panels = found.plot().child_axes
    assert [ax.get_ylabel() for ax in panels] == ["loss (nats)", "copy mass", r"$\beta$", r"$\kappa$", "explained"]
    (line,) = panels[2].lines
    np.testing.assert_array_equal(line.get_ydata(), found.beta[:, 2, 0, 0])
    plt.close("all")


def test_random_models_show_no_match() -> None:
    models = [random_transformer(seed) for seed in range(3)]
    found = ip.track(models, tokens(), order=1, vocab=5, query=QUERIES)
    assert not found.success
    assert "match" not in set(found.table().role)
    assert "no head matches" in found.message


def test_steps_of_checkpoints_names_and_places(tmp_path: Path) -> None:
    model = ip.construct(order=1, vocab=5, length=40, beta=(2.0,), kappa=KAPPA)
    for name, step in (("late", 700), ("step200", None)):
        ip.save(model, tmp_path / name, training=None if step is None else {"step": step})
    found = ip.track([tmp_path / "late", str(tmp_path / "step200"), model], chains())
    assert found.steps.tolist() == [2, 200, 700]  # in order, whatever the order in which they came
    assert found.provenance["checkpoint"] == str(tmp_path / "late")


def test_a_checkpoint_of_half_precision_is_tracked(tmp_path: Path) -> None:
    exact = ip.Circuit(plant(spec_of(2.5)).float(), **spec_of(2.5).task)
    exact.model.cfg.dtype = torch.float32
    ip.save(exact, tmp_path / "half", half=True)
    ip.save(exact, tmp_path / "full")
    sizes = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("half", "full")]
    assert sizes[0] < 0.6 * sizes[1]
    assert (tmp_path / "half" / CONFIG_FILE).read_text() == (tmp_path / "full" / CONFIG_FILE).read_text()
    found = ip.track([tmp_path / "half", tmp_path / "full"], tokens(), query=QUERIES)
    assert found.beta[0, 2, 0, 0] == pytest.approx(found.beta[1, 2, 0, 0], abs=2e-3)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"steps": (0,)}, "1 steps for more models"),
        ({"steps": (0, 1, 2)}, "2 models for 3 steps"),
        ({"steps": (0, -1)}, "steps must be"),
        ({"models": ()}, "0 models"),
        ({"models": ("nowhere",)}, "no such checkpoint"),
    ],
)
def test_what_is_no_series_is_refused(change: dict[str, Any], words: str) -> None:
    model = ip.construct(order=1, vocab=5, length=40, beta=(2.0,))
    options = {"models": (model, model), **change}
    with pytest.raises(ValueError, match=words):
        ip.track(options.pop("models"), tokens(), **options)


def test_models_of_other_heads_are_no_series() -> None:
    two = [ip.construct(order=order, vocab=5, length=40, beta=(2.0,) * order) for order in (1, 2)]
    with pytest.raises(ValueError, match="the same heads"):
        ip.track(two, tokens())
