"""Checkpoints from strangers: each refused in one line, at once, in little memory, with no code run and no network.

All cases run in one child process, whose address space is limited and whose sockets fail.
"""

from __future__ import annotations

import json
import math
import os
import pickle
import re
import resource
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import interp as ip
from analyses.running.subject import find_subjects, prior_text
from tests.planted_heads import random_transformer

MOST_BYTES = 3 << 30
HUGE = 10**18
ROOT = Path(__file__).parents[3]

Edit = Callable[[dict[str, Any]], Any]


def put(place: str, /, **values: Any) -> Edit:
    """An edit of `config.json`: these keys of one of its objects."""
    return lambda document: document[place].update(values)


OURS: dict[str, Edit] = {
    "order 0": put("model", order=0),
    "order huge": put("model", order=HUGE),
    "order a text": put("model", order="2"),
    "order true": put("model", order=True),
    "vocab huge": put("model", vocab=HUGE),
    "vocab of a million": put("model", vocab=1 << 20),
    "vocab 1": put("model", vocab=1),
    "length huge": put("model", length=HUGE),
    "length of a billion": put("model", length=10**9),
    "length past the file": put("model", length=30_000),
    "length of the order": put("model", length=1),
    "bos 1": put("model", bos=1),
    "floor 0": put("model", floor=0),
    "readout a function": put("model", readout="os.system"),
    "dtype int8": put("model", dtype="int8"),
    "dtype a list": put("model", dtype=["float32"]),
    "family a path": put("model", family="../../etc"),
    "widths of a construction": put("model", d_model=8, d_mlp=8),
    "widths of another file": put("model", family="standard", d_model=1000, d_mlp=1000),
    "widths of a billion": put("model", family="standard", d_model=10**9, d_mlp=10**9),
    "widths huge": put("model", family="standard", d_model=HUGE, d_mlp=HUGE),
    "widths by half": put("model", family="wide", d_model=64),
    "widths of less than a head": put("model", family="standard", d_model=0, d_mlp=4),
    "no widths": put("model", family="standard"),
    "order 2.0": put("model", order=2.0),
    "a tokenizer": put("model", tokenizer_name="gpt2"),
    "a key of a megabyte": put("model", **{"x" * (1 << 20): 1}),
    "a missing key": lambda document: document["model"].pop("floor"),
    "an unknown key": put("model", heads=2),
    "model a list": lambda document: document.update(model=[]),
    "another format": lambda document: document.update(format="other"),
    "no format": lambda document: document.pop("format"),
    "no training": lambda document: document.pop("training"),
    "format a list": lambda document: document.update(format=[]),
    "an unknown part": lambda document: document.update(code="print()"),
    "step a text": put("training", step="last"),
    "step negative": put("training", step=-1),
    "seed past 64 bits": put("training", seed=1 << 64),
    "seed a list": put("training", seed=[1]),
    "status moves the cursor": put("training", status="\x1b[2J"),
    "protocol of a megabyte": put("training", protocol="x" * (1 << 20)),
    "loss a text": put("training", held_out_loss="small"),
    "prior a list": put("training", prior=[]),
    "prior without kind": put("training", prior={"order": 1}),
    "prior without order": put("training", prior={"kind": "independent"}),
    "training a list": lambda document: document.update(training=[1]),
}
FOREIGN: dict[str, Edit] = {
    "n_layers 100000": put("transformer", n_layers=100_000),
    "d_head": put("transformer", d_head=10**6),
    **{
        f"{name} {value:.0e}": put("transformer", **{name: value})
        for name in ("d_model", "n_ctx", "d_vocab", "n_heads", "d_mlp", "n_layers")
        for value in (10**6, HUGE)
    },
    "experts": put("transformer", num_experts=10**6, experts_per_token=1),
    "experts huge": put("transformer", num_experts=HUGE, experts_per_token=1),
    "sizes whose product overflows": put("transformer", d_model=2**31 - 1, n_heads=2**31 - 1, d_head=2**31 - 1),
    "d_vocab_out -1": put("transformer", d_vocab_out=-1),
    "d_model 1.5": put("transformer", d_model=1.5),
    "dtype int8": put("transformer", dtype="int8"),
    "dtype a function": put("transformer", dtype="load"),
    "act_fn": put("transformer", act_fn="os.system"),
    "act_fn with parameters": put("transformer", act_fn="xielu"),
    "4 bits": put("transformer", load_in_4bit=True),
    "quantised": put("transformer", quantization_method="gptq"),
    "4 devices": put("transformer", n_devices=4),
    "a device": put("transformer", device="cuda"),
    "a seed": put("transformer", seed=1),
    "random weights": put("transformer", init_weights=True),
    "a hub name": put("transformer", tokenizer_name="gpt2"),
    "a hub name, trusted": put("transformer", tokenizer_name="someone/model", trust_remote_code=True),
    "trusted": put("transformer", trust_remote_code=True),
    "scale 0": put("transformer", attn_scale=0),
    "scale negative": put("transformer", attn_scale=-2.0),
    "scale infinite": put("transformer", attn_scale=1e300),
    "both directions": put("transformer", attention_dir="bidirectional"),
    "T5's bias": put("transformer", positional_embedding_type="relative_positional_bias"),
    "odd rotation": put("transformer", positional_embedding_type="rotary", rotary_dim=3),
    "rotation of more than a head": put("transformer", positional_embedding_type="rotary", rotary_dim=1 << 20),
    "5 key heads": put("transformer", n_key_value_heads=5),
    "norm": put("transformer", normalization_type="__import__"),
    "local without a window": put("transformer", use_local_attn=True, attn_types=["local", "local"]),
    "a kind of attention": put("transformer", use_local_attn=True, window_size=3, attn_types=["local", {}]),
    "one kind of attention": put("transformer", attn_types=["local"]),
    "architecture a path": put("transformer", original_architecture="../../model"),
    "yarn": put("transformer", use_yarn_rope=True),
    "attn_only a text": put("transformer", attn_only="false"),
    "an unknown key": put("transformer", layers=3),
    "MLPs of another file": put("transformer", d_mlp=50),
    "a layer more": put("transformer", n_layers=3),
    "transformer a list": lambda document: document.update(transformer=[]),
    "circuit null": lambda document: document.update(circuit=None),
    "no circuit": lambda document: document.pop("circuit"),
    "no order": lambda document: document["circuit"].pop("order"),
    "a model of ours": lambda document: document.update(model={}),
    "a later format": lambda document: document.update(format="interp-circuit-9"),
    "length -1": put("circuit", length=-1),
    "length a text": put("circuit", length="x"),
    "length huge": put("circuit", length=HUGE),
    "length of the context and one": put("circuit", length=41),
    "order huge": put("circuit", order=HUGE),
    "vocab huge": put("circuit", vocab=HUGE),
    "bos huge": put("circuit", bos=HUGE),
    "bos true": put("circuit", bos=True),
    "bos a list": put("circuit", bos=["first"]),
    "symbols twice": put("circuit", symbols=[1, 1]),
    "symbols of sequences": put("circuit", symbols=[[0, 1], [1, 2, 3]]),
    "copy heads a text": put("circuit", copy_heads="ab"),
    "a head that is not there": put("circuit", match_heads=[[0, HUGE]]),
    "heads of objects": put("circuit", match_heads=[{"layer": 0}]),
    "a layer that is not there": put("circuit", match_heads=[[9, 0]]),
    "a model": put("circuit", model={}),
}
# What people meet is named, in these words.
SAYS = {
    "ours, another format": "format is 'other', expected 'interp-checkpoint-1'",
    "ours, no format": "format is None",
    "ours, no training": "missing key training",
    "ours, an unknown part": "unknown key 'code' in the document",
    "ours, an unknown key": "unknown key 'heads' in the model config",
    "ours, a missing key": "missing key floor in the model config",
    "ours, order 2.0": "order must be an integer >= 1",
    "ours, vocab 1": "vocab must be an integer >= 2",
    "ours, length of the order": "length must be an integer >= 2, got 1",
    "ours, bos 1": "bos must be True or False, got 1",
    "ours, floor 0": "floor must be a finite number > 0",
    "ours, family a path": "family must be a name in small letters, got '../../etc'",
    "ours, readout a function": "readout must be one of probability, logit",
    "ours, dtype int8": "dtype must be one of float32, float64",
    "ours, widths of a construction": "d_model and d_mlp belong to the standard family only",
    "ours, widths by half": "the wide family needs d_mlp",
    "ours, widths of less than a head": "d_model must be an integer >= 1, got 0",
    "ours, no widths": "the standard family needs d_model",
    "ours, empty": "not valid JSON",
    "ours, cut": "not valid JSON",
    "ours, no text": "not valid JSON",
    "ours, a list": "expected a JSON object, got list",
    "ours, header: a tensor renamed": r"tensor \S+ is missing",
    "ours, header: a tensor more": "tensor 'more' does not belong to a construction model",
    "ours, header: another shape": r"has shape \[.*\], the config needs",
    "ours, header: a type of integers": "is of type I64, the config needs torch.float64",
    "ours, header: not a number": "holds NaN or infinity",
    "ours, header: empty": "not a readable safetensors file",
    "ours, weights a pickle": "not a readable safetensors file",
    "circuit, no circuit": "missing key circuit",
    "circuit, no order": "missing key order in circuit",
    "circuit, circuit null": "circuit must be a JSON object",
    "circuit, a model of ours": "unknown key 'model' in the document",
    "circuit, an unknown key": "unknown key 'layers' in transformer",
    "circuit, dtype int8": "dtype must be one of .* got 'int8'",
    "circuit, MLPs of another file": "has shape",
    "circuit, a layer more": "is missing",
    "circuit, a layer that is not there": r"layer 9, but the model has layers 0\.\.1",
    "circuit, a model": "unknown key 'model' in circuit",
    "circuit, a later format": "format is 'interp-circuit-9'",
}


def config_texts(text: str) -> Iterator[tuple[str, bytes]]:
    """`config.json` as bytes that no edit of its values gives."""
    yield "a key twice", text.replace('"order": 1', '"order": 1, "order": 1').encode()
    yield "the format twice", text.replace("{", '{"format": "interp-checkpoint-1",', 1).encode()
    yield "deep", b"[" * 100_000
    yield "NaN", text.replace('"bos": true', '"bos": NaN').encode()
    yield "a number of a thousand digits", text.replace('"order": 1', '"order": ' + "1" * 1000).encode()
    yield "five megabytes", text.encode() + b" " * (5 << 20)
    yield "megabytes of lists", text.replace('"order"', '"x": [' + "[]," * (1 << 20) + '[]], "order"', 1).encode()
    yield "another encoding", text.encode("utf-16")
    yield "a list", b"[]"
    yield "empty", b""
    yield "cut", text[:40].encode()
    yield "no text", b"\xff\xfe\x00"


def header_edits(data: bytes) -> Iterator[tuple[str, bytes]]:
    """`model.safetensors` with another header, or other bytes."""
    (size,) = struct.unpack("<Q", data[:8])
    text, body = data[8 : 8 + size].decode().rstrip(), data[8 + size :]
    header: dict[str, Any] = json.loads(text)
    header.pop("__metadata__", None)
    name, entry = next((name, entry) for name, entry in header.items() if len(entry["shape"]) == 2)
    start, stop = entry["data_offsets"]

    def joined(header: Any, body: bytes = body) -> bytes:
        text = header if isinstance(header, str) else json.dumps(header)
        return struct.pack("<Q", len(text.encode())) + text.encode() + body

    def other(**values: Any) -> bytes:
        return joined({**header, name: {**entry, **values}})

    yield "a tensor twice", joined(text.replace("{", "{" + f'"{name}": {json.dumps(entry)},', 1))
    yield "a place twice", joined(text.replace('"shape"', '"dtype":"F64","shape"', 1))
    yield "a header of 2**63 bytes", struct.pack("<Q", 1 << 63) + data[8:]
    yield "a header past the file", struct.pack("<Q", len(data)) + data[8:]
    yield "a header of five megabytes", joined(text + " " * (5 << 20))
    yield "no JSON", joined("x" * size)
    yield "a list", joined([])
    yield "an entry a list", joined({**header, name: []})
    yield "an entry with more", other(code="print()")
    yield "a tensor missing", joined({key: value for key, value in header.items() if key != name})
    yield "a tensor renamed", joined({f"{key}_" if key == name else key: value for key, value in header.items()})
    yield "a tensor more", joined({**header, "more": {"dtype": "F64", "shape": [0], "data_offsets": [0, 0]}})
    yield "another shape", other(shape=[*entry["shape"][::-1], 1])
    yield "a shape of 2**40", other(shape=[1 << 40, 1 << 40])
    yield "a shape of 0 and 2**62", other(shape=[0, 1 << 62], data_offsets=[start, start])
    yield "a negative shape", other(shape=[-size for size in entry["shape"]])
    yield "a shape of texts", other(shape=["2", "3"])
    yield "a type of integers", other(dtype="I64")
    yield "another type", other(dtype="F32", data_offsets=[start, (start + stop) // 2])
    yield "a type a list", other(dtype=["F64"])
    yield "places past the file", other(data_offsets=[start + (1 << 40), stop + (1 << 40)])
    yield "negative places", other(data_offsets=[-8, stop - start - 8])
    yield "bytes of two tensors", other(data_offsets=[start - 8, stop - 8] if start else [start + 8, stop + 8])
    yield "bytes of no tensor", joined(header, body + b"\0" * 8)
    many = {f"t{one}": {"dtype": "F64", "shape": [0], "data_offsets": [0, 0]} for one in range(5000)}
    yield "5000 tensors", joined({**header, **many})
    yield "not a number", joined(header, struct.pack("<d", float("nan")) * (len(body) // 8))
    yield "cut", data[:-8]
    yield "empty", b""


def holes(document: dict[str, Any], data: bytes) -> tuple[bytes, bytes, int]:
    """A config and a header that agree on an embedding of 3.8 GB, and the size of the file that they describe."""
    (size,) = struct.unpack("<Q", data[:8])
    header = {name: entry for name, entry in json.loads(data[8 : 8 + size]).items() if name != "__metadata__"}
    document["transformer"]["d_vocab"] = 40_000_000
    header["embed.W_E"]["shape"][0] = 40_000_000
    end = 0
    for entry in header.values():
        start, end = end, end + math.prod(entry["shape"]) * 4
        entry["data_offsets"] = [start, end]
    text = json.dumps(header).encode()
    return json.dumps(document).encode(), struct.pack("<Q", len(text)) + text, 8 + len(text) + end


def write_attack(folder: Path, canary: Path) -> None:
    """A tokenizer of Hugging Face's that is a Python file, which writes the canary."""
    auto = {"tokenizer_class": "T", "auto_map": {"AutoTokenizer": ["evil.T", None]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(auto))
    (folder / "evil.py").write_text(f"open({str(canary)!r}, 'w').close()\nclass T: pass\n")


class Bomb:
    """Unpickling it writes the canary."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.write_text, (self.canary, "ran")


def write_cases(folder: Path, canary: Path) -> list[str]:
    """A directory for each case."""
    ours, circuit = folder / "ours", folder / "circuit"
    record = {"seed": 1, "step": 5, "status": "finished", "prior": {"kind": "independent", "order": 1, "vocab": 3}}
    ip.save(ip.construct(order=1, vocab=3, length=6, beta=(1.0,), kappa=0.5), ours, training=record)
    ip.save(ip.Circuit(random_transformer(1), order=1), circuit)
    texts = {base: (base / "config.json").read_text() for base in (ours, circuit)}
    weights = {base: (base / "model.safetensors").read_bytes() for base in (ours, circuit)}
    names = []

    def case(base: Path, name: str, *, config: bytes | None = None, tensors: bytes | None = None) -> Path:
        place = folder / f"{base.name}, {name}"
        place.mkdir()
        (place / "config.json").write_bytes(texts[base].encode() if config is None else config)
        (place / "model.safetensors").write_bytes(weights[base] if tensors is None else tensors)
        names.append(place.name)
        return place

    for base, edits in ((ours, OURS), (circuit, FOREIGN)):
        for name, edit in edits.items():
            document = json.loads(texts[base])
            edit(document)
            case(base, name, config=json.dumps(document).encode())
    for name, content in config_texts(texts[ours]):
        case(ours, name, config=content)
    for name, content in header_edits(weights[ours]):
        case(ours, f"header: {name}", tensors=content)
    case(ours, "weights a pickle", tensors=pickle.dumps(Bomb(canary)))

    document = json.loads(texts[circuit])
    attack = case(circuit, "a tokenizer that is code")
    write_attack(attack, canary)
    document["transformer"] |= {"tokenizer_name": str(attack), "trust_remote_code": True}
    (attack / "config.json").write_text(json.dumps(document))

    os.truncate(case(ours, "weights of a terabyte of holes") / "model.safetensors", 1 << 40)
    config, header, size = holes(json.loads(texts[circuit]), weights[circuit])
    os.truncate(case(circuit, "weights of 3.8 GB of holes", config=config, tensors=header) / "model.safetensors", size)
    for name in ("config.json", "model.safetensors"):
        place = case(ours, f"{name} a pipe") / name
        place.unlink()
        os.mkfifo(place)
        place = case(ours, f"{name} a directory") / name
        place.unlink()
        place.mkdir()
    layers = json.loads(texts[circuit])
    layers["transformer"]["n_layers"] = 500
    entry = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    text = json.dumps({f"blocks.{one}.attn.W_Q": entry for one in range(4090)}).encode()
    case(
        circuit,
        "as many layers as tensors allow",
        config=json.dumps(layers).encode(),
        tensors=struct.pack("<Q", len(text)) + text,
    )
    return names


def child(folder: Path) -> None:
    """Load every case, in little address space and without sockets; print a line of JSON each."""
    ip.load(folder / "ours")
    ip.load(folder / "circuit")
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    asked: list[str] = []

    def refuse(*args: Any, **keywords: Any) -> Any:
        asked.append(str(args))
        raise OSError("no network in this test")

    for name in ("connect", "connect_ex", "sendto", "bind"):
        setattr(socket.socket, name, refuse)
    socket.create_connection = socket.getaddrinfo = refuse

    def outcome(read: Callable[[Path], object], place: Path) -> list[str]:
        try:
            read(place)
            return ["loaded", ""]
        except Exception as error:
            return [type(error).__name__, str(error)]

    for place in sorted(folder.iterdir()):
        described, loaded = outcome(ip.read_info, place), outcome(ip.load, place)
        print(json.dumps({"name": place.name, "described": described, "loaded": loaded, "asked": asked}))
        asked.clear()


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What became of every case, by name."""
    folder, canary = tmp_path_factory.mktemp("hostile"), tmp_path_factory.mktemp("canary") / "canary"
    names = write_cases(folder, canary)
    here = "tests.interp.hooked.test_hostile_checkpoints"
    call = f"from pathlib import Path; from {here} import child; child(Path({str(folder)!r}))"
    done = subprocess.run(
        [sys.executable, "-c", call],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not canary.exists(), "code of a checkpoint was run"
    found = {record["name"]: record for record in map(json.loads, done.stdout.splitlines())}
    assert set(found) == {"ours", "circuit", *names}
    return found


def test_every_case_is_refused_in_one_line(outcomes: dict[str, dict[str, Any]]) -> None:
    assert len(outcomes) > 120
    for name, one in outcomes.items():
        kind, message = one["loaded"]
        if name in ("ours", "circuit"):
            assert kind == "loaded", one
            continue
        assert kind == "CheckpointError", one
        assert message.isprintable(), one
        assert len(message) < 1500, one
        assert name in message or "pipe" in name, one
        assert one["described"] in (["loaded", ""], one["loaded"]), one
        assert re.search(SAYS.get(name, ""), message), one
    assert SAYS.keys() <= outcomes.keys()


def test_no_case_asks_the_network(outcomes: dict[str, dict[str, Any]]) -> None:
    assert [one for one in outcomes.values() if one["asked"]] == []


def test_the_tokenizer_would_have_run(tmp_path: Path) -> None:
    """The canary sings where Hugging Face is told to trust the directory: the attack is a real one."""
    attack = tmp_path / "attack"
    attack.mkdir()
    write_attack(attack, tmp_path / "canary")
    call = (
        "from transformers import AutoTokenizer\n"
        f"try: AutoTokenizer.from_pretrained({str(attack)!r}, trust_remote_code=True)\n"
        "except Exception as error: print(error)"
    )
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_MODULES_CACHE": str(tmp_path / "modules")}
    subprocess.run([sys.executable, "-c", call], env=env, check=True, timeout=120)
    assert (tmp_path / "canary").exists()


RECORD = {"kind": "independent", "order": 1, "vocab": 3, "alpha": 1.0}


@pytest.mark.parametrize(
    "prior",
    [
        {**RECORD, "alpha": "much"},
        {**RECORD, "alpha": [[1.0]]},
        {name: value for name, value in RECORD.items() if name != "alpha"},
        {"kind": "hierarchical", "order": 1, "vocab": 3, "eta": [], "eta0": {}},
        {"kind": "hierarchical", "order": 1, "vocab": 3, "eta": 5.0, "eta0": 1.0},
        {"kind": "__import__", "order": 1, "vocab": 3},
    ],
)
def test_a_prior_of_a_record_is_refused_where_it_is_used(prior: dict[str, Any], tmp_path: Path) -> None:
    """Its numbers are its own kind's business, which needs torch; the checkpoint itself can be read."""
    ip.save(ip.construct(order=1, vocab=3, length=6, beta=(1.0,)), tmp_path / "one", training={"prior": prior})
    (subject,) = find_subjects(tmp_path)
    for use in (lambda: subject.prior, lambda: prior_text(subject.training["prior"])):
        with pytest.raises(ValueError, match=r"prior|alpha|eta|hierarchical") as caught:
            use()
        assert "\n" not in str(caught.value)


def test_runs_without_a_prior_are_no_subjects_of_studies(tmp_path: Path) -> None:
    ip.save(ip.construct(order=1, vocab=3, length=6, beta=(1.0,)), tmp_path / "one", training={"prior": None})
    assert find_subjects(tmp_path) == []
