"""What every instrument returns: frozen results that can be printed, tabulated, written as JSON and traced back.

A result class is a frozen keyword-only dataclass that derives from `Result`, keeps `n`, `success`, `message` and
`provenance` among its fields where they apply, gives a tidy DataFrame from `.table()` and at most eight lines from
`str()`. `.record()` is the same content as one JSON-able dict.

This module also holds the one function that makes standard errors (`mean_stderr`), so that all intervals agree.
"""

from __future__ import annotations

import functools
import math
import platform
import subprocess
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, is_dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

TRACED_PACKAGES = ("torch", "transformer-lens", "numpy", "numba")


@dataclass(frozen=True, kw_only=True)
class Result(ABC):
    """Base of every result object."""

    @abstractmethod
    def table(self) -> pd.DataFrame:
        """The estimates as a tidy table, one row per estimate."""

    def record(self) -> dict[str, Any]:
        """All fields as JSON-able values; NaN and infinities become None."""
        return {field.name: jsonable(getattr(self, field.name)) for field in fields(self)}


def jsonable(value: Any) -> Any:
    """Tensors and arrays as nested lists, dataclasses as dicts, non-finite numbers as None."""
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, (np.bool_, np.integer)):
        value = value.item()
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: jsonable(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Path):
        return str(value)
    return value


def mean_stderr(values: Any, *, clusters: Any | None = None) -> tuple[float, float]:
    """The mean and its standard error; with `clusters` (a label per value), errors may correlate within a cluster.

    One cluster or one value cannot show its spread: the error is then NaN.

    >>> mean_stderr([1.0, 3.0])
    (2.0, 1.0)
    """
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    array = np.asarray(values, dtype=np.float64).ravel()
    if array.size == 0:
        return math.nan, math.nan
    mean = float(array.mean())
    sums = array - mean
    if clusters is not None:
        _, labels = np.unique(np.asarray(clusters).ravel(), return_inverse=True)
        sums = np.bincount(labels, weights=sums).astype(np.float64)
    groups = sums.size
    if groups < 2:
        return mean, math.nan
    return mean, float(np.sqrt((sums**2).sum() * groups / (groups - 1)) / array.size)


def provenance(*, seed: int | None = None, checkpoint: str | None = None, **more: Any) -> dict[str, Any]:
    """Where a number comes from: seed, checkpoint, versions and the git commit of the working directory's project."""
    versions = {"python": platform.python_version()}
    for package in TRACED_PACKAGES:
        versions[package] = metadata.version(package)
    return {"seed": seed, "checkpoint": checkpoint, "versions": versions, "commit": git_commit(), **more}


@functools.cache
def git_commit() -> str | None:
    """The commit checked out beside this package, with a + where files have changed; None outside a checkout."""
    here = Path(__file__).parent.parent
    try:
        commit = subprocess.run(
            ["git", "-C", str(here), "rev-parse", "--short=12", "HEAD"],
            capture_output=True,
            text=True,
            timeout=5,
        )
        if commit.returncode != 0:
            return None
        changed = subprocess.run(
            ["git", "-C", str(here), "status", "--porcelain", "--untracked-files=no"],
            capture_output=True,
            text=True,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return commit.stdout.strip() + ("+" if changed.stdout.strip() else "")
