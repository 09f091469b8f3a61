"""theorem:invariance: relabeling commutes with prediction and gradient, so a symmetric start stays symmetric.

The population loss is an exact one: a batch together with all its relabelings is a distribution with label symmetry.
"""

from __future__ import annotations

import itertools
import math
from typing import TypeAlias

import numpy as np
import torch

from analyses.studies.theorems.definitions import gap, samples
from analyses.studies.theorems.result import Claim, judge
from interp.circuit.runner import predict
from interp.hooked.transformer import InductionConfig, InductionTransformer

Parameters: TypeAlias = dict[str, torch.Tensor]


def gradient_equivariance(seed: int, batch: int) -> Claim:
    """On a symmetrised batch, relabeling the parameters relabels the predictor and its gradient."""
    rng = np.random.default_rng([seed, 11])
    of_predictor, of_gradient, control, cases = 0.0, 0.0, math.inf, 0
    for model in small_models():
        config = model.config
        randomise(model, rng)
        tokens, targets = one_batch(rng, config, max(4, batch // 2))
        everything = symmetrised(tokens, targets, vocab=config.vocab)
        gradient = gradient_of(model, *everything)
        lopsided, broken = gradient_of(model, tokens, targets), 0.0
        start = copy_of(model)
        for names in itertools.permutations(range(config.vocab)):
            sigma = torch.tensor(names)
            image = predict(model, sigma[tokens])
            write(model, relabelled(start, sigma))
            of_predictor = max(of_predictor, gap(predict(model, tokens), image[:, sigma]))
            of_gradient = max(of_gradient, distance(gradient_of(model, *everything), relabelled(gradient, sigma)))
            broken = max(broken, distance(gradient_of(model, tokens, targets), relabelled(lopsided, sigma)))
            write(model, start)
            cases += 1
        control = min(control, broken)
    return judge(
        label="theorem:invariance",
        claim="gradient at relabeled parameters = relabeled gradient (symmetrised batch); eq:parameter_relabeling",
        cases=cases,
        error=max(of_gradient, of_predictor),
        tolerance=1e-10,
        controls={"a batch that is not symmetrised breaks it": control > 1e-5},
        note=f"gradient {of_gradient:.0e}, predictor {of_predictor:.0e}; batch not symmetrised: {control:.0e} or more",
    )


def invariant_descent(seed: int, batch: int) -> Claim:
    """Full-batch descent from a symmetric start stays among symmetric parameters; other starts, other data do not."""
    rng = np.random.default_rng([seed, 12])
    stays, moved, leaves, loses, outside, cases = 0.0, math.inf, math.inf, math.inf, 0.0, 0
    for model in small_models():
        config = model.config
        tokens, targets = one_batch(rng, config, max(4, batch // 2))
        everything = symmetrised(tokens, targets, vocab=config.vocab)
        symmetric_start(model, rng)
        start = copy_of(model)
        descend(model, *everything)
        stays = max(stays, asymmetry(copy_of(model), config.vocab), predictor_asymmetry(model, tokens))
        moved = min(moved, distance(copy_of(model), start))
        outside = max(outside, largest_outside_context(model))
        write(model, start)
        descend(model, tokens, targets)  # the same start, but data that prefer some labels
        loses = min(loses, asymmetry(copy_of(model), config.vocab))
        write(model, start)
        nudge(model, rng, size=0.1)
        descend(model, *everything)
        leaves = min(leaves, asymmetry(copy_of(model), config.vocab))
        cases += 1
    return judge(
        label="theorem:invariance",
        claim="30 steps of full-batch descent from a symmetric start: parameters and predictor stay symmetric",
        cases=cases,
        error=stays,
        tolerance=1e-9,
        controls={
            "the parameters moved": moved > 1e-3,
            "an asymmetric start stays outside": leaves > 1e-3,
            "data without label symmetry lead outside": loses > 1e-4,
        },
        note=f"moved by {moved:.2g} or more; asymmetric start ends {leaves:.1g} off, asymmetric data {loses:.0e}; "
        f"blocks outside [k] x [k] reach {outside:.1g}",
    )


def small_models() -> list[InductionTransformer]:
    """float64 disentangled models for k = 1, 2, 3, both readouts, with and without BOS; small, for all relabelings."""
    shapes = [(1, 4, 8), (2, 3, 9), (3, 2, 10)]
    return [
        InductionTransformer(
            InductionConfig(
                family="disentangled",
                order=order,
                vocab=vocab,
                length=length,
                bos=bos,
                readout="probability" if bos == (order == 2) else "logit",
                dtype="float64",
            )
        )
        for (order, vocab, length), bos in itertools.product(shapes, (False, True))
    ]


def one_batch(rng: np.random.Generator, config: InductionConfig, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Sequences and the token that follows each."""
    rows = samples(rng, order=config.order, vocab=config.vocab, batch=batch, length=config.length + 1)
    return rows[:, :-1], rows[:, -1]


def symmetrised(tokens: torch.Tensor, targets: torch.Tensor, *, vocab: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The batch together with all its relabelings: a distribution with label symmetry, exactly."""
    relabellings = [torch.tensor(names) for names in itertools.permutations(range(vocab))]
    return (
        torch.cat([sigma[tokens] for sigma in relabellings]),
        torch.cat([sigma[targets] for sigma in relabellings]),
    )


def gradient_of(model: InductionTransformer, tokens: torch.Tensor, targets: torch.Tensor) -> Parameters:
    """The gradient of the last-token loss, for every free parameter."""
    if model.config.bos:
        bos = torch.full((tokens.shape[0], 1), model.config.vocab)
        tokens = torch.cat([bos, tokens], dim=1)
    logits = model(tokens, prepend_bos=False)[:, -1]
    loss = torch.nn.functional.cross_entropy(logits, targets)
    names = model.free_parameters()
    gradients = torch.autograd.grad(loss, [model.get_parameter(name) for name in names])
    return dict(zip(names, gradients, strict=True))


@torch.no_grad()
def write(model: InductionTransformer, values: Parameters) -> None:
    for name, value in values.items():
        model.get_parameter(name).copy_(value)


def copy_of(model: InductionTransformer) -> Parameters:
    return {name: model.get_parameter(name).detach().clone() for name in model.free_parameters()}


def relabelled(values: Parameters, sigma: torch.Tensor) -> Parameters:
    """theta^(sigma): the same permutation within each |V|-wide block of every token axis; relative biases stay."""

    def within_blocks(size: int) -> torch.Tensor:
        starts = torch.arange(0, size, len(sigma))
        return (starts[:, None] + sigma[None, :]).ravel()

    result = {}
    for name, value in values.items():
        if name.endswith("rel_bias"):
            result[name] = value
        else:
            result[name] = value[..., within_blocks(value.shape[-2]), :][..., within_blocks(value.shape[-1])]
    return result


def distance(first: Parameters, second: Parameters) -> float:
    return max(float((first[name] - second[name]).abs().max()) for name in first)


def asymmetry(values: Parameters, vocab: int) -> float:
    """How far the parameters are from being fixed by every relabeling."""
    return max(
        distance(relabelled(values, torch.tensor(names)), values) for names in itertools.permutations(range(vocab))
    )


def predictor_asymmetry(model: InductionTransformer, tokens: torch.Tensor) -> float:
    """How far the predictor is from the class M: the largest change of a law under relabeling."""
    law = predict(model, tokens)
    worst = 0.0
    for names in itertools.permutations(range(model.config.vocab)):
        sigma = torch.tensor(names)
        worst = max(worst, gap(predict(model, sigma[tokens])[:, sigma], law))
    return worst


@torch.no_grad()
def randomise(model: InductionTransformer, rng: np.random.Generator) -> None:
    """Random free parameters; the readout's are positive, so that the probability readout is differentiable."""
    for name in model.free_parameters():
        parameter = model.get_parameter(name)
        values = torch.from_numpy(rng.normal(0, 0.5, tuple(parameter.shape)))
        parameter.copy_(values.abs() + 0.1 if name == "unembed.W_U" else values)


@torch.no_grad()
def symmetric_start(model: InductionTransformer, rng: np.random.Generator) -> None:
    """The theorem's start: W_A = 0 and, for the logit readout, W_O = 0; the relative biases are free, so random.

    Under the probability readout W_O = 0 is a dead start (no vote, no gradient), so each of its blocks is a I + b J.
    """
    vocab = model.config.vocab
    for name in model.free_parameters():
        parameter = model.get_parameter(name)
        parameter.zero_()
        if name.endswith("rel_bias"):
            parameter.copy_(torch.from_numpy(rng.normal(0, 1, tuple(parameter.shape))))
    if model.config.readout == "probability":
        for start in range(0, model.unembed.W_U.shape[0], vocab):
            scale, shift = rng.uniform(0.1, 1, 2)
            model.unembed.W_U[start : start + vocab] = scale * torch.eye(vocab, dtype=torch.float64) + shift


@torch.no_grad()
def nudge(model: InductionTransformer, rng: np.random.Generator, *, size: float) -> None:
    """Noise on the match weights: a start that some relabeling changes."""
    weights = model.get_parameter("blocks.1.attn.W_Q")
    weights.add_(torch.from_numpy(rng.normal(0, size, tuple(weights.shape))))


def descend(
    model: InductionTransformer, tokens: torch.Tensor, targets: torch.Tensor, *, steps: int = 30, rate: float = 0.5
) -> None:
    """Plain gradient descent on the whole batch."""
    for _ in range(steps):
        gradient = gradient_of(model, tokens, targets)
        write(model, {name: model.get_parameter(name) - rate * gradient[name] for name in gradient})


def largest_outside_context(model: InductionTransformer) -> float:
    """The largest equality weight in a block of W_A^(2) that corollary:inductive leaves out.

    Its blocks compare the query's last k tokens with the k tokens before the key. The stream also holds the query's
    token k + 1 back and the key's own token.
    """
    order, vocab = model.config.order, model.config.vocab
    weights = model.blocks[1].attn.W_Q[0].detach()
    worst = 0.0
    for query, key in itertools.product(range(order + 1), repeat=2):
        if query == order or key == 0:
            block = weights[query * vocab : (query + 1) * vocab, key * vocab : (key + 1) * vocab]
            worst = max(worst, abs(float(block[0, 0] - block[0, 1])))
    return worst
