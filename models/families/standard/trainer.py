"""A run of the standard family: d_model 64, LayerNorm, MLP, learned embeddings and relative biases.

The BOS embedding is fixed. By default (`bos_vector` constant) it is 1/|V| in every coordinate; LayerNorm takes that to
zero, so that BOS has no content of its own. In float32 LayerNorm leaves rounding errors of it, which the next
LayerNorms amplify. So predictions of an untrained model with BOS are defined only to about 0.01 (trained ones to 1e-5;
in float64 there is no such effect). The vectors block and mean are not mapped to zero (`models.families.registry`).

Initialisations
    random(std)      matrices and embeddings normal(0, std); random(0) stands for 1/sqrt(fan-in) each, embeddings at 1
    copy(strength)   random(0), and `strength` added to copy head h's relative bias at lag h
"""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from interp.chains.priors import Prior
from interp.chains.urn import new_urn
from interp.hooked.transformer import InductionConfig, InductionTransformer
from models.compiled import njit
from models.families.registry import find_family
from models.families.sampling import draw_task
from models.families.standard.loss import backward, one_thread, predict
from models.families.standard.parameters import D_MLP, D_MODEL, flattened, init_standard, standard_config, to_hooked
from models.training.adam import Array, TargetKind, TrainState
from models.training.spec import RunSpec
from models.training.trainers import CompiledTrainer

READING_SEQUENCES = 64


@njit()
def _draw_batch(
    uniforms: Array, tokens: Array, target: Array, order: int, vocab: int, concentrations: Array, independent: bool,
    by_law: bool,
) -> None:  # fmt: skip
    urn = new_urn(tokens.shape[1], order, vocab)
    for row in range(tokens.shape[0]):
        draw_task(uniforms[row], tokens[row], target[row], order, vocab, concentrations, independent, by_law, urn)


def draw(
    config: InductionConfig, prior: Prior, generator: np.random.Generator, *, batch: int, target: TargetKind
) -> tuple[Int64[Tensor, "batch length"], Float[Tensor, "batch vocab"]]:
    """One step's sequences and targets. Both kinds of target use the same random numbers, hence the same sequences."""
    tokens = np.empty((batch, config.length), dtype=np.int64)
    laws = np.empty((batch, config.vocab))
    uniforms = generator.random((batch, config.length + 1))
    concentrations = np.ascontiguousarray(prior.concentrations(), dtype=np.float64)
    by_law = target == "law"
    _draw_batch(uniforms, tokens, laws, config.order, config.vocab, concentrations, prior.independent, by_law)
    return torch.from_numpy(tokens), torch.from_numpy(laws)


def train_chunk(
    config: InductionConfig,
    state: TrainState,
    prior: Prior,
    lrs: Array,
    *,
    target: TargetKind = "token",
    batch: int = 32,
) -> Array:
    """len(lrs) Adam steps on fresh sequences from `prior`; changes `state` in place, returns the loss of every step.

    The result does not depend on how a run is divided into chunks, not even in the last bit. `target` is "token", a
    sampled next token as in eq:icl_optimization_markov, or "law", the urn's law of it: the same expected gradient, with
    less noise.

    If the loss or its gradient stops being finite, the run stops before that step's update: its loss is not finite,
    later ones are nan, and `state` holds the last good parameters (its generator has moved on).
    """
    losses = np.full(len(lrs), np.nan)
    flat = torch.from_numpy(state.params).requires_grad_()  # shares its memory with the state
    adam = torch.optim.Adam([flat], lr=0.0, fused=True)
    adam.state[flat] = {
        "step": torch.tensor(float(state.step)),
        "exp_avg": torch.from_numpy(state.first_moment),
        "exp_avg_sq": torch.from_numpy(state.second_moment),
    }
    with one_thread():
        for row, lr in enumerate(lrs):
            tokens, laws = draw(config, prior, state.generator, batch=batch, target=target)
            flat.grad = None
            losses[row] = backward(config, flat, tokens, laws.to(flat)).item()
            assert flat.grad is not None
            if not math.isfinite(losses[row] + flat.grad.sum().item()):  # the sum is not, if any entry is not
                losses[row] = np.nan if math.isfinite(losses[row]) else losses[row]
                break
            adam.param_groups[0]["lr"] = float(lr)
            adam.step()
            state.step += 1
    return losses


class StandardTrainer(CompiledTrainer):
    """A run of the standard family, or of one that differs in its widths."""

    def __init__(self, spec: RunSpec, *, d_model: int = D_MODEL, d_mlp: int = D_MLP) -> None:
        config = standard_config(
            order=spec.prior["order"],
            vocab=spec.prior["vocab"],
            length=spec.length,
            bos=spec.bos,
            d_model=d_model,
            d_mlp=d_mlp,
            family=spec.family,
        )
        starts = find_family(spec.family).starts.parse(spec.init)
        std, copy = starts["matrices"].size or None, starts["copies"].size or 0.0
        start = init_standard(config, spec.seed, std=std, copy=copy, bos_vector=spec.bos_vector)
        super().__init__(spec, config, flattened(config, start).numpy())
        self._reading_tokens = self.prior.sample(
            batch=READING_SEQUENCES, length=spec.length, seed=1, method="explicit"
        ).tokens

    @property
    def flat(self) -> Tensor:
        """The parameters, in the memory of the state."""
        return torch.from_numpy(self.state.params)

    def advance(self, learning_rates: np.ndarray) -> np.ndarray:
        target, batch = self.spec.schedule.target, self.spec.batch
        return train_chunk(self.config, self.state, self.prior, learning_rates, target=target, batch=batch)

    def predict(self, tokens: np.ndarray) -> np.ndarray:
        return predict(self.config, self.flat, torch.from_numpy(tokens)).numpy()

    def reading(self) -> tuple[list[float], float | None]:
        """beta and kappa from the match scores of a few sequences, because these weights have no blocks."""
        from interp.circuit.capture import capture
        from interp.instruments.beta_kappa import fit_scores

        fit = fit_scores(capture(self.hooked(), self._reading_tokens))
        return [float(value) for value in fit.beta], None if fit.kappa is None else float(fit.kappa)

    def hooked(self) -> InductionTransformer:
        return to_hooked(self.config, self.flat)
