"""interp: instruments for one claim, that an induction head is a smoothed n-gram estimator.

    import interp as ip

The public names stand in `__init__.pyi`. They load on first use, so that importing the package is instant; all other
names, such as those of results and errors, are imported from their modules. `interp.notation` is the glossary.
"""

from __future__ import annotations

import difflib
import importlib
import re
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent
_HOME_OF = {
    name: module
    for module, name in re.findall(r"^from (\S+) import (\w+)", (_FOLDER / "__init__.pyi").read_text(), re.MULTILINE)
}

__version__ = "0.2.0"
__all__ = [*sorted(_HOME_OF), "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'interp' has no attribute {name!r}{_where(name)}")
    value = getattr(importlib.import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__


def _where(name: str) -> str:
    """Which public name is nearly this one, or where a name that is not public is defined, for the message."""
    if near := difflib.get_close_matches(name, _HOME_OF, n=1, cutoff=0.8):
        return f"; did you mean {near[0]}?"
    for file in () if name.startswith("_") else sorted(_FOLDER.rglob("*.py")):
        if re.search(rf"^(class |def )?{re.escape(name)}\b( = |: |\()", file.read_text(), re.MULTILINE):
            module = ".".join(["interp", *file.relative_to(_FOLDER).with_suffix("").parts])
            return f"; it is in {module}"
    return ""
