"""What a file of tensors says that it holds, read from its header alone and checked against the file's size.

    read_shards    the shapes of the tensors of safetensors files, by name
    read_gguf      the shapes in a GGUF file, and its metadata

Both are read with bounds: a count, a length or an offset that the file is too small for is refused before anything of
that size is made. A refusal is a `ValueError` of one line.
"""

from __future__ import annotations

import json
import math
import mmap
import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interp.outside import every_key_once, read_tensors, read_text, shown

GGUF_MAGIC = b"GGUF"
GGUF_VERSIONS = (2, 3)
MOST_JSON = 64 << 20  # bytes of a config, an index or a header; the largest have a few megabytes
MOST_TEXT = 1 << 20  # bytes of a metadata text; chat templates have some tens of thousands
MOST_ENTRY = 1 << 10  # bytes of a text in an array: a token, or two of them
MOST_DIMENSIONS = 4
FLOATS = ("F64", "F32", "F16", "BF16")
# What older checkpoints hold beside their weights: causal masks, rotary frequencies and positions, which follow from
# the config.
BUFFER = re.compile(r"(^|\.)(rotary_emb\.inv_freq|attn\.(masked_)?bias|attention\.(masked_)?bias|position_ids)$")
# GGUF's types of metadata, as `struct` knows them; 8 is a text, 9 an array
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
TEXT, ARRAY = 8, 9

Shape = tuple[int, ...]


def read_json_once(file: Path) -> dict[str, Any]:
    """The JSON object in a file, with the numbers that transformers writes (infinities too), and every key once."""
    try:
        found = json.loads(read_text(file, most=MOST_JSON, form="JSON"), object_pairs_hook=_once)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError(f"expected a JSON object, got {type(found).__name__}")
    return found


def _once(pairs: list[tuple[str, Any]]) -> Any:
    if len(pairs) == 1 and pairs[0] in (("__float__", "Infinity"), ("__float__", "-Infinity"), ("__float__", "NaN")):
        return float(pairs[0][1])
    return every_key_once(pairs)


def read_safetensors(file: Path) -> dict[str, Shape]:
    """The shapes of the tensors in a file, by name; integers are taken for what follows from the config alone."""
    with file.open("rb") as stream:
        entries = read_tensors(stream, most=MOST_JSON)
    for name, entry in entries.items():
        if entry.kind not in FLOATS and BUFFER.search(name) is None:
            raise ValueError(f"tensor {shown(name)} is of type {entry.kind}, expected one of {', '.join(FLOATS)}")
    return {name: entry.shape for name, entry in entries.items()}


def read_shards(files: dict[str, Path], index: Path | None) -> dict[str, Shape]:
    """The shapes of the tensors in all files, which must be those that the index names, each in its file."""
    found: dict[str, Shape] = {}
    places: dict[str, str] = {}
    for file, place in files.items():
        shapes = read_safetensors(place)
        if twice := found.keys() & shapes.keys():
            raise ValueError(f"{file} and {places[min(twice)]} both hold {min(twice)}")
        found |= shapes
        places |= dict.fromkeys(shapes, file)
    announced = places if index is None else read_json_once(index)["weight_map"]
    if other := announced.items() ^ places.items():
        name, file = min(other, key=str)
        raise ValueError(f"its index and its files disagree on {shown(name)} in {shown(file)}")
    return found


# ---- GGUF


@dataclass(frozen=True, kw_only=True)
class Gguf:
    """The header of a GGUF file.

    metadata   numbers and texts, by name; of an array its length
    tensors    shapes, by name, the slowest dimension first
    """

    metadata: dict[str, Any]
    tensors: dict[str, Shape]


def read_gguf(file: Path) -> Gguf:
    """The header of a GGUF file, with the rules of llama.cpp: tensors lie one after the other, and all in the file."""
    from gguf.constants import GGML_QUANT_SIZES

    sizes = {int(kind): size for kind, size in GGML_QUANT_SIZES.items()}
    with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        bytes_of = _Bytes(data)
        if bytes_of.take(4) != GGUF_MAGIC:
            raise ValueError("it is not a GGUF file")
        version, tensors, entries = bytes_of.numbers("IQQ")
        if version not in GGUF_VERSIONS:
            raise ValueError(f"it is of GGUF version {version}, expected 2 or 3")
        metadata: dict[str, Any] = {}
        for _ in range(entries):
            name = bytes_of.text(MOST_TEXT)
            if name in metadata:
                raise ValueError(f"the key {shown(name)} comes twice")
            metadata[name] = bytes_of.value(bytes_of.numbers("I")[0])
        table = [_tensor(bytes_of, sizes) for _ in range(tensors)]
        _check_places(table, bytes_of, alignment=metadata.get("general.alignment", 32))
    found = {name: shape for name, shape, _, _ in table}
    if len(found) < len(table):
        raise ValueError("a tensor comes twice")
    return Gguf(metadata=metadata, tensors=found)


def _tensor(bytes_of: _Bytes, sizes: dict[int, tuple[int, int]]) -> tuple[str, Shape, int, int]:
    """Name, shape, offset and bytes of a tensor."""
    name = bytes_of.text(MOST_ENTRY)
    dimensions = bytes_of.numbers("I")[0]
    if not 1 <= dimensions <= MOST_DIMENSIONS:
        raise ValueError(f"tensor {shown(name)} has {dimensions} dimensions")
    shape = bytes_of.numbers("Q" * dimensions)
    kind, offset = bytes_of.numbers("IQ")
    if kind not in sizes:
        raise ValueError(f"tensor {shown(name)} is of an unknown type, {kind}")
    block, width = sizes[kind]
    if 0 in shape or shape[0] % block:
        raise ValueError(f"tensor {shown(name)} of shape {list(shape)} does not consist of blocks of {block}")
    return name, shape[::-1], offset, math.prod(shape) // block * width


def _check_places(table: list[tuple[str, Shape, int, int]], bytes_of: _Bytes, *, alignment: Any) -> None:
    """Each tensor begins where the one before it ends, and the file ends with the last."""
    if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
        raise ValueError(f"the alignment {shown(alignment)} is no power of two")
    start = -(-bytes_of.at // alignment) * alignment
    expected = 0
    for name, _, offset, length in table:
        if offset != expected:
            raise ValueError(f"tensor {shown(name)} is at the offset {offset}, expected {expected}")
        end, expected = offset + length, offset + -(-length // alignment) * alignment
        if start + end > bytes_of.size:
            raise ValueError(f"tensor {shown(name)} ends at the byte {start + end}, the file has {bytes_of.size}")
    if bytes_of.size > start + expected:
        raise ValueError(f"its tensors end at the byte {start + expected}, the file has {bytes_of.size}")


class _Bytes:
    """A file's bytes, read from the front; what lies behind its end is refused."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.at, self.size = data, 0, len(data)

    def take(self, length: int) -> bytes:
        """The next bytes."""
        start = self.at
        self.skip(length)
        return self.data[start : self.at]

    def skip(self, length: int) -> None:
        """Go on without reading."""
        if length > self.size - self.at:
            raise ValueError(f"it ends after {self.size} bytes, before {length} more that its header announces")
        self.at += length

    def numbers(self, kinds: str) -> tuple[Any, ...]:
        """The next numbers, of the types that `struct` calls so."""
        return struct.unpack(f"<{kinds}", self.take(struct.calcsize(f"<{kinds}")))

    def text(self, most: int) -> str:
        """The next text, of at most so many bytes."""
        length = self.numbers("Q")[0]
        if length > most:
            raise ValueError(f"a text has {length} bytes, at most {most} are read")
        return self.take(length).decode()

    def value(self, kind: int) -> Any:
        """The next value of the metadata; of an array its length."""
        if kind in SCALARS:
            return self.numbers(SCALARS[kind])[0]
        if kind == TEXT:
            return self.text(MOST_TEXT)
        if kind != ARRAY:
            raise ValueError(f"a value is of an unknown type, {kind}")
        inner, count = self.numbers("IQ")
        if inner in SCALARS:
            self.skip(count * struct.calcsize(f"<{SCALARS[inner]}"))
        elif inner == TEXT:
            for _ in range(count):
                self.text(MOST_ENTRY)
        else:
            raise ValueError(f"an array has entries of an unknown type, {inner}")
        return count
