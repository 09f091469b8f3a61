"""`make reproduce` installs all that its code imports, and none of the linters and test tools."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PACKAGES = ("interp", "models", "analyses", "figures")
OPTIONAL = {"ray"}  # imported by the engine of that name alone, which says what to install


def installed_for(target: str) -> set[str]:
    """The distributions that a set of the Makefile brings, those that they need included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = re.search(rf"^EXTRAS_{target}\s*:= (\S+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert extras is not None
    wanted = list(project["dependencies"])
    for extra in extras[1].split(","):
        wanted += project["optional-dependencies"][extra]
    return with_needed(wanted)


def with_needed(requirements: Iterable[str]) -> set[str]:
    """The distributions that the requirements name, what these require, and so on."""
    found: set[str] = set()
    waiting = [Requirement(line) for line in requirements]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name in found:
            continue
        found.add(name)
        for line in metadata.requires(name) or []:
            needed = Requirement(line)
            extras = ["", *requirement.extras]
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras):
                waiting.append(needed)
    return found


def imported() -> dict[str, str]:
    """Every module of another distribution that the code imports, at the top or in functions -> a file that does."""
    found: dict[str, str] = {}
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                for name in names:
                    found.setdefault(name.partition(".")[0], str(file.relative_to(ROOT)))
    own = {*sys.stdlib_module_names, *PACKAGES, *OPTIONAL}
    return {name: file for name, file in found.items() if name not in own}


def test_reproduce_installs_what_it_imports() -> None:
    there = installed_for("run")
    homes = metadata.packages_distributions()
    missing = {
        name: file for name, file in imported().items() if not {canonicalize_name(one) for one in homes[name]} & there
    }
    assert missing == {}
    assert len(imported()) > 10


def test_reproduce_installs_no_tools() -> None:
    tools = {"ruff", "mypy", "import-linter", "pytest-xdist", "hypothesis", "mkdocs", "ray", "playwright"}
    assert not tools & installed_for("run")
    assert tools <= installed_for("all")
    assert installed_for("run") < installed_for("all")


def test_a_missing_package_would_be_found() -> None:
    assert "numpy" in with_needed(["torch", "pandas"])
    assert "gguf" not in with_needed(["numpy", "matplotlib"])
    assert canonicalize_name("hypothesis") not in installed_for("run")
