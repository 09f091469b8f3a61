"""GGUF files in Hugging Face form.

A GGUF file is converted once by Hugging Face's converter and kept as safetensors in a cache: a quantised file takes
tens of seconds to read, the converted one about one second. The key of the cache is the digest of the file and the
versions of the converter and of its checks. The cache is `$INTERP_CACHE`, or `interp` in the user's cache directory.

The converter takes the tensors whose names it knows and fills the others with random numbers. So the file's header is
compared with what its metadata ask for before the model is made.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from interp.language.config import check_tensors, checked_settings, empty_model, loaded, tied
from interp.language.headers import Gguf, read_gguf
from interp.language.weights import CONFIG, LanguageModelError, Place, in_folder, one_kind_of_error, quiet
from interp.staging import new_directory, remove_leftovers

CHECKS = 2  # the version of what is checked before a conversion is kept
ALONE = "model.gguf"
# The ends of keys for which the converter would assume the numbers of another model.
REQUIRED = ("context_length", "embedding_length", "block_count", "head_count", "layer_norm(_rms)?_epsilon")


def cache_folder() -> Path:
    """Where conversions are kept."""
    if own := os.environ.get("INTERP_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "interp"


@contextlib.contextmanager
def as_directory(place: Place) -> Iterator[Place]:
    """The place, if it is a directory; else the conversion of the GGUF file.

    A new conversion is kept if the block, which loads it, ends well. Neither a refused nor a killed one stays.
    """
    if place.source.is_dir():
        yield place
        return
    if importlib.util.find_spec("gguf") is None:
        raise LanguageModelError("a GGUF file needs the package gguf: pip install 'interp[language]'")
    import transformers

    kept = cache_folder() / "language" / f"{place.digest[:32]}-{CHECKS}-transformers-{transformers.__version__}"
    writers = kept.parent / "conversion"  # one name for all writers, so that each removes what killed ones left
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(writers)
        fresh = None if (kept / CONFIG).is_file() else new_directory(writers)
    except OSError as error:
        raise LanguageModelError(f"{kept.parent}: {error.strerror}; set INTERP_CACHE to another directory") from error
    if fresh is None:
        yield in_folder(place.name, kept)
        return
    try:
        with one_kind_of_error(f"{place.name} cannot be converted"):
            _convert(place, fresh)
        yield in_folder(place.name, fresh)
        place.check_unchanged()
        try:
            fresh.rename(kept)
        except OSError:
            if not (kept / CONFIG).is_file():  # otherwise another process has finished first
                raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _convert(place: Place, into: Path) -> None:
    """Read with Hugging Face's converter, and write weights, config and tokenizer as plain files in float32."""
    import torch
    from transformers import AutoConfig, AutoTokenizer

    header = read_gguf(place.source)
    _check_metadata(place.name, header)
    with tempfile.TemporaryDirectory(prefix="interp-") as folder, quiet(), _bar_on_a_terminal():
        # In a directory of its own: the converter would also read an adapter or a config beside the file.
        Path(folder, ALONE).symlink_to(place.source.resolve())
        source: dict[str, Any] = {"gguf_file": ALONE, "local_files_only": True, "trust_remote_code": False}
        settings = AutoConfig.from_pretrained(folder, **source).to_dict()
        settings.pop("quantization_config", None)
        settings = checked_settings(place.name, settings, header.tensors)
        empty = empty_model(place.name, settings, header.tensors)
        names = _names(header, empty)
        held = {names.get(name, name): shape for name, shape in header.tensors.items()}
        unnamed = empty.state_dict().keys() - names.values() - tied(empty).keys()
        check_tensors(place.name, empty, held, exact=not unnamed)
        read = loaded(place.name, empty, folder, dtype=torch.float32, **source)
        tokenizer = AutoTokenizer.from_pretrained(folder, **source)
        # The reader marks its model as quantised, and such a model refuses to be saved: copy the weights into one that
        # is not.
        plain = type(read)(type(read.config).from_dict(settings))
        plain.load_state_dict(read.state_dict())
        plain.save_pretrained(into)
        tokenizer.save_pretrained(into)


def _bar_on_a_terminal() -> contextlib.AbstractContextManager[Any]:
    """The converter's progress bar, which has no switch, is for a terminal alone."""
    return contextlib.nullcontext() if sys.stderr.isatty() else contextlib.redirect_stderr(io.StringIO())


def _check_metadata(name: str, header: Gguf) -> None:
    """Refuse numbers that the tensors rule out, and what the converter would leave out without a word."""
    kind = header.metadata.get("general.architecture")
    if not isinstance(kind, str) or not kind:
        raise ValueError("its metadata name no architecture")
    numbers = {key.rpartition(".")[2]: value for key, value in header.metadata.items() if key.startswith(f"{kind}.")}
    checked_settings(name, {"model_type": kind, **numbers}, header.tensors)
    if absent := [key for key in REQUIRED if not any(re.fullmatch(key, one) for one in numbers)]:
        raise ValueError(f"its metadata lack {absent[0]}")
    scaling = header.metadata.get(f"{kind}.rope.scaling.type", "none")
    if scaling != "none" and not kind.startswith("gpt"):
        raise ValueError(f"its rotary scaling ({scaling}) would be lost; give the model in Hugging Face form")


def _names(header: Gguf, model: Any) -> dict[str, str]:
    """The names in the model of the tensors that llama.cpp has names for."""
    from gguf.constants import MODEL_ARCH_NAMES
    from gguf.tensor_mapping import get_tensor_name_map

    kinds = [kind for kind, name in MODEL_ARCH_NAMES.items() if name == header.metadata["general.architecture"]]
    if not kinds:
        raise ValueError(f"gguf knows no architecture {header.metadata['general.architecture']}")
    table = get_tensor_name_map(kinds[0], int(model.config.num_hidden_layers))
    names: dict[str, str] = {}
    for name in model.state_dict():
        stem, _, end = name.rpartition(".")
        if end in ("weight", "bias") and (found := table.get_name(stem)) is not None:
            names.setdefault(f"{found}.{end}", name)
    return names
