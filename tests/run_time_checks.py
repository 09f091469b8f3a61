"""Run-time checks of the annotations of `interp`, as jaxtyping's import hook makes them, at a fraction of their cost.

jaxtyping binds the arguments of every call and opens a frame for the sizes of its axes, also where a function names no
shape; most calls are of such functions. Here only functions that name a shape go through `jaxtyping.jaxtyped`. All
others have the same annotations checked by the same beartype, which raises the same `TypeCheckError`.

A function is wrapped at its first call. By then all names of its module are defined: an annotation that names a class
further down in its file is checked too, which jaxtyping, wrapping at import, takes for `Any`.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

import jaxtyping
import jaxtyping._decorator as decorator
import jaxtyping._import_hook as import_hook
from beartype import BeartypeConf, beartype

_jaxtyped = decorator.jaxtyped
_is_no_type_check = import_hook._is_no_type_check
_alone = beartype(conf=BeartypeConf(violation_type=jaxtyping.TypeCheckError))
CHECKER = "tests.run_time_checks.beartyped"
_compiled = {"njit", "jit", "vectorize", "guvectorize"}
_kept: dict[tuple[Any, ...], Callable[..., Any]] = {}


def install() -> None:
    """Check `interp`, which must not be imported yet."""
    import_hook._is_no_type_check = _is_unchecked
    jaxtyping.jaxtyped = checked
    import_hook.install_import_hook("interp", CHECKER)


def _is_unchecked(decorator: ast.AST) -> bool:
    """The hook decorates every function, innermost. Numba cannot compile a decorated function, so its kernels are left
    alone, as the hook itself leaves @no_type_check."""
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return getattr(called, "id", getattr(called, "attr", None)) in _compiled or _is_no_type_check(decorator)


def beartyped(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that jaxtyping made to hold a signature, checked by beartype.

    A function within a function is a new one at every call, but its signature is not: what was made for it is kept.
    """
    code: CodeType = function.__code__
    key = (function.__module__, function.__qualname__, code, *function.__annotations__.items())
    try:
        return _kept[key]
    except TypeError:  # an annotation that cannot be hashed
        return beartype(function)
    except KeyError:
        return _kept.setdefault(key, beartype(function))


def checked(function: Any = None, *, typechecker: Any) -> Any:
    """In place of `jaxtyping.jaxtyped`."""
    if function is None:
        return functools.partial(checked, typechecker=typechecker)
    if inspect.isclass(function):
        inherited = getattr(function.__init__, "__globals__", {}).get("__name__") == __name__  # and checked already
        if dataclasses.is_dataclass(function) and not inherited:
            function.__init__ = checked(function.__init__, typechecker=typechecker)  # type: ignore[misc]
        return function
    if not isinstance(function, FunctionType):
        return _jaxtyped(function, typechecker=typechecker)
    wrapped: Callable[..., Any] | None = None

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        nonlocal wrapped
        if jaxtyping.config.jaxtyping_disable:
            return function(*args, **kwargs)
        if wrapped is None:
            wrapped = _wrapped(function, typechecker)
        return wrapped(*args, **kwargs)

    return call


def _wrapped(function: FunctionType, typechecker: Any) -> Callable[..., Any]:
    names = function.__annotations__.items()
    hints = {name: decorator._destring_annotation(hint, function.__globals__) for name, hint in names}
    # Alone, beartype would check the arguments of a generator only when it starts.
    special = "<locals>" in function.__qualname__ or inspect.isgeneratorfunction(function)
    if special or not all(map(names_no_axis, hints.values())):
        return _jaxtyped(function, typechecker=typechecker)
    twin = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    twin.__module__, twin.__qualname__ = function.__module__, function.__qualname__
    twin.__kwdefaults__, twin.__annotations__ = function.__kwdefaults__, hints
    return _alone(twin)


def names_no_axis(hint: Any) -> bool:
    """Whether an annotation is made of ordinary classes alone. What cannot be taken apart is left to jaxtyping."""
    if isinstance(hint, (list, tuple)):  # the arguments in Callable[[int, str], float]
        return all(map(names_no_axis, hint))
    origin = typing.get_origin(hint)
    if origin is typing.Literal:
        return True
    if origin is not None:
        return names_no_axis(origin) and names_no_axis(typing.get_args(hint))
    if isinstance(hint, type):
        return not any(one.__module__.startswith("jaxtyping") for one in hint.__mro__)
    return any(hint is one for one in (Any, None, Ellipsis, typing.Union))
