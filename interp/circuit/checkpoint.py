"""Save and load any model: one of this suite, or one from elsewhere with the place of its circuit.

    save(model, path)
    model = load(path)
    save(Circuit(foreign, order=2, match_heads=((3, 0), (3, 2)), vocab=5, bos=5), path)
    circuit = load(path)                                       a circuit comes back as a circuit

Both are directories with `config.json` and `model.safetensors`, and nothing that can run code
(`interp.hooked.checkpoint`). Of a model from elsewhere `config.json` holds its architecture (`interp.hooked.foreign`)
and the circuit: order, symbols, BOS, and the heads as far as they are known. A model that these keys do not describe,
such as one whose layers were replaced, is refused: it could not be rebuilt.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import torch

from interp.arguments import shown
from interp.circuit.circuit import Circuit, Model
from interp.hooked import checkpoint as ours
from interp.hooked.checkpoint import (
    CIRCUIT_FORMAT,
    CONFIG_FILE,
    FOREIGN,
    Version,
    read_version,
    warn_unfinished,
    write_directory,
)
from interp.hooked.foreign import KEYS, NOT_READ, least_tensors
from interp.hooked.transformer import InductionTransformer
from interp.lens import HookedTransformer, HookedTransformerConfig
from interp.results import jsonable

# What belongs to a machine or to a download, not to the model.
LEFT_OUT = (
    "device", "n_devices", "seed", "init_weights", "tokenizer_name", "trust_remote_code", "n_params",
    "checkpoint_value", *NOT_READ,
)  # fmt: skip


def save(
    model: Model,
    path: str | os.PathLike[str],
    *,
    length: int | None = None,
    training: Mapping[str, object] | None = None,
    half: bool = False,
) -> None:
    """Write a model of this suite, or a `Circuit`, to the directory `path`.

    Parameters
    ----------
    model : InductionTransformer or Circuit
        What to save; of a circuit the model must be a HookedTransformer that its config describes.
    path : str or path
        The directory. A checkpoint there is replaced, a directory with other things in it never.
    length : int, optional
        Of a circuit: how many tokens analyses give it; by default one less than the context holds, so that the last
        position has a next token.
    training : mapping of str, optional
        A JSON-able record of how the weights were made; of its "prior" (`prior.to_dict()`) `read_info(path).prior` is
        made.
    half : bool
        Of a circuit: whether the file has 16 bits a number, for many snapshots; `load` makes them 32 again.

    Examples
    --------
    >>> import interp as ip, tempfile
    >>> model = ip.construct(order=1, vocab=2, length=4, beta=(3.0,))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ip.save(model, f"{folder}/mine")
    ...     ip.load(f"{folder}/mine").config.order
    1
    """
    if isinstance(model, InductionTransformer):
        ours.save(model, path, training=training)
        return
    if not isinstance(model, Circuit):
        hint = ": give ip.Circuit(model, order=...), which says what it is to do" if hasattr(model, "cfg") else ""
        raise ValueError(f"expected a model of this suite or a Circuit, got {type(model).__name__}{hint}")
    if isinstance(model.model, InductionTransformer):
        raise ValueError("this circuit is of a model of this suite: save the model, which says where its circuit sits")
    if not isinstance(model.model, HookedTransformer):
        raise ValueError(f"only a HookedTransformer can be saved, got {type(model.model).__name__}")
    config = _config_of(model.model)
    _check_described(model.model, config)
    room = int(model.model.cfg.n_ctx) - model.has_bos
    document = {
        "format": CIRCUIT_FORMAT,
        "transformer": config,
        "circuit": _circuit_of(model, length=min(room, max(1, room - 1)) if length is None else length),
        "training": training,
    }
    tensors = {name: value.half() if half else value for name, value in model.model.named_parameters()}
    write_directory(path, document, tensors)


def load(path: str | os.PathLike[str]) -> InductionTransformer | Circuit:
    """The saved model of this suite, or the `Circuit`.

    Parameters
    ----------
    path : str or path
        The directory that `save` wrote. A `CheckpointError` says why it cannot be read; a checkpoint of an unfinished
        or diverged run loads with a warning that says how far the run came.

    Returns
    -------
    InductionTransformer or Circuit
        It remembers the path as `checkpoint`, for the provenance of results.

    Examples
    --------
    `save` has one.
    """
    model, info = read_version(path, lambda version: (_read(version), version.info))
    warn_unfinished(info)
    (model.model if isinstance(model, Circuit) else model).checkpoint = model.checkpoint = str(path)
    return model


def _read(version: Version) -> InductionTransformer | Circuit:
    described = version.info.model
    if described["family"] != FOREIGN:
        return ours.read_model(version)
    config = described["transformer"]
    model = version.filled(lambda: _made(config), kind="this HookedTransformer", least=least_tensors(config))
    place = {name: value for name, value in described["circuit"].items() if name != "length"}
    with version.refusals(CONFIG_FILE):
        return Circuit(model, **place)


def _config_of(model: HookedTransformer) -> dict[str, Any]:
    """The architecture as JSON, its precision by name; a `ValueError` names what a checkpoint has no key for."""
    values: dict[str, Any] = model.cfg.to_dict()  # type: ignore[no-untyped-call]
    usual = {field.name: field.default for field in fields(model.cfg)}
    for name, value in values.items():
        if name not in (*KEYS, *LEFT_OUT) and value != usual.get(name):
            raise ValueError(f"a checkpoint cannot hold a model with {name}={shown(value)}")
    config = {name: value for name, value in values.items() if name in KEYS}
    plain = {name: value.item() if hasattr(value, "item") else value for name, value in config.items()}
    return plain | {"dtype": str(model.cfg.dtype).removeprefix("torch.")}


def _made(config: dict[str, Any]) -> HookedTransformer:
    """A HookedTransformer of this architecture, on the CPU, its parameters still to be filled."""
    dtype = getattr(torch, config["dtype"])
    off = {"device": "cpu", "init_weights": False, "default_prepend_bos": False}
    return HookedTransformer(HookedTransformerConfig(**{**config, **off, "dtype": dtype}), move_to_device=False)


def _check_described(model: HookedTransformer, config: dict[str, Any]) -> None:
    """Refuse a model that cannot be rebuilt from its config."""
    with torch.device("meta"):
        twin = {name: value.shape for name, value in _made(config).named_parameters()}
    own = {name: value.shape for name, value in model.named_parameters()}
    for name in sorted(set(own) ^ set(twin)):
        raise ValueError(f"the model's config does not describe it: parameter {name}")
    for name, shape in own.items():
        if shape != twin[name]:
            raise ValueError(f"the model's config does not describe it: parameter {name} has shape {list(shape)}")


def _circuit_of(circuit: Circuit, *, length: int) -> dict[str, Any]:
    """The circuit as JSON: the arguments of `Circuit`."""
    if circuit.symbols is not None and circuit.symbols.ndim > 1:
        raise ValueError("symbols that differ from sequence to sequence belong to the sequences: they cannot be saved")
    return {
        "order": circuit.order,
        "vocab": circuit.vocab,
        "bos": circuit.declared_bos,
        "symbols": None if circuit.symbols is None else circuit.symbols.tolist(),
        "copy_heads": jsonable(circuit.copy_heads) if circuit.lags_known else None,
        "match_heads": [list(place) for place in circuit.match_heads],
        "length": length,
    }
