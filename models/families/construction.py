"""The construction family: analytic weights, with only beta and kappa free (prop:transformer_estimator).

The prediction reads a sequence only through its mask counts, so training needs no transformer: sequences come from the
urn, and the gradient is that of eq:transformer_estimator on their counts. `interp.optimal_parameters` finds the same
optimum directly. This is the paper's "only the attention-weight parameters remain trainable", with the same training as
the other families. `models.families.kappa` says how kappa moves.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from interp.estimators.counts import mask_counts
from interp.estimators.soft_matching import law_from_counts, soft_matching
from interp.hooked.construction import construct
from interp.hooked.transformer import InductionConfig, InductionTransformer
from models.families.kappa import KappaRule
from models.families.registry import CONSTRUCTION
from models.training.spec import RunSpec
from models.training.trainers import Trainer

Array: TypeAlias = NDArray[Any]
FLOOR = 1e-7  # the same floor as the disentangled readout's: keeps the loss of an unseen symbol finite


class ConstructionTrainer(Trainer):
    """A run of the construction: k numbers for beta, and kappa where there is BOS.

    beta(1) starts at beta = 1 at every lag, where no gradient vanishes; a free kappa starts at 0.
    """

    def __init__(self, spec: RunSpec) -> None:
        order, vocab = spec.prior["order"], spec.prior["vocab"]
        self.kappa = KappaRule.parse(spec.kappa)
        beta = CONSTRUCTION.starts.parse(spec.init)["beta"].size
        params = np.array([beta] * order + [0.0] * (spec.bos and self.kappa.free))
        shape = construct(
            order=order, vocab=vocab, length=spec.length, beta=params[:order], kappa=0.0 if spec.bos else None
        )
        super().__init__(spec, shape.config, params)

    def gradient(self, tokens: Array, laws: Array) -> tuple[float, Array]:
        return loss_and_gradient(self.config, self.params, tokens, laws, kappa=self.kappa)

    def predict(self, tokens: Array) -> Array:
        beta, kappa = self.reading()
        return soft_matching(tokens, vocab=self.config.vocab, beta=beta, kappa=kappa).numpy()

    def reading(self) -> tuple[list[float], float | None]:
        beta, kappa = _split(self.config, torch.from_numpy(self.params), self.kappa)
        return beta.tolist(), None if kappa is None else kappa.item()

    def hooked(self) -> InductionTransformer:
        beta, kappa = self.reading()
        config = self.config
        return construct(order=config.order, vocab=config.vocab, length=config.length, beta=beta, kappa=kappa)


def loss_and_gradient(
    config: InductionConfig, params: Array, tokens: Array, target: Array, *, kappa: KappaRule
) -> tuple[float, Array]:
    """Mean cross-entropy against `target` [batch, vocab] and its gradient in beta and, where it is free, kappa.

    The prediction is p = (T(x) + FLOOR) / (1 + |V| FLOOR).
    """
    free = torch.tensor(params, requires_grad=True)
    counts = mask_counts(tokens, order=config.order, vocab=config.vocab)
    beta, score = _split(config, free, kappa)
    law = (law_from_counts(counts, beta=beta, kappa=score) + FLOOR) / (1.0 + config.vocab * FLOOR)
    loss = -(torch.as_tensor(target) * law.log()).sum(-1).mean()
    (gradient,) = torch.autograd.grad(loss, free)
    return loss.item(), gradient.numpy()


def _split(config: InductionConfig, params: torch.Tensor, rule: KappaRule) -> tuple[torch.Tensor, torch.Tensor | None]:
    """beta and kappa: the parameters, or beta alone where kappa follows it."""
    beta = params[: config.order]
    if not config.bos:
        return beta, None
    if rule.free:
        return beta, params[config.order]
    offset, slope = rule.line(vocab=config.vocab)
    return beta, offset + slope * beta.sum()
