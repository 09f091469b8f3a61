"""What label symmetry leaves of a matrix, lemma:permutation_invariant_matrix, and of the match layer."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import torch

from analyses.studies.theorems.definitions import gap, samples
from analyses.studies.theorems.result import Claim, judge
from interp.circuit.runner import predict
from interp.estimators.soft_matching import soft_matching_pairs
from interp.hooked.construction import write_construction
from interp.hooked.transformer import InductionConfig, InductionTransformer


def invariant_matrix(seed: int, batch: int) -> Claim:
    """lemma:permutation_invariant_matrix: averaging over all permutations projects onto span{I, J}."""
    rng = np.random.default_rng([seed, 13])
    error, cases, ranks, cyclic = 0.0, 0, [], []
    for vocab in (2, 3, 4, 5):
        identity, ones = np.eye(vocab), np.ones((vocab, vocab))
        permutations = list(itertools.permutations(range(vocab)))
        projector = averaging(permutations)
        ranks.append(np.linalg.matrix_rank(projector, tol=1e-9))
        rotations = [tuple(np.roll(range(vocab), shift)) for shift in range(vocab)]
        cyclic.append(np.linalg.matrix_rank(averaging(rotations), tol=1e-9))
        for _ in range(batch):
            matrix = rng.normal(size=(vocab, vocab))
            average = (projector @ matrix.ravel()).reshape(vocab, vocab)
            everywhere = (matrix.sum() - np.trace(matrix)) / (vocab * (vocab - 1))
            diagonal = np.trace(matrix) / vocab - everywhere
            error = max(error, float(np.abs(average - diagonal * identity - everywhere * ones).max()))
            cases += 1
        for fixed in (identity, ones):
            error = max(error, float(np.abs(projector @ fixed.ravel() - fixed.ravel()).max()))
    return judge(
        label="lemma:permutation_invariant_matrix",
        claim="the average over all relabelings is a I + b J, with a and b from the means on and off the diagonal",
        cases=cases,
        error=error,
        tolerance=1e-12,
        controls={
            "the invariant matrices have dimension 2": ranks == [2] * 4,
            "rotations alone leave more than two dimensions": min(cyclic[1:]) > 2,
        },
        note=f"dimension {'/'.join(map(str, ranks))} for |V| = 2..5; rotations alone would leave "
        f"{'/'.join(map(str, cyclic))}",
    )


def averaging(permutations: Sequence[Sequence[int]]) -> np.ndarray:
    """The matrix, on flattened |V| x |V| matrices, of A -> mean of P A P'."""
    size = len(permutations[0])
    projector = np.zeros((size * size, size * size))
    for names in permutations:
        permutation = np.eye(size)[list(names)]
        projector += np.kron(permutation, permutation) / len(permutations)
    return projector


def inductive(seed: int, batch: int) -> Claim:
    """corollary:inductive: blocks a I + b J predict like the estimator over pairs of lags; b is invisible."""
    rng = np.random.default_rng([seed, 14])
    error, cases, control = 0.0, 0, 0.0
    for order, vocab, bos in itertools.product((1, 2, 3), (2, 3, 5), (False, True)):
        tokens = samples(rng, order=order, vocab=vocab, batch=batch)
        beta = rng.normal(0.5, 1.0, (order, order))
        kappa = float(rng.uniform(-2, 3)) if bos else None
        law = soft_matching_pairs(tokens, vocab=vocab, beta=beta, kappa=kappa)
        for shift in (0.0, 3.0):
            model = pair_model(
                beta, shift * rng.normal(size=beta.shape), kappa=kappa, vocab=vocab, length=tokens.shape[1]
            )
            error = max(error, gap(predict(model, tokens), law))
            cases += batch
        with torch.no_grad():
            weights = model.get_parameter("blocks.1.attn.W_Q")
            weights.add_(torch.from_numpy(rng.normal(0, 0.5, tuple(weights.shape))))
        control = max(control, gap(predict(model, tokens), law))
    return judge(
        label="corollary:inductive",
        claim="HookedTransformer with blocks a I + b J = estimator over pairs of lags with beta = a, for any b",
        cases=cases,
        error=error,
        tolerance=1e-9,
        controls={"blocks outside span{I, J} break it": control > 0.05},
        note=f"k x k random blocks, with and without BOS; noise on the blocks moves the law by up to {control:.2g}",
    )


@torch.no_grad()
def pair_model(
    scales: np.ndarray, shifts: np.ndarray, *, kappa: float | None, vocab: int, length: int
) -> InductionTransformer:
    """The construction's copy heads and readout, with match block (r1, r2) = scale I + shift J."""
    order = len(scales)
    model = InductionTransformer(
        InductionConfig(
            family="disentangled",
            order=order,
            vocab=vocab,
            length=length,
            bos=kappa is not None,
            readout="probability",
            floor=1e-12,
            dtype="float64",
        )
    )
    write_construction(model, beta=np.zeros(order), kappa=kappa)
    weights = model.get_parameter("blocks.1.attn.W_Q")
    bias = model.get_parameter("blocks.1.attn.rel_bias")
    identity = torch.eye(vocab, dtype=torch.float64)
    for query, key in itertools.product(range(order), repeat=2):
        # The query's lag r sits in block r - 1, the key's in block r.
        rows = slice(query * vocab, (query + 1) * vocab)
        columns = slice((key + 1) * vocab, (key + 2) * vocab)
        weights[0, rows, columns] = identity * float(scales[query, key]) + float(shifts[query, key])
    if kappa is not None:
        # BOS is 1/|V| everywhere in each block: its content scores the mean of every block's identity part.
        bias[0, length] = kappa - float(scales.sum()) / vocab
    return model
