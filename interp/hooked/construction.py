"""The constructive proof of prop:transformer_estimator, written into the weights of a real HookedTransformer.

    model = construct(order=2, vocab=5, length=64, beta=(2.7, 1.2), kappa=3.3)
    predict(model, tokens)                # equals soft_matching(tokens, vocab=5, beta=(2.7, 1.2), kappa=3.3)

The match layer's relative bias shuts out the early keys by their distance from the last query, so a construction is
tied to its length: it computes the estimator at the last position of sequences of exactly that length.
"""

from __future__ import annotations

import numpy as np
import torch

from interp.arguments import Number, Numbers, Whole, count
from interp.hooked.transformer import Dtype, InductionConfig, InductionTransformer
from interp.notation import as_beta, as_kappa, check_order, check_vocab

MAX_SCORE_ERROR = 1e-3  # by rounding, in nats; a beta that the weights cannot represent is refused
COPY_STRENGTH = 1e4  # delta^(1): exp(-1e4) is exactly zero in either precision, so copying is hard


def construct(
    *,
    order: Whole,
    vocab: Whole,
    length: Whole,
    beta: Numbers,
    kappa: Number | None = None,
    dtype: Dtype = "float64",
) -> InductionTransformer:
    """The construction with the given match weights.

    Parameters
    ----------
    order : int
        k, the number of tokens of a context.
    vocab : int
        |V|, the number of symbols.
    length : int
        Tokens of the sequences, without BOS: it predicts after the last of exactly that many.
    beta : sequence of float [lag]
        The match weight of each lag, lag 1 first.
    kappa : float, optional
        The score of BOS; without it the model has no BOS.
    dtype : "float64" or "float32", default "float64"
        In float32, scores of size k beta = 400 lose five digits.

    Returns
    -------
    InductionTransformer

    Examples
    --------
    >>> import interp as ip
    >>> model = construct(order=1, vocab=2, length=4, beta=(3.0,))
    >>> ip.predict(model, [[0, 1, 0, 1]]).round(decimals=3).tolist()
    [[0.909, 0.091]]
    """
    pseudo = as_kappa(kappa)
    as_beta(beta)
    config = InductionConfig(
        family="construction",
        order=check_order(order),
        vocab=check_vocab(vocab),
        length=count(length, name="length"),
        bos=pseudo is not None,
        readout="probability",
        floor=1e-12,
        dtype=dtype,
    )
    model = InductionTransformer(config)
    write_construction(model, beta=beta, kappa=pseudo)
    return model


@torch.no_grad()
def write_construction(
    model: InductionTransformer,
    *,
    beta: Numbers,
    kappa: Number | None,
) -> None:
    """Write copy heads, match weights, relative biases and readout into a construction or disentangled model."""
    config = model.config
    beta = as_beta(beta, order=config.order)
    kappa = as_kappa(kappa)
    if not config.one_hot:
        raise ValueError("a standard transformer has no analytic weights; use a construction or disentangled model")
    if config.bos and kappa is None:
        raise ValueError("this model has a BOS token: give kappa, its score")
    if not config.bos and kappa is not None:
        raise ValueError("kappa given to a model without BOS: expected kappa=None")
    most = MAX_SCORE_ERROR / torch.finfo(config.torch_dtype).eps
    if (size := float(np.abs(beta).sum()) + abs(kappa or 0.0)) > most:
        raise ValueError(
            f"beta and kappa must not exceed {most:.2g} together: beyond it {config.dtype} scores are rounded by more "
            f"than {MAX_SCORE_ERROR}; got {size:.3g}"
        )
    order, vocab, length = config.order, config.vocab, config.length
    copy, match = model.copy_attention, model.match_attention
    copy.W_Q.zero_()
    copy.rel_bias.zero_()
    match.W_Q.zero_()
    match.rel_bias.zero_()
    for lag in range(1, order + 1):
        copy.rel_bias[lag - 1, lag] = COPY_STRENGTH
        # S_{r,r+1} = beta_r is 1-based; in 0-based blocks the query's block r-1 (x_{t-r+1}) meets the key's block r
        # (x_{s-r}).
        query, key = (lag - 1) * vocab, lag * vocab
        match.W_Q[0, query : query + vocab, key : key + vocab] = float(beta[lag - 1]) * torch.eye(
            vocab, dtype=match.W_Q.dtype
        )
    # Distances from the last query T to the first k tokens, which have no full context before them.
    strength = COPY_STRENGTH + 2 * float(np.abs(beta).sum()) + abs(kappa or 0.0)
    match.rel_bias[0, length - order : length] = -strength
    if kappa is not None:
        # BOS scores sum_r beta_r x'x_BOS = |beta|_1 / |V| through its content, whatever the query, where |beta|_1 is
        # the plain sum of beta (the paper's betas are positive); the bias at its distance adds what is missing to
        # kappa.
        match.rel_bias[0, length] = kappa - float(beta.sum()) / vocab
    # W_O reads block 0 of the match head's output: the votes of the successor tokens.
    half = config.blocks * vocab
    model.unembed.W_U.zero_()
    model.unembed.W_U[half : half + vocab] = torch.eye(vocab, dtype=model.unembed.W_U.dtype)
