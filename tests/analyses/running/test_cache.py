"""The cache: an edit of any source makes every result anew, and machine code too."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analyses.running import cache as caching
from analyses.running.cache import COMPUTING, ROOT, Cache
from interp.source import source_digest, source_files

PACKAGES = [folder.name for folder in caching.PACKAGES]


# The digest.


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source without the checkpoints."""
    folder = tmp_path_factory.mktemp("tree")
    ignored = shutil.ignore_patterns("__pycache__", "checkpoints", "conditions", "text", ".*")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=ignored)
    return folder


def digest(*folders: Path) -> str:
    return source_digest.__wrapped__(*folders)


def test_every_file_of_source_and_data_counts(copy: Path) -> None:
    folders = tuple(copy / package for package in PACKAGES)
    names = [name for _, name in source_files(*folders)]
    modules = {f"{file.relative_to(copy)}" for package in PACKAGES for file in (copy / package).rglob("*.py")}
    assert modules <= set(names)
    assert {"figures/running/house.mplstyle", "interp/language/alice.txt", "analyses/tables/worlds_test.csv"} <= set(
        names
    )
    before = digest(*folders)
    for name in ("interp/chains/urn.py", "analyses/running/subject.py", "figures/running/house.mplstyle"):
        kept = (copy / name).read_bytes()
        (copy / name).write_bytes(kept + b"\n")
        assert digest(*folders) != before, name
        (copy / name).write_bytes(kept)
    assert digest(*folders) == before


def test_names_count_and_bytecode_does_not(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("1")
    before = digest(tmp_path)
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "a.py").write_text("2")
    (tmp_path / "weights.safetensors").write_text("3")
    assert digest(tmp_path) == before
    (tmp_path / "a.py").rename(tmp_path / "b.py")
    assert digest(tmp_path) != before


def test_numbers_depend_on_all_but_figures_and_claims() -> None:
    left = {folder.name for folder in (ROOT / "analyses").iterdir() if (folder / "__init__.py").is_file()}
    left -= {folder.name for folder in COMPUTING}
    assert left == {"claims", "shipped"}
    assert not {ROOT, ROOT / "analyses", ROOT / "figures"} & set(COMPUTING)
    assert caching.code_key() != caching.picture_key()


def test_versions_are_part_of_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    before = caching.code_key.__wrapped__(), caching.picture_key.__wrapped__()
    real = caching.metadata.version

    def upgraded(name: str) -> Any:
        monkeypatch.setattr(caching.metadata, "version", lambda one: "0" if one == name else real(one))
        return caching.code_key.__wrapped__() != before[0], caching.picture_key.__wrapped__() != before[1]

    assert upgraded("transformer-lens") == (True, True)
    assert upgraded("matplotlib") == (False, True)
    assert upgraded("ruff") == (False, False)


# The store.


def test_values_are_kept_by_key_and_by_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def make(value: float) -> dict[str, np.ndarray]:
        made.append(value)
        return {"x": np.full(3, value)}

    key = {"what": "test", "a": 1}
    assert Cache(tmp_path).arrays(key, lambda: make(1.0))["x"][0] == 1
    again = Cache(tmp_path)
    assert again.arrays(key, lambda: make(2.0))["x"][0] == 1  # read, not made
    assert again.arrays({**key, "a": 2}, lambda: make(3.0))["x"][0] == 3
    with monkeypatch.context() as patch:
        patch.setattr(caching, "code_key", lambda: "other")
        assert Cache(tmp_path).arrays(key, lambda: make(4.0))["x"][0] == 4
    for file in tmp_path.iterdir():
        file.write_bytes(b"damaged")
    assert Cache(tmp_path).arrays(key, lambda: make(5.0))["x"][0] == 5
    assert Cache(None).value(key, lambda: (5, None)) == [5, None]
    assert made == [1.0, 3.0, 4.0, 5.0]
    assert {file.suffix for file in tmp_path.iterdir()} == {".npz"}


def test_what_was_made_while_the_source_changed_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache(tmp_path)
    file, time = next(iter(caching._times().items()))
    monkeypatch.setitem(caching._times(), file, time - 1)
    assert cache.value({"what": "test"}, lambda: 1) == 1
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    assert cache.value({"what": "other"}, lambda: 1) == 1
    assert len(list(tmp_path.iterdir())) == 1


def test_a_removed_source_counts_as_a_change(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert caching.code_is_unchanged()
    monkeypatch.setitem(caching._times(), tmp_path / "gone.py", 0)
    assert not caching.code_is_unchanged()


# Machine code.

CALLEE = "from own import njit\n\n@njit()\ndef number():\n    return {}\n"
CALLER = """\
from callee import number
from own import njit

@njit()
def doubled():
    return 2 * number()
"""
OWN = "from pathlib import Path\nfrom interp.source import compiled_for\nnjit = compiled_for(Path(__file__).parent)\n"


def test_machine_code_follows_a_change_in_another_file(tmp_path: Path) -> None:
    def answer() -> int:
        command = [sys.executable, "-c", "import caller; print(caller.doubled())"]
        environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
        return int(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)

    def folders() -> list[str]:
        return sorted(one.name for one in (tmp_path / "__pycache__").glob("compiled-*"))

    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "callee.py").write_text(CALLEE.format(1))
    (tmp_path / "caller.py").write_text(CALLER)
    assert answer() == 2
    first = folders()
    assert answer() == 2
    assert folders() == first
    assert len(first) == 1
    (tmp_path / "callee.py").write_text(CALLEE.format(30))
    assert answer() == 60
    assert len(folders()) == 1  # that of the former source is gone
    assert folders() != first
