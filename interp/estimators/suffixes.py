"""Counts along the contiguous suffixes of a context: all that the classical smoothers read.

The order-i suffix of a context is its i most recent tokens. Its successor counts are the paper's K_[i](m) with
[i] = {1..i}, the entries 2**i - 1 of `cumulative_counts`; so every order counts the same candidates. Kneser-Ney also
looks at the other contexts of the sequence, which match masks do not contain. So the counts are kept in a suffix trie
(`trie`), which grows with the sequence: O(k) work per token, at every position, for any vocabulary.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Int64
from numpy.typing import NDArray

from interp.arguments import fits_memory
from interp.chains.trie import new_trie, plant, trie_bytes, walk
from interp.estimators.counts import Queries
from interp.source import njit

Array: TypeAlias = NDArray[Any]


def suffix_counts(
    asked: Queries, *, continued: bool = False
) -> tuple[Int64[torch.Tensor, "batch position order vocab"], Int64[torch.Tensor, "batch position order tally"]]:
    """How often each symbol followed the order-i suffix, i = 0..k; all is zero while there is no candidate.

    `continued` counts the distinct older tokens with which the suffix and the symbol were seen; at i = k, where none is
    kept, it counts each time. Second come n_1 and n_2 of the whole sequence: how many pairs of an order-i
    context and a symbol have count 1 and 2.

    >>> from interp.estimators.counts import queries
    >>> asked = queries([[0, 1, 0, 1]], order=2, vocab=2, every_position=False)
    >>> suffix_counts(asked)[0][0, 0].tolist()  # unigram, after (1), after (0, 1)
    [[1, 1], [1, 0], [1, 0]]
    """
    tokens, order, vocab = asked.tokens, asked.order, asked.vocab
    fits_memory(trie_bytes(tokens.shape[1], order, vocab), what="the suffixes of one sequence")
    fits_memory(8 * asked.shape[0] * asked.shape[1] * (order + 1) * vocab, what="the counts of the suffixes")
    counts = np.zeros((*asked.shape, order + 1, vocab), dtype=np.int64)
    tallies = np.zeros((*asked.shape, order + 1, 2), dtype=np.int64)
    _count(tokens, order, vocab, asked.first, continued, counts, tallies)
    return torch.from_numpy(counts), torch.from_numpy(tallies)


@njit()
def _count(tokens: Array, order: int, vocab: int, first: int, continued: bool, counts: Array, tallies: Array) -> None:
    length = tokens.shape[1]
    trie = new_trie(length, order, vocab)
    path = trie[1]
    seen = np.empty((trie[0].shape[0], vocab), dtype=np.int64)
    tally = np.empty((order + 1, 2), dtype=np.int64)
    for b in range(tokens.shape[0]):
        plant(trie)
        # Entry by entry: an assignment to a slice takes seconds to compile.
        for m in range(vocab):
            seen[0, m] = 0
        for depth in range(order + 1):
            tally[depth, 0] = tally[depth, 1] = 0
        for t in range(order - 1, length):
            # Before this token is read, `path` holds the context that it follows. It counts there and at each shorter
            # suffix, a continuation only as long as it is new at the longer one.
            if t >= order:
                for depth in range(order, -1, -1):
                    node = path[depth]
                    old = seen[node, tokens[b, t]]
                    seen[node, tokens[b, t]] = old + 1
                    if 1 <= old <= 2:
                        tally[depth, old - 1] -= 1
                    if old <= 1:
                        tally[depth, old] += 1
                    if continued and old > 0:
                        break
            opened = walk(tokens[b], t + 1, order, trie)
            for node in range(path[order + 1] - opened, path[order + 1]):
                for m in range(vocab):
                    seen[node, m] = 0
            if t >= order and t >= first:
                for depth in range(order + 1):
                    for m in range(vocab):
                        counts[b, t - first, depth, m] = seen[path[depth], m]
                    for n in range(2):
                        tallies[b, t - first, depth, n] = tally[depth, n]
