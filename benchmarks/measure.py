"""What the benchmarks share: steps timed in turn, measurements in processes of their own, and a table."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, TypeVar

Result = TypeVar("Result")


def in_turn(steps: Mapping[str, Callable[[], object]], *, seconds: float, rounds: int = 3) -> dict[str, float]:
    """The median seconds of each step, timed one after the other, so that a busy moment hits all of them.

    A first round, which compiles, does not count. It takes about `seconds`, and at least so many rounds.
    """
    times: dict[str, list[float]] = {name: [] for name in steps}
    for step in steps.values():
        step()
    began = time.perf_counter()
    while time.perf_counter() - began < seconds or min(map(len, times.values())) < rounds:
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def alone(function: Callable[..., Result], *given: Any) -> Result:
    """Call a function in a process of its own, with one thread: its peak memory is its own."""
    os.environ["OMP_NUM_THREADS"] = "1"
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(function, *given).result()


def spent(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds of processor time of a piece of work, and the MiB that its process has held at most."""
    start = time.process_time()
    work()
    return time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def options_of(text: str | None, **defaults: Any) -> argparse.Namespace:
    """The options of a benchmark by their defaults: a number, a text, or several of one kind; and `--json`."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in defaults.items():
        several = isinstance(default, tuple)
        kind = type(default[0] if several else default)
        parser.add_argument(
            f"--{name}", type=kind, default=default, nargs="+" if several else None, help=f"(default: {default})"
        )
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    return parser.parse_args()


def show(name: str, rows: Sequence[Mapping[str, Any]], *, as_json: bool) -> None:
    """The rows as a table, or with their provenance as JSON."""
    import pandas as pd

    from interp.results import provenance

    if as_json:
        print(json.dumps({"benchmark": name, "rows": rows, "provenance": provenance(seed=0)}))
    else:
        print(pd.DataFrame(rows).to_string(index=False, float_format=lambda value: f"{value:.3g}"))
