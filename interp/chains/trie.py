"""A suffix trie of contexts, compiled: the root is the empty context, and a step down adds the next older token.

So a node's parent is its suffix, and only contexts that occur are ever stored. `children[node, token]` is the child, or
-1. `path` holds the node of every depth 0..k of the current context, and then the number of nodes in use. The samplers
(`urn`) and the counts along suffixes (`suffixes`) keep their own numbers for each node beside it.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from interp.source import njit

Array: TypeAlias = NDArray[Any]
Trie: TypeAlias = tuple[Array, Array]


@njit()
def most_nodes(length: int, order: int) -> int:
    """How many nodes the contexts of one sequence can have."""
    return 2 + order * (length + 1)


def trie_bytes(length: int, order: int, vocab: int) -> int:
    """About how many bytes a trie takes, with two numbers of eight bytes for each node and symbol."""
    return (2 + order * (length + 1)) * vocab * 20


@njit()
def new_trie(length: int, order: int, vocab: int) -> Trie:
    """Room for one sequence: children and path."""
    return np.empty((most_nodes(length, order), vocab), dtype=np.int32), np.zeros(order + 2, dtype=np.int32)


@njit(inline="always", error_model="numpy")
def plant(trie: Trie) -> None:
    """Empty the trie: the root alone, without children."""
    children, path = trie
    path[path.shape[0] - 1] = 1
    for m in range(children.shape[1]):
        children[0, m] = -1


@njit(inline="always", error_model="numpy")
def walk(tokens: Array, end: int, order: int, trie: Trie) -> int:
    """Put the nodes of the context that ends just before `end` into the path; returns how many of them are new.

    New nodes are the deepest ones and take the next free numbers, so a parent's number is below its children's.
    """
    children, path = trie
    node = 0
    opened = 0
    path[0] = 0
    for depth in range(order):
        token = tokens[end - 1 - depth]
        child = children[node, token]
        if child < 0:
            child = path[order + 1]
            path[order + 1] += 1
            opened += 1
            for m in range(children.shape[1]):
                children[child, m] = -1
            children[node, token] = child
        node = child
        path[depth + 1] = node
    return opened
