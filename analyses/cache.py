"""The cache: a result is kept under a digest of everything that it depends on.

    cache = Cache(Path("results/cache"))
    cache.value({"what": "optimum", "length": 64}, make)       JSON
    cache.arrays({"what": "kl", "sequences": ...}, make)       NumPy arrays

The caller's key names options, weights and sequences. The code behind the value is added to it from the import
graph, which grimp reads from the source: the module that defines `make`, every module of the suite that it imports, at
the top or inside functions, what these import, and so on. With them come the packages that they lie in (Python
runs their `__init__.py`), the data files beside a module that its source names, and the versions of the installed
packages that they import. No module is listed by hand, so none can be forgotten.

Imports under `if TYPE_CHECKING` are left out: they never run. Imports inside a function called `plot`, with which a
result draws itself, count for pictures (`picture_tree`) and not for numbers (`source_tree`). The imports of a package
that loads its names on first use (with a module-level `__getattr__`, as `interp` does) are not visible, so a module
that imports the package itself depends on all of it. An import by a computed name cannot be seen; the tests forbid it
where results are made.

The source is read once in each process. A value that was made while the files on disk changed is returned, but not
kept.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import io
import json
import os
import platform
import re
import sys
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analyses.files import write_file
from models.interrupt import interrupt_after

if TYPE_CHECKING:
    import numpy as np

ROOT = Path(__file__).parent.parent
PACKAGES = ("interp", "models", "analyses", "figures")
LAZY_NAMES = re.compile(rb"^def __getattr__\(", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class SourceTree:
    """The suite's source at one moment.

    root      the directory that holds the packages
    imports   module -> the modules that it imports, those of other distributions by their top-level name
    digests   module -> a digest of its file and of the data files that it names
    lazy      packages that load their names on first use
    """

    root: Path
    imports: Mapping[str, frozenset[str]]
    digests: Mapping[str, str]
    lazy: frozenset[str]
    _looked: dict[Path, tuple[Any, set[str]]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def closure(self, *modules: str) -> frozenset[str]:
        """The modules, the packages they belong to, and everything of the suite that these import."""
        found: set[str] = set()
        waiting = list(modules)
        while waiting:
            module = waiting.pop()
            if module in found:
                continue
            if module not in self.imports:
                raise ValueError(f"{module} is not a module of the suite, so its results cannot be kept by its code")
            found.add(module)
            waiting += parents(module)
            for name in self.imports[module]:
                if name in self.lazy:
                    waiting += [other for other in self.imports if other.startswith(f"{name}.")]
                if name in self.imports:
                    waiting.append(name)
        return frozenset(found)

    def installed(self, modules: Iterable[str]) -> dict[str, str]:
        """The versions of Python and of the installed packages that the modules import, by name."""
        names = {name for module in modules for name in self.imports[module]} - set(self.imports)
        return {"python": platform.python_version()} | {
            name: version_of(name) for name in sorted(names - sys.stdlib_module_names)
        }

    def key(self, *modules: str) -> str:
        """A digest of all the code that the modules depend on."""
        closure = sorted(self.closure(*modules))
        parts = [[module, self.digests[module]] for module in closure]
        return digest_of([parts, self.installed(closure)])

    def unchanged(self, *modules: str) -> bool:
        """Whether the files that the modules depend on are still as they were when the tree was read.

        Folders whose files have the times and sizes of an earlier look are not read again.
        """
        behind: dict[Path, list[str]] = {}
        for module in self.closure(*modules):
            behind.setdefault(source_file(self.root, module).parent, []).append(module)
        return all(self._unchanged_in(folder, names) for folder, names in behind.items())

    def _unchanged_in(self, folder: Path, modules: Sequence[str]) -> bool:
        now = folder_state(folder)
        if folder not in self._looked or self._looked[folder][0] != now:
            self._looked[folder] = (now, set())
        known = self._looked[folder][1]
        for module in modules:
            if module not in known:
                if file_digest(self.root, module) != self.digests[module]:
                    return False
                known.add(module)
        return folder_state(folder) == now


def read_trees() -> tuple[SourceTree, SourceTree]:
    """The source of the suite as Python would import it now: for numbers, and for pictures."""
    import grimp

    with interrupt_after():  # grimp's compiled code panics on Ctrl-C
        graph = grimp.build_graph(
            *PACKAGES, include_external_packages=True, exclude_type_checking_imports=True, cache_dir=None
        )
    own = sorted(module for module in graph.modules if module.partition(".")[0] in PACKAGES)
    sources = {module: source_file(ROOT, module).read_bytes() for module in own}
    imports = {module: frozenset(graph.find_modules_directly_imported_by(module)) for module in own}
    lazy = [module for module in own if is_package(ROOT, module) and LAZY_NAMES.search(sources[module])]
    pictures = SourceTree(
        root=ROOT,
        imports=imports,
        digests={module: file_digest(ROOT, module) for module in own},
        lazy=frozenset(lazy),
    )
    computing = dict(imports)
    for module in own:
        if drawing := plot_lines(sources[module]):
            places = {name: graph.get_import_details(importer=module, imported=name) for name in imports[module]}
            computing[module] = frozenset(
                name for name, found in places.items() if not {one["line_number"] for one in found} <= drawing
            )
    return replace(pictures, imports=computing), pictures


@functools.cache
def _trees() -> tuple[SourceTree, SourceTree]:
    return read_trees()


def source_tree() -> SourceTree:
    """The source behind numbers, read once in each process."""
    return _trees()[0]


def picture_tree() -> SourceTree:
    """The source behind pictures, with what results import to plot themselves."""
    return _trees()[1]


def plot_lines(source: bytes) -> set[int]:
    """The lines of functions called `plot`.

    >>> sorted(plot_lines(b"def f():\\n    pass\\ndef plot():\\n    import x\\n"))
    [3, 4]
    """
    if b"def plot(" not in source:
        return set()
    found = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef) and node.name == "plot"]
    return {line for node in found for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}


def parents(module: str) -> list[str]:
    """The packages that a module lies in, whose `__init__.py` Python runs first.

    >>> parents("interp.chains.urn")
    ['interp', 'interp.chains']
    """
    parts = module.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


def is_package(root: Path, module: str) -> bool:
    return (root / module.replace(".", "/")).is_dir()


def source_file(root: Path, module: str) -> Path:
    """Where the module's source lies."""
    place = root / module.replace(".", "/")
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


def data_files(root: Path, module: str) -> list[Path]:
    """The files beside a module, Python's own apart, whose names stand in its source."""
    source = source_file(root, module)
    text = source.read_bytes()
    beside = [file for file in source.parent.iterdir() if file.suffix not in (".py", ".pyc") and file.is_file()]
    return sorted(file for file in beside if file.name.encode() in text)


def folder_state(folder: Path) -> tuple[tuple[str, int, int], ...] | None:
    """Name, time of change and size of every file in a folder but bytecode; None if it is gone."""
    try:
        with os.scandir(folder) as entries:
            found = [(one.name, one.stat()) for one in entries if not one.name.endswith(".pyc") and one.is_file()]
    except OSError:
        return None
    return tuple(sorted((name, stat.st_mtime_ns, stat.st_size) for name, stat in found))


def file_digest(root: Path, module: str) -> str:
    """A digest of the module's source and of its data files; empty if the source is gone."""
    try:
        files = [source_file(root, module), *data_files(root, module)]
        return digest_of([[file.name, hashlib.sha256(file.read_bytes()).hexdigest()] for file in files])
    except OSError:
        return ""


@functools.cache
def version_of(name: str) -> str:
    """The version of the installed package that a top-level module belongs to; "unknown" if none says so."""
    try:
        return metadata.version(name)  # most packages have the name of their module
    except metadata.PackageNotFoundError:
        owners = metadata.packages_distributions().get(name, [])
        return ", ".join(f"{owner} {metadata.version(owner)}" for owner in sorted(owners)) or "unknown"


def digest_of(value: Any) -> str:
    """A digest of a JSON-able value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def module_of(code: Callable[..., Any] | str) -> str:
    """The module that defines a function, a method or a `functools.partial` of one; a name is a module's own."""
    while isinstance(code, functools.partial):
        code = code.func
    return code if isinstance(code, str) else str(code.__module__)


class Cache:
    """Values by the digest of what they depend on: a directory of small files without pickles, or memory alone."""

    def __init__(self, directory: Path | None, *, tree: SourceTree | None = None) -> None:
        self.directory = directory
        self.memory: dict[str, Any] = {}
        self._tree = source_tree() if tree is None and directory is not None else tree

    @property
    def tree(self) -> SourceTree:
        """The source behind the values."""
        return source_tree() if self._tree is None else self._tree

    def arrays(
        self,
        key: dict[str, Any],
        make: Callable[[], dict[str, np.ndarray]],
        *,
        using: Sequence[Callable[..., Any] | str] = (),
    ) -> dict[str, np.ndarray]:
        """The arrays kept for the key, or those that `make` gives, which are kept.

        `using` names more code behind them: functions that `make` was given and calls, or modules.
        """
        import numpy as np

        def read(content: bytes) -> Any:
            with np.load(io.BytesIO(content), allow_pickle=False) as stored:
                return dict(stored)

        def written(arrays: Any) -> bytes:
            buffer = io.BytesIO()
            np.savez(buffer, allow_pickle=False, **arrays)
            return buffer.getvalue()

        found: dict[str, np.ndarray] = self._find(
            key, make, modules=[module_of(code) for code in (make, *using)], form=("npz", read, written)
        )
        return found

    def value(
        self,
        key: dict[str, Any],
        make: Callable[[], Any],
        *,
        using: Sequence[Callable[..., Any] | str] = (),
        keep: Callable[[Any], bool] = lambda value: True,
    ) -> Any:
        """The JSON value kept for the key, or the one that `make` gives, which is kept if `keep` says so.

        `using` as for `arrays`.
        """

        def written(value: Any) -> bytes:
            return (json.dumps({"key": key, "value": value}) + "\n").encode()

        def made() -> Any:
            return json.loads(json.dumps(make()))  # the same types whether it was read or computed

        modules = [module_of(code) for code in (make, *using)]
        return self._find(key, made, modules=modules, form=("json", _json_value, written), keep=keep)

    def known(self, key: dict[str, Any], *, using: Sequence[Callable[..., Any] | str]) -> Any | None:
        """The JSON value that is kept for the key, made by code of the modules `using`; None if there is none."""
        name = self._name(key, [module_of(code) for code in using], "json")
        return self.memory[name] if name in self.memory else self._read(name, _json_value)

    def _find(
        self,
        key: dict[str, Any],
        make: Callable[[], Any],
        *,
        modules: Sequence[str],
        form: tuple[str, Callable[[bytes], Any], Callable[[Any], bytes]],
        keep: Callable[[Any], bool] = lambda value: True,
    ) -> Any:
        suffix, read, written = form
        name = self._name(key, modules, suffix)
        if name in self.memory:
            return self.memory[name]
        found = self._read(name, read)
        if found is None:
            found = make()
            if not keep(found):
                return found
            if self.directory is not None and self.tree.unchanged(*modules):
                write_file(self.directory / name, written(found))
        self.memory[name] = found
        return found

    def _name(self, key: dict[str, Any], modules: Sequence[str], suffix: str) -> str:
        return f"{key['what']}-{digest_of([key, self.tree.key(*modules)])[:24]}.{suffix}"

    def _read(self, name: str, read: Callable[[bytes], Any]) -> Any | None:
        """The content of the file; None if it is missing or damaged."""
        if self.directory is not None:
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
                return read((self.directory / name).read_bytes())
        return None


def _json_value(content: bytes) -> Any:
    return json.loads(content)["value"]
