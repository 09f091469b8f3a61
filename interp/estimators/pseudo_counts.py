"""Partial matches as pseudo-counts: the additive reading of soft matching without BOS (eq:pseudo_count).

    pseudo_counts(tokens, order=2, vocab=5, beta=1.5)       alpha~_m(gamma), [batch, vocab]

At one beta for all lags, soft matching equals (K_[k](m) + alpha~_m) / (K_[k] + sum alpha~): counting exact matches,
plus a pseudo-count that depends on the data. lemma:optimal_beta treats it as the constant alpha.
"""

from __future__ import annotations

import math

import torch

from interp.arguments import Number, Switch, Whole, finite_number
from interp.estimators.counts import from_counts, superset_sum
from interp.estimators.soft_matching import Law
from interp.notation import Tokens, check_order, mask_bits


def pseudo_counts(tokens: Tokens, *, order: Whole, vocab: Whole, beta: Number, every_position: Switch = False) -> Law:
    """alpha~_m(gamma) = gamma^-k times the sum over M, a proper subset of [k], of gamma^|M| K_M(m), gamma = e^beta - 1.

    beta must be positive: at 0 gamma vanishes and the pseudo-count is infinite, below 0 it changes sign with |M|.

    Parameters
    ----------
    tokens
        Sequences [batch, length] without BOS, or chains of a prior.
    order
        k, the number of tokens of a context.
    vocab
        |V|, the number of symbols.
    beta
        The match weight of all lags.
    every_position
        Answer after every token, from the tokens so far, rather than after the last one.

    Returns
    -------
    Tensor
        Pseudo-counts, [batch, vocab]; with `every_position` [batch, length, vocab].

    Examples
    --------
    >>> pseudo_counts([[0, 1, 0, 1]], order=2, vocab=2, beta=math.log(2.0))[0].tolist()  # gamma = 1
    [3.0, 1.0]
    """
    order = check_order(order)
    scale = finite_number(beta, name="beta", above=0)
    log_gamma = scale + math.log(-math.expm1(-scale))
    if -order * log_gamma > 700:
        raise ValueError(f"beta = {beta!r} is too small: gamma^-{order} overflows")
    sizes = torch.from_numpy(mask_bits(order).sum(1)).double()
    weights = torch.where(sizes < order, torch.exp((sizes - order) * log_gamma), 0.0)  # the full mask is left out

    def estimate(counts: torch.Tensor) -> torch.Tensor:
        return torch.einsum("m,...mv->...v", weights, superset_sum(counts).double())

    return from_counts(estimate, tokens, order=order, vocab=vocab, every_position=every_position)
