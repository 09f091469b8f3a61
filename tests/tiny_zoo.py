"""A zoo of every kind of checkpoint, small enough for tests: planted weights under made-up training records.

`disentangled` models carry a construction's weights with a little noise, so that what figures must show is known;
`standard` ones are untrained, the negative control. `tiny_asks` asks what `make reproduce` asks, on few sequences.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import interp as ip
from analyses.running import plan
from analyses.running.ask import Ask
from analyses.running.questions import options_of
from models.families.disentangled import weights as disentangled
from models.families.standard import parameters as standard

LENGTH, VOCAB, ORDER = 16, 3, 2
BETA, KAPPA = (2.5, 1.5), 2.0
HIERARCHICAL = {"kind": "hierarchical", "order": ORDER, "vocab": VOCAB, "eta": [5.0, 5.0], "eta0": 1.0}
INDEPENDENT = {"kind": "independent", "order": ORDER, "vocab": VOCAB, "alpha": 1.0}

SMALL: dict[str, dict[str, Any]] = {
    "theory": {"only": "corollary:mixture", "batch": 2},
    "construction_attention": {"length": LENGTH, "vocab": VOCAB, "batch": 64},
    "kl_curves": {"batch": 60, "draws": 80, "vocab": VOCAB, "lengths": (8, LENGTH)},
    "optimal": {"batch": 60, "draws": 500, "lengths": (8, LENGTH)},
    "open_choices": {"batch": 40, "draws": 400, "eta0s": (1.0,), "eta0_lengths": (16,), "lengths": (16,)},
    "worlds": {"draws": 400, "batch": 60},
    "pseudo_counts": {"batch": 60, "lengths": (16, 32)},
    "copy_heads": {"batch": 32},
    "label_symmetry": {"batch": 16},
    "causal": {"batch": 32},
    "smoothing_source": {"batch": 32},
    "nearest_estimator": {"batch": 32},
    "dynamics": {"batch": 32},
    "formation": {"batch": 16},
    "explorer": {"batch": 64, "sequences": 2, "draws": 64},
    "conditions": {"cells": ("frozen",), "lengths": (32,), "batch": 32, "keys": 1024, "draws": 500},
}
_shipped_asks = plan.shipped_asks


def tiny_asks(names: Iterable[str] | None = None) -> dict[str, Ask]:
    """What the analyses want to be asked, on few sequences: 64 where `SMALL` says nothing."""
    return {name: replace(ask, options=_small(name, ask)) for name, ask in _shipped_asks(names).items()}


def _small(name: str, ask: Ask) -> Any:
    options = options_of(name)() if ask.options is None else ask.options
    return replace(options, **SMALL.get(name, {"batch": 64}))


def plant(folder: Path, *, seeds: int = 2, families: tuple[str, ...] = ("construction", "disentangled", "standard")):
    """Checkpoints of both priors below `folder`; returns it."""
    for seed in range(seeds):
        for family in families:
            start = "free" if family == "construction" else "soft"
            ip.save(
                model_of(family, kappa=KAPPA, seed=seed),
                folder / f"hierarchical_bos/{family}/{start}/T{LENGTH}_seed{seed}",
                training=training(HIERARCHICAL, seed=seed),
            )
        if "disentangled" in families:
            for name, kappa in (("independent_bos", KAPPA), ("independent_nobos", None)):
                path = folder / f"{name}/disentangled/soft/T{LENGTH}_seed{seed}"
                ip.save(
                    model_of("disentangled", kappa=kappa, seed=seed), path, training=training(INDEPENDENT, seed=seed)
                )
    for step, share in ((0, 0.02), (10, 0.5), (100, 1.0)):
        path = folder / f"hierarchical_bos/construction/free/.T{LENGTH}_seed0.run/snapshots/step_{step:08d}"
        beta = tuple(share * value for value in BETA)
        model = ip.construct(order=ORDER, vocab=VOCAB, length=LENGTH, beta=beta, kappa=KAPPA)
        ip.save(model, path, training={**training(HIERARCHICAL, seed=0), "step": step})
    return folder


def model_of(family: str, *, kappa: float | None, seed: int) -> Any:
    """A construction; the same with noise in its match weights; or an untrained standard model."""
    built = ip.construct(order=ORDER, vocab=VOCAB, length=LENGTH, beta=BETA, kappa=kappa)
    if family == "construction":
        return built
    if family == "standard":
        config = standard.standard_config(order=ORDER, vocab=VOCAB, length=LENGTH, bos=kappa is not None, d_model=16)
        return standard.to_hooked(config, standard.flattened(config, standard.init_standard(config, seed, copy=3.0)))
    config = disentangled.config(order=ORDER, vocab=VOCAB, length=LENGTH, bos=kappa is not None)
    flat = disentangled.from_hooked(built).astype(config.dtype)
    match = disentangled.views(config, flat)["match_weight"]
    match += 0.05 * np.random.default_rng(seed).normal(size=match.shape)
    return disentangled.to_hooked(config, flat)


def training(prior: dict[str, Any], *, seed: int) -> dict[str, Any]:
    """A training record as the trainer writes it, in part."""
    return {"prior": prior, "seed": seed, "protocol": "annealed", "status": "finished", "steps": 100, "step": 100}
