"""How time and memory grow with the length, the alphabet and the order: every public function that has one of them.

    python -m benchmarks.growth                          the table of benchmarks/README.md, in about two minutes
    python -m benchmarks.growth --only soft_matching     the functions whose names hold one of the words
    python -m benchmarks.growth --budget 5 --json        more seconds for each function, and so larger inputs

Each function runs in a process of its own, on one thread, at sizes that double until its budget of processor time is
spent. Each size counts with the fastest of three calls, each of which gets the memory that the one before gave back:
to write to memory that the machine has not used before takes four times as long as soft matching. `growth` is the
exponent over the last factor of eight in the size; over the order, the factor for each lag more. `MiB` is what the
largest call added to the process, its result included; `output` is the result alone. Instruments read a construction of
order 2 over five symbols, on 64 sequences.
"""

from __future__ import annotations

import math
import multiprocessing
import re
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import interp as ip
from benchmarks.measure import options_of, show

EVERY: dict[str, Any] = {"every_position": True}
Work = Callable[[], object]


class Case(NamedTuple):
    name: str
    axis: str
    first: int
    last: int
    at: Callable[[int], Work]


def prior(order: int = 2, vocab: int = 5) -> ip.HierarchicalDirichlet:
    return ip.HierarchicalDirichlet(order=order, vocab=vocab, eta=(5.0,) * order)


def tokens(length: int, *, order: int = 2, vocab: int = 5, batch: int = 1) -> torch.Tensor:
    return prior(order, vocab).sample(batch=batch, length=length, seed=0).tokens


def estimators() -> Iterator[Case]:
    """Functions of tokens."""
    size = {"order": 2, "vocab": 5}
    everywhere: dict[str, Callable[..., object]] = {
        "soft_matching": partial(ip.soft_matching, vocab=5, beta=(2.7, 1.2), kappa=3.3, **EVERY),
        "soft_matching_pairs": partial(ip.soft_matching_pairs, vocab=5, beta=[[2.7, 0.0], [0.0, 1.2]], **EVERY),
        "maximum_likelihood": partial(ip.maximum_likelihood, **size, **EVERY),
        "add_alpha": partial(ip.add_alpha, **size, alpha=1.0, **EVERY),
        "jelinek_mercer": partial(ip.jelinek_mercer, vocab=5, weights=(0.1, 0.3, 0.6), **EVERY),
        "katz": partial(ip.katz, **size, **EVERY),
        "witten_bell": partial(ip.witten_bell, **size, **EVERY),
        "kneser_ney": partial(ip.kneser_ney, **size, **EVERY),
        "context_tree_weighting": partial(ip.context_tree_weighting, **size, **EVERY),
        "pseudo_counts": partial(ip.pseudo_counts, **size, beta=1.5, **EVERY),
        "mask_counts": partial(ip.mask_counts, **size, **EVERY),
        "cumulative_counts": partial(ip.cumulative_counts, **size, **EVERY),
        "match_masks": partial(ip.match_masks, order=2, **EVERY),
    }
    for name, function in everywhere.items():
        yield Case(name, "T", 256, 1 << 17, lambda n, function=function: partial(function, tokens(n)))

    def soft(length: int, vocab: int, order: int) -> Work:
        given = tokens(length, order=order, vocab=vocab)
        return partial(ip.soft_matching, given, vocab=vocab, beta=(1.0,) * order, kappa=1.0, **EVERY)

    for vocab, order in ((50, 2), (5000, 2), (5, 8)):
        name = f"soft_matching, |V| = {vocab}, k = {order}"
        yield Case(name, "T", 256, 1 << 16, lambda n, vocab=vocab, order=order: soft(n, vocab, order))
    yield Case("soft_matching", "|V|", 5, 5120, lambda n: soft(2000, n, 2))
    yield Case("soft_matching", "k", 1, 10, lambda n: soft(2000, 5, n))
    yield Case("order_mixture", "T", 256, 1 << 17, lambda n: partial(ip.order_mixture, tokens(n), **size, beta=1.5))
    yield Case(
        "bayes_predictive", "T", 64, 1 << 13, lambda n: partial(ip.bayes_predictive, tokens(n, batch=8), prior=prior())
    )
    yield Case("kl_divergence", "|V|", 5, 5120, lambda n: partial(ip.kl_divergence, *torch.full((2, 999, n), 1 / n)))


def priors() -> Iterator[Case]:
    """Functions of a prior."""
    draw: dict[str, Any] = {"batch": 16, "seed": 0}
    yield Case("Prior.sample", "T", 64, 1 << 16, lambda n: partial(prior().sample, **draw, length=n))
    yield Case("Prior.sample, k = 3", "|V|", 10, 1280, lambda n: partial(prior(3, n).sample, **draw, length=256))
    yield Case("Prior.sample", "k", 1, 10, lambda n: partial(prior(n).sample, **draw, length=256))
    yield Case("ChainBatch.laws", "T", 64, 1 << 14, lambda n: prior().sample(**draw, length=n).laws)
    yield Case("ChainBatch.laws, k = 3", "|V|", 10, 640, lambda n: prior(3, n).sample(**draw, length=256).laws)
    for name, few in (
        ("optimal_parameters", {"draws": 4000}),
        ("predicted_parameters", {}),
        ("tune_add_alpha", {"draws": 2000}),
        ("tune_jelinek_mercer", {"draws": 2000}),
    ):
        ask = partial(getattr(ip, name), **few)
        yield Case(name, "T", 64, 1 << 15, lambda n, ask=ask: partial(ask, prior(), length=n))
        yield Case(name, "|V|", 5, 80, lambda n, ask=ask: partial(ask, prior(vocab=n), length=128))
        yield Case(name, "k", 1, 5, lambda n, ask=ask: partial(ask, prior(order=n), length=128))
    solve = partial(ip.beta_for_add_alpha, order=2, vocab=5, alpha=1.0, method="line_search", draws=2000)
    yield Case("beta_for_add_alpha", "T", 64, 1 << 13, lambda n: partial(solve, length=n))


def instruments() -> Iterator[Case]:
    """Functions of a model with its attention."""

    def given(length: int) -> tuple[Any, Any]:
        model = ip.construct(order=2, vocab=5, length=length, beta=(2.7, 1.2), kappa=3.3, dtype="float32")
        return model, prior().sample(batch=64, length=length, seed=0)

    def ask(name: str, last: int = 1024, *, truth: bool = False, **options: Any) -> Case:
        def at(length: int) -> Work:
            model, chains = given(length)
            law = {"next_law": chains.next_law} if truth else {}
            return partial(getattr(ip, name), model, chains.tokens, **options, **law)

        return Case(f"{name}, all queries" if "query" in options else name, "T", 32, last, at)

    yield ask("predict", 2048)
    yield ask("capture", 2048)
    yield ask("capture", 512, query="all")
    for name, copies in (("fit_scores", False), ("fit_score_pairs", False), ("compare_laws", False),
                         ("overlap_mass", False), ("copy_heads", True)):  # fmt: skip
        reader = getattr(ip, name)
        yield Case(
            name, "T", 32, 1024,
            lambda n, reader=reader, copies=copies: partial(reader, ip.capture(*given(n), copies=copies)),
        )  # fmt: skip
    yield ask("scan_heads")
    yield ask("find_circuit", 512)
    yield ask("label_symmetry", draws=4)
    yield ask("identity_blocks")
    yield ask("nearest_estimator")
    yield ask("causal_tests", truth=True, law=((2.7, 1.2), 3.3))
    for name in ("smoothing_source", "direct_path", "vote_weight"):
        yield ask(name, truth=True)


def grow(case: Case, budget: float, pipe: Any) -> None:
    """The row of a case, measured in this process and sent through the pipe."""
    torch.set_num_threads(1)
    case.at(case.first)()  # compiles
    began, rows, peak, size = time.process_time(), [], 0.0, case.first
    while size <= case.last:
        work = case.at(size)
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
        found, seconds = None, math.inf  # what the size before gave is not counted
        before = memory("VmRSS")
        for _ in range(3):
            found = None
            start = time.process_time()
            found = work()
            seconds = min(seconds, time.process_time() - start)
        peak = memory("VmHWM") - before
        rows.append((size, seconds))
        if time.process_time() - began + 8 * seconds > budget:
            break
        size = size + 1 if case.axis == "k" else 2 * size
    sizes, times = np.array(rows)[-4:].T
    span = sizes if case.axis == "k" else np.log(sizes)
    slope = np.polyfit(span, np.log(times), 1)[0] if len(rows) > 1 else math.nan
    row = {"function": case.name, "in": case.axis, "from": case.first, "to": int(sizes[-1]), "seconds": times[-1]}
    growth = f"x {math.exp(slope):.1f}" if case.axis == "k" else f"{slope:.2f}"
    output = found.nbytes / 2**20 if isinstance(found, torch.Tensor) else math.nan
    pipe.send(row | {"growth": growth, "MiB": peak, "output": output})


def memory(name: str) -> float:
    """MiB that this process holds, or has held at most."""
    return int(re.findall(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())[0]) / 1024


def main() -> None:
    options = options_of(__doc__, only=("",), budget=2.0)
    fork, rows = multiprocessing.get_context("fork"), []
    for case in (*estimators(), *priors(), *instruments()):
        if any(word in case.name for word in options.only):
            ours, theirs = fork.Pipe(duplex=False)
            process = fork.Process(target=grow, args=(case, options.budget, theirs))
            process.start()
            theirs.close()
            rows.append(ours.recv())
            print(f"{case.name} in {case.axis}: {rows[-1]['growth']}", file=sys.stderr, flush=True)
            process.join()
    show("growth", rows, as_json=options.json)


if __name__ == "__main__":
    main()
