"""The collapsed samplers: both priors as urns, with the transition kernel integrated out.

Contexts live in a suffix trie (`trie`). A node's parent is its suffix, which is exactly the hierarchy of the
hierarchical prior, and only contexts that occur are ever stored: the |V|^k table is never built.

Customers of a node are draws from its law. A draw repeats an earlier one with probability n / (n + c), where n counts
the node's customers and c is its concentration; otherwise it is a fresh draw from the node's base: the parent node
(hierarchical: a Chinese-restaurant franchise) or the base law (independent, and the root of the franchise), which is
uniform unless the prior tells symbols apart. One uniform number per token makes all its choices: after each choice, the
remainder is rescaled and is uniform again.

`concentrations` is what `Prior.seating` gives: one number per depth, and then, where the base law is not uniform, its
cumulative sums.

The functions are compiled and shared by the samplers of `chains` and by the trainer's inner loop.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from interp.chains.trie import new_trie, plant, walk
from interp.source import njit

Urn: TypeAlias = tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]


@njit()
def new_urn(length: int, order: int, vocab: int) -> Urn:
    """Room for one sequence: children and customers of every trie node, their totals, and the current path."""
    children, path = new_trie(length, order, vocab)
    customers = np.empty(children.shape, dtype=np.int32)
    totals = np.empty(children.shape[0], dtype=np.int32)
    return children, customers, totals, path


@njit(inline="always", error_model="numpy")
def _empty_node(urn: Urn, node: int, vocab: int) -> None:
    _, customers, totals, _ = urn
    totals[node] = 0
    for m in range(vocab):
        customers[node, m] = 0


@njit(inline="always", error_model="numpy")
def walk_to_context(tokens: NDArray[Any], position: int, order: int, vocab: int, urn: Urn) -> None:
    """Put into `path` the nodes of the context that ends just before `position`, opening those that are new."""
    path = urn[3]
    opened = walk(tokens, position, order, (urn[0], path))
    for node in range(path[order + 1] - opened, path[order + 1]):
        _empty_node(urn, node, vocab)


@njit(inline="always", error_model="numpy")
def _base_token(uniform: float, order: int, vocab: int, concentrations: NDArray[Any]) -> int:
    """A draw from the base law."""
    if concentrations.shape[0] == order + 1:
        return min(int(uniform * vocab), vocab - 1)
    token = 0
    for m in range(vocab - 1):  # the last sum is 1 up to rounding
        token += uniform >= concentrations[order + 1 + m]
    return token


@njit(inline="always", error_model="numpy")
def base_law(law: NDArray[Any], order: int, vocab: int, concentrations: NDArray[Any]) -> None:
    """Write the base law into `law`."""
    if concentrations.shape[0] == order + 1:
        for m in range(vocab):
            law[m] = 1.0 / vocab
        return
    before = 0.0
    for m in range(vocab):
        law[m] = concentrations[order + 1 + m] - before
        before = concentrations[order + 1 + m]


@njit(inline="always", error_model="numpy")
def draw_token(
    uniform: float, order: int, vocab: int, concentrations: NDArray[Any], independent: bool, urn: Urn
) -> int:
    """The next token after the context in `path`, from one uniform number by inversion; the urn is updated."""
    _, customers, totals, path = urn
    top = order if independent else 0
    stop = top
    token = -1
    for depth in range(order, top - 1, -1):
        node = path[depth]
        n = totals[node]
        uniform *= n + concentrations[depth]
        if uniform < n:
            # A count, not a search: the processor would mispredict the branches of a search at every second token.
            token = 0
            for m in range(vocab):
                uniform -= customers[node, m]
                token += uniform >= 0
            stop = depth
            break
        uniform = (uniform - n) / concentrations[depth]
    if token < 0:
        token = _base_token(uniform, order, vocab, concentrations)
    for depth in range(stop, order + 1):
        node = path[depth]
        customers[node, token] += 1
        totals[node] += 1
    return token


@njit(error_model="numpy", _nrt=False)  # references of arrays are not counted, which took more than half of the time
def draw_chain(
    uniforms: NDArray[Any],
    tokens: NDArray[Any],
    order: int,
    vocab: int,
    concentrations: NDArray[Any],
    independent: bool,
    urn: Urn,
) -> None:
    """Fill `tokens` from `uniforms` of the same length and leave `path` at the context of the token after the last.

    `concentrations[d]` is the total concentration at depth d: (eta0 |V|, eta_1, ..., eta_k) for the hierarchical prior;
    only the last entry, alpha |V|, counts for the independent one.
    """
    length = tokens.shape[0]
    plant((urn[0], urn[3]))
    _empty_node(urn, 0, vocab)
    for t in range(min(order, length)):
        tokens[t] = min(int(uniforms[t] * vocab), vocab - 1)
    for t in range(order, length):
        walk_to_context(tokens, t, order, vocab, urn)
        tokens[t] = draw_token(uniforms[t], order, vocab, concentrations, independent, urn)
    walk_to_context(tokens, length, order, vocab, urn)


@njit()
def predictive_law(
    law: NDArray[Any],
    order: int,
    vocab: int,
    concentrations: NDArray[Any],
    independent: bool,
    urn: Urn,
) -> None:
    """Write into `law` the law of the token after the last one given the tokens and the seating.

    It is E[pi_{u_T} | tokens, seating]: as a training target it has the same expected gradient as a sampled next
    token, and less noise even than the true law.
    """
    _, customers, totals, path = urn
    base_law(law, order, vocab, concentrations)
    for depth in range(order if independent else 0, order + 1):
        node = path[depth]
        total = totals[node] + concentrations[depth]
        for m in range(vocab):
            law[m] = (customers[node, m] + concentrations[depth] * law[m]) / total


@njit()
def draw_batch(
    uniforms: NDArray[Any],
    tokens: NDArray[Any],
    path_customers: NDArray[Any],
    order: int,
    vocab: int,
    concentrations: NDArray[Any],
    independent: bool,
) -> None:
    """Fill `tokens` [batch, length] and the customers along each last context's path [batch, order + 1, vocab]."""
    urn = new_urn(tokens.shape[1], order, vocab)
    _, customers, _, path = urn
    for b in range(tokens.shape[0]):
        draw_chain(uniforms[b], tokens[b], order, vocab, concentrations, independent, urn)
        for depth in range(order + 1):
            for m in range(vocab):
                path_customers[b, depth, m] = customers[path[depth], m]


@njit()
def draw_visited_laws(
    uniforms: NDArray[Any],
    last: NDArray[Any],
    order: int,
    vocab: int,
    concentrations: NDArray[Any],
    independent: bool,
    rng: np.random.Generator,
    laws: NDArray[Any],
) -> None:
    """Fill `laws` [batch, length, vocab] at all positions of a full context, for the chains that the uniforms give.

    Given the seating, the law of a node is Dirichlet around its parent's law plus the node's customers. The laws along
    the path of the last context are known: `last` [depth, batch, vocab].
    """
    batch, length = uniforms.shape
    top = order if independent else 0
    urn = new_urn(length, order, vocab)
    _, customers, totals, path = urn
    tokens = np.empty(length, dtype=np.int64)
    drawn = np.empty(totals.shape[0], dtype=np.int64)  # the last sequence in which the node has got its law
    found = np.empty(customers.shape)
    base = np.empty(vocab)
    shapes = np.empty(vocab)
    base_law(base, order, vocab, concentrations)
    for node in range(drawn.shape[0]):
        drawn[node] = -1
    for b in range(batch):  # entry by entry: an assignment to a slice takes seconds to compile
        draw_chain(uniforms[b], tokens, order, vocab, concentrations, independent, urn)
        for depth in range(top, order + 1):
            drawn[path[depth]] = b
            for m in range(vocab):
                found[path[depth], m] = last[depth - top, b, m]
        for t in range(order - 1, length):
            walk_to_context(tokens, t + 1, order, vocab, urn)
            for depth in range(top, order + 1):
                node = path[depth]
                if drawn[node] < b:
                    drawn[node] = b
                    for m in range(vocab):
                        parent = base[m] if depth == top else found[path[depth - 1], m]
                        shapes[m] = concentrations[depth] * parent + customers[node, m]
                    draw_dirichlet_row(shapes, found[node], rng)
            for m in range(vocab):
                laws[b, t, m] = found[path[order], m]


@njit()
def draw_dirichlet_row(shapes: NDArray[Any], law: NDArray[Any], rng: np.random.Generator) -> None:
    """One Dirichlet draw into `law`."""
    vocab = len(shapes)
    if shapes.max() >= 0.5:  # the sum cannot underflow; a single entry may underflow to zero, which is harmless
        for m in range(vocab):
            law[m] = rng.standard_gamma(shapes[m]) if shapes[m] > 0.0 else 0.0
    else:
        top = -np.inf
        for m in range(vocab):
            law[m] = -np.inf
            if shapes[m] > 0.0:
                law[m] = np.log(rng.standard_gamma(shapes[m] + 1.0)) + np.log(rng.random()) / shapes[m]
            top = max(top, law[m])
        for m in range(vocab):
            law[m] = np.exp(law[m] - top)
    total = law.sum()
    for m in range(vocab):
        law[m] /= total
