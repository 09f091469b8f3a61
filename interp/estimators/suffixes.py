"""Counts along the contiguous suffixes of the query's context: all that the classical smoothers read.

The order-i suffix of the context u_T is its i most recent tokens. Its successor counts are the paper's K_[i](m) with
[i] = {1..i}, the entries 2**i - 1 of `cumulative_counts`; so every order counts the same candidates, the positions with
k tokens before them. Kneser-Ney and Good-Turing also look at the other contexts of the sequence (how many distinct
older tokens a suffix was seen after, how many n-grams occurred once), which match masks do not contain. So the counts
are kept in a suffix trie (`trie`), which grows with the sequence: O(k) work per token, at every position, for any
vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int64
from numpy.typing import NDArray

from interp.arguments import Switch, Whole, fits_memory, switch
from interp.chains.trie import new_trie, plant, trie_bytes, walk
from interp.notation import Tokens, as_tokens, check_order, check_vocab
from interp.source import njit

Array: TypeAlias = NDArray[Any]

MAX_TALLY = 6  # counts of counts n_1 .. n_6: Katz discounts counts up to 5, which takes n_6
CHUNK_BYTES = 64 << 20  # working memory of the every-position form


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
    order, vocab = check_order(order), check_vocab(vocab)
    every_position = switch(every_position, name="every_position")
    array = as_tokens(tokens, vocab=vocab, order=order)
    batch, length = array.shape
    fits_memory(trie_bytes(length, order, vocab), what="the suffixes of one sequence")
    fits_memory(32 * batch * (length if every_position else 1) * (order + 1) * vocab, what="the counts of the suffixes")
    first = 0 if every_position else length - 1
    queries = length - first
    counts = np.zeros((2, batch, queries, order + 1, vocab), dtype=np.int64)
    tallies = np.zeros((2, batch, queries, order + 1, MAX_TALLY), dtype=np.int64)
    _fill_counts(array, order, vocab, first, counts, tallies)
    if not every_position:
        counts, tallies = counts[:, :, 0], tallies[:, :, 0]
    return SuffixCounts(
        counts=torch.from_numpy(counts[0]),
        continuations=torch.from_numpy(counts[1]),
        tallies=torch.from_numpy(tallies[0]),
        continuation_tallies=torch.from_numpy(tallies[1]),
    )


def from_suffixes(
    estimate: Callable[[SuffixCounts], torch.Tensor],
    tokens: Tokens,
    *,
    order: Whole,
    vocab: Whole,
    every_position: Switch,
) -> Float[torch.Tensor, "batch vocab"] | Float[torch.Tensor, "batch length vocab"]:
    """Apply a function of the suffix counts at the last or at every position, in chunks of bounded memory."""
    order, vocab = check_order(order), check_vocab(vocab)
    every_position = switch(every_position, name="every_position")
    array = as_tokens(tokens, vocab=vocab, order=order)
    batch, length = array.shape
    fits_memory(8 * batch * (length if every_position else 1) * vocab, what="the laws")
    rows = length if every_position else 1
    # Four integer arrays, and about as much again in the estimator.
    per_sequence = 8 * rows * (order + 1) * 4 * (vocab + MAX_TALLY)
    step = max(1, CHUNK_BYTES // per_sequence)
    laws = [
        estimate(suffix_counts(array[start : start + step], order=order, vocab=vocab, every_position=every_position))
        for start in range(0, batch, step)
    ]
    return torch.cat(laws)


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
