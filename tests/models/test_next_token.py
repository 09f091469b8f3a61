"""The trainer of plain next-token models: its loss, its snapshots, and the shipped study files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import interp as ip
from models.families.next_token import NextTokenRun, main, next_token_loss

FORMATION = Path(__file__).parents[2] / "models" / "formation"
ATTENTION = {
    "n_layers": 2,
    "n_heads": 2,
    "d_model": 8,
    "d_head": 4,
    "attn_only": True,
    "normalization_type": "LN",
    "positional_embedding_type": "rotary",
    "rotary_dim": 4,
}
WITH_MLP = {
    **ATTENTION,
    "attn_only": False,
    "d_mlp": 8,
    "act_fn": "gelu",
    "positional_embedding_type": "standard",
    "rotary_dim": None,
}


@pytest.mark.parametrize("bos", [False, True], ids=["no BOS", "BOS"])
@pytest.mark.parametrize("shape", [ATTENTION, WITH_MLP], ids=["without hooks", "the model's own"])
def test_the_loss_is_that_of_the_next_token(shape: dict[str, Any], bos: bool) -> None:
    run = NextTokenRun(transformer=shape, length=9, batch=1, steps=1, learning_rate=0.1, prior={}, bos=bos)
    model = run.start(positions=9 + bos, vocab=5 + bos, out=5)
    tokens = torch.randint(5, (3, 9), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        for parameter in model.parameters():  # biases start at zero, which would hide them
            parameter += 0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0))
        found = float(next_token_loss(model, tokens, bos=bos))
        inputs = torch.nn.functional.pad(tokens, (1, 0), value=5) if bos else tokens
        logs = torch.log_softmax(model(inputs, prepend_bos=False)[:, :-1], dim=-1)
    expected = -float(logs.gather(2, inputs[:, 1:, None]).mean())
    assert found == pytest.approx(expected, abs=1e-5)


def test_a_run_with_snapshots_is_a_series(tmp_path: Path) -> None:
    study = (FORMATION / "two_layers_bos.toml").read_text().replace("batch = 32", "batch = 4")
    study = study[: study.index("snapshots")] + "snapshots = [0, 2]\n" + study[study.index("learning_rate") :]
    (tmp_path / "small.toml").write_text(study)
    assert main([str(tmp_path / "small.toml"), "--out", str(tmp_path / "run"), "--steps", "3", "--seed", "4"]) == 0
    places = sorted((tmp_path / "run").iterdir())
    assert [path.name for path in places] == ["step_00000000", "step_00000002", "step_00000003"]
    records = [ip.read_info(path).training for path in places]
    assert [record["step"] for record in records if record is not None] == [0, 2, 3]
    circuit = ip.load(places[-1])
    assert isinstance(circuit, ip.Circuit)
    assert (circuit.bos, circuit.order, circuit.match_heads) == (32, 1, ())
    assert ip.read_info(places[0]).prior.text == "repeats:8,32"


def test_the_shipped_runs_are_those_of_their_study_files() -> None:
    for file in sorted(FORMATION.glob("*.toml")):
        run = NextTokenRun.read(file)
        for folder in sorted(FORMATION.glob(f"{file.stem}/seed_*")):
            places = sorted(folder.iterdir())
            records = [ip.read_info(place).training or {} for place in places]
            assert [record["step"] for record in records] == list(run.snapshots)
            assert {f"seed_{record['seed']}" for record in records} == {folder.name}
            assert all(record["prior"] == run.prior and record["bos"] == run.bos for record in records)
    assert sum(path.stat().st_size for path in FORMATION.rglob("*") if path.is_file()) < 5e6
