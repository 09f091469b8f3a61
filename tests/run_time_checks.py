"""The annotations of `interp` are checked while the tests run, by beartype through jaxtyping's import hook."""

from __future__ import annotations

import ast

import jaxtyping._import_hook as import_hook

_is_no_type_check = import_hook._is_no_type_check
COMPILED = {"njit", "jit", "vectorize", "guvectorize"}


def install() -> None:
    """Check `interp`, which must not be imported yet."""
    import_hook._is_no_type_check = _is_unchecked
    import_hook.install_import_hook("interp", "beartype.beartype")


def _is_unchecked(decorator: ast.AST) -> bool:
    """The hook decorates every function, innermost. Numba cannot compile a decorated function, so its kernels are left
    alone, as the hook itself leaves @no_type_check."""
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return getattr(called, "id", getattr(called, "attr", None)) in COMPILED or _is_no_type_check(decorator)
