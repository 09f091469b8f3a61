"""Checkpoints: a directory with `config.json` and `model.safetensors`, and nothing that can run code.

    save(model, path)
    model = load(path)

`config.json` is strict: an unknown or missing key is refused, as is a tensor that does not fit. Saving is atomic: the
new directory is complete on disk before it takes the old one's place, and after a crash in between, `load` finds one of
the two.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.outside import as_path, one_line, read_object
from interp.results import jsonable
from interp.staging import new_directory

if TYPE_CHECKING:
    import torch

    from interp.hooked.transformer import InductionTransformer

FORMAT = "interp-checkpoint-1"
CIRCUIT_FORMAT = (
    "interp-circuit-1"  # a model from outside this suite, with the place of its circuit (`interp.circuit.checkpoint`)
)
FOREIGN = "foreign"  # the family of a model from outside this suite
CONFIG_FILE, TENSOR_FILE = "config.json", "model.safetensors"


class CheckpointError(ValueError):
    """A checkpoint that is missing, damaged or not one of ours. Its message is one line, whatever the path's name."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


@dataclass(frozen=True, kw_only=True)
class CheckpointInfo:
    """The content of `config.json`.

    path      the checkpoint's directory
    model     the model's shape, as `InductionConfig.to_dict` gives it
    training  how it was trained; None for analytic weights
    """

    path: Path
    model: dict[str, Any]
    training: dict[str, Any] | None

    @property
    def one_hot(self) -> bool:
        """As `InductionConfig.one_hot`: whether weights and votes can be read block by block."""
        return self.model.get("d_model") is None


def save(model: InductionTransformer, path: str | os.PathLike[str], *, training: dict[str, Any] | None = None) -> None:
    """Write the model to the directory `path`. A checkpoint there is replaced, a directory with other files never.

    `training` is a JSON-able record of how the weights were made; it is kept in `config.json`.
    """
    document = {"format": FORMAT, "model": model.config.to_dict(), "training": training}
    write_directory(path, document, dict(model.named_parameters()))


def write_directory(path: str | os.PathLike[str], document: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    """Write a checkpoint's two files so that they appear together or not at all."""
    from safetensors.torch import save_file

    target = _checked_path(path).resolve()  # resolves links, so that the directory itself is replaced
    check_replaceable(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    staging = new_directory(target)
    try:
        with one_kind_of_error(target):
            own = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
            save_file(own, staging / TENSOR_FILE)
        (staging / CONFIG_FILE).write_text(json.dumps(document, indent=2, allow_nan=False, default=jsonable) + "\n")
        for file in (TENSOR_FILE, CONFIG_FILE):
            (staging / file).chmod(0o644)  # mkdtemp and safetensors make private files
            _flush(staging / file)
        staging.chmod(0o755)
        replace_directory(staging, target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


@contextlib.contextmanager
def one_kind_of_error(target: Path) -> Iterator[None]:
    """Raise `OSError` for a full disk also where safetensors writes, which has its own error for it."""
    from safetensors import SafetensorError

    try:
        yield
    except SafetensorError as error:
        raise OSError(f"{target}: cannot be written ({one_line(error)})") from error


def load(path: str | os.PathLike[str]) -> InductionTransformer:
    """The model saved at `path`, or a `CheckpointError` (a ValueError) that names what is wrong."""
    from interp.hooked.transformer import InductionConfig, InductionTransformer

    info = read_info(path)
    try:
        config = InductionConfig.from_dict(info.model)
    except (ValueError, TypeError) as error:
        raise CheckpointError(f"{info.path / CONFIG_FILE}: {error}") from error
    model = InductionTransformer(config)
    fill_parameters(model, info.path, kind=f"a {config.family} model")
    return model


def fill_parameters(model: torch.nn.Module, directory: Path, *, kind: str) -> None:
    """Copy the checkpoint's tensors into the model; a `CheckpointError` names the first that does not fit."""
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    file = directory / TENSOR_FILE
    if not file.is_file():
        raise CheckpointError(f"{directory}: no {TENSOR_FILE} in the checkpoint")
    try:
        tensors = load_file(file)
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"{file}: not a readable safetensors file ({error})") from error
    expected = dict(model.named_parameters())
    if missing := sorted(set(expected) - set(tensors)):
        raise CheckpointError(f"{file}: tensor {missing[0]} is missing")
    if unknown := sorted(set(tensors) - set(expected)):
        raise CheckpointError(f"{file}: tensor {unknown[0]} does not belong to {kind}")
    with torch.no_grad():
        for name, parameter in expected.items():
            tensor = tensors[name]
            if tensor.shape != parameter.shape:
                raise CheckpointError(
                    f"{file}: tensor {name} has shape {list(tensor.shape)}, the config needs {list(parameter.shape)}"
                )
            if tensor.dtype != parameter.dtype:
                raise CheckpointError(f"{file}: tensor {name} is {tensor.dtype}, the config needs {parameter.dtype}")
            if not torch.isfinite(tensor).all():
                raise CheckpointError(f"{file}: tensor {name} holds NaN or infinity")
            parameter.copy_(tensor)


def read_info(path: str | os.PathLike[str]) -> CheckpointInfo:
    """`config.json` alone, checked: quick, without torch."""
    directory = _resolve(_checked_path(path))
    file = directory / CONFIG_FILE
    if not file.is_file():
        raise CheckpointError(f"{directory}: not a checkpoint, it has no {CONFIG_FILE}")
    try:
        document = read_object(file)
    except ValueError as error:
        raise CheckpointError(str(error)) from None
    if document.get("format") not in (FORMAT, CIRCUIT_FORMAT):
        raise CheckpointError(f"{file}: format is {document.get('format')!r}, expected {FORMAT!r}")
    if not isinstance(document.get("training"), (dict, type(None))):
        raise CheckpointError(f"{file}: training must be a JSON object or null")
    foreign = document["format"] == CIRCUIT_FORMAT
    keys = {"format", "training", *(("transformer", "circuit") if foreign else ("model",))}
    if unknown := sorted(set(document) - keys):
        raise CheckpointError(f"{file}: unknown key {unknown[0]}")
    if missing := sorted(keys - set(document)):
        raise CheckpointError(f"{file}: missing key {missing[0]}")
    model = _foreign_model(document, file) if foreign else document["model"]
    return CheckpointInfo(path=directory, model=model, training=document["training"])


def _foreign_model(document: dict[str, Any], file: Path) -> dict[str, Any]:
    """A model from outside this suite, described by the same keys as a model of the suite."""
    transformer, circuit = document["transformer"], document["circuit"]
    for name, part, words in (
        ("transformer", transformer, ("n_ctx", "d_model")),
        ("circuit", circuit, ("order", "vocab", "bos", "symbols", "copy_heads", "match_heads", "length")),
    ):
        if not isinstance(part, dict):
            raise CheckpointError(f"{file}: {name} must be a JSON object")
        if missing := [word for word in words if word not in part]:
            raise CheckpointError(f"{file}: missing key {missing[0]} in {name}")
    return {
        "family": FOREIGN,
        "order": circuit["order"],
        "vocab": circuit["vocab"],
        "length": circuit["length"],
        "bos": circuit["bos"] not in (None, "first"),
        "first_as_bos": circuit["bos"] == "first",
        "d_model": transformer["d_model"],
        "readout": "logit",
        "transformer": transformer,
        "circuit": circuit,
    }


def replace_directory(staging: Path, target: Path) -> None:
    """Put the finished directory `staging` in the place of `target`.

    POSIX cannot swap two directories in one step. The old one first moves to a fixed name beside it, where `load`
    looks if a crash comes before the new one has arrived.
    """
    previous = _previous(target)
    if target.exists():
        shutil.rmtree(previous, ignore_errors=True)
        os.rename(target, previous)
    os.rename(staging, target)
    _flush(target.parent)
    shutil.rmtree(previous, ignore_errors=True)


def _previous(target: Path) -> Path:
    return target.parent / f".{target.name}.previous"


def _checked_path(path: str | os.PathLike[str]) -> Path:
    try:
        return as_path(path)
    except (TypeError, ValueError) as error:
        raise CheckpointError(one_line(error)) from None


def _resolve(path: Path) -> Path:
    if path.is_dir():
        return path
    if _previous(path).is_dir():
        return _previous(path)
    if path.exists():
        raise CheckpointError(f"{path}: a checkpoint is a directory, this is a file")
    raise CheckpointError(f"{path}: no such checkpoint{_nearest(path)}")


def _nearest(path: Path) -> str:
    """The end of an error message: the checkpoint in the same directory with the most similar name."""
    beside = path.parent.glob("*/config.json") if path.parent.is_dir() else ()
    near = difflib.get_close_matches(path.name, sorted(file.parent.name for file in beside), n=1, cutoff=0.8)
    return f"; did you mean {near[0]}?" if near else ""


def check_replaceable(target: Path) -> None:
    """Refuse a path that holds something other than a checkpoint."""
    if target.is_dir():
        if other := sorted({entry.name for entry in target.iterdir()} - {CONFIG_FILE, TENSOR_FILE}):
            raise CheckpointError(
                f"{target}: will not replace a directory that also holds {other[0]!r}; choose another path"
            )
        if any(target.iterdir()):
            try:
                read_info(target)
            except CheckpointError as error:
                raise CheckpointError(f"{error}; will not replace what is not one of ours") from error
    elif target.exists():
        raise CheckpointError(f"{target}: a file is in the way of the checkpoint directory")


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
