"""Set-up that comes before any test module: environment, one thread, run-time shape checks, hypothesis."""

from __future__ import annotations

import os
import signal

# A shell starts `command &` with Ctrl-C ignored, and what is ignored is inherited: tests of Ctrl-C would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ["OMP_NUM_THREADS"] = "1"  # read when torch is imported, and by the commands that tests start
os.environ["HF_HUB_OFFLINE"] = "1"  # no test may need the network
os.environ["MPLBACKEND"] = "Agg"

import hypothesis
import pytest

# One browser for all files of a process: a fixture that two conftests import would start two, which playwright refuses.
from tests.figures.chromium import chromium as chromium

# Compiling makes the first example slow, hence no deadline; the same examples on every run.
hypothesis.settings.register_profile("suite", deadline=None, derandomize=True)
hypothesis.settings.load_profile("suite")


def pytest_configure(config: pytest.Config) -> None:
    """What every process needs that runs tests; the one that hands them out to others runs none."""
    if config.getoption("numprocesses", default=None):
        return
    import torch

    from tests import run_time_checks

    torch.set_num_threads(1)
    run_time_checks.install()

    import interp.lens  # noqa: F401  before a test imports transformer_lens with all that it imports itself


@pytest.fixture
def few_held_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are evaluated a hundred times on 256 sequences instead of 4096: most of a tiny run's time otherwise."""
    monkeypatch.setattr("models.training.run.HELD_OUT_SEQUENCES", 256)


# The files whose tests take longest, the longest first. `test_docs.py` comes
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
    "test_hostile_names.py",
    "test_plan.py",
    "test_attention_figures.py",
    "test_instrument_figures.py",
    "test_ray.py",
    "test_disentangled.py",
    "test_factors.py",
    "test_circuit.py",
    "test_attention_fit.py",
    "test_hostile_language.py",
    "test_load.py",
    "test_curve_figures.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files start first. All tests of a file run in one process (`--dist loadfile`), with its fixtures."""
    ranks = {name: rank for rank, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: ranks.get(item.path.name, len(ranks)))
