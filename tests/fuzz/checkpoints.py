"""Checkpoints that are damaged or of another shape: refused in one line, or a model that gives laws."""

from __future__ import annotations

import functools
import json
import struct
import tempfile
from pathlib import Path
from typing import Any

import torch
from hypothesis import strategies as st

import interp as ip
from tests.fuzz.files import changed, damaged
from tests.fuzz.library import is_law
from tests.fuzz.room import Sandbox, run_call
from tests.fuzz.world import SPEC
from tests.planted_heads import random_transformer

Case = tuple[str, bytes, bytes]
LENGTH = 4


@functools.cache
def whole() -> tuple[bytes, bytes]:
    """config.json and model.safetensors of a small checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        model = ip.construct(order=1, vocab=2, length=LENGTH, beta=(1.0,), kappa=0.5)
        ip.save(model, Path(folder) / "ckpt", training={**SPEC, "status": "finished"})
        return tuple((Path(folder) / "ckpt" / name).read_bytes() for name in ("config.json", "model.safetensors"))


@functools.cache
def whole_circuit() -> tuple[bytes, bytes]:
    """The same of a model from elsewhere."""
    with tempfile.TemporaryDirectory() as folder:
        circuit = ip.Circuit(random_transformer(1), order=1, match_heads=((1, 0),))
        ip.save(circuit, Path(folder) / "ckpt")
        return tuple((Path(folder) / "ckpt" / name).read_bytes() for name in ("config.json", "model.safetensors"))


def parts() -> tuple[dict[str, Any], bytes]:
    """The header of the tensors, and their data."""
    data = whole()[1]
    (size,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + size]), data[8 + size :]


def joined(header: Any, data: bytes) -> bytes:
    """Tensors from a header and data."""
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def tensor_files() -> st.SearchStrategy[tuple[str, bytes]]:
    """Damaged tensors, by kind of damage."""
    data = whole()[1]
    header, body = parts()
    names = sorted(name for name in header if name != "__metadata__")
    places = st.integers(0, len(data) - 1)

    def flip(where: tuple[int, int]) -> bytes:
        return data[: where[0]] + bytes([data[where[0]] ^ 1 << where[1]]) + data[where[0] + 1 :]

    def put(edit: tuple[int, float]) -> bytes:
        start = edit[0] * 8 % max(8, len(body) - 8)
        return joined(header, body[:start] + struct.pack("<d", edit[1]) + body[start + 8 :])

    def swap(pair: tuple[str, str]) -> bytes:
        one, other = pair
        return joined({**header, one: header[other], other: header[one]}, body)

    odd = st.sampled_from([float("nan"), float("inf"), 1e308, -1e308, 1e300, 1e20, -1e20, 5e-324, 1e4])
    entry = changed(header[names[0]])
    return st.one_of(
        st.tuples(places, st.integers(0, 7)).map(lambda where: ("bit flip", flip(where))),
        places.map(lambda place: ("truncation", data[:place])),
        st.tuples(st.integers(0, len(body) // 8), odd).map(lambda edit: ("odd weight", put(edit))),
        st.tuples(st.sampled_from(names), st.sampled_from(names)).map(lambda pair: ("swapped tensors", swap(pair))),
        st.tuples(st.sampled_from(names), entry).map(
            lambda edit: ("header", joined({**header, edit[0]: edit[1]}, body))
        ),
        st.binary(max_size=64).map(lambda junk: ("junk", junk)),
    )


def config_files() -> st.SearchStrategy[tuple[str, bytes]]:
    """Changed descriptions."""
    config = json.loads(whole()[0])
    model = changed(config["model"]).map(lambda one: {**config, "model": one})
    training = changed(config["training"]).map(lambda one: {**config, "training": one})
    return st.one_of(
        damaged(whole()[0].decode()).map(lambda data: ("config damage", data)),
        st.one_of(model, training, changed(config)).map(lambda one: ("config values", json.dumps(one).encode())),
    )


def circuit_files() -> st.SearchStrategy[bytes]:
    """Changed descriptions of a model from elsewhere."""
    config = json.loads(whole_circuit()[0])
    edits = [
        changed(config[part]).map(lambda one, part=part: {**config, part: one}) for part in ("transformer", "circuit")
    ]
    return st.one_of(*edits, changed(config)).map(lambda one: json.dumps(one).encode())


def cases() -> st.SearchStrategy[Case]:
    """The kind of damage, config.json and model.safetensors."""
    config, tensors = whole()
    return st.one_of(
        tensor_files().map(lambda found: (found[0], config, found[1])),
        config_files().map(lambda found: (found[0], found[1], tensors)),
        circuit_files().map(lambda found: ("circuit", found, whole_circuit()[1])),
    )


def run(case: Case, sandbox: Sandbox) -> str:
    """Load the checkpoint, open it as analyses do, and predict."""
    from analyses.running.subject import Subject

    kind, config, tensors = case
    folder = sandbox.work / "made"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_bytes(config)
    (folder / "model.safetensors").write_bytes(tensors)

    def load_and_predict() -> torch.Tensor:
        subject = Subject.open(folder)
        subject.summary()
        model = ip.load(folder)
        shape = ip.read_info(folder).model
        return ip.predict(model, torch.arange(shape["length"])[None] % shape["vocab"])

    try:
        return f"{kind}: {run_call(load_and_predict, is_law)}"
    finally:
        sandbox.check()
