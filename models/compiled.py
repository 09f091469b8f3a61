"""Numba's `njit` for kernels of this package, which compile in functions of `interp`."""

from __future__ import annotations

from pathlib import Path

from interp.source import KERNELS, compiled_for

njit = compiled_for(Path(__file__).parent, *KERNELS)
