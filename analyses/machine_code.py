"""Removes compiled functions that are older than the source code they depend on.

Numba keeps what it compiles in `__pycache__` and compiles anew when the file of the function changes. It does not
notice changes in other files, whose functions and constants were compiled in: old machine code would then run under the
key of the new source. So every compiled function that is older than a module it depends on is removed before anything
runs.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from analyses.cache import SourceTree, is_package, source_file, source_tree


def remove_stale(tree: SourceTree | None = None) -> list[Path]:
    """Remove the compiled functions of the suite that are out of date; returns what was removed."""
    tree = source_tree() if tree is None else tree
    removed = []
    for module, names in tree.imports.items():
        if "numba" not in names:
            continue
        source = source_file(tree.root, module)
        compiled = list((source.parent / "__pycache__").glob(f"{source.stem}.*.nb[ci]"))
        if not compiled:
            continue
        # Packages that only hold modules are not compiled in.
        behind = [one for one in tree.closure(module) if "numba" in tree.imports[one] or not is_package(tree.root, one)]
        newest = max(source_file(tree.root, one).stat().st_mtime_ns for one in behind)
        for file in compiled:
            with contextlib.suppress(OSError):  # another process has removed it, or the folder is read-only
                if file.stat().st_mtime_ns < newest:
                    file.unlink()
                    removed.append(file)
    return removed
