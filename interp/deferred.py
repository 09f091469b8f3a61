"""Imports a package without the libraries that it imports but seldom uses.

    import_without("transformer_lens", ("transformers", "datasets"), answers={"is_bitsandbytes_available": False})

While the package is imported, placeholders (stand-ins) take the libraries' place. At the first use of one, the real
libraries are imported, and every stand-in that a module of the package holds is replaced by the real object. Code that
imports the libraries itself gets the real ones at any time.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any


class UsedTooEarly(ImportError):
    """A stand-in was used while the package was imported."""


def import_without(package: str, libraries: Sequence[str], *, answers: Mapping[str, Any] | None = None) -> bool:
    """Import the package; returns whether the libraries were left for later.

    `answers` gives the return values of those functions of the libraries that the package calls while it is imported.
    If the package or one of the libraries is loaded already, or if the package uses a stand-in while it is imported, it
    is imported as usual.
    """
    if not any(name in sys.modules for name in (package, *libraries)):
        with _standing_in(package, libraries, answers or {}), contextlib.suppress(UsedTooEarly):
            importlib.import_module(package)
            return True
        for name in [name for name in sys.modules if _top(name) == package]:
            del sys.modules[name]
    importlib.import_module(package)
    return False


class StandInType(type):
    """The class of stand-ins: an operation on a stand-in is done on the object that it stands for."""

    _home: str
    _package: str

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):  # attributes that `typing` and others read of any class do not count as a use
            raise AttributeError(name)
        return getattr(real(cls), name)

    def __call__(cls, *arguments: Any, **options: Any) -> Any:
        return real(cls)(*arguments, **options)

    def __instancecheck__(cls, instance: Any) -> bool:
        # Without the library there are no instances of its classes.
        return _top(cls._home) in sys.modules and isinstance(instance, real(cls))

    def __subclasscheck__(cls, subclass: type) -> bool:
        return _top(cls._home) in sys.modules and issubclass(subclass, real(cls))

    def __repr__(cls) -> str:
        return f"<stand-in for {cls._home}.{cls.__name__}>"


class StandInModule(ModuleType):
    """A module of a library: its names are stand-ins while the package is imported."""

    def __init__(self, name: str, package: str, answers: Mapping[str, Any]) -> None:
        super().__init__(name)
        self.__path__: list[str] = []  # a package, so that modules below it can be imported
        self._package, self._answers = package, answers

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is not self:  # the real module is there, because the package uses it
            return getattr(importlib.import_module(self.__name__), name)
        if name in self._answers:
            return lambda: self._answers[name]
        body = {"_home": self.__name__, "_package": self._package, "__init_subclass__": _refuse_subclass}
        made = type.__new__(StandInType, name, (), body)
        setattr(self, name, made)
        return made


def _refuse_subclass(cls: type, **options: Any) -> None:
    raise UsedTooEarly("a class of a library that is left for later has a subclass")


class StandInFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules of the libraries, as stand-ins."""

    def __init__(self, package: str, libraries: Sequence[str], answers: Mapping[str, Any]) -> None:
        self.package, self.libraries, self.answers = package, libraries, answers

    def find_spec(
        self, fullname: str, path: Any = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        wanted = _top(fullname) in self.libraries
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True) if wanted else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return StandInModule(spec.name, self.package, self.answers)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to run."""


@contextlib.contextmanager
def _standing_in(package: str, libraries: Sequence[str], answers: Mapping[str, Any]) -> Iterator[None]:
    finder = StandInFinder(package, libraries, answers)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name, module in sys.modules.items() if isinstance(module, StandInModule)]:
            del sys.modules[name]


def real(stand_in: StandInType) -> Any:
    """What a stand-in stands for; from now on the package holds that wherever it held a stand-in."""
    if isinstance(sys.modules.get(_top(stand_in._home)), StandInModule):
        raise UsedTooEarly(f"{stand_in!r} is used while {stand_in._package} is imported")
    found = _real(stand_in)
    for name, module in list(sys.modules.items()):
        if _top(name) != stand_in._package:
            continue
        for word, value in list(vars(module).items()):
            if type(value) is StandInType:
                setattr(module, word, _real(value))
            elif type(value) is StandInModule:
                setattr(module, word, importlib.import_module(value.__name__))
    return found


def _real(stand_in: StandInType) -> Any:
    return getattr(importlib.import_module(stand_in._home), stand_in.__name__)


def _top(name: str) -> str:
    return name.partition(".")[0]
