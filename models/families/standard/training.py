"""Training of stacked seeds: the state of a run, its sequences, and Adam's steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from interp.chains.priors import Prior
from interp.chains.urn import draw_chain, new_urn, predictive_law
from interp.hooked.transformer import InductionConfig
from models.compiled import njit
from models.families.standard.loss import backward, one_thread
from models.families.standard.parameters import init_standard, stack
from models.training.adam import Array, TargetKind, restored_generator


@dataclass(kw_only=True)
class StackedState:
    """All that a run of stacked seeds needs to continue bit for bit: parameters, Adam's moments, step, generators.

    Tensors are [seed, size], in the layout of `parameter_shapes`; `unstack(config, state.params)` names them. Each
    seed has its own generator, and so its own stream of sequences. `train_chunk` changes the state in place.
    """

    params: Float[Tensor, "seed size"]
    generators: list[np.random.Generator]
    first_moment: Tensor | None = None
    second_moment: Tensor | None = None
    step: int = 0

    def __post_init__(self) -> None:
        if self.params.ndim != 2 or len(self.generators) != self.params.shape[0]:
            raise ValueError(
                f"params must be [seed, size] with one generator a seed, got {list(self.params.shape)} "
                f"and {len(self.generators)} generators"
            )
        for name in ("first_moment", "second_moment"):
            moment = getattr(self, name)
            if moment is None:
                setattr(self, name, torch.zeros_like(self.params))
            elif moment.shape != self.params.shape or moment.dtype != self.params.dtype:
                raise ValueError(f"{name} must be like params, got {moment.dtype} {list(moment.shape)}")

    @classmethod
    def start(
        cls,
        config: InductionConfig,
        *,
        seeds: Sequence[int],
        std: float | None = None,
        copy: float = 0.0,
        bos_vector: str = "constant",
        device: str | torch.device = "cpu",
    ) -> StackedState:
        """A new run. A seed's parameters and stream of sequences are the same whichever seeds share the stack."""
        if not seeds:
            raise ValueError("a run needs at least one seed")
        starts = [init_standard(config, seed, std=std, copy=copy, bos_vector=bos_vector) for seed in seeds]
        params = stack(config, starts)
        return cls(params=params.to(device), generators=[np.random.default_rng([seed, 0]) for seed in seeds])

    def dump(self) -> dict[str, Any]:
        """Copies of the arrays, the step, and the generators' states: all of it plain data."""
        assert self.first_moment is not None
        assert self.second_moment is not None
        return {
            "params": self.params.cpu().numpy().copy(),
            "first_moment": self.first_moment.cpu().numpy().copy(),
            "second_moment": self.second_moment.cpu().numpy().copy(),
            "step": self.step,
            "generators": [generator.bit_generator.state for generator in self.generators],
        }

    @classmethod
    def restore(cls, data: Mapping[str, Any], *, device: str | torch.device = "cpu") -> StackedState:
        """The state that `dump` described."""
        generators = [restored_generator(state) for state in data["generators"]]
        tensors = {
            name: torch.tensor(data[name], device=device) for name in ("params", "first_moment", "second_moment")
        }
        return cls(generators=generators, step=int(data["step"]), **tensors)


@njit()
def _draw_batch(
    uniforms: Array,
    tokens: Array,
    target: Array,
    order: int,
    vocab: int,
    concentrations: Array,
    independent: bool,
    by_law: bool,
) -> None:
    """Sequences and what follows them, from uniforms [batch, length + 1]; `target` [batch, vocab], a law or one-hot."""
    batch, length = tokens.shape
    urn = new_urn(length, order, vocab)
    for b in range(batch):
        draw_chain(uniforms[b, :length], tokens[b], order, vocab, concentrations, independent, urn)
        law = target[b]
        predictive_law(law, order, vocab, concentrations, independent, urn)
        if not by_law:
            left = uniforms[b, length]
            chosen = 0
            while chosen < vocab - 1 and left >= law[chosen]:
                left -= law[chosen]
                chosen += 1
            law[:] = 0
            law[chosen] = 1


def draw(
    config: InductionConfig, prior: Prior, generators: Sequence[np.random.Generator], *, batch: int, target: TargetKind
) -> tuple[Int64[Tensor, "seed batch length"], Float[Tensor, "seed batch vocab"]]:
    """One step's sequences and targets. Both kinds of target use the same random numbers, hence the same sequences."""
    tokens = np.empty((len(generators), batch, config.length), dtype=np.int64)
    laws = np.empty((len(generators), batch, config.vocab))
    concentrations = np.ascontiguousarray(prior.concentrations(), dtype=np.float64)
    for index, generator in enumerate(generators):
        uniforms = generator.random((batch, config.length + 1))
        _draw_batch(
            uniforms,
            tokens[index],
            laws[index],
            config.order,
            config.vocab,
            concentrations,
            prior.independent,
            target == "law",
        )
    return torch.from_numpy(tokens), torch.from_numpy(laws)


def train_chunk(
    config: InductionConfig,
    state: StackedState,
    prior: Prior,
    lrs: Array,
    *,
    target: TargetKind = "token",
    batch: int = 32,
    betas: tuple[float, float] = (0.9, 0.999),
    epsilon: float = 1e-8,
    compiled: bool = False,
) -> Float[np.ndarray, "step seed"]:
    """len(lrs) Adam steps on fresh sequences from `prior`; changes `state` in place, returns the losses [step, seed].

    The result does not depend on how a run is divided into chunks, not even in the last bit. `target` is "token", a
    sampled next token as in eq:icl_optimization_markov, or "law", the urn's law of it: the same expected gradient, with
    less noise. `compiled` uses torch.compile: a fifth faster, after a minute or more to start.

    If a seed's loss or gradient stops being finite, the run stops before that step's update: its row holds that loss
    or nan, later rows are nan, and `state` holds the last good parameters (its generators have moved on).
    """
    if (prior.order, prior.vocab) != (config.order, config.vocab):
        raise ValueError(
            f"the prior has order {prior.order} and vocab {prior.vocab}, the config {config.order} and {config.vocab}"
        )
    if target not in ("token", "law"):
        raise ValueError(f"target must be 'token' or 'law', got {target!r}")
    if batch < 1:
        raise ValueError(f"batch must be at least 1, got {batch}")
    if state.params.dtype != config.torch_dtype:
        raise ValueError(f"parameters must be {config.dtype} as in the config, got {state.params.dtype}")
    losses = np.full((len(lrs), state.params.shape[0]), np.nan)
    flat = state.params.detach().requires_grad_()  # shares its memory with the state
    adam = torch.optim.Adam([flat], lr=0.0, betas=betas, eps=epsilon, fused=True)
    adam.state[flat] = {
        "step": torch.tensor(float(state.step), device=flat.device),
        "exp_avg": state.first_moment,
        "exp_avg_sq": state.second_moment,
    }
    with one_thread():
        for row, lr in enumerate(lrs):
            tokens, laws = draw(config, prior, state.generators, batch=batch, target=target)
            flat.grad = None
            loss = backward(config, flat, tokens.to(flat.device), laws.to(flat), compiled=compiled)
            assert flat.grad is not None
            losses[row] = loss.cpu().numpy()
            sizes = flat.grad.sum(1)  # not finite if any entry is not
            if not math.isfinite(losses[row].sum() + sizes.sum().item()):
                losses[row][np.isfinite(losses[row]) & ~sizes.isfinite().cpu().numpy()] = np.nan
                break
            adam.param_groups[0]["lr"] = float(lr)
            adam.step()
            state.step += 1
    return losses
