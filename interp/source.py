"""What the code is, as one digest: results that are kept, and compiled functions, are filed under it.

    source_digest(Path("interp"), Path("models"))     changes with every file of source or data below these folders

    @njit(error_model="numpy")                        numba's `njit`, with a cache that is named by the digest

Numba compiles a function anew when its own file changes. It does not see a change in another file, whose functions and
constants were compiled in. A folder of machine code for each state of the source cannot go stale.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

SOURCES = (".py", ".csv", ".txt", ".toml", ".mplstyle", ".html", ".js", ".css")  # code, and data that code reads
DIGITS = 16

Function = TypeVar("Function", bound=Callable[..., Any])


@functools.cache
def source_digest(*folders: Path) -> str:
    """The digest of the source below some folders, as it is when it is first asked for.

    Parameters
    ----------
    folders
        The folders, such as those of packages. Hidden folders, and those of Python's bytecode, do not count.
    """
    whole = hashlib.sha256()
    for file, name in source_files(*folders):
        whole.update(f"{name}\0".encode())
        whole.update(hashlib.sha256(file.read_bytes()).digest())
    return whole.hexdigest()[:DIGITS]


def source_files(*folders: Path) -> Iterator[tuple[Path, str]]:
    """The files of source and data below the folders, in order, each with its name from the folder's on."""
    for folder in folders:
        for parent, below, files in os.walk(folder):
            below[:] = sorted(one for one in below if one != "__pycache__" and not one.startswith("."))
            for file in sorted(files):
                if file.endswith(SOURCES):
                    place = Path(parent, file)
                    yield place, place.relative_to(folder.parent).as_posix()


def compiled_for(*folders: Path) -> Callable[..., Callable[[Function], Function]]:
    """`numba.njit` with a cache of its own for each state of the source below some folders.

    Parameters
    ----------
    folders
        The package that defines the functions, first, and those whose functions it compiles in.

    Returns
    -------
    Callable
        A decorator that takes the options of `numba.njit`, by name.
    """

    def njit(**options: Any) -> Callable[[Function], Function]:
        import numba

        cache = folders[0] / "__pycache__" / f"compiled-{source_digest(*folders)}"

        def decorate(function: Function) -> Function:
            settings: Any = numba.config  # its names are made at run time
            before, settings.CACHE_DIR = settings.CACHE_DIR, _made(cache) or settings.CACHE_DIR
            try:
                compiled: Function = numba.njit(cache=True, **options)(function)
            finally:
                settings.CACHE_DIR = before
            return compiled

        return decorate

    return njit


@functools.cache
def _made(cache: Path) -> str:
    """The folder, made, and those of other states of the source removed; empty where nothing can be written there."""
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError:  # a read-only installation: numba finds a place of its own
        return ""
    for other in cache.parent.glob("compiled-*"):
        if other != cache:
            shutil.rmtree(other, ignore_errors=True)
    return str(cache)


KERNELS = (Path(__file__).parent / "chains", Path(__file__).parent / "estimators")
"""The packages that hold kernels. A kernel compiles in functions and constants of these alone."""

njit = compiled_for(*KERNELS)
"""Numba's `njit` for the kernels of `interp`."""
