"""How much faster the trainers are than the plain way, in one run, on one thread, sampling included.

    python benchmarks/training.py                      T = 32, 64, 128, 1024
    python benchmarks/training.py --lengths 32,64      only these
    python benchmarks/training.py --json               {"disentangled": {"32": ratio, ...}, "standard": {...}}

A step is: draw 32 sequences of the hierarchical prior (k = 2, |V| = 5, BOS), forward, last-token cross-entropy,
backward, Adam. `hooked` is that step on the HookedTransformer; `module` on a bare torch module of the disentangled
model without hooks. A ratio is the HookedTransformer's time over ours, both the median of several steps taken in
turns. The standard family trains three seeds in one stack; its time is per seed.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

import interp as ip
from interp.hooked.config import InductionConfig
from models.families import disentangled, standard
from models.families.disentangled import compiled
from models.training.adam import TrainState

BATCH = 32
PRIOR = ip.HierarchicalDirichlet(order=2, vocab=5, eta=(5.0, 5.0))


class PlainDisentangled(nn.Module):
    """The disentangled transformer as one would write it in bare torch: dense attention, last position read out."""

    def __init__(self, config: InductionConfig, flat: np.ndarray) -> None:
        super().__init__()
        self.config = config
        for name, part in disentangled.shape_of(config).views(flat).items():
            setattr(self, name, nn.Parameter(torch.from_numpy(part.copy())))
        positions = torch.arange(config.n_ctx)
        self.distance = (positions[:, None] - positions[None, :]).clamp(min=0)
        self.future = positions[:, None] < positions[None, :]

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        embedded = nn.functional.one_hot(tokens, self.config.vocab).float()
        bos = torch.full_like(embedded[:, :1], 1 / self.config.vocab)
        embedded = torch.cat([bos, embedded], dim=1)
        scores = (
            torch.einsum("biv,hvw,bjw->bhij", embedded, self.copy_weight, embedded) + self.copy_bias[:, self.distance]
        )
        pattern = scores.masked_fill(self.future, -torch.inf).softmax(-1)
        copied = torch.einsum("bhij,bjv->bihv", pattern, embedded).flatten(2)
        stream = torch.cat([embedded, copied], dim=-1)
        scores = stream @ self.match_weight @ stream.mT + self.match_bias[self.distance]
        pattern = scores.masked_fill(self.future, -torch.inf).softmax(-1)
        stream = torch.cat([stream, pattern @ stream], dim=-1)
        votes = torch.relu(stream[:, -1] @ self.readout_weight.T) + self.config.floor
        return torch.log(votes / votes.sum(-1, keepdim=True))


def hooked_logits(model: ip.InductionTransformer) -> Callable[[torch.Tensor], torch.Tensor]:
    """The last position's logits of a model with BOS."""

    def logits(tokens: torch.Tensor) -> torch.Tensor:
        bos = torch.full((tokens.shape[0], 1), model.config.vocab)
        return model(torch.cat([bos, tokens], dim=1), prepend_bos=False)[:, -1]

    return logits


def eager_step(module: nn.Module, logits: Callable[[torch.Tensor], torch.Tensor], length: int) -> Callable[[], None]:
    """One plain training step of a torch module."""
    adam = torch.optim.Adam([p for p in module.parameters() if p.requires_grad], lr=1e-3)
    seeds = iter(range(10**9))

    def step() -> None:
        chains = PRIOR.sample(batch=BATCH, length=length, seed=next(seeds), method="collapsed")
        next_token = torch.multinomial(chains.next_law, 1)[:, 0]
        loss = nn.functional.cross_entropy(logits(chains.tokens), next_token)
        adam.zero_grad()
        loss.backward()
        adam.step()

    return step


def disentangled_steps(length: int) -> dict[str, Callable[[], None]]:
    config = disentangled.config(length=length, bos=True)
    flat = disentangled.initial(config, init="random(0.3)", seed=0)
    shape = disentangled.shape_of(config)
    state = TrainState(params=flat.copy(), generator=np.random.default_rng(0))
    rates = np.full(max(1, 4096 // length), 1e-3)  # a chunk of steps, as in a run; its time is divided by their number

    def ours() -> int:
        compiled.train_chunk(shape, state, PRIOR, rates, batch=BATCH)
        return len(rates)

    model = disentangled.to_hooked(config, flat)
    module = PlainDisentangled(config, flat)
    return {
        "ours": ours,
        "hooked": eager_step(model, hooked_logits(model), length),
        "module": eager_step(module, module, length),
    }


def standard_steps(length: int) -> dict[str, Callable[[], None]]:
    config = standard.standard_config(order=2, vocab=5, length=length, bos=True)
    state = standard.StackedState.start(config, seeds=(0, 1, 2))
    rates = np.full(1, 1e-3)

    def ours() -> int:
        standard.train_chunk(config, state, PRIOR, rates, batch=BATCH)
        return len(state.generators)  # three seeds advance together: the time is per seed and step

    model = standard.to_hooked(config, state.params, 0)
    return {"ours": ours, "hooked": eager_step(model, hooked_logits(model), length)}


def measure(steps: dict[str, Callable[[], None]], seconds: float) -> dict[str, float]:
    """Median seconds per step of each, measured in turns so that a busy moment hits all of them."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for step in steps.values():
        step()
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline or min(map(len, times.values())) < 3:
        for name, step in steps.items():
            start = time.perf_counter()
            count = step() or 1
            times[name].append((time.perf_counter() - start) / count)
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", default="32,64,128,1024")
    parser.add_argument("--seconds", type=float, default=6.0, help="per family and length (default 6)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    families = {"disentangled": disentangled_steps, "standard": standard_steps}
    ratios: dict[str, dict[str, float]] = {name: {} for name in families}
    out = sys.stderr if options.json else sys.stdout
    print(f"{platform.machine()} {platform.node()}, one thread, batch {BATCH}; milliseconds per step", file=out)
    print(f"{'family':14}{'T':>6}{'ours':>10}{'hooked':>10}{'module':>10}{'hooked/ours':>13}{'peak MiB':>10}", file=out)
    for length in map(int, options.lengths.split(",")):
        for family, steps in families.items():
            times = measure(steps(length), options.seconds)
            ratios[family][str(length)] = times["hooked"] / times["ours"]
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
            module = f"{1e3 * times['module']:10.2f}" if "module" in times else " " * 10
            print(
                f"{family:14}{length:6}{1e3 * times['ours']:10.3f}{1e3 * times['hooked']:10.2f}{module}"
                f"{ratios[family][str(length)]:12.1f}x{peak:10}",
                file=out,
                flush=True,
            )
    if options.json:
        print(json.dumps(ratios))
    return 0


if __name__ == "__main__":
    sys.exit(main())
