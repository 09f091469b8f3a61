"""Character models: the text in characters, the trainer with its snapshots, and the study along them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import interp as ip
from analyses.cache import Cache
from analyses.text_training import Options, snapshots, study
from models.text.characters import Characters, alice
from models.text.run import TextRun, losses, main, make_model, read_run, save_run

SMALL = {
    "n_layers": 2,
    "n_heads": 2,
    "d_model": 16,
    "d_head": 8,
    "d_mlp": 16,
    "act_fn": "gelu",
    "normalization_type": "LN",
    "positional_embedding_type": "rotary",
    "rotary_dim": 8,
}


def run(**more: object) -> TextRun:
    options = {"transformer": SMALL, "length": 150, "batch": 2, "steps": 6, "learning_rate": 1e-2, "warmup": 5}
    return TextRun(**{**options, "snapshots": 3, **more})  # type: ignore[arg-type]


def test_windows_are_pieces_of_the_text() -> None:
    text = alice()
    drawn = text.drawn(batch=4, length=30, generator=torch.Generator().manual_seed(0))
    held = text.held_out(batch=5, length=30)
    words = ["".join(text.alphabet[place] for place in row) for row in torch.cat([drawn, held]).tolist()]
    places = [text.text.index(word) for word in words]
    assert all(place + 30 <= text.split for place in places[:4])
    assert all(place >= text.split for place in places[4:])
    twice = text.repeated(batch=3, length=20, seed=0)
    torch.testing.assert_close(twice[:, :20], twice[:, 20:])
    assert all(len(set(row[:20])) == 20 for row in twice.tolist())


def test_the_loss_is_that_of_the_next_character_after_bos() -> None:
    model, text = make_model(run(), vocab=5), Characters(text="abcdeabcde")
    tokens = text.ids[None]
    found = losses(model, tokens, bos=5)
    with torch.no_grad():
        logits = model(torch.tensor([[5, *tokens[0].tolist()]]), prepend_bos=False)[0, :-1]
    expected = -torch.log_softmax(logits, -1).gather(1, tokens[0][:, None])[:, 0]
    torch.testing.assert_close(found[0], expected)


def test_a_run_keeps_its_snapshots_and_the_study_reads_them(tmp_path: Path) -> None:
    said: list[str] = []
    record = save_run(run(repeated=0.5), alice(), tmp_path / "some", say=said.append)
    assert [json.loads(line)["step"] for line in said] == [0, 1, 6]
    assert record["held_out_loss"] < json.loads(said[0])["held_out_loss"]
    circuit = ip.load(tmp_path / "some")
    assert isinstance(circuit, ip.Circuit)
    assert circuit.bos == circuit.vocab == alice().vocab
    with pytest.raises(ValueError, match="is there already"):
        save_run(run(), alice(), tmp_path / "some", say=said.append)
    options = Options(batch=20, histories=tmp_path)
    assert [len(paths) for paths in snapshots(options).values()] == [3]
    found = study(options, Cache(None))
    assert [row["step"] for row in found.rows] == [0, 1, 6]
    last = found.rows[-1]
    assert last["repeated"] == 0.5
    assert last["nats_explained"] < 0.25  # six steps make no matching head
    assert last["induction"] >= last["others"]
    assert abs(last["gain"]) < 0.5
    with pytest.raises(ValueError, match="has no runs with snapshots"):
        study(Options(histories=tmp_path / "nowhere"), Cache(None))


def test_study_files_and_what_is_wrong_with_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path(__file__).parent.parent / "models" / "text"
    assert read_run(folder / "alice.toml").repeated == 0
    assert read_run(folder / "alice_twice.toml").repeated > 0
    (tmp_path / "bad.toml").write_text("[transformer]\nn_layers = 2\n")
    assert main([str(tmp_path / "bad.toml"), "--out", str(tmp_path / "x")]) == 2
    assert "no table training" in capsys.readouterr().err
