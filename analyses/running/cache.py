"""The cache: a result is kept under a digest of everything that it depends on.

    cache = Cache(Path("results/cache"))
    cache.value({"what": "optimum", "length": 64}, make)       JSON
    cache.arrays({"what": "kl", "sequences": ...}, make)       NumPy arrays

The caller's key names options, weights and sequences. The code is one digest of all of `interp`, `models` and
`analyses`, to which the versions of Python and of the packages that compute belong: an edit anywhere makes every result
anew. Only `analyses/claims` does not count: it judges tables, and computes none that is kept.

The source is read once in each process. A value that was made while the files on disk changed is returned, but not
kept.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import json
import platform
import zipfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analyses.running.files import write_file
from interp.source import source_digest, source_files

if TYPE_CHECKING:
    import numpy as np

ROOT = Path(__file__).parents[2]
PACKAGES = tuple(ROOT / name for name in ("interp", "models", "analyses", "figures"))
COMPUTING = (
    *PACKAGES[:2],
    *(ROOT / "analyses" / name for name in ("checkpoint", "studies", "parts", "running", "tables")),
)
LIBRARIES = ("torch", "transformer-lens", "numpy", "scipy", "numba", "pandas", "einops", "safetensors", "transformers")
PICTURE_LIBRARIES = (*LIBRARIES, "matplotlib", "seaborn")


@functools.cache
def code_key() -> str:
    """A digest of the code behind numbers."""
    return digest_of([source_digest(*COMPUTING), _versions(LIBRARIES)])


@functools.cache
def picture_key() -> str:
    """A digest of the code behind pictures."""
    return digest_of([source_digest(*PACKAGES), _versions(PICTURE_LIBRARIES)])


def _versions(libraries: tuple[str, ...]) -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in libraries:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


@functools.cache
def _times() -> dict[Path, int]:
    """When each file of the code was changed, as it was when its digest was taken."""
    source_digest(*COMPUTING)
    return {file: file.stat().st_mtime_ns for file, _ in source_files(*COMPUTING)}


def code_is_unchanged() -> bool:
    """Whether the files on disk are those of the digest."""
    try:
        return all(file.stat().st_mtime_ns == time for file, time in _times().items())
    except OSError:  # a file is gone
        return False


def digest_of(value: Any) -> str:
    """A digest of a JSON-able value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _read_arrays(content: bytes) -> dict[str, np.ndarray]:
    import numpy as np

    with np.load(io.BytesIO(content), allow_pickle=False) as stored:
        return dict(stored)


def _written_arrays(key: dict[str, Any], arrays: dict[str, np.ndarray]) -> bytes:
    import numpy as np

    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def _read_value(content: bytes) -> Any:
    return json.loads(content)["value"]


def _written_value(key: dict[str, Any], value: Any) -> bytes:
    return (json.dumps({"key": key, "value": value}) + "\n").encode()


FORMS: dict[str, tuple[Callable[[bytes], Any], Callable[[dict[str, Any], Any], bytes]]] = {
    "npz": (_read_arrays, _written_arrays),
    "json": (_read_value, _written_value),
}


class Cache:
    """Values by the digest of what they depend on: a directory of small files without pickles, or memory alone."""

    def __init__(self, directory: Path | None) -> None:
        self.directory = directory
        self.memory: dict[str, Any] = {}
        if directory is not None:
            _times()  # before anything is made

    def arrays(self, key: dict[str, Any], make: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """The arrays kept for the key, or those that `make` gives, which are kept."""
        found: dict[str, np.ndarray] = self._find(key, "npz", make)
        return found

    def value(self, key: dict[str, Any], make: Callable[[], Any]) -> Any:
        """The JSON value kept for the key, or the one that `make` gives, which is kept."""
        return self._find(key, "json", lambda: json.loads(json.dumps(make())))  # the same types as if read

    def known(self, key: dict[str, Any], suffix: str = "json") -> Any | None:
        """The value that is kept for the key; None if there is none, or its file is damaged."""
        name = _name(key, suffix)
        if name not in self.memory and self.directory is not None:
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
                self.memory[name] = FORMS[suffix][0]((self.directory / name).read_bytes())
        return self.memory.get(name)

    def _find(self, key: dict[str, Any], suffix: str, make: Callable[[], Any]) -> Any:
        found = self.known(key, suffix)
        if found is None:
            found = self.memory[_name(key, suffix)] = make()
            if self.directory is not None and code_is_unchanged():
                write_file(self.directory / _name(key, suffix), FORMS[suffix][1](key, found))
        return found


def _name(key: dict[str, Any], suffix: str) -> str:
    return f"{key['what']}-{digest_of([key, code_key()])[:24]}.{suffix}"
