"""Label symmetry: of priors, of training (theorem:invariance), and what it leaves of a matrix and the match layer.

The population loss of theorem:invariance is an exact one: a batch together with all its relabelings is a distribution
with label symmetry.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import torch
from scipy.stats import chisquare

from analyses.studies.theorems.cases import SHAPES, Found, gap, samples
from interp.chains.priors import HierarchicalDirichlet, IndependentDirichlet, Prior
from interp.circuit.runner import predict
from interp.estimators.soft_matching import soft_matching_pairs
from interp.hooked.construction import write_construction
from interp.hooked.transformer import InductionConfig, InductionTransformer

Parameters: TypeAlias = dict[str, torch.Tensor]

ENUMERATED = [(1, 3, 5), (2, 3, 5), (3, 2, 7)]  # order, vocab, length of sequences that can be enumerated
SAMPLED = 20_000


def label_symmetry(seed: int, batch: int) -> Found:
    """both priors: P(x) = P(sigma x), exact by summing the urn's seatings (relative error)"""
    error, cases, fit, mass = 0.0, 0, 1.0, 0.0
    for order, vocab, length in ENUMERATED:
        rows = list(itertools.product(range(vocab), repeat=length))
        for prior in (
            IndependentDirichlet(order=order, vocab=vocab, alpha=0.7),
            HierarchicalDirichlet(order=order, vocab=vocab, eta=(2.0,) * order, eta0=0.8),
        ):
            law = {row: sequence_probability(row, prior) for row in rows}
            mass = max(mass, abs(sum(law.values()) - 1))
            for names, row in itertools.product(itertools.permutations(range(vocab)), rows):
                error = max(error, abs(law[tuple(names[token] for token in row)] / law[row] - 1))
                cases += 1
            for method in ("explicit", "collapsed"):
                drawn = prior.sample(batch=SAMPLED, length=length, seed=seed, method=method).tokens.tolist()
                fit = min(fit, fit_of(drawn, law))
    return Found(
        error,
        cases,
        f"all sequences and relabelings for k = 1, 2, 3; {SAMPLED} draws of both samplers: chi-square p >= {fit:.2g}",
        {"probabilities sum to 1": mass < 1e-9, "both samplers draw from this law": fit > 1e-6},
    )


def sequence_probability(row: Sequence[int], prior: Prior) -> float:
    """P(x) under a prior, exactly: each token repeats an earlier customer at some depth, or is a fresh uniform draw."""
    order, vocab = prior.order, prior.vocab
    concentrations = prior.concentrations()
    top = order if prior.independent else 0
    customers: dict[tuple[int, ...], list[int]] = {}

    def after(position: int) -> float:
        if position == len(row):
            return 1.0
        token = row[position]
        suffixes = [tuple(row[position - depth : position]) for depth in range(order + 1)]
        total, reach = 0.0, 1.0
        for depth in range(order, top - 2, -1):
            if depth >= top:
                seats = customers.get(suffixes[depth], [0] * vocab)
                room = sum(seats) + concentrations[depth]
                chance, reach = reach * seats[token] / room, reach * concentrations[depth] / room
            else:
                chance = reach / vocab
            if chance > 0:
                seated = suffixes[max(depth, top) :]
                for suffix in seated:
                    customers.setdefault(suffix, [0] * vocab)[token] += 1
                total += chance * after(position + 1)
                for suffix in seated:
                    customers[suffix][token] -= 1
        return total

    return vocab**-order * after(order)


def fit_of(drawn: Sequence[Sequence[int]], law: dict[tuple[int, ...], float]) -> float:
    """The p-value of the chi-square test that these sequences are drawn from this law; rare ones are pooled."""
    tally, whole = Counter(map(tuple, drawn)), sum(law.values())
    common = [row for row, chance in law.items() if chance * len(drawn) >= 5]
    seen, expected = [tally[row] for row in common], [law[row] / whole * len(drawn) for row in common]
    if len(common) < len(law):
        seen, expected = [*seen, len(drawn) - sum(seen)], [*expected, len(drawn) - sum(expected)]
    return float(chisquare(seen, expected).pvalue)


def invariant_descent(seed: int, batch: int) -> Found:
    """30 steps of full-batch descent from a symmetric start: parameters and predictor stay symmetric"""
    rng = np.random.default_rng([seed, 12])
    stays, moved, leaves, loses = [], [], [], []
    for model in small_models():
        vocab = model.config.vocab
        tokens, targets = one_batch(rng, model.config, max(4, batch // 2))
        everything = symmetrised(tokens, targets, vocab=vocab)
        symmetric_start(model, rng)
        start = copy_of(model)
        descend(model, *everything)
        stays += [asymmetry(copy_of(model), vocab), predictor_asymmetry(model, tokens)]
        moved.append(distance(copy_of(model), start))
        write(model, start)
        descend(model, tokens, targets)  # the same start, but data that prefer some labels
        loses.append(asymmetry(copy_of(model), vocab))
        write(model, start)
        with torch.no_grad():  # noise on the match weights: a start that some relabeling changes
            weights = model.get_parameter("blocks.1.attn.W_Q")
            weights.add_(torch.from_numpy(rng.normal(0, 0.1, tuple(weights.shape))))
        descend(model, *everything)
        leaves.append(asymmetry(copy_of(model), vocab))
    return Found(
        max(stays),
        len(moved),
        f"moved by {min(moved):.2g} or more; asymmetric start ends {min(leaves):.1g} off, asymmetric data "
        f"{min(loses):.0e}",
        {
            "the parameters moved": min(moved) > 1e-3,
            "an asymmetric start stays outside": min(leaves) > 1e-3,
            "data without label symmetry lead outside": min(loses) > 1e-4,
        },
    )


def small_models() -> list[InductionTransformer]:
    """float64 disentangled models for k = 1, 2, 3, both readouts, with and without BOS; small, for all relabelings."""
    shapes = [(1, 4, 8), (2, 3, 9), (3, 2, 10)]
    return [
        disentangled(
            order, vocab=vocab, length=length, bos=bos, readout="probability" if bos == (order == 2) else "logit"
        )
        for (order, vocab, length), bos in itertools.product(shapes, (False, True))
    ]


def disentangled(order: int, **fields: object) -> InductionTransformer:
    """A disentangled model in float64."""
    config = {"family": "disentangled", "order": order, "dtype": "float64", **fields}
    return InductionTransformer(InductionConfig(**config))  # type: ignore[arg-type]


def relabelings(vocab: int) -> list[torch.Tensor]:
    return [torch.tensor(names) for names in itertools.permutations(range(vocab))]


def one_batch(rng: np.random.Generator, config: InductionConfig, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Sequences and the token that follows each."""
    rows = samples(rng, order=config.order, vocab=config.vocab, batch=batch, length=config.length + 1)
    return rows[:, :-1], rows[:, -1]


def symmetrised(tokens: torch.Tensor, targets: torch.Tensor, *, vocab: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The batch together with all its relabelings: a distribution with label symmetry, exactly."""
    every = relabelings(vocab)
    return torch.cat([sigma[tokens] for sigma in every]), torch.cat([sigma[targets] for sigma in every])


def gradient_of(model: InductionTransformer, tokens: torch.Tensor, targets: torch.Tensor) -> Parameters:
    """The gradient of the last-token loss, for every free parameter."""
    if model.config.bos:
        tokens = torch.nn.functional.pad(tokens, (1, 0), value=model.config.vocab)
    loss = torch.nn.functional.cross_entropy(model(tokens, prepend_bos=False)[:, -1], targets)
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
        return (torch.arange(0, size, len(sigma))[:, None] + sigma).ravel()

    return {
        name: value
        if name.endswith("rel_bias")
        else value[..., within_blocks(value.shape[-2]), :][..., within_blocks(value.shape[-1])]
        for name, value in values.items()
    }


def distance(first: Parameters, second: Parameters) -> float:
    return max(gap(first[name], second[name]) for name in first)


def asymmetry(values: Parameters, vocab: int) -> float:
    """How far the parameters are from being fixed by every relabeling."""
    return max(distance(relabelled(values, sigma), values) for sigma in relabelings(vocab))


def predictor_asymmetry(model: InductionTransformer, tokens: torch.Tensor) -> float:
    """How far the predictor is from the class M: the largest change of a law under relabeling."""
    law = predict(model, tokens)
    return max(gap(predict(model, sigma[tokens])[:, sigma], law) for sigma in relabelings(model.config.vocab))


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


def descend(model: InductionTransformer, tokens: torch.Tensor, targets: torch.Tensor) -> None:
    """30 steps of plain gradient descent on the whole batch."""
    for _ in range(30):
        gradient = gradient_of(model, tokens, targets)
        write(model, {name: model.get_parameter(name) - 0.5 * gradient[name] for name in gradient})


def invariant_matrix(seed: int, batch: int) -> Found:
    """the average over all relabelings is a I + b J, with a and b from the means on and off the diagonal"""
    rng = np.random.default_rng([seed, 13])
    errors, ranks, cyclic = [], [], []
    for vocab in (2, 3, 4, 5):
        identity, ones = np.eye(vocab), np.ones((vocab, vocab))
        projector = averaging(list(itertools.permutations(range(vocab))))
        rotations = [tuple(np.roll(range(vocab), shift)) for shift in range(vocab)]
        ranks.append(np.linalg.matrix_rank(projector, tol=1e-9))
        cyclic.append(np.linalg.matrix_rank(averaging(rotations), tol=1e-9))
        for _ in range(batch):
            matrix = rng.normal(size=(vocab, vocab))
            everywhere = (matrix.sum() - np.trace(matrix)) / (vocab * (vocab - 1))
            expected = (np.trace(matrix) / vocab - everywhere) * identity + everywhere * ones
            errors.append(float(np.abs(projector @ matrix.ravel() - expected.ravel()).max()))
        errors += [float(np.abs(projector @ fixed.ravel() - fixed.ravel()).max()) for fixed in (identity, ones)]
    return Found(
        max(errors),
        4 * batch,
        f"dimension {'/'.join(map(str, ranks))} for |V| = 2..5; rotations alone would leave "
        f"{'/'.join(map(str, cyclic))}",
        {
            "the invariant matrices have dimension 2": ranks == [2] * 4,
            "rotations alone leave more than two dimensions": min(cyclic[1:]) > 2,
        },
    )


def averaging(permutations: Sequence[Sequence[int]]) -> np.ndarray:
    """The matrix, on flattened |V| x |V| matrices, of A -> mean of P A P'."""
    matrices = [np.eye(len(names))[list(names)] for names in permutations]
    return np.asarray(np.mean([np.kron(one, one) for one in matrices], axis=0))


def inductive(seed: int, batch: int) -> Found:
    """HookedTransformer with blocks a I + b J = estimator over pairs of lags with beta = a, for any b"""
    rng = np.random.default_rng([seed, 14])
    errors, control = [], []
    for (order, vocab), bos in itertools.product(SHAPES, (False, True)):
        tokens = samples(rng, order=order, vocab=vocab, batch=batch)
        beta = rng.normal(0.5, 1.0, (order, order))
        kappa = float(rng.uniform(-2, 3)) if bos else None
        law = soft_matching_pairs(tokens, vocab=vocab, beta=beta, kappa=kappa)
        for shift in (0.0, 3.0):
            shifts = shift * rng.normal(size=beta.shape)
            model = pair_model(beta, shifts, kappa=kappa, vocab=vocab, length=tokens.shape[1])
            errors.append(gap(predict(model, tokens), law))
        with torch.no_grad():
            weights = model.get_parameter("blocks.1.attn.W_Q")
            weights.add_(torch.from_numpy(rng.normal(0, 0.5, tuple(weights.shape))))
        control.append(gap(predict(model, tokens), law))
    return Found(
        max(errors),
        len(errors) * batch,
        f"k x k random blocks, with and without BOS; noise on the blocks moves the law by up to {max(control):.2g}",
        {"blocks outside span{I, J} break it": max(control) > 0.05},
    )


@torch.no_grad()
def pair_model(
    scales: np.ndarray, shifts: np.ndarray, *, kappa: float | None, vocab: int, length: int
) -> InductionTransformer:
    """The construction's copy heads and readout, with match block (r1, r2) = scale I + shift J."""
    order, bos = len(scales), kappa is not None
    model = disentangled(order, vocab=vocab, length=length, bos=bos, readout="probability", floor=1e-12)
    write_construction(model, beta=np.zeros(order), kappa=kappa)
    weights = model.get_parameter("blocks.1.attn.W_Q")
    # The query's lag r sits in block r - 1, the key's in block r.
    blocks = np.kron(scales, np.eye(vocab)) + np.kron(shifts, np.ones((vocab, vocab)))
    weights[0, : order * vocab, vocab : (order + 1) * vocab] = torch.from_numpy(blocks)
    if kappa is not None:
        # BOS is 1/|V| everywhere in each block: its content scores the mean of every block's identity part.
        bias = model.get_parameter("blocks.1.attn.rel_bias")
        bias[0, length] = kappa - float(scales.sum()) / vocab
    return model
