"""Modules and functions stay small enough to be read."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MOST_MODULE_LINES = 400
MOST_FUNCTION_LINES = 60
REASON = "Long because"  # in the docstring of a function that is longer


def sources() -> list[Path]:
    return [file for package in ("interp", "analyses", "figures") for file in sorted((ROOT / package).rglob("*.py"))]


def long_functions(source: str) -> list[str]:
    """The functions over the limit whose docstring gives no reason."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and node.end_lineno is not None:
            lines = node.end_lineno - node.lineno + 1
            if lines > MOST_FUNCTION_LINES and REASON not in (ast.get_docstring(node) or ""):
                found.append(f"{node.name}: {lines} lines")
    return found


@pytest.mark.parametrize("file", sources(), ids=lambda file: str(file.relative_to(ROOT)))
def test_modules_and_functions_are_short(file: Path) -> None:
    source = file.read_text(encoding="utf-8")
    assert source.count("\n") <= MOST_MODULE_LINES
    assert long_functions(source) == []


def test_a_long_function_needs_a_reason() -> None:
    body = "\n".join(["    pass"] * MOST_FUNCTION_LINES)
    assert long_functions(f"def long():\n{body}\n") == ["long: 61 lines"]
    assert long_functions(f'def long():\n    """Long because it is a table."""\n{body}\n') == []
