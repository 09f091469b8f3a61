"""The construction family: analytic weights, with only beta and kappa free (prop:transformer_estimator).

    config = construction.config(order=2, vocab=5, length=64, bos=True)
    losses = construction.train_chunk(config, state, prior, learning_rates)
    model = construction.to_hooked(config, state.params)    # state.params = (beta_1, ..., beta_k, kappa)

The prediction reads a sequence only through its mask counts, so training needs no transformer: the loop samples by the
urn, counts, and takes the gradient of eq:transformer_estimator in closed form. `interp.optimal_parameters` finds the
same optimum directly. This is the paper's "only the attention-weight parameters remain trainable", with the same
training as the other families. `models.families.kappa` says how kappa moves.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from interp.chains.priors import Prior
from interp.chains.urn import new_urn
from interp.estimators.counts import mask_between
from interp.estimators.soft_matching import soft_matching
from interp.hooked.construction import construct
from interp.hooked.transformer import InductionConfig, InductionTransformer
from models.compiled import njit
from models.families.kappa import KappaRule
from models.families.registry import CONSTRUCTION
from models.families.sampling import draw_task, fill
from models.training.adam import TargetKind, TrainState, adam
from models.training.spec import RunSpec
from models.training.trainers import CompiledTrainer

Array: TypeAlias = NDArray[Any]
FREE = KappaRule("free")
FLOOR = 1e-7  # the same floor as the disentangled readout's: keeps the loss of an unseen symbol finite


def config(*, order: int = 2, vocab: int = 5, length: int, bos: bool) -> InductionConfig:
    """The family's config: the disentangled shape, in float64, with the probability readout."""
    return construct(order=order, vocab=vocab, length=length, beta=np.zeros(order), kappa=0.0 if bos else None).config


def initial(config: InductionConfig, *, init: str = CONSTRUCTION.init, kappa: KappaRule = FREE) -> Array:
    """beta(1) is beta = 1 at every lag, where no gradient vanishes; a free kappa starts at 0."""
    beta = CONSTRUCTION.starts.parse(init)["beta"].size
    params = np.array([beta] * config.order + [0.0] * config.bos)
    if not kappa.free:
        offset, slope = kappa.line(vocab=config.vocab)
        params[config.order] = offset + slope * params[: config.order].sum()
    return params


class ConstructionTrainer(CompiledTrainer):
    """A run of the construction: k numbers for beta, and kappa where there is BOS."""

    def __init__(self, spec: RunSpec) -> None:
        shape = config(order=spec.prior["order"], vocab=spec.prior["vocab"], length=spec.length, bos=spec.bos)
        self.kappa = KappaRule.parse(spec.kappa)
        super().__init__(spec, shape, initial(shape, init=spec.init, kappa=self.kappa))

    def advance(self, learning_rates: np.ndarray) -> np.ndarray:
        return train_chunk(
            self.config,
            self.state,
            self.prior,
            learning_rates,
            target=self.spec.schedule.target,
            batch=self.spec.batch,
            kappa=self.kappa,
        )

    def predict(self, tokens: np.ndarray) -> np.ndarray:
        beta, kappa = self.reading()
        return soft_matching(tokens, vocab=self.config.vocab, beta=beta, kappa=kappa).numpy()

    def reading(self) -> tuple[list[float], float | None]:
        params = self.state.params.tolist()
        return params[: self.config.order], params[self.config.order] if self.config.bos else None

    def hooked(self) -> InductionTransformer:
        return to_hooked(self.config, self.state.params)


def to_hooked(config: InductionConfig, params: Array) -> InductionTransformer:
    """The HookedTransformer with these betas and this kappa."""
    return construct(
        order=config.order,
        vocab=config.vocab,
        length=config.length,
        beta=params[: config.order],
        kappa=float(params[config.order]) if config.bos else None,
    )


def train_chunk(
    config: InductionConfig,
    state: TrainState,
    prior: Prior,
    lrs: Array,
    *,
    target: TargetKind = "token",
    batch: int = 32,
    kappa: KappaRule = FREE,
) -> Array:
    """len(lrs) Adam steps on fresh sequences; changes `state` in place and returns the loss of every step.

    The result does not depend on how a run is divided into chunks. After a loss that is not finite, no later one is
    finite.
    """
    losses = np.full(len(lrs), np.nan)
    state.step += _train(
        state.params,
        state.first_moment,
        state.second_moment,
        state.step,
        state.generator,
        np.ascontiguousarray(lrs, dtype=np.float64),
        losses,
        batch,
        config.length,
        config.order,
        config.vocab,
        config.bos,
        prior.concentrations(),
        prior.independent,
        target == "law",
        *((0.0, 0.0) if kappa.free else kappa.line(vocab=config.vocab)),
    )
    return losses


def loss_and_gradient(
    config: InductionConfig, params: Array, tokens: Array, target: Array, *, kappa: KappaRule = FREE
) -> tuple[float, Array]:
    """Mean cross-entropy against `target` [batch, vocab] and its gradient in (beta_1..beta_k, kappa).

    A kappa that is tied to beta has no gradient of its own: it is part of beta's gradient.
    """
    gradient = np.zeros(len(params))
    counts = np.zeros((1 << config.order, config.vocab))
    law = np.zeros(config.vocab)
    loss = 0.0
    for row, wanted in zip(np.ascontiguousarray(tokens), np.asarray(target, dtype=np.float64), strict=True):
        loss += _add_gradient(params, row, wanted, config.order, config.vocab, config.bos, counts, law, gradient)
    if not kappa.free:
        _tie_gradient(gradient, config.order, kappa.line(vocab=config.vocab)[1])
    return loss / len(tokens), gradient / len(tokens)


@njit()
def _add_gradient(
    params: Array, tokens: Array, target: Array, order: int, vocab: int, bos: bool, counts: Array, law: Array,
    gradient: Array
) -> float:  # fmt: skip
    """Add one sequence's gradient of -sum_m target(m) log p(m) and return it; p = (T(x) + FLOOR) / (1 + |V| FLOOR)."""
    masks = 1 << order
    counts[:] = 0.0
    last = tokens.shape[0] - 1
    for key in range(order, last + 1):
        counts[mask_between(tokens, order, last, key), tokens[key]] += 1.0
    top = params[order] if bos else -np.inf
    for mask in range(masks):
        if counts[mask].sum() > 0:
            score = 0.0
            for lag in range(order):
                if mask >> lag & 1:
                    score += params[lag]
            top = max(top, score)
    # Scale the counts by their weights in place; from here on a row holds e^{|beta|_M} N_M(m).
    total = np.exp(params[order] - top) if bos else 0.0
    for m in range(vocab):
        law[m] = total / vocab
    for mask in range(masks):
        score = -top
        for lag in range(order):
            if mask >> lag & 1:
                score += params[lag]
        for m in range(vocab):
            if counts[mask, m] > 0:
                counts[mask, m] *= np.exp(score)
                law[m] += counts[mask, m]
                total += counts[mask, m]
    loss = 0.0
    for m in range(vocab):
        if target[m] == 0.0:
            continue
        share = law[m] / total
        p = (share + FLOOR) / (1.0 + vocab * FLOOR)
        loss -= target[m] * np.log(p)
        pull = -target[m] / (share + FLOOR)  # d loss / d share
        for mask in range(masks):
            row = counts[mask].sum()
            change = pull * (counts[mask, m] - share * row) / total
            for lag in range(order):
                if mask >> lag & 1:
                    gradient[lag] += change
        if bos:
            weight = np.exp(params[order] - top)
            gradient[order] += pull * (weight / vocab - share * weight) / total
    return loss


@njit()
def _tie_gradient(gradient: Array, order: int, slope: float) -> None:
    """Add kappa's gradient to beta's: d kappa / d beta_r = slope."""
    for lag in range(order):
        gradient[lag] += slope * gradient[order]
    gradient[order] = 0.0


@njit()
def _train(
    params: Array, first: Array, second: Array, step: int, generator: np.random.Generator, lrs: Array, losses: Array,
    batch: int, length: int, order: int, vocab: int, bos: bool, concentrations: Array, independent: bool,
    use_law: bool, offset: float, slope: float,
) -> int:  # fmt: skip
    """Steps until `lrs` is used up; kappa = offset + slope * sum(beta) where slope > 0, else it is free."""
    urn = new_urn(length, order, vocab)
    uniforms = np.empty(length + 1)
    tokens = np.empty(length, dtype=np.int64)
    counts = np.empty((1 << order, vocab))
    law = np.empty(vocab)
    target = np.empty(vocab)
    gradient = np.empty_like(params)
    free = np.ones_like(params)
    for i in range(lrs.shape[0]):
        gradient[:] = 0.0
        loss = 0.0
        for _ in range(batch):
            fill(generator, uniforms, length if use_law else length + 1)
            draw_task(uniforms, tokens, target, order, vocab, concentrations, independent, use_law, urn)
            loss += _add_gradient(params, tokens, target, order, vocab, bos, counts, law, gradient)
        gradient /= batch
        if slope > 0:
            _tie_gradient(gradient, order, slope)
        losses[i] = loss / batch
        if not (np.isfinite(losses[i]) and np.isfinite(gradient).all()):
            losses[i] = np.nan
            return i
        adam(params, gradient, first, second, free, step + i + 1, lrs[i], 0.9, 0.999, 1e-8)
        if slope > 0:
            params[order] = offset + slope * params[:order].sum()
    return lrs.shape[0]
