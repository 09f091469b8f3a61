"""One training step of the standard family, in eager PyTorch through the HookedTransformer and by
`models.families.standard`.

    python -m benchmarks.standard_steps --lengths 32,128,1024 [--seeds 3] [--batch 32] [--json]

Both steps draw their sequences, run forward and backward, and update with Adam, on one thread. They are timed in
turn, so that a busy machine slows both. The stacked step is timed with one seed and with several, per seed.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable, Mapping
from typing import TypeAlias

Step: TypeAlias = Callable[[], float]


def eager_step(length: int, *, batch: int = 32, order: int = 2, vocab: int = 5, bos: bool = True) -> Step:
    """A step of the plain HookedTransformer: forward at all positions, last-token loss, backward, torch's Adam."""
    import numpy as np
    import torch
    from torch.nn import functional

    from interp.chains.priors import HierarchicalDirichlet
    from models.families.standard import draw, init_standard, stack, standard_config, to_hooked

    torch.set_num_threads(1)
    config = standard_config(order=order, vocab=vocab, length=length, bos=bos)
    prior = HierarchicalDirichlet(order=order, vocab=vocab, eta=(5.0,) * order)
    model = to_hooked(config, stack(config, [init_standard(config, 0)]))
    adam = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    generators = [np.random.default_rng(0)]

    def step() -> float:
        tokens, target = draw(config, prior, generators, batch=batch, target="token")
        seen = functional.pad(tokens[0], (1, 0), value=vocab) if bos else tokens[0]
        adam.zero_grad()
        loss = functional.cross_entropy(model(seen)[:, -1], target[0].float())
        loss.backward()
        adam.step()
        return loss.item()

    return step


def stacked_step(
    length: int,
    *,
    seeds: int = 1,
    batch: int = 32,
    order: int = 2,
    vocab: int = 5,
    bos: bool = True,
    compiled: bool = False,
) -> Step:
    """The same step by `models.families.standard`, for all seeds at once."""
    import numpy as np
    import torch

    from interp.chains.priors import HierarchicalDirichlet
    from models.families.standard import StackedState, standard_config, train_chunk

    torch.set_num_threads(1)
    config = standard_config(order=order, vocab=vocab, length=length, bos=bos)
    prior = HierarchicalDirichlet(order=order, vocab=vocab, eta=(5.0,) * order)
    state = StackedState.start(config, seeds=range(seeds))

    def step() -> float:
        return float(train_chunk(config, state, prior, np.full(1, 1e-3), batch=batch, compiled=compiled).mean())

    return step


def in_turn(steps: Mapping[str, Step], *, seconds: float, rounds: int = 3) -> dict[str, float]:
    """The median seconds of each step, timed one after the other, for about `seconds` and at least `rounds` times."""
    for step in steps.values():
        step()
    times: dict[str, list[float]] = {name: [] for name in steps}
    began = time.perf_counter()
    while time.perf_counter() - began < seconds or len(next(iter(times.values()))) < rounds:
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            times[name].append(time.perf_counter() - start)
    return {name: sorted(values)[len(values) // 2] for name, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", default="32,128,1024")
    parser.add_argument("--seeds", type=int, default=3, help="seeds stacked in one model")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=10.0, help="timing per length")
    parser.add_argument("--compiled", action="store_true", help="torch.compile for the stacked step")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    ratios: dict[str, dict[str, float]] = {}
    for length in map(int, options.lengths.split(",")):
        seconds = in_turn(
            {
                "eager": eager_step(length, batch=options.batch),
                "one": stacked_step(length, batch=options.batch, compiled=options.compiled),
                "many": stacked_step(length, seeds=options.seeds, batch=options.batch, compiled=options.compiled),
            },
            seconds=options.seconds,
        )
        ratios[str(length)] = {
            "one": seconds["eager"] / seconds["one"],
            "per seed": options.seeds * seconds["eager"] / seconds["many"],
        }
        if not options.json:
            eager, one, many = (1e3 * seconds[name] for name in ("eager", "one", "many"))
            print(
                f"T = {length}: eager {eager:.1f} ms; stacked, one seed {one:.2f} ms ({eager / one:.1f}x); "
                f"{options.seeds} seeds {many / options.seeds:.2f} ms each ({options.seeds * eager / many:.1f}x)",
                flush=True,
            )
    if options.json:
        print(json.dumps({"ratios": ratios, "machine": platform.processor() or platform.machine()}))


if __name__ == "__main__":
    main()
