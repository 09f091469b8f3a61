"""A run of the disentangled family."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from interp.hooked.transformer import InductionTransformer
from models.families.disentangled.compiled import predict, train_chunk
from models.families.disentangled.weights import config as make_config
from models.families.disentangled.weights import initial, read_weights, shape_of, to_hooked, training_mask
from models.training.spec import RunSpec
from models.training.trainers import CompiledTrainer


class DisentangledTrainer(CompiledTrainer):
    """One seed; every factor of a run determines the config, the start vector or the mask."""

    def __init__(self, spec: RunSpec) -> None:
        config = make_config(
            order=spec.prior["order"],
            vocab=spec.prior["vocab"],
            length=spec.length,
            bos=spec.bos,
            readout="logit" if spec.readout == "logit" else "probability",
        )
        config = replace(config, family=spec.family)
        super().__init__(spec, config, initial(config, init=spec.init, seed=spec.seed))
        self.shape = shape_of(config)
        self.mask = training_mask(self.shape, spec.frozen)

    def advance(self, learning_rates: np.ndarray) -> np.ndarray:
        return train_chunk(
            self.shape,
            self.state,
            self.prior,
            learning_rates,
            target=self.spec.schedule.target,
            batch=self.spec.batch,
            mask=self.mask,
            symmetrise=self.spec.symmetrise,
        )

    def predict(self, tokens: np.ndarray) -> np.ndarray:
        return predict(self.shape, self.state.params, tokens)

    def reading(self) -> tuple[list[float], float | None]:
        return read_weights(self.config, self.state.params)

    def hooked(self) -> InductionTransformer:
        return to_hooked(self.config, self.state.params)
