"""Counts along the contiguous suffixes of the query's context: all that the classical smoothers read.

The order-i suffix of the context u_T is its i most recent tokens. Its successor counts are the paper's K_[i](m) with
[i] = {1..i}, the entries 2**i - 1 of `cumulative_counts`; so every order counts the same candidates, the positions with
k tokens before them. Kneser-Ney and Good-Turing also look at the other contexts of the sequence (how many distinct
older tokens a suffix was seen after, how many n-grams occurred once), which match masks do not contain. So the counts
are kept in a suffix trie (`trie`), which grows with the sequence: O(k) work per token, at every position, for any
vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Int64
from numpy.typing import NDArray

from interp.arguments import Switch, Whole, fits_memory
from interp.chains.trie import new_trie, plant, trie_bytes, walk
from interp.estimators.counts import Queries, queries
from interp.notation import Tokens
from interp.source import njit

Array: TypeAlias = NDArray[Any]

MAX_TALLY = 6  # counts of counts n_1 .. n_6: Katz discounts counts up to 5, which takes n_6


@dataclass(frozen=True, kw_only=True)
class SuffixCounts:
    """The counts of each suffix of a sequence's last context (or, with a length axis, of every context).

    counts                [..., order, vocab]  K_[i](m): how often m followed the order-i suffix, i = 0..k
    continuations         [..., order, vocab]  after how many distinct older tokens the order-i suffix with m
                                               was seen; at i = k, where none is kept, the counts themselves
    tallies               [..., order, 6]      n_r: how many (order-i context, symbol) pairs of the whole
                                               sequence have count r = 1..6
    continuation_tallies  [..., order, 6]      the same for continuations
    """

    counts: Int64[torch.Tensor, "*rows order vocab"]
    continuations: Int64[torch.Tensor, "*rows order vocab"]
    tallies: Int64[torch.Tensor, "*rows order tally"]
    continuation_tallies: Int64[torch.Tensor, "*rows order tally"]


def suffix_counts(tokens: Tokens, *, order: Whole, vocab: Whole, every_position: Switch = False) -> SuffixCounts:
    """The counts after the last token, or after every token; all zero while there is no candidate.

    >>> suffix_counts([[0, 1, 0, 1]], order=2, vocab=2).counts[0].tolist()  # unigram, after (1), after (0, 1)
    [[1, 1], [1, 0], [1, 0]]
    """
    return count_suffixes(queries(tokens, order=order, vocab=vocab, every_position=every_position))


def count_suffixes(asked: Queries) -> SuffixCounts:
    """The counts of suffixes for checked arguments."""
    tokens, order, vocab = asked.tokens, asked.order, asked.vocab
    fits_memory(trie_bytes(tokens.shape[1], order, vocab), what="the suffixes of one sequence")
    fits_memory(32 * asked.shape[0] * asked.shape[1] * (order + 1) * vocab, what="the counts of the suffixes")
    counts = np.zeros((2, *asked.shape, order + 1, vocab), dtype=np.int64)
    tallies = np.zeros((2, *asked.shape, order + 1, MAX_TALLY), dtype=np.int64)
    _fill_counts(tokens, order, vocab, asked.first, counts, tallies)
    return SuffixCounts(
        counts=asked.result(counts[0]),
        continuations=asked.result(counts[1]),
        tallies=asked.result(tallies[0]),
        continuation_tallies=asked.result(tallies[1]),
    )


@njit()
def _raise(counts: Array, tallies: Array, node: int, depth: int, token: int) -> None:
    """Count the token at the node, and move its n-gram to the next count of counts."""
    old = counts[node, token]
    counts[node, token] = old + 1
    if 1 <= old <= MAX_TALLY:
        tallies[depth, old - 1] -= 1
    if old < MAX_TALLY:
        tallies[depth, old] += 1


@njit()
def _fill_counts(tokens: Array, order: int, vocab: int, first: int, counts: Array, tallies: Array) -> None:
    length = tokens.shape[1]
    trie = new_trie(length, order, vocab)
    path = trie[1]
    raw = np.empty((trie[0].shape[0], vocab), dtype=np.int64)
    distinct = np.empty_like(raw)
    raw_tallies = np.empty((order + 1, MAX_TALLY), dtype=np.int64)
    distinct_tallies = np.empty_like(raw_tallies)
    for b in range(tokens.shape[0]):
        plant(trie)
        # Entry by entry: an assignment to a slice takes seconds to compile.
        for m in range(vocab):
            raw[0, m] = distinct[0, m] = 0
        for depth in range(order + 1):
            for n in range(MAX_TALLY):
                raw_tallies[depth, n] = distinct_tallies[depth, n] = 0
        for t in range(order - 1, length):
            # Before this token is read, `path` holds the context it follows.
            if t >= order:
                token = tokens[b, t]
                fresh = True  # at the top order every occurrence counts
                for depth in range(order, -1, -1):
                    node = path[depth]
                    if fresh:
                        _raise(distinct, distinct_tallies, node, depth, token)
                    fresh = raw[node, token] == 0
                    _raise(raw, raw_tallies, node, depth, token)
            opened = walk(tokens[b], t + 1, order, trie)
            for node in range(path[order + 1] - opened, path[order + 1]):
                for m in range(vocab):
                    raw[node, m] = distinct[node, m] = 0
            if t >= order and t >= first:
                for depth in range(order + 1):
                    node = path[depth]
                    for m in range(vocab):
                        counts[0, b, t - first, depth, m] = raw[node, m]
                        counts[1, b, t - first, depth, m] = distinct[node, m]
                    for n in range(MAX_TALLY):
                        tallies[0, b, t - first, depth, n] = raw_tallies[depth, n]
                        tallies[1, b, t - first, depth, n] = distinct_tallies[depth, n]
