"""Checks the arguments of public functions: returns a value of the right type, or raises a `ValueError` of one line.

    whole_number(2, name="order", least=1)           an int, from any integer type
    finite_number(0.5, name="alpha", above=0)        a float
    real_array([2.7, 1.2], name="beta")              a float64 array
    fits_memory(8 * 512 * 64, what="the tokens")     nothing: the tokens of 512 sequences fit

Booleans, texts, NaN and infinities are refused as numbers: each of them is a sign of an earlier mistake. Integers
become Python's own, so that those of eight bits cannot overflow. Tensors that require gradients are read like any
other. `fits_memory` is called before the allocation, so that a refusal costs nothing.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import logging
import math
import numbers
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, SupportsFloat, SupportsIndex, TypeAlias, TypeVar

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from interp.outside import one_line as one_line
from interp.outside import shown as shown

if TYPE_CHECKING:
    import torch

    Whole: TypeAlias = SupportsIndex
    Number: TypeAlias = SupportsFloat
    Numbers: TypeAlias = Sequence[float] | Sequence[Sequence[float]] | NDArray[Any] | torch.Tensor
    Switch: TypeAlias = bool | np.bool_
    WholeField: TypeAlias = int  # a dataclass field: any integer may be given, and it becomes Python's own
    NumberField: TypeAlias = float
    NumbersField: TypeAlias = Sequence[float]
else:  # checked by the functions below, which say more than a type checker would
    Whole = Number = Numbers = Switch = WholeField = NumberField = NumbersField = Any

Function = TypeVar("Function", bound=Callable[..., Any])

MAX_BYTES = 4 << 30  # of one array: a laptop can hold it; a larger request is usually a mistake
MAX_COUNT = (1 << 31) - 1  # sequences, positions, draws: the compiled loops count in 32 bits
MAX_SEED = (1 << 64) - 1  # what torch takes


def whole_number(value: Whole, *, name: str, least: int = 0, most: int | None = None) -> int:
    """An integer of any type, at least `least` and at most `most`, as Python's own.

    >>> whole_number(np.int8(5), name="order", least=1)
    5
    """
    plain: Any = _scalar(value)
    if not is_whole(plain) or plain < least:
        raise ValueError(f"{name} must be an integer >= {least}, got {shown(value)}")
    if most is not None and plain > most:
        raise ValueError(f"{name} must be at most {most}, got {shown(value)}")
    return int(plain)


def is_whole(value: Any) -> bool:
    """Whether this is an integer of any type, but not a boolean."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def count(value: Whole, *, name: str, least: int = 1) -> int:
    """How many there are of something."""
    return whole_number(value, name=name, least=least, most=MAX_COUNT)


def seed_number(value: Whole, *, name: str = "seed") -> int:
    """The seed of a random generator."""
    return whole_number(value, name=name, most=MAX_SEED)


def finite_number(value: Number, *, name: str, above: int | float | None = None, most: float | None = None) -> float:
    """A finite number, greater than `above` and at most `most`.

    >>> finite_number(np.float32(0.5), name="alpha", above=0)
    0.5
    """
    plain: Any = _scalar(value)
    real = isinstance(plain, numbers.Real) and not isinstance(plain, bool)
    try:
        number = float(plain) if real else math.nan
    except OverflowError:  # an integer past the largest float
        number = math.inf
    wanted = "a finite number" if above is None else f"a finite number > {above:g}"
    if not math.isfinite(number) or (above is not None and number <= above):
        raise ValueError(f"{name} must be {wanted}, got {shown(value)}")
    if most is not None and number > most:
        raise ValueError(f"{name} must be at most {most:g}, got {shown(value)}")
    return number


def switch(value: Switch, *, name: str) -> bool:
    """True or False; a value that only evaluates to one of them is refused."""
    plain = _scalar(value)
    if not isinstance(plain, (bool, np.bool_)):
        raise ValueError(f"{name} must be True or False, got {shown(value)}")
    return bool(plain)


def real_array(value: Any, *, name: str) -> Float[np.ndarray, ...]:
    """A float64 array of real numbers; the caller checks whether they are finite.

    >>> real_array((1, 2.5), name="beta").tolist()
    [1.0, 2.5]
    """
    array = plain_array(value, name=name)
    if array.size and array.dtype.kind not in "iuf":
        raise ValueError(f"{name} must hold real numbers, got {array.dtype}")
    return np.asarray(array, dtype=np.float64)


def plain_array(value: Any, *, name: str) -> NDArray[Any]:
    """An array of the type that was given: from a tensor on any device, an array, or nested lists of numbers."""
    if hasattr(value, "detach"):  # a torch tensor, recognised without importing torch
        value = value.detach().cpu()
        value = value.float() if str(value.dtype) == "torch.bfloat16" else value
        return np.asarray(value.numpy())
    try:
        return np.asarray(value)
    except (ValueError, TypeError, OverflowError, RuntimeError) as error:
        raise ValueError(f"{name} must be an array of numbers, or lists of equal length: {one_line(error)}") from None


def fits_memory(size: int, *, what: str, instead: str = "") -> None:
    """Refuse an array of more than `MAX_BYTES` before it is allocated; `size` is in bytes."""
    if size > MAX_BYTES:
        need = f"{size / 2**30:.1f} GiB" if size < 1 << 60 else "far too much memory"
        raise ValueError(
            f"{what} would need {need}, more than {MAX_BYTES >> 30} GiB{f'; {instead}' if instead else ''}"
        )


def keywords(**former: str) -> Callable[[Function], Function]:
    """Lets a function refuse a keyword that it does not have in one line that names the right one.

    former   spellings of earlier versions, each with what to write now: `keywords(queries="query")`
    """

    def checked(function: Function) -> Function:
        known = list(inspect.signature(function).parameters)

        @functools.wraps(function)
        def call(*args: Any, **given: Any) -> Any:
            for name in given:
                if name not in known:
                    near = difflib.get_close_matches(name, known, n=1)
                    instead = f"did you mean {near[0]}?" if near else f"it has {', '.join(known)}"
                    instead = f"write {former[name]}" if name in former else instead
                    raise TypeError(f"{function.__name__}() has no keyword {name}: {instead}")
            return function(*args, **given)

        return call  # type: ignore[return-value]

    return checked


def takes_memory(size: int, *, what: str, instead: str = "") -> None:
    """Refuse what would take more than half of this machine's memory, before it is taken; announce what takes a GiB."""
    room, need = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2, size / 2**30
    if size > room:
        raise ValueError(f"{what} would need {need:.1f} GiB, more than half of this machine's memory; {instead}")
    if need >= 1:
        logging.getLogger("interp").warning("%s will take %.1f GiB", what, need)


def _scalar(value: Any) -> Any:
    """The number in a tensor or array without axes; anything else is returned unchanged."""
    if hasattr(value, "detach") and getattr(value, "ndim", None) == 0:
        return value.detach().item()
    if isinstance(value, np.ndarray) and value.ndim == 0:
        return value.item()
    return value
