"""Language models from strangers: each is refused in one line, or read without what it brings along."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import interp as ip
from interp.language import load as loading
from interp.language.config import bounded, check_memory
from interp.language.headers import read_gguf, read_safetensors
from interp.language.weights import LanguageModelError, find
from interp.staging import host
from tests import hostile_language, tiny_language
from tests.hostile_language import CANARY, FOLDERS, GGUF, HARMLESS

SECONDS = 900  # of all together; what is read for hours ends here
REFUSED = {f"GGUF: {name}": line for name, (_, line) in GGUF.items()}
REFUSED |= {f"folder: {name}": line for name, (_, line) in FOLDERS.items()}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hostile")


@pytest.fixture(scope="module")
def outcomes(root: Path) -> Any:
    """What became of each, in a process whose standard input says yes for ever."""
    pytest.importorskip("gguf", reason="GGUF files are read with the `language` extra")
    environment = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"}
    with subprocess.Popen(["yes"], stdout=subprocess.PIPE) as yes:
        done = subprocess.run(
            [sys.executable, "-m", "tests.hostile_language", str(root)],
            stdin=yes.stdout,
            capture_output=True,
            text=True,
            check=False,
            env=environment | {"INTERP_CACHE": str(root / "cache")},
            timeout=SECONDS,
        )
        yes.kill()
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_in_one_line(name: str, outcomes: Any) -> None:
    found = outcomes[name]
    assert found["kind"] == "LanguageModelError", found
    assert re.search(REFUSED[name], found["message"]), found
    assert "\n" not in found["message"]
    for code, out, err in found["commands"].values():
        assert (code, out) == (2, "")
        assert len([line for line in err.strip().splitlines() if not line.startswith("memory: ")]) == 1, err


@pytest.mark.parametrize("name", [f"folder: {name}" for name in HARMLESS])
def test_what_it_brings_along_is_left_alone(name: str, outcomes: Any) -> None:
    assert outcomes[name]["kind"] == "loaded", outcomes[name]


def test_no_code_ran_and_nothing_was_kept(root: Path, outcomes: Any) -> None:
    assert outcomes["good"]["kind"] == outcomes["good.gguf"]["kind"] == "loaded"
    assert not (root / CANARY).exists()
    assert outcomes["kept"]["before"] == outcomes["kept"]["after"]
    assert len(outcomes["kept"]["before"]) == 1


def test_the_canary_sings_when_code_runs(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    hostile_language.with_code(module="own")(tmp_path / "model")
    assert not (tmp_path / CANARY).exists()
    runpy.run_path(str(tmp_path / "model" / "own.py"))
    assert (tmp_path / CANARY).exists()


# ---- what a directory may look like


def sharded(folder: Path) -> Path:
    tiny_language.llama().save_pretrained(folder, max_shard_size="50KB")
    tiny_language.tokenizer().save_pretrained(folder)
    assert len(list(folder.glob("*.safetensors"))) > 1
    return folder


def in_the_hubs_cache(folder: Path) -> Path:
    """A snapshot as the hub's cache keeps it: links to files that are named by their digests."""
    snapshot = folder / "models--somebody--model" / "snapshots" / "0123"
    tiny_language.write(tiny_language.llama(), snapshot)
    (blobs := snapshot.parent.parent / "blobs").mkdir()
    for number, file in enumerate(sorted(snapshot.iterdir())):
        file.rename(blobs / f"{number:040x}")
        file.symlink_to(Path("../../blobs") / f"{number:040x}")
    return snapshot


@pytest.mark.parametrize("make", [sharded, in_the_hubs_cache])
def test_shards_and_snapshots_are_read(make: Any, tmp_path: Path) -> None:
    plain = ip.load_language_model(tiny_language.write(tiny_language.llama(), tmp_path / "plain"))
    other = ip.load_language_model(make(tmp_path / "other"))
    for (name, one), two in zip(plain.model.state_dict().items(), other.model.state_dict().values(), strict=True):
        assert one.equal(two), name


def test_a_snapshots_link_past_its_blobs_is_refused(tmp_path: Path) -> None:
    snapshot = in_the_hubs_cache(tmp_path)
    blob = (snapshot / "model.safetensors").resolve()
    blob.rename(tmp_path / "elsewhere")
    blob.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LanguageModelError, match=r"model\.safetensors is a link to another directory"):
        ip.load_language_model(snapshot)


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"])
def test_the_digest_covers_what_is_read(file: str, tmp_path: Path) -> None:
    folder = tiny_language.write(tiny_language.llama(), tmp_path)
    before = find(folder).digest
    (folder / "README.md").write_text("not read")
    assert find(folder).digest == before
    other = bytearray((folder / file).read_bytes())
    other[-1] ^= 1
    (folder / file).write_bytes(other)
    assert find(folder).digest != before


def test_the_digest_of_weights_full_of_holes_is_not_taken(tmp_path: Path) -> None:
    """It would take hours; the header says how long the file is."""
    folder = tiny_language.write(tiny_language.llama(), tmp_path)
    os.truncate(folder / "model.safetensors", 1 << 40)
    with pytest.raises(LanguageModelError, match=r"its tensors end at byte \d+, the file at"):
        _ = find(folder).digest


def test_a_model_changed_while_it_is_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, plain = tiny_language.write(tiny_language.llama(), tmp_path), loading._bridged
    language = ip.load_language_model(folder)

    def overwritten(*given: Any) -> Any:
        (folder / "config.json").touch()
        return plain(*given)

    monkeypatch.setattr(loading, "_bridged", overwritten)
    with pytest.raises(LanguageModelError, match="has changed since it was opened"):
        ip.load_language_model(folder)
    with pytest.raises(LanguageModelError, match="has changed since it was opened"):
        _ = language.digest


# ---- the cache of conversions


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pytest.importorskip("gguf", reason="GGUF files are read with the `language` extra")
    monkeypatch.setenv("INTERP_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "language"


def test_a_conversion_that_cannot_be_used_is_not_kept(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tiny_language.write_gguf(tiny_language.llama(), tmp_path / "tiny.gguf")
    monkeypatch.setitem(loading.TOLERANCE, "float32", -1.0)
    with pytest.raises(LanguageModelError, match="differ from Hugging Face's"):
        ip.load_language_model(file)
    assert list(cache.iterdir()) == []
    monkeypatch.undo()
    monkeypatch.setenv("INTERP_CACHE", str(cache.parent))
    ip.load_language_model(file)
    assert len(list(cache.iterdir())) == 1


def test_what_a_killed_conversion_left_is_removed(cache: Path, tmp_path: Path) -> None:
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    left = cache / f".conversion.{host()}-{int(gone.stdout)}.abcdefgh.new"
    mine = cache / f".conversion.{host()}-{os.getpid()}.abcdefgh.new"
    for folder in (left, mine):
        folder.mkdir(parents=True)
    ip.load_language_model(tiny_language.write_gguf(tiny_language.llama(), tmp_path / "tiny.gguf"))
    assert not left.exists()
    assert mine.exists()


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gguf", reason="GGUF files are read with the `language` extra")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("INTERP_CACHE", str(tmp_path / "file"))
    with pytest.raises(LanguageModelError, match="set INTERP_CACHE to another directory"):
        ip.load_language_model(tiny_language.write_gguf(tiny_language.llama(), tmp_path / "tiny.gguf"))


# ---- what a config may ask for


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: torch.nn.Linear(1 << 20, 1 << 20), "asks for more than the files hold"),
        (lambda: torch.nn.Sequential(*(torch.nn.Identity() for _ in range(10**5))), "asks for more layers than"),
    ],
)
def test_a_model_that_grows_without_end_is_stopped(build: Any, message: str) -> None:
    held = {"weight": (8, 8)}
    with torch.device("meta"):
        with pytest.raises(LanguageModelError, match=message), bounded("m", held):
            build()
        with bounded("m", held):
            torch.nn.Linear(8, 8)
        build()  # the watch is over


def test_weights_that_no_machine_holds_are_refused() -> None:
    with (
        torch.device("meta"),
        pytest.raises(LanguageModelError, match=r"m: the weights need 4096\.0 GiB, this"),
    ):
        check_memory("m", torch.nn.Linear(1 << 20, 1 << 20, bias=False), torch.float32)


# ---- headers


def test_headers_give_the_shapes_in_the_file(tmp_path: Path) -> None:
    pytest.importorskip("gguf", reason="GGUF files are read with the `language` extra")
    model = tiny_language.llama(layers=1)
    wanted = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    folder = tiny_language.write(model, tmp_path / "folder")
    assert read_safetensors(folder / "model.safetensors") == wanted
    header = read_gguf(tiny_language.write_gguf(model, tmp_path / "tiny.gguf"))
    assert sorted(header.tensors.values()) == sorted(wanted.values())
    assert header.tensors["blk.0.ffn_down.weight"] == wanted["model.layers.0.mlp.down_proj.weight"] == (32, 48)
    assert header.metadata["llama.block_count"] == 1
    assert header.metadata["tokenizer.ggml.tokens"] == len(tiny_language.tokenizer())
