"""How much faster the trainers are than the plain way, in one run, on one thread, sampling included.

    python -m benchmarks.training                      T = 32, 64, 128, 1024
    python -m benchmarks.training --lengths 32 64 --json

A step is: draw 32 sequences of the hierarchical prior (k = 2, |V| = 5, BOS), forward, last-token cross-entropy,
backward, Adam. `hooked` is that step on the HookedTransformer; `module` on a bare torch module of the disentangled
model without hooks. `ratio` is the HookedTransformer's time over ours, both the median of several steps taken in
turns; times are milliseconds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

import interp as ip
from benchmarks.measure import in_turn, options_of, show
from interp.hooked.config import InductionConfig
from models.families.disentangled import weights as disentangled
from models.families.standard import parameters as standard
from models.training.spec import make_spec
from models.training.trainers import Trainer, make_trainer

BATCH = 32
PRIOR = ip.HierarchicalDirichlet(order=2, vocab=5, eta=(5.0, 5.0))
Step = Callable[[], object]


class PlainDisentangled(nn.Module):
    """The disentangled transformer as one would write it in bare torch: dense attention, last position read out."""

    def __init__(self, config: InductionConfig, flat: np.ndarray) -> None:
        super().__init__()
        self.config = config
        for name, part in disentangled.views(config, flat).items():
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


def eager_step(module: nn.Module, logits: Callable[[torch.Tensor], torch.Tensor], length: int) -> Step:
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


def trainer_of(family: str, length: int) -> Trainer:
    spec = make_spec(family=family, prior=PRIOR.to_dict(), bos=True, length=length, batch=BATCH, target="token")
    return make_trainer(spec)


def disentangled_steps(length: int) -> tuple[dict[str, Step], dict[str, int]]:
    """Each way's step, and how many steps ours takes in one call: a chunk, as in a run."""
    config = disentangled.config(length=length, bos=True)
    flat = disentangled.initial(config, init="random(0.3)", seed=0)
    rates = np.full(max(1, 4096 // length), 1e-3)
    trainer = trainer_of("disentangled", length)
    model, module = disentangled.to_hooked(config, flat), PlainDisentangled(config, flat)
    return {
        "ours": lambda: trainer.advance(rates),
        "hooked": eager_step(model, hooked_logits(model), length),
        "module": eager_step(module, module, length),
    }, {"ours": len(rates)}


def standard_steps(length: int) -> tuple[dict[str, Step], dict[str, int]]:
    config = standard.standard_config(order=2, vocab=5, length=length, bos=True)
    flat = standard.flattened(config, standard.init_standard(config, 0))
    model = standard.to_hooked(config, flat)
    trainer = trainer_of("standard", length)
    rate = np.full(1, 1e-3)
    return {
        "ours": lambda: trainer.advance(rate),
        "hooked": eager_step(model, hooked_logits(model), length),
    }, {}


def main() -> None:
    options = options_of(__doc__, lengths=(32, 64, 128, 1024), seconds=6.0)
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    for length in options.lengths:
        for family, make in {"disentangled": disentangled_steps, "standard": standard_steps}.items():
            steps, taken = make(length)
            times = {
                name: 1e3 * value / taken.get(name, 1)
                for name, value in in_turn(steps, seconds=options.seconds).items()
            }
            rows.append({"family": family, "length": length, **times, "ratio": times["hooked"] / times["ours"]})
            print(f"{family} at T = {length}: {rows[-1]['ratio']:.1f} times", file=sys.stderr, flush=True)
    show("training", rows, as_json=options.json)


if __name__ == "__main__":
    main()
