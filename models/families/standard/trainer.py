"""One seed of the standard family as a run: d_model 64, LayerNorm, MLP, learned embeddings and relative biases.

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

import numpy as np
import torch

from interp.hooked.transformer import InductionTransformer
from models.families.registry import find_family
from models.families.standard.loss import predict
from models.families.standard.parameters import D_MLP, D_MODEL, standard_config, to_hooked
from models.families.standard.training import StackedState, train_chunk
from models.training.spec import RunSpec

READING_SEQUENCES = 64


class StandardTrainer:
    """One seed of the standard family, or of one that differs in its widths, behind the run loop's interface."""

    def __init__(self, spec: RunSpec, *, d_model: int = D_MODEL, d_mlp: int = D_MLP) -> None:
        self.spec = spec
        self.prior = spec.build_prior()
        self.config = standard_config(
            order=self.prior.order,
            vocab=self.prior.vocab,
            length=spec.length,
            bos=spec.bos,
            d_model=d_model,
            d_mlp=d_mlp,
            family=spec.family,
        )
        starts = find_family(spec.family).starts.parse(spec.init)
        self.state = StackedState.start(
            self.config,
            seeds=(spec.seed,),
            std=starts["matrices"].size or None,
            copy=starts["copies"].size or 0.0,
            bos_vector=spec.bos_vector,
        )
        self._reading_tokens = self.prior.sample(
            batch=READING_SEQUENCES, length=spec.length, seed=1, method="explicit"
        ).tokens

    @property
    def step(self) -> int:
        return self.state.step

    def advance(self, learning_rates: np.ndarray) -> np.ndarray:
        losses = train_chunk(
            self.config,
            self.state,
            self.prior,
            learning_rates,
            target=self.spec.schedule.target,
            batch=self.spec.batch,
        )
        return losses[:, 0]

    def predict(self, tokens: np.ndarray) -> np.ndarray:
        return predict(self.config, self.state.params, torch.from_numpy(tokens))[0].numpy()

    def reading(self) -> tuple[list[float], float | None]:
        """beta and kappa from the match scores of a few sequences, because these weights have no blocks."""
        from interp.circuit.capture import capture
        from interp.instruments.beta_kappa import fit_scores

        fit = fit_scores(capture(self.hooked(), self._reading_tokens))
        return [float(value) for value in fit.beta], None if fit.kappa is None else float(fit.kappa)

    def hooked(self) -> InductionTransformer:
        return to_hooked(self.config, self.state.params, 0)

    def dump(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        state = self.state.dump()
        arrays = {name: state.pop(name) for name in ("params", "first_moment", "second_moment")}
        return arrays, state

    def restore(self, arrays: dict[str, np.ndarray], rest: dict[str, Any]) -> None:
        self.state = StackedState.restore({**arrays, **rest})
