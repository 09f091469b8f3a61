"""The table of the checkpoints: measured, cached by the weights, finished runs only."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import interp as ip
from models.running import zoo
from models.running.zoo import find_checkpoints, find_zoos, zoo_command, zoo_rows
from models.training.run import run
from models.training.spec import make_spec
from models.training.trainers import fast_predict, make_trainer

PRIOR = ip.HierarchicalDirichlet(order=2, vocab=3, eta=(5.0, 5.0)).to_dict()


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(zoo, "HELD_OUT_SEQUENCES", 400)
    zoo._held_out.cache_clear()
    zoo._best_construction_values.cache_clear()
    for family, steps in (("construction", 1500), ("disentangled", 30), ("standard", 3)):
        # LayerNorm takes the BOS vector to zero: until biases have grown, float32 leaves only rounding of it.
        spec = make_spec(family=family, prior=PRIOR, length=9, bos=family != "standard", steps=steps)
        run(spec, tmp_path / "zoo" / family / "T9_seed0", progress=False)
    model = ip.construct(order=2, vocab=3, length=9, beta=(1.0, 1.0), kappa=0.0)
    record = {**make_spec(family="construction", prior=PRIOR, length=9, bos=True).to_dict(), "status": "running"}
    ip.save(model, tmp_path / "zoo" / "construction" / "T9_seed1", training=record)
    return tmp_path / "zoo"


def test_the_table_measures_every_finished_checkpoint(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(find_checkpoints(root)) == 4
    rows = {row["family"]: row for row in zoo_rows(root)}
    assert set(rows) == {"construction", "disentangled", "standard"}
    chains = ip.prior_from_dict(PRIOR).sample(batch=400, length=9, seed=zoo.HELD_OUT_SEED, method="explicit")
    for family, row in rows.items():
        model = ip.load(root / row["checkpoint"])
        expected = ip.kl_divergence(chains.next_law, ip.predict(model, chains.tokens))
        assert row["kl"] == pytest.approx(expected.mean, abs=1e-5), family
        assert row["stderr"] == pytest.approx(expected.stderr, abs=1e-5), family
    assert not (root / "zoo.json").exists()  # reading writes nothing
    assert rows["construction"]["ratio"] == pytest.approx(1.0, abs=0.02)
    assert rows["disentangled"]["ratio"] > 1.05  # thirty steps do not train it

    assert zoo_rows(root, write=True) == list(rows.values())
    assert len(json.loads((root / "zoo.json").read_text())) == 3

    def refuse(path: Path, name: str) -> dict[str, object]:
        raise AssertionError(f"{name} was measured again")

    monkeypatch.setattr(zoo, "measure", refuse)
    assert zoo_rows(root) == list(rows.values())
    assert zoo_command(root, write=True, as_json=True) == 0
    assert len(json.loads(capsys.readouterr().out)["rows"]) == 3
    assert (root / "README.md").read_text().count("T9_seed0") == 3


def test_a_zoo_within_a_zoo_is_listed_by_itself(root: Path) -> None:
    inner = root / "inner"
    spec = make_spec(
        family="disentangled", prior=PRIOR, length=9, bos=True, steps=5, freeze="copies", init="hard", readout="logit"
    )
    run(spec, inner / "frozen" / "T9_seed0_logit", progress=False)
    assert inner / "frozen" / "T9_seed0_logit" in find_checkpoints(root)  # no zoo of its own yet
    (row,) = zoo_rows(inner, write=True)
    assert (row["readout"], row["freeze"], row["init"]) == ("logit", "copies", "hard")
    assert "| hard | copies |" in zoo.markdown("table", [row])
    assert "frozen" not in zoo.markdown("table", [{**row, "freeze": ""}]).splitlines()[0]
    assert find_zoos(root) == [inner]
    assert find_checkpoints(inner) == [inner / "frozen" / "T9_seed0_logit"]
    assert len(find_checkpoints(root)) == 4


def test_a_long_run_is_set_beside_the_shorter_one(root: Path) -> None:
    spec = make_spec(family="disentangled", prior=PRIOR, length=9, bos=True, protocol="long", steps=3000)
    run(spec, root / "disentangled" / "T9_seed0_long", progress=False)
    rows = {row["checkpoint"]: row for row in zoo_rows(root)}
    short, long = rows["disentangled/T9_seed0"], rows["disentangled/T9_seed0_long"]
    assert short["change"] is None
    assert long["change"] == pytest.approx(long["kl"] - short["kl"])
    assert 0 < long["change_stderr"] < long["stderr"] + short["stderr"]
    assert long["change"] < -zoo.GAINED * short["kl"]
    line = next(line for line in zoo.markdown("longer", [short, long]).splitlines() if "T9_seed0" in line)
    assert line.endswith("| **yes** |")
    settled = {**long, "change": -0.1 * zoo.GAINED * short["kl"]}
    assert zoo.markdown("longer", [settled]).endswith("| no |")
    zoo_rows(root, write=True)
    ours, theirs = (root / f"disentangled/T9_seed0{end}/model.safetensors" for end in ("", "_long"))
    ours.write_bytes(theirs.read_bytes())
    again = {row["checkpoint"]: row for row in zoo_rows(root)}
    assert again["disentangled/T9_seed0_long"]["change"] == 0  # measured anew


@pytest.mark.parametrize("family", ["construction", "disentangled", "standard"])
def test_the_fast_forward_is_the_hooked_one(family: str) -> None:
    if family == "construction":
        model = ip.construct(order=2, vocab=3, length=9, beta=(2.0, 1.0), kappa=1.0)
    else:
        model = make_trainer(make_spec(family=family, prior=PRIOR, length=9, bos=False, seed=3)).hooked()
    tokens = torch.from_numpy(np.random.default_rng(0).integers(0, 3, (20, 9)))
    np.testing.assert_allclose(fast_predict(model, tokens), ip.predict(model, tokens), atol=2e-6)


def test_the_table_on_a_terminal_has_runs_below_their_folder(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert zoo_command(root, write=True, as_json=False) == 0
    capsys.readouterr()
    assert zoo_command(root, write=False, as_json=False) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    for row in zoo_rows(root):
        folder, _, name = row["checkpoint"].rpartition("/")
        below = lines[lines.index(folder) + 2]
        assert below.split()[0] == name
        assert f"{row['kl']:.4f} ± {row['stderr']:.4f}" in below
    assert "  ratio       KL / best" in lines
