"""Compiled functions do not outlive the source that they were compiled from."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from analyses.cache import SourceTree
from analyses.machine_code import remove_stale

CALLEE = "from numba import njit\n\n@njit(cache=True)\ndef number():\n    return {}\n"
CALLER = """\
from callee import number
from numba import njit

@njit(cache=True)
def doubled():
    return 2 * number()
"""


def answer(folder: Path) -> int:
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, "-c", "import caller; print(caller.doubled())"]
    return int(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)


def test_a_change_in_another_file_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "callee.py").write_text(CALLEE.format(1))
    (tmp_path / "caller.py").write_text(CALLER)
    imports = {"callee": frozenset({"numba"}), "caller": frozenset({"callee", "numba"})}
    tree = SourceTree(root=tmp_path, imports=imports, digests=dict.fromkeys(imports, ""), lazy=frozenset())
    assert answer(tmp_path) == 2
    assert remove_stale(tree) == []
    (tmp_path / "callee.py").write_text(CALLEE.format(30))
    assert answer(tmp_path) == 2  # Numba's own cache does not see it
    removed = {file.name.partition("-")[0] for file in remove_stale(tree)}
    assert "caller.doubled" in removed
    assert answer(tmp_path) == 60
