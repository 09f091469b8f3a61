"""Between two disentangled models of one shape: heads in one order, and points on the way from one to the other.

    start, end = in_lag_order(config, soft, lags=(2, 1)), in_lag_order(config, hard, lags=(1, 2))
    straight(config, start, end, 0.5)   every weight halfway
    by_reads(config, start, end, 0.5)   what the heads attend to and what the match head reads halfway

A copy head is linear in its weights before the softmax: on the straight way its log-attention is a straight line, too,
up to a constant for each query. So a bias of 40 dilutes nothing any more after a few percent of the way from a bias of
5, while W_A, which training had made large to undo that dilution, is still where it started. `by_reads` moves both
together: attention itself is a straight line, and so are the weights after the dilution.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import log_softmax

from interp.hooked.config import InductionConfig
from models.families.disentangled.weights import views

Flat = np.ndarray


def in_lag_order(config: InductionConfig, flat: Flat, *, lags: Sequence[int]) -> Flat:
    """The same model with its copy heads in the order of lags; `lags` names the lag 1..k of each head.

    The blocks of W_A and of W_O that read a head's copies move with it, so that no prediction changes.
    """
    if sorted(lags) != list(range(1, config.order + 1)):
        raise ValueError(f"each lag 1..{config.order} needs one copy head, got lags {list(lags)}")
    heads = np.argsort(lags)
    blocks = np.concatenate([[0], heads + 1])[:, None] * config.vocab + np.arange(config.vocab)
    columns = blocks.ravel()
    old, found = views(config, flat), flat.copy()
    new = views(config, found)
    new["copy_weight"][:], new["copy_bias"][:] = old["copy_weight"][heads], old["copy_bias"][heads]
    new["match_weight"][:] = old["match_weight"][np.ix_(columns, columns)]
    new["readout_weight"][:] = old["readout_weight"][:, np.concatenate([columns, len(columns) + columns])]
    return found


def straight(config: InductionConfig, start: Flat, end: Flat, weight: float) -> Flat:
    """Every weight at (1 - weight) start + weight end."""
    return (1 - weight) * start.astype(np.float64) + weight * end.astype(np.float64)


def by_reads(config: InductionConfig, start: Flat, end: Flat, weight: float) -> Flat:
    """The point where the copy heads' attention by distance, and W_A and W_O after its dilution, are a straight line.

    Attention by distance is the softmax of a head's bias over all distances, which is what the last query sees.
    """
    found = straight(config, undiluted(config, start), undiluted(config, end), weight)
    first, second = (log_softmax(views(config, one.astype(np.float64))["copy_bias"], axis=-1) for one in (start, end))
    with np.errstate(divide="ignore"):  # the log of a weight of zero
        views(config, found)["copy_bias"][:] = np.logaddexp(first + np.log1p(-weight), second + np.log(weight))
    return undiluted(config, found, inverse=True)


def undiluted(config: InductionConfig, flat: Flat, *, inverse: bool = False) -> Flat:
    """The weights that read the last query's copies, as they act after those copies were diluted by BOS.

    A head that leaves the share b of its attention on BOS writes 1 - b times what it copied, and the constant b / |V|.
    So rows of W_A, and columns of W_O that read the query's own stream, count 1 - b times, but for their mean over
    symbols, which all that a head writes reads alike. `inverse` goes back. Heads are taken to attend by distance alone.
    """
    if not config.bos:
        raise ValueError("without BOS no copy is diluted by it")
    found = flat.astype(np.float64)
    parts = views(config, found)
    kept = 1.0 - np.exp(log_softmax(parts["copy_bias"], axis=-1)[:, -1])
    for head, share in enumerate(kept):
        block = slice((head + 1) * config.vocab, (head + 2) * config.vocab)
        for read in (parts["match_weight"][block], parts["readout_weight"][:, block].T):
            mean = read.mean(axis=0)
            read[:] = mean + (read - mean) * (1 / share if inverse else share)
    return found
