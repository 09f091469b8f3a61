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

from typing import Any

import torch

from interp.hooked.transformer import InductionTransformer
from models.families.registry import find_family
from models.families.standard.loss import loss_and_gradient, predict
from models.families.standard.parameters import D_MLP, D_MODEL, flattened, init_standard, to_hooked
from models.training.spec import RunSpec
from models.training.trainers import Array, Trainer, config_of

READING_SEQUENCES = 64


class StandardTrainer(Trainer):
    """A run of the standard family, or of one that differs in its widths. The optimiser is torch's."""

    same_sequences = True

    def __init__(self, spec: RunSpec, *, d_model: int = D_MODEL, d_mlp: int = D_MLP, **others: Any) -> None:
        config = config_of(spec, d_model=d_model, d_mlp=d_mlp, **others)
        starts = find_family(spec.family).starts.parse(spec.init)
        std, copy = starts["matrices"].size or None, starts["copies"].size or 0.0
        start = init_standard(config, spec.seed, std=std, copy=copy, bos_vector=spec.bos_vector)
        super().__init__(spec, config, flattened(config, start).numpy())
        self.flat, first, second = map(torch.from_numpy, (self.params, self.first_moment, self.second_moment))
        self.adam = torch.optim.Adam([self.flat], fused=True)
        self.adam.state[self.flat] = {"step": torch.tensor(0.0), "exp_avg": first, "exp_avg_sq": second}
        self._reading_tokens = self.prior.sample(
            batch=READING_SEQUENCES, length=spec.length, seed=1, method="explicit"
        ).tokens

    def gradient(self, tokens: Array, laws: Array) -> tuple[float, Array]:
        loss, gradient = loss_and_gradient(self.config, self.flat, torch.from_numpy(tokens), torch.from_numpy(laws))
        return loss.item(), gradient.numpy()

    def descend(self, gradient: Array, rate: float) -> None:
        self.flat.grad = torch.from_numpy(gradient)
        self.adam.param_groups[0]["lr"] = rate
        self.adam.state[self.flat]["step"].fill_(self.step - 1)
        self.adam.step()

    def predict(self, tokens: Array) -> Array:
        return predict(self.config, self.flat, torch.from_numpy(tokens)).numpy()

    def reading(self) -> tuple[list[float], float | None]:
        """beta and kappa from the match scores of a few sequences, because these weights have no blocks."""
        from interp.circuit.capture import capture
        from interp.instruments.beta_kappa import fit_scores

        fit = fit_scores(capture(self.hooked(), self._reading_tokens))
        return [float(value) for value in fit.beta], None if fit.kappa is None else float(fit.kappa)

    def hooked(self) -> InductionTransformer:
        return to_hooked(self.config, self.flat)
