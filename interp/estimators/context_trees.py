"""Context-tree weighting: Bayes over all context trees, as a classical smoother to compare with.

    context_tree_weighting(tokens, order=2, vocab=5)      [batch, vocab], or [batch, length, vocab]

It reads contiguous suffixes of the context over the paper's candidates, as the smoothers of `classical` do.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from interp.arguments import Switch, Whole, fits_memory
from interp.chains.trie import new_trie, plant, trie_bytes, walk
from interp.estimators.counts import queries
from interp.estimators.soft_matching import Law
from interp.notation import Tokens
from interp.source import njit

Array: TypeAlias = NDArray[Any]

KT = 0.5  # the pseudo-count of each symbol at a leaf


def context_tree_weighting(tokens: Tokens, *, order: Whole, vocab: Whole, every_position: Switch = False) -> Law:
    """The exact mixture over all context trees of depth <= k (Willems et al. 1995), with |V|-ary KT leaves.

    A context c has the block probability P_c = KT_c at depth k and P_c = (KT_c + prod_children P_child) / 2
    above: at every inner node the prior tosses a fair coin between stopping there and splitting on the next
    older token. KT_c is the Krichevsky-Trofimov probability of the symbols that followed c, sequentially
    (n(m) + 1/2) / (n + |V| / 2). The prediction is the ratio of the root's block
    probabilities with and without the next symbol, computed along the path of the context only.

    Parameters
    ----------
    tokens
        Sequences [batch, length] without BOS, or chains of a prior.
    order
        k, the depth of the trees.
    vocab
        |V|, the number of symbols.
    every_position
        Answer after every token, from the tokens so far, rather than after the last one.

    Returns
    -------
    Law
        Probabilities of the next token, [batch, vocab]; with `every_position` [batch, length, vocab].

    Examples
    --------
    >>> context_tree_weighting([[0, 1, 1, 0, 1]], order=1, vocab=2).numpy().round(3).tolist()
    [[0.409, 0.591]]
    """
    asked = queries(tokens, order=order, vocab=vocab, every_position=every_position)
    fits_memory(trie_bytes(asked.tokens.shape[1], asked.order, asked.vocab), what="the contexts of one sequence")
    laws = asked.empty_laws()
    laws[:] = 1.0 / asked.vocab
    _fill_tree_laws(asked.tokens, asked.order, asked.vocab, asked.first, laws)
    return asked.result(laws)


@njit()
def _mix_path(counts: Array, ratios: Array, path: Array, order: int, vocab: int, laws: Array) -> None:
    """laws[d] becomes the prediction of the subtree at the path's depth d; laws[0] is the root's."""
    for depth in range(order, -1, -1):
        node = path[depth]
        total = counts[node].sum() + KT * vocab
        stop = 1.0 if depth == order else 1.0 / (1.0 + np.exp(-ratios[node]))
        for m in range(vocab):
            leaf = (counts[node, m] + KT) / total
            laws[depth, m] = leaf if depth == order else stop * leaf + (1.0 - stop) * laws[depth + 1, m]


@njit()
def _fill_tree_laws(tokens: Array, order: int, vocab: int, first: int, laws: Array) -> None:
    length = tokens.shape[1]
    trie = new_trie(length, order, vocab)
    path = trie[1]
    nodes = trie[0].shape[0]
    counts = np.empty((nodes, vocab), dtype=np.int64)
    ratios = np.empty(nodes)  # ln KT_c - ln prod P_child: the coin's log odds after the symbols so far
    path_laws = np.empty((order + 1, vocab))
    for b in range(tokens.shape[0]):
        plant(trie)
        counts[0] = 0
        ratios[0] = 0.0
        for t in range(order - 1, length):
            if t >= order:  # `path` and `path_laws` belong to the context that this token follows
                token = tokens[b, t]
                for depth in range(order + 1):
                    node = path[depth]
                    if depth < order:
                        leaf = (counts[node, token] + KT) / (counts[node].sum() + KT * vocab)
                        ratios[node] += np.log(leaf) - np.log(path_laws[depth + 1, token])
                    counts[node, token] += 1
            opened = walk(tokens[b], t + 1, order, trie)
            for node in range(path[order + 1] - opened, path[order + 1]):
                counts[node] = 0
                ratios[node] = 0.0
            _mix_path(counts, ratios, path, order, vocab, path_laws)
            if t >= order and t >= first:
                laws[b, t - first] = path_laws[0]
