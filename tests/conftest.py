"""Set-up that comes before any test module: environment, one thread, run-time shape checks, hypothesis."""

from __future__ import annotations

import ast
import os

os.environ["OMP_NUM_THREADS"] = "1"  # read when torch is imported, and by the commands that tests start
os.environ["HF_HUB_OFFLINE"] = "1"  # no test may need the network
os.environ["MPLBACKEND"] = "Agg"

import hypothesis
import jaxtyping._import_hook as import_hook
import pytest
import torch

torch.set_num_threads(1)

# The hook decorates every function of `interp`, innermost. Numba cannot compile a decorated function, so its
# kernels are left alone, as the hook itself leaves @no_type_check.
_is_no_type_check = import_hook._is_no_type_check


def _is_unchecked(decorator: ast.AST) -> bool:
    if isinstance(decorator, ast.Call):
        decorator = decorator.func
    name = getattr(decorator, "id", getattr(decorator, "attr", None))
    return name in {"njit", "jit", "vectorize", "guvectorize"} or _is_no_type_check(decorator)


import_hook._is_no_type_check = _is_unchecked
import_hook.install_import_hook("interp", "beartype.beartype")

import interp.lens  # noqa: E402, F401  before a test imports transformer_lens with all that it imports itself

# One browser for all files of a process: a fixture that two conftests import would start two, which playwright refuses.
from tests.figures.chromium import chromium as chromium  # noqa: E402

# Compiling makes the first example slow, hence no deadline; the same examples on every run.
hypothesis.settings.register_profile("suite", deadline=None, derandomize=True)
hypothesis.settings.load_profile("suite")


@pytest.fixture
def few_held_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are evaluated a hundred times on 256 sequences instead of 4096: most of a tiny run's time otherwise."""
    monkeypatch.setattr("models.run.HELD_OUT_SEQUENCES", 256)


# The files whose tests take longest (`-p tests.processor_time` measures them), the longest first. `test_docs.py` comes
# a little later: its notebooks then find compiled what the first files use, instead of compiling it beside them.
LONGEST_FIRST = (
    "test_page.py",
    "test_training.py",
    "test_language_study.py",
    "test_docs.py",
    "test_fuzz.py",
    "test_cache.py",
    "test_brought.py",
    "test_figures_cli.py",
    "test_theory.py",
    "test_explorer.py",
    "test_plan.py",
    "test_attention_figures.py",
    "test_instrument_figures.py",
    "test_ray.py",
    "test_compiled.py",
    "test_factors.py",
    "test_circuit.py",
    "test_attention_fit.py",
    "test_language.py",
    "test_curve_figures.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files start first. All tests of a file run in one process (`--dist loadfile`), with its fixtures."""
    ranks = {name: rank for rank, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: ranks.get(item.path.name, len(ranks)))
