"""Held-out sequences, and how far a predictor's laws are from the truth on them.

A predictor is a name, a group, a key with everything its numbers depend on besides the code, and a function from
sequences to laws. The cache keeps the KL of each sequence, so that differences between predictors are paired.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

import interp as ip

if TYPE_CHECKING:
    import torch

    from analyses.running.cache import Cache
    from analyses.running.subject import Subject
    from interp.chains.priors import ChainBatch


@dataclass(frozen=True, kw_only=True)
class Sequences:
    """A held-out set; it is sampled when it is first used."""

    prior: ip.Prior
    batch: int
    length: int
    seed: int

    def key(self) -> dict[str, Any]:
        return {"prior": self.prior.to_dict(), "batch": self.batch, "length": self.length, "seed": self.seed}

    @cached_property
    def chains(self) -> ChainBatch:
        return self.prior.sample(batch=self.batch, length=self.length, seed=self.seed, method="collapsed")

    @property
    def tokens(self) -> torch.Tensor:
        return self.chains.tokens


@dataclass(frozen=True, kw_only=True)
class Predictor:
    """name and group for the table; key: all that the law depends on beside the sequences; subject: the checkpoint."""

    name: str
    group: str
    key: dict[str, Any]
    law: Callable[[torch.Tensor], torch.Tensor]
    subject: dict[str, Any] | None = None


def predictor_of(subject: Subject) -> Predictor:
    """A checkpoint's prediction, through its family's fast forward."""

    def law(tokens: torch.Tensor) -> torch.Tensor:
        from models.training.trainers import fast_predict

        return fast_predict(subject.model, tokens)

    key = {"name": "checkpoint", "digest": subject.digest}
    return Predictor(name=subject.name, group="trained", key=key, law=law, subject=subject.summary())


@dataclass(frozen=True, kw_only=True)
class Measured:
    """KL per sequence, the share of sequences where its floor was needed, and the Monte Carlo error of the law."""

    values: np.ndarray
    floored: float
    monte_carlo: float = 0.0
    converged: bool = True


def measure(sequences: Sequences, predictor: Predictor, cache: Cache) -> Measured:
    """KL(truth || prediction) of every sequence."""

    def compute() -> dict[str, np.ndarray]:
        divergence = ip.kl_divergence(sequences.chains.next_law, predictor.law(sequences.tokens))
        return {"values": divergence.values.numpy(), "floored": np.array(divergence.floored)}

    return _measured(cache.arrays({"what": "kl", "predictor": predictor.key, "sequences": sequences.key()}, compute))


def measure_bayes(sequences: Sequences, cache: Cache, *, draws: int) -> Measured:
    """The Bayes predictor's KL, with the Monte Carlo error of its law."""

    def compute() -> dict[str, np.ndarray]:
        bayes = ip.bayes_predictive(sequences.tokens, prior=sequences.prior, draws=draws, seed=sequences.seed)
        divergence = ip.kl_divergence(sequences.chains.next_law, bayes.mean)
        found = {"floored": divergence.floored, "error": bayes.error, "success": bayes.success}
        return {"values": divergence.values.numpy(), **{name: np.array(value) for name, value in found.items()}}

    return _measured(cache.arrays({"what": "bayes", "draws": draws, "sequences": sequences.key()}, compute))


def _measured(stored: dict[str, np.ndarray]) -> Measured:
    return Measured(
        values=stored["values"],
        floored=float(stored["floored"]),
        monte_carlo=float(stored.get("error", 0.0)),
        converged=bool(stored.get("success", True)),
    )


def excess_columns(values: np.ndarray, bayes: np.ndarray) -> dict[str, float]:
    """KL with its error, and the excess over Bayes on the same sequences: in nats (paired error) and as a share."""
    kl, stderr = ip.mean_stderr(values)
    best, _ = ip.mean_stderr(bayes)
    excess, excess_stderr = ip.mean_stderr(values - bayes)
    share = excess / best if best > 0 else float("nan")
    # A ratio of means over the same sequences: its error comes from the paired residuals.
    _, share_stderr = ip.mean_stderr((values - (1 + share) * bayes) / best) if best > 0 else (0.0, float("nan"))
    return {
        "kl": kl,
        "stderr": stderr,
        "excess": excess,
        "excess_stderr": excess_stderr,
        "excess_share": share,
        "excess_share_stderr": share_stderr,
    }
