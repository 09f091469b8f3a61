"""Checkpoints: a directory with `config.json` and `model.safetensors`, and nothing that can run code.

    save(model, path)
    model = load(path)

A checkpoint may come from a stranger. So `config.json` is a closed list of keys, each with its type and range, and the
tensors are compared with it before memory is allocated (`interp.hooked.tensors`). What is saved passes the same check.
Saving is atomic: the new directory is complete on disk before it takes the old one's place, and after a crash in
between, `load` finds one of the two. Reading is atomic, too: a checkpoint that is replaced meanwhile is read again.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from interp.arguments import count, finite_number, fits_memory, seed_number, whole_number
from interp.hooked.config import InductionConfig
from interp.hooked.foreign import FOREIGN as FOREIGN
from interp.hooked.foreign import described
from interp.outside import (
    MAX_DESCRIPTION_BYTES,
    MAX_MESSAGE,
    MAX_TEXT,
    as_json,
    as_path,
    check_keys,
    one_line,
    open_file,
    shown,
    text_of,
)
from interp.results import jsonable
from interp.staging import new_directory, remove_leftovers

if TYPE_CHECKING:
    import torch

    from interp.chains.priors import Prior
    from interp.hooked.transformer import InductionTransformer

FORMAT = "interp-checkpoint-1"
CIRCUIT_FORMAT = (
    "interp-circuit-1"  # a model from outside this suite, with the place of its circuit (`interp.circuit.checkpoint`)
)
CONFIG_FILE, TENSOR_FILE = "config.json", "model.safetensors"
MOST_READS = 10  # of a checkpoint that is replaced while it is read

Found = TypeVar("Found")
Model = TypeVar("Model", bound="torch.nn.Module")
State = tuple[tuple[int, ...] | None, ...]  # inode, size and time of each file


class CheckpointError(ValueError):
    """A checkpoint that is missing, damaged or not one of ours. Its message is one line, whatever the path's name."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message[:MAX_MESSAGE]))


@dataclass(frozen=True, kw_only=True)
class CheckpointInfo:
    """The content of `config.json`.

    path      the checkpoint's directory
    model     the model's shape, as `InductionConfig.to_dict` gives it
    training  how it was trained; None for analytic weights
    state     of both files when this was read: it differs once the checkpoint was replaced
    """

    path: Path
    model: dict[str, Any]
    training: dict[str, Any] | None
    state: State = ()

    @property
    def one_hot(self) -> bool:
        """As `InductionConfig.one_hot`: whether weights and votes can be read block by block."""
        return self.model.get("d_model") is None

    @property
    def prior(self) -> Prior:
        """What the model was trained on; a `CheckpointError` where the training record does not say it."""
        from interp.chains.descriptions import prior_from_dict

        described = (self.training or {}).get("prior")
        if described is None:
            raise CheckpointError(f"{self.path}: its training record names no prior")
        try:
            return prior_from_dict(described)
        except ValueError as error:
            raise CheckpointError(f"{self.path / CONFIG_FILE}: {error}") from error


def save(
    model: InductionTransformer, path: str | os.PathLike[str], *, training: Mapping[str, object] | None = None
) -> None:
    """Write the model to the directory `path`. A checkpoint there is replaced, a directory with other files never.

    `training` is a JSON-able record of how the weights were made; it is kept in `config.json`.
    """
    document = {"format": FORMAT, "model": model.config.to_dict(), "training": training}
    write_directory(path, document, dict(model.named_parameters()))


def write_directory(path: str | os.PathLike[str], document: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    """Write a checkpoint's two files so that they appear together or not at all."""
    from safetensors.torch import save_file

    target = _checked_path(path).resolve()  # resolves links, so that the directory itself is replaced
    text = json.dumps(document, indent=2, allow_nan=False, default=jsonable) + "\n"
    check_document(as_json(text, any_size=True))
    check_replaceable(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    staging = new_directory(target)
    try:
        with one_kind_of_error(target):
            own = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
            save_file(own, staging / TENSOR_FILE)
        (staging / CONFIG_FILE).write_text(text)
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
    return read_version(path, read_model)


def read_model(version: Version) -> InductionTransformer:
    """A model of this suite."""
    from interp.hooked.transformer import InductionTransformer

    with version.refusals(CONFIG_FILE):
        config = InductionConfig.from_dict(version.info.model)
    return version.filled(lambda: InductionTransformer(config), kind=f"a {config.family} model")


def read_info(path: str | os.PathLike[str]) -> CheckpointInfo:
    """The description of a checkpoint alone, checked: quick, without torch.

    Parameters
    ----------
    path : str or path
        The directory that `save` wrote.

    Returns
    -------
    CheckpointInfo
        `model`, its shape; `training`, the record of how it was made; and `prior`, what it was trained on.

    Examples
    --------
    >>> import interp as ip, tempfile
    >>> model = ip.construct(order=1, vocab=2, length=4, beta=(3.0,))
    >>> prior = ip.IndependentDirichlet(order=1, vocab=2, alpha=0.5)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ip.save(model, f"{folder}/mine", training={"prior": prior.to_dict()})
    ...     ip.read_info(f"{folder}/mine").prior.text
    'independent:0.5'
    """
    return read_version(path, lambda version: version.info)


def read_version(path: str | os.PathLike[str], read: Callable[[Version], Found]) -> Found:
    """What `read` makes of one version of the checkpoint; where it was replaced meanwhile, of the next one."""
    for _ in range(MOST_READS):
        with contextlib.closing(Version(_checked_path(path))) as version:
            try:
                found = read(version)
            except CheckpointError:
                if version.is_unchanged():
                    raise
            else:
                if version.is_unchanged():
                    return found
    raise CheckpointError(f"{path}: replaced again and again while it is read; read it when that is done")


class Version:
    """A checkpoint as it lies in one directory, whose files are opened through the directory's descriptor.

    So they stay together where the directory is replaced. Where the files in it are, `is_unchanged` tells.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.directory = _open_directory(path)
        self._state = self._state_now()

    def close(self) -> None:
        """Let the directory go."""
        os.close(self.directory)

    @cached_property
    def info(self) -> CheckpointInfo:
        """The content of `config.json`, checked."""
        with self._opened(CONFIG_FILE) as handle, self.refusals(CONFIG_FILE):
            # A seed may have 64 bits; every number that is read has a range of its own.
            document = as_json(text_of(handle, most=MAX_DESCRIPTION_BYTES, form="JSON"), any_size=True)
            if not isinstance(document, dict):
                raise ValueError(f"expected a JSON object, got {type(document).__name__}")
            model = check_document(document)
        if weights := self._state[-1]:
            with self.refusals(TENSOR_FILE):
                fits_memory(weights[2], what="the file")  # before anything reads it
        return CheckpointInfo(path=self.path, model=model, training=document["training"], state=self._state)

    def is_unchanged(self) -> bool:
        """Whether the directory and both files are still those that were there at the beginning."""
        try:
            here = os.path.samestat(os.stat(self.path), os.fstat(self.directory))
        except OSError:
            return False
        return here and self._state_now() == self._state

    def filled(self, make: Callable[[], Model], *, kind: str, least: int = 0) -> Model:
        """`interp.hooked.tensors.filled` from the checkpoint's tensors."""
        from interp.hooked.tensors import filled

        with self._opened(TENSOR_FILE) as handle, self.refusals(TENSOR_FILE):
            return filled(make, handle, kind=kind, least=least)

    @contextlib.contextmanager
    def refusals(self, name: str) -> Iterator[None]:
        """What is wrong with the file `name`, as a `CheckpointError`."""
        try:
            yield
        except (ValueError, OSError) as error:
            raise CheckpointError(f"{self.path / name}: {error}") from error

    def _opened(self, name: str) -> BinaryIO:
        try:
            return open_file(name, folder=self.directory)
        except (FileNotFoundError, ValueError):
            what = f"not a checkpoint, it has no {name}" if name == CONFIG_FILE else f"no {name} in the checkpoint"
            raise CheckpointError(f"{self.path}: {what}") from None
        except OSError as error:
            raise CheckpointError(f"{self.path / name}: {error.strerror or error}") from None

    def _state_now(self) -> State:
        found: list[tuple[int, ...] | None] = []
        for name in (CONFIG_FILE, TENSOR_FILE):
            try:
                now = os.stat(name, dir_fd=self.directory)
                found.append((now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns))
            except OSError:
                found.append(None)
        return tuple(found)


def check_document(document: dict[str, Any]) -> dict[str, Any]:
    """The model that a `config.json` describes, in the suite's words; a `ValueError` says what is wrong with it."""
    if document.get("format") not in (FORMAT, CIRCUIT_FORMAT):
        raise ValueError(f"format is {shown(document.get('format'))}, expected {FORMAT!r}")
    foreign = document["format"] == CIRCUIT_FORMAT
    parts = ("transformer", "circuit") if foreign else ("model",)
    check_keys(document, ("format", "training", *parts), place="the document")
    record = document["training"] or {}
    if not isinstance(document["training"], (dict, type(None))):
        raise ValueError("training must be a JSON object or null")
    for name in RECORD.keys() & record.keys():
        if record[name] is not None:
            RECORD[name](record[name], f"{name} in training")
    return described(document) if foreign else InductionConfig.from_dict(document["model"]).to_dict()


def _check_text(value: Any, place: str) -> None:
    if not isinstance(value, str) or not value.isprintable() or len(value) > MAX_TEXT:
        raise ValueError(f"{place} must be a short text, got {shown(value)}")


def _check_prior(prior: Any, place: str) -> None:
    """Refuse what no prior's `to_dict` gives; `prior_from_dict` reads it, and needs torch."""
    if not isinstance(prior, dict) or not isinstance(prior.get("kind"), str):
        raise ValueError(f"{place} must be an object with its kind, got {shown(prior)}")
    for name in ("order", "vocab"):
        value: Any = prior.get(name)
        whole_number(value, name=f"{name} of the {place}", least=1)


# What is read elsewhere of a training record, which may hold more.
RECORD: dict[str, Callable[[Any, str], object]] = {
    "seed": lambda value, place: seed_number(value, name=place),
    **dict.fromkeys(("step", "steps"), lambda value, place: count(value, name=place, least=0)),
    **dict.fromkeys(("seconds", "repeated", "held_out_loss"), lambda value, place: finite_number(value, name=place)),
    **dict.fromkeys(("status", "protocol", "init", "source", "freeze", "readout", "target"), _check_text),
    "prior": _check_prior,
}


def unfinished_at(info: CheckpointInfo) -> str:
    """How far the run came that left this checkpoint, e.g. "step 7,200 of 40,000"; empty if it came to its end.

    The training record may be another program's: one without a status is not of a run that can be unfinished. A
    snapshot, in RUN.run/snapshots, is of the middle of its run on purpose.
    """
    record, place = info.training or {}, info.path.resolve().parent
    status = record.get("status")
    if status in (None, "finished") or (place.name == "snapshots" and place.parent.suffix == ".run"):
        return ""
    step, steps = record.get("step"), record.get("steps")
    words = {"running": "unfinished", "diverged": "diverged"}.get(str(status), f"status {shown(status)}")
    if type(step) is not int:
        return words
    of = f" of {steps:,}" if type(steps) is int else ""
    return f"{'' if status == 'running' else f'{words} at '}step {step:,}{of}"


def warn_unfinished(info: CheckpointInfo) -> None:
    """Warn the caller of `interp.load` of a checkpoint whose run did not come to its end."""
    if words := unfinished_at(info):
        warnings.warn(one_line(f"{info.path}: of a run that is not finished ({words})"), stacklevel=3)


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


def clear_leftovers(target: Path) -> None:
    """Remove what saves that were killed left beside a whole checkpoint, which nobody is writing any more."""
    remove_leftovers(target)
    if target.is_dir():
        shutil.rmtree(_previous(target), ignore_errors=True)


def _previous(target: Path) -> Path:
    return target.parent / f".{target.name}.previous"


def _checked_path(path: str | os.PathLike[str]) -> Path:
    try:
        return as_path(path)
    except (TypeError, ValueError) as error:
        raise CheckpointError(one_line(error)) from None


def _open_directory(path: Path) -> tuple[Path, int]:
    """The checkpoint's directory and its descriptor."""
    for place in (path, _previous(path), path):  # between the two renames of a save it is the second, then the first
        try:
            return place, os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise CheckpointError(f"{path}: {error.strerror or error}") from None
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
