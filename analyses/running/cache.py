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


class Cache:
    """Values by the digest of what they depend on: a directory of small files without pickles, or memory alone."""

    def __init__(self, directory: Path | None) -> None:
        self.directory = directory
        self.memory: dict[str, Any] = {}
        if directory is not None:
            _times()  # before anything is made

    def arrays(self, key: dict[str, Any], make: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """The arrays kept for the key, or those that `make` gives, which are kept."""
        import numpy as np

        def read(content: bytes) -> Any:
            with np.load(io.BytesIO(content), allow_pickle=False) as stored:
                return dict(stored)

        def written(arrays: Any) -> bytes:
            buffer = io.BytesIO()
            np.savez(buffer, allow_pickle=False, **arrays)
            return buffer.getvalue()

        found: dict[str, np.ndarray] = self._find(key, make, form=("npz", read, written))
        return found

    def value(
        self, key: dict[str, Any], make: Callable[[], Any], *, keep: Callable[[Any], bool] = lambda value: True
    ) -> Any:
        """The JSON value kept for the key, or the one that `make` gives, which is kept if `keep` says so."""

        def written(value: Any) -> bytes:
            return (json.dumps({"key": key, "value": value}) + "\n").encode()

        def made() -> Any:
            return json.loads(json.dumps(make()))  # the same types whether it was read or computed

        return self._find(key, made, form=("json", _json_value, written), keep=keep)

    def known(self, key: dict[str, Any]) -> Any | None:
        """The JSON value that is kept for the key, or None if there is none."""
        name = _name(key, "json")
        return self.memory[name] if name in self.memory else self._read(name, _json_value)

    def _find(
        self,
        key: dict[str, Any],
        make: Callable[[], Any],
        *,
        form: tuple[str, Callable[[bytes], Any], Callable[[Any], bytes]],
        keep: Callable[[Any], bool] = lambda value: True,
    ) -> Any:
        suffix, read, written = form
        name = _name(key, suffix)
        if name in self.memory:
            return self.memory[name]
        found = self._read(name, read)
        if found is None:
            found = make()
            if not keep(found):
                return found
            if self.directory is not None and code_is_unchanged():
                write_file(self.directory / name, written(found))
        self.memory[name] = found
        return found

    def _read(self, name: str, read: Callable[[bytes], Any]) -> Any | None:
        """The content of the file; None if it is missing or damaged."""
        if self.directory is not None:
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
                return read((self.directory / name).read_bytes())
        return None


def _name(key: dict[str, Any], suffix: str) -> str:
    return f"{key['what']}-{digest_of([key, code_key()])[:24]}.{suffix}"


def _json_value(content: bytes) -> Any:
    return json.loads(content)["value"]
